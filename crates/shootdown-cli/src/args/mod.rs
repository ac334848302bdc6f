//! The command line: one grammar for every run, a workload on a target under a design.
//!
//! This file defines the syntax; [`crate::runs::plan`] checks the meaning.

mod check;
mod compare;
#[cfg(test)]
mod documented;
mod inspect;
#[cfg(target_os = "linux")]
mod linux;
mod machine;
mod qemu;
mod recording;
mod shard;
mod vm;

pub use check::CheckArgs;
pub use compare::{CompareArgs, EvidenceArgs, Metric, ScoreboardArgs, SweepArgs, WalkersArgs};
pub use inspect::{DECISIONS, ExplainArgs, TimelineArgs};
#[cfg(target_os = "linux")]
pub use linux::{CalibrateArgs, HostArgs, MeasureArgs, RecordArgs};
pub use machine::MachineArgs;
pub use qemu::{Accel, QemuArgs};
pub use recording::{ImportArgs, ReplayArgs};
pub use shard::Shard;
pub use vm::{VM_PATHS, VirtualMachine, virtual_machine, with_vm};

use std::num::{IntErrorKind, ParseIntError};

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::print::terminal::Terminal;

/// The whole command line.
#[derive(Debug, Parser)]
#[command(
    name = "shootdown",
    version,
    about = "Compare TLB-coherence designs on machines you do not own",
    long_about = "Compare TLB-coherence designs (interrupts, broadcast, adaptive) on simulated many-CPU machines.\n\n\
        Every access is checked by an oracle; simulated throughput is printed beside published measurements.\n\
        Without a command, the default comparison runs: \
        tlb_flush2 on milan-72 at 1 to 72 threads, with an HTML report.",
    after_help = "Examples:\n  \
        shootdown                                        the default comparison and its HTML report\n  \
        shootdown compare tlb_flush2 --threads 1,16,72   choose the thread counts\n  \
        shootdown list                                   workloads, machines and designs\n  \
        shootdown evidence                               simulated results beside published ones\n\n\
        Exit status: 0; 1 when a stale translation was seen (except under `none`, the negative control), a run failed, \
        or results could not be written; 2 on bad usage; 130 after Ctrl-C."
)]
pub struct Cli {
    /// The command; none means the default comparison.
    #[command(subcommand)]
    pub command: Option<Command>,

    /// Explain every column of the tables, each once
    #[arg(long, global = true)]
    pub legend: bool,

    /// Overwrite files that this program did not write
    #[arg(long, global = true)]
    pub force: bool,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run one workload on one machine under several designs and compare them
    Compare(CompareArgs),
    /// Run every combination of parameter values, in shards if necessary; resumes when interrupted
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
    /// Show one shootdown across CPUs: initiator, targets, CPUs in lazy TLB mode, and when each answered
    Timeline(TimelineArgs),
    /// List the workloads, machines and designs
    List(ListArgs),
    /// Print the JSON Schema of what a command prints with --json
    Schema(SchemaArgs),
    /// Explain why requests of one run went by IPI, by broadcast or to no other CPU, and what each method cost
    Explain(ExplainArgs),
    /// Print published tables beside simulated results, with errors on fitted and held-out rows
    Evidence(EvidenceArgs),
    /// Sweep the rate of table frees: the cost of lockless walks under each design, and the rates at which designs
    /// break even
    Walkers(WalkersArgs),
    /// Compare `adaptive` with the best preset in every cell of machine, workload and threads
    Scoreboard(ScoreboardArgs),
    /// Explore every order of steps in small races, on the real engine
    Check(CheckArgs),
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

    /// Virtual milliseconds to measure per run [default: 30; with more than 256 threads until the rate is known to 5 %,
    /// but no longer than ten minutes or so]
    #[arg(long, value_name = "MS", allow_negative_numbers = true)]
    pub virtual_ms: Option<f64>,
}

/// Arguments of `list`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  shootdown list\n  shootdown list --json | jq -r '.machines[].name'")]
pub struct ListArgs {
    /// Print only JSON, for programs
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `schema`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  shootdown schema compare\n  shootdown schema replay | jq .properties.victims")]
pub struct SchemaArgs {
    /// The command, for example `compare`
    #[arg(value_name = "COMMAND")]
    pub command: String,
}

/// Reads the command line. Help is as wide as prose on this terminal.
///
/// # Errors
/// Help, `--version` and a mistake, as clap returns them.
pub fn parse() -> Result<Cli, clap::Error> {
    let columns = Terminal::of_stdout(false).prose();
    let command = Cli::command().term_width(columns);
    Cli::from_arg_matches(&command.try_get_matches()?)
}

/// A mistake on the command line in one line, like every other error: the error, a tip if there is one, and how to get
/// help. `command` is the first word after the program's name.
pub fn one_line(error: &clap::Error, command: Option<&str>) -> String {
    let text = error.to_string();
    let joined = |block: &str| block.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut blocks = text.split("\n\n").map(joined);
    let mut line = blocks.next().unwrap_or_default();
    // A tip about values after `--` does not help with a misspelt option.
    let tip = |block: String| block.strip_prefix("tip: ").map(str::to_string);
    if let Some(tip) = blocks.find_map(|block| tip(block).filter(|tip| !tip.contains("as a value, use"))) {
        line.push_str(&format!("; {tip}"));
    }
    let commands = Cli::command();
    let command = command.filter(|name| commands.find_subcommand(name).is_some());
    let command = command.map(|name| format!(" {name}")).unwrap_or_default();
    line.push_str(&format!("; see `shootdown{command} --help`"));
    line
}

/// Reads a non-negative whole number; the error says what was expected.
fn whole_number(text: &str) -> Result<u64, String> {
    text.trim().parse().map_err(|error: ParseIntError| match error.kind() {
        IntErrorKind::PosOverflow => format!("expected a whole number up to {}", u64::MAX),
        _ => "expected a whole number, for example 4".to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

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
