//! Requests to CPUs whose queues are full, and posts that coincide: which CPUs are interrupted, when, and what a waiter
//! does meanwhile.

mod nested;
mod online;
mod own_request;

use crate::Policy;
use crate::cpu::state::POSTED;
use crate::cpuset::CpuMask;
use crate::design::{Order, Requests, Wait};
use crate::facade::Word;
use crate::flush::token::Token;
use crate::hooks::Event;
use crate::range::Range;
use crate::space::Space;
use crate::testing::interleave;
use crate::testing::mock_kernel::{
    CLOCK, DESIGN, EVENTS, FAILS, ON_WAIT, PINS, SEEN, Seen, Sys, World, all_answer, handle, many, on, three,
};
use crate::transport::request::{Asked, Request, TAKEN_BACK};
use core::sync::atomic::Ordering;
use std::boxed::Box;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::vec::Vec;

/// Another CPU holds a slot of that CPU's queue, with a request that it has taken back, and has not published it yet.
fn claim(engine: &Sys, cpu: usize) -> Option<u32> {
    engine.cpus[cpu].queue.claim(1, TAKEN_BACK)
}

/// Publishes it. Returns whether the queue was empty.
fn put_nothing(engine: &Sys, cpu: usize) -> bool {
    let slot = claim(engine, cpu).expect("it is empty");
    engine.cpus[cpu].queue.publish_slot(slot)
}

/// Other CPUs hold every slot of that CPU's queue and have not published them yet.
fn fill(engine: &Sys, cpu: usize) {
    while claim(engine, cpu).is_some() {}
}

/// They publish them, and the CPU takes all.
fn empty(engine: &Sys, cpu: usize) {
    let queue = &engine.cpus[cpu].queue;
    (0..64).for_each(|slot| {
        queue.publish_slot(slot);
    });
    let mut ready = queue.take();
    while queue.next(&mut ready).is_some() {}
}

/// The hook calls recorded during a flush by CPU 0; `on_wait` runs meanwhile.
fn flush(engine: &Sys, space: &Space<World, 1>, on_wait: impl FnMut(u32) + 'static) -> Vec<Seen> {
    SEEN.take();
    ON_WAIT.set(Some(Box::new(on_wait)));
    let _done = engine.flush(space, Range::page(0x1000));
    ON_WAIT.set(None);
    SEEN.take().into_iter().filter(|seen| *seen != Seen::Here).collect()
}

use Seen::{BeforeIpi, Sent, Waited};

/// Every target answers; full queues are emptied.
fn answer(engine: &'static Sys) {
    for cpu in 1..3 {
        match claim(engine, cpu) {
            None => empty(engine, cpu),
            Some(_) => on(cpu, || handle(engine)),
        }
    }
}

#[test]
fn full_queue_is_retried_after_the_other_ipis() {
    for off in [false, true] {
        let (engine, space) = three(DESIGN);
        fill(engine, 1);
        let mut looks = 0;
        let seen = flush(engine, space, move |_| {
            looks += 1;
            match looks {
                1 => {}
                2 if off => on(1, || engine.cpu_offline()),
                2 => empty(engine, 1),
                _ => (1..3).for_each(|cpu| on(cpu, || handle(engine))),
            }
        });
        let before = [BeforeIpi, Sent([2].into()), Waited, Waited];
        let after = if off {
            [Waited].as_slice()
        } else {
            &[BeforeIpi, Sent([1].into()), Waited]
        };
        assert_eq!(seen, [before.as_slice(), after].concat());
        assert!(!engine.cpus[1].queue.has_ready());
    }
}

#[test]
fn full_queue_wait_sends_no_spurious_ipi() {
    let (engine, space) = three(DESIGN);
    fill(engine, 1);
    fill(engine, 2);
    let seen = flush(engine, space, move |_| answer(engine));
    assert_eq!(seen, [Waited, BeforeIpi, Sent([1, 2].into()), Waited]);
}

