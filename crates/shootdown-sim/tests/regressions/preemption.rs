//! Preemption: where a requester may be preempted, and where it may not.

use super::scene::*;
use shootdown::{Order, Policy, Range, Requests};
use shootdown_known_bugs::Bug;
use shootdown_sim::hw::Rule;
use shootdown_sim::machine;
use shootdown_sim::os::Priority;
use std::cell::Cell;
use std::rc::Rc;

/// Two threads on each of three CPUs touch the same pages, which one of them drops. Each may be preempted wherever
/// preemption is on, and continues on any CPU, while another thread of the process takes its place.
fn threads_that_wander(stage: &Stage) {
    stage.scheduler.as_ref().expect("asked for").chaos.set(0.2);
    let a = stage.process(1);
    for thread in 0..6 {
        let process = a.clone();
        stage.thread(&a, thread % 3, Priority::Normal, move |system| {
            for _ in 0..60 {
                let page = P + machine::random_below(2) * shootdown_sim::os::PAGE;
                // One of them only: a thread that finds a dropped page still being flushed would flush it once more.
                match machine::random_below(4) {
                    0 if thread == 0 => system.drop_pages(&process, page, 1),
                    1 => system.touch(&process, page, shootdown_sim::hw::Access::Write),
                    _ => look(system, page),
                }
                dawdle(300);
            }
        });
    }
}

/// 48: the requester was unpinned before its own local flush: the CPU that it left stayed stale.
#[test]
fn requester_stays_pinned_until_its_local_flush() {
    for order in [Order::Serial, Order::Concurrent] {
        for design in [IPI, PREEMPTIBLE, LOG] {
            let scene = Scene {
                threads: 6,
                seeds: 40,
                ..Scene::new(3, Policy { order, ..design })
            };
            let symptom = Symptom::Breaks(Rule::C1);
            contract(&scene, Bug::UnpinnedBeforeLocalFlush, symptom, threads_that_wander);
        }
    }
}

/// 15, in its second form, with a scheduler: the requester flushed its CPU, was migrated to another, and sent to all
/// CPUs but that one.
#[test]
fn requester_stays_pinned_between_local_flush_and_sending() {
    for design in [IPI, PREEMPTIBLE, LOG] {
        let scene = Scene {
            threads: 6,
            seeds: 40,
            ..Scene::new(3, design)
        };
        let symptom = Symptom::Breaks(Rule::C1);
        contract(&scene, Bug::UnpinnedBeforeSending, symptom, threads_that_wander);
    }
}

/// A preempted waiter keeps the descriptor of the CPU that it sent from; the next requester there does not take it.
#[test]
fn per_cpu_descriptor_is_not_used_twice_at_once() {
    let design = Policy {
        requests: Requests::PerCpu,
        ..PREEMPTIBLE
    };
    let scene = Scene {
        threads: 6,
        seeds: 40,
        tries: 1000,
        ..Scene::new(2, design)
    };
    contract(&scene, Bug::OwnRequestReused, Symptom::Hangs, |stage| {
        stage.scheduler.as_ref().expect("asked for").chaos.set(0.3);
        let a = stage.process(1);
        for thread in 0..6 {
            let process = a.clone();
            stage.thread(&a, thread % 2, Priority::Normal, move |system| {
                let page = P + thread as u64 * shootdown_sim::os::PAGE;
                for _ in 0..40 {
                    system.touch(&process, page, shootdown_sim::hw::Access::Write);
                    system.drop_pages(&process, page, 1);
                    dawdle(300);
                }
            });
        }
    });
}

/// The observations of a request that waits for a CPU with interrupts off.
#[derive(Debug, Clone, Copy, Default)]
struct Seen {
    /// CPUs on which the request began and ended.
    from: usize,
    to: usize,
    begun: u64,
    ended: u64,
    /// When the urgent thread, woken on the requester's CPU at 40,000, ran.
    urgent: u64,
}

