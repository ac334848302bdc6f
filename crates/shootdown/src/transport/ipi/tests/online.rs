//! The requests that a CPU answers when it comes online.

use super::*;
use crate::testing::mock_kernel::AFTER_IPI;

#[test]
fn cpu_coming_online_answers_after_flushing_everything() {
    let design = Policy {
        requests: Requests::Log,
        ..DESIGN
    };
    let (engine, _) = three(design);
    on(1, || engine.cpu_offline());
    // Its requester found it online before it went offline, or has just found it online again.
    let mut asked = CpuMask::EMPTY;
    asked.insert(1);
    on(0, || {
        let token = engine.token(0, 0);
        token.targets.set(asked);
        engine.post(&token, 0);
    });
    let answers = || engine.cpus[1].served.0.load(Ordering::Relaxed);
    let before = answers();
    SEEN.take();
    interleave::after_each(move || {
        let flushed = SEEN.with_borrow(|seen| seen.contains(&Seen::Here));
        assert!(flushed || answers() == before, "it has answered, and has not flushed");
        flushed
    });
    on(1, || engine.cpu_online());
    assert!(interleave::never(), "it has flushed");
    assert_eq!(answers(), before + 1);
}

#[test]
fn cpu_going_offline_serves_requests_before_its_kernel_mapping_is_stale() {
    let (engine, _) = three(DESIGN);
    let request: &'static Request<World> = Box::leak(Box::new(Request::sending()));
    request.write(&Asked::CATCH_UP.encode(0, &Range::WHOLE), 0, 0);
    assert!(engine.cpus[1].queue.put(0, request).is_some());
    request.sent(1);
    SEEN.take();
    // Before the last operation, which is the answer: whether the answer had been given, and whether anything had been
    // invalidated.
    let last: &'static core::cell::Cell<(bool, bool)> = Box::leak(Box::default());
    interleave::after_each(move || {
        let here = SEEN.with_borrow(|seen| seen.contains(&Seen::Here));
        last.set((request.is_complete(), here));
        false
    });
    on(1, || engine.cpu_offline());
    interleave::never();
    assert!(request.is_complete());
    assert_eq!(
        last.get(),
        (false, true),
        "it uses what a flush of kernel addresses did not wait for"
    );
    // Without a request nothing is flushed.
    SEEN.take();
    on(2, || engine.cpu_offline());
    assert_eq!(SEEN.take(), []);
}

#[test]
fn handler_acknowledges_its_interrupt_before_reading_requests() {
    let (engine, _) = three(DESIGN);
    let acknowledged: &'static core::cell::Cell<Option<u32>> = Box::leak(Box::default());
    let before = AFTER_IPI.get();
    interleave::after(0, move || acknowledged.set(Some(AFTER_IPI.get())));
    handle(engine);
    assert!(interleave::never());
    assert_eq!(acknowledged.get(), Some(before + 1));
}