#[test]
fn queues_that_free_slots_one_after_the_other_get_the_request_once_each() {
    let (engine, space) = three(DESIGN);
    fill(engine, 1);
    fill(engine, 2);
    let mut looks = 0;
    EVENTS.take();
    let seen = flush(engine, space, move |_| {
        looks += 1;
        match looks {
            1 => empty(engine, 1),
            2 => empty(engine, 2),
            _ => (1..3).for_each(|cpu| on(cpu, || handle(engine))),
        }
    });
    let [first, then] = [[1], [2]].map(|cpu| Sent(cpu.into()));
    assert_eq!(seen, [Waited, BeforeIpi, first, Waited, BeforeIpi, then, Waited]);
    let events = EVENTS.take();
    let answers = events.iter().filter(|event| matches!(event, Event::Answered(_)));
    assert_eq!(answers.count(), 2);
    assert!(
        events.contains(&Event::Interrupted { sent: 2, targets: 2 }),
        "{events:?}"
    );
}

#[test]
fn panic_in_send_ipi_after_full_queues_waits_for_the_request() {
    let (engine, space) = three(DESIGN);
    fill(engine, 1);
    fill(engine, 2);
    let mut looks = 0;
    SEEN.take();
    ON_WAIT.set(Some(Box::new(move |_| {
        looks += 1;
        match looks {
            1 => {
                (1..3).for_each(|cpu| empty(engine, cpu));
                FAILS.set(true);
            }
            2 => {}
            _ => (1..3).for_each(|cpu| on(cpu, || handle(engine))),
        }
    })));
    let panicked = catch_unwind(AssertUnwindSafe(|| engine.flush(space, Range::page(0x1000)))).is_err();
    ON_WAIT.set(None);
    assert!(panicked);
    let seen: Vec<_> = SEEN.take().into_iter().filter(|seen| *seen != Seen::Here).collect();
    assert_eq!(seen, [Waited, BeforeIpi, Sent([1, 2].into()), Waited, Waited]);
}

#[test]
fn full_queue_with_a_new_free_slot_is_not_waited_for() {
    let (engine, space) = three(DESIGN);
    fill(engine, 1);
    // The second target is checked after the first was found full.
    interleave::after_each(move || {
        if engine.cpus[2].queue.has_ready() && !engine.cpus[1].queue.has_ready() {
            empty(engine, 1);
            return true;
        }
        false
    });
    let seen = flush(engine, space, move |_| answer(engine));
    let [first, then] = [[2], [1]].map(|cpu| Sent(cpu.into()));
    assert_eq!(seen, [BeforeIpi, first, BeforeIpi, then, Waited]);
}

#[test]
fn slot_wait_serves_requests_unless_the_handler_does() {
    for wait in [Wait::SpinServing, Wait::Spin] {
        let (engine, space) = three(Policy { wait, ..DESIGN });
        fill(engine, 1);
        let asked = Box::leak(Box::new(Request::<World>::sending()));
        asked.write(&Asked::CATCH_UP.encode(0, &Range::WHOLE), 0, 0);
        let asked: &'static Request<World> = asked;
        assert_eq!(engine.cpus[0].queue.put(1, asked), Some((1, true)));
        asked.sent(1);
        let seen = flush(engine, space, move |round| {
            if asked.is_complete() || wait == Wait::Spin && round > 1 {
                answer(engine);
            }
        });
        assert_eq!(asked.is_complete(), wait == Wait::SpinServing);
        assert!(seen.len() < 10, "{seen:?}");
    }
}

#[test]
fn target_with_a_ready_request_is_not_interrupted_again() {
    for requests in [Requests::PerRequest, Requests::PerCpu] {
        let (engine, space) = three(Policy { requests, ..DESIGN });
        assert!(put_nothing(engine, 1));
        let seen = flush(engine, space, move |_| {
            (1..3).for_each(|cpu| on(cpu, || handle(engine)))
        });
        assert_eq!(seen, [BeforeIpi, Sent([2].into()), Waited]);
        let both = flush(engine, space, move |_| {
            (1..3).for_each(|cpu| on(cpu, || handle(engine)))
        });
        assert_eq!(both, [BeforeIpi, Sent([1, 2].into()), Waited]);
        for cpu in 1..3 {
            assert!(put_nothing(engine, cpu));
        }
        let alone = flush(engine, space, move |_| {
            (1..3).for_each(|cpu| on(cpu, || handle(engine)))
        });
        assert_eq!(alone, [Waited]);
    }
}