/// A thread withdraws a page that another CPU, with interrupts off, has cached. Meanwhile an urgent thread wakes up on
/// the requester's CPU and keeps it; the third CPU is idle.
fn wait_for_a_cpu_with_interrupts_off(design: Policy, seed: u64) -> Seen {
    let scene = Scene {
        threads: 5,
        ..Scene::new(3, design)
    };
    let seen = Rc::new(Cell::new(Seen::default()));
    let of_run = seen.clone();
    let ending = play(&scene, seed, None, &move |stage| {
        let (a, b) = (stage.process(1), stage.process(2));
        for cpu in 0..3 {
            let seen = of_run.clone();
            stage.thread(&b, cpu, Priority::RealTime, move |system| {
                system.sleep_for(40_000 - machine::now());
                if seen.get().begun > 0 && seen.get().from == cpu {
                    let urgent = machine::now();
                    seen.set(Seen { urgent, ..seen.get() });
                    until(200_000);
                }
            });
        }
        let (owner, reader, seen) = (a.clone(), a.clone(), of_run.clone());
        stage.thread(&a, 0, Priority::Normal, move |system| {
            write(system, &owner, 1);
            until(20_000);
            let (from, begun) = (machine::cpu(), machine::now());
            seen.set(Seen {
                from,
                begun,
                ..seen.get()
            });
            let frames = system.withdraw(&owner, P, 1);
            system.flush(&owner, Range::page(P));
            let (to, ended) = (machine::cpu(), machine::now());
            seen.set(Seen {
                to,
                ended,
                ..seen.get()
            });
            system.free_frames(frames);
        });
        stage.thread(&a, 1, Priority::Normal, move |system| {
            write(system, &reader, 1);
            until(15_000);
            let saved = machine::interrupts_off();
            until(90_000);
            machine::interrupts_restore(saved);
            look(system, P);
        });
    });
    ending.assert_clean(seed);
    seen.get()
}

/// The request is on the stack of a waiter that is preempted and continues on another CPU. A waiter that spins keeps
/// its CPU, and a thread that wakes up there waits for the whole spin.
#[test]
fn preemptible_waiter_migrates_with_its_request_outstanding() {
    for seed in 0..20 {
        for design in [PREEMPTIBLE, LOG_PREEMPTIBLE] {
            let seen = wait_for_a_cpu_with_interrupts_off(design, seed);
            assert!(seen.begun < 40_000 && seen.ended >= 90_000, "{design:?}: {seen:?}");
            assert_ne!(seen.from, seen.to, "{design:?}: {seen:?}");
            assert!((40_000..50_000).contains(&seen.urgent), "{design:?}: {seen:?}");
        }
        let seen = wait_for_a_cpu_with_interrupts_off(IPI, seed);
        assert!(seen.begun < 40_000 && seen.ended >= 90_000, "{seen:?}");
        assert!(seen.urgent >= 90_000, "{seen:?}");
    }
}

/// The handler may not wait: other CPUs wait for the requests that it has taken and not answered.
#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "from within the shootdown handler")]
fn waiting_in_the_handler_is_refused() {
    play(&Scene::new(3, IPI), 1, None, &|stage| {
        let (a, b) = (stage.process(1), stage.process(2));
        let (system, other) = (Rc::downgrade(&stage.system), b.clone());
        let armed = Flag::default();
        let trap = armed.clone();
        // The handler of a lazy CPU unloads the root; this one flushes a page from there.
        stage.system.engine.kernel().on_load_root(move || {
            if machine::cpu() == 1 && trap.replace(false) {
                let system = system.upgrade().expect("the run is on");
                let _done = system.engine.flush(&other.space, Range::page(P));
            }
        });
        let lazy = a.clone();
        stage.cpu(0, move |system| {
            system.load(&a);
            until(ROUND);
            let _done = system.engine.flush(&a.space, Range::page(P).with_tables());
        });
        stage.cpu(1, move |system| {
            system.load(&lazy);
            system.go_lazy();
            armed.set(true);
            until(2 * ROUND);
        });
        stage.cpu(2, move |system| {
            system.load(&b);
            until(2 * ROUND);
        });
    });
}
