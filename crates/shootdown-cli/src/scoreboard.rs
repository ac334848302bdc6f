//! The `scoreboard` command: `adaptive` beside the best published design in every cell of machine, workload and threads.
//!
//! Owns the choice of cells, the requirements and what is said of each. Rates come from the simulator, none is kept here.
//! A cell that a design does not run in (too few tags, too few threads) is left out for that design, and counted.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use serde::Serialize;
use shootdown_sim::model::Model;
use shootdown_sim::run::{Parameters, RunSpec, validate};

use crate::args::ScoreboardArgs;
use crate::failure::{BAD_RUN, Failure, SUCCESS};
use crate::number;
use crate::plan::Settings;
use crate::queue::{self, Outcome, Runner};
use crate::table::Grid;
use crate::{catalog, json, output};

/// The design that is judged.
const JUDGED: &str = "adaptive";
/// Not designs to beat: the limit, the control, a relaxed contract, and settings for processors with errata.
const NOT_TO_BEAT: [&str; 5] = ["ideal", "none", "deferred", "never-broadcast", "broadcast+ipi"];
/// Least share of the best preset, everywhere.
const OF_BEST: f64 = 0.98;
/// Least share of the limit on the flagship workload and machine, with broadcast.
const OF_LIMIT: f64 = 0.95;
/// To be reached somewhere on each machine of several sockets.
const AHEAD: f64 = 1.10;
/// Least multiple of `ipi` without broadcast, from [`MANY`] threads on.
const OF_IPI: f64 = 1.5;
const MANY: usize = 16;
/// Virtual milliseconds per run, unless told; shorter with `--quick`.
const VIRTUAL_MS: f64 = 4.0;
const QUICK_MS: f64 = 2.0;
/// Thread counts besides all CPUs.
const THREADS: [usize; 6] = [1, 2, 4, 8, 16, 32];
const QUICK_THREADS: [usize; 4] = [1, 2, 8, 16];
/// Workloads in which flushes decide the rate.
const QUICK_WORKLOADS: [&str; 4] = ["tlb_flush2", "tlb_shared", "madvise_spin", "context_switch"];
/// Machines with more CPUs are run on this many threads at most: the wanted time is minutes.
const MOST_THREADS: usize = 128;
/// Rows shown unless all are asked for.
const WORST: usize = 25;

/// One machine, with or without its broadcast, one workload, one number of threads.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Cell {
    machine: String,
    sockets: usize,
    broadcast: bool,
    workload: String,
    threads: usize,
    /// Operations per second of the judged design.
    adaptive: f64,
    /// The best preset and its rate.
    best: String,
    best_ops_per_s: f64,
    /// Share of the best preset.
    of_best: f64,
    /// Share of the limit.
    of_ideal: Option<f64>,
    /// Multiple of `ipi`.
    of_ipi: Option<f64>,
    /// Share of the better of `ipi` and `broadcast`.
    of_either: Option<f64>,
}

/// What is demanded, and what came out.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Requirement {
    what: String,
    met: bool,
    found: String,
}

#[derive(Debug, Serialize)]
struct Document<'a> {
    cells: &'a [Cell],
    requirements: &'a [Requirement],
    stale: u64,
    failed: &'a [String],
}

/// Runs the matrix and prints the cells, the worst first, and a line for each requirement.
///
/// # Errors
/// Bad input, Ctrl-C.
pub fn command(args: &ScoreboardArgs, runner: &dyn Runner, stop: &AtomicBool) -> Result<u8, Failure> {
    let settings = Settings::new(&args.run, args.runs)?;
    let specs = specs(args, &settings)?;
    let outcomes = queue::run_all(runner, &specs, settings.jobs, stop)?;
    let cells = cells(&specs, &outcomes);
    let requirements = requirements(&cells);
    let stale = outcomes.iter().flatten().map(|result| result.stale).sum();
    let failed: Vec<String> = specs
        .iter()
        .zip(&outcomes)
        .filter_map(|(spec, outcome)| {
            let reason = outcome.as_ref().err()?.lines().next().unwrap_or("no reason given");
            Some(format!(
                "{} on {} under {} at {} threads, seed {}: {reason}",
                spec.workload, spec.machine.name, spec.design, spec.threads, spec.seed
            ))
        })
        .collect();
    output::print(&if args.json {
        json::pretty(&Document {
            cells: &cells,
            requirements: &requirements,
            stale,
            failed: &failed,
        })
    } else {
        text(&cells, &requirements, stale, &failed, args.all)
    })?;
    Ok(if stale > 0 || !failed.is_empty() {
        BAD_RUN
    } else {
        SUCCESS
    })
}

