//! The `scoreboard` command: `adaptive` beside the best published design in every cell of machine, workload and
//! threads.
//!
//! Owns the choice of cells: every combination, or those of the published tables. Rates come from the simulator; none
//! is stored here. [`location`] names a cell, [`cell`] compares its designs, [`requirements`] states and checks the
//! requirements, [`text`] prints.
//!
//! The best of a dozen short runs is partly the luckiest. So a cell in which a preset seems ahead, or a requirement is
//! missed, is measured again, longer and with other seeds, and the second result counts. It is measured a third time,
//! with more seeds, if the required share still lies within the error. Cells that cannot be run are listed with the
//! reason.

mod cell;
mod location;
mod requirements;
mod text;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use schemars::{JsonSchema, Schema};
use serde::Serialize;
use shootdown_sim::model::Model;
use shootdown_sim::run::{Parameters, RunSpec, validate};

use crate::args::ScoreboardArgs;
use crate::catalog;
use crate::catalog::JUDGED_DESIGN;
use crate::failure::{BAD_RUN, Failure, SUCCESS};
use crate::print::json;
use crate::print::number;
use crate::print::output;
use crate::print::schema;
use crate::published;
use crate::runs::plan::Settings;
use crate::runs::queue::{self, Outcome, Runner};
use cell::{Cell, LeftOut, Plan};
use location::Place;
use requirements::Requirement;

/// Excluded from the comparison: the limit, the control, a relaxed contract, and settings for processors with errata.
const NOT_TO_BEAT: [&str; 5] = ["ideal", "none", "deferred", "never-broadcast", "broadcast+ipi"];
/// Default virtual milliseconds per run, and with `--long`.
const VIRTUAL_MS: f64 = 2.0;
const LONG_MS: f64 = 4.0;
/// Thread counts in addition to all CPUs, and with `--long`.
const THREADS: [usize; 4] = [1, 2, 8, 16];
const LONG_THREADS: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];
/// Workloads in which flushes decide the rate: those that are run without `--long`.
const WORKLOADS: [&str; 4] = ["tlb_flush2", "tlb_shared", "madvise_spin", "context_switch"];
/// A setting of published rows under which flushes take 0.2 % of the CPU time at most: designs differ by chance alone.
const HARDLY_FLUSHES: &str = "workload.madvise_stress.all_advice=1";
/// Machines with more CPUs are limited to this many threads, so that a run takes minutes.
const MOST_THREADS: usize = 128;
/// A cell that is measured again runs for this many times as long, with this many other seeds.
const LONGER: f64 = 4.0;
const SECOND_ROUND_SEEDS: u64 = 4;
/// Seeds of a cell that is measured a third time: half the error of the second.
const THIRD_ROUND_SEEDS: u64 = 4 * SECOND_ROUND_SEEDS;
/// Share of the best rate from which on a preset may be the best when measured again.
const MAY_BE_BEST: f64 = 0.85;

/// `adaptive` beside the best preset. Times are virtual.
#[derive(Debug, Serialize, JsonSchema)]
struct Document {
    /// One element for each machine, with or without broadcast, workload and number of threads; the worst first.
    cells: Vec<Cell>,
    /// The requirements on `adaptive`, and whether they are met.
    requirements: Vec<Requirement>,
    /// The costs between `adaptive` and the limit, a line for each cell of the main workload that is far below.
    below_limit: Vec<String>,
    /// Cells and designs that could not be run, and why.
    left_out: Vec<LeftOut>,
    /// Accesses through a translation that should have been gone, of all runs.
    stale: u64,
    /// Failed runs, with the reason.
    failed: Vec<String>,
    /// Runs that Ctrl-C kept from ending; absent when all ended.
    #[serde(skip_serializing_if = "json::is_none")]
    missing_runs: usize,
}

/// What `scoreboard --json` prints.
pub fn schema() -> Schema {
    schema::of::<Document>("scoreboard")
}

