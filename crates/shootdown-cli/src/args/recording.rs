//! The commands that read a recording of a real program.

use std::path::PathBuf;

use clap::Args;

use super::machine::MachineArgs;
use super::whole_number;

/// Arguments of `import`.
#[derive(Debug, Args)]
#[command(
    after_help = "Reads the text of a tracefs trace file, of `perf script` or of `trace-cmd report`, \
    plain or compressed (gzip, xz, Zstandard, bzip2), in every form that these print with CPU and time. \
    Damaged and unknown lines are counted, reported and skipped. \
    The Parquet file has a row per event and its metadata inside.\n\n\
    Examples:\n  \
    shootdown import cc_make_j2.txt.gz                      writes cc_make_j2.parquet\n  \
    perf script -F comm,pid,tid,cpu,time,event,trace | shootdown import - -o make.parquet\n  \
    shootdown import trace.txt --victims thread             which threads are interrupted, and which threads send\n  \
    shootdown import trace.txt --json | jq .shootdowns"
)]
pub struct ImportArgs {
    /// The recording; - is stdin
    #[arg(value_name = "FILE")]
    pub file: PathBuf,

    /// Where to write [default: FILE with .parquet in place of its ending]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// Print only what shootdowns interrupt: by CPU, by thread, or by the system call that sends them; every row
    #[arg(long, value_name = "cpu|thread|call", ignore_case = true)]
    pub victims: Option<VictimsBy>,

    /// Print only JSON, for programs
    #[arg(long)]
    pub json: bool,
}

/// What `--victims` groups interrupts by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum VictimsBy {
    /// The CPU that is interrupted
    Cpu,
    /// The thread that is interrupted
    Thread,
    /// The system call that sent the request
    Call,
}

impl VictimsBy {
    /// The grouping.
    pub fn by(self) -> shootdown_trace::victims::By {
        use shootdown_trace::victims::By;
        match self {
            VictimsBy::Cpu => By::Cpu,
            VictimsBy::Thread => By::Thread,
            VictimsBy::Call => By::Call,
        }
    }
}

/// Arguments of `replay`.
#[derive(Debug, Args)]
#[command(after_help = "Threads run, sleep and request flushes as recorded; \
    the engine decides how each flush is carried out.\n\
    How the program is scaled to the machine, --scale:\n  \
    N          N copies, each on as many CPUs as the recording had, with address spaces of their own; \
    they begin up to 10 ms apart, so that they do not run in step\n  \
    threads:N  every thread N times in the same address space: the program with N times its threads\n  \
    spread     every thread on a CPU of its own, idle when the thread is not running\n\n\
    Examples:\n  \
    shootdown replay go_gc.parquet --on milan-72 --designs ipi,broadcast,adaptive\n  \
    shootdown replay go_gc.txt.gz --on milan-72 --scale threads:36 --html replay.html\n  \
    shootdown replay cc_make_j2.txt.gz --on zen5-vm-2 --designs ipi-trim     as recorded: predicted beside recorded\n  \
    shootdown replay java_zgc.txt.gz --on turin-2p --scale 4 --json | jq '.designs[].shootdowns'")]
pub struct ReplayArgs {
    /// The recording: Parquet of `import` or `record`, or trace text, plain or compressed
    #[arg(value_name = "FILE")]
    pub file: PathBuf,

    /// Where it runs.
    #[command(flatten)]
    pub machine: MachineArgs,

    /// Designs to compare
    #[arg(long, value_name = "D,D,..", value_delimiter = ',', default_value = crate::catalog::FLAGSHIP_DESIGNS)]
    pub designs: Vec<String>,

    /// How the program is scaled to more CPUs: `N`, `threads:N` or `spread` (see below)
    #[arg(long, value_name = "RULE", default_value = "1")]
    pub scale: shootdown_sim::replay::Scale,

    /// Seed: the same seed gives the same result
    #[arg(long, value_name = "N", default_value = "1", value_parser = whole_number, allow_negative_numbers = true)]
    pub seed: u64,

    /// Host threads to run on [default: all]
    #[arg(long, value_name = "N", value_parser = whole_number, allow_negative_numbers = true)]
    pub jobs: Option<u64>,

    /// Print only JSON, for programs
    #[arg(long)]
    pub json: bool,

    /// Also write a self-contained page with a timeline to this file
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}
