//! Shares of CPU time: every cycle of the window is counted once, and the time of a flush is counted as such.

use shootdown_sim::model::Model;
use shootdown_sim::run::{RunResult, RunSpec, Workload, run};
use std::sync::Arc;

fn spec(workload: &str, machine: &str, design: &str, set: &[(&str, f64)]) -> RunSpec {
    let model = Model::find(machine).unwrap();
    let with = |model: Model, &(path, value): &(&str, f64)| model.with(path, value).unwrap();
    RunSpec {
        workload: workload.into(),
        machine: Arc::new(set.iter().fold(model, with)),
        design: design.into(),
        threads: 6,
        seed: 3,
        virtual_ms: Some(2.0),
        lru_drain: false,
        parameters: Default::default(),
    }
}

fn share(result: &RunResult, wanted: &str) -> f64 {
    let of = |(name, share): &(&str, f64)| (*name == wanted).then_some(*share);
    result.time_shares.iter().find_map(of).unwrap()
}

#[track_caller]
fn add_up(spec: &RunSpec) {
    let result = run(spec, &mut |_| true).unwrap();
    let sum: f64 = result.time_shares.iter().map(|(_, share)| share).sum();
    let (workload, design) = (&spec.workload, &spec.design);
    assert!(
        (sum - 1.0).abs() < 0.01,
        "{workload} {design}: {sum}: {:?}",
        result.time_shares
    );
    assert!(
        result.time_shares.iter().all(|(_, share)| (0.0..=1.0).contains(share)),
        "{workload} {design}"
    );
    let flush = share(&result, "invalidation, requester") + share(&result, "invalidation, interrupted");
    assert!((flush - result.flush_share).abs() < 1e-9, "{workload} {design}");
}

#[test]
fn time_shares_of_every_workload_sum_to_one() {
    for (workload, ..) in Workload::ALL {
        for (machine, design) in [
            ("milan-72", "ipi"),
            ("milan-72", "broadcast"),
            ("ampere-32", "arm-broadcast"),
        ] {
            add_up(&spec(workload, machine, design, &[]));
        }
    }
}

#[test]
fn time_shares_of_a_virtual_machine_sum_to_one() {
    let set = [("vm.vcpus", 6.0), ("vm.host_cpus", 4.0), ("vm.slice", 1e5)];
    for workload in ["tlb_flush2", "mmap_churn", "latency", "reclaim"] {
        for posted in [0.0, 1.0] {
            let set = [&set[..], &[("vm.posted", posted)]].concat();
            // A sleep or a section with interrupts off that spans an end of the window may last a millisecond.
            add_up(&RunSpec {
                virtual_ms: Some(20.0),
                ..spec(workload, "milan-72", "ipi", &set)
            });
        }
    }
}

/// Its flushes take microseconds each: with one reclaiming CPU of six that is a visible share. It is more than that
/// CPU's, because on Arm a fault on an entry that a batch has cleared flushes too, before the new one is stored.
#[test]
fn reclaim_flushes_are_counted_without_ipis() {
    let result = run(&spec("reclaim", "ampere-32", "arm-broadcast", &[]), &mut |_| true).unwrap();
    let flushes = result.latencies.iter().find(|latency| latency.name == "flush").unwrap();
    let expected = flushes.count as f64 * flushes.p50_ns / (result.virtual_ns * 6.0);
    assert!(
        expected > 0.001 && result.flush_share > 0.5 * expected,
        "{} for {expected}",
        result.flush_share
    );
}

/// Nanoseconds per operation under the LRU lock and waiting for it, with these numbers of the model.
fn lru_ns(workload: &str, threads: usize, lru_drain: bool, set: &[(&str, f64)]) -> f64 {
    let spec = RunSpec {
        threads,
        virtual_ms: Some(20.0),
        lru_drain,
        ..spec(workload, "skylake-104", "ipi", set)
    };
    let result = run(&spec, &mut |_| true).unwrap();
    share(&result, "LRU lock") * threads as f64 * result.virtual_ns / result.ops as f64
}

/// A section under the LRU lock takes longer the more pages it is for. Each page comes and goes: 96 of a call, or one.
#[test]
fn each_page_prolongs_the_hold_of_the_lru_lock_twice() {
    let pages = |workload| {
        let with = |page| lru_ns(workload, 1, true, &[("kernel.lru_page", page)]);
        (with(40.0) - with(0.0)) / 40.0
    };
    let (many, single) = (pages("malloc_churn"), pages("tlb_flush2"));
    assert!(
        (many - 192.0).abs() < 4.0 && (single - 2.0).abs() < 0.02,
        "{many} {single}"
    );
}

/// A page that is unmapped while it is in a batch goes on the LRU list with the others, and is taken off again.
#[test]
fn unmapped_pages_of_a_batch_pass_through_the_lru_list() {
    let with = |page| lru_ns("tlb_flush2", 1, false, &[("kernel.lru_page", page)]);
    let pages = (with(40.0) - with(0.0)) / 40.0;
    assert!((pages - 2.0).abs() < 0.1, "{pages}");
}

/// The lines of the LRU list move if another CPU held the lock before, and less often with larger batches.
#[test]
fn lines_of_the_lru_list_move_between_cpus_only() {
    let lines = |threads, batch: f64| {
        let with = |hold| {
            let set = [("kernel.lru_hold", hold), ("linux.lru_batch", batch)];
            lru_ns("tlb_flush2", threads, false, &set)
        };
        with(1000.0) - with(0.0)
    };
    assert!(lines(1, 31.0).abs() < 1.0, "{}", lines(1, 31.0));
    let (single, batch) = (lines(2, 1.0), lines(2, 31.0));
    assert!(batch > 20.0 && single > 5.0 * batch, "{single} {batch}");
}
