//! `shootdown check`: every order of steps in a few small races, on the real engine; counterexamples as sequences of
//! steps.

mod equal;

use std::collections::BTreeSet;
use std::fs;
use std::panic;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use schemars::{JsonSchema, Schema};
use serde::Serialize;
use shootdown_check::configuration::{self, Configuration};
use shootdown_check::scenario;
use shootdown_check::{
    Architecture, Bounds, Counterexample, Play, Recorded, Report, Scenario, explore, replay, sample, story,
};

use crate::args::CheckArgs;
use crate::catalog::CONTROL_DESIGN;
use crate::failure::{BAD_RUN, Failure, SUCCESS, unread};
use crate::print::json;
use crate::print::number;
use crate::print::output::{self, Destination, Kind};
use crate::print::progress::Progress;
use crate::print::schema;
use crate::print::table::{Column, Grid, Tables};
use crate::runs::plan;

/// One exploration.
struct Case {
    race: &'static Scenario,
    configuration: Configuration,
}

/// Its result.
struct Outcome {
    case: Case,
    report: Report,
    seconds: f64,
}

/// The explorations that ended, and those that Ctrl-C kept from ending.
#[derive(Default)]
struct Explored {
    outcomes: Vec<Outcome>,
    missing: Vec<Case>,
}

/// One race under one design on one memory model.
#[derive(Default, Serialize, JsonSchema)]
struct Line<'a> {
    /// Name of the race.
    race: &'a str,
    /// Name of the design.
    design: &'a str,
    /// The memory model.
    memory: &'a str,
    /// CPUs of the race.
    cpus: usize,
    /// Different states that were reached.
    states: u64,
    /// Runs from the start of the race.
    runs: u64,
    /// Steps of the longest run.
    depth: usize,
    /// Whether every order was explored: neither random, nor cut off, nor with a bound on preemptions.
    complete: bool,
    /// The bound on preemptions in a run, or null.
    preemptions: Option<u32>,
    /// The rule that was broken and how, or null.
    broken: Option<String>,
    /// Time that the exploration took on the host.
    host_time_ns: f64,
    /// Whether Ctrl-C ended it without a result; absent elsewhere.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    interrupted: bool,
}

/// What `check --json` prints.
pub fn schema() -> Schema {
    schema::of::<Vec<Line>>("check")
}

/// Explores, or replays a counterexample, and returns the exit status: that of a bad run when a design other than the
/// control broke a rule, or the control did not.
///
/// # Errors
/// Unknown names, a file that is no counterexample, Ctrl-C.
pub fn command(args: &CheckArgs, stop: &AtomicBool) -> Result<u8, Failure> {
    // A panic of the engine is a finding, and is reported as one.
    panic::set_hook(Box::new(|_| {}));
    if let Some(path) = &args.replay {
        let place = path.display();
        let text = fs::read_to_string(path)
            .map_err(|error| Failure::Input(format!("--replay {place}: {}", unread(&error))))?;
        return print_saved(&text, &place.to_string(), args.details);
    }
    let destination = args
        .record
        .as_deref()
        .map(|path| Destination::new("--record", path, Kind::Counterexample))
        .transpose()?;
    let cases = cases(args)?;
    let bounds = Bounds {
        states: args.states,
        preemptions: args.preemptions,
    };
    let jobs = plan::host_threads(args.jobs)?;
    let Explored { outcomes, missing } = run(cases, bounds, args.random, jobs, stop);
    if outcomes.is_empty() && !missing.is_empty() {
        return Err(Failure::Interrupted);
    }
    let text = if args.json {
        let unended = missing.iter().map(Line::unended);
        let lines: Vec<Line> = lines(&outcomes, args.preemptions).into_iter().chain(unended).collect();
        json::pretty(&lines)
    } else {
        words(&outcomes, Extent::of(args), args.details)
    };
    if !missing.is_empty() {
        let all = outcomes.len() + missing.len();
        return Err(output::partial(args.json, &text, missing.len(), all, "explorations"));
    }
    output::print_as(args.json, &text)?;
    let bad = outcomes.iter().find(|outcome| outcome.is_bad());
    let shown = bad.or_else(|| outcomes.iter().find(|outcome| outcome.report.found.is_some()));
    if let (Some(destination), Some(outcome)) = (&destination, shown)
        && let Some(found) = &outcome.report.found
    {
        destination.write(
            found
                .recorded(
                    outcome.case.race.name,
                    outcome.case.configuration.name,
                    outcome.case.configuration.memory,
                )
                .to_text(),
            stop,
        )?;
        output::note(&format!("counterexample: {}", destination.shown()));
    }
    let control = |outcome: &&Outcome| outcome.case.is_control();
    let unseen = outcomes.iter().any(|outcome| control(&outcome))
        && !outcomes
            .iter()
            .filter(control)
            .any(|outcome| outcome.report.found.is_some());
    Ok(if bad.is_some() || unseen { BAD_RUN } else { SUCCESS })
}

