//! Pages per call and calls per flush: workloads that batch pages or calls make correspondingly fewer flushes.

use std::sync::Arc;

use shootdown_sim::model::Model;
use shootdown_sim::run::{Parameters, RunSpec, explain};

/// Threads of each run: one requests, or all do, and the others are interrupted.
const THREADS: usize = 4;

/// The result of one run: pages dropped per flush, and interrupts per flush.
struct Batched {
    pages_per_flush: f64,
    interrupts_per_flush: f64,
}

fn run(workload: &str, pages_per_call: u32, calls_per_flush: u32) -> Batched {
    let mut parameters = Parameters::default();
    for (name, value) in [("pages_per_call", pages_per_call), ("calls_per_flush", calls_per_flush)] {
        parameters = parameters
            .with(&format!("workload.{workload}.{name}"), f64::from(value))
            .unwrap();
    }
    let spec = RunSpec {
        workload: workload.to_string(),
        machine: Arc::new(Model::find("milan-72").unwrap()),
        design: "ipi".to_string(),
        threads: THREADS,
        seed: 1,
        virtual_ms: Some(4.0),
        lru_drain: false,
        parameters,
    };
    let (result, explanation) = explain(&spec, &mut |_| true).unwrap();
    assert_eq!(result.stale, 0, "{workload}");
    assert!(result.ops > 0, "{workload}");
    let flushes: u64 = explanation
        .decision_log
        .requests
        .iter()
        .map(|requests| requests.count)
        .sum();
    // An operation is a page in tlb_flush2, and a call in the others.
    let pages_per_op = if workload == "tlb_flush2" { 1 } else { pages_per_call };
    Batched {
        pages_per_flush: result.ops as f64 * f64::from(pages_per_op) / flushes as f64,
        interrupts_per_flush: result.ipis_per_op * result.ops as f64 / flushes as f64,
    }
}

/// A flush covers the pages of all its calls, and interrupts as often as one of a single page does.
#[test]
fn flushes_fall_with_pages_per_call_and_calls_per_flush() {
    for workload in ["tlb_flush2", "madvise_spin", "mmap_churn"] {
        let one = run(workload, 1, 1);
        for (pages, calls) in [(1, 1), (4, 1), (1, 4), (4, 4), (2, 8)] {
            let found = run(workload, pages, calls);
            let expected = f64::from(pages * calls);
            // tlb_flush2 also flushes when it unmaps its 256 pages, and its last flush before that may be a part.
            assert!(
                found.pages_per_flush <= 1.01 * expected && found.pages_per_flush > 0.85 * expected,
                "{workload}, {pages} pages per call, {calls} calls per flush: {} pages per flush",
                found.pages_per_flush
            );
            assert!(
                found.interrupts_per_flush <= 3.0 && found.interrupts_per_flush > 0.5 * one.interrupts_per_flush,
                "{workload}, {pages} pages per call, {calls} calls per flush: {} interrupts per flush",
                found.interrupts_per_flush
            );
        }
    }
}
