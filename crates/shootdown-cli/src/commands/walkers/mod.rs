//! The `walkers` command: the cost of lockless walks, the cost of freeing page-table pages, and the rates of frees at
//! which two modes of walk protection break even.
//!
//! 60 threads pin pages by lockless walks and four free page-table pages (workload `gup`), from no frees to as many as
//! possible: of a process of their own without walks, or with `--shared` of the one that is walked.

mod json;
mod page;

pub use json::schema;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use shootdown_sim::run::{RunResult, RunSpec, validate};

use crate::args::WalkersArgs;
use crate::failure::{BAD_RUN, Failure, SUCCESS};
use crate::print::number::{self, UNKNOWN};
use crate::print::output::{self, Destination, Kind};
use crate::print::table::{Column, Grid, Tables};
use crate::runs::plan::Settings;
use crate::runs::queue::{self, Outcome, Runner};
use crate::runs::target::{Target, quoted};

/// The designs, which differ in the side that pays for walks.
const DESIGNS: [&str; 5] = [
    "walk-interrupt-all",
    "walk-precise",
    "walk-sticky",
    "walk-grace",
    "adaptive",
];
const PINNING: usize = 60;
const FREEING: usize = 4;
/// Virtual milliseconds of a run: rare frees need longer to occur.
const RARE_MS: f64 = 10.0;
const OFTEN_MS: f64 = 4.0;
const OFTEN: u64 = 10_000;
/// Differences within noise, as a share of pins per second.
const NOISE: f64 = 0.001;

/// One rate of frees under each design, in the order of [`DESIGNS`].
struct Row {
    /// Table pages to be freed per second.
    frees: u64,
    outcomes: Vec<Outcome>,
}

impl Row {
    fn results(&self) -> impl Iterator<Item = (&'static str, &Outcome)> {
        DESIGNS.into_iter().zip(&self.outcomes)
    }

    fn of(&self, design: usize) -> Option<&RunResult> {
        self.outcomes[design].as_ref().ok()
    }

    fn pins(&self, design: usize) -> f64 {
        self.of(design).map_or(f64::NAN, |result| result.ops_per_s)
    }

    fn best(&self) -> f64 {
        (0..DESIGNS.len()).map(|design| self.pins(design)).fold(0.0, f64::max)
    }
}

fn interrupts_per_s(result: &RunResult) -> f64 {
    result.interrupts_per_op * result.ops_per_s
}

/// Runs `walkers` and returns the exit status: that of a bad run when something was stale or a run failed.
///
/// # Errors
/// Bad input (found before anything runs), an unwritable output, Ctrl-C.
pub fn command(args: &WalkersArgs, runner: &dyn Runner, stop: &AtomicBool) -> Result<u8, Failure> {
    let settings = Settings::new(&args.run, 1)?;
    let inputs = [Path::new(&args.on)];
    let destination = args
        .html
        .as_deref()
        .map(|path| Destination::apart_from("--html", path, Kind::Page, &inputs))
        .transpose()?;
    let mut rates = args.frees.clone();
    rates.sort_unstable();
    rates.dedup();
    let mut specs = Vec::new();
    for &rate in &rates {
        specs.extend(specs_at(args, &settings, rate)?);
    }
    let ran = queue::run_all(runner, &specs, settings.jobs, stop)?;
    let missing = ran.missing();
    let of_rates = rates.iter().zip(ran.outcomes.chunks(DESIGNS.len()));
    let complete = of_rates.filter_map(|(&frees, outcomes)| {
        let outcomes = outcomes.iter().cloned().collect::<Option<_>>()?;
        Some(Row { frees, outcomes })
    });
    let rows: Vec<Row> = complete.collect();
    if rows.is_empty() {
        return Err(Failure::Interrupted);
    }
    let findings = Findings {
        machine: Target::new(&args.on, None, &args.set)?.to_string(),
        command: repeat(args, &rates, &settings),
        shared: args.shared,
        rows,
        missing,
    };
    let text = if args.json {
        json::render(&findings)
    } else {
        findings.text()
    };
    if missing > 0 {
        return Err(output::partial(args.json, &text, missing, specs.len(), "runs"));
    }
    let label = (!args.json).then_some("report");
    output::results(&text, destination.as_ref(), label, || page::render(&findings), stop)?;
    Ok(if findings.sound() { SUCCESS } else { BAD_RUN })
}

