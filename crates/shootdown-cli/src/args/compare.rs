//! The commands that run many simulations and set them side by side.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::{RunArgs, whole_number};

/// The figures by which designs are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Metric {
    /// Operations per second
    Rate,
    /// Time of an operation, and of a shootdown
    Time,
}

impl std::fmt::Display for Metric {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Metric::Rate => "rate",
            Metric::Time => "time",
        })
    }
}

/// Arguments of `compare`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    shootdown compare tlb_flush2 --on milan-72 --designs ipi,broadcast,adaptive --threads 1,4,16,72\n  \
    shootdown compare tlb_flush2 --runs 5 --html out.html    medians of five seeds, plots\n  \
    shootdown compare tlb_flush2 --threads 36 --lru-drain    kernels without the LRU fix\n  \
    shootdown compare tlb_flush2 --cpus 1024 --threads 1024  the same kind of machine, with more sockets\n  \
    shootdown compare tlb_flush2 --cpus-follow-threads --html growth.html   cost from 1 to 8192 CPUs (an hour)\n  \
    shootdown compare tlb_flush2 --set costs.invlpg=200      another value for one cost\n  \
    shootdown compare tlb_shared --designs none              see the oracle's diagnosis\n  \
    shootdown compare latency --designs ipi,preemptible --threads 16 --latencies\n  \
    shootdown compare tlb_flush2 --vm 64:32                  a virtual machine whose CPUs are preempted\n  \
    shootdown compare trace:build.parquet --designs ipi,broadcast --threads 2,16,72   a recorded program\n  \
    shootdown compare tlb_flush2 --json | jq '.runs[].ops_per_s'")]
pub struct CompareArgs {
    /// Workload, as in `shootdown list`; `trace:FILE` is a recorded program
    #[arg(value_name = "WORKLOAD")]
    pub workload: String,

    /// Machine model: a name as in `shootdown list`, or the path of a .toml file; `qemu-x86_64`,
    /// `qemu-aarch64` and `qemu-riscv64` are the bare-metal kernel in QEMU
    #[arg(long, value_name = "MACHINE", default_value = crate::catalog::FLAGSHIP_MACHINE)]
    pub on: String,

    /// Make the machine large enough for N CPUs, with more sockets of the same kind
    #[arg(long, value_name = "N", value_parser = whole_number, allow_negative_numbers = true)]
    pub cpus: Option<u64>,

    /// Make the machine as large as each thread count requires, and show how the cost grows with CPUs [thread counts:
    /// 1,2,4,..8192]
    #[arg(long, conflicts_with = "cpus")]
    pub cpus_follow_threads: bool,

    /// Run in a virtual machine of VCPUS CPUs that share HOST_CPUS CPUs of a host [default: as many]; its costs are
    /// `vm.*`, see machines/vm.toml
    #[arg(
        long,
        value_name = "VCPUS[:HOST_CPUS]",
        value_parser = super::virtual_machine,
        conflicts_with = "cpus_follow_threads"
    )]
    pub vm: Option<super::VirtualMachine>,

    /// Replace one number of the machine model, in the unit of its file, or of the workload
    /// (`workload.NAME.PARAMETER`), or set an axis of every design but ideal and none (`design.NAME`); `shootdown list`
    /// names both; repeatable
    #[arg(long, value_name = "PATH=VALUE")]
    pub set: Vec<String>,

    /// Designs to compare
    #[arg(long, value_name = "D,D,..", value_delimiter = ',', default_value = crate::catalog::FLAGSHIP_DESIGNS)]
    pub designs: Vec<String>,

    /// Thread counts, at most one per CPU (`madvise_stress`: also more) [default: 1,2,4,.. and all CPUs]
    #[arg(
        long,
        value_name = "N,N,..",
        value_delimiter = ',',
        value_parser = whole_number,
        allow_negative_numbers = true
    )]
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

    /// Compare only rates (operations per second), or only times (of an operation, of a shootdown) [default: both]
    #[arg(long, value_name = "METRIC")]
    pub metric: Option<Metric>,

    /// Print how the control run went wrong, even if the oracle caught it
    #[arg(long)]
    pub verbose: bool,

    /// Also print the distributions of latencies: flushes, preemption off, interrupts, wake-ups
    #[arg(long, conflicts_with = "json")]
    pub latencies: bool,

    /// Print only JSON, for programs (one element per run, no control run)
    #[arg(long)]
    pub json: bool,

    /// Also write a self-contained HTML report to this file
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,

    /// Also write the plot of operations per second to this file, as SVG
    #[arg(long, value_name = "FILE", conflicts_with_all = ["html", "cpus_follow_threads"])]
    pub svg: Option<PathBuf>,
}

