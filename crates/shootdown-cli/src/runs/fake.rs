//! A stand-in for the simulator in tests: made-up results of the right shape, at once and without randomness.

use std::sync::Mutex;

use shootdown_sim::run::{Latency, RunResult, RunSpec};

use crate::catalog;
use crate::comparison::summary::Comparison;
use crate::runs::plan::{Plan, Settings};
use crate::runs::queue::{Outcome, Runner};
use crate::runs::target::Target;

/// A runner with made-up results.
#[derive(Default)]
pub struct Fake<'a> {
    /// Thread counts of the runs, in the order they were started.
    pub started: Mutex<Vec<usize>>,
    /// Thread counts of the runs that were not abandoned.
    pub finished: Mutex<Vec<usize>>,
    /// Called in the middle of each run.
    pub on_progress: Option<Box<dyn Fn() + Sync + 'a>>,
    /// Fails the runs with this many threads.
    pub fail_at: Option<usize>,
    /// Panics in the runs with this many threads.
    pub panic_at: Option<usize>,
    /// Lets this design have a stale translation.
    pub stale_in: Option<&'static str>,
}

impl Runner for Fake<'_> {
    fn run(&self, spec: &RunSpec, progress: &mut dyn FnMut(f64) -> bool) -> Result<RunResult, String> {
        self.started.lock().unwrap().push(spec.threads);
        if self.fail_at == Some(spec.threads) {
            return Err("out of frames".to_string());
        }
        assert!(self.panic_at != Some(spec.threads), "on purpose");
        if let Some(hook) = &self.on_progress {
            hook();
        }
        if !progress(0.5) {
            return Err("abandoned".to_string());
        }
        self.finished.lock().unwrap().push(spec.threads);
        let mut result = result(spec);
        result.stale += u64::from(self.stale_in == Some(&spec.design));
        Ok(result)
    }
}

/// The result that [`Fake`] makes up for `spec`.
pub fn result(spec: &RunSpec) -> RunResult {
    let threads = spec.threads as f64;
    let (single, contention, sent) = match spec.design.as_str() {
        "ipi" => (315.0, 0.30, 1.0),
        "broadcast" => (304.0, 0.13, 0.03),
        "adaptive" => (312.0, 0.12, 0.05),
        _ => (320.0, 0.04, 0.0),
    };
    let rate = single * threads / (1.0 + contention * threads) * (1.0 + (spec.seed * 7 % 5) as f64 / 100.0);
    let flush = (sent * 0.4) * (1.0 - 1.0 / threads);
    let unsound = spec.design == "none";
    RunResult {
        ops: (rate * 10.0) as u64,
        virtual_ns: 1e7,
        ops_per_s: rate * 1e3,
        half_width: Some(0.01),
        warm: true,
        ipis_per_op: sent * (threads - 1.0).min(6.0),
        interrupts_per_op: sent * (threads - 1.0).min(5.0),
        flush_share: flush,
        stale: u64::from(unsound),
        accesses_checked: 1000 * spec.threads as u64,
        caught_after: unsound.then_some(17),
        diagnosis: unsound
            .then(|| "CPU 1 fills page 7 -> frame 12\nCPU 0 unmaps page 7\nCPU 1 reads page 7 <stale>".to_string()),
        tables_freed_per_s: 0.0,
        events: 40_000 * spec.threads as u64,
        time_shares: vec![
            ("workload", 0.6 - flush),
            ("lock wait", 0.3),
            ("invalidation", flush),
            ("idle", 0.1),
        ],
        latencies: vec![
            latency("flush", 1500.0, threads),
            latency("shootdown", 1800.0, threads),
            latency("interrupt disturbance", 700.0, threads),
        ],
        host_seconds: 0.25,
    }
}

/// A distribution around `middle` nanoseconds whose tail grows with `threads`.
fn latency(name: &'static str, middle: f64, threads: f64) -> Latency {
    let buckets: Vec<(f64, u64)> = (0..12)
        .map(|step| {
            (
                middle / 4.0 * 2_f64.powf(f64::from(step) / 2.0),
                [1, 4, 20, 80, 200, 160, 60, 25, 9, 4, 2, 1][step as usize],
            )
        })
        .collect();
    Latency {
        name,
        count: buckets.iter().map(|bucket| bucket.1).sum(),
        p50_ns: middle,
        p99_ns: middle * (2.0 + threads.log2() / 4.0),
        max_ns: middle * (6.0 + threads.log2()),
        buckets,
    }
}

/// A plan on `milan-72`, seed 1, one run.
pub fn plan(designs: &[&str], threads: &[usize]) -> Plan {
    Plan {
        workload: catalog::workload("tlb_flush2").unwrap().into(),
        target: Target::new("milan-72", None, &[]).unwrap(),
        followers: Vec::new(),
        designs: designs.iter().map(|name| catalog::design(name).unwrap()).collect(),
        threads: threads.to_vec(),
        settings: Settings {
            seed: 1,
            runs: 1,
            jobs: 1,
            virtual_ms: None,
        },
        lru_drain: false,
        metric: None,
        verbose: false,
    }
}

/// The comparison of `plan`, with its control run.
pub fn comparison(plan: Plan) -> Comparison {
    let outcomes: Vec<Outcome> = plan.specs().iter().map(|spec| Ok(result(spec))).collect();
    let control = plan.control();
    let caught = result(&control);
    Comparison::new(plan, outcomes, Some((control, Ok(caught))), 1.5)
}
