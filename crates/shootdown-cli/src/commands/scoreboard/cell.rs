//! One cell of the scoreboard: the rates of the designs, and the costs between `adaptive` and the limit.

use schemars::JsonSchema;
use serde::Serialize;
use shootdown_sim::model::{Arch, Model};
use shootdown_sim::run::{RunResult, RunSpec};

use super::NOT_TO_BEAT;
use super::location::Place;
use crate::catalog::{self, IDEAL_DESIGN, JUDGED_DESIGN};
use crate::print::number;
use crate::runs::queue::Outcome;

/// Categories of time named between `adaptive` and the limit.
const NAMED: usize = 3;

/// The runs at one place: every design, several times.
#[derive(Debug)]
pub(super) struct Plan {
    pub place: Place,
    /// Never empty; all of one machine.
    pub specs: Vec<RunSpec>,
}

/// The results at one place.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub(super) struct Cell {
    #[serde(flatten)]
    pub place: Place,
    /// Sockets of the machine.
    pub sockets: usize,
    /// Operations per second of the judged design.
    pub adaptive: f64,
    /// The best preset.
    pub best: String,
    /// Its operations per second.
    pub best_ops_per_s: f64,
    /// `adaptive` as a share of the best preset.
    pub of_best: f64,
    /// Two standard errors of that share. Null where each design ran once.
    pub noise: Option<f64>,
    /// `adaptive` as a share of the limit, `ideal`.
    pub of_ideal: Option<f64>,
    /// `adaptive` as a share of what the limit reaches with the wait for broadcasts added.
    pub of_waited_for: Option<f64>,
    /// The limit as a multiple of `ipi`.
    pub ideal_of_ipi: Option<f64>,
    /// `adaptive` as a multiple of `ipi`.
    pub of_ipi: Option<f64>,
    /// `adaptive` as a share of the better of `ipi` and `broadcast`.
    pub of_either: Option<f64>,
    /// CPU time per operation.
    pub cpu_time_per_op_ns: f64,
    /// CPU time per operation beyond that of the limit, by category; the largest first.
    pub beyond_ideal: Vec<Beyond>,
}

/// CPU time per operation in one category.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub(super) struct Beyond {
    /// The category.
    pub category: String,
    /// How much more than under the limit.
    pub time_ns: f64,
}

/// A cell without a result, or a design that cannot run in it, and the reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub(super) struct LeftOut {
    #[serde(flatten)]
    pub place: Place,
    /// The design. Null when the whole cell is left out.
    pub design: Option<String>,
    /// The reason.
    pub reason: String,
}

impl LeftOut {
    pub(super) fn new(place: &Place, design: Option<&str>, reason: &str) -> Self {
        LeftOut {
            place: place.clone(),
            design: design.map(str::to_string),
            reason: reason.lines().next().unwrap_or("no reason given").to_string(),
        }
    }
}

/// Rates of each cell compared; and the cells without a rate to compare. Outcomes are in the order of the
/// specifications.
pub(super) fn cells(plans: &[Plan], outcomes: &[Outcome]) -> (Vec<Cell>, Vec<LeftOut>) {
    let (mut cells, mut left_out) = (Vec::new(), Vec::new());
    let mut outcomes = outcomes;
    for plan in plans {
        let (of_cell, rest) = outcomes.split_at(plan.specs.len());
        outcomes = rest;
        let runs = Runs {
            specs: &plan.specs,
            outcomes: of_cell,
        };
        match runs.cell(&plan.place) {
            Ok(cell) => cells.push(cell),
            Err(reason) => left_out.push(LeftOut::new(&plan.place, None, &reason)),
        }
    }
    (cells, left_out)
}

/// The runs of one cell.
struct Runs<'a> {
    specs: &'a [RunSpec],
    outcomes: &'a [Outcome],
}

