//! Requests with a descriptor, on the requester's stack or one per CPU, and each CPU's queue of pointers to them.
//!
//! Used by designs with [`Requests::PerRequest`](crate::Requests::PerRequest) and
//! [`Requests::PerCpu`](crate::Requests::PerCpu). The descriptor is one cache line that targets read, and another where they
//! acknowledge. A descriptor is left, with its stack frame or to the next request, only when every target has acknowledged
//! or was proved off (C5), enforced by [`Outstanding`], which waits when it is dropped.

use crate::facade::{Facade, Native, Word};
use crate::hooks::Tag;
use crate::range::Range;
use crate::space::Line;
use core::sync::atomic::Ordering;

/// What a target is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ask {
    /// Flush a range of a space on per-CPU tags, as its `generation`-th request.
    Space { id: u64, generation: u64, range: Range },
    /// Flush a range under a tag, whatever is loaded (roll-over tags).
    Tag { tag: Tag, range: Range },
    /// Flush a range of the kernel.
    Kernel { range: Range },
    /// Catch up with whatever is loaded (batches, tag transitions).
    CatchUp,
    /// Nothing: that it is answered proves that no walk is under way.
    EndWalks,
    /// Wait until everything under way on this CPU has finished: the interrupt is all that is needed.
    Synchronise,
}

/// An [`Ask`] as it stands in a descriptor. Made as such, not from an [`Ask`]: then no code has to tell which it is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked([u64; 5]);

impl Asked {
    /// [`Ask::CatchUp`].
    pub(crate) const CATCH_UP: Asked = Asked([0; 5]);
    /// [`Ask::EndWalks`].
    pub(crate) const END_WALKS: Asked = Asked([4, 0, 0, 0, 0]);
    /// [`Ask::Synchronise`].
    pub(crate) const SYNCHRONISE: Asked = Asked([5, 0, 0, 0, 0]);

    /// [`Ask::Space`].
    #[inline]
    pub(crate) fn space(id: u64, generation: u64, range: &Range) -> Asked {
        let [start, end] = range.pack();
        Asked([1, id, generation, start, end])
    }

    /// [`Ask::Tag`].
    #[inline]
    pub(crate) fn tag(tag: Tag, range: &Range) -> Asked {
        let [start, end] = range.pack();
        Asked([2, u64::from(tag.0), 0, start, end])
    }

    /// [`Ask::Kernel`].
    #[inline]
    pub(crate) fn kernel(range: &Range) -> Asked {
        let [start, end] = range.pack();
        Asked([3, 0, 0, start, end])
    }

    /// The words of the descriptor, and how many of them are used.
    #[inline]
    fn words(self, walked: u64, departed: u64) -> ([u64; 7], usize) {
        let Asked([kind, first, second, third, fourth]) = self;
        let flag = |address: u64, flag: u64| if address != 0 { flag } else { 0 };
        let kind = kind | flag(walked, FORGET) | flag(departed, DEPART);
        let used = match (walked, departed) {
            (0, 0) => 5,
            (_, 0) => 6,
            _ => 7,
        };
        ([kind, first, second, third, fourth, walked, departed], used)
    }

    /// Whether a target learns it from a descriptor only: a tag is not in the log, and to synchronise is no catching up.
    #[inline]
    pub(crate) fn needs_descriptor(&self) -> bool {
        matches!(self.0[0], 2 | 5)
    }
}

/// Set in the kind of a request that names, in its last word, a space whose walkers are to be forgotten.
const FORGET: u64 = 8;

/// Set in the kind of a request that names a space whose set its target leaves if it has left the space.
const DEPART: u64 = 16;

/// Stands in the count of those who have not acknowledged until the requester knows how many there are.
const SENDING: u64 = 1 << 32;

/// A descriptor: 64 bytes that targets read, 64 where they acknowledge.
pub(crate) struct Request<F: Facade> {
    body: Line<[F::U64; 7]>,
    /// Targets that have not acknowledged; more by [`SENDING`] while the requester is still sending.
    pub(crate) unacknowledged: Line<F::U64>,
}

// What targets read fits one line, they acknowledge on another, and a frame that holds a request need not be aligned to more
// than a line.
const _: () = {
    assert!(size_of::<Line<[<Native as Facade>::U64; 7]>>() == 64);
    assert!(size_of::<Request<Native>>() == 128 && align_of::<Request<Native>>() == 64);
};