/// Arguments of `sweep`.
#[derive(Debug, Args)]
#[command(
    after_help = "VALUES is a list of values and of ranges LOW..HIGH[:log|:lin][:N], both ends included; \
    the word `range` stands for the range that the machine model states for the parameter, \
    `assumed=range` for that of every assumed one.\n\
    Finished runs are kept in FILE.journal until FILE is complete: repeat an interrupted command to resume it.\n\n\
    Examples:\n  \
    shootdown sweep tlb_flush2 --designs ipi,adaptive --threads 2,16,all \
    --set costs.ipi_send=200..4000:log:8 -o s.csv\n  \
    shootdown sweep tlb_flush2 --set assumed=range:2 --one-at-a-time --threads 16 -o ends.parquet\n  \
    shootdown sweep tlb_flush2 --set assumed=range:2 --one-at-a-time --set broadcast.available=0 --threads 16,all   \
    says whether adaptive is ahead at both ends of every range\n  \
    shootdown sweep tlb_flush2 --set costs.invlpg=range --set kernel.wake=range:log --sample 100 -o sample.csv\n  \
    shootdown sweep tlb_flush2 --vm 64 --set vm.host_cpus=16,24,32,64 \
    --set vm.pv_flush=0,1 --threads all   overcommit\n  \
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

    /// Make each machine large enough for that many CPUs, with more sockets of the same kind
    #[arg(long, value_name = "VALUES", allow_hyphen_values = true)]
    pub cpus: Option<String>,

    /// Run in a virtual machine of VCPUS CPUs that share HOST_CPUS CPUs of a host [default: as many]; its costs are
    /// `vm.*`, see machines/vm.toml
    #[arg(long, value_name = "VCPUS[:HOST_CPUS]", value_parser = super::virtual_machine)]
    pub vm: Option<super::VirtualMachine>,

    /// Values of one number of the machine model, in the unit of its file, of the workload, or of an axis of every
    /// design but ideal and none (`design.NAME`); repeatable
    #[arg(long, value_name = "PATH=VALUES")]
    pub set: Vec<String>,

    /// Points of a range that gives no number of them
    #[arg(long, value_name = "N", default_value = "5", value_parser = whole_number, allow_negative_numbers = true)]
    pub points: u64,

    /// Draw N sets of values from the ranges of --set (a Latin hypercube) in place of every combination
    #[arg(
        long,
        value_name = "N",
        value_parser = whole_number,
        allow_negative_numbers = true,
        conflicts_with = "one_at_a_time"
    )]
    pub sample: Option<u64>,

    /// Vary one --set at a time, the others as in the machine model, in place of every combination; a --set with one
    /// value holds throughout
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
    #[arg(long, value_name = "I/N", value_parser = super::Shard::parse)]
    pub shard: Option<super::Shard>,

    /// Merge the results of all shards instead of running anything
    #[arg(
        long,
        value_name = "FILE",
        num_args = 1..,
        conflicts_with_all = ["workload", "shard", "set", "sample"],
        requires = "output"
    )]
    pub merge: Vec<PathBuf>,

    /// Write one row per run to this file, .csv or .parquet
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// Print only JSON, for programs (one element per run)
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `scoreboard`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    shootdown scoreboard                            some minutes: the workloads that flushes decide\n  \
    shootdown scoreboard --evidence                 the cells of the published tables, and no others\n  \
    shootdown scoreboard --on milan-72,turin-2p     two machines, with and without broadcast\n  \
    shootdown scoreboard --json | jq '.requirements[] | select(.met | not)'")]
#[command(mut_arg("virtual_ms", |virtual_ms| virtual_ms.help(
    "Virtual milliseconds to measure per run [default: 2; with --long 4; with --evidence 30, unless a row gives its \
    own]")))]
pub struct ScoreboardArgs {
    /// Machine models: names as in `shootdown list`, or paths of .toml files [default: all]
    #[arg(long, value_name = "M,M,..", value_delimiter = ',')]
    pub on: Option<Vec<String>>,

