//! `cargo xtask test`: prints how long it will take and what it will install, runs the steps with progress, the two
//! lanes side by side, and ends with the verdict.

use std::process::ExitCode;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use super::debian;
use super::steps::{self, Lane, Step};
use super::times::{Kept, clock, cpu_seconds_of_children};
use super::verdict::{Outcome, Verdict};

/// A step that still runs after this time hangs: it is stopped and has failed. The limit allows for a slow machine.
pub const BUDGET: Duration = Duration::from_secs(80 * 60);

/// Time limit of the whole, from a clean clone, on two cores.
const GOAL: Duration = Duration::from_secs(20 * 60);

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
    text.push_str(&match last_time(steps, kept) {
        Some(last) => format!(
            "duration: {} when {} last passed here ({whole})\n",
            clock(last),
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

/// How long these steps took when they last passed, if all have: the longer lane.
fn last_time(steps: &[Step], kept: &Kept) -> Option<Duration> {
    let of_lane = |lane| {
        let lane = steps.iter().filter(move |step| step.lane == lane);
        lane.map(|step| kept.of(step.name)).sum::<Option<f64>>()
    };
    let longer = of_lane(Lane::Host)?.max(of_lane(Lane::Emulated)?);
    Some(Duration::from_secs_f64(longer))
}

/// Runs `step` with progress: continuously on a terminal, by occasional lines elsewhere. `last`: seconds that it took
/// last time.
fn watched(step: &Step, last: Option<f64>, bars: &MultiProgress, end: Instant) -> Result<(), String> {
    let bar = bars.add(ProgressBar::new_spinner());
    if let Ok(style) = ProgressStyle::with_template("{spinner} {prefix} {elapsed} {wide_msg:.dim}") {
        bar.set_style(style);
    }
    bar.set_prefix(step.name);
    let last = last.map_or(String::new(), |seconds| {
        format!(" of {} last time", clock(Duration::from_secs_f64(seconds)))
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

/// What the lanes share.
struct Shared {
    kept: Kept,
    verdict: Verdict,
    /// How many steps have begun.
    begun: usize,
}

/// The state is whole between two statements, whatever the other lane did.
fn locked(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs one step and records how it ended.
fn run(step: &Step, count: usize, shared: &Mutex<Shared>, bars: &MultiProgress, end: Instant) {
    let last = {
        let mut shared = locked(shared);
        shared.begun += 1;
        let line = format!("== {}/{count} {}: {}", shared.begun, step.name, step.shown());
        bars.suspend(|| eprintln!("{line}"));
        shared.kept.of(step.name)
    };
    let begun = Instant::now();
    let failure = watched(step, last, bars, end).err();
    let seconds = begun.elapsed().as_secs_f64();
    let mut shared = locked(shared);
    match &failure {
        Some(why) => bars.suspend(|| {
            eprintln!(
                "\n{}\n\n== {} failed: {why}; the last lines are above, all of them in {}\n",
                step.last_lines(SHOWN),
                step.name,
                step.log().display()
            );
        }),
        None => shared.kept.keep(step.name, seconds),
    }
    shared.verdict.add(Outcome {
        name: step.name,
        seconds,
        failure: failure.map(|why| (why, step.shown())),
    });
}

/// Runs these steps. Status 0 when all passed.
pub fn test(steps: &[Step]) -> ExitCode {
    let begun = Instant::now();
    let end = begun + BUDGET;
    let kept = Kept::read();
    eprint!("{}", announcement(steps, &kept, debian::can_install()));
    let shared = Mutex::new(Shared {
        kept,
        verdict: Verdict::default(),
        begun: 0,
    });
    let bars = MultiProgress::new();
    std::thread::scope(|scope| {
        for lane in [Lane::Host, Lane::Emulated] {
            let (shared, bars) = (&shared, &bars);
            let steps_of_lane = steps.iter().filter(move |step| step.lane == lane);
            scope.spawn(move || steps_of_lane.for_each(|step| run(step, steps.len(), shared, bars, end)));
        }
    });
    let mut verdict = shared.into_inner().unwrap_or_else(PoisonError::into_inner).verdict;
    verdict.took(begun.elapsed().as_secs_f64(), cpu_seconds_of_children());
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
        let mut kept = Kept::default();
        let beside = select(&["tests", "loom", "kernel"]).expect("they exist");
        assert_eq!(last_time(&beside, &kept), None);
        beside.iter().for_each(|step| kept.insert(step.name, 61.0));
        assert_eq!(
            last_time(&beside, &kept),
            Some(Duration::from_secs(122)),
            "the longer lane"
        );

        let steps = select(&["tests", "loom"]).expect("they exist");
        let mut kept = Kept::default();
        assert!(announcement(&steps, &kept, true).contains("\nduration: all steps take at most 20 minutes"));
        for step in &steps {
            kept.insert(step.name, 61.0);
        }
        let text = announcement(&steps, &kept, true);
        assert!(text.contains("\nduration: 2:02 when they last passed here"), "{text}");
        assert!(text.contains("\ninstalled: nothing needs to be"), "{text}");
    }
}
