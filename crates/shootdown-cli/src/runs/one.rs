//! A command's only run: with progress, until it ends or Ctrl-C.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::failure::Failure;
use crate::print::progress::Progress;

/// Runs `run`, and returns its outcome. Its argument takes the fraction that is done, and returns whether to go on.
///
/// # Errors
/// Ctrl-C. The message says that nothing is `shown`.
pub fn one_run<T>(
    stop: &AtomicBool,
    shown: &str,
    run: impl FnOnce(&mut dyn FnMut(f64) -> bool) -> T,
) -> Result<T, Failure> {
    let progress = Progress::new("runs", vec![1.0]);
    let outcome = run(&mut |fraction| {
        progress.update(0, fraction);
        !stop.load(Ordering::Relaxed)
    });
    drop(progress);
    if stop.load(Ordering::Relaxed) {
        return Err(Failure::Suspended(format!(
            "nothing is {shown} before the run ends; a shorter run: --virtual-ms N"
        )));
    }
    Ok(outcome)
}