/// The runs of all cells; those of one cell follow each other.
fn specs(args: &ScoreboardArgs, settings: &Settings) -> Result<Vec<RunSpec>, Failure> {
    let input = |error: String| Failure::Input(error);
    let names: Vec<String> = match &args.on {
        Some(names) => names.clone(),
        None => Model::builtin_names().iter().map(ToString::to_string).collect(),
    };
    let workloads: Vec<String> = match &args.workloads {
        Some(names) => names.clone(),
        None if args.quick => QUICK_WORKLOADS.map(str::to_string).to_vec(),
        None => catalog::workloads().map(|workload| workload.name.to_string()).collect(),
    };
    let counts: &[usize] = if args.quick { &QUICK_THREADS } else { &THREADS };
    let default_ms = if args.quick { QUICK_MS } else { VIRTUAL_MS };
    let mut specs = Vec::new();
    let mut left = None;
    for name in &names {
        let model = Model::find(name.trim()).map_err(|error| input(error.to_string()))?;
        let mut machines = vec![Arc::new(model.clone())];
        if model.broadcast.available {
            let without = model.with("broadcast.available", 0.0);
            machines.push(Arc::new(without.map_err(|error| input(error.to_string()))?));
        }
        let cpus = model.topology.cpus();
        let mut threads: Vec<usize> = counts.iter().copied().filter(|&count| count < cpus).collect();
        threads.push(cpus.min(MOST_THREADS));
        for machine in &machines {
            for workload in &workloads {
                for &threads in &threads {
                    let of_cell = specs.len();
                    for design in catalog::designs().filter(|design| concerns(design.name)) {
                        let spec = RunSpec {
                            workload: workload.trim().to_string(),
                            machine: Arc::clone(machine),
                            design: design.name.to_string(),
                            threads,
                            seed: settings.seed,
                            virtual_ms: Some(settings.virtual_ms.unwrap_or(default_ms)),
                            lru_drain: false,
                            parameters: Parameters::default(),
                        };
                        match validate(&spec) {
                            Ok(()) => specs.extend((0..settings.runs).map(|run| RunSpec {
                                seed: settings.seed.wrapping_add(run),
                                ..spec.clone()
                            })),
                            // A workload that needs more threads, a design that needs more tags; a name is a mistake.
                            Err(error) if catalog::workload(&spec.workload).is_none() => return Err(input(error)),
                            Err(error) => left = Some(error),
                        }
                    }
                    if !specs[of_cell..].iter().any(|spec| spec.design == JUDGED) {
                        specs.truncate(of_cell);
                    }
                }
            }
        }
    }
    match left {
        Some(error) if specs.is_empty() => Err(input(error)),
        _ => Ok(specs),
    }
}

fn concerns(design: &str) -> bool {
    design == catalog::IDEAL_DESIGN || !NOT_TO_BEAT.contains(&design)
}

fn same_cell(a: &RunSpec, b: &RunSpec) -> bool {
    Arc::ptr_eq(&a.machine, &b.machine) && a.workload == b.workload && a.threads == b.threads
}

