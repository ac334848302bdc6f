//! The results of a comparison: one row per thread count and design, medians over the runs.

use shootdown_sim::run::{Caveat, Latency, PATIENT_THREADS, RunResult, RunSpec};

use crate::catalog::{CONTROL_DESIGN, IDEAL_DESIGN};
use crate::print::number::median;
use crate::published::{self, Published};
use crate::runs::plan::Plan;
use crate::runs::queue::Outcome;

/// Half-width of a confidence interval from which it is shown with every rate of a table.
const SHOWN: f64 = 0.1;

/// One design at one thread count, over the runs that did not fail; numbers are NaN when all failed.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// Threads.
    pub threads: usize,
    /// Design.
    pub design: &'static str,
    /// Runs that failed.
    pub failed: usize,
    /// Operations per second, median.
    pub ops_per_s: f64,
    /// (Largest - smallest) / median of the throughput.
    pub spread: f64,
    /// Half the width of the rate's 95 % confidence interval, as a share of it: the widest of the runs. `None` if it is
    /// not known.
    pub half_width: Option<f64>,
    /// Why the throughput is not meaningful, in the worst run.
    pub caveat: Option<Caveat>,
    /// Operations in the measured window, of the run with fewest.
    pub ops: u64,
    /// Published operations per second.
    pub published: Option<f64>,
    /// Throughput over that of `ideal` at the same thread count.
    pub of_ideal: Option<f64>,
    /// Interrupts sent per operation, median.
    pub ipis_per_op: f64,
    /// Interrupts taken per operation, median.
    pub interrupts_per_op: f64,
    /// Share of CPU time in invalidation, median.
    pub flush_share: f64,
    /// Largest less smallest of these shares.
    pub flush_spread: f64,
    /// Stale translations, all runs.
    pub stale: u64,
    /// CPU time by category, in the run of median throughput.
    pub time_shares: Vec<(&'static str, f64)>,
    /// Distributions of latencies, in the run of median throughput.
    pub latencies: Vec<Latency>,
}

impl Row {
    /// Whether to show the confidence interval: it is wide, or belongs to a run that measures until it is narrow.
    pub fn is_uncertain(&self) -> bool {
        self.caveat.is_some() || self.threads > PATIENT_THREADS || self.half_width.is_some_and(|half| half > SHOWN)
    }

    /// CPU time of one operation, waiting included, ns.
    pub fn cpu_ns_per_op(&self) -> f64 {
        self.threads as f64 * 1e9 / self.ops_per_s
    }

    /// CPU time in invalidation per operation, of requesters and interrupted CPUs together, ns.
    pub fn flush_cpu_ns_per_op(&self) -> f64 {
        self.flush_share * self.cpu_ns_per_op()
    }

    /// How long flushes that reached other CPUs took; `None` where none did.
    pub fn shootdown(&self) -> Option<&Latency> {
        shootdown(&self.latencies)
    }

    /// Relative error against the published rate.
    pub fn error(&self) -> Option<f64> {
        self.published
            .map(|published| relative_error(self.ops_per_s, published))
    }
}

/// Why a rate is not meaningful.
pub fn caveat_in_words(caveat: Caveat) -> &'static str {
    match caveat {
        Caveat::FewOperations => "too few operations",
        Caveat::NotWarm => "the warm-up was cut short",
        Caveat::Wide => "too wide an interval",
    }
}

/// The distribution of flushes that reach other CPUs, among others.
pub fn shootdown(latencies: &[Latency]) -> Option<&Latency> {
    latencies.iter().find(|latency| latency.name == "shootdown")
}

/// (simulated - published) / published.
pub fn relative_error(simulated: f64, published: f64) -> f64 {
    (simulated - published) / published
}

/// All results of a comparison.
#[derive(Debug, Clone)]
pub struct Comparison {
    /// The plan.
    pub plan: Plan,
    /// Each run that ended, in the order of [`Plan::specs`].
    pub runs: Vec<(RunSpec, Outcome)>,
    /// The control run, when there was one.
    pub control: Option<(RunSpec, Outcome)>,
    /// Runs that did not end, because of Ctrl-C.
    pub missing: usize,
    /// One row per thread count and design whose runs all ended.
    pub rows: Vec<Row>,
    /// The published measurements of this workload on this machine, if its topology is unchanged.
    pub published: Vec<Published>,
    /// Host seconds from start to end.
    pub wall_seconds: f64,
}