#[test]
fn panic_in_send_ipi_of_a_kernel_flush_unpins_once() {
    let (engine, _space) = three(DESIGN);
    let mut looks = 0;
    ON_WAIT.set(Some(Box::new(move |_| {
        looks += 1;
        if looks > 1 {
            (1..3).for_each(|cpu| on(cpu, || handle(engine)));
        }
    })));
    FAILS.set(true);
    let panicked = catch_unwind(AssertUnwindSafe(|| engine.flush_kernel(Range::page(0x1000)))).is_err();
    ON_WAIT.set(None);
    assert!(panicked);
    assert_eq!(PINS.get(), 0);
}

const LOG: Policy = Policy {
    requests: Requests::Log,
    ..DESIGN
};

#[test]
fn one_of_two_simultaneous_posts_interrupts() {
    for operation in 0..40 {
        let (engine, space) = three(LOG);
        let interrupted = |seen: &[Seen]| {
            seen.iter()
                .filter(|seen| matches!(seen, Sent(to) if to.contains(&1)))
                .count()
        };
        SEEN.take();
        interleave::after(operation, move || {
            let _never_waited_for = on(2, || engine.dispatch(space, Range::page(0x2000)));
        });
        let token = engine.dispatch(space, Range::page(0x1000));
        if !interleave::never() {
            continue;
        }
        let seen = SEEN.take();
        assert_eq!(interrupted(&seen), 1, "{seen:?} at operation {operation}");
        assert!(!seen.contains(&Sent([].into())));
        ON_WAIT.set(Some(Box::new(move |_| {
            (1..3).for_each(|cpu| on(cpu, || handle(engine)))
        })));
        let _done = token.wait();
        ON_WAIT.set(None);
    }
}

#[test]
fn existing_post_saves_the_write_and_the_ipi() {
    let (engine, space) = three(LOG);
    for cpu in 1..3 {
        engine.cpus[cpu].post.fetch_or_full(POSTED);
    }
    let writes = || (1..3).map(|cpu| engine.cpus[cpu].post.writes()).sum::<u32>();
    let before = writes();
    SEEN.take();
    let token = engine.dispatch(space, Range::page(0x1000));
    assert_eq!((writes(), SEEN.take()), (before, [Seen::Here].into()));
    ON_WAIT.set(Some(Box::new(move |_| {
        (1..3).for_each(|cpu| on(cpu, || handle(engine)))
    })));
    let _done = token.wait();
    ON_WAIT.set(None);
}

fn wait(token: Token<'_, '_, World, 1>, on_wait: impl FnMut(u32) + 'static) -> Vec<Seen> {
    SEEN.take();
    ON_WAIT.set(Some(Box::new(on_wait)));
    let _done = token.wait();
    ON_WAIT.set(None);
    SEEN.take().into_iter().filter(|seen| *seen != Seen::Here).collect()
}

#[test]
fn ipi_precedes_the_local_flush_unless_serial() {
    for requests in [Requests::Log, Requests::PerRequest] {
        for order in [Order::Serial, Order::Concurrent] {
            let (engine, space) = three(Policy {
                requests,
                order,
                ..DESIGN
            });
            SEEN.take();
            ON_WAIT.set(Some(Box::new(|_| all_answer(engine))));
            let _done = engine.flush(space, Range::page(0x1000));
            ON_WAIT.set(None);
            let seen = SEEN.take();
            let asked = seen
                .iter()
                .position(|seen| *seen == Sent([1, 2].into()))
                .expect("both are");
            let here = seen.iter().position(|seen| *seen == Seen::Here).expect("it is");
            assert_eq!(here < asked, order == Order::Serial, "{seen:?}");
        }
    }
}

#[test]
fn waiter_under_wait_spin_leaves_requests_to_the_handler() {
    for wait in [Wait::Spin, Wait::SpinServing] {
        for requests in [Requests::Log, Requests::PerRequest] {
            let (engine, space) = three(Policy {
                wait,
                requests,
                ..DESIGN
            });
            let queue = &engine.cpus[0].queue;
            put_nothing(engine, 0);
            let seen = flush(engine, space, move |round| {
                assert_eq!(queue.has_ready(), wait == Wait::Spin);
                if round == 3 {
                    all_answer(engine);
                }
            });
            assert_eq!(seen, [BeforeIpi, Sent([1, 2].into()), Waited, Waited, Waited]);
        }
    }
}

