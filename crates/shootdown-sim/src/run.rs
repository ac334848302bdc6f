//! One run: a workload, on a machine model, under a design, with a thread count and a seed.

use std::sync::Arc;

/// What to run.
#[derive(Debug, Clone)]
pub struct RunSpec {
    /// Name of the workload (`tlb_flush2`, `tlb_shared`).
    pub workload: String,
    /// Machine model.
    pub machine: Arc<crate::model::Model>,
    /// Name of the design preset (`ideal`, `ipi`, `broadcast`, `adaptive`, `none`).
    pub design: String,
    /// Simulated threads, one per CPU, from 1.
    pub threads: usize,
    /// Seed: the same seed gives the same run in everything but host time.
    pub seed: u64,
    /// Virtual time measured, in milliseconds, after the warm-up; `None` = the workload's default.
    pub virtual_ms: Option<f64>,
    /// Whether each `madvise` drains the CPU's LRU batch under the LRU lock (E2's "unmodified" kernels do).
    pub lru_drain: bool,
}

/// What came out. Everything but `host_seconds` is a pure function of the [`RunSpec`].
#[derive(Debug, Clone, PartialEq)]
pub struct RunResult {
    /// Workload operations in the measured window.
    pub ops: u64,
    /// Length of the measured window, virtual nanoseconds.
    pub virtual_ns: f64,
    /// Operations per virtual second, all threads together.
    pub ops_per_s: f64,
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
    /// The first violation, told as a story of several lines.
    pub story: Option<String>,
    /// Charged operations simulated, warm-up included.
    pub events: u64,
    /// Where CPU time went in the measured window: (category, share of all CPU time of the threads' CPUs).
    pub time_shares: Vec<(&'static str, f64)>,
    /// Host seconds the run took (not deterministic).
    pub host_seconds: f64,
}

/// Checks a specification without running it.
///
/// # Errors
/// One line naming what is wrong and the remedy.
pub fn validate(_spec: &RunSpec) -> Result<(), String> {
    todo!()
}

/// Runs it. `progress` is called now and then with the fraction done (0 to 1); returning `false` abandons the run.
///
/// # Errors
/// As [`validate`]; also when abandoned.
pub fn run(_spec: &RunSpec, _progress: &mut dyn FnMut(f64) -> bool) -> Result<RunResult, String> {
    todo!()
}