impl Runs<'_> {
    fn results(&self, design: &str) -> impl Iterator<Item = &RunResult> {
        let of_design = self.specs.iter().zip(self.outcomes);
        of_design
            .filter(move |(spec, _)| spec.design == design)
            .filter_map(|(_, outcome)| outcome.as_ref().ok())
    }

    /// Operations per second, the median of the runs; `None` when there is no run, or nothing was done.
    fn rate(&self, design: &str) -> Option<f64> {
        let mut rates = self.results(design).map(|result| result.ops_per_s).peekable();
        rates.peek()?;
        Some(number::median(rates)).filter(|&rate| rate > 0.0)
    }

    /// The relative standard error of a design's rate.
    fn error(&self, design: &str) -> Option<f64> {
        let rates: Vec<f64> = self.results(design).map(|result| result.ops_per_s).collect();
        let count = rates.len() as f64;
        let mean = rates.iter().sum::<f64>() / count;
        let squares: f64 = rates.iter().map(|rate| (rate - mean).powi(2)).sum();
        (rates.len() > 2 && mean > 0.0).then(|| (squares / (count - 1.0) / count).sqrt() / mean)
    }

    /// CPU time per operation by category, ns: of the threads' CPUs, waiting and idling included.
    fn times(&self, design: &str) -> Vec<(&'static str, f64)> {
        let (Some(rate), Some(result)) = (self.rate(design), self.results(design).next()) else {
            return Vec::new();
        };
        let ns = 1e9 * self.specs[0].threads as f64 / rate;
        result
            .time_shares
            .iter()
            .map(|&(name, share)| (name, share * ns))
            .collect()
    }

    fn cell(&self, place: &Place) -> Result<Cell, String> {
        let spec = &self.specs[0];
        let without = |design: &str| {
            let reason = self
                .specs
                .iter()
                .zip(self.outcomes)
                .find(|(spec, _)| spec.design == design);
            match reason {
                Some((_, Err(reason))) => format!("{design} failed: {reason}"),
                Some((_, Ok(_))) => format!("{design} completed no operation in the window; run longer (--virtual-ms)"),
                None => format!("{design} was not run"),
            }
        };
        let adaptive = self.rate(JUDGED_DESIGN).ok_or_else(|| without(JUDGED_DESIGN))?;
        let (best, best_rate) = catalog::designs()
            .filter(|design| design.name != JUDGED_DESIGN && !NOT_TO_BEAT.contains(&design.name))
            .filter_map(|design| Some((design.name, self.rate(design.name)?)))
            .max_by(|a, b| a.1.total_cmp(&b.1))
            .ok_or("no preset completed an operation in the window; run longer (--virtual-ms)")?;
        let (ideal, ipi) = (self.rate(IDEAL_DESIGN), self.rate("ipi"));
        let either = [ipi, self.rate("broadcast")].into_iter().flatten().reduce(f64::max);
        let flagship = spec.workload == catalog::FLAGSHIP_WORKLOAD;
        let waited_for = ideal
            .filter(|_| flagship && spec.threads > 1)
            .and_then(|ideal| waited_for(&spec.machine, spec.threads, ideal));
        let limit_times = self.times(IDEAL_DESIGN);
        let mut beyond_ideal: Vec<Beyond> = self
            .times(JUDGED_DESIGN)
            .into_iter()
            .map(|(name, ns)| {
                let limit = limit_times.iter().find(|(other, _)| *other == name);
                Beyond {
                    category: name.to_string(),
                    time_ns: ns - limit.map_or(0.0, |(_, ns)| *ns),
                }
            })
            .filter(|part| !limit_times.is_empty() && part.time_ns >= 1.0)
            .collect();
        beyond_ideal.sort_by(|a, b| b.time_ns.total_cmp(&a.time_ns));
        beyond_ideal.truncate(NAMED);
        let errors = self.error(JUDGED_DESIGN).zip(self.error(best));
        Ok(Cell {
            place: place.clone(),
            sockets: spec.machine.topology.sockets,
            adaptive,
            best: best.to_string(),
            best_ops_per_s: best_rate,
            of_best: adaptive / best_rate,
            noise: errors.map(|(own, other)| 2.0 * own.hypot(other) * adaptive / best_rate),
            of_ideal: ideal.map(|ideal| adaptive / ideal),
            of_waited_for: waited_for.map(|limit| adaptive / limit),
            ideal_of_ipi: ideal.zip(ipi).map(|(ideal, ipi)| ideal / ipi),
            of_ipi: ipi.map(|ipi| adaptive / ipi),
            of_either: either.map(|either| adaptive / either),
            cpu_time_per_op_ns: 1e9 * spec.threads as f64 / adaptive,
            beyond_ideal,
        })
    }
}

