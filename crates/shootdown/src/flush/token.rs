//! The token of a dispatched flush, and the wait for it.

use crate::cpu::state::{POSTED, PerCpu};
use crate::cpuset::CpuMask;
use crate::design::Requests;
use crate::engine::Engine;
use crate::facade::{AHEAD, Facade, Word};
use crate::flush::state::{Maybe, Timer};
use crate::hooks::{CpuId, Kernel, Way};
use crate::transport::request::WaitOnDrop;
use crate::transport::room::{Place, Room, TICKETS};
use core::cell::Cell;
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
    pub(crate) targets: Cell<CpuMask<W>>,
    /// Targets whose queue was full when the request was sent.
    pub(crate) full: Cell<CpuMask<W>>,
    space: u64,
    pub(crate) generation: Cell<u64>,
    /// Ticket of the secondary TLBs' notifications that must be carried out; 0 for none.
    pub(crate) secondary: Cell<u64>,
    /// Address of the space that the request names, because targets are removed from its sets; 0 for none. The
    /// requester borrows that space until it has waited, inside [`sends`](Self::sends).
    pub(crate) named: Cell<u64>,
    /// Where the request is. Tokens that callers have hold none.
    pub(crate) place: Cell<Place>,
    /// Targets that will answer: that were given a ticket, stored or not, or have the request in their queue.
    pub(crate) expected: Cell<u32>,
    /// Interrupts sent for the request.
    pub(crate) interrupts: Cell<u32>,
    /// Measures the cost of a request that is a sample.
    pub(crate) timer: Timer,
    /// Number of walkers among the targets, if every walk that could hold a link is included.
    interrupted_walkers: Cell<Maybe>,
    /// Instructions of a broadcast that the caller synchronises, pinned.
    issued: Cell<Maybe>,
    /// Whether the request is a sample.
    pub(crate) timed: Cell<bool>,
    /// Whether the request knows the number of its targets.
    pub(crate) counted: Cell<bool>,
    /// Whether targets are removed from the walker set of the space that it names.
    pub(crate) forgets_walks: Cell<bool>,
    /// Whether a target that has left the space that it names leaves its set.
    pub(crate) departs: Cell<bool>,
    /// Whether the same request interrupts lockless walkers, if it uses interrupts.
    pub(crate) with_walkers: bool,
    /// Whether the caller synchronises the broadcast, if one broadcast is all that is needed.
    pub(crate) leaves_broadcast: bool,
    /// Whether its creator waits for it at once, so that a request may wait in the same call.
    pub(crate) at_once: bool,
    /// Whether the flushed range is with tables: for the proof.
    pub(crate) tables: bool,
    /// Before the room: a word that is not a repeated byte, or the compiler writes it and the room by one `memset`.
    pub(crate) engine: &'e Engine<'k, K, W>,
    /// Tickets of the first targets, in the order of the set; written by [`expect`](Self::expect). For targets beyond
    /// these the waiter accepts a slightly later ticket. Or a request, if that is how the flush is sent. Last, so that
    /// the creation of a token does not write it.
    pub(crate) room: Room<K::Facade>,
}

impl<'k, K: Kernel<W>, const W: usize> Engine<'k, K, W> {
    /// A token for a request for the space with this id, 0 if it is for no single space. It has no targets yet.
    pub(crate) fn token<'e>(&'e self, space: u64, generation: u64) -> Token<'e, 'k, K, W> {
        Token {
            engine: self,
            targets: Cell::new(CpuMask::EMPTY),
            full: Cell::new(CpuMask::EMPTY),
            space,
            generation: Cell::new(generation),
            secondary: Cell::new(0),
            named: Cell::new(0),
            place: Cell::new(Place::NOWHERE),
            expected: Cell::new(0),
            interrupts: Cell::new(0),
            timer: Timer::default(),
            interrupted_walkers: Cell::new(Maybe::NONE),
            issued: Cell::new(Maybe::NONE),
            timed: Cell::new(false),
            counted: Cell::new(false),
            forgets_walks: Cell::new(false),
            departs: Cell::new(false),
            with_walkers: false,
            leaves_broadcast: false,
            at_once: false,
            tables: false,
            room: Room::new(),
        }
    }

    /// Whether `target` has served the post with this ticket. Acquire: pairs with the release in `serve`; what the
    /// target flushed is flushed. A CPU seen offline flushes everything before it uses anything again (C5).
    #[inline]
    pub(crate) fn has_answered(&self, target: &PerCpu<K::Facade>, ticket: u64) -> bool {
        target.served.0.load(Ordering::Acquire).wrapping_sub(ticket + 1) as i64 >= 0 || target.state().is_off()
    }
}

impl<K: Kernel<W>, const W: usize> Token<'_, '_, K, W> {
    /// Whether there is no CPU to wait for, nor a secondary TLB: then [`wait`](Self::wait) returns at once. Known at
    /// dispatch and not updated: only the wait finds out whether targets have answered since.
    pub fn needs_no_wait(&self) -> bool {
        self.targets().is_empty() && self.secondary.get() == 0
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
        self.proof()
    }

