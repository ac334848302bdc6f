//! Trace text.

use shootdown_trace::program::Program;
use shootdown_trace::{Summary, text};

pub(crate) fn check(bytes: &[u8]) {
    let (mut summary, mut program) = (Summary::default(), Program::default());
    let (mut events, mut steps, mut latest) = (0_u64, 0_u64, 0);
    let metadata = text::read(bytes, |event| {
        assert!(event.time_ns >= latest, "events are in order");
        latest = event.time_ns;
        events += 1;
        summary.add(event);
        program.add(event, &mut |_| steps += 1);
        Ok(())
    });
    let Ok(metadata) = metadata else { return };
    let lines = bytes.iter().filter(|&&byte| byte == b'\n').count() as u64 + 1;
    assert!(metadata.damage.lines <= lines);
    assert!(
        events + metadata.damage.skipped() <= metadata.damage.lines,
        "no line is both an event and damage"
    );
    let _recorded = program.finish(&mut |_| steps += 1);
    assert!(summary.seconds() >= 0.0);
}
