//! Project chores, run as `cargo xtask CHORE`.
//!
//! `cargo xtask test` runs everything that must pass and ends with a table and one line, `N passed, N failed`. Exit
//! status: 0 when everything passed, 1 when a step failed, 2 on bad usage.

mod bochs;
mod cases;
mod child;
mod debian;
mod fuzz;
mod iso;
mod kernel;
mod linux_baseline;
mod programs;
mod steps;
mod tsan;
mod verdict;
mod workloads;

use std::process::ExitCode;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use steps::Step;
use verdict::{Outcome, Verdict};

/// What still runs after this hangs: it is stopped and has failed. Not sooner, for a slow machine is no failure.
const BUDGET: Duration = Duration::from_secs(80 * 60);

/// Everything together is to end within this, from a clean clone, on two cores.
const GOAL: Duration = Duration::from_secs(25 * 60);

/// How many of the last lines of a step that failed are shown: what a test program says at its end, and more.
const SHOWN: usize = 120;

const USAGE: &str = "usage: cargo xtask test [STEP...]   run all steps, or only those named
       cargo xtask steps            list the steps and the command each one runs
       cargo xtask tsan             run the engine on real threads under ThreadSanitizer
       cargo xtask kernel           run the bare-metal kernel in QEMU: torture, determinism, known bugs
       cargo xtask bochs [all]      run it in Bochs, which has PCID and INVPCID; all: with every known bug
       cargo xtask workloads        build the programs of workloads/, static, for Linux and for kernel/
       cargo xtask programs [DESIGN...]  run them, and some that misbehave, on kernel/ in QEMU
       cargo xtask linux-baseline   run them on Debian's own kernel in QEMU and count (--help for more)
       cargo xtask fuzz TARGET [--seconds N]
                                    look for bytes that break a reader or an encoder (60 s)
       cargo xtask soak [--minutes N] [--seed S] [--accesses N] [--jobs N] [--case N]
                                    random runs of the simulator under its oracle (10 minutes)
       cargo xtask mutants [...]    try every mutation of the engine; --help says more";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["test", names @ ..] => match select(names) {
            Ok(steps) => test(&steps),
            Err(message) => refuse(&message),
        },
        ["steps"] => {
            for step in steps::all() {
                println!("{:<8} {}", step.name, step.shown());
            }
            ExitCode::SUCCESS
        }
        ["tsan"] => chore(tsan::run(Instant::now() + BUDGET)),
        ["kernel"] => chore(kernel::run(Instant::now() + BUDGET)),
        ["bochs"] => chore(bochs::run(false, Instant::now() + BUDGET)),
        ["bochs", "all"] => chore(bochs::run(true, Instant::now() + BUDGET)),
        ["workloads"] => {
            let built = workloads::build(Instant::now() + BUDGET);
            chore(built.map(|built| println!("{}", built.display())))
        }
        ["programs", designs @ ..] => {
            let designs = if designs.is_empty() {
                &["ipi", "broadcast", "adaptive"][..]
            } else {
                designs
            };
            chore(programs::run(designs, Instant::now() + BUDGET))
        }
        ["linux-baseline", rest @ ..] => linux_baseline::main(rest),
        ["fuzz", rest @ ..] => match fuzz::Order::of(rest) {
            Ok(order) => chore(order.run()),
            Err(message) => refuse(&message),
        },
        ["soak", options @ ..] => soak(options),
        ["mutants", options @ ..] => mutants(options),
        ["help" | "-h" | "--help"] => {
            println!("{USAGE}");
            ExitCode::SUCCESS
        }
        [] => refuse("no chore named"),
        [other, ..] => refuse(&format!("unknown chore {other:?}")),
    }
}