fn specs_at(args: &WalkersArgs, settings: &Settings, rate: u64) -> Result<Vec<RunSpec>, Failure> {
    let own = [
        format!("workload.gup.frees_per_s={rate}"),
        format!("workload.gup.freeing_threads={FREEING}"),
        format!("workload.gup.own_space={}", u8::from(!args.shared)),
    ];
    let path = |set: &str| set.split('=').next().unwrap_or_default().trim().to_string();
    if let Some(set) = args.set.iter().find(|set| own.iter().any(|own| path(own) == path(set))) {
        return Err(Failure::Input(format!(
            "--set {set}: is what `walkers` sets by itself; --frees and --shared change it"
        )));
    }
    let target = Target::new(&args.on, None, &[args.set.as_slice(), &own].concat())?;
    let cpus = target.machine.topology.cpus();
    if cpus < PINNING + FREEING {
        return Err(Failure::Input(format!(
            "--on {}: has {}; expected a machine with {} or more",
            args.on,
            number::counted(cpus, "CPU"),
            PINNING + FREEING
        )));
    }
    let specs = DESIGNS.map(|design| RunSpec {
        workload: "gup".to_string(),
        machine: Arc::clone(&target.machine),
        design: design.to_string(),
        threads: PINNING + if rate > 0 { FREEING } else { 0 },
        seed: settings.seed,
        virtual_ms: Some(
            settings
                .virtual_ms
                .unwrap_or(if rate < OFTEN { RARE_MS } else { OFTEN_MS }),
        ),
        lru_drain: false,
        parameters: target.parameters.clone(),
    });
    for spec in &specs {
        validate(spec).map_err(Failure::Input)?;
    }
    Ok(specs.to_vec())
}

/// A `PATH=VALUE` as a shell reads it back.
fn quoted_set(set: &str) -> String {
    match set.split_once('=') {
        Some((path, value)) => format!("{}={}", quoted(path.trim()), quoted(value.trim())),
        None => quoted(set),
    }
}

/// The command that repeats this, with the defaults written out.
fn repeat(args: &WalkersArgs, rates: &[u64], settings: &Settings) -> String {
    let rates: Vec<String> = rates.iter().map(u64::to_string).collect();
    let mut command = format!(
        "shootdown walkers --on {} --frees {} --seed {}",
        quoted(&args.on),
        rates.join(","),
        settings.seed
    );
    command.extend(args.set.iter().map(|set| format!(" --set {}", quoted_set(set))));
    if args.shared {
        command.push_str(" --shared");
    }
    if let Some(ms) = settings.virtual_ms {
        command.push_str(&format!(" --virtual-ms {}", number::written(ms)));
    }
    command
}

/// The results, by rising rate of frees.
struct Findings {
    machine: String,
    command: String,
    shared: bool,
    /// Of the rates at which every design has run.
    rows: Vec<Row>,
    /// Unfinished runs after Ctrl-C.
    missing: usize,
}

impl Findings {
    fn results(&self) -> impl Iterator<Item = &RunResult> {
        let outcomes = self.rows.iter().flat_map(|row| &row.outcomes);
        outcomes.filter_map(|outcome| outcome.as_ref().ok())
    }

    fn stale(&self) -> u64 {
        self.results().map(|result| result.stale).sum()
    }

    fn sound(&self) -> bool {
        self.stale() == 0 && self.failures().is_empty()
    }

    fn failures(&self) -> Vec<String> {
        let failed = |row: &Row| -> Vec<String> {
            let failed = row
                .results()
                .filter_map(|(design, outcome)| Some((design, outcome.as_ref().err()?)));
            failed
                .map(|(design, reason)| {
                    let reason = reason.lines().next().unwrap_or("no reason given");
                    format!("FAILED: {design} at {} frees per second: {reason}", row.frees)
                })
                .collect()
        };
        self.rows.iter().flat_map(failed).collect()
    }

    fn title(&self) -> String {
        let owner = if self.shared {
            "the process that is walked"
        } else {
            "a process without walks"
        };
        format!(
            "gup on {}: {PINNING} threads pin pages by lockless walks, {FREEING} free page-table pages of {owner}",
            self.machine
        )
    }

