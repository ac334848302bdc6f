//! The command that explores races on the real engine.

use std::path::PathBuf;

use clap::Args;

/// Arguments of `check`.
#[derive(Debug, Args)]
#[command(
    long_about = "Explore every order of steps in small races of two or three CPUs, on the real engine: which CPU runs \
    next, when a store becomes visible, which old value a load returns, when an interrupt arrives, what a processor \
    caches speculatively, with the memory model of x86, Arm or RISC-V. Prints the number of states, and the first run \
    that breaks a rule, step by step. `none` is the negative control: it must break one. Exit status 1 when another \
    design does, or `none` does not.",
    after_help = "Races of two CPUs: flush, cross, masked, twice, switch, return, departed, given-back, lazy, kernel, \
    tables, lazy-tables, end, batch, hotplug, off, kernel-range, kernel-hotplug, roll-over, roll-over-lazy, \
    roll-over-batch, walk, foreign-walk, deferral, deferral-lazy, ticks-stop, ticks-resume; \
    of three: flush-3, switch-3, cross-3; \
    of four, too large for all but --random: mixed-4, tables-4.\n\n\
    Examples:\n  \
    shootdown check                                   races of two CPUs under every design, exhaustively\n  \
    shootdown check switch-3 --designs ipi,adaptive   one of three CPUs\n  \
    shootdown check --designs ipi --memory arm,riscv  an x86 design under weaker memory models\n  \
    shootdown check --three --preemptions 2           all, with at most two preemptions in a run\n  \
    shootdown check --random 10000                    random runs by priorities, of up to four CPUs\n  \
    shootdown check flush --designs none --record bug.txt --details\n  \
    shootdown check --replay bug.txt"
)]
pub struct CheckArgs {
    /// Races; all of two CPUs when none is named
    #[arg(value_name = "RACE")]
    pub races: Vec<String>,

    /// Designs, as in `shootdown list`, or adaptive-no-broadcast, ipi-no-tags, adaptive-no-tags; all when none is named
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub designs: Vec<String>,

    /// Memory models: x86, arm, riscv [default: that of the design's processors]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub memory: Vec<String>,

    /// Also the races of three CPUs, when none is named
    #[arg(long)]
    pub three: bool,

    /// Instead of exploring every order of steps, make that many random runs by priorities; also of races of three and
    /// four CPUs
    #[arg(
        long,
        value_name = "RUNS",
        conflicts_with_all = ["states", "preemptions", "three"],
        value_parser = clap::value_parser!(u64).range(1..)
    )]
    pub random: Option<u64>,

    /// Most states of one exploration
    #[arg(long, value_name = "N", default_value_t = 100_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub states: u64,

    /// Most preemptions in a run: switches away from a CPU that could continue
    #[arg(long, value_name = "N")]
    pub preemptions: Option<u32>,

    /// Write the first counterexample to FILE
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,

    /// Print the counterexample in FILE
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["races", "designs", "memory", "three", "random", "record", "json"]
    )]
    pub replay: Option<PathBuf>,

    /// Print every access to memory
    #[arg(long)]
    pub details: bool,

    /// Host threads [default: as many as there are cores]
    #[arg(long, value_name = "N")]
    pub jobs: Option<u64>,

    /// Print only JSON, for programs
    #[arg(long)]
    pub json: bool,
}
