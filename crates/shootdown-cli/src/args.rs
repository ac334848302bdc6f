//! The command line: one grammar for every run, a workload on a target under a design.
//!
//! This file says what can be written; [`crate::plan`] decides whether it makes sense.

#[cfg(target_os = "linux")]
mod linux;
mod qemu;

use std::path::PathBuf;

#[cfg(target_os = "linux")]
pub use linux::{CalibrateArgs, HostArgs, MeasureArgs, RecordArgs};

pub use qemu::{Accel, QemuArgs};

use clap::{Args, Parser, Subcommand};

/// The whole command line.
#[derive(Debug, Parser)]
#[command(
    name = "shootdown",
    version,
    about = "Compare TLB-coherence designs on machines you do not own",
    long_about = "Compare TLB-coherence designs (interrupts, broadcast, adaptive) on simulated many-CPU machines.\n\n\
        Every access is checked by an oracle; simulated throughput is printed beside published measurements.\n\
        Without a command, the flagship comparison runs: tlb_flush2 on milan-72 at 1 to 72 threads, with an HTML report.",
    after_help = "Examples:\n  \
        shootdown                                        the flagship comparison and its HTML report\n  \
        shootdown compare tlb_flush2 --threads 1,16,72   choose the thread counts\n  \
        shootdown list                                   workloads, machines and designs\n  \
        shootdown evidence                               simulated results beside published ones\n\n\
        Exit status: 0; 1 when a stale translation was seen or a run failed; 2 on bad usage; 130 after Ctrl-C."
)]
pub struct Cli {
    /// What to do; nothing means the flagship comparison.
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run one workload on one machine under several designs and compare them
    Compare(CompareArgs),
    /// Run every combination of parameter values, in shards if need be; resumes when interrupted
    Sweep(SweepArgs),
    /// Record what this machine's kernel does with translations while a command runs, as one Parquet file
    #[cfg(target_os = "linux")]
    Record(RecordArgs),
    /// Measure small workloads on this machine's own kernel
    #[cfg(target_os = "linux")]
    Host(HostArgs),
    /// Measure this machine and write a machine model that fits it
    #[cfg(target_os = "linux")]
    Calibrate(CalibrateArgs),
    /// Read a recording of a real program (trace text of Linux) and keep it as one Parquet file
    Import(ImportArgs),
    /// Replay a recording of a real program on a simulated machine, under several designs
    Replay(ReplayArgs),
    /// Run the bare-metal kernel in QEMU: real page tables, real interrupts, under several designs
    Qemu(QemuArgs),
    /// Show one shootdown across CPUs: who sent, who was lazy, who answered when
    Timeline(TimelineArgs),
    /// List the workloads, machines and designs
    List(ListArgs),
    /// Tell why requests of one run went by interrupts, by broadcast or nowhere, and what each way cost
    Explain(ExplainArgs),
    /// Print published tables beside simulated results, with errors on fitted and held-out rows
    Evidence(EvidenceArgs),
    /// Sweep the rate of table frees: what lockless walks pay under each design, and where one becomes cheaper than another
    Walkers(WalkersArgs),
    /// Hold `adaptive` against the best preset in every cell of machine, workload and threads
    Scoreboard(ScoreboardArgs),
    /// Try every order of what can happen in small races, on the real engine
    Check(CheckArgs),
}

/// Arguments of `compare`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    shootdown compare tlb_flush2 --on milan-72 --designs ipi,broadcast,adaptive --threads 1,4,16,72\n  \
    shootdown compare tlb_flush2 --runs 5 --html out.html    medians of five seeds, plots\n  \
    shootdown compare tlb_flush2 --threads 36 --lru-drain    kernels without the LRU fix\n  \
    shootdown compare tlb_flush2 --cpus 1024 --threads 1024  the same kind of machine, only larger\n  \
    shootdown compare tlb_flush2 --cpus-follow-threads --html growth.html   cost from 1 to 8192 CPUs (an hour)\n  \
    shootdown compare tlb_flush2 --set costs.invlpg=200      what if one cost were different\n  \
    shootdown compare tlb_shared --designs none              watch the oracle catch it\n  \
    shootdown compare latency --designs ipi,preemptible --threads 16 --latencies\n  \
    shootdown compare trace:build.parquet --designs ipi,broadcast --threads 2,16,72   a recorded program\n  \
    shootdown compare tlb_flush2 --json | jq '.runs[].ops_per_s'")]
