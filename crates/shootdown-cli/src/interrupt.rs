//! Ctrl-C: a flag that runs look at, so that they are abandoned and files are left whole.

use std::sync::atomic::{AtomicBool, Ordering};

static STOP: AtomicBool = AtomicBool::new(false);

/// Installs the handler for Ctrl-C (and SIGTERM, SIGHUP) and returns the flag that it sets.
///
/// Where no handler can be installed the signal keeps its default effect, which leaves no half-written file either:
/// files only get their name once they are complete.
pub fn install() -> &'static AtomicBool {
    // Relaxed: the flag carries no other data.
    let _ = ctrlc::set_handler(|| STOP.store(true, Ordering::Relaxed));
    &STOP
}
