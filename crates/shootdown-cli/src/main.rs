//! The `shootdown` program: compares designs for TLB coherence on machines you do not own.
//!
//! This file only reads the command line, calls the command and turns its outcome into an exit status.

mod args;
mod catalog;
mod commands;
mod comparison;
mod failure;
mod interrupt;
mod print;
mod published;
mod runs;

use std::io::Write;
use std::process::ExitCode;

use args::Command;
#[cfg(target_os = "linux")]
use commands::{calibrate, host, record};
use commands::{
    check, compare, evidence, explain, import, list, qemu, replay, schema, scoreboard, sweep, timeline, walkers,
};
use print::terminal::{self, Terminal};
use runs::queue;

fn main() -> ExitCode {
    let cli = match args::parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version go to stdout with status 0, mistakes to stderr with status 2; a closed pipe is ignored.
            if !error.use_stderr() {
                let _ = error.print();
                return ExitCode::from(failure::SUCCESS);
            }
            let _ = writeln!(
                std::io::stderr(),
                "{}",
                args::one_line(&error, std::env::args().nth(1).as_deref())
            );
            return ExitCode::from(failure::BAD_INPUT);
        }
    };
    terminal::install(Terminal::of_stdout(cli.legend));
    if cli.force {
        print::output::allow_overwriting();
    }
    let stop = interrupt::install();
    let simulator = queue::Simulator;
    let outcome = match &cli.command {
        None => compare::flagship(&simulator, stop),
        Some(Command::Compare(args)) => compare::command(args, &simulator, stop),
        Some(Command::Check(args)) => check::command(args, stop),
        Some(Command::Sweep(args)) => sweep::command(args, &simulator, stop),
        Some(Command::Import(args)) => import::command(args, stop),
        Some(Command::Replay(args)) => replay::command(args, stop),
        #[cfg(target_os = "linux")]
        Some(Command::Record(args)) => record::command(args, stop),
        #[cfg(target_os = "linux")]
        Some(Command::Host(args)) => host::command(args, stop),
        #[cfg(target_os = "linux")]
        Some(Command::Calibrate(args)) => calibrate::command(args, stop),
        Some(Command::Qemu(args)) => qemu::command(args, stop),
        Some(Command::Timeline(args)) => timeline::command(args, stop),
        Some(Command::List(args)) => list::command(args),
        Some(Command::Schema(args)) => schema::command(args),
        Some(Command::Explain(args)) => explain::command(args, stop),
        Some(Command::Evidence(args)) => evidence::command(args, &simulator, stop),
        Some(Command::Walkers(args)) => walkers::command(args, &simulator, stop),
        Some(Command::Scoreboard(args)) => scoreboard::command(args, &simulator, stop),
    };
    match outcome {
        Ok(status) => ExitCode::from(status),
        Err(failure) => {
            // A closed stderr is no reason to panic; the status is still set.
            let _ = writeln!(std::io::stderr(), "{failure}");
            ExitCode::from(failure.status())
        }
    }
}
