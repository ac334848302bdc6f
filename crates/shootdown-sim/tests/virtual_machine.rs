//! Machine models run as virtual machines: the cost of exits and preempted virtual CPUs, and that no stale entry is
//! used there.

use shootdown_sim::model::Model;
use shootdown_sim::run::{Latency, RunResult, RunSpec, run, validate};
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

fn share(result: &RunResult, wanted: &str) -> f64 {
    let of = |(name, share): &(&str, f64)| (*name == wanted).then_some(*share);
    result.time_shares.iter().find_map(of).unwrap()
}

/// Eight virtual CPUs on that many of a host, with slices short enough for many of them to fit into the run.
fn overcommitted(host_cpus: f64) -> Vec<(&'static str, f64)> {
    vec![("vm.vcpus", 8.0), ("vm.host_cpus", host_cpus), ("vm.slice", 2e5)]
}

#[test]
fn machine_with_vm_costs_but_no_vcpus_is_not_virtual() {
    let mut plain = played("ipi", &[]);
    let mut described = played("ipi", &[("vm.vcpus", 0.0), ("vm.ipi_exit", 9000.0)]);
    (plain.host_seconds, described.host_seconds) = (0.0, 0.0);
    assert_eq!(plain, described);
    assert!(plain.time_shares.iter().all(|(name, _)| *name != "taken by the host"));
}