impl<F: Facade> Request<F> {
    /// A descriptor that is about to be sent. [`sent`](Self::sent) says to how many.
    pub(crate) fn sending() -> Self {
        Self::awaiting(SENDING)
    }

    fn awaiting(unacknowledged: u64) -> Self {
        Request {
            body: Line(core::array::from_fn(|_| F::U64::new(0))),
            unacknowledged: Line(F::U64::new(unacknowledged)),
        }
    }

    /// A descriptor that nobody uses.
    pub(crate) fn idle() -> Self {
        Self::awaiting(0)
    }

    /// Makes a request that is complete, or was never used, one that is about to be sent.
    pub(crate) fn reopen(&self) {
        self.unacknowledged.0.store(SENDING, Ordering::Relaxed);
    }

    /// The request has gone to `targets` CPUs and to no more, and the requester has done its own part. Until then it cannot
    /// be complete, however many have acknowledged. A full barrier.
    #[inline]
    pub(crate) fn sent(&self, targets: u32) {
        self.unacknowledged
            .0
            .fetch_add_full(u64::from(targets).wrapping_sub(SENDING));
    }

    /// Writes what is asked. The stores become visible before the full barrier of the first [`Queue::push`].
    ///
    /// `walked`: address of a space in whose walker set targets are forgotten, or 0. `departed`: of one whose set targets leave
    /// that have left it, or 0.
    #[inline]
    pub(crate) fn write(&self, asked: Asked, walked: u64, departed: u64) {
        let (words, used) = asked.words(walked, departed);
        for (word, value) in self.body.0.iter().zip(words).take(used) {
            word.store(value, Ordering::Relaxed);
        }
    }

    /// [`write`](Self::write), while nobody else knows of the descriptor.
    #[inline]
    pub(crate) fn fill(&mut self, asked: Asked, walked: u64, departed: u64) {
        let (words, used) = asked.words(walked, departed);
        for (word, value) in self.body.0.iter_mut().zip(words).take(used) {
            word.set(value);
        }
    }

    /// What is asked; the address of the space in whose walker set this target is forgotten (0 for none); and of the one whose
    /// set it leaves if it has left the space (0 for none). The requester keeps both alive until this is acknowledged. The
    /// acquire was done when the ready bits were taken.
    #[inline]
    pub(crate) fn ask(&self) -> (Ask, u64, u64) {
        let word = |index: usize| self.body.0[index].load(Ordering::Relaxed);
        let kind = word(0);
        let walked = if kind & FORGET == 0 { 0 } else { word(5) };
        let departed = if kind & DEPART == 0 { 0 } else { word(6) };
        let ask = match kind & !(FORGET | DEPART) {
            0 => Ask::CatchUp,
            4 => Ask::EndWalks,
            5 => Ask::Synchronise,
            1 => Ask::Space {
                id: word(1),
                generation: word(2),
                range: Range::unpack([word(3), word(4)]),
            },
            2 => Ask::Tag {
                tag: Tag(word(1) as u16),
                range: Range::unpack([word(3), word(4)]),
            },
            _ => Ask::Kernel {
                range: Range::unpack([word(3), word(4)]),
            },
        };
        (ask, walked, departed)
    }

    /// One target is done. A full barrier: the invalidation comes before it; pairs with the acquire load of the waiter. The
    /// descriptor may be gone when this returns.
    #[inline]
    pub(crate) fn acknowledge(&self) {
        self.unacknowledged.0.fetch_add_full(u64::MAX);
    }

    /// Whether everybody has acknowledged (acquire; pairs with [`acknowledge`](Self::acknowledge)).
    pub(crate) fn is_complete(&self) -> bool {
        self.unacknowledged.0.load(Ordering::Acquire) == 0
    }
}

/// Requests that can wait at one CPU at the same time; one bit each in a word. A requester that finds all taken waits
/// for a free one and meanwhile serves its own.
const QUEUE_SLOTS: usize = 64;

/// A CPU's queue: many requesters push, the CPU itself takes. No lock; the taking side never waits for a pusher.
#[repr(C, align(64))]
pub(crate) struct Queue<F: Facade> {
    /// Slots a requester holds.
    claimed: F::U64,
    /// Slots whose pointer may be read.
    ready: F::U64,
    slots: Line<[F::U64; QUEUE_SLOTS]>,
}

