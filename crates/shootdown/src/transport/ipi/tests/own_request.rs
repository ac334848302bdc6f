//! The descriptor of a CPU, and requesters that use it in turn.

use super::*;
use crate::hooks::Event;
use crate::testing::mock_kernel::{EVENTS, MASKED};
use crate::transport::request::DecodedRequest;

/// A waiter may be preempted, and another thread may send a request.
const TAKE_TURNS: Policy = Policy {
    requests: Requests::PerCpu,
    wait: Wait::PreemptibleServing,
    ..DESIGN
};

#[test]
fn descriptor_in_use_is_not_reused_after_preemption() {
    let (engine, space) = three(TAKE_TURNS);
    let own = &engine.cpus[0].request.0;
    let mut again = true;
    flush(engine, space, move |_| {
        if !core::mem::take(&mut again) {
            return all_answer(engine);
        }
        // The waiting thread is preempted by one that flushes as well.
        let asked = own.decode();
        ON_WAIT.set(Some(Box::new(move |_| {
            assert!(!own.is_complete());
            assert_eq!(own.decode(), asked, "no target has answered yet");
            all_answer(engine);
        })));
        let _done = engine.flush(space, Range::page(0x2000));
    });
    assert!(own.is_idle());
}

#[test]
fn completed_descriptor_is_not_reused_before_its_waiter_returns() {
    let (engine, space) = three(TAKE_TURNS);
    let own = &engine.cpus[0].request.0;
    flush(engine, space, move |_| {
        all_answer(engine);
        // It is complete, but before the waiter sees that it is preempted by a thread that has to wait for long.
        assert!(own.is_complete());
        ON_WAIT.set(Some(Box::new(move |_| {
            assert!(own.is_complete(), "or the first would wait for the second's answers");
            all_answer(engine);
        })));
        let _done = engine.flush(space, Range::page(0x2000));
    });
    assert!(own.is_idle());
}

#[test]
fn nested_request_leaves_the_interrupted_descriptor_unchanged() {
    let mut came_in = 0;
    for operation in 0.. {
        let (engine, space) = three(TAKE_TURNS);
        let own = &engine.cpus[0].request.0;
        let comes: &'static core::cell::Cell<u32> = Box::leak(Box::default());
        interleave::after(operation, move || {
            if !MASKED.get() {
                comes.set(1);
                let waits = ON_WAIT.replace(Some(Box::new(move |_| all_answer(engine))));
                let _done = engine.flush(space, Range::page(0x2000));
                ON_WAIT.set(waits);
            }
        });
        let mut first = true;
        flush(engine, space, move |_| {
            if core::mem::take(&mut first) {
                let (DecodedRequest::Space { range, .. }, ..) = own.decode() else {
                    panic!("{:?}", own.decode());
                };
                assert_eq!(range, Range::page(0x1000), "it came in before operation {operation}");
            }
            all_answer(engine);
        });
        if !interleave::never() {
            break;
        }
        came_in += comes.get();
    }
    assert!(came_in > 5, "{came_in} times");
}

#[test]
fn interrupted_event_counts_ipis_and_targets() {
    let (engine, space) = three(TAKE_TURNS);
    put_nothing(engine, 2);
    EVENTS.take();
    flush(engine, space, move |_| all_answer(engine));
    let interrupted = Event::Interrupted { sent: 1, targets: 2 };
    assert!(
        EVENTS.take().contains(&interrupted),
        "another requester has interrupted CPU 2"
    );
}