impl Case {
    fn is_control(&self) -> bool {
        self.configuration.name == CONTROL_DESIGN
    }

    /// The design and the memory model.
    fn under(&self) -> (&'static str, Architecture) {
        (self.configuration.name, self.configuration.memory)
    }

    fn play(&self) -> Play {
        Play::new(configuration::under(self.race, self.configuration))
    }
}

impl Outcome {
    fn is_bad(&self) -> bool {
        !self.case.is_control() && self.report.found.is_some()
    }
}

fn named_race(name: &str) -> Result<&'static Scenario, Failure> {
    scenario::races().find(|race| race.name == name).ok_or_else(|| {
        let known: Vec<_> = scenario::races().map(|race| race.name).collect();
        Failure::Input(format!("race `{name}` is not known; use one of: {}", known.join(", ")))
    })
}

fn named_design(name: &str) -> Result<Configuration, Failure> {
    configuration::configurations()
        .find(|configuration| configuration.name == name)
        .ok_or_else(|| {
            let known: Vec<_> = configuration::configurations()
                .map(|configuration| configuration.name)
                .collect();
            Failure::Input(format!(
                "design `{name}` is not known; use one of: {}",
                known.join(", ")
            ))
        })
}

/// The named memories; none for that of each design.
fn memories(args: &CheckArgs) -> Result<Vec<Architecture>, Failure> {
    let named = |name: &String| {
        Architecture::named(name.trim()).ok_or_else(|| {
            let known = Architecture::ALL.map(Architecture::name).join(", ");
            Failure::Input(format!("memory `{name}` is not known; use one of: {known}"))
        })
    };
    args.memory.iter().map(named).collect()
}

/// The named races, or all of two CPUs (of three as well, if asked for), under the named designs or all.
fn cases(args: &CheckArgs) -> Result<Vec<Case>, Failure> {
    let races = if args.races.is_empty() {
        scenario::races()
            .filter(|race| match race.scripts.len() {
                2 => true,
                3 => args.three || args.random.is_some(),
                _ => args.random.is_some(),
            })
            .collect()
    } else {
        args.races
            .iter()
            .map(|name| named_race(name.trim()))
            .collect::<Result<Vec<_>, _>>()?
    };
    let configurations = if args.designs.is_empty() {
        configuration::configurations().collect()
    } else {
        args.designs
            .iter()
            .map(|name| named_design(name.trim()))
            .collect::<Result<Vec<_>, _>>()?
    };
    let memories = memories(args)?;
    let on_memories = |configuration: Configuration| match memories.as_slice() {
        [] => vec![configuration],
        named => named.iter().map(|&memory| configuration.on(memory)).collect(),
    };
    // Design by design, as the table has them.
    Ok(configurations
        .into_iter()
        .flat_map(on_memories)
        .flat_map(|configuration| races.iter().map(move |&race| Case { race, configuration }))
        .collect())
}

