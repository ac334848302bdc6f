//! What it costs to leave an idle state, and calls that concern regions and no page.

use shootdown_sim::model::Model;
use shootdown_sim::run::{Parameters, RunResult, RunSpec, run};
use std::sync::Arc;

fn result(workload: &str, threads: usize, set: &[(&str, f64)], parameters: Parameters) -> RunResult {
    let model = Model::find("skylake-104").unwrap();
    let with = |model: Model, &(path, value): &(&str, f64)| model.with(path, value).unwrap();
    let spec = RunSpec {
        workload: workload.into(),
        machine: Arc::new(set.iter().fold(model, with)),
        design: "ipi".into(),
        threads,
        seed: 5,
        virtual_ms: Some(3.0),
        lru_drain: true,
        parameters,
    };
    run(&spec, &mut |_| true).unwrap()
}

/// Threads of `tlb_flush2` sleep for the address-space lock. The second state takes a hundred times as long to leave.
#[test]
fn second_idle_state_needs_a_long_sleep_of_a_whole_core() {
    let rate = |threads: usize, exit_ns: f64, after_ns: f64| {
        let set = [("kernel.deep_idle_exit", exit_ns), ("kernel.deep_idle_after", after_ns)];
        result("tlb_flush2", threads, &set, Parameters::default()).ops_per_s
    };
    for threads in [30, 104] {
        let none = rate(threads, 0.0, 0.0);
        let long = rate(threads, 2e5, 0.0);
        assert!(long < 0.9 * none, "{threads} threads: {long} beside {none}");
        assert_eq!(
            rate(threads, 2e5, 1e9),
            none,
            "{threads} threads: no thread sleeps for a second"
        );
        assert_eq!(
            rate(threads, 1000.0, 0.0),
            none,
            "{threads} threads: faster than the first state"
        );
    }
}

/// The host CPU of a virtual one has the idle state: it is part of `vm.wake`.
#[test]
fn virtual_cpus_have_no_second_idle_state() {
    let rate = |exit_ns: f64| {
        let set = [
            ("kernel.deep_idle_exit", exit_ns),
            ("vm.vcpus", 16.0),
            ("vm.host_cpus", 16.0),
        ];
        result("tlb_flush2", 16, &set, Parameters::default()).ops_per_s
    };
    assert_eq!(rate(0.0), rate(2e5));
}

/// Of 26 kinds of advice 2 drop a page, and only if it is mapped.
#[test]
fn most_advice_of_madvise_stress_flushes_nothing() {
    let with = |all: f64| {
        let parameters = Parameters::default()
            .with("workload.madvise_stress.all_advice", all)
            .unwrap();
        result("madvise_stress", 8, &[], parameters)
    };
    let [each, all] = [with(0.0), with(1.0)];
    assert!(each.interrupts_per_op > 2.0, "{}", each.interrupts_per_op);
    let share = all.interrupts_per_op / each.interrupts_per_op;
    assert!(0.02 < share && share < 2.0 / 26.0, "{share}");
    assert_eq!((each.stale, all.stale), (0, 0));
}