#[test]
fn waiter_answered_while_serving_stops_polling() {
    let (engine, space) = three(DESIGN);
    let queue = &engine.cpus[0].queue;
    put_nothing(engine, 0);
    interleave::after_each(move || {
        let serves = !queue.has_ready();
        if serves {
            all_answer(engine);
        }
        serves
    });
    let seen = flush(engine, space, |_| unreachable!("all have answered"));
    assert_eq!(seen, [BeforeIpi, Sent([1, 2].into())]);
}

#[test]
fn late_target_is_reported_once_with_few_clock_reads() {
    for (stuck_ns, clock) in [(10, [100, 109, 110].as_slice()), (0, &[])] {
        for requests in [Requests::Log, Requests::PerRequest] {
            let (engine, space) = three(Policy {
                requests,
                stuck_ns,
                ..DESIGN
            });
            CLOCK.set(clock.iter().rev().copied().collect());
            let seen = flush(engine, space, move |round| {
                if round == 700 {
                    all_answer(engine);
                }
            });
            let is_report = |seen: &&Seen| matches!(seen, Seen::Stuck(_));
            assert_eq!(seen.iter().filter(is_report).count(), usize::from(stuck_ns != 0));
            // The clock is read for the third time.
            let looks = seen.iter().take_while(|seen| !is_report(seen)).count();
            assert!(looks > 512, "reported after {looks} looks");
            assert_eq!(CLOCK.take(), [0_u64; 0]);
        }
    }
}

#[test]
fn queue_that_stays_full_is_reported() {
    let (engine, space) = three(Policy { stuck_ns: 10, ..DESIGN });
    fill(engine, 1);
    // It is late at the third look at the clock.
    CLOCK.set([120, 110, 109, 100].into());
    let mut is_empty = false;
    let seen = flush(engine, space, move |round| {
        is_empty |= round == 700;
        if is_empty {
            answer(engine);
        }
    });
    let (wait, rest) = seen.split_at(seen.iter().rposition(|seen| *seen == BeforeIpi).expect("it has a slot"));
    assert_eq!(wait.iter().filter(|seen| **seen == Seen::Stuck(1)).count(), 1);
    assert_eq!(rest, [BeforeIpi, Sent([1].into()), Waited]);
}

#[test]
fn each_of_many_targets_is_waited_for() {
    // More than the tickets that a token stores.
    const CPUS: usize = 20;
    for late in 1..CPUS {
        let (engine, space) = many(LOG, CPUS);
        let token = engine.dispatch(space, Range::page(0x1000));
        let answer = move |round| {
            (1..CPUS)
                .filter(|&cpu| cpu != late || round > 1)
                .for_each(|cpu| on(cpu, || handle(engine)));
        };
        answer(1);
        assert_eq!(wait(token, move |_| answer(2)), [Waited], "CPU {late} had not answered");
        let token = engine.dispatch(space, Range::page(0x2000));
        all_answer(engine);
        assert_eq!(wait(token, |_| unreachable!("all have answered")), []);
    }
}

#[test]
fn preemptible_wait_is_not_pinned() {
    for (wait_by, pins) in [(Wait::SpinServing, 1), (Wait::PreemptibleServing, 0)] {
        for requests in [Requests::Log, Requests::PerRequest] {
            let design = Policy {
                requests,
                wait: wait_by,
                ..DESIGN
            };
            let (engine, space) = three(design);
            let seen = flush(engine, space, move |_| {
                assert_eq!(PINS.get(), pins, "{wait_by:?}");
                all_answer(engine);
            });
            assert_eq!((seen.len(), PINS.get()), (3, 0));
        }
    }
}

#[test]
fn target_going_offline_during_a_request_is_not_waited_for() {
    for requests in [Requests::Log, Requests::PerRequest, Requests::PerCpu] {
        for operation in 0..80 {
            let (engine, space) = three(Policy { requests, ..DESIGN });
            interleave::after(operation, move || on(1, || engine.cpu_offline()));
            flush(engine, space, |_| on(2, || handle(engine)));
            if !interleave::never() {
                on(1, || engine.cpu_offline());
            }
            // Nothing from before is in its way when it is back.
            // SAFETY: the space is leaked.
            on(1, || unsafe {
                engine.cpu_online();
                engine.switch_to(space);
            });
            let seen = flush(engine, space, move |_| all_answer(engine));
            assert_eq!(
                seen,
                [BeforeIpi, Sent([1, 2].into()), Waited],
                "off at operation {operation}"
            );
        }
    }
}
