//! Waits of a CPU for others: what it does meanwhile, when it reports (C7), and whether it is pinned.

use crate::engine::Engine;
use crate::facade::Facade;
use crate::hooks::Kernel;

/// Polls of a wait are counted from here on. Each 256th reads the clock, not the first: most waits are over by then.
pub(crate) const FIRST_LOOK: u32 = 254;

impl<'k, K: Kernel<W>, const W: usize> Engine<'k, K, W> {
    /// Waits for `done`, serves requests to this CPU, and calls `report` if that takes too long (C7).
    // Inlined: a call would take the common flush 40 instructions (`linux-baseline --only counts`). A copy takes about
    // 300 bytes (`cargo xtask size`), so waits off that path are in functions of their own.
    #[inline(always)]
    pub(crate) fn wait_reporting(&self, report: impl Fn(), done: impl FnMut() -> bool) {
        // A waiter has interrupts either on or off during the whole wait.
        let serves = self.serves_while_waiting();
        self.wait_and(|| serves && self.serve_own(), report, done);
    }

    /// The same deep in a stack: serving takes no frame of its own here (`cargo xtask stack`).
    #[inline(always)]
    pub(crate) fn wait_deep(&self, report: impl Fn(), done: impl FnMut() -> bool) {
        let serves = self.serves_while_waiting();
        self.wait_and(|| serves && self.serve_own_inlined(), report, done);
    }

    /// The same for what other CPUs do with interrupts off and without waiting for a CPU. So the requests to this CPU
    /// can wait too.
    #[inline(always)]
    pub(crate) fn wait_without_serving(&self, report: impl Fn(), done: impl FnMut() -> bool) {
        self.wait_and(|| false, report, done);
    }

    #[inline(always)]
    fn wait_and(&self, serve: impl Fn() -> bool, report: impl Fn(), mut done: impl FnMut() -> bool) {
        let (mut looks, mut deadline) = (FIRST_LOOK, 0);
        K::Facade::wait_until(|| {
            if done() || serve() && done() {
                return true;
            }
            if self.is_overdue(&mut looks, &mut deadline) {
                report();
            }
            false
        });
    }

    /// One poll of a wait that is not over. Returns whether it has taken too long and must be reported (C7): true only
    /// once. Counts the polls in `looks`, from [`FIRST_LOOK`] on, and keeps the deadline, ns, 0 at first.
    // Two arguments: in one structure both would be kept in memory.
    #[inline(always)]
    pub(crate) fn is_overdue(&self, looks: &mut u32, deadline: &mut u64) -> bool {
        let bound = self.policy().stuck_ns;
        *looks = looks.wrapping_add(1);
        bound != 0 && looks.is_multiple_of(256) && self.is_over(deadline, bound)
    }

    /// Whether `deadline`, ns, has passed; true only once. The first call sets it (0 before).
    // Not inlined: a waiter keeps less at hand.
    #[cold]
    #[inline(never)]
    fn is_over(&self, deadline: &mut u64, bound: u64) -> bool {
        let now = self.kernel.now_ns();
        let over = *deadline != 0 && now >= *deadline;
        if over {
            *deadline = u64::MAX;
        } else if *deadline == 0 {
            *deadline = now.saturating_add(bound).max(1);
        }
        over
    }

    /// Pins a wait, if waits spin.
    #[inline]
    pub(crate) fn pin_wait(&self) -> WaitPin<'_, 'k, K, W> {
        if !self.policy().wait.is_preemptible() {
            self.kernel.pin();
        }
        self.still_pinned_wait()
    }

    /// Takes over a pin that was handed over, if waits spin.
    #[inline]
    pub(crate) fn still_pinned_wait(&self) -> WaitPin<'_, 'k, K, W> {
        WaitPin(self)
    }
}

/// Pins a wait if waits spin. It asks the policy again at the end: less is kept at hand during the wait.
pub(crate) struct WaitPin<'e, 'k, K: Kernel<W>, const W: usize>(&'e Engine<'k, K, W>);

impl<K: Kernel<W>, const W: usize> Drop for WaitPin<'_, '_, K, W> {
    #[inline]
    fn drop(&mut self) {
        if !self.0.policy().wait.is_preemptible() {
            self.0.kernel.unpin();
        }
    }
}