pub struct CompareArgs {
    /// Workload, as in `shootdown list`; `trace:FILE` is a recorded program
    #[arg(value_name = "WORKLOAD")]
    pub workload: String,

    /// Machine model: a name as in `shootdown list`, or the path of a .toml file
    #[arg(long, value_name = "MACHINE", default_value = crate::catalog::FLAGSHIP_MACHINE)]
    pub on: String,

    /// Make the machine large enough for N CPUs, with more sockets of the same kind
    #[arg(long, value_name = "N", value_parser = whole_number, allow_negative_numbers = true)]
    pub cpus: Option<u64>,

    /// Make the machine as large as each thread count asks, and show how the cost grows with CPUs [thread counts: 1,2,4,..8192]
    #[arg(long, conflicts_with = "cpus")]
    pub cpus_follow_threads: bool,

    /// Replace one number of the machine model, in the unit of its file, or of the workload (`workload.NAME.PARAMETER`); repeatable
    #[arg(long, value_name = "PATH=VALUE")]
    pub set: Vec<String>,

    /// Designs to compare
    #[arg(long, value_name = "D,D,..", value_delimiter = ',', default_value = crate::catalog::FLAGSHIP_DESIGNS)]
    pub designs: Vec<String>,

    /// Thread counts, at most one per CPU (`madvise_stress`: also more) [default: 1,2,4,.. and all CPUs]
    #[arg(long, value_name = "N,N,..", value_delimiter = ',', value_parser = whole_number, allow_negative_numbers = true)]
    pub threads: Option<Vec<u64>>,

    /// Runs per design and thread count; run k uses seed+k, and medians are shown
    #[arg(long, value_name = "N", default_value = "1", value_parser = whole_number, allow_negative_numbers = true)]
    pub runs: u64,

    /// How to run it.
    #[command(flatten)]
    pub run: RunArgs,

    /// Drain the CPU's LRU batch under the LRU lock at each madvise, as kernels without the LRU fix do
    #[arg(long)]
    pub lru_drain: bool,

    /// Also print the distributions of latencies: flushes, preemption off, interrupts, wake-ups
    #[arg(long, conflicts_with = "json")]
    pub latencies: bool,

    /// Print only JSON, for programs (one element per run, no control run)
    #[arg(long)]
    pub json: bool,

    /// Also write a self-contained HTML report to this file
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// Arguments of `sweep`.
#[derive(Debug, Args)]
#[command(
    after_help = "VALUES is a list of values and of ranges LOW..HIGH[:log|:lin][:N], both ends included; the word `range`\n\
    stands for the range that the machine model states for the parameter, `assumed=range` for that of every assumed one.\n\
    Finished runs are kept in FILE.journal until FILE is complete: repeat an interrupted command and it goes on.\n\n\
    Examples:\n  \
    shootdown sweep tlb_flush2 --designs ipi,adaptive --threads 2,16,all --set costs.ipi_send=200..4000:log:8 -o s.csv\n  \
    shootdown sweep tlb_flush2 --set assumed=range:2 --one-at-a-time --threads 16 -o ends.parquet\n  \
    shootdown sweep tlb_flush2 --set assumed=range:2 --one-at-a-time --set broadcast.available=0 --threads 16,all   says whether adaptive is ahead at both ends of every range\n  \
    shootdown sweep tlb_flush2 --set costs.invlpg=range --set kernel.wake=range:log --sample 100 -o sample.csv\n  \
    shootdown sweep tlb_flush2 --cpus 72..1152:log:5 --threads all --shard 3/8 -o part3.csv\n  \
    shootdown sweep --merge part1.csv part2.csv -o all.parquet"
)]
pub struct SweepArgs {
    /// Workloads, as in `shootdown list`
    #[arg(value_name = "WORKLOAD,..", required_unless_present = "merge")]
    pub workload: Option<String>,

    /// Machine models: names as in `shootdown list`, or paths of .toml files
    #[arg(long, value_name = "M,M,..", value_delimiter = ',', default_value = crate::catalog::FLAGSHIP_MACHINE)]
    pub on: Vec<String>,

