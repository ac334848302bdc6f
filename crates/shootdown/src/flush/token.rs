//! What a flush that was dispatched leaves to be waited for, and the waiting.

use crate::cpuset::CpuMask;
use crate::design::Requests;
use crate::engine::Engine;
use crate::facade::{Facade, Word};
use crate::flush::targets::AHEAD;
use crate::hooks::{CpuId, Kernel, Stuck, Way};
use crate::transport::handler::POSTED;
use core::mem::MaybeUninit;
use core::sync::atomic::Ordering;

/// Tickets a token keeps one by one; for targets beyond these the waiter accepts a slightly later ticket instead.
const EXACT_TICKETS: usize = 16;

/// Proof that a flush is complete: C1 holds for everything written before it was dispatched. Frames may go back to
/// their allocator (C2). Table pages may if the flush was [with tables](crate::Range::with_tables) (C3 as far as
/// processors walk) and [`Engine::retire_tables`](crate::Engine::retire_tables) knows of no software that does.
///
/// It names its space, and whether table pages were included: what it does not prove is not taken from it.
#[derive(Debug)]
#[must_use = "frames may only be freed with this proof"]
pub struct Flushed {
    /// The space's id; [`KERNEL`] or [`SEVERAL`].
    space: u64,
    /// The flush was with tables, so lazy CPUs took part.
    tables: bool,
}

/// Stands for the kernel's half of the address space in a proof. No space has this id.
pub(crate) const KERNEL: u64 = 0;

/// Stands for the spaces of a batch in a proof. No space has this id.
pub(crate) const SEVERAL: u64 = u64::MAX;

impl Flushed {
    /// The caller has flushed what this says.
    #[inline]
    pub(crate) const fn new(space: u64, tables: bool) -> Self {
        Flushed { space, tables }
    }

    /// Whether it proves that paging-structure caches hold no link to unlinked table pages of the space with this id.
    #[inline]
    pub(crate) fn covers_tables_of(&self, space: u64) -> bool {
        self.tables && self.space == space
    }

    /// Whether it proves a flush of that space.
    #[inline]
    pub(crate) fn covers(&self, space: u64) -> bool {
        self.space == space
    }

    /// Whether it stands for more than one space.
    #[inline]
    pub(crate) fn is_of_several(&self) -> bool {
        self.space == SEVERAL
    }
}

/// A flush that was dispatched and must be waited for before anything is freed.
///
/// Nothing remote refers to it: forgetting it leaks nothing and frees nothing, it only loses the proof. It may be
/// waited for later, on another CPU, with preemption on.
#[must_use = "the flush is not complete until it is waited for"]
#[repr(C)]
pub struct Token<'e, 'k, K: Kernel<W>, const W: usize> {
    engine: &'e Engine<'k, K, W>,
    pub(crate) targets: CpuMask<W>,
    /// Targets that a ticket was given for, whether kept or not.
    expected: usize,
    space: u64,
    pub(crate) generation: u64,
    /// Address of the space whose walkers the request forgets; 0 for none. The requester borrows that space until it
    /// has waited, inside `request`.
    pub(crate) walked: u64,
    /// Address of the space whose set a target that has left it leaves; 0 for none. Borrowed as `walked` is.
    pub(crate) departed: u64,
    /// Whether its maker waits for it at once, so that it may as well be a request that is waited for where it is sent.
    pub(crate) at_once: bool,
    /// Whether the range that is flushed is with tables: for the proof.
    pub(crate) tables: bool,
    /// Walkers among the targets, if every walk that could hold a link is.
    pub(crate) interrupted_walkers: Option<usize>,
    /// What secondary TLBs were told and must have carried out; 0 for nothing.
    pub(crate) secondary: u64,
    /// Of a timed request: how many CPUs it interrupted, and the nanoseconds spent until they were.
    pub(crate) timed: Option<(u64, u64)>,
    /// What to wait for at the first targets, in the order of the set; written by [`expect`](Self::expect). Last, so
    /// that nothing writes it when a token is made.
    tickets: [MaybeUninit<u64>; EXACT_TICKETS],
}

