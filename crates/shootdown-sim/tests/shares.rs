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

/// A section under the LRU lock takes longer the more pages it is for. Of 96 in one call 92 are further pages as they
/// come, in four sections, and 93 as they go, in three. A page in a call has no further ones.
#[test]
fn each_further_page_prolongs_the_hold_of_the_lru_lock() {
    let lru_ns = |workload: &str, page: f64| {
        let spec = RunSpec {
            threads: 1,
            virtual_ms: Some(20.0),
            lru_drain: true,
            ..spec(workload, "skylake-104", "ipi", &[("kernel.lru_page", page)])
        };
        let result = run(&spec, &mut |_| true).unwrap();
        share(&result, "LRU lock") * result.virtual_ns / result.ops as f64
    };
    let further = |workload| (lru_ns(workload, 40.0) - lru_ns(workload, 0.0)) / 40.0;
    let (many, single) = (further("malloc_churn"), further("tlb_flush2"));
    assert!(
        (many - (92.0 + 93.0)).abs() < 6.0 && single.abs() < 0.1,
        "{many} {single}"
    );
}

/// A page that is unmapped while it is in a batch goes on the LRU list with the others, and a second section takes them
/// off: of 31 pages in 31 calls 30 as they come and 29 as they go are further ones. In batches of 15 it is 14 and 13.
#[test]
fn unmapped_pages_of_a_batch_pass_through_the_lru_list() {
    let lru_ns = |batch: f64, page: f64| {
        let spec = RunSpec {
            threads: 1,
            virtual_ms: Some(20.0),
            ..spec(
                "tlb_flush2",
                "skylake-104",
                "ipi",
                &[("kernel.lru_page", page), ("linux.lru_batch", batch)],
            )
        };
        let result = run(&spec, &mut |_| true).unwrap();
        share(&result, "LRU lock") * result.virtual_ns / result.ops as f64
    };
    for batch in [15.0, 31.0] {
        let further = (lru_ns(batch, 40.0) - lru_ns(batch, 0.0)) / 40.0;
        let expected = (2.0 * batch - 3.0) / batch;
        assert!((further - expected).abs() < 0.03, "{batch}: {further}, not {expected}");
    }
}