    /// The proof; after the wait.
    #[inline]
    pub(crate) fn proof(&self) -> Flushed {
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
        if self.targets().iter().enumerate().all(answered) {
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
        if self.engine.policy().requests == Requests::Log && !self.targets().is_empty() {
            self.wait_for_targets();
        }
        self.engine.await_secondary(self.secondary.get());
    }

    /// Sends by `send`. If that leaves a request in this token, waits for it: the token is not moved, and its frame is
    /// not left, not even by a panic, before every target is done with the request (C5).
    #[inline]
    pub(crate) fn sends(&self, send: impl FnOnce(&Self)) {
        let answered = WaitOnDrop(|| self.await_request());
        send(self);
        drop(answered);
    }

    /// The CPUs that were posted to, or sent a request.
    #[inline]
    pub(crate) fn targets(&self) -> &CpuMask<W> {
        // SAFETY: written once, by the thread that sends, and cleared by the same thread once all have answered; no
        // reference is held across either.
        unsafe { &*self.targets.as_ptr() }
    }

    /// The space and the generation for a report, 0 for none.
    pub(crate) fn about(&self) -> (u64, u64) {
        (self.space, self.generation.get())
    }

    /// Adds the ticket of the next target of the set, in ascending order of the CPUs.
    #[inline]
    pub(crate) fn expect(&self, ticket: u64) {
        let expected = self.expected.get();
        // SAFETY: a token that has tickets sends no request.
        unsafe { self.room.keep(expected as usize, ticket) };
        self.expected.set(expected + 1);
    }

    fn ticket(&self, index: usize) -> Option<u64> {
        // SAFETY: `expect` has written one for each call, while there was room.
        (index < TICKETS.min(self.expected.get() as usize)).then(|| unsafe { self.room.ticket(index) })
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

    /// Waits until every target has served its post.
    // Not inlined: a waiter serves requests deep in its stack, so little lies in its frame (`cargo xtask stack`).
    #[inline(never)]
    fn wait_for_targets(&self) {
        let engine = self.engine;
        self.begin_timed_wait();
        let _pin = engine.pin_wait();
        let mut place = TargetPlace::default();
        while self.next_unanswered(&mut place) {
            let cpu = place.found();
            let answered = || engine.has_answered(&engine.cpus[cpu], place.ticket);
            engine.wait_deep(|| self.report_late(cpu), answered);
        }
        self.learn_from_answers();
    }

    /// Number of walkers among the targets, if every walk that could hold a link is included.
    pub(crate) fn interrupted_walkers(&self) -> Option<u32> {
        self.interrupted_walkers.get().get()
    }

    /// There are so many walkers among the targets, and every walk that could hold a link is included.
    pub(crate) fn includes_walkers(&self, walkers: usize) {
        self.interrupted_walkers.set(Maybe::some(walkers as u64));
    }

    /// The caller synchronises a broadcast of so many instructions, pinned.
    pub(crate) fn leave_broadcast(&self, instructions: u32) {
        self.issued.set(Maybe::some(u64::from(instructions)));
    }

    /// Instructions of a broadcast that the caller must synchronise, pinned, if there is one.
    pub(crate) fn left_broadcast(&self) -> Option<u32> {
        self.issued.get().get()
    }

    /// The wait for this request begins, perhaps long after it was sent: what lies between is not its cost.
    #[inline]
    pub(crate) fn begin_timed_wait(&self) {
        if self.engine.is_timed(self) {
            self.timer.resume(self.engine.kernel.now_ns());
        }
    }

    /// All targets have answered: learns the cost of a timed request.
    #[inline]
    pub(crate) fn learn_from_answers(&self) {
        if self.engine.is_timed(self) {
            self.learn();
        }
    }

    // Not inlined: the wait keeps less at hand.
    #[cold]
    #[inline(never)]
    fn learn(&self) {
        let took = self.timer.end(self.engine.kernel.now_ns());
        self.engine.learn(Way::Interrupts, self.targets().len() as u64, took);
    }

    /// Finds the next target that has not answered, and notes it in `place`, with the ticket that it has to answer.
    /// Returns whether there is one.
    // Not inlined: the wait needs no room for this.
    #[inline(never)]
    fn next_unanswered(&self, place: &mut TargetPlace) -> bool {
        const { assert!(W * 64 + AHEAD < u16::MAX as usize) };
        while let Some(cpu) = self.targets().next_from(place.from as usize) {
            let index = place.index;
            (place.index, place.from) = (index + 1, cpu as u16 + 1);
            place.ticket = self.needed(index as usize, cpu);
            if !self.engine.has_answered(&self.engine.cpus[cpu], place.ticket) {
                return true;
            }
            // The next targets were interrupted little later, so they have likely answered too: prefetch their lines
            // together. Lines of CPUs that have not answered should stay with them.
            while place.looked_ahead <= index + AHEAD as u16
                && let Some(next) = self.targets().next_from(place.ahead_from as usize)
            {
                if place.looked_ahead > index {
                    self.prefetch_answer(place.looked_ahead as usize, next);
                }
                (place.looked_ahead, place.ahead_from) = (place.looked_ahead + 1, next as u16 + 1);
            }
        }
        false
    }

    /// Reports that `cpu` has not answered.
    #[cold]
    #[inline(never)]
    fn report_late(&self, cpu: CpuId) {
        self.engine.report_stuck(self.engine.kernel.cpu(), cpu, self.about());
    }
}

/// Where a waiter is in the set of targets. Small: it lies deep in the stack.
#[derive(Default)]
struct TargetPlace {
    /// The ticket of the last target that was found.
    ticket: u64,
    /// The next target: its index in the set, and where its number is looked for.
    index: u16,
    from: u16,
    /// The same for the next target whose answer is prefetched.
    looked_ahead: u16,
    ahead_from: u16,
}

impl TargetPlace {
    /// The target that was found.
    fn found(&self) -> CpuId {
        self.from as usize - 1
    }
}

#[cfg(test)]
mod tests;
