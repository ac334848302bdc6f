//! Serving without an interrupt: a CPU spins with interrupts off for a lock that a flushing CPU holds.

use crate::cpu::state::POSTED;
use crate::design::{Design, Policy, Requests, Wait, Walkers};
use crate::facade::Word;
use crate::flush::token::KERNEL;
use crate::range::Range;
use crate::stuck::Stuck;
use crate::testing::interleave;
use crate::testing::mock_kernel::{
    CLOCK, DESIGN, InWorld, ON_WAIT, REPORTED, SAYS_OFF, SEEN, Seen, Sys, World, all_answer, handle, many, on,
};
use crate::transport::request::{Asked, Request};
use core::sync::atomic::Ordering;
use std::boxed::Box;
use std::vec::Vec;

const STACK: Policy = Policy { stuck_ns: 10, ..DESIGN };

const LOG: Policy = Policy {
    requests: Requests::Log,
    ..STACK
};

/// CPU 0 holds a lock and flushes. CPU 1 spins for the lock with interrupts off, and runs `spin` in each round. Returns
/// the hook calls recorded until the flush ends, or an error if it never does.
fn flush_under_a_lock(design: impl Into<Design>, mut spin: impl FnMut(&Sys) + 'static) -> Result<Vec<Seen>, String> {
    let (engine, space) = many(design, 2);
    SEEN.take();
    // Each read of the clock is 100 ns after the previous one.
    CLOCK.set((0..100).rev().map(|look| look * 100).collect());
    ON_WAIT.set(Some(Box::new(move |_| on(1, || spin(engine)))));
    let flush = || {
        let _flushed = engine.flush(space, Range::page(0x1000));
    };
    let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(flush));
    ON_WAIT.set(None);
    match ended {
        Ok(()) => Ok(SEEN.take()),
        Err(panic) => Err(panic.downcast_ref::<String>().expect("it waits for ever").clone()),
    }
}

#[test]
fn lock_held_over_a_flush_is_reported_unless_waiters_poll() {
    for design in [STACK, LOG] {
        let hang = flush_under_a_lock(design, |_engine| {}).expect_err("no CPU answers");
        assert!(hang.contains("Stuck(1)"), "{:?}: {hang}", design.requests);
        let seen = flush_under_a_lock(design, |engine| {
            engine.poll();
        });
        let seen = seen.expect("the waiter answers");
        assert!(!seen.contains(&Seen::Stuck(1)), "{:?}: {seen:?}", design.requests);
    }
}