    /// Designs
    #[arg(long, value_name = "D,D,..", value_delimiter = ',', default_value = crate::catalog::FLAGSHIP_DESIGNS)]
    pub designs: Vec<String>,

    /// Thread counts, `all` for as many as CPUs [default: 1,2,4,.. and all]
    #[arg(long, value_name = "VALUES", allow_hyphen_values = true)]
    pub threads: Option<String>,

    /// Make each machine large enough for so many CPUs, with more sockets of the same kind
    #[arg(long, value_name = "VALUES", allow_hyphen_values = true)]
    pub cpus: Option<String>,

    /// Values of one number of the machine model, in the unit of its file (repeatable)
    #[arg(long, value_name = "PATH=VALUES")]
    pub set: Vec<String>,

    /// Points of a range that does not say how many
    #[arg(long, value_name = "N", default_value = "5", value_parser = whole_number, allow_negative_numbers = true)]
    pub points: u64,

    /// Draw N sets of values from the ranges of --set (a Latin hypercube) in place of every combination
    #[arg(long, value_name = "N", value_parser = whole_number, allow_negative_numbers = true, conflicts_with = "one_at_a_time")]
    pub sample: Option<u64>,

    /// Vary one --set at a time, the others as in the machine model, in place of every combination; a --set with one value
    /// holds throughout
    #[arg(long)]
    pub one_at_a_time: bool,

    /// Runs per point; run k uses seed+k
    #[arg(long, value_name = "N", default_value = "1", value_parser = whole_number, allow_negative_numbers = true)]
    pub runs: u64,

    /// How to run it.
    #[command(flatten)]
    pub run: RunArgs,

    /// Drain the CPU's LRU batch under the LRU lock at each madvise, as kernels without the LRU fix do
    #[arg(long)]
    pub lru_drain: bool,

    /// Run only share I of N; the shares are disjoint and together are the sweep
    #[arg(long, value_name = "I/N", value_parser = crate::sweep::Shard::parse)]
    pub shard: Option<crate::sweep::Shard>,

    /// Put the results of all shards together in place of running anything
    #[arg(long, value_name = "FILE", num_args = 1.., conflicts_with_all = ["workload", "shard", "set", "sample"], requires = "output")]
    pub merge: Vec<PathBuf>,

    /// Write one row per run to this file, .csv or .parquet
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// Print only JSON, for programs (one element per run)
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `import`.
#[derive(Debug, Args)]
#[command(
    after_help = "Reads the text of a tracefs trace file, of `perf script` or of `trace-cmd report`, plain or gzip. Damaged and\n\
    unknown lines are counted, reported and skipped. The Parquet file has a row per event and its metadata inside.\n\n\
    Examples:\n  \
    shootdown import cc_make_j2.txt.gz                      writes cc_make_j2.parquet\n  \
    perf script -F comm,pid,tid,cpu,time,event,trace | shootdown import - -o make.parquet\n  \
    shootdown import trace.txt --json | jq .shootdowns"
)]
pub struct ImportArgs {
    /// The recording; - is stdin
    #[arg(value_name = "FILE")]
    pub file: PathBuf,

    /// Where to write [default: FILE with .parquet in place of its ending]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// Print only JSON, for programs
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `check`.
#[derive(Debug, Args)]
#[command(
    long_about = "Try every order of what can happen in small races of two or three CPUs, on the real engine: which CPU goes \
    on, when a store leaves its store buffer, when an interrupt arrives, what a processor has cached on its own accord \
    (x86-TSO). Prints how many states there are, and the first run that breaks a rule as a story. `none` is the control: it \
    must break one. Exit status 1 when another design does, or `none` does not.",
    after_help = "Races of two CPUs: flush, cross, masked, twice, switch, return, lazy, kernel, tables, lazy-tables, end, batch,\n\
    hotplug, walk, foreign-walk; of three: flush-3, switch-3, cross-3.\n\n\
    Examples:\n  \
    shootdown check                                   races of two CPUs under every design, exhaustively\n  \
    shootdown check switch-3 --designs ipi,adaptive   one of three CPUs\n  \
    shootdown check --three --preemptions 2           all, with at most two preemptions in a run\n  \
    shootdown check --random 10000                    random runs by priorities, of up to four CPUs\n  \
    shootdown check flush --designs none --record bug.txt --details\n  \
    shootdown check --replay bug.txt"
)]
pub struct CheckArgs {
    /// Races; all of two CPUs when none is named
    #[arg(value_name = "RACE")]
    pub races: Vec<String>,

