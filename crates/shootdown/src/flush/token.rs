//! The token of a dispatched flush, and the wait for it.

use crate::cpu::state::{POSTED, PerCpu};
use crate::cpuset::CpuMask;
use crate::design::Requests;
use crate::engine::Engine;
use crate::facade::{AHEAD, Facade, Word};
use crate::hooks::{CpuId, Kernel, Way};
use crate::transport::room::{Room, TICKETS};
use core::sync::atomic::Ordering;

/// Proof that a flush is complete: C1 holds for everything written before it was dispatched. Frames may be returned to
/// their allocator (C2). Page-table pages may if the flush was [with tables](crate::Range::with_tables) (C3, for
/// processors) and [`Engine::retire_tables`](crate::Engine::retire_tables) finds no lockless walk.
///
/// It names its space, and whether page-table pages were included, so it is not accepted for more than it proves.
#[derive(Debug)]
#[must_use = "frames may only be freed with this proof"]
pub struct Flushed {
    /// The space's id; [`KERNEL`] or [`SEVERAL`].
    space: u64,
    /// Whether the flush was with tables, so lazy CPUs took part.
    tables: bool,
}

/// Id of the kernel's half of the address space in a proof. No space has this id.
pub(crate) const KERNEL: u64 = 0;

/// Id of the spaces of a batch in a proof. No space has this id.
pub(crate) const SEVERAL: u64 = u64::MAX;

impl Flushed {
    /// The caller has done the flush that this proves.
    #[inline]
    pub(crate) const fn new(space: u64, tables: bool) -> Self {
        Flushed { space, tables }
    }

    /// Whether it proves that paging-structure caches hold no pointer to unlinked page-table pages of the space with
    /// this id.
    #[inline]
    pub(crate) fn covers_tables_of(&self, space: u64) -> bool {
        self.tables && self.space == space
    }

    /// Whether it proves a flush of that space.
    #[inline]
    pub(crate) fn covers(&self, space: u64) -> bool {
        self.space == space
    }

    /// Whether it is for more than one space.
    #[inline]
    pub(crate) fn is_of_several(&self) -> bool {
        self.space == SEVERAL
    }
}

/// A flush that was dispatched and must be waited for before anything is freed.
///
/// Nothing remote refers to it: forgetting it leaks nothing and frees nothing, it only loses the proof. It may be
/// waited for later, on another CPU, with preemption on.
///
/// # Example
/// ```
/// # mod stub { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/stub.rs")); }
/// # use stub::*;
/// let engine = start();
/// let space = engine.space(Root(0x2000));
/// // Entries were cleared under the lock of the page table.
/// let token = engine.dispatch(&space, Range::page(0x7000));
/// // The lock is released; other work is done while the targets answer.
/// let flushed = token.wait();
/// drop(flushed); // the frame may be freed
/// ```
#[must_use = "the flush is not complete until it is waited for"]
#[repr(C)]
pub struct Token<'e, 'k, K: Kernel<W>, const W: usize> {
    engine: &'e Engine<'k, K, W>,
    pub(crate) targets: CpuMask<W>,
    /// Targets that were given a ticket, stored or not.
    expected: usize,
    space: u64,
    pub(crate) generation: u64,
    /// Address of the space from whose walker set targets are removed; 0 for none. The requester borrows that space
    /// until it has waited, inside `request`.
    pub(crate) walked: u64,
    /// Address of the space whose set a target leaves if it has left the space; 0 for none. Borrowed like `walked`.
    pub(crate) departed: u64,
    /// Whether its creator waits for it at once, so that a request may wait in the same call.
    pub(crate) at_once: bool,
    /// Whether the flushed range is with tables: for the proof.
    pub(crate) tables: bool,
    /// Number of walkers among the targets, if every walk that could hold a link is included.
    pub(crate) interrupted_walkers: Option<usize>,
    /// Ticket of the secondary TLBs' notifications that must be carried out; 0 for none.
    pub(crate) secondary: u64,
    /// For a timed request: how many CPUs it interrupted, and the nanoseconds spent until then.
    pub(crate) timed: Option<(u64, u64)>,
    /// Tickets of the first targets, in the order of the set; written by [`expect`](Self::expect). For targets beyond
    /// these the waiter accepts a slightly later ticket. Or a request, if that is how the flush is sent. Last, so that
    /// the creation of a token does not write it.
    pub(crate) room: Room<K::Facade>,
}

