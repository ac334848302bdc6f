//! A record changes no result of a run, and holds each shootdown from its beginning to its end.

use shootdown_sim::model::Model;
use shootdown_sim::run::{RunSpec, run};
use shootdown_sim::timeline::{Part, TimelineEvent, What, divide, shootdowns, trace};
use std::sync::Arc;

fn spec(design: &str) -> RunSpec {
    RunSpec {
        workload: "tlb_flush2".into(),
        machine: Arc::new(Model::find("milan-72").unwrap()),
        design: design.into(),
        threads: 6,
        seed: 3,
        virtual_ms: Some(0.5),
        lru_drain: false,
        parameters: Default::default(),
    }
}

#[test]
fn recording_does_not_change_the_run() {
    for design in ["ipi", "broadcast", "adaptive"] {
        let mut plain = run(&spec(design), &mut |_| true).unwrap();
        let (recorded, events) = trace(&spec(design), &mut |_| true).unwrap();
        plain.host_seconds = recorded.host_seconds;
        assert_eq!(plain, recorded, "{design}");
        assert!(!events.is_empty(), "{design}");
        assert!(events.is_sorted_by(|a, b| a.ns <= b.ns), "{design}");
    }
}

/// Another virtual machine has no part in a shootdown of this one.
#[test]
fn record_of_several_machines_is_of_the_first() {
    let model = Model::find("milan-72").unwrap();
    let model = model.with("vm.vcpus", 6.0).unwrap().with("vm.machines", 2.0).unwrap();
    let two = RunSpec {
        machine: Arc::new(model),
        ..spec("ipi")
    };
    let (result, events) = trace(&two, &mut |_| true).unwrap();
    assert!(events.iter().all(|event| event.cpu < 6));
    let shootdowns = shootdowns(&events).len() as u64;
    assert!(
        shootdowns > 0 && shootdowns < result.ops * 3 / 4,
        "{shootdowns} {result:?}"
    );
}

#[test]
fn recorder_keeps_nothing_after_a_run() {
    let first = trace(&spec("ipi"), &mut |_| true).unwrap().1;
    let refused = RunSpec {
        threads: 1000,
        ..spec("ipi")
    };
    assert!(trace(&refused, &mut |_| true).is_err());
    run(&spec("ipi"), &mut |_| true).unwrap();
    assert_eq!(trace(&spec("ipi"), &mut |_| true).unwrap().1, first);
}

#[test]
fn recorded_ipis_match_the_counted_ones() {
    let (result, events) = trace(&spec("ipi"), &mut |_| true).unwrap();
    let sent: usize = events
        .iter()
        .map(|event| match &event.what {
            What::Sends(targets) => targets.len(),
            _ => 0,
        })
        .sum();
    let counted = (result.ipis_per_op * result.ops as f64).round() as usize;
    // The scheduler's own wake-ups are not shootdowns, and the record continues until the threads have stopped.
    assert!(
        counted > 0 && sent.abs_diff(counted) <= counted / 5,
        "{sent} recorded, {counted} counted"
    );
}

#[test]
fn each_shootdown_ends_after_its_targets_answered() {
    let (_, events) = trace(&spec("ipi"), &mut |_| true).unwrap();
    let found = shootdowns(&events);
    assert!(found.iter().filter(|flush| flush.targets().len() >= 2).count() > 10);
    for flush in &found {
        assert!(flush.end > flush.begin);
        for (sent, targets) in &flush.sent {
            assert!(flush.begin <= *sent && *sent < flush.end && !targets.contains(&flush.sender));
        }
        for target in flush.targets() {
            let own = || events.iter().filter(|event| event.cpu == target);
            // CPUs may run ahead of each other by 330 cycles (`Config::slack_cycles`), 100 ns here.
            let during = |event: &&TimelineEvent| (flush.begin..=flush.end + 100.0).contains(&event.ns);
            let invalidated = own()
                .filter(during)
                .any(|event| matches!(event.what, What::InvalidateEnds | What::LoadsRoot { .. }));
            // A CPU that entered lazy TLB mode meanwhile does it before it returns to user code.
            let mut lazy = own()
                .filter(|event| event.ns <= flush.end)
                .filter(|event| matches!(event.what, What::LazyEnters | What::LazyLeaves));
            let lazy = lazy.next_back().is_some_and(|event| event.what == What::LazyEnters)
                || own().filter(during).any(|event| event.what == What::LazyLeaves);
            assert!(
                invalidated || lazy,
                "CPU {target} had not invalidated when CPU {} went on",
                flush.sender
            );
        }
    }
}