    /// Designs, as in `shootdown list`, or adaptive-no-broadcast; all when none is named
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub designs: Vec<String>,

    /// Also the races of three CPUs, when none is named
    #[arg(long)]
    pub three: bool,

    /// Instead of going through every order of steps, so many random runs by priorities; also of races of three and four CPUs
    #[arg(long, value_name = "RUNS", conflicts_with_all = ["states", "preemptions", "three"], value_parser = clap::value_parser!(u64).range(1..))]
    pub random: Option<u64>,

    /// Most states of one exploration
    #[arg(long, value_name = "N", default_value_t = 50_000_000)]
    pub states: u64,

    /// Most times in a run that a CPU which could go on has to let another go on
    #[arg(long, value_name = "N")]
    pub preemptions: Option<u32>,

    /// Write the first counterexample to FILE
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,

    /// Tell the counterexample in FILE
    #[arg(long, value_name = "FILE", conflicts_with_all = ["races", "designs", "three", "random", "record", "json"])]
    pub replay: Option<PathBuf>,

    /// Tell every access to memory
    #[arg(long)]
    pub details: bool,

    /// Host threads [default: as many as there are cores]
    #[arg(long, value_name = "N")]
    pub jobs: Option<u64>,

    /// Print only JSON, for programs
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `replay`.
#[derive(Debug, Args)]
#[command(
    after_help = "Threads run, sleep and ask for flushes as recorded; what becomes of the requests is the simulated engine's business.\n\
    How the program is put on the machine, --scale:\n  \
    N          N copies, each on as many CPUs as the recording had, with address spaces of their own; they begin up to\n             \
    10 ms apart, so that they do not run in step\n  \
    threads:N  every thread N times in the same address space: the program with N times its threads\n  \
    spread     every thread on a CPU of its own, idle when the thread is not running\n\n\
    Examples:\n  \
    shootdown replay go_gc.parquet --on milan-72 --designs ipi,broadcast,adaptive\n  \
    shootdown replay go_gc.txt.gz --on milan-72 --scale threads:36 --html replay.html\n  \
    shootdown replay cc_make_j2.txt.gz --on zen5-vm-2 --designs ipi          as recorded: predicted beside recorded\n  \
    shootdown replay java_zgc.txt.gz --on turin-2p --scale 4 --json | jq '.designs[].shootdowns'"
)]
pub struct ReplayArgs {
    /// The recording: Parquet of `import` or `record`, or trace text, plain or gzip
    #[arg(value_name = "FILE")]
    pub file: PathBuf,

    /// Machine model: a name as in `shootdown list`, or the path of a .toml file
    #[arg(long, value_name = "MACHINE", default_value = crate::catalog::FLAGSHIP_MACHINE)]
    pub on: String,

    /// Make the machine large enough for N CPUs, with more sockets of the same kind
    #[arg(long, value_name = "N", value_parser = whole_number, allow_negative_numbers = true)]
    pub cpus: Option<u64>,

    /// Replace one number of the machine model, in the unit of its file (repeatable)
    #[arg(long, value_name = "PATH=VALUE")]
    pub set: Vec<String>,

    /// Designs to compare
    #[arg(long, value_name = "D,D,..", value_delimiter = ',', default_value = crate::catalog::FLAGSHIP_DESIGNS)]
    pub designs: Vec<String>,

    /// How the program is put on more CPUs: `N`, `threads:N` or `spread` (see below)
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

/// Arguments of `timeline`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    shootdown timeline tlb_flush2 --design ipi --threads 8\n  \
    shootdown timeline tlb_flush2 --design ipi --threads 72 --html shootdown.html   lanes and arrows\n  \
    shootdown timeline tlb_flush2 --design broadcast --threads 8                    no interrupts at all\n  \
    shootdown timeline tlb_flush2 --design ipi --threads 16 --nth 40                another one")]
pub struct TimelineArgs {
    /// What to run, and where.
    #[command(flatten)]
    pub place: PlaceArgs,

    /// Design
    #[arg(long, value_name = "DESIGN", default_value = "ipi")]
    pub design: String,

