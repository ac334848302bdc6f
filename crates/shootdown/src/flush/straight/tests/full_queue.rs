//! The common flush where the queue of its one target is full.

use super::running;
use crate::hooks::Event;
use crate::range::Range;
use crate::testing::mock_kernel::{DESIGN, EVENTS, FAILS, ON_WAIT, PINS, SEEN, Seen, Sys, all_answer, on};
use crate::transport::request::TAKEN_BACK;
use std::boxed::Box;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::vec::Vec;

use Seen::{BeforeIpi, Here, Sent, Waited};

/// Other CPUs hold every slot of the queue of CPU 1.
fn fill(engine: &Sys) {
    while engine.cpus[1].queue.claim(1, TAKEN_BACK).is_some() {}
}

/// They publish them, and CPU 1 takes all.
fn empty(engine: &Sys) {
    let queue = &engine.cpus[1].queue;
    (0..64).for_each(|slot| {
        queue.publish_slot(slot);
    });
    let mut ready = queue.take();
    while queue.next(&mut ready).is_some() {}
}

#[test]
fn full_queue_is_waited_for_until_a_slot_is_free_or_the_cpu_is_offline() {
    for off in [false, true] {
        let (engine, space) = running(DESIGN, 2);
        fill(engine);
        SEEN.take();
        EVENTS.take();
        let mut full = true;
        ON_WAIT.set(Some(Box::new(move |_| match core::mem::take(&mut full) {
            true if off => on(1, || engine.cpu_offline()),
            true => empty(engine),
            false => all_answer(engine),
        })));
        let _done = engine.flush(space, Range::page(0x1000));
        ON_WAIT.set(None);
        let seen: Vec<_> = SEEN.take().into_iter().filter(|seen| *seen != Here).collect();
        let interrupted: &[Seen] = if off {
            &[Waited]
        } else {
            &[Waited, BeforeIpi, Sent([1].into()), Waited]
        };
        assert_eq!(seen, interrupted);
        let sent = EVENTS.take().into_iter().find_map(|event| match event {
            Event::Interrupted { sent, .. } => Some(sent),
            _ => None,
        });
        assert_eq!(sent, Some(u32::from(!off)));
        assert_eq!(PINS.get(), 0);
        assert!(!engine.cpus[0].own.sending.is_set());
    }
}

#[test]
fn panic_in_send_ipi_after_a_full_queue_waits_for_the_stack_request() {
    let (engine, space) = running(DESIGN, 2);
    fill(engine);
    SEEN.take();
    let mut looks = 0;
    ON_WAIT.set(Some(Box::new(move |_| {
        looks += 1;
        match looks {
            1 => {
                empty(engine);
                FAILS.set(true);
            }
            2 => {}
            _ => all_answer(engine),
        }
    })));
    let panicked = catch_unwind(AssertUnwindSafe(|| engine.flush(space, Range::page(0x1000)))).is_err();
    ON_WAIT.set(None);
    assert!(panicked);
    assert_eq!(
        SEEN.take(),
        [Here, Waited, BeforeIpi, Sent([1].into()), Waited, Waited, Here]
    );
}