#[test]
fn seed_determines_the_virtual_machine_run() {
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
fn too_many_virtual_cpus_are_refused_with_a_remedy() {
    let error = validate(&spec("ipi", &[("vm.vcpus", 73.0)])).unwrap_err();
    assert!(
        error.contains("milan-72 has 72 CPUs") && error.contains("--cpus 73"),
        "{error}"
    );
    let error = validate(&spec("ipi", &[("vm.vcpus", 7.0)])).unwrap_err();
    assert!(error.contains("has 7 CPUs"), "{error}");
    let large = Model::find("milan-72").unwrap().with("topology.sockets", 8.0).unwrap();
    let large = large
        .with("vm.vcpus", 400.0)
        .unwrap()
        .with("vm.machines", 21.0)
        .unwrap();
    let error = large.check_vcpus().unwrap_err();
    assert!(error.contains("vm.machines=21") && error.contains("8192"), "{error}");
}

#[test]
fn vm_exits_raise_ipi_cost_and_posted_interrupts_lower_it() {
    let rate = |set: &[(&str, f64)]| played("ipi-per-cpu", set).ops_per_s;
    let bare = rate(&[]);
    let exits = rate(&[("vm.vcpus", 8.0)]);
    let injected = rate(&[("vm.vcpus", 8.0), ("vm.posted", 0.0)]);
    let neither = rate(&[("vm.vcpus", 8.0), ("vm.ipi_virtualised", 1.0)]);
    // Of one seed, so what costs nothing leaves the rate as it is.
    assert!(injected < exits && exits < neither, "{injected} {exits} {neither}");
    assert!(neither <= bare * 1.02, "{neither} {bare}");
}

/// Only so many virtual CPUs run at a time as the host has CPUs, and the others' time is not work.
#[test]
fn guest_work_is_bounded_by_host_cpus() {
    for (host_cpus, others) in [(4.0, 0.0), (2.0, 0.0), (8.0, 8.0)] {
        let set = [overcommitted(host_cpus), vec![("vm.others", others)]].concat();
        let result = played("ipi", &set);
        let (taken, idle) = (share(&result, "taken by the host"), share(&result, "idle"));
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
fn pv_flush_is_faster_than_waiting_for_preempted_cpus() {
    let with = |pv_flush: f64| {
        let set = [
            overcommitted(4.0),
            vec![
                ("vm.pv_flush", pv_flush),
                ("vm.spin_window", 0.0),
                ("vm.yield_on_send", 0.0),
            ],
        ];
        let result = played("ipi-trim", &set.concat());
        let longest = result
            .latencies
            .iter()
            .find(|latency| latency.name == "flush")
            .unwrap()
            .p99_ns;
        assert_eq!(result.stale, 0, "{:?}", result.diagnosis);
        (result.ops_per_s, longest)
    };
    let ((paravirtual, quick), (waiting, slow)) = (with(1.0), with(0.0));
    assert!(paravirtual > 1.1 * waiting, "{paravirtual} {waiting}");
    assert!(quick < slow, "{quick} {slow}");
}

#[test]
fn descheduled_virtual_cpus_use_no_stale_translation() {
    for design in ["ipi", "ipi-trim", "preemptible", "adaptive", "deferred"] {
        for workload in ["tlb_flush2", "mmap_churn", "context_switch", "madvise_stress"] {
            for (pv_flush, halted_flush) in [(0.0, 0.0), (1.0, 0.0), (1.0, 1.0)] {
                let flushes = vec![("vm.pv_flush", pv_flush), ("vm.halted_flush", halted_flush)];
                let set = [overcommitted(5.0), vec![("vm.others", 3.0)], flushes].concat();
                let spec = RunSpec {
                    workload: workload.into(),
                    virtual_ms: Some(4.0),
                    ..spec(design, &set)
                };
                let result = run(&spec, &mut |_| true).unwrap_or_else(|error| panic!("{design} {workload}: {error}"));
                assert_eq!(result.stale, 0, "{design} {workload}: {:?}", result.diagnosis);
                assert!(result.accesses_checked > 100, "{design} {workload}");
            }
        }
    }
    let result = played("none", &overcommitted(4.0));
    assert!(result.stale > 0, "the oracle sees what is stale here too");
}

/// The median of a distribution, ns, where one thread repeatedly drops a page and another spins in user code.
fn median(name: &str, set: &[(&str, f64)]) -> f64 {
    let spec = RunSpec {
        workload: "madvise_spin".into(),
        threads: 2,
        ..spec("ipi-per-cpu", &[&[("vm.vcpus", 2.0)], set].concat())
    };
    let result = run(&spec, &mut |_| true).unwrap();
    assert_eq!(result.stale, 0, "{:?}", result.diagnosis);
    let found = result.latencies.iter().find(|latency| latency.name == name);
    found.unwrap_or_else(|| panic!("no samples of {name}")).p50_ns
}

/// The time from sending an interrupt to its answer grows by exactly the settings.
#[test]
fn each_vm_exit_takes_its_configured_time() {
    let answer = |set: &[(&str, f64)]| median("interrupt to answer", set);
    let least = answer(&[("vm.ipi_virtualised", 1.0)]);
    let sent = answer(&[]) - least;
    assert!((1400.0..=1600.0).contains(&sent), "an exit of 1500 ns took {sent}");
    let injected = answer(&[("vm.ipi_virtualised", 1.0), ("vm.posted", 0.0)]) - least;
    assert!(
        (2400.0..=2600.0).contains(&injected),
        "kick 1000 ns and injection 1500 ns took {injected}"
    );
}

/// Two virtual CPUs on one: the target is descheduled, and runs again when the other's slice is over.
#[test]
fn preempted_target_is_waited_for_unless_flushed_at_entry() {
    let flush = |set: &[(&str, f64)]| {
        let one = [("vm.host_cpus", 1.0), ("vm.spread", 0.0), ("vm.slice", 1e6)];
        median("flush", &[&one, set].concat())
    };
    let quick = flush(&[("vm.pv_flush", 1.0)]);
    let waits = flush(&[("vm.pv_flush", 0.0), ("vm.spin_window", 0.0), ("vm.yield_on_send", 0.0)]);
    assert!(quick < 2_000.0, "flush at entry took {quick}");
    assert!(
        waits > 5e5,
        "a target that was out until the slice of 1 ms was over took {waits}"
    );
}

/// Two other machines keep both CPUs of the host busy. A descheduled target answers when its turn comes, after up to a
/// slice or two of a millisecond. One that is yielded to answers some microseconds later: the window, the exit, the
/// switch. It is preempted in user code, so only a yield to a virtual CPU with a pending interrupt finds it.
#[test]
fn directed_yield_reschedules_a_preempted_target() {
    let answers = |boost: f64, on_send: f64| {
        let set = [
            ("vm.vcpus", 2.0),
            ("vm.others", 2.0),
            ("vm.pv_flush", 0.0),
            ("vm.slice", 1e6),
            // So that no yield is refused as unfair.
            ("vm.wakeup", 5e7),
            ("vm.boost", boost),
            ("vm.yield_on_send", on_send),
        ];
        let spec = RunSpec {
            workload: "madvise_spin".into(),
            threads: 2,
            virtual_ms: Some(60.0),
            ..spec("ipi-per-cpu", &set)
        };
        let result = run(&spec, &mut |_| true).unwrap();
        assert_eq!(result.stale, 0, "{:?}", result.diagnosis);
        let found = result
            .latencies
            .into_iter()
            .find(|latency| latency.name == "interrupt to answer");
        found.unwrap()
    };
    let soon = |latency: &Latency| {
        let after_a_switch = latency.buckets.iter().filter(|(edge, _)| (5e3..1e5).contains(edge));
        after_a_switch.map(|&(_, count)| count).sum::<u64>()
    };
    for boost in [0.0, 1.0] {
        let alone = answers(boost, 0.0);
        // One that ran soon by chance.
        assert!(alone.max_ns > 5e5 && soon(&alone) <= 1, "{alone:?}");
    }
    let spinning = answers(2.0, 0.0);
    assert!(spinning.max_ns < 2e4 && soon(&spinning) > 5, "{spinning:?}");
    let sending = answers(0.0, 1.0);
    assert!(soon(&sending) > 5, "{sending:?}");
}

/// Locks whose waiters halt lose nothing: no hang, nothing stale, and the same work as locks that spin where no virtual
/// CPU is preempted.
#[test]
fn halted_lock_waiters_are_woken() {
    let with = |set: &[(&str, f64)]| {
        let set = [&[("vm.vcpus", 8.0), ("vm.slice", 2e5)], set].concat();
        let spec = RunSpec {
            workload: "malloc_churn".into(),
            threads: 16,
            virtual_ms: Some(20.0),
            ..spec("ipi", &set)
        };
        let result = run(&spec, &mut |_| true).unwrap();
        assert_eq!(result.stale, 0, "{:?}", result.diagnosis);
        result.ops_per_s
    };
    // A hundred iterations: waiters halt often.
    let (halting, spinning) = (with(&[("vm.lock_spins", 100.0)]), with(&[("vm.lock_spins", 0.0)]));
    assert!((0.5..1.5).contains(&(halting / spinning)), "{halting} {spinning}");
    for gives_up in [0.0, 1.0] {
        let rate = with(&[
            ("vm.lock_spins", 100.0),
            ("vm.lock_gives_up", gives_up),
            ("vm.others", 8.0),
        ]);
        assert!(rate > 0.1 * spinning, "{gives_up}: {rate} {spinning}");
    }
}

/// A lock whose waiters never halt is open to any CPU that finds it free. With a queue it would wait for waiters that
/// do not run: beside another machine, always busy, 0.29 of the rate would be left.
#[test]
fn lock_without_halting_waiters_waits_for_none_of_them() {
    let spinning = [("vm.lock_spins", 0.0), ("vm.spin_window", 0.0)];
    let rate = |others: f64| halting_for_a_lock(&[&spinning[..], &[("vm.others", others)]].concat()).ops_per_s;
    let (alone, beside) = (rate(0.0), rate(8.0));
    assert!(beside > 0.33 * alone, "{beside} {alone}");
}

/// Each of several machines has a kernel of its own: none interrupts another's CPUs, and on a host with room for all
/// each is as fast as alone.
#[test]
fn machines_on_one_host_share_nothing_but_its_cpus() {
    let alone = |threads: usize, set: &[(&str, f64)]| {
        let set = [&[("vm.vcpus", 8.0), ("vm.slice", 2e5)], set].concat();
        let spec = RunSpec {
            threads,
            ..spec("ipi", &set)
        };
        let result = run(&spec, &mut |_| true).unwrap();
        assert_eq!(result.stale, 0, "{:?}", result.diagnosis);
        result
    };
    // A kernel with one thread has no other CPU to interrupt.
    let single = alone(1, &[("vm.machines", 3.0), ("vm.host_cpus", 24.0)]);
    assert_eq!((single.ipis_per_op, single.interrupts_per_op), (0.0, 0.0));
    let (one, two) = (alone(8, &[]), alone(8, &[("vm.machines", 2.0), ("vm.host_cpus", 16.0)]));
    assert!(
        (0.9..1.05).contains(&(two.ops_per_s / one.ops_per_s)),
        "{two:?} {one:?}"
    );
    assert!((two.ipis_per_op / one.ipis_per_op - 1.0).abs() < 0.1);
    assert!(two.ops > one.ops * 3 / 2, "both are counted");
    // On the same eight CPUs each has half of the time at most.
    let halved = alone(8, &[("vm.machines", 2.0)]);
    let taken = share(&halved, "taken by the host");
    assert!(taken > 0.2 && halved.ops_per_s < 0.75 * one.ops_per_s, "{halved:?}");
}

/// Two threads on each of eight virtual CPUs that wait for the LRU lock, held for 3 us, and halt as they wait.
fn halting_for_a_lock(set: &[(&str, f64)]) -> RunResult {
    let set = [
        &[
            ("vm.vcpus", 8.0),
            ("vm.slice", 2e5),
            ("vm.lock_spins", 100.0),
            ("kernel.lru_hold", 3000.0),
        ],
        set,
    ]
    .concat();
    let spec = RunSpec {
        workload: "malloc_churn".into(),
        threads: 16,
        virtual_ms: Some(20.0),
        lru_drain: true,
        ..spec("ipi-per-cpu", &set)
    };
    let result = run(&spec, &mut |_| true).unwrap();
    assert_eq!(result.stale, 0, "{:?}", result.diagnosis);
    result
}

/// While the first waiter wakes up, CPUs that arrive take the lock; if they queued, the rate would be 0.77 of that of
/// waiters that spin for longer.
#[test]
fn lock_is_open_to_others_while_its_first_waiter_has_halted() {
    let halting = halting_for_a_lock(&[]).ops_per_s;
    let spinning = halting_for_a_lock(&[("vm.lock_spins", 3000.0)]).ops_per_s;
    assert!(halting > 0.88 * spinning, "{halting} {spinning}");
}

/// A waiter for the LRU lock has interrupts off, so a flush that interrupts it waits until it has had the lock.
#[test]
fn halted_lock_waiter_is_not_waited_for_if_it_is_flushed_at_entry() {
    let flush = |halted_flush: f64| {
        let result = halting_for_a_lock(&[("vm.others", 8.0), ("vm.halted_flush", halted_flush)]);
        result
            .latencies
            .iter()
            .find(|latency| latency.name == "flush")
            .unwrap()
            .p50_ns
    };
    let (waits, does_not) = (flush(0.0), flush(1.0));
    assert!(waits > 100e3 && does_not < 20e3, "{waits} {does_not}");
}

/// `zen5-vm-2` is itself a virtual machine: its own numbers include its exit costs.
#[test]
fn vm_settings_of_a_measured_vm_change_only_its_host() {
    let on = |set: &[(&str, f64)]| {
        let with = |model: Model, &(path, value): &(&str, f64)| model.with(path, value).unwrap();
        let model = set.iter().fold(Model::find("zen5-vm-2").unwrap(), with);
        let spec = RunSpec {
            machine: Arc::new(model),
            threads: 2,
            ..spec("ipi-trim", &[])
        };
        let result = run(&spec, &mut |_| true).unwrap();
        assert_eq!(result.stale, 0, "{:?}", result.diagnosis);
        result.ops_per_s
    };
    let (bare, virtual_one) = (on(&[]), on(&[("vm.vcpus", 2.0)]));
    assert!((virtual_one / bare - 1.0).abs() < 0.02, "{virtual_one} {bare}");
    // On one CPU they do not interrupt each other: a descheduled CPU is flushed at entry. One thread makes 278 thousand
    // loops.
    let half = on(&[("vm.vcpus", 2.0), ("vm.host_cpus", 1.0)]);
    assert!((250e3..285e3).contains(&half), "{half}");
}
