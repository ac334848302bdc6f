//! `cargo xtask test`: prints how long it will take and what it will install, runs the steps with progress, and ends
//! with the verdict.

use std::process::ExitCode;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use super::debian;
use super::steps::{self, Step};
use super::times::{Kept, Stopwatch, clock};
use super::verdict::{Outcome, Verdict};

/// A step that still runs after this time hangs: it is stopped and has failed. The limit allows for a slow machine.
pub const BUDGET: Duration = Duration::from_secs(80 * 60);

/// Time limit of the whole, from a clean clone, on two cores.
const GOAL: Duration = Duration::from_secs(30 * 60);

/// Time limit when everything is built already.
const WARM_GOAL: Duration = Duration::from_secs(10 * 60);

/// Number of last lines shown for a failed step: more than a test program's summary.
const SHOWN: usize = 120;

/// Interval of progress lines where no terminal shows it continuously.
const EVERY: Duration = Duration::from_secs(20);

/// The steps with these names, all of them when none is given, in the order in which they run.
///
/// # Errors
/// The first unknown name, and the known ones.
pub fn select(names: &[&str]) -> Result<Vec<Step>, String> {
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

/// The text before the first step: the duration, and the packages to install.
fn announcement(steps: &[Step], kept: &Kept, may_install: bool) -> String {
    let last: Option<Vec<f64>> = steps
        .iter()
        .map(|step| kept.of(step.name).map(|times| times.seconds))
        .collect();
    let mut text = format!(
        "{} step{}; logs are kept in target/steps/; the commands: cargo xtask steps\n",
        steps.len(),
        if steps.len() == 1 { "" } else { "s" }
    );
    let minutes = |time: Duration| time.as_secs() / 60;
    let whole = format!(
        "all steps take at most {} minutes from a clean clone, at most {} once everything is built, on two idle cores",
        minutes(GOAL),
        minutes(WARM_GOAL)
    );
    text.push_str(&match last {
        Some(seconds) => format!(
            "duration: {} when {} last passed here ({whole})\n",
            clock(Duration::from_secs_f64(seconds.iter().sum())),
            if steps.len() == 1 { "it" } else { "they" }
        ),
        None => format!("duration: {whole}\n"),
    });
    let mut commands: Vec<(String, Vec<&str>)> = Vec::new();
    for step in steps {
        for command in step.missing() {
            match commands.iter_mut().find(|(known, _)| *known == command) {
                Some((_, names)) => names.push(step.name),
                None => commands.push((command, vec![step.name])),
            }
        }
    }
    if commands.is_empty() {
        text.push_str("installed: nothing needs to be; cargo downloads the crates of Cargo.lock that are not there\n");
        return text;
    }
    text.push_str("will be installed, each before the step that needs it:\n");
    for (command, names) in commands {
        let by_hand = command.contains("apt-get") && !may_install;
        let note = if by_hand {
            ": run it by hand, or this step fails"
        } else {
            ""
        };
        text.push_str(&format!("  {command}  (for {}{note})\n", names.join(", ")));
    }
    text
}

/// Runs `step` with progress: continuously on a terminal, by occasional lines elsewhere.
fn watched(step: &Step, kept: &Kept, end: Instant) -> Result<(), String> {
    let bar = ProgressBar::new_spinner();
    if let Ok(style) = ProgressStyle::with_template("{spinner} {elapsed} {wide_msg:.dim}") {
        bar.set_style(style);
    }
    let last = kept.of(step.name).map_or(String::new(), |times| {
        format!(" of {} last time", clock(Duration::from_secs_f64(times.seconds)))
    });
    let (end_of_step, ended) = mpsc::channel::<()>();
    let outcome = std::thread::scope(|scope| {
        let (bar, begun) = (&bar, Instant::now());
        scope.spawn(move || {
            let mut next = EVERY;
            while ended.recv_timeout(Duration::from_millis(500)) == Err(RecvTimeoutError::Timeout) {
                if !bar.is_hidden() {
                    bar.tick();
                    bar.set_message(step.last_lines(1));
                } else if begun.elapsed() >= next {
                    next = begun.elapsed() + EVERY;
                    eprintln!("   {} {}{last}: {}", step.name, clock(begun.elapsed()), step.doing());
                }
            }
        });
        let outcome = step.run(end);
        drop(end_of_step);
        outcome
    });
    bar.finish_and_clear();
    outcome
}

/// Runs these steps. Status 0 when all passed.
pub fn test(steps: &[Step]) -> ExitCode {
    let begun = Instant::now();
    let end = begun + BUDGET;
    let mut kept = Kept::read();
    eprint!("{}", announcement(steps, &kept, debian::can_install()));
    let mut verdict = Verdict::default();
    for (number, step) in steps.iter().enumerate() {
        eprintln!("== {}/{} {}: {}", number + 1, steps.len(), step.name, step.shown());
        let watch = Stopwatch::start();
        let failure = watched(step, &kept, end).err();
        let times = watch.times();
        match &failure {
            Some(why) => eprintln!(
                "\n{}\n\n== {} failed: {why}; the last lines are above, all of them in {}\n",
                step.last_lines(SHOWN),
                step.name,
                step.log().display()
            ),
            None => kept.keep(step.name, times),
        }
        let failure = failure.map(|why| (why, step.shown()));
        verdict.add(Outcome {
            name: step.name,
            times,
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
    use crate::times::Times;

    #[test]
    fn misspelt_step_is_refused() {
        assert!(select(&["clipy"]).is_err_and(|message| message.contains("expected format, clippy, ")));
    }

    #[test]
    fn no_named_step_selects_all() {
        assert_eq!(select(&[]).map(|steps| steps.len()), Ok(steps::all().len()));
        assert_eq!(select(&["clippy"]).map(|steps| steps.len()), Ok(1));
    }

    #[test]
    fn duration_is_of_the_last_run_once_every_step_has_one() {
        let steps = select(&["tests", "loom"]).expect("they exist");
        let mut kept = Kept::default();
        assert!(announcement(&steps, &kept, true).contains("\nduration: all steps take at most 30 minutes"));
        for step in &steps {
            let times = Times {
                seconds: 61.0,
                cpu_seconds: 100.0,
            };
            kept.insert(step.name, times);
        }
        let text = announcement(&steps, &kept, true);
        assert!(text.contains("\nduration: 2:02 when they last passed here"), "{text}");
        assert!(text.contains("\ninstalled: nothing needs to be"), "{text}");
    }
}