/// Runs the matrix and prints the cells, the worst first, and a line for each requirement.
///
/// # Errors
/// Bad input, Ctrl-C.
pub fn command(args: &ScoreboardArgs, runner: &dyn Runner, stop: &AtomicBool) -> Result<u8, Failure> {
    let settings = Settings::new(&args.run, args.runs)?;
    let (plans, mut left_out) = if args.evidence {
        of_tables(&settings)?
    } else {
        combinations(args, &settings)?
    };
    let Round {
        plans,
        outcomes,
        mut missing,
    } = run(plans, runner, &settings, stop)?;
    if plans.is_empty() && missing > 0 {
        return Err(Failure::Interrupted);
    }
    let (mut cells, without) = cell::cells(&plans, &outcomes);
    left_out.extend(without);
    let mut again = Vec::new();
    for (runs, is_open) in rounds(settings.runs) {
        if missing > 0 {
            break;
        }
        let open: Vec<&Cell> = cells.iter().filter(|cell| is_open(cell)).collect();
        let round = once_more(&plans, &outcomes, &open, runs);
        let round = match run(round, runner, &settings, stop) {
            Err(Failure::Interrupted) => Round::none(1),
            round => round?,
        };
        missing += round.missing;
        for cell in cell::cells(&round.plans, &round.outcomes).0 {
            if let Some(old) = cells.iter_mut().find(|other| other.place == cell.place) {
                *old = cell;
            }
        }
        let specs = round.plans.into_iter().flat_map(|plan| plan.specs);
        again.extend(specs.zip(round.outcomes));
    }
    cells.sort_by(|a, b| a.of_best.total_cmp(&b.of_best));
    let runs = || {
        let again = again.iter().map(|(spec, outcome)| (spec, outcome));
        plans.iter().flat_map(|plan| &plan.specs).zip(&outcomes).chain(again)
    };
    let document = Document {
        requirements: requirements::requirements(&cells),
        below_limit: requirements::below_limit(&cells),
        left_out,
        stale: runs()
            .filter_map(|(_, outcome)| Some(outcome.as_ref().ok()?.stale))
            .sum(),
        failed: runs().filter_map(|(spec, outcome)| failure(spec, outcome)).collect(),
        cells,
        missing_runs: missing,
    };
    output::print_as(
        args.json,
        &if args.json {
            json::pretty(&document)
        } else {
            text::text(&document, args.all)
        },
    )?;
    if missing > 0 {
        return Err(Failure::Suspended(format!(
            "{} did not end; their cells are missing above, or stand as first measured",
            number::counted(missing, "run")
        )));
    }
    Ok(if document.stale > 0 || !document.failed.is_empty() {
        BAD_RUN
    } else {
        SUCCESS
    })
}

/// The cells whose runs have all ended, and the outcomes in the order of their specifications.
struct Round {
    plans: Vec<Plan>,
    outcomes: Vec<Outcome>,
    missing: usize,
}

impl Round {
    /// No cell at all.
    fn none(missing: usize) -> Self {
        Round {
            plans: Vec::new(),
            outcomes: Vec::new(),
            missing,
        }
    }
}

fn run(plans: Vec<Plan>, runner: &dyn Runner, settings: &Settings, stop: &AtomicBool) -> Result<Round, Failure> {
    let specs: Vec<RunSpec> = plans.iter().flat_map(|plan| plan.specs.iter().cloned()).collect();
    let ran = queue::run_all(runner, &specs, settings.jobs, stop)?;
    let mut round = Round::none(ran.missing());
    let mut outcomes = ran.outcomes.into_iter();
    for plan in plans {
        let of_cell: Vec<Option<Outcome>> = outcomes.by_ref().take(plan.specs.len()).collect();
        if let Some(of_cell) = of_cell.into_iter().collect::<Option<Vec<_>>>() {
            round.outcomes.extend(of_cell);
            round.plans.push(plan);
        }
    }
    Ok(round)
}

fn failure(spec: &RunSpec, outcome: &Outcome) -> Option<String> {
    let reason = outcome.as_ref().err()?.lines().next().unwrap_or("no reason given");
    Some(format!(
        "{} on {} under {} at {}, seed {}: {reason}",
        spec.workload,
        spec.machine.name,
        spec.design,
        number::threads(spec.threads),
        spec.seed
    ))
}

type Question = fn(&Cell) -> bool;

/// The runs with which cells are measured again after `runs` of each, and the cells.
fn rounds(runs: u64) -> [(Range<u64>, Question); 2] {
    let second = runs..runs + SECOND_ROUND_SEEDS;
    let third = second.end..second.end + THIRD_ROUND_SEEDS;
    [(second, requirements::is_doubtful), (third, requirements::is_undecided)]
}

/// The runs of another measurement, each with a seed of its own, at each of `open`: of `adaptive`, the limit, and every
/// preset that may be the best. `outcomes` are those of all `plans`.
fn once_more(plans: &[Plan], outcomes: &[Outcome], open: &[&Cell], runs: Range<u64>) -> Vec<Plan> {
    let mut again = Vec::new();
    let mut outcomes = outcomes;
    for plan in plans {
        let (results, rest) = outcomes.split_at(plan.specs.len());
        outcomes = rest;
        let Some(cell) = open.iter().find(|cell| cell.place == plan.place) else {
            continue;
        };
        let mut specs = Vec::new();
        for (spec, outcome) in plan.specs.iter().zip(results) {
            let rate = outcome.as_ref().map_or(0.0, |result| result.ops_per_s);
            let listed = [JUDGED_DESIGN, catalog::IDEAL_DESIGN, "ipi", "broadcast"].contains(&&*spec.design);
            let first = plan.specs.iter().find(|other| other.design == spec.design);
            if first.is_some_and(|first| first.seed == spec.seed)
                && (listed || rate >= MAY_BE_BEST * cell.best_ops_per_s)
            {
                specs.extend(runs.clone().map(|run| RunSpec {
                    seed: spec.seed.wrapping_add(run),
                    virtual_ms: spec.virtual_ms.map(|ms| LONGER * ms),
                    ..spec.clone()
                }));
            }
        }
        again.push(Plan {
            place: plan.place.clone(),
            specs,
        });
    }
    again
}

