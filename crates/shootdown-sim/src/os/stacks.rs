//! Interrupt stacks: one on each CPU, which suffices if handlers keep interrupts off (regression 29). For builds with
//! known bugs.

use std::cell::Cell;

/// The interrupt stacks of the CPUs: each has room for one handler, which suffices if handlers keep interrupts off.
pub(super) struct Stacks(Vec<Cell<bool>>);

/// A handler on such a stack.
pub(super) struct Frame<'a>(&'a Cell<bool>);

impl Stacks {
    pub(super) fn new(cpus: usize) -> Self {
        Stacks(vec![Cell::new(false); cpus])
    }

    /// A handler begins on `cpu`, and ends when the returned value is dropped.
    ///
    /// # Panics
    /// When there is no room.
    pub(super) fn push(&self, cpu: usize) -> Frame<'_> {
        let full = self.0[cpu].replace(true);
        assert!(
            !full,
            "CPU {cpu} handles an interrupt on top of another: its stack for interrupts overflows"
        );
        Frame(&self.0[cpu])
    }
}

impl Drop for Frame<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}