/// Explores each case, until `stop` is set.
fn run(cases: Vec<Case>, bounds: Bounds, random: Option<u64>, jobs: usize, stop: &AtomicBool) -> Explored {
    let overall = Progress::new("explorations", vec![1.0; cases.len()]);
    let next = AtomicUsize::new(0);
    let reports: Mutex<Vec<Option<(Report, f64)>>> = Mutex::new(cases.iter().map(|_| None).collect());
    std::thread::scope(|scope| {
        for _ in 0..jobs.min(cases.len()) {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(case) = cases.get(index) else { return };
                    let start = Instant::now();
                    // The number of states is known only at the end.
                    let mut progress = |done: u64| {
                        if let Some(runs) = random {
                            overall.update(index, done as f64 / runs.max(1) as f64);
                        }
                        !stop.load(Ordering::Relaxed)
                    };
                    let report = match random {
                        Some(runs) => sample(&mut case.play(), runs, &mut progress),
                        None => explore(&mut case.play(), bounds, &mut progress),
                    };
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                    overall.finish(index);
                    reports.lock().unwrap_or_else(PoisonError::into_inner)[index] =
                        Some((report, start.elapsed().as_secs_f64()));
                }
            });
        }
    });
    drop(overall);
    let reports = reports.into_inner().unwrap_or_else(PoisonError::into_inner);
    let mut explored = Explored::default();
    for (case, report) in cases.into_iter().zip(reports) {
        match report {
            Some((report, seconds)) => explored.outcomes.push(Outcome { case, report, seconds }),
            None => explored.missing.push(case),
        }
    }
    explored
}

impl<'a> Line<'a> {
    /// For an exploration that did not end.
    fn unended(case: &'a Case) -> Self {
        Line {
            race: case.race.name,
            design: case.configuration.name,
            memory: case.configuration.memory.name(),
            cpus: case.race.scripts.len(),
            interrupted: true,
            ..Line::default()
        }
    }
}

fn lines(outcomes: &[Outcome], preemptions: Option<u32>) -> Vec<Line<'_>> {
    outcomes
        .iter()
        .map(|outcome| Line {
            race: outcome.case.race.name,
            design: outcome.case.configuration.name,
            memory: outcome.case.configuration.memory.name(),
            cpus: outcome.case.race.scripts.len(),
            states: outcome.report.states,
            runs: outcome.report.runs,
            depth: outcome.report.depth,
            complete: outcome.report.complete && preemptions.is_none(),
            preemptions,
            broken: outcome.report.found.as_ref().map(|found| found.violation.to_string()),
            host_time_ns: outcome.seconds * 1e9,
            interrupted: false,
        })
        .collect()
}

/// Extent of an exploration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Extent {
    /// Every order.
    Every,
    /// Every order with at most this many preemptions.
    Preemptions(u32),
    /// Random runs.
    Random,
}

impl Extent {
    fn of(args: &CheckArgs) -> Extent {
        match (args.random, args.preemptions) {
            (Some(_), _) => Extent::Random,
            (None, Some(most)) => Extent::Preemptions(most),
            (None, None) => Extent::Every,
        }
    }
}