fn chore(outcome: Result<(), String>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("xtask: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the example of that name, optimised and with debug assertions, as tests are.
fn soak(options: &[&str]) -> ExitCode {
    let mut command = steps::cargo();
    command.args([
        "run",
        "--quiet",
        "--profile",
        "test",
        "-p",
        "shootdown-sim",
        "--example",
        "soak",
        "--",
    ]);
    command.args(options);
    pass_on(command)
}

/// A program of its own: it needs a parser of Rust, and the other chores do not.
fn mutants(options: &[&str]) -> ExitCode {
    let mut command = steps::cargo();
    command
        .args(["run", "--quiet", "-p", "shootdown-mutants", "--"])
        .args(options);
    pass_on(command)
}

/// Runs `command`; its exit status is ours.
fn pass_on(mut command: std::process::Command) -> ExitCode {
    match command.status() {
        Ok(status) => ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)),
        Err(error) => {
            eprintln!("xtask: cannot start cargo: {error}");
            ExitCode::FAILURE
        }
    }
}

fn refuse(message: &str) -> ExitCode {
    eprintln!("xtask: {message}\n{USAGE}");
    ExitCode::from(2)
}

/// The steps with these names, all of them when none is given, in the order in which they run.
fn select(names: &[&str]) -> Result<Vec<Step>, String> {
    let all = steps::all();
    if let Some(unknown) = names.iter().find(|name| !all.iter().any(|step| step.name == **name)) {
        let known = all.iter().map(|step| step.name).collect::<Vec<_>>().join(", ");
        return Err(format!("unknown step {unknown:?}; expected {known}"));
    }
    Ok(all
        .into_iter()
        .filter(|step| names.is_empty() || names.contains(&step.name))
        .collect())
}

/// Runs `step` while the terminal, if this is one, shows for how long and what it printed last.
fn watched(step: &Step, end: Instant) -> Result<(), String> {
    let bar = ProgressBar::new_spinner();
    if let Ok(style) = ProgressStyle::with_template("{spinner} {elapsed} {wide_msg:.dim}") {
        bar.set_style(style);
    }
    let (end_of_step, told) = mpsc::channel::<()>();
    let outcome = std::thread::scope(|scope| {
        let bar = &bar;
        scope.spawn(move || {
            while told.recv_timeout(Duration::from_millis(500)) == Err(RecvTimeoutError::Timeout) {
                bar.tick();
                bar.set_message(step.last_lines(1));
            }
        });
        let outcome = step.run(end);
        drop(end_of_step);
        outcome
    });
    bar.finish_and_clear();
    outcome
}

fn test(steps: &[Step]) -> ExitCode {
    let begun = Instant::now();
    let end = begun + BUDGET;
    let mut verdict = Verdict::default();
    for (number, step) in steps.iter().enumerate() {
        eprintln!("== {}/{} {}: {}", number + 1, steps.len(), step.name, step.shown());
        let start = Instant::now();
        let failure = watched(step, end).err();
        if let Some(why) = &failure {
            eprintln!(
                "\n{}\n\n== {} failed: {why}; the last lines are above, all of them in {}\n",
                step.last_lines(SHOWN),
                step.name,
                step.log().display()
            );
        }
        let failure = failure.map(|why| (why, step.shown()));
        verdict.add(Outcome {
            name: step.name,
            seconds: start.elapsed().as_secs_f64(),
            failure,
        });
    }
    if begun.elapsed() > GOAL {
        let minutes = |time: Duration| time.as_secs() / 60;
        eprintln!(
            "\nIt took {} minutes; {} are the goal.",
            minutes(begun.elapsed()),
            minutes(GOAL)
        );
    }
    print!("\n{verdict}");
    if verdict.failed() == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_step_is_not_silently_skipped() {
        assert!(select(&["clipy"]).is_err_and(|message| message.contains("expected format, clippy, ")));
    }

    #[test]
    fn naming_no_step_means_all_of_them() {
        assert_eq!(select(&[]).map(|steps| steps.len()), Ok(steps::all().len()));
        assert_eq!(select(&["clippy"]).map(|steps| steps.len()), Ok(1));
    }
}