/// Rates of each cell compared, the worst share of the best preset first.
fn cells(specs: &[RunSpec], outcomes: &[Outcome]) -> Vec<Cell> {
    let mut cells = Vec::new();
    let mut at = 0;
    for of_cell in specs.chunk_by(same_cell) {
        let results = &outcomes[at..at + of_cell.len()];
        at += of_cell.len();
        let rate = |design: &str| {
            let of_design = of_cell.iter().zip(results).filter(|(spec, _)| spec.design == design);
            let rates: Vec<f64> = of_design
                .filter_map(|(_, outcome)| Some(outcome.as_ref().ok()?.ops_per_s))
                .collect();
            (!rates.is_empty())
                .then(|| number::median(rates))
                .filter(|&rate| rate > 0.0)
        };
        let best = catalog::designs()
            .filter(|design| design.name != JUDGED && !NOT_TO_BEAT.contains(&design.name))
            .filter_map(|design| Some((design.name, rate(design.name)?)))
            .max_by(|a, b| a.1.total_cmp(&b.1));
        let (Some(adaptive), Some((best, best_rate))) = (rate(JUDGED), best) else {
            continue;
        };
        let spec = &of_cell[0];
        let either = [rate("ipi"), rate("broadcast")].into_iter().flatten().reduce(f64::max);
        cells.push(Cell {
            machine: spec.machine.name.clone(),
            sockets: spec.machine.topology.sockets,
            broadcast: spec.machine.broadcast.available,
            workload: spec.workload.clone(),
            threads: spec.threads,
            adaptive,
            best: best.to_string(),
            best_ops_per_s: best_rate,
            of_best: adaptive / best_rate,
            of_ideal: rate(catalog::IDEAL_DESIGN).map(|ideal| adaptive / ideal),
            of_ipi: rate("ipi").map(|ipi| adaptive / ipi),
            of_either: either.map(|either| adaptive / either),
        });
    }
    cells.sort_by(|a, b| a.of_best.total_cmp(&b.of_best));
    cells
}

/// One requirement: the least of `value` over the cells that it concerns is at least `least`; no cell is no verdict.
fn least(
    cells: &[Cell],
    what: String,
    least: f64,
    concerns: impl Fn(&Cell) -> bool,
    value: impl Fn(&Cell) -> Option<f64>,
) -> Option<Requirement> {
    let found: Vec<(f64, &Cell)> = cells
        .iter()
        .filter(|cell| concerns(cell))
        .filter_map(|cell| Some((value(cell)?, cell)))
        .collect();
    let below = found.iter().filter(|(value, _)| *value < least).count();
    let (worst, cell) = found.iter().min_by(|a, b| a.0.total_cmp(&b.0))?;
    Some(Requirement {
        what,
        met: below == 0,
        found: format!(
            "{below} of {} cells below; least {worst:.3}, {}",
            found.len(),
            place(cell)
        ),
    })
}

fn place(cell: &Cell) -> String {
    let without = if cell.broadcast { "" } else { " without broadcast" };
    format!(
        "{} on {}{without} at {} threads",
        cell.workload, cell.machine, cell.threads
    )
}

fn requirements(cells: &[Cell]) -> Vec<Requirement> {
    let mut all: Vec<Requirement> = [
        least(
            cells,
            format!("at least {OF_BEST} of the best preset everywhere"),
            OF_BEST,
            |_| true,
            |cell| Some(cell.of_best),
        ),
        least(
            cells,
            "at 2 threads no worse than ipi or broadcast".to_string(),
            1.0,
            |cell| cell.threads == 2,
            |cell| cell.of_either,
        ),
        least(
            cells,
            format!("tlb_flush2 without broadcast: at least {OF_IPI} times ipi from {MANY} threads on"),
            OF_IPI,
            |cell| !cell.broadcast && cell.threads >= MANY && cell.workload == catalog::FLAGSHIP_WORKLOAD,
            |cell| cell.of_ipi,
        ),
        least(
            cells,
            format!(
                "{} with broadcast on {}: at least {OF_LIMIT} of ideal",
                catalog::FLAGSHIP_WORKLOAD,
                catalog::FLAGSHIP_MACHINE
            ),
            OF_LIMIT,
            |cell| {
                cell.broadcast
                    && cell.workload == catalog::FLAGSHIP_WORKLOAD
                    && cell.machine == catalog::FLAGSHIP_MACHINE
            },
            |cell| cell.of_ideal,
        ),
    ]
    .into_iter()
    .flatten()
    .collect();
    let mut machines: Vec<&str> = cells
        .iter()
        .filter(|cell| cell.sockets > 1)
        .map(|cell| &*cell.machine)
        .collect();
    machines.sort_unstable();
    machines.dedup();
    for machine in machines {
        let of_machine = cells.iter().filter(|cell| cell.machine == machine);
        let Some(top) = of_machine.max_by(|a, b| a.of_best.total_cmp(&b.of_best)) else {
            continue;
        };
        all.push(Requirement {
            what: format!("above {AHEAD:.2} of the best preset somewhere on {machine}"),
            met: top.of_best > AHEAD,
            found: format!("{:.3}, {}", top.of_best, place(top)),
        });
    }
    all
}

