//! The specification of a run, and its checks.

use crate::design::find_design;
use crate::model::Model;
use crate::workload::{Parameters, Workload};
use std::sync::Arc;

/// The specification of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct RunSpec {
    /// Name of the workload (see [`Workload::ALL`]).
    pub workload: String,
    /// Machine model.
    pub machine: Arc<Model>,
    /// Name of the design (see [`designs`](crate::run::designs)).
    pub design: String,
    /// Simulated threads, from 1; one per CPU, up to [`MOST_PER_CPU`] for workloads that allow it.
    pub threads: usize,
    /// Seed: the same seed gives the same run in everything but host time.
    pub seed: u64,
    /// Virtual time measured, in milliseconds, after the warm-up; `None` = [`DEFAULT_VIRTUAL_MS`].
    pub virtual_ms: Option<f64>,
    /// Whether each `madvise` drains the CPU's LRU batch under the LRU lock (E2's "unmodified" kernels do).
    pub lru_drain: bool,
    /// Numbers of the workload that differ from their defaults, and settings of the design that differ from the
    /// preset's.
    pub parameters: Parameters,
}

/// Virtual time measured by default, ms. Beyond 256 threads the window instead lasts until there are as many operations
/// as threads and their rate is known to within [`PRECISE`](crate::run::PRECISE), limited by
/// [`WINDOW_EVENTS_PER_THREAD`](crate::run::WINDOW_EVENTS_PER_THREAD).
pub const DEFAULT_VIRTUAL_MS: f64 = 30.0;

/// Virtual time before the measurement, ms: enough for sampled promotion, which samples once in about 2 ms per CPU.
/// Beyond 64 threads of a process it is multiplied by the number of 64s in them, since all of them map their region at
/// the start, one by one. Beyond 256 threads it lasts until there are as many operations as threads.
/// [`WARM_UP_EVENTS`](crate::run::WARM_UP_EVENTS) ends it early.
pub const WARM_UP_MS: f64 = 6.0;

/// The same where no process runs on two CPUs, ms: there is nothing to promote, and no thread waits for another to map
/// its region. Hundreds of loops of `tlb_flush3` on each of 192 CPUs, whose rate is 1 % too low after 2 ms.
pub const WARM_UP_APART_MS: f64 = 3.0;

/// Most threads per CPU, where there may be more than one: each needs a stack on the host.
pub const MOST_PER_CPU: usize = 64;

/// Shortest window that is accepted, ms: a few operations of one thread.
pub const LEAST_VIRTUAL_MS: f64 = 0.05;

/// Checks a specification without running it.
///
/// # Errors
/// One line with the error and the remedy.
pub fn validate(spec: &RunSpec) -> Result<(), String> {
    let Some(workload) = Workload::named(&spec.workload) else {
        let known: Vec<_> = Workload::ALL.iter().map(|(name, ..)| *name).collect();
        return Err(format!(
            "workload `{}` is not known; use one of: {}",
            spec.workload,
            known.join(", ")
        ));
    };
    spec.parameters.check_for(workload)?;
    spec.machine.check_vcpus()?;
    let entry = find_design(&spec.design)?;
    let cpus = spec.machine.topology.cpus();
    entry.on(&spec.machine, spec.parameters.design())?;
    if spec.threads == 0 {
        return Err("--threads 0: give at least 1 thread".into());
    }
    let oversubscribes = Workload::named(&spec.workload).is_some_and(Workload::oversubscribes);
    if oversubscribes && spec.threads > cpus * MOST_PER_CPU {
        return Err(format!(
            "--threads {}: {} has {cpus} CPUs; give at most {MOST_PER_CPU} threads per CPU, {}",
            spec.threads,
            spec.machine.name,
            cpus * MOST_PER_CPU
        ));
    }
    if !oversubscribes && spec.threads > cpus {
        return Err(format!(
            "--threads {}: {} has {cpus} CPUs; give at most {cpus}, or scale the machine with --cpus",
            spec.threads, spec.machine.name
        ));
    }
    if spec
        .virtual_ms
        .is_some_and(|ms| !(LEAST_VIRTUAL_MS..=1e6).contains(&ms))
    {
        return Err(format!(
            "--virtual-ms: expected milliseconds from {LEAST_VIRTUAL_MS} to 1000000"
        ));
    }
    Ok(())
}
