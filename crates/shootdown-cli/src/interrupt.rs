//! Ctrl-C: a flag that runs poll, so that they are abandoned and files are left whole.

use crate::failure::INTERRUPTED;
use std::sync::atomic::{AtomicBool, Ordering};

static STOP: AtomicBool = AtomicBool::new(false);

/// Installs the handler for Ctrl-C (and SIGTERM, SIGHUP) and returns the flag that it sets.
///
/// The second signal ends the program at once, because it may be waiting for input that never comes.
///
/// Where no handler can be installed the signal keeps its default effect, which leaves no half-written file either:
/// files only get their name once they are complete.
pub fn install() -> &'static AtomicBool {
    // Relaxed: the flag carries no other data.
    let _ = ctrlc::set_handler(|| {
        if STOP.swap(true, Ordering::Relaxed) {
            std::process::exit(i32::from(INTERRUPTED));
        }
    });
    &STOP
}