/// Deadline of a wait.
pub(crate) struct Watchdog {
    looks: u32,
    /// In ns; 0 before it is set.
    deadline: u64,
}

impl Watchdog {
    pub(crate) const fn new() -> Self {
        Watchdog { looks: 0, deadline: 0 }
    }
}

impl<'k, K: Kernel<W>, const W: usize> Engine<'k, K, W> {
    /// A token for a request for the space with this id, 0 if it is for no single space. It has no targets yet.
    pub(crate) fn token<'e>(&'e self, space: u64, generation: u64) -> Token<'e, 'k, K, W> {
        Token {
            engine: self,
            targets: CpuMask::EMPTY,
            room: Room::new(),
            expected: 0,
            space,
            generation,
            walked: 0,
            departed: 0,
            at_once: false,
            tables: false,
            interrupted_walkers: None,
            secondary: 0,
            timed: None,
        }
    }

    /// Waits for `done`, serves requests to this CPU, and reports if that takes too long (C7). `names` returns what the
    /// report names: the waiter, a CPU that it waits for, and the space and the generation, 0 for none. It is called
    /// for a report only, so a waiter keeps nothing at hand for it.
    // Inlined: a call would take the common flush 40 instructions (`linux-baseline --only counts`). A copy takes about
    // 300 bytes (`cargo xtask size`), so waits off that path are in functions of their own.
    #[inline]
    pub(crate) fn wait_reporting(
        &self,
        names: impl Fn() -> (CpuId, CpuId, (u64, u64)),
        mut done: impl FnMut() -> bool,
    ) {
        // A waiter has interrupts either on or off during the whole wait.
        let serves = self.serves_while_waiting();
        let mut watchdog = Watchdog::new();
        K::Facade::wait_until(|| {
            if done() {
                return true;
            }
            if serves && self.serve_own() && done() {
                return true;
            }
            if self.is_overdue(&mut watchdog) {
                let (waiter, target, about) = names();
                self.report_stuck(waiter, target, about);
            }
            false
        });
    }

    /// Whether `target` has served the post with this ticket. Acquire: pairs with the release in `serve`; what the
    /// target flushed is flushed. A CPU seen offline flushes everything before it uses anything again (C5).
    #[inline]
    pub(crate) fn has_answered(&self, target: &PerCpu<K::Facade>, ticket: u64) -> bool {
        target.served.0.load(Ordering::Acquire).wrapping_sub(ticket + 1) as i64 >= 0 || target.state().is_off()
    }

    /// One poll of a wait that is not over. Returns whether it has taken too long and must be reported (C7): true only
    /// once.
    #[inline]
    pub(crate) fn is_overdue(&self, watchdog: &mut Watchdog) -> bool {
        let bound = self.policy().stuck_ns;
        watchdog.looks = watchdog.looks.wrapping_add(1);
        // Not at the first polls: most waits are over by then, and need no clock.
        bound != 0 && watchdog.looks % 256 == 2 && self.is_over(&mut watchdog.deadline, bound)
    }

    /// Whether `deadline`, ns, has passed; true only once. The first call sets it (0 before).
    #[cold]
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
}

impl<K: Kernel<W>, const W: usize> Token<'_, '_, K, W> {
    /// Whether tokens of the kernel's policy may hold tickets. Where none does, the compiler may keep a token in
    /// registers, and a request lies in a room of its own.
    pub(crate) const HOLDS_TICKETS: bool = match K::POLICY {
        Some(policy) => matches!(policy.requests, Requests::Log),
        None => true,
    };

    /// Whether there is no CPU to wait for, nor a secondary TLB: then [`wait`](Self::wait) returns at once. Known at
    /// dispatch and not updated: only the wait finds out whether targets have answered since.
    pub fn needs_no_wait(&self) -> bool {
        self.targets.is_empty() && self.secondary == 0
    }

    /// Waits until every target has answered or is offline. With preemptible waits the caller's preemption state stays,
    /// and the waiter may be preempted and may migrate; waits that spin pin it meanwhile. Must not be called while
    /// holding a walk guard, from the shootdown handler, or from NMI context. Serves requests to the CPU on which it
    /// waits (C5).
    ///
    /// # Panics
    /// In debug builds, if it must wait for a CPU and is called from the shootdown handler.
    pub fn wait(self) -> Flushed {
        self.wait_in_place();
        Flushed::new(self.space, self.tables)
    }

