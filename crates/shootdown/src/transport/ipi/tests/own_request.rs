//! The descriptor of a CPU, and requesters that take turns there.

use super::*;

/// A waiter is preempted, and another thread asks.
const TAKE_TURNS: Policy = Policy {
    requests: Requests::PerCpu,
    wait: Wait::PreemptibleServing,
    ..DESIGN
};

#[test]
fn a_descriptor_that_is_waited_for_is_not_used_by_whoever_asks_next_on_the_same_cpu() {
    let (engine, space) = three(TAKE_TURNS);
    let own = &engine.cpus[0].request;
    let mut again = true;
    flush(engine, space, move |_| {
        if !core::mem::take(&mut again) {
            return all_answer(engine);
        }
        // The thread that waits is preempted by one that flushes as well.
        let asked = own.ask();
        ON_WAIT.set(Some(Box::new(move |_| {
            assert!(!own.is_complete());
            assert_eq!(own.ask(), asked, "nobody has answered yet");
            all_answer(engine);
        })));
        let _done = engine.flush(space, Range::page(0x2000));
    });
    assert!(own.is_idle());
}

#[test]
fn a_descriptor_whose_waiter_has_not_looked_yet_is_not_used_by_whoever_asks_next() {
    let (engine, space) = three(TAKE_TURNS);
    let own = &engine.cpus[0].request;
    flush(engine, space, move |_| {
        all_answer(engine);
        // It is over, but the waiter is preempted before it sees that, by one that has to wait for long.
        assert!(own.is_complete());
        ON_WAIT.set(Some(Box::new(move |_| {
            assert!(own.is_complete(), "or the first would wait for the second's answers");
            all_answer(engine);
        })));
        let _done = engine.flush(space, Range::page(0x2000));
    });
    assert!(own.is_idle());
}
