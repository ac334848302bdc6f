//! Machine models run as virtual machines: what exits and preempted virtual CPUs cost, and that nobody uses anything
//! stale there.

use shootdown_sim::model::Model;
use shootdown_sim::run::{RunResult, RunSpec, run, validate};
use std::sync::Arc;

/// `tlb_flush2` on the first eight CPUs of a machine, changed by `set`.
fn spec(design: &str, set: &[(&str, f64)]) -> RunSpec {
    let model = Model::find("milan-72").unwrap();
    let model = set
        .iter()
        .fold(model, |model, &(path, value)| model.with(path, value).unwrap());
    RunSpec {
        workload: "tlb_flush2".into(),
        machine: Arc::new(model),
        design: design.into(),
        threads: 8,
        seed: 5,
        virtual_ms: Some(12.0),
        lru_drain: false,
        parameters: Default::default(),
    }
}

fn played(design: &str, set: &[(&str, f64)]) -> RunResult {
    run(&spec(design, set), &mut |_| true).unwrap()
}

/// Eight virtual CPUs on so many of a host, with slices short enough for many of them to fit into the run.
fn overcommitted(host_cpus: f64) -> Vec<(&'static str, f64)> {
    vec![("vm.vcpus", 8.0), ("vm.host_cpus", host_cpus), ("vm.slice", 2e5)]
}

#[test]
fn a_machine_whose_hypervisor_is_only_described_is_not_a_virtual_one() {
    let mut plain = played("ipi", &[]);
    let mut described = played("ipi", &[("vm.vcpus", 0.0), ("vm.ipi_exit", 9000.0)]);
    (plain.host_seconds, described.host_seconds) = (0.0, 0.0);
    assert_eq!(plain, described);
    assert!(plain.time_shares.iter().all(|(name, _)| *name != "taken by the host"));
}

#[test]
fn the_same_seed_gives_the_same_run_and_another_another() {
    let set = overcommitted(4.0);
    let (mut first, mut second) = (played("ipi", &set), played("ipi", &set));
    (first.host_seconds, second.host_seconds) = (0.0, 0.0);
    assert_eq!(first, second);
    let other = RunSpec {
        seed: 6,
        ..spec("ipi", &set)
    };
    assert_ne!(run(&other, &mut |_| true).unwrap().ops, first.ops);
}

#[test]
fn more_virtual_cpus_than_the_machine_has_are_refused_with_a_remedy() {
    let error = validate(&spec("ipi", &[("vm.vcpus", 73.0)])).unwrap_err();
    assert!(
        error.contains("milan-72 has 72 CPUs") && error.contains("--cpus 73"),
        "{error}"
    );
    let error = validate(&spec("ipi", &[("vm.vcpus", 7.0)])).unwrap_err();
    assert!(error.contains("has 7 CPUs"), "{error}");
}

#[test]
fn exits_make_interrupts_dearer_and_posting_them_spares_the_target() {
    let rate = |set: &[(&str, f64)]| played("ipi-per-cpu", set).ops_per_s;
    let bare = rate(&[]);
    let exits = rate(&[("vm.vcpus", 8.0)]);
    let injected = rate(&[("vm.vcpus", 8.0), ("vm.posted", 0.0)]);
    let neither = rate(&[("vm.vcpus", 8.0), ("vm.ipi_virtualised", 1.0)]);
    assert!(
        injected < 0.9 * exits && exits < 0.9 * neither,
        "{injected} {exits} {neither}"
    );
    assert!(neither <= bare * 1.02, "{neither} {bare}");
}

/// Only so many virtual CPUs run at a time as the host has CPUs, and the others' time is not work.
#[test]
fn work_takes_no_more_than_the_cpus_of_the_host() {
    for (host_cpus, others) in [(4.0, 0.0), (2.0, 0.0), (8.0, 8.0)] {
        let set = [overcommitted(host_cpus), vec![("vm.others", others)]].concat();
        let result = played("ipi", &set);
        let of = |wanted: &str| result.time_shares.iter().find(|(name, _)| *name == wanted).unwrap().1;
        let (taken, idle) = (of("taken by the host"), of("idle"));
        // The machine of the others has its share of a full host.
        let most = (host_cpus + others) / (8.0 + others);
        let worked = 1.0 - taken - idle;
        assert!(
            taken > 0.05 && worked < most.min(host_cpus / 8.0) + 0.05,
            "{host_cpus} {others}: {:?}",
            result.time_shares
        );
        assert!(result.ops > 100 && result.stale == 0, "{result:?}");
    }
}

#[test]
fn whoever_does_not_wait_for_preempted_cpus_is_faster() {
    let with = |pv_flush: f64| {
        let set = [overcommitted(4.0), vec![("vm.pv_flush", pv_flush)]].concat();
        let result = played("ipi-trim", &set);
        let longest = result
            .latencies
            .iter()
            .find(|latency| latency.name == "flush")
            .unwrap()
            .p99_ns;
        assert_eq!(result.stale, 0, "{:?}", result.story);
        (result.ops_per_s, longest)
    };
    let ((paravirtual, quick), (waiting, slow)) = (with(1.0), with(0.0));
    assert!(paravirtual > 1.1 * waiting, "{paravirtual} {waiting}");
    assert!(quick < slow, "{quick} {slow}");
}

#[test]
fn nothing_stale_is_used_by_virtual_cpus_that_were_out() {
    for design in ["ipi", "ipi-trim", "preemptible", "adaptive", "deferred"] {
        for workload in ["tlb_flush2", "mmap_churn", "context_switch", "madvise_stress"] {
            for pv_flush in [0.0, 1.0] {
                let set = [overcommitted(5.0), vec![("vm.pv_flush", pv_flush), ("vm.others", 3.0)]].concat();
                let spec = RunSpec {
                    workload: workload.into(),
                    virtual_ms: Some(4.0),
                    ..spec(design, &set)
                };
                let result = run(&spec, &mut |_| true).unwrap_or_else(|error| panic!("{design} {workload}: {error}"));
                assert_eq!(result.stale, 0, "{design} {workload}: {:?}", result.story);
                assert!(result.accesses_checked > 100, "{design} {workload}");
            }
        }
    }
    let result = played("none", &overcommitted(4.0));
    assert!(result.stale > 0, "the oracle sees what is stale here too");
}