    /// Workloads, as in `shootdown list` [default: those that flushes decide, tlb_flush2, tlb_shared, madvise_spin and
    /// context_switch; with --long all]
    #[arg(long, value_name = "W,W,..", value_delimiter = ',')]
    pub workloads: Option<Vec<String>>,

    /// All workloads, more thread counts, longer runs: hours
    #[arg(long)]
    pub long: bool,

    /// The machines, workloads and thread counts of the published tables, as `shootdown evidence` runs them
    #[arg(long, conflicts_with_all = ["on", "workloads", "long"])]
    pub evidence: bool,

    /// Show every cell, not the worst only
    #[arg(long)]
    pub all: bool,

    /// Runs per cell and design; run k uses seed+k, and medians count. Cells in which a preset seems ahead, or a
    /// requirement is missed, are measured again, longer and with other seeds
    #[arg(long, value_name = "N", default_value = "1", value_parser = whole_number, allow_negative_numbers = true)]
    pub runs: u64,

    /// How to run it.
    #[command(flatten)]
    pub run: RunArgs,

    /// Print only JSON, for programs
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `walkers`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    shootdown walkers                          frees of a process without walks (two minutes)\n  \
    shootdown walkers --shared --html w.html   of the process that is walked, with plots\n  \
    shootdown walkers --frees 0,1000,30000     fewer rates\n  \
    shootdown walkers --json | jq '.runs[] | select(.share_of_best < 0.98)'")]
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

    /// Free tables of the process that is walked, in place of one without walks
    #[arg(long)]
    pub shared: bool,

    /// How to run it.
    #[command(flatten)]
    pub run: RunArgs,

    /// Print only JSON, for programs (one element per rate and design)
    #[arg(long)]
    pub json: bool,

    /// Also write a self-contained page with plots to this file
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// Arguments of `evidence`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    shootdown evidence                         the published tables, and the errors on held-out rows\n  \
    shootdown evidence --runs 5                medians of five seeds, as published\n  \
    shootdown evidence --html evidence.html    the same as a page, with plots and a bar for every error\n  \
    shootdown evidence --json | jq '.rows[] | select(.fitted | not) | .relative_error'\n  \
    shootdown evidence --rows mine.toml        your own published rows in place of these\n\n\
    FILE is in the format of evidence/published.toml; each number is a row:\n  \
    [[row]]\n  \
    table = \"lab\"\n  \
    workload = \"madvise_spin\"  # as in `shootdown list`\n  \
    machine = \"./my-box.toml\"  # or a name in that list\n  \
    design = \"ipi\"\n  \
    threads = 2\n  \
    ns_per_op = 2100  # or another number, see below\n  \
    source = \"madvise loop, two CPUs, median of 5\"\n\
    Numbers: kloops_per_s, ns_per_op, interrupts_per_op, idle_share, flush_share (0 to 1), \
    seconds (with operations = 1e6), \
    p50_us, p99_us (with distribution = \"flush\", or another that compare --latencies prints), \
    time_ratio, rate_ratio = [3.2, 1.6] (with over = { design = \"ipi\", threads = 1 }, \
    of the second; it may have a set and a virtual_ms of its own).\n\
    A row may also have: lru_drain = true, set = [\"costs.invlpg=200\"], virtual_ms = 100, \
    fitted = true (the model was fitted on it: no prediction), and explanation = \"NAME\" (why it is off by more \
    than 25 %).\n\
    Also: [[explanation]] with name, cause and settled_by (the measurement that would settle it); \
    [[note]] with table and text; [[beside]] with table, workload and design, a design of \
    which nothing is published, run as the first such row.")]
#[command(mut_arg("virtual_ms", |virtual_ms| virtual_ms.help(
    "Virtual milliseconds to measure per run [default: 15, unless a row gives its own; with more than 256 threads \
    until the rate is known to 5 %, but no longer than ten minutes or so]"
)))]
pub struct EvidenceArgs {
    /// Your own published rows, a .toml file, in place of the embedded ones; its format is shown below
    #[arg(long, value_name = "FILE")]
    pub rows: Option<PathBuf>,

    /// Runs per row; run k uses seed+k, and medians are shown
    #[arg(long, value_name = "N", default_value = "1", value_parser = whole_number, allow_negative_numbers = true)]
    pub runs: u64,

    /// How to run it.
    #[command(flatten)]
    pub run: RunArgs,

    /// Print only JSON, for programs (one element per published row)
    #[arg(long)]
    pub json: bool,

    /// Also write a self-contained HTML page to this file
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}