    /// Whether every CPU has answered, so that [`wait`](Self::wait) waits at most for TLBs of devices. Waits for no
    /// CPU; serves requests to this CPU like a wait, so a loop around it makes progress with interrupts off. Context as
    /// for [`wait`](Self::wait).
    ///
    /// Cost: a load or two for each target that has answered, up to the first that has not.
    pub fn poll(&self) -> bool {
        let answered = |(index, cpu): (usize, CpuId)| {
            self.engine
                .has_answered(&self.engine.cpus[cpu], self.needed(index, cpu))
        };
        if self.targets.iter().enumerate().all(answered) {
            return true;
        }
        if self.engine.serves_while_waiting() {
            self.engine.serve_own();
        }
        false
    }

    /// [`wait`](Self::wait), without moving the token, which is large. Call it once.
    #[inline]
    pub(crate) fn wait_in_place(&self) {
        // Only posts are left to be waited for here.
        if self.engine.policy().requests == Requests::Log && !self.targets.is_empty() {
            self.wait_for_targets();
        }
        self.engine.await_secondary(self.secondary);
    }

    /// The space and the generation for a report, 0 for none.
    pub(crate) fn about(&self) -> (u64, u64) {
        (self.space, self.generation)
    }

    /// Adds the ticket of the next target of the set, in ascending order of the CPUs.
    #[inline]
    pub(crate) fn expect(&mut self, ticket: u64) {
        if let Some(kept) = self.room.tickets_mut().get_mut(self.expected) {
            kept.write(ticket);
        }
        self.expected += 1;
    }

    fn ticket(&self, index: usize) -> Option<u64> {
        // SAFETY: `expect` has written one for each call, while there was room.
        (index < self.expected.min(TICKETS)).then(|| unsafe { self.room.tickets()[index].assume_init() })
    }

    /// The take of posts on `cpu`, the target with that index, that included our post.
    #[inline]
    fn needed(&self, index: usize, cpu: CpuId) -> u64 {
        if let Some(ticket) = self.ticket(index) {
            return ticket;
        }
        // Not stored: what is posted by now includes our post.
        let post = self.engine.cpus[cpu].post.load(Ordering::Relaxed);
        match post & POSTED != 0 {
            true => post >> 1,
            false => (post >> 1).wrapping_sub(1),
        }
    }

    /// The word that the wait for `cpu`, the target with that index, will read.
    #[inline]
    fn prefetch_answer(&self, index: usize, cpu: CpuId) {
        let target = &self.engine.cpus[cpu];
        K::Facade::prefetch(&target.served.0);
        if index >= TICKETS {
            K::Facade::prefetch(&target.post);
        }
    }

    #[inline(never)]
    fn wait_for_targets(&self) {
        let begun = self.timed.map(|_| self.engine.kernel.now_ns());
        let _pin = (!self.engine.policy().wait.is_preemptible()).then(|| self.engine.pinned());
        let (mut ahead, mut looked_ahead) = (self.targets.iter(), 0);
        for (index, cpu) in self.targets.iter().enumerate() {
            let needed = self.needed(index, cpu);
            if self.engine.has_answered(&self.engine.cpus[cpu], needed) {
                // The next targets were interrupted little later, so they have likely answered too: prefetch their
                // lines together. Lines of CPUs that have not answered should stay with them.
                while looked_ahead <= index + AHEAD
                    && let Some(next) = ahead.next()
                {
                    if looked_ahead > index {
                        self.prefetch_answer(looked_ahead, next);
                    }
                    looked_ahead += 1;
                }
                continue;
            }
            // Only for the report: a waiter that migrates is reported where it began.
            let waiter = self.engine.kernel.cpu();
            self.wait_for(cpu, needed, waiter);
        }
        if let (Some((targets, sending)), Some(begun)) = (self.timed, begun) {
            let took = sending + self.engine.since(begun);
            self.engine.learn(Way::Interrupts, targets, took);
        }
    }

    /// Waits until `cpu` has served the post with this ticket.
    // Not inlined: a waiter serves requests deep in its stack, so little lies in its frame (`cargo xtask stack`).
    #[inline(never)]
    fn wait_for(&self, cpu: CpuId, ticket: u64, waiter: CpuId) {
        let engine = self.engine;
        let answered = || engine.has_answered(&engine.cpus[cpu], ticket);
        engine.wait_reporting(|| (waiter, cpu, self.about()), answered);
    }
}

#[cfg(test)]
mod tests;