/// When a wait is reported.
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
    /// A token for a request about the space with this id, 0 when it concerns no single space. Nobody is waited for
    /// yet.
    pub(crate) fn token<'e>(&'e self, space: u64, generation: u64) -> Token<'e, 'k, K, W> {
        Token {
            engine: self,
            targets: CpuMask::EMPTY,
            tickets: [MaybeUninit::uninit(); EXACT_TICKETS],
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

    /// Waits for `done`, serving own requests, reporting a CPU that does not answer (C7).
    // Not inlined: each of its callers would have a copy (`cargo xtask size`).
    #[inline(never)]
    pub(crate) fn wait_reporting(
        &self,
        waiter: CpuId,
        (space, generation): (u64, u64),
        target: &dyn Fn() -> Option<CpuId>,
        done: &mut dyn FnMut() -> bool,
    ) {
        // A waiter has interrupts on or off from the first poll to the last.
        let serves = self.serves_while_waiting();
        let mut watchdog = Watchdog::new();
        K::Facade::wait_until(|| {
            if done() {
                return true;
            }
            if serves && self.serve_own() && done() {
                return true;
            }
            self.watch(&mut watchdog, || Stuck {
                waiter,
                target: target().unwrap_or(waiter),
                space,
                generation,
            });
            false
        });
    }

    /// A look of a wait that is not over: reports it, once, if it has taken too long (C7).
    #[inline]
    pub(crate) fn watch(&self, watchdog: &mut Watchdog, report: impl FnOnce() -> Stuck) {
        let bound = self.policy().stuck_ns;
        watchdog.looks = watchdog.looks.wrapping_add(1);
        // Not at the first: most waits are over by then, and need no clock.
        if bound != 0 && watchdog.looks % 256 == 2 && self.is_over(&mut watchdog.deadline, bound) {
            self.kernel.stuck(report());
        }
    }

    /// Whether `deadline`, ns, is over, once; the first call sets it (0 before).
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
    /// Whether there is nobody to wait for, secondary TLBs included: then [`wait`](Self::wait) returns at once. Known
    /// when the flush was dispatched, and not looked at again: whether targets have answered meanwhile only the wait
    /// finds out.
    pub fn needs_no_wait(&self) -> bool {
        self.targets.is_empty() && self.secondary == 0
    }

    /// Waits until every target has answered or is off. With preemptible waits preemption stays as the caller has it,
    /// and the waiter may be preempted and migrate; a design that spins pins it meanwhile. Must not be called while
    /// holding a walk guard, from the shootdown handler, or from NMI context. Serves requests aimed at the CPU it waits
    /// on (C5).
    ///
    /// # Panics
    /// In debug builds, when somebody must be waited for and this is called from the shootdown handler.
    pub fn wait(self) -> Flushed {
        self.wait_in_place();
        Flushed::new(self.space, self.tables)
    }

    /// Whether every CPU has answered, so that [`wait`](Self::wait) waits for TLBs of devices at most. Waits for
    /// nobody; serves requests to this CPU as a wait does, so a loop around it makes progress with interrupts off.
    /// Context as [`wait`](Self::wait).
    ///
    /// Cost: a load or two for each target that has answered, up to the first that has not.
    pub fn poll(&self) -> bool {
        let answered = |(index, cpu)| self.has_answered(cpu, self.needed(index, cpu));
        if self.targets.iter().enumerate().all(answered) {
            return true;
        }
        if self.engine.serves_while_waiting() {
            self.engine.serve_own();
        }
        false
    }

    /// [`wait`](Self::wait), without moving the token, which is large. Once.
    #[inline]
    pub(crate) fn wait_in_place(&self) {
        // Only posts are left to be waited for here.
        if self.engine.policy().requests == Requests::Log && !self.targets.is_empty() {
            self.wait_for_targets();
        }
        self.engine.await_secondary(self.secondary);
    }

    /// The space and the generation that a report names, 0 for none.
    pub(crate) fn about(&self) -> (u64, u64) {
        (self.space, self.generation)
    }

    /// Adds what must have been served by the next target of the set; in rising order of the CPUs.
    #[inline]
    pub(crate) fn expect(&mut self, ticket: u64) {
        if let Some(kept) = self.tickets.get_mut(self.expected) {
            kept.write(ticket);
        }
        self.expected += 1;
    }

    fn ticket(&self, index: usize) -> Option<u64> {
        // SAFETY: `expect` has written as many as it was called for, and there were places.
        (index < self.expected.min(EXACT_TICKETS)).then(|| unsafe { self.tickets[index].assume_init() })
    }

    /// The take of posts on `cpu`, the target of that index, that included ours.
    #[inline]
    fn needed(&self, index: usize, cpu: CpuId) -> u64 {
        if let Some(ticket) = self.ticket(index) {
            return ticket;
        }
        // Not kept: what is posted by now includes our post.
        let post = self.engine.cpus[cpu].post.load(Ordering::Relaxed);
        match post & POSTED != 0 {
            true => post >> 1,
            false => (post >> 1).wrapping_sub(1),
        }
    }

    /// Acquire: pairs with the release in `serve`; what the target flushed is flushed. A CPU seen off flushes
    /// everything before it uses anything again (C5).
    #[inline]
    fn has_answered(&self, cpu: CpuId, needed: u64) -> bool {
        let target = &self.engine.cpus[cpu];
        target.served.0.load(Ordering::Acquire).wrapping_sub(needed + 1) as i64 >= 0 || target.state().is_off()
    }

    /// What the wait for `cpu`, the target of that index, is going to read.
    #[inline]
    fn prefetch_answer(&self, index: usize, cpu: CpuId) {
        let target = &self.engine.cpus[cpu];
        K::Facade::prefetch(&target.served.0);
        if index >= EXACT_TICKETS {
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
            let mut done = || self.has_answered(cpu, needed);
            if done() {
                // The next ones were asked little later, so have likely answered too: have their lines travel together.
                // Those of CPUs that have not are better left to them.
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
            self.engine
                .wait_reporting(waiter, self.about(), &|| Some(cpu), &mut done);
        }
        if let (Some((targets, sending)), Some(begun)) = (self.timed, begun) {
            let took = sending + self.engine.since(begun);
            self.engine.learn(Way::Interrupts, targets, took);
        }
    }
}
