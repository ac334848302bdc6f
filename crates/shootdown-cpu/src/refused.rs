//! When the firmware refuses a broadcast.

use core::sync::atomic::Ordering;
use shootdown::{Facade, Word};

/// A broadcast was refused: nothing has been flushed. The number is the firmware's error (SBI), below 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refused(pub i64);

/// Flushes every CPU by the kernel's own interrupts, after a broadcast was refused.
///
/// Independent of the engine's requests, because the engine is in the middle of one. The kernel's handler of the
/// shootdown interrupt calls [`serve`](Self::serve) before `Engine::on_ipi`.
pub struct FlushByIpi<F: Facade, const CPUS: usize> {
    /// How many flushes were requested of each CPU, and up to which it has flushed.
    requested: [F::U64; CPUS],
    done: [F::U64; CPUS],
}

impl<F: Facade, const CPUS: usize> FlushByIpi<F, CPUS> {
    /// No flush requested.
    pub fn new() -> Self {
        FlushByIpi {
            requested: core::array::from_fn(|_| Word::new(0)),
            done: core::array::from_fn(|_| Word::new(0)),
        }
    }

    /// Makes `others`, which are online, flush everything, and waits for them. `send` raises the shootdown interrupt on
    /// them; `flush` flushes everything on this CPU and waits for completion. Pinned. Serves requests to `me`
    /// meanwhile, so two CPUs that wait for each other with interrupts off both proceed.
    pub fn everywhere(
        &self,
        me: usize,
        others: impl Iterator<Item = usize> + Clone,
        send: impl FnOnce(),
        flush: impl Fn(),
    ) {
        let mut tickets = [0; CPUS];
        for other in others.clone() {
            // Full barrier. Pairs with the load in `serve`: if it sees this increment, it sees the earlier entry
            // writes.
            tickets[other] = self.requested[other].fetch_add_full(1) + 1;
        }
        F::before_ipi();
        send();
        flush();
        F::wait_until(|| {
            self.serve(me, &flush);
            // Acquire: the flush there precedes everything that follows here.
            let is_done = |other: usize| self.done[other].load(Ordering::Acquire) >= tickets[other];
            others.clone().all(is_done)
        });
    }

    /// Flushes by `flush` if that was requested of `me`, which is this CPU. Interrupts are off.
    pub fn serve(&self, me: usize, flush: impl Fn()) {
        let requested = self.requested[me].load(Ordering::Acquire);
        if requested != self.done[me].load(Ordering::Relaxed) {
            flush();
            // Release: pairs with the acquire in `everywhere`.
            self.done[me].store(requested, Ordering::Release);
        }
    }
}

impl<F: Facade, const CPUS: usize> Default for FlushByIpi<F, CPUS> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shootdown::Native;
    use std::sync::atomic::AtomicU64;

    #[test]
    fn mutual_flushes_by_ipi_both_complete_and_wait() {
        const ROUNDS: u64 = 2000;
        let (by_ipi, flushes) = (FlushByIpi::<Native, 2>::new(), [AtomicU64::new(0), AtomicU64::new(0)]);
        let run = |me: usize| {
            for round in 0..ROUNDS {
                let before = flushes[1 - me].load(Ordering::Relaxed);
                let flush = || {
                    flushes[me].fetch_add(1, Ordering::Relaxed);
                };
                // No CPU is interrupted: each serves while it waits.
                by_ipi.everywhere(me, [1 - me].into_iter(), || {}, flush);
                assert!(flushes[1 - me].load(Ordering::Relaxed) > before, "round {round}");
            }
            // The other may have rounds left.
            let flush = || {
                flushes[me].fetch_add(1, Ordering::Relaxed);
            };
            while by_ipi.requested[me].load(Ordering::Relaxed) < ROUNDS {
                by_ipi.serve(me, flush);
                std::thread::yield_now();
            }
            by_ipi.serve(me, flush);
        };
        std::thread::scope(|scope| {
            scope.spawn(|| run(0));
            run(1);
        });
    }

    #[test]
    fn cpu_without_a_request_does_nothing() {
        let by_ipi = FlushByIpi::<Native, 3>::default();
        by_ipi.serve(1, || panic!("not asked"));
        let sent = std::cell::Cell::new(false);
        by_ipi.everywhere(0, core::iter::empty(), || sent.set(true), || {});
        assert!(sent.get());
    }
}