impl<F: Facade> Queue<F> {
    pub(crate) fn new() -> Self {
        Queue {
            claimed: F::U64::new(0),
            ready: F::U64::new(0),
            slots: Line(core::array::from_fn(|_| F::U64::new(0))),
        }
    }

    /// Claims a slot, or `None` when all are taken. Reads before it writes, to find a free one; so do the call queues of the
    /// kernels that the presets with stack requests stand for, and the second transfer of the line is part of their cost.
    #[inline]
    pub(crate) fn claim(&self) -> Option<u32> {
        loop {
            let claimed = self.claimed.load(Ordering::Relaxed);
            if claimed == u64::MAX {
                return None;
            }
            let bit = (!claimed).trailing_zeros();
            if self.claimed.fetch_or_full(1 << bit) >> bit & 1 == 0 {
                return Some(bit);
            }
        }
    }

    /// Publishes `request` in the claimed slot. Returns whether the queue was empty, so that an interrupt is needed.
    /// The full barrier makes descriptor and pointer visible before the ready bit (regression 14).
    #[inline]
    pub(crate) fn push(&self, slot: u32, request: *const Request<F>) -> bool {
        self.slots.0[slot as usize].store(request as usize as u64, Ordering::Relaxed);
        // The bit is clear: whoever takes it lets go of the slot only after that. To add it is one instruction where to set it,
        // and learn of the others, takes a loop.
        self.ready.fetch_add_full(1 << slot) == 0
    }

    /// Regression 14: the ready bit before the pointer.
    #[cfg(feature = "faults")]
    pub(crate) fn push_flag_first(&self, slot: u32) -> bool {
        self.ready.fetch_add_full(1 << slot) == 0
    }

    /// Takes a published request back, because its target turned out to be off. False when the target has taken it: then
    /// the target acknowledges.
    ///
    /// Whose request it is is decided by the pointer, not by the ready bit: when the target has taken ours, somebody
    /// else may have claimed the same slot and set its bit again. For the same reason bit and slot are left to the
    /// target, which takes them, with a null pointer, at the latest when it comes online.
    #[inline]
    pub(crate) fn cancel(&self, slot: u32, request: *const Request<F>) -> bool {
        let pointer = &self.slots.0[slot as usize];
        pointer.compare_exchange_full(request as usize as u64, 0).is_ok()
    }

    /// Whether `request` still waits here. For reports only (C7): relaxed, and false while the target is serving it.
    pub(crate) fn holds(&self, request: *const Request<F>) -> bool {
        let pointer = request as usize as u64;
        self.slots.0.iter().any(|slot| slot.load(Ordering::Relaxed) == pointer)
    }

    /// Whether there is anything to take.
    #[inline]
    pub(crate) fn has_ready(&self) -> bool {
        self.ready.load(Ordering::Relaxed) != 0
    }

    /// Takes everything that is ready and calls `serve` with each pointer; null for a request that was taken back. Owner
    /// only, interrupts off. The swap is a full barrier: what `serve` reads (descriptor, generation) is at least as new
    /// as the ready bit.
    #[inline]
    pub(crate) fn take(&self, mut serve: impl FnMut(*const Request<F>)) {
        let ready = self.ready.swap_full(0);
        let taken = |slot: u32| self.slots.0[slot as usize].swap_full(0) as *const Request<F>;
        // Free the slots before acknowledging: a requester may need one at once.
        let release = || self.claimed.fetch_and_full(!ready);
        if ready.is_power_of_two() {
            // Most often it is one, and then no list of them is needed.
            let request = taken(ready.trailing_zeros());
            release();
            return serve(request);
        }
        let mut all = [core::ptr::null(); QUEUE_SLOTS];
        let mut count = 0;
        let mut left = ready;
        while left != 0 {
            all[count] = taken(left.trailing_zeros());
            left &= left - 1;
            count += 1;
        }
        release();
        all[..count].iter().for_each(|&request| serve(request));
    }
}

/// Waits for a request when dropped, so that its stack frame cannot be left, not even by a panic, while a target may
/// still read it.
pub(crate) struct Outstanding<W: FnMut()>(pub(crate) W);

impl<W: FnMut()> Drop for Outstanding<W> {
    fn drop(&mut self) {
        (self.0)()
    }
}

#[cfg(test)]
mod tests;