    /// Threads, at most one per CPU (`madvise_stress`: also more)
    #[arg(long, value_name = "N", default_value = "8", value_parser = whole_number, allow_negative_numbers = true)]
    pub threads: u64,

    /// Which of the flushes that interrupt two CPUs or more; else of those that reach others at all
    #[arg(long, value_name = "N", default_value = "1", value_parser = whole_number, allow_negative_numbers = true)]
    pub nth: u64,

    /// Seed: the same seed gives the same shootdown
    #[arg(long, value_name = "N", default_value = "1", value_parser = whole_number, allow_negative_numbers = true)]
    pub seed: u64,

    /// Virtual milliseconds to record after the warm-up [default: 0.5]
    #[arg(long, value_name = "MS", allow_negative_numbers = true)]
    pub virtual_ms: Option<f64>,

    /// Print only JSON, for programs (times in virtual ns since the flush began)
    #[arg(long)]
    pub json: bool,

    /// Also write a self-contained page with lanes and arrows to this file
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// Arguments shared by the commands that look into one run.
#[derive(Debug, Clone, Args)]
pub struct PlaceArgs {
    /// Workload, as in `shootdown list`
    #[arg(value_name = "WORKLOAD")]
    pub workload: String,

    /// Machine model: a name as in `shootdown list`, or the path of a .toml file
    #[arg(long, value_name = "MACHINE", default_value = crate::catalog::FLAGSHIP_MACHINE)]
    pub on: String,

    /// Make the machine large enough for N CPUs, with more sockets of the same kind
    #[arg(long, value_name = "N", value_parser = whole_number, allow_negative_numbers = true)]
    pub cpus: Option<u64>,

    /// Replace one number of the machine model, in the unit of its file (repeatable)
    #[arg(long, value_name = "PATH=VALUE")]
    pub set: Vec<String>,
}

/// Arguments shared by every command that runs something.
#[derive(Debug, Clone, Args)]
pub struct RunArgs {
    /// Seed of the first run: the same seed gives the same result
    #[arg(long, value_name = "N", default_value = "1", value_parser = whole_number, allow_negative_numbers = true)]
    pub seed: u64,

    /// Host threads to run on [default: all]
    #[arg(long, value_name = "N", value_parser = whole_number, allow_negative_numbers = true)]
    pub jobs: Option<u64>,

    /// Virtual milliseconds to measure per run [default: 30; with more than 256 threads until the rate is known to 5 %, but no longer
    /// than ten minutes or so]
    #[arg(long, value_name = "MS", allow_negative_numbers = true)]
    pub virtual_ms: Option<f64>,
}

/// Arguments of `explain`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    shootdown explain tlb_flush2 --on milan-72 --threads 16\n  \
    shootdown explain tlb_flush2 --threads 72 --set broadcast.available=false\n  \
    shootdown explain tlb_flush2 --threads 8 --set costs.broadcast_sync=1500 --html why.html")]
pub struct ExplainArgs {
    /// What to run, and where.
    #[command(flatten)]
    pub place: PlaceArgs,

    /// Design to explain
    #[arg(long, value_name = "D", default_value = "adaptive")]
    pub design: String,

    /// Threads, at most one per CPU (`madvise_stress`: also more)
    #[arg(long, value_name = "N", default_value = "16", value_parser = whole_number, allow_negative_numbers = true)]
    pub threads: u64,

    /// How to run it.
    #[command(flatten)]
    pub run: RunArgs,

    /// Also write the explanation, with its plot, to this file
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// Arguments of `walkers`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    shootdown walkers                          frees of a process that nobody walks (two minutes)\n  \
    shootdown walkers --shared --html w.html   of the process that is walked, with plots\n  \
    shootdown walkers --frees 0,1000,30000     fewer rates")]
pub struct WalkersArgs {
    /// Machine model with 64 CPUs or more: a name as in `shootdown list`, or the path of a .toml file
    #[arg(long, value_name = "MACHINE", default_value = "gup-64")]
    pub on: String,

    /// Replace one number of the machine model or of the workload `gup` (repeatable)
    #[arg(long, value_name = "PATH=VALUE")]
    pub set: Vec<String>,

