//! The result of a run, and whether its rate is a measurement.

use crate::model::Model;
use crate::os::{Latencies, Recorder};
use crate::precision::UNCERTAIN;

/// The result. Everything but `host_seconds` is a pure function of the [`RunSpec`](crate::run::RunSpec).
#[derive(Debug, Clone, PartialEq)]
pub struct RunResult {
    /// Workload operations in the measured window, of all simulated machines.
    pub ops: u64,
    /// Length of the measured window, virtual nanoseconds.
    pub virtual_ns: f64,
    /// Operations per virtual second, all threads of one machine together: the mean of the simulated machines.
    pub ops_per_s: f64,
    /// Half the width of the 95 % confidence interval of `ops_per_s`, as a share of it, by batch means; `None` where
    /// the window was too short.
    pub half_width: Option<f64>,
    /// Whether the warm-up saw as many operations as there are threads, where there are more than 256; else true.
    pub warm: bool,
    /// Interrupts sent per operation.
    pub ipis_per_op: f64,
    /// Interrupts taken per operation (several requests can share one).
    pub interrupts_per_op: f64,
    /// Share of CPU time spent in invalidation, requesters and targets, 0 to 1.
    pub flush_share: f64,
    /// Stale translations and other violations the oracle found.
    pub stale: u64,
    /// Accesses the oracle checked, warm-up included.
    pub accesses_checked: u64,
    /// Accesses checked before the first violation.
    pub caught_after: Option<u64>,
    /// The first violation with its history, several lines.
    pub diagnosis: Option<String>,
    /// Table pages freed per virtual second by a workload that frees them directly (`gup`).
    pub tables_freed_per_s: f64,
    /// Charged operations simulated, warm-up included.
    pub events: u64,
    /// Where CPU time went in the measured window: (category, share of all CPU time of the threads' CPUs).
    pub time_shares: Vec<(&'static str, f64)>,
    /// Latency distributions of the measured window; those without samples are left out.
    pub latencies: Vec<Latency>,
    /// Host seconds the run took (not deterministic).
    pub host_seconds: f64,
}

/// A latency distribution, in virtual nanoseconds.
#[derive(Debug, Clone, PartialEq)]
pub struct Latency {
    /// The distribution: "flush", "preemption off", "interrupt disturbance" and so on.
    pub name: &'static str,
    /// Samples.
    pub count: u64,
    /// Half of the samples are not above it.
    pub p50_ns: f64,
    /// 99 of 100 samples are not above it.
    pub p99_ns: f64,
    /// The largest.
    pub max_ns: f64,
    /// Upper edge in ns, and the samples up to it and above the edge before.
    pub buckets: Vec<(f64, u64)>,
}

impl RunResult {
    /// Why `ops_per_s` is not meaningful, if it is not.
    pub fn caveat(&self) -> Option<Caveat> {
        if self.ops < FEWEST_OPS {
            Some(Caveat::FewOperations)
        } else if !self.warm {
            Some(Caveat::NotWarm)
        } else if self.half_width.is_some_and(|half| half > UNCERTAIN) {
            Some(Caveat::Wide)
        } else {
            None
        }
    }
}

/// Operations below which a rate is not meaningful.
const FEWEST_OPS: u64 = 10;

/// Why a rate is not meaningful.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Caveat {
    /// The window had almost no operations.
    FewOperations,
    /// The warm-up was cut short: the measurement covers the start of the run.
    NotWarm,
    /// The confidence interval is too wide.
    Wide,
}

pub(crate) fn latencies(measured: &Latencies, model: &Model) -> Vec<Latency> {
    let summed_up = |(name, recorder): (&'static str, &Recorder)| {
        let distribution = recorder.distribution()?;
        Some(Latency {
            name,
            count: distribution.count,
            p50_ns: model.ns(distribution.p50),
            p99_ns: model.ns(distribution.p99),
            max_ns: model.ns(distribution.max),
            buckets: distribution
                .buckets
                .iter()
                .map(|&(edge, count)| (model.ns(edge), count))
                .collect(),
        })
    };
    measured.all().into_iter().filter_map(summed_up).collect()
}