/// Duration of the shootdowns of 31 CPUs, and of their requester's reads after the last has invalidated, median in ns,
/// where CPUs can have that many lines in flight.
fn of_many(prefetches: f64) -> (f64, f64) {
    let machine = Model::find("milan-72").unwrap();
    let machine = machine.with("broadcast.available", 0.0).unwrap();
    let machine = machine.with("costs.prefetches", prefetches).unwrap();
    let spec = RunSpec {
        workload: "madvise_spin".into(),
        machine: Arc::new(machine),
        threads: 32,
        ..spec("adaptive")
    };
    let (_, events) = trace(&spec, &mut |_| true).unwrap();
    let found = shootdowns(&events);
    let of_all = found.iter().filter(|flush| flush.targets().len() == 31);
    let (mut took, mut looked): (Vec<f64>, Vec<f64>) = of_all
        .filter_map(|flush| {
            let invalidated = |event: &&TimelineEvent| {
                event.cpu != flush.sender
                    && (flush.begin..=flush.end).contains(&event.ns)
                    && matches!(event.what, What::InvalidateEnds)
            };
            let last = events
                .iter()
                .filter(invalidated)
                .map(|event| event.ns)
                .max_by(f64::total_cmp)?;
            Some((flush.end - flush.begin, flush.end - last))
        })
        .unzip();
    assert!(took.len() > 10, "{}", took.len());
    let median = |times: &mut Vec<f64>| {
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    };
    (median(&mut took), median(&mut looked))
}

#[test]
fn requester_of_many_targets_overlaps_line_transfers() {
    let ((took, looked), (took_alone, looked_alone)) = (of_many(10.0), of_many(0.0));
    assert!(took < 0.6 * took_alone, "{took} {took_alone}");
    assert!(looked < 0.4 * looked_alone, "{looked} {looked_alone}");
}

/// From the sender's first step to the answer: longer than the delivery, shorter than the flush that waits for it.
#[test]
fn interrupt_to_answer_is_timed_from_the_send() {
    let spec = RunSpec {
        workload: "madvise_spin".into(),
        threads: 2,
        ..spec("ipi")
    };
    let (model, result) = (&spec.machine, run(&spec, &mut |_| true).unwrap());
    let of = |name: &str| result.latencies.iter().find(|latency| latency.name == name);
    let (answer, flush) = (of("interrupt to answer").unwrap(), of("flush").unwrap());
    let taken = (result.interrupts_per_op * result.ops as f64).round() as u64;
    // One may be in progress when the window opens, and one when it closes.
    assert!(
        taken > 100 && answer.count.abs_diff(taken) <= 1,
        "{} of {taken}",
        answer.count
    );
    let costs = &model.costs;
    let way = model.ns(costs.ipi_send + costs.ipi_deliver_cluster + costs.interrupt_entry);
    assert!(
        way < answer.p50_ns && answer.p50_ns < flush.p50_ns && answer.max_ns < flush.max_ns,
        "{way} ns to get there, {answer:?}, {flush:?}"
    );
    let without_targets = RunSpec { threads: 1, ..spec };
    let alone = run(&without_targets, &mut |_| true).unwrap();
    assert!(
        alone
            .latencies
            .iter()
            .all(|latency| latency.name != "interrupt to answer")
    );
}

/// Each flush is divided without a gap, under every method of a flush; requesters that wait for lines record it.
#[test]
fn parts_of_every_flush_sum_to_its_duration() {
    for (design, part) in [
        ("ipi", Part::Post),
        ("preemptible", Part::Post),
        ("broadcast", Part::Sync),
        ("adaptive", Part::Choose),
    ] {
        let (_, events) = trace(&spec(design), &mut |_| true).unwrap();
        let found = shootdowns(&events);
        let mut seen = 0;
        for flush in &found {
            let pieces = divide(&events, flush.sender, flush.begin, flush.end, None);
            let mut at = flush.begin;
            for piece in &pieces {
                assert_eq!(piece.from, at, "{design}: a gap");
                assert!(
                    piece.to > piece.from && piece.lines <= piece.to - piece.from + 1e-6,
                    "{piece:?}"
                );
                at = piece.to;
            }
            assert!(pieces.is_empty() || at == flush.end, "{design}");
            seen += usize::from(pieces.iter().any(|piece| piece.part == part));
        }
        assert!(
            found.len() > 10 && seen > found.len() / 2,
            "{design}: {seen} of {}",
            found.len()
        );
    }
}

#[test]
fn every_interrupted_cpu_is_a_target() {
    for design in ["ipi", "preemptible"] {
        let (_, events) = trace(&spec(design), &mut |_| true).unwrap();
        for flush in shootdowns(&events) {
            let posted: Vec<usize> = flush.posted.iter().map(|(_, cpu)| *cpu).collect();
            assert!(
                flush.targets().iter().all(|cpu| posted.contains(cpu)),
                "{design}: {flush:?}"
            );
        }
    }
}