    /// Table pages to be freed per second, all freeing threads together
    #[arg(long, value_name = "N,N,..", value_delimiter = ',', value_parser = whole_number,
        default_value = "0,100,1000,3000,10000,30000,100000,300000,1000000")]
    pub frees: Vec<u64>,

    /// Free tables of the process that is walked, in place of one that nobody walks
    #[arg(long)]
    pub shared: bool,

    /// How to run it.
    #[command(flatten)]
    pub run: RunArgs,

    /// Also write a self-contained page with plots to this file
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// Arguments of `list`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  shootdown list\n  shootdown list --json | jq -r '.machines[].name'")]
pub struct ListArgs {
    /// Print only JSON, for programs
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `evidence`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    shootdown evidence                         the published tables, and the errors on held-out rows\n  \
    shootdown evidence --runs 5                medians of five seeds, as published\n  \
    shootdown evidence --html evidence.html    the same as a page, with plots and a bar for every error")]
pub struct EvidenceArgs {
    /// Runs per row; run k uses seed+k, and medians are shown
    #[arg(long, value_name = "N", default_value = "3", value_parser = whole_number, allow_negative_numbers = true)]
    pub runs: u64,

    /// How to run it.
    #[command(flatten)]
    pub run: RunArgs,

    /// Also write a self-contained HTML page to this file
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// Arguments of `scoreboard`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    shootdown scoreboard --quick                    the workloads that flushes decide, few thread counts\n  \
    shootdown scoreboard --on milan-72,turin-2p     two machines, with and without broadcast\n  \
    shootdown scoreboard --json | jq '.requirements[] | select(.met | not)'")]
pub struct ScoreboardArgs {
    /// Machine models: names as in `shootdown list`, or paths of .toml files [default: all]
    #[arg(long, value_name = "M,M,..", value_delimiter = ',')]
    pub on: Option<Vec<String>>,

    /// Workloads, as in `shootdown list` [default: all]
    #[arg(long, value_name = "W,W,..", value_delimiter = ',')]
    pub workloads: Option<Vec<String>>,

    /// Fewer workloads and thread counts, shorter runs
    #[arg(long)]
    pub quick: bool,

    /// Show every cell, not the worst only
    #[arg(long)]
    pub all: bool,

    /// Runs per cell and design; run k uses seed+k, and medians count. Cells in which a preset seems ahead, or a demand is
    /// missed, are measured again, longer and with other seeds
    #[arg(long, value_name = "N", default_value = "1", value_parser = whole_number, allow_negative_numbers = true)]
    pub runs: u64,

    /// How to run it.
    #[command(flatten)]
    pub run: RunArgs,

    /// Print only JSON, for programs
    #[arg(long)]
    pub json: bool,
}

/// A mistake on the command line in one line, as every other error here: what is wrong, a tip if there is one, where help is.
pub fn one_line(error: &clap::Error) -> String {
    let text = error.to_string();
    let joined = |block: &str| block.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut blocks = text.split("\n\n").map(joined);
    let mut line = blocks.next().unwrap_or_default();
    if let Some(tip) = blocks.find_map(|block| block.strip_prefix("tip: ").map(str::to_string)) {
        line.push_str(&format!("; {tip}"));
    }
    line.push_str("; see `shootdown --help`");
    line
}

/// Reads a whole number that is not negative, with a message that says what was expected.
fn whole_number(text: &str) -> Result<u64, String> {
    text.trim()
        .parse()
        .map_err(|_| "expected a whole number, for example 4".to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_grammar_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_help_page_has_examples() {
        let mut command = Cli::command();
        assert!(command.render_help().to_string().contains("Examples:"));
        for sub in command.get_subcommands_mut().filter(|sub| sub.get_name() != "help") {
            assert!(
                sub.render_help().to_string().contains("Examples:"),
                "{} has no examples",
                sub.get_name()
            );
        }
    }

    #[test]
    fn lists_are_separated_by_commas() {
        let cli =
            Cli::try_parse_from(["shootdown", "compare", "w", "--threads", "1, 2,4", "--designs", "a,b"]).unwrap();
        let Some(Command::Compare(args)) = cli.command else {
            panic!("not compare")
        };
        assert_eq!(args.threads, Some(vec![1, 2, 4]));
        assert_eq!(args.designs, ["a", "b"]);
    }
}
