//! An interrupt handler that also flushes interrupts a requester; a requester whose send fails.

use super::*;
use crate::testing::mock_kernel::{FAILS, MASKED};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// CPUs that were sent an interrupt since the last call take it.
fn deliver(engine: &Sys) {
    for seen in SEEN.take() {
        if let Sent(cpus) = seen {
            cpus.iter().for_each(|&cpu| on(cpu, || handle(engine)));
        }
    }
}

#[test]
fn nested_requester_does_not_rely_on_the_interrupted_ones_ipi() {
    for requests in [Requests::Log, Requests::PerRequest, Requests::PerCpu] {
        let mut came_in = 0;
        for operation in 0.. {
            let (engine, space) = three(Policy { requests, ..DESIGN });
            let comes: &'static core::cell::Cell<u32> = Box::leak(Box::default());
            interleave::after(operation, move || {
                if !MASKED.get() {
                    comes.set(1);
                    let _done = engine.flush(space, Range::page(0x2000));
                }
            });
            flush(engine, space, move |_| deliver(engine));
            if !interleave::never() {
                break;
            }
            came_in += comes.get();
            assert!(!engine.cpus[0].own.sending.is_set());
        }
        assert!(came_in > 5, "{came_in} times, {requests:?}");
    }
}

#[test]
fn failed_send_waits_for_the_stack_request() {
    for requests in [Requests::PerRequest, Requests::PerCpu] {
        let (engine, space) = three(Policy { requests, ..DESIGN });
        ON_WAIT.set(Some(Box::new(|_| all_answer(engine))));
        FAILS.set(true);
        assert!(catch_unwind(AssertUnwindSafe(|| engine.flush(space, Range::page(0x1000)))).is_err());
        ON_WAIT.set(None);
        assert!(
            (1..3).all(|cpu| !engine.cpus[cpu].queue.has_ready()),
            "all have answered"
        );
        // And the next flush is like any other.
        flush(engine, space, |_| all_answer(engine));
    }
}
