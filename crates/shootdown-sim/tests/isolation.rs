//! What page-table isolation costs: `kernel.isolation` at each entry from user mode, and the second half of a split tag
//! at each invalidation.

use shootdown_sim::model::Model;
use shootdown_sim::run::{Parameters, RunResult, RunSpec, run};
use std::sync::Arc;

const ISOLATION_NS: f64 = 139.0;

fn madvise_spin(threads: usize, set: &[(&str, f64)], split: Option<&str>) -> RunResult {
    let model = Model::find("skylake-104").unwrap();
    let with = |model: Model, &(path, value): &(&str, f64)| model.with(path, value).unwrap();
    let spec = RunSpec {
        workload: "madvise_spin".into(),
        machine: Arc::new(set.iter().fold(model, with)),
        design: "ipi".into(),
        threads,
        seed: 5,
        virtual_ms: Some(5.0),
        lru_drain: false,
        parameters: split.map_or(Parameters::default(), |split| {
            Parameters::default().with_setting("design.split", split).unwrap()
        }),
    };
    run(&spec, &mut |_| true).unwrap()
}

fn ns_per_op(result: &RunResult) -> f64 {
    1e9 / result.ops_per_s
}

/// One loop is a system call and a page fault, so two entries, and invalidates one page. `kernel.slowdown` of this
/// machine, 2.59, does not multiply that.
#[test]
fn each_entry_from_user_mode_and_each_page_costs_more() {
    let set = |isolation| [("kernel.isolation", isolation)];
    let without = ns_per_op(&madvise_spin(1, &set(0.0), None));
    let entries = ns_per_op(&madvise_spin(1, &set(ISOLATION_NS), Some("false"))) - without;
    let both = ns_per_op(&madvise_spin(1, &set(ISOLATION_NS), None)) - without;
    let model = Model::find("skylake-104").unwrap();
    let page = model.costs.invpcid_address / model.ghz;
    assert!((entries - 2.0 * ISOLATION_NS).abs() < 5.0, "{entries}");
    assert!((both - entries - page).abs() < 5.0, "{both} and {entries}");
}

/// The other threads spin in user mode, so each interrupt of theirs enters from it.
#[test]
fn interrupt_from_user_mode_enters_the_kernel_too() {
    let disturbance = |isolation| {
        let result = madvise_spin(4, &[("kernel.isolation", isolation)], Some("false"));
        let latency = result
            .latencies
            .iter()
            .find(|latency| latency.name == "interrupt disturbance");
        latency.expect("interrupts were sent").p50_ns
    };
    let [without, with] = [0.0, ISOLATION_NS].map(disturbance);
    let added = with - without;
    assert!(
        (added - ISOLATION_NS).abs() < 0.2 * ISOLATION_NS,
        "{with} and {without}"
    );
}

/// 2,048 tags are too few for pairs: isolation works without them, as with PCIDs off.
#[test]
fn machine_with_few_tags_does_not_split_them() {
    let set = [("kernel.isolation", ISOLATION_NS), ("tags.bits", 11.0)];
    let [alone, unsplit] = [None, Some("false")].map(|split| ns_per_op(&madvise_spin(1, &set, split)));
    assert_eq!(alone, unsplit);
}