/// The part of the limit `ideal` that remains on a machine, operations per second, where each operation has one flush
/// by broadcast.
///
/// A thread that drops a page may neither reuse it nor return to user code before the broadcast is complete everywhere.
/// So each loop of each thread is longer by that wait, even if other threads work meanwhile; and the machine carries
/// out one broadcast at a time. `None` on a machine without broadcast, and where firmware carries it out by interrupts.
fn waited_for(machine: &Model, threads: usize, ideal: f64) -> Option<f64> {
    let by_interrupts = matches!(machine.arch, Arch::Riscv64(_));
    let sync = machine.ns(machine.costs.broadcast_sync);
    let interval = machine.ns(machine.costs.broadcast_interval);
    (machine.broadcast.available && !by_interrupts).then(|| {
        let threads = threads as f64;
        let waiting = threads / (threads / ideal + sync / 1e9);
        let in_turn = if interval > 0.0 { 1e9 / interval } else { f64::INFINITY };
        waiting.min(in_turn)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runs::fake;
    use shootdown_sim::run::Parameters;
    use std::sync::Arc;

    fn runs(designs: &[&str], rates: &[f64]) -> (Plan, Vec<Outcome>) {
        let machine = Arc::new(Model::find("milan-72").unwrap());
        let specs: Vec<RunSpec> = designs
            .iter()
            .map(|design| RunSpec {
                workload: catalog::FLAGSHIP_WORKLOAD.to_string(),
                machine: Arc::clone(&machine),
                design: design.to_string(),
                threads: 2,
                seed: 1,
                virtual_ms: None,
                lru_drain: false,
                parameters: Parameters::default(),
            })
            .collect();
        let outcomes = specs.iter().zip(rates).map(|(spec, &rate)| {
            Ok(RunResult {
                ops_per_s: rate,
                ..fake::result(spec)
            })
        });
        let outcomes = outcomes.collect();
        let place = Place::of(&specs[0]);
        (Plan { place, specs }, outcomes)
    }

    #[test]
    fn cell_without_a_rate_is_listed_with_the_reason() {
        let (plan, outcomes) = runs(&["ideal", "ipi", "adaptive"], &[2.0, 1.0, 0.0]);
        let plans = [plan];
        let (cells, left_out) = cells(&plans, &outcomes);
        assert!(cells.is_empty());
        assert_eq!(
            left_out[0].reason,
            "adaptive completed no operation in the window; run longer (--virtual-ms)"
        );
        let failed: Vec<Outcome> = plans[0]
            .specs
            .iter()
            .map(|_| Err("it hangs\nCPU 0 sleeps".to_string()))
            .collect();
        let (_, left_out) = super::cells(&plans, &failed);
        assert_eq!(left_out[0].reason, "adaptive failed: it hangs");
    }

    #[test]
    fn best_preset_excludes_ideal_and_shares_have_their_own_base() {
        let (plan, outcomes) = runs(&["ideal", "ipi", "broadcast", "adaptive"], &[6e5, 3e5, 4e5, 5e5]);
        let (cells, left_out) = cells(&[plan], &outcomes);
        assert!(left_out.is_empty());
        let cell = &cells[0];
        assert_eq!(
            (cell.best.as_str(), cell.of_best, cell.of_either),
            ("broadcast", 1.25, Some(1.25))
        );
        assert_eq!((cell.of_ipi, cell.ideal_of_ipi), (Some(5.0 / 3.0), Some(2.0)));
        assert_eq!((cell.cpu_time_per_op_ns, cell.noise), (4000.0, None));
        // Two loops in 3333 ns of the limit plus the unavoidable wait of 500 ns.
        let limit = 2e9 / (2e9 / 6e5 + 500.0);
        let share = cell.of_waited_for.unwrap();
        assert!((share - 5e5 / limit).abs() < 1e-6, "{share}");
    }

    #[test]
    fn serialised_broadcasts_limit_many_threads() {
        let model = Model::find("milan-72").unwrap();
        let interval = model.ns(model.costs.broadcast_interval);
        let limit = waited_for(&model, 16, 5e6).unwrap();
        assert!((limit - 1e9 / interval).abs() < 1.0, "{limit}");
        let without = model.with("broadcast.available", 0.0).unwrap();
        assert_eq!(waited_for(&without, 16, 5e6), None);
    }

    #[test]
    fn agreeing_runs_give_a_small_error() {
        let (plan, outcomes) = runs(
            &["ipi", "ipi", "ipi", "adaptive", "adaptive", "adaptive"],
            &[100.0, 101.0, 99.0, 110.0, 112.0, 108.0],
        );
        let (cells, _) = cells(&[plan], &outcomes);
        let noise = cells[0].noise.unwrap();
        assert!((0.005..0.05).contains(&noise), "{noise}");
    }
}