/// The cells of the published tables, each once: several rows may belong to one cell, and the denominator of a ratio is
/// another. Each runs for as long as its rows do.
fn of_tables(settings: &Settings) -> Result<(Vec<Plan>, Vec<LeftOut>), Failure> {
    let (mut plans, mut left_out): (Vec<Plan>, _) = (Vec::new(), Vec::new());
    let rows = published::rows();
    let rows = rows.iter().filter(|row| row.not_run().is_none());
    for row in rows.flat_map(|row| [Some(row.clone()), row.reference()]).flatten() {
        let spec = row.spec(settings)?;
        let place = Place::of_row(&row, &spec);
        let left = left_out.iter().map(|left: &LeftOut| &left.place);
        if plans
            .iter()
            .map(|plan| &plan.place)
            .chain(left)
            .any(|other| *other == place)
        {
            continue;
        }
        if place.set.iter().any(|set| set == HARDLY_FLUSHES) {
            left_out.push(LeftOut::new(
                &place,
                None,
                "it hardly flushes, so designs differ by chance alone",
            ));
            continue;
        }
        let (plan, without) = plan(place, &spec, settings.runs)?;
        plans.extend(plan);
        left_out.extend(without);
    }
    Ok((plans, left_out))
}

/// The cells of every machine, with and without broadcast, every workload and some numbers of threads; and those that
/// cannot be run.
fn combinations(args: &ScoreboardArgs, settings: &Settings) -> Result<(Vec<Plan>, Vec<LeftOut>), Failure> {
    let input = |error: String| Failure::Input(error);
    let names: Vec<String> = match &args.on {
        Some(names) => each_once(names),
        None => Model::builtin_names().iter().map(ToString::to_string).collect(),
    };
    let workloads: Vec<String> = match &args.workloads {
        Some(names) => each_once(names),
        None if args.long => catalog::workloads().map(|workload| workload.name.to_string()).collect(),
        None => WORKLOADS.map(str::to_string).to_vec(),
    };
    let (counts, default_ms): (&[usize], _) = match args.long {
        true => (&LONG_THREADS, LONG_MS),
        false => (&THREADS, VIRTUAL_MS),
    };
    let (mut plans, mut left_out) = (Vec::new(), Vec::new());
    for name in &names {
        let model = Model::find(name).map_err(|error| input(error.to_string()))?;
        let mut machines = vec![Arc::new(model.clone())];
        if model.broadcasts() {
            let without = model.without_broadcasts();
            machines.push(Arc::new(without.map_err(|error| input(error.to_string()))?));
        }
        let cpus = model.topology.cpus();
        let mut threads: Vec<usize> = counts.iter().copied().filter(|&count| count < cpus).collect();
        threads.push(cpus.min(MOST_THREADS));
        for machine in &machines {
            for workload in &workloads {
                for &threads in &threads {
                    let spec = RunSpec {
                        workload: workload.clone(),
                        machine: Arc::clone(machine),
                        design: String::new(),
                        threads,
                        seed: settings.seed,
                        virtual_ms: Some(settings.virtual_ms.unwrap_or(default_ms)),
                        lru_drain: false,
                        parameters: Parameters::default(),
                    };
                    let (plan, without) = plan(Place::of(&spec), &spec, settings.runs)?;
                    plans.extend(plan);
                    left_out.extend(without);
                }
            }
        }
    }
    match left_out.first() {
        Some(left) if plans.is_empty() => Err(input(left.reason.clone())),
        _ => Ok((plans, left_out)),
    }
}

/// Names, trimmed and without duplicates: a duplicated cell would be measured again once.
fn each_once(names: &[String]) -> Vec<String> {
    let mut once: Vec<String> = Vec::new();
    for name in names.iter().map(|name| name.trim()) {
        if !once.iter().any(|other| other == name) {
            once.push(name.to_string());
        }
    }
    once
}

/// The runs of the cell at `place`, of which `spec` is a run, under every design; and those that cannot be run: a
/// workload that needs more threads, a design that needs more tags. A name that does not exist is an error.
fn plan(place: Place, spec: &RunSpec, runs: u64) -> Result<(Option<Plan>, Vec<LeftOut>), Failure> {
    let (mut specs, mut left_out) = (Vec::new(), Vec::new());
    for design in catalog::designs().filter(|design| concerns(design.name)) {
        let spec = RunSpec {
            design: design.name.to_string(),
            ..spec.clone()
        };
        match validate(&spec) {
            Ok(()) => specs.extend((0..runs).map(|run| RunSpec {
                seed: spec.seed.wrapping_add(run),
                ..spec.clone()
            })),
            Err(error) if catalog::workload(&spec.workload).is_none() => return Err(Failure::Input(error)),
            Err(error) if design.name == JUDGED_DESIGN => {
                return Ok((None, vec![LeftOut::new(&place, None, &error)]));
            }
            Err(error) => left_out.push(LeftOut::new(&place, Some(design.name), &error)),
        }
    }
    Ok((Some(Plan { place, specs }), left_out))
}

fn concerns(design: &str) -> bool {
    design == catalog::IDEAL_DESIGN || !NOT_TO_BEAT.contains(&design)
}

#[cfg(test)]
mod tests;