fn text(cells: &[Cell], requirements: &[Requirement], stale: u64, failed: &[String], all: bool) -> String {
    let shown = if all { cells.len() } else { WORST.min(cells.len()) };
    let rows = cells[..shown].iter().map(|cell| {
        let share = |value: Option<f64>| value.map_or(number::UNKNOWN.to_string(), |value| format!("{value:.3}"));
        vec![
            cell.machine.clone(),
            cell.workload.clone(),
            if cell.broadcast { "yes" } else { "no" }.to_string(),
            cell.best.clone(),
            cell.threads.to_string(),
            number::rate(cell.best_ops_per_s),
            number::rate(cell.adaptive),
            share(Some(cell.of_best)),
            share(cell.of_ideal),
            share(cell.of_ipi),
        ]
    });
    let header = [
        "machine",
        "workload",
        "broadcast",
        "best preset",
        "threads",
        "its ops/s",
        "adaptive",
        "of best",
        "of ideal",
        "of ipi",
    ];
    let grid = Grid {
        header: header.map(str::to_string).to_vec(),
        groups: vec![rows.collect()],
        words: 4,
    };
    let mut text = format!(
        "adaptive beside the best preset, operations per second: the worst {shown} of {} cells\n{}",
        cells.len(),
        grid.draw()
    );
    for requirement in requirements {
        let verdict = if requirement.met { "met   " } else { "MISSED" };
        text.push_str(&format!("{verdict} {}: {}\n", requirement.what, requirement.found));
    }
    for failure in failed {
        text.push_str(&format!("FAILED: {failure}\n"));
    }
    text.push_str(&if stale > 0 {
        format!(
            "STALE TRANSLATIONS: {}; the rates above mean nothing\n",
            number::count(stale)
        )
    } else {
        "stale translations: 0\n".to_string()
    });
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(machine: &str, sockets: usize, broadcast: bool, threads: usize, of_best: f64) -> Cell {
        Cell {
            machine: machine.to_string(),
            sockets,
            broadcast,
            workload: catalog::FLAGSHIP_WORKLOAD.to_string(),
            threads,
            adaptive: of_best * 1e5,
            best: "ipi".to_string(),
            best_ops_per_s: 1e5,
            of_best,
            of_ideal: Some(of_best / 2.0),
            of_ipi: Some(of_best),
            of_either: Some(of_best),
        }
    }

    #[test]
    fn each_requirement_names_its_worst_cell_and_whether_it_is_met() {
        let cells = [cell("one", 1, true, 2, 0.99), cell("two", 2, false, 16, 1.6)];
        let found = requirements(&cells);
        let met: Vec<bool> = found.iter().map(|requirement| requirement.met).collect();
        assert_eq!(met, [true, false, true, true], "{found:?}");
        assert!(
            found[1]
                .found
                .contains("1 of 1 cells below; least 0.990, tlb_flush2 on one at 2 threads")
        );
        assert!(
            found[3]
                .found
                .contains("1.600, tlb_flush2 on two without broadcast at 16 threads")
        );
    }

    #[test]
    fn what_no_cell_concerns_has_no_verdict() {
        assert_eq!(requirements(&[]), []);
        let text = text(
            &[cell("one", 1, true, 4, 0.5)],
            &requirements(&[cell("one", 1, true, 4, 0.5)]),
            0,
            &[],
            false,
        );
        assert!(
            text.contains("MISSED at least 0.98 of the best preset everywhere"),
            "{text}"
        );
        assert!(!text.contains("1.5 times ipi"), "{text}");
    }
}
