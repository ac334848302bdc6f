//! The commands that observe or measure this machine's own kernel, which has to be Linux.

use std::path::PathBuf;

use clap::Args;

use super::whole_number;

/// Arguments of `record`.
#[derive(Debug, Args)]
#[command(
    after_help = "Needs the rights to trace: run it with sudo. It records in its own trace instance, \
    which is removed at the end, on Ctrl-C, and, if the recorder was killed, by the next start. \
    A command is recorded with its child processes, and runs with the rights of shootdown: \
    `sudo -u` drops them. Under sudo the calling user owns the file.\n\n\
    Examples:\n  \
    sudo shootdown record -o make.parquet -- sudo -u $USER make -j8\n  \
    sudo shootdown record --system -- make -j8              the whole system while make runs\n  \
    sudo shootdown record --pid 4711 --seconds 10           a running process\n  \
    sudo shootdown record --seconds 60                      the whole system, for a minute\n  \
    sudo shootdown record                                   the whole system, until Ctrl-C"
)]
pub struct RecordArgs {
    /// The command; its child processes are recorded too
    #[arg(last = true, value_name = "COMMAND", conflicts_with = "pid")]
    pub command: Vec<String>,

    /// Where to write
    #[arg(short, long, value_name = "FILE", default_value = "recording.parquet")]
    pub output: PathBuf,

    /// Stop after that many seconds; the command continues
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub seconds: Option<f64>,

    /// Record this process and its children
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(u32))]
    pub pid: Option<u32>,

    /// Record every process of the system, not only the command
    #[arg(long, conflicts_with = "pid")]
    pub system: bool,

    /// Also record page faults of user code (x86): in most programs the most frequent event; replays do not use them
    #[arg(long)]
    pub faults: bool,

    /// The kernel's buffer for each CPU, in MiB: larger loses fewer events
    #[arg(long, value_name = "MIB", default_value = "8", value_parser = whole_number, allow_negative_numbers = true)]
    pub buffer_mib: u64,

    /// Print only JSON, for programs
    #[arg(long)]
    pub json: bool,

    /// Take this folder for the trace file system, for tests.
    #[arg(long, value_name = "DIR", hide = true)]
    pub tracefs: Option<PathBuf>,
}

/// Arguments of `host`.
#[derive(Debug, Args)]
#[command(
    after_help = "Threads are pinned, one to a CPU. The workloads are those of the simulator: \
    tlb_flush2, madvise_spin, mprotect_all, context_switch. \
    Interrupts per operation are the TLB line of /proc/interrupts. No rights are needed.\n\n\
    Examples:\n  \
    shootdown host                                          all of them, at 1, 2, 4, .. threads\n  \
    shootdown host tlb_flush2 madvise_spin --threads 1,2    some of them\n  \
    shootdown host --json | jq '.runs[] | [.workload, .threads, .ops_per_s]'"
)]
pub struct HostArgs {
    /// Workloads [default: all four]
    #[arg(value_name = "WORKLOAD")]
    pub workloads: Vec<String>,

    /// Thread counts, at most one per CPU [default: 1,2,4,.. and all CPUs]
    #[arg(
        long,
        value_name = "N,N,..",
        value_delimiter = ',',
        value_parser = whole_number,
        allow_negative_numbers = true
    )]
    pub threads: Option<Vec<u64>>,

    /// How to measure.
    #[command(flatten)]
    pub measure: MeasureArgs,

    /// Print only JSON, for programs (one element per run)
    #[arg(long)]
    pub json: bool,
}

/// How to measure on this machine.
#[derive(Debug, Args)]
pub struct MeasureArgs {
    /// Length of each run
    #[arg(long, value_name = "S", default_value = "0.5", allow_negative_numbers = true)]
    pub seconds: f64,

    /// Runs of each row; medians are shown
    #[arg(long, value_name = "N", default_value = "3", value_parser = whole_number, allow_negative_numbers = true)]
    pub runs: u64,
}

/// Arguments of `calibrate`.
#[derive(Debug, Args)]
#[command(
    after_help = "Measures the workloads of `shootdown host` and single costs (system call, line transfer, refill, \
    local flush), takes the topology of the machine from sysfs, fits the numbers that cannot be measured alone, \
    and simulates every row with the result. Other numbers are those of the nearest built-in model, marked assumed. \
    A busy machine is refused: rates would be too low, and costs too high.\n\n\
    Examples:\n  \
    shootdown calibrate -o machines/mine.toml\n  \
    shootdown compare tlb_flush2 --on ./machines/mine.toml --designs ipi,adaptive\n  \
    shootdown calibrate -o mine.toml --seconds 2 --runs 5   longer runs\n  \
    shootdown calibrate -o mine.toml --busy-host            although other programs run; the model says so"
)]
pub struct CalibrateArgs {
    /// Where to write the machine model; its name is that of the file
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,

    /// How to measure.
    #[command(flatten)]
    pub measure: MeasureArgs,

    /// Measure although other programs run; the model's description says so
    #[arg(long)]
    pub busy_host: bool,

    /// Print only JSON, for programs (one element per row)
    #[arg(long)]
    pub json: bool,

    /// Read the machine's load in this folder instead of /proc, for tests.
    #[arg(long, value_name = "DIR", hide = true)]
    pub proc: Option<PathBuf>,
}