impl Comparison {
    /// Gathers the results of `plan`, given in the order of [`Plan::specs`]; none of a run that did not end.
    pub fn new(
        plan: Plan,
        outcomes: impl IntoIterator<Item: Into<Option<Outcome>>>,
        control: Option<(RunSpec, Outcome)>,
        wall_seconds: f64,
    ) -> Self {
        let outcomes: Vec<Option<Outcome>> = outcomes.into_iter().map(Into::into).collect();
        let published: Vec<Published> = published::rows()
            .into_iter()
            .filter(|row| {
                !plan.follows()
                    && plan.target.as_measured
                    && row.workload == plan.workload.name
                    && row.machine == plan.target.machine.name
                    && row.lru_drain == plan.lru_drain
                    && row.is_of_workload_with(&plan.target.parameters)
                    && row.metric == published::Metric::OpsPerS
            })
            .collect();
        let missing = outcomes.iter().filter(|outcome| outcome.is_none()).count();
        let ended = plan.specs().into_iter().zip(outcomes);
        let runs: Vec<(RunSpec, Outcome)> = ended.filter_map(|(spec, outcome)| Some((spec, outcome?))).collect();
        let mut rows = Vec::new();
        for &threads in &plan.threads {
            for design in &plan.designs {
                let of = |name: &str| -> Vec<&RunResult> {
                    runs.iter()
                        .filter(|(spec, _)| spec.threads == threads && spec.design == name)
                        .filter_map(|(_, outcome)| outcome.as_ref().ok())
                        .collect()
                };
                let ended = runs
                    .iter()
                    .filter(|(spec, _)| spec.threads == threads && spec.design == design.name);
                if ended.count() < plan.settings.runs as usize {
                    continue;
                }
                let (own, ideal) = (of(design.name), of(IDEAL_DESIGN));
                let ideal = (!ideal.is_empty()).then(|| median(ideal.iter().map(|run| run.ops_per_s)));
                rows.push(Row {
                    failed: plan.settings.runs as usize - own.len(),
                    published: published::lookup(&published, design.name, threads),
                    ..row(threads, design.name, &own, ideal)
                });
            }
        }
        Self {
            plan,
            runs,
            control,
            missing,
            rows,
            published,
            wall_seconds,
        }
    }

    /// Stale translations in sound designs, the control's own excepted.
    pub fn stale(&self) -> u64 {
        self.rows
            .iter()
            .filter(|row| row.design != CONTROL_DESIGN)
            .map(|row| row.stale)
            .sum()
    }

    /// The runs that failed, the control included, each with the reason.
    pub fn failures(&self) -> Vec<(&RunSpec, &str)> {
        let runs = self.runs.iter().chain(&self.control);
        runs.filter_map(|(spec, outcome)| Some((spec, outcome.as_ref().err()?.as_str())))
            .collect()
    }

    /// The results of the runs that did not fail, without the control.
    pub fn results(&self) -> impl Iterator<Item = (&RunSpec, &RunResult)> {
        self.runs
            .iter()
            .filter_map(|(spec, outcome)| Some((spec, outcome.as_ref().ok()?)))
    }

    /// The row of a design at a thread count.
    pub fn row(&self, design: &str, threads: usize) -> Option<&Row> {
        self.rows
            .iter()
            .find(|row| row.design == design && row.threads == threads)
    }
}

/// Number of samples from which a distribution is drawn, and a percentile given.
pub const FEWEST: u64 = 20;

/// The 99th percentile, ns; of too few samples it would be their longest.
pub fn p99(latency: &Latency) -> f64 {
    if latency.count < FEWEST {
        f64::NAN
    } else {
        latency.p99_ns
    }
}

