//! The runs that published rows need, each once, and the numbers of those runs that appear beside the rows.

use std::collections::HashMap;

use shootdown_sim::run::{Latency, PATIENT_THREADS, RunResult, RunSpec};

use super::{Line, VIRTUAL_MS};
use crate::commands::evidence::interpolate;
use crate::comparison::interval::{self, Figure, Interval, Place};
use crate::failure::Failure;
use crate::print::number::median;
use crate::published::{Metric, Published};
use crate::runs::plan::Settings;
use crate::runs::queue::Outcome;

/// The simulated number beside a published one; `over` is the result that a ratio is over. None when the run has no
/// such number.
pub(super) fn measured(row: &Published, result: &RunResult, over: Option<&RunResult>) -> Option<f64> {
    let number = match row.metric {
        Metric::OpsPerS => result.ops_per_s,
        Metric::NsPerOp => 1e9 / result.ops_per_s,
        Metric::InterruptsPerOp => result.interrupts_per_op,
        Metric::IdleShare => {
            let idle = |(name, _): &&(&str, f64)| *name == "idle";
            result.time_shares.iter().filter(idle).map(|(_, share)| share).sum()
        }
        Metric::FlushShare => result.flush_share,
        Metric::Seconds => row.operations? / result.ops_per_s,
        Metric::TimeRatio => over?.ops_per_s / result.ops_per_s,
        Metric::RateRatio => result.ops_per_s / over?.ops_per_s,
        Metric::P50Ns => latency(row, result)?.p50_ns,
        Metric::P99Ns => latency(row, result)?.p99_ns,
    };
    number.is_finite().then_some(number)
}

/// The distribution that a row names.
fn latency<'a>(row: &Published, result: &'a RunResult) -> Option<&'a Latency> {
    let name = row.distribution.as_deref()?;
    result.latencies.iter().find(|latency| latency.name == name)
}

/// The runs that rows need, each once: several rows may be numbers of one run, and ratios share their denominators.
#[derive(Default)]
pub(super) struct Runs {
    pub(super) specs: Vec<RunSpec>,
    /// Where the runs of a measurement begin in `specs`.
    first: HashMap<String, usize>,
    /// Runs of each, with seeds in a row.
    runs: usize,
}

impl Runs {
    pub(super) fn new<'a>(rows: impl Iterator<Item = &'a Published>, settings: &Settings) -> Result<Self, Failure> {
        let mut plan = Runs {
            runs: settings.runs as usize,
            ..Runs::default()
        };
        for row in rows {
            plan.add(row, settings)?;
            if let Some(over) = row.reference() {
                plan.add(&over, settings)?;
            }
        }
        Ok(plan)
    }

    fn add(&mut self, row: &Published, settings: &Settings) -> Result<(), Failure> {
        let key = key(row);
        if self.first.contains_key(&key) {
            return Ok(());
        }
        self.first.insert(key, self.specs.len());
        let mut first = row.spec(settings)?;
        let window = (row.threads <= PATIENT_THREADS).then_some(VIRTUAL_MS);
        first.virtual_ms = first.virtual_ms.or(window);
        self.specs.extend((0..settings.runs).map(|run| RunSpec {
            seed: settings.seed.wrapping_add(run),
            ..first.clone()
        }));
        Ok(())
    }

    /// The places of `specs` among the runs; those that no row needs are added.
    pub(super) fn places(&mut self, specs: Vec<RunSpec>) -> Vec<usize> {
        let place = |spec: RunSpec| {
            let known = self.specs.iter().position(|known| *known == spec);
            known.unwrap_or_else(|| {
                self.specs.push(spec);
                self.specs.len() - 1
            })
        };
        specs.into_iter().map(place).collect()
    }

    /// Whether every run that `row` needs has ended.
    pub(super) fn ended(&self, row: &Published, outcomes: &[Option<Outcome>]) -> bool {
        let all = |row: &Published| self.of(row, outcomes).iter().all(Option::is_some);
        all(row) && row.reference().is_none_or(|over| all(&over))
    }

    /// The place of a row's run in the table of intervals.
    fn place<'a>(&'a self, row: &'a Published) -> Option<Place<'a>> {
        let spec = self.specs.get(*self.first.get(&key(row))?)?;
        Some(Place {
            machine: &spec.machine,
            workload: &spec.workload,
            design: &row.design,
            threads: row.threads,
            lru_drain: row.lru_drain,
        })
    }

    /// The 90 % interval of the simulated number of `row`, if it has one.
    fn interval(&self, row: &Published) -> Option<Interval> {
        let own = self.place(row).filter(Place::has_intervals)?;
        let ratio = || {
            let over = row.reference()?;
            let of_designs = interval::of_ratio(own, self.place(&over)?)?;
            Some(of_designs.with_off(Figure::Ratio, figure(row).off()))
        };
        match row.metric {
            Metric::OpsPerS => interval::of_rate(own),
            Metric::NsPerOp | Metric::Seconds => interval::of_rate(own).map(Interval::inverse),
            Metric::RateRatio => ratio(),
            Metric::TimeRatio => ratio().map(Interval::inverse),
            _ => Some(interval::of_kind(figure(row))),
        }
    }

    /// The outcomes of the runs of `row`, by seed; empty for a row that the plan was not made for.
    fn of<'a, T>(&self, row: &Published, outcomes: &'a [T]) -> &'a [T] {
        let range = |&first: &usize| outcomes.get(first..first + self.runs);
        self.first.get(&key(row)).and_then(range).unwrap_or_default()
    }
}

/// The properties of a row on which its interval depends.
pub(super) fn figure(row: &Published) -> Figure {
    match row.metric {
        metric if metric.is_rate() => Figure::rate_on(&row.machine),
        // Errors of two designs at one number of threads cancel, those at two numbers do not.
        Metric::RateRatio | Metric::TimeRatio if row.reference().is_some_and(|over| over.threads != row.threads) => {
            Figure::rate_on(&row.machine)
        }
        Metric::RateRatio | Metric::TimeRatio => Figure::Ratio,
        Metric::InterruptsPerOp => Figure::Interrupts,
        _ => Figure::Share,
    }
}

/// The key that identifies the run of a row.
fn key(row: &Published) -> String {
    format!(
        "{} {} {:?} {:?} {} {} {} {:?}",
        row.workload, row.machine, row.kernel, row.set, row.design, row.threads, row.lru_drain, row.virtual_ms
    )
}

pub(super) fn lines(rows: &[Published], plan: &Runs, outcomes: &[Outcome]) -> Vec<Line> {
    rows.iter()
        .map(|row| {
            let reference = row.reference();
            let over = reference.as_ref().map_or(&[][..], |over| plan.of(over, outcomes));
            let results = plan.of(row, outcomes).iter().enumerate();
            let numbers: Vec<f64> = results
                .filter_map(|(run, outcome)| {
                    let over = over.get(run).and_then(|outcome| outcome.as_ref().ok());
                    measured(row, outcome.as_ref().ok()?, over)
                })
                .collect();
            Line {
                published: row.clone(),
                simulated: (!numbers.is_empty()).then(|| median(numbers)),
                interval: plan.interval(row),
                interpolated: interpolate::predict(rows, row),
            }
        })
        .collect()
}
