//! The commands that look into one simulated run.

use std::path::PathBuf;

use clap::Args;

use super::machine::MachineArgs;
use super::{RunArgs, whole_number};

/// Decisions that `explain` prints one by one by default.
pub const DECISIONS: u64 = 8;

/// Arguments shared by the commands that look into one run.
#[derive(Debug, Clone, Args)]
pub struct PlaceArgs {
    /// Workload, as in `shootdown list`
    #[arg(value_name = "WORKLOAD")]
    pub workload: String,

    /// Where it runs.
    #[command(flatten)]
    pub machine: MachineArgs,
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

    /// Threads, at most one per CPU (`madvise_stress`: also more) [default: 8, or as many as CPUs]
    #[arg(long, value_name = "N", value_parser = whole_number, allow_negative_numbers = true)]
    pub threads: Option<u64>,

    /// Which of the flushes that interrupt two CPUs or more; without any, of those that reach other CPUs
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

/// Arguments of `explain`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    shootdown explain tlb_flush2 --on milan-72 --threads 16\n  \
    shootdown explain tlb_flush2 --threads 72 --set broadcast.available=false\n  \
    shootdown explain tlb_flush2 --threads 12 --decisions 40              promotions and demotions, all of them\n  \
    shootdown explain tlb_flush2 --threads 8 --set costs.broadcast_sync=1500 --html why.html\n  \
    shootdown explain tlb_flush2 --json | jq '.decisions[] | [.at_ns, .kind]'")]
pub struct ExplainArgs {
    /// What to run, and where.
    #[command(flatten)]
    pub place: PlaceArgs,

    /// Design to explain
    #[arg(long, value_name = "D", default_value = "adaptive")]
    pub design: String,

    /// Threads, at most one per CPU (`madvise_stress`: also more) [default: 16, or as many as CPUs]
    #[arg(long, value_name = "N", value_parser = whole_number, allow_negative_numbers = true)]
    pub threads: Option<u64>,

    /// How to run it.
    #[command(flatten)]
    pub run: RunArgs,

    /// How many decisions about tags and thresholds are printed one by one; the rest are counted
    #[arg(
        long,
        value_name = "N",
        default_value_t = DECISIONS,
        value_parser = whole_number,
        allow_negative_numbers = true
    )]
    pub decisions: u64,

    /// Print only JSON, for programs (every decision that was kept)
    #[arg(long, conflicts_with = "decisions")]
    pub json: bool,

    /// Also write the explanation, with its plot, to this file
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}