fn row(threads: usize, design: &'static str, runs: &[&RunResult], ideal: Option<f64>) -> Row {
    let of = |field: fn(&RunResult) -> f64| match runs {
        [] => f64::NAN,
        runs => median(runs.iter().map(|run| field(run))),
    };
    let ops_per_s = of(|run| run.ops_per_s);
    let range = |field: fn(&RunResult) -> f64| {
        let values = || runs.iter().map(|run| field(run));
        (values().fold(f64::NEG_INFINITY, f64::max) - values().fold(f64::INFINITY, f64::min)).max(0.0)
    };
    let middle = runs.iter().min_by(|a, b| {
        (a.ops_per_s - ops_per_s)
            .abs()
            .total_cmp(&(b.ops_per_s - ops_per_s).abs())
    });
    Row {
        threads,
        design,
        failed: 0,
        ops_per_s,
        spread: if ops_per_s > 0.0 {
            range(|run| run.ops_per_s) / ops_per_s
        } else {
            0.0
        },
        half_width: runs.iter().filter_map(|run| run.half_width).reduce(f64::max),
        caveat: runs.iter().find_map(|run| run.caveat()),
        ops: runs.iter().map(|run| run.ops).min().unwrap_or(0),
        published: None,
        of_ideal: ideal.filter(|&ideal| ideal > 0.0).map(|ideal| ops_per_s / ideal),
        ipis_per_op: of(|run| run.ipis_per_op),
        interrupts_per_op: of(|run| run.interrupts_per_op),
        flush_share: of(|run| run.flush_share),
        flush_spread: range(|run| run.flush_share),
        stale: runs.iter().map(|run| run.stale).sum(),
        time_shares: middle.map(|run| run.time_shares.clone()).unwrap_or_default(),
        latencies: middle.map(|run| run.latencies.clone()).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runs::fake;
    use crate::runs::target::Target;

    #[test]
    fn rows_take_medians_over_the_seeds() {
        let mut plan = fake::plan(&["ideal", "ipi"], &[1, 16]);
        plan.settings.runs = 3;
        let comparison = fake::comparison(plan);
        let row = comparison.row("ipi", 16).unwrap();
        let mut rates: Vec<f64> = comparison
            .runs
            .iter()
            .filter(|(s, _)| s.design == "ipi" && s.threads == 16)
            .map(|(_, r)| r.as_ref().unwrap().ops_per_s)
            .collect();
        rates.sort_by(f64::total_cmp);
        assert_eq!(rates.len(), 3);
        assert_eq!(row.ops_per_s, rates[1]);
        assert!((row.spread - (rates[2] - rates[0]) / rates[1]).abs() < 1e-12);
        assert!(row.of_ideal.unwrap() < 1.0);
        assert_eq!(comparison.row("ideal", 16).unwrap().of_ideal, Some(1.0));
    }

    #[test]
    fn published_rates_need_the_same_machine_workload_threads_and_drain() {
        let comparison = fake::comparison(fake::plan(&["ipi"], &[1, 2]));
        assert_eq!(comparison.row("ipi", 1).unwrap().published, Some(315_000.0));
        assert_eq!(comparison.row("ipi", 2).unwrap().published, None);
        let mut plan = fake::plan(&["ipi"], &[1]);
        plan.lru_drain = true;
        assert_eq!(fake::comparison(plan).row("ipi", 1).unwrap().published, None);
    }

    #[test]
    fn published_rates_need_the_same_workload_parameters() {
        let published = |set: &[&str]| {
            let mut plan = fake::plan(&["ipi-trim"], &[2]);
            let set: Vec<String> = set.iter().map(ToString::to_string).collect();
            plan.target = Target::new("zen5-vm-2", None, &set).unwrap();
            fake::comparison(plan).row("ipi-trim", 2).unwrap().published
        };
        let threads_each = |each: u32| published(&[&format!("workload.tlb_flush2.process_threads={each}")]);
        assert_eq!(published(&[]), Some(159e3));
        assert_eq!([0, 1, 2].map(threads_each), [Some(159e3), Some(591e3), None]);
        assert_eq!(published(&["costs.invlpg=200"]), Some(159e3), "what if");
    }

    #[test]
    fn medians_exclude_failed_runs() {
        let mut plan = fake::plan(&["ideal", "ipi"], &[4]);
        plan.settings.runs = 2;
        let mut outcomes: Vec<_> = plan.specs().iter().map(|spec| Ok(fake::result(spec))).collect();
        outcomes[1] = Err("hangs".to_string());
        outcomes[2] = Err("hangs".to_string());
        outcomes[3] = Err("hangs".to_string());
        let comparison = Comparison::new(plan, outcomes, None, 1.0);
        let (ideal, ipi) = (comparison.row("ideal", 4).unwrap(), comparison.row("ipi", 4).unwrap());
        assert_eq!((ideal.failed, ipi.failed), (1, 2));
        assert_eq!(ideal.ops_per_s, comparison.runs[0].1.as_ref().unwrap().ops_per_s);
        assert!(ipi.ops_per_s.is_nan() && ipi.flush_share.is_nan());
        assert_eq!(comparison.failures().len(), 3);
    }

    #[test]
    fn resized_machine_has_no_published_rate() {
        let mut plan = fake::plan(&["ipi"], &[1]);
        plan.target = Target::new("milan-72", Some(1000), &[]).unwrap();
        assert_eq!(fake::comparison(plan).row("ipi", 1).unwrap().published, None);
    }

    #[test]
    fn stale_translations_of_the_control_are_not_counted() {
        let comparison = fake::comparison(fake::plan(&["ipi", "none"], &[4]));
        assert!(comparison.row("none", 4).unwrap().stale > 0);
        assert_eq!(comparison.stale(), 0);
    }
}