/// What a debug build says of the mask of a CPU that does not answer; a release build knows nothing.
fn mask_of_stuck_target(last_seen: impl FnOnce(&'static Sys, InWorld)) -> Option<bool> {
    let (engine, space) = many(STACK, 2);
    last_seen(engine, space);
    SAYS_OFF.set(false);
    CLOCK.set((0..100).rev().map(|look| look * 100).collect());
    REPORTED.set(None);
    ON_WAIT.set(Some(Box::new(|_| {
        if REPORTED.get().is_some() {
            all_answer(engine);
        }
    })));
    let _flushed = engine.flush(space, Range::page(0x1000));
    ON_WAIT.set(None);
    let report = REPORTED.get().expect("it waited too long");
    assert_eq!((report.waiter, report.target), (0, 1));
    assert_eq!(report.masked.is_some(), cfg!(debug_assertions));
    report.masked
}

#[test]
fn stuck_report_states_whether_target_last_had_interrupts_off() {
    let debug = |off: bool| cfg!(debug_assertions).then_some(off);
    let with_mask = |off: bool, call: &dyn Fn()| {
        SAYS_OFF.set(off);
        on(1, call);
    };
    for off in [false, true] {
        let switched = mask_of_stuck_target(|engine, space| {
            // SAFETY: the space is leaked.
            with_mask(off, &|| unsafe { engine.switch_to(space) });
        });
        let polled = mask_of_stuck_target(|engine, _| {
            with_mask(off, &|| {
                engine.poll();
            });
        });
        assert_eq!([switched, polled], [debug(off); 2]);
    }
    let interrupted = mask_of_stuck_target(|engine, _| {
        with_mask(true, &|| {
            engine.poll();
            handle(engine);
        });
    });
    assert_eq!(interrupted, debug(false), "it has taken an interrupt since");
}

#[test]
fn walker_counts_as_masked_until_its_walk_ends() {
    let policy = Policy {
        walkers: Walkers::Precise,
        ..STACK
    };
    let (engine, space) = many(policy, 2);
    let mask = || engine.cpus[1].own.mask_seen.get();
    let walk = on(1, || engine.walk(space));
    assert_eq!(mask(), cfg!(debug_assertions).then_some(true));
    on(1, || drop(walk));
    assert_eq!(mask(), cfg!(debug_assertions).then_some(false));
}

#[test]
fn stuck_text_names_the_remedy_for_a_masked_target() {
    let report = |masked| Stuck {
        waiter: 0,
        target: 3,
        space: 7,
        generation: 9,
        masked,
    };
    let text = std::format!("{}", report(None));
    assert_eq!(text, "CPU 3 has not answered CPU 0 (space 7, generation 9)");
    assert!(std::format!("{}", report(Some(true))).starts_with(&text));
    assert!(std::format!("{}", report(Some(true))).contains("`poll`"));
    assert!(std::format!("{}", report(Some(false))).contains("interrupts on"));
}

#[test]
fn poll_returns_whether_it_served_a_request() {
    let (engine, space) = many(LOG, 2);
    assert!(!on(1, || engine.poll()));
    let token = engine.dispatch(space, Range::page(0x1000));
    assert!(on(1, || engine.poll()));
    assert!(!on(1, || engine.poll()));
    let _flushed = token.wait();
}

#[test]
fn poll_inside_a_walk_serves_nothing() {
    let (engine, space) = many(
        Policy {
            walkers: Walkers::Precise,
            ..LOG
        },
        2,
    );
    let walk = on(1, || engine.walk(space));
    let token = engine.dispatch(space, Range::page(0x1000));
    assert!(!on(1, || engine.poll()), "the answer would say that the walk has ended");
    on(1, || drop(walk));
    assert!(on(1, || engine.poll()));
    let _flushed = token.wait();
}

#[test]
fn poll_on_an_offline_cpu_serves_nothing() {
    let (engine, _) = many(LOG, 2);
    on(1, || engine.cpu_offline());
    assert!(!on(1, || engine.poll()));
    // As if a requester had read the state before this CPU went offline.
    engine.cpus[1].post.fetch_or_full(POSTED);
    assert!(!on(1, || engine.poll()));
    assert_ne!(
        engine.cpus[1].post.load(Ordering::Relaxed) & POSTED,
        0,
        "left for cpu_online"
    );
}

#[test]
fn token_poll_is_true_once_every_target_answered() {
    let (engine, space) = many(LOG, 3);
    for of_kernel in [false, true] {
        let token = match of_kernel {
            false => engine.dispatch(space, Range::page(0x1000)),
            true => engine.dispatch_kernel(Range::page(0xffff_8000_0000_0000)),
        };
        assert!(!token.poll() && !token.needs_no_wait());
        on(1, || engine.poll());
        assert!(!token.poll(), "CPU 2 has not answered");
        on(2, || engine.poll());
        assert!(token.poll());
        let _flushed = token.wait();
    }
}

#[test]
fn dispatched_kernel_flush_records_whether_it_covers_tables() {
    let (engine, _) = many(LOG, 1);
    let range = Range::page(0xffff_8000_0000_0000);
    for (range, tables) in [(range, false), (range.with_tables(), true)] {
        assert_eq!(engine.dispatch_kernel(range).wait().covers_tables_of(KERNEL), tables);
    }
}

#[test]
fn token_poll_serves_nothing_under_wait_spin() {
    let (engine, space) = many(
        Policy {
            wait: Wait::Spin,
            ..LOG
        },
        2,
    );
    let own = engine.dispatch(space, Range::page(0x1000));
    let of_another = on(1, || engine.dispatch(space, Range::page(0x2000)));
    assert!(!own.poll() && !of_another.poll(), "the interrupt has not come");
    on(0, || engine.poll());
    on(1, || engine.poll());
    let (_own, _other) = (own.wait(), of_another.wait());
}

#[test]
fn token_poll_serves_requests_to_this_cpu() {
    let (engine, space) = many(LOG, 2);
    let own = engine.dispatch(space, Range::page(0x1000));
    let of_another = on(1, || engine.dispatch(space, Range::page(0x2000)));
    assert!(!own.poll());
    assert!(of_another.poll(), "CPU 0 served it while it polled");
    on(1, || engine.poll());
    let (_own, _other) = (own.wait(), of_another.wait());
}

/// A debug build panics. A release build does not answer, because an answer would say that the walk has ended.
#[test]
fn wait_inside_a_walk_answers_nothing() {
    let (engine, space) = many(
        Policy {
            walkers: Walkers::Precise,
            ..LOG
        },
        2,
    );
    let own = engine.dispatch(space, Range::page(0x1000));
    let of_another = on(1, || engine.dispatch(space, Range::page(0x2000)));
    let walk = engine.walk(space);
    let polled = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| own.poll()));
    assert_eq!(polled.is_err(), cfg!(debug_assertions));
    drop(walk);
    assert!(!on(1, || of_another.poll()), "CPU 0 has not answered");
    engine.poll();
    on(1, || engine.poll());
    let (_own, _other) = (own.wait(), of_another.wait());
}

#[test]
fn target_has_ended_its_walks_when_it_answers() {
    let (engine, space) = many(
        Policy {
            walkers: Walkers::Sticky,
            ..DESIGN
        },
        2,
    );
    on(1, || drop(engine.walk(space)));
    let request: &'static Request<World> = Box::leak(Box::new(Request::sending()));
    let address = core::ptr::from_ref(space).expose_provenance() as u64;
    request.write(&Asked::END_WALKS.encode(0, &Range::WHOLE), address, 0);
    assert!(engine.cpus[1].queue.put(0, request).is_some());
    request.sent(1);
    interleave::after_each(move || {
        let registered = space.walkers.contains(1);
        assert!(!registered || !request.is_complete(), "the space may be gone");
        false
    });
    on(1, || handle(engine));
    interleave::never();
    assert!(request.is_complete() && !space.walkers.contains(1));
}
