//! A flush of a recorded program, reproduced with its range and whether page-table pages were freed.

use super::System;
use super::category::{self, Category};
use super::process::{PAGE, Process};
use shootdown::Range;

impl<const W: usize> System<W> {
    /// A system call of the running thread that withdraws the page at `va`, and flushes `range`, which contains it.
    /// Without the address-space lock: the recorded thread had already waited for it.
    pub fn flush_as_recorded(&self, process: &Process<W>, va: u64, range: Range) {
        let outer = category::enter(Category::Kernel);
        let entered = self.enter_kernel(process, 0, self.costs.syscall);
        let (frames, _) = self.clear(process, va & !(PAGE - 1), 1);
        self.flush(process, range);
        self.free_frames(frames);
        self.leave_kernel(process, entered);
        category::leave(outer);
    }

    /// A kernel thread withdraws the page at `va` of a space that it does not run in, and flushes `range`, which
    /// contains it.
    pub fn flush_for_kernel(&self, process: &Process<W>, va: u64, range: Range) {
        let outer = category::enter(Category::Kernel);
        let (frames, _) = self.clear(process, va & !(PAGE - 1), 1);
        self.flush(process, range);
        self.free_frames(frames);
        category::leave(outer);
    }
}