    fn grid(&self) -> Grid {
        let columns = vec![
            Column::number(
                "frees/s requested",
                "page-table pages that the freeing threads are to free per second",
            ),
            Column::words(
                "design",
                "how a walk without locks keeps page-table pages from being freed",
            ),
            Column::number("pins/s", "pages pinned per second, all threads together"),
            Column::number(
                "of the best",
                "pins per second over those of the best design at this rate",
            ),
            Column::number("frees/s", "page-table pages that were freed per second"),
            Column::number("interrupts/s", "interrupts taken per second, all CPUs").optional(1),
            Column::number(
                "stale",
                "accesses through a translation or page that was no longer valid",
            )
            .optional(2),
        ];
        let width = columns.len();
        let group = |row: &Row| -> Vec<Vec<String>> {
            let cells = row.results().enumerate().map(|(design, (name, outcome))| {
                let frees = if design == 0 {
                    number::count(row.frees)
                } else {
                    String::new()
                };
                let Ok(result) = outcome else {
                    let mut cells = vec![frees, name.to_string(), "failed".to_string()];
                    cells.resize(width, UNKNOWN.to_string());
                    return cells;
                };
                vec![
                    frees,
                    name.to_string(),
                    number::rate(result.ops_per_s),
                    number::percent(result.ops_per_s / row.best()),
                    number::rate(result.tables_freed_per_s),
                    number::rate(interrupts_per_s(result)),
                    number::count(result.stale),
                ]
            });
            cells.collect()
        };
        Grid::new(columns, self.rows.iter().map(group).collect())
    }

    /// Which of two designs is ahead in pins from which rate on, as [`changes`] returns it.
    fn leads(&self, one: usize, two: usize) -> Vec<(u64, u64, usize)> {
        let ahead = |row: &Row| -> Option<usize> {
            let (a, b) = (row.pins(one), row.pins(two));
            match a / b {
                ratio if ratio > 1.0 + NOISE => Some(one),
                ratio if ratio < 1.0 - NOISE => Some(two),
                _ => None,
            }
        };
        changes(self.rows.iter().filter_map(|row| Some((row.frees, ahead(row)?))))
    }

    /// For each pair of designs where, if anywhere, the first falls behind the second in pins.
    fn break_evens(&self) -> Vec<String> {
        let mut sentences = Vec::new();
        for (one, two) in pairs() {
            let changes = self.leads(one, two);
            let (a, b) = (DESIGNS[one], DESIGNS[two]);
            sentences.push(match changes.as_slice() {
                [] => format!("{a} and {b}: no difference above {}", number::percent(NOISE)),
                [(from, _, first)] => format!(
                    "{} is ahead of {} wherever they differ, from {} frees per second on",
                    DESIGNS[*first],
                    if *first == one { b } else { a },
                    number::count(*from)
                ),
                [(_, _, first), rest @ ..] => {
                    let other = if *first == one { b } else { a };
                    let leads: Vec<String> = rest
                        .iter()
                        .map(|(to, from, design)| {
                            let (from, to) = (number::count(*from), number::count(*to));
                            format!("{} between {from} and {to}", DESIGNS[*design])
                        })
                        .collect();
                    format!(
                        "{} is ahead of {other} at first; overtaken by {} frees per second",
                        DESIGNS[*first],
                        leads.join(", by ")
                    )
                }
            });
        }
        sentences
    }

    fn verdict(&self) -> String {
        let checked = number::count(self.results().map(|result| result.accesses_checked).sum());
        match self.stale() {
            0 => format!("stale translations: 0 in {checked} checked accesses"),
            stale => format!(
                "STALE TRANSLATIONS: {} in {checked} checked accesses",
                number::count(stale)
            ),
        }
    }

    fn text(&self) -> String {
        let mut text = format!("{}\n{}", self.title(), Tables::new().draw(&self.grid()));
        text.push_str("break-even, in pins per second (differences of 0.1% and less count as none)\n");
        for line in self.break_evens() {
            text.push_str(&format!("  {line}\n"));
        }
        for failure in self.failures() {
            text.push_str(&format!("{failure}\n"));
        }
        text + &self.verdict() + "\n"
    }
}

fn pairs() -> impl Iterator<Item = (usize, usize)> {
    (0..DESIGNS.len()).flat_map(|one| (one + 1..DESIGNS.len()).map(move |two| (one, two)))
}

/// Which design is ahead from which rate on: (first rate at which it is, the last rate before that, the design).
fn changes(ahead: impl Iterator<Item = (u64, usize)>) -> Vec<(u64, u64, usize)> {
    let mut changes: Vec<(u64, u64, usize)> = Vec::new();
    let mut before = 0;
    for (rate, design) in ahead {
        if changes.last().is_none_or(|last| last.2 != design) {
            changes.push((rate, before, design));
        }
        before = rate;
    }
    changes
}

#[cfg(test)]
pub(super) mod tests;