fn words(outcomes: &[Outcome], extent: Extent, details: bool) -> String {
    let names: Vec<_> = outcomes.iter().map(|outcome| outcome.case.under()).collect();
    let random = extent == Extent::Random;
    let counted = |outcome: &&Outcome| match random {
        true => outcome.report.runs,
        false => outcome.report.states,
    };
    let mut rows = Vec::new();
    let mut listed = BTreeSet::new();
    for &(name, memory) in names
        .iter()
        .filter(|(name, memory)| listed.insert((*name, memory.name())))
    {
        let own: Vec<&Outcome> = outcomes
            .iter()
            .filter(|outcome| outcome.case.under() == (name, memory))
            .collect();
        rows.push(vec![
            name.to_string(),
            memory.to_string(),
            verdict(&own, extent),
            own.len().to_string(),
            number::count(own.iter().map(counted).sum()),
            own.iter()
                .map(|outcome| outcome.report.depth)
                .max()
                .unwrap_or(0)
                .to_string(),
            format!("{:.1}", own.iter().map(|outcome| outcome.seconds).sum::<f64>()),
        ]);
    }
    let counted_of = match random {
        true => Column::number("runs", "random runs, over all races"),
        false => Column::number("states", "distinct states that were visited, over all races"),
    };
    let columns = vec![
        Column::words("design", "the design under which the races were run"),
        Column::words(
            "memory",
            "when stores become visible: in order, or through store buffers",
        ),
        Column::words(
            "verdict",
            "whether a rule of the contract was broken, and in which race",
        ),
        Column::number("races", "small programs of two or three CPUs"),
        counted_of,
        Column::number("longest run", "steps of the longest run").optional(2),
        Column::number("host s", "seconds that it took, all races together").optional(1),
    ];
    let mut text = Tables::new().draw(&Grid::new(columns, vec![rows]));
    let states: u64 = outcomes.iter().map(|outcome| counted(&outcome)).sum();
    let explored = number::counted(outcomes.len(), "exploration");
    let counted = number::counted(states, "state");
    let cut_off = outcomes
        .iter()
        .any(|outcome| !outcome.report.complete && outcome.report.found.is_none());
    let of_these = "order of steps, late store, old value and interrupt of these races";
    text.push_str(&match extent {
        Extent::Random => format!("{explored}, {} by priorities\n", number::counted(states, "random run")),
        _ if cut_off => {
            format!("{explored}, {counted}: not every {of_these}; more with --states\n")
        }
        Extent::Every => format!("{explored}, {counted}: every {of_these}\n"),
        Extent::Preemptions(most) => format!(
            "{explored}, {counted}: every {of_these} with at most {} in a run\n",
            number::counted(most, "preemption")
        ),
    });
    if !random {
        text.extend(equal::reasons(outcomes).into_iter().map(|reason| reason + "\n"));
    }
    let shown = outcomes.iter().find(|outcome| outcome.is_bad());
    let control = || outcomes.iter().find(|outcome| outcome.report.found.is_some());
    if let Some(outcome) = shown.or_else(control)
        && let Some(found) = &outcome.report.found
    {
        text.push_str(&format!(
            "\n{} under {} on {}:\n",
            outcome.case.race.name, outcome.case.configuration.name, outcome.case.configuration.memory
        ));
        text.push_str(&counterexample_text(&outcome.case, found, details));
    }
    text
}

fn verdict(own: &[&Outcome], extent: Extent) -> String {
    let broken: Vec<&str> = own
        .iter()
        .filter(|outcome| outcome.report.found.is_some())
        .map(|outcome| outcome.case.race.name)
        .collect();
    let complete = own.iter().all(|outcome| outcome.report.complete);
    match (own[0].case.is_control(), broken.is_empty(), complete) {
        (true, false, _) => format!("control: caught in {}", number::counted(broken.len(), "race")),
        (true, true, _) => "CONTROL NOT CAUGHT".into(),
        (false, false, _) => format!("BROKEN: {}", broken.join(", ")),
        (false, true, _) if extent == Extent::Random => "nothing found".into(),
        (false, true, true) => match extent {
            Extent::Preemptions(most) => format!("holds within {}", number::counted(most, "preemption")),
            _ => "holds".into(),
        },
        (false, true, false) => "no counterexample, not complete (--states)".into(),
    }
}

fn counterexample_text(case: &Case, found: &Counterexample, details: bool) -> String {
    match replay(&mut case.play(), &found.steps) {
        Ok((lines, violation)) => story(&lines, violation.as_ref(), details),
        Err(number) => format!("step {number} cannot be taken again\n"),
    }
}

fn print_saved(text: &str, place: &str, details: bool) -> Result<u8, Failure> {
    let recorded = Recorded::from_text(text).map_err(|line| Failure::Input(format!("{place}: {line}")))?;
    let case = Case {
        race: named_race(&recorded.race)?,
        configuration: named_design(&recorded.design)?.on(recorded.memory),
    };
    let (lines, violation) = replay(&mut case.play(), &recorded.steps).map_err(|number| {
        Failure::Input(format!(
            "{place}: step {number} (line {}) cannot be taken: the engine or the race has changed since",
            number + 5
        ))
    })?;
    output::show(&format!(
        "{} under {} on {}, {}:\n{}{}",
        recorded.race,
        recorded.design,
        recorded.memory,
        number::counted(recorded.steps.len(), "step"),
        story(&lines, violation.as_ref(), details),
        if violation.is_none() { "no rule is broken\n" } else { "" }
    ))?;
    Ok(if violation.is_some() { BAD_RUN } else { SUCCESS })
}
