//! What a CPU that comes online answers.

use super::*;

#[test]
fn a_cpu_that_comes_online_answers_when_it_has_flushed_everything() {
    let design = Design {
        requests: Requests::Log,
        ..DESIGN
    };
    let (engine, _) = three(design);
    on(1, || engine.cpu_offline());
    // Its requester found it on before it went off, or has just found it on again.
    let mut asked = CpuMask::EMPTY;
    asked.insert(1);
    on(0, || engine.post(&mut engine.token(0, 0), asked));
    let answers = || engine.cpus[1].served.0.load(Ordering::Relaxed);
    let before = answers();
    SEEN.take();
    meddled::after_each(move || {
        let flushed = SEEN.with_borrow(|seen| seen.contains(&Seen::Here));
        assert!(flushed || answers() == before, "it has answered, and has not flushed");
        flushed
    });
    on(1, || engine.cpu_online());
    assert!(meddled::never(), "it has flushed");
    assert_eq!(answers(), before + 1);
}
