//! Requests with a descriptor, on the requester's stack or one per CPU, and each CPU's queue of pointers to them.
//!
//! Used by designs with [`Requests::PerRequest`](crate::Requests::PerRequest) and
//! [`Requests::PerCpu`](crate::Requests::PerCpu). The descriptor is one cache line that targets read, and another where
//! they acknowledge. A descriptor is left, with its stack frame or to the next request, only when every target has
//! acknowledged or was proved off (C5), enforced by [`WaitOnDrop`], which waits when it is dropped.

use crate::facade::{Facade, Word};
use crate::hooks::{CpuId, Tag};
use crate::range::Range;
use crate::space::CachePadded;
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

/// An [`Ask`] as it stands in a descriptor: the kind below the id or the tag, the range, the generation, the end of a
/// long range. Made as such, not from an [`Ask`]: then no code has to tell which it is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EncodedRequest {
    words: [u64; 4],
    /// How many of them are read.
    used: usize,
}

impl EncodedRequest {
    /// [`Ask::CatchUp`].
    pub(crate) const CATCH_UP: EncodedRequest = EncodedRequest::plain(0);
    /// [`Ask::EndWalks`].
    pub(crate) const END_WALKS: EncodedRequest = EncodedRequest::plain(4);
    /// [`Ask::Synchronise`].
    pub(crate) const SYNCHRONISE: EncodedRequest = EncodedRequest::plain(5);

    const fn plain(kind: u64) -> EncodedRequest {
        EncodedRequest {
            words: [kind, 0, 0, 0],
            used: 1,
        }
    }

    #[inline]
    fn of_range(kind: u64, name: u64, range: &Range, generation: u64, used: usize) -> EncodedRequest {
        EncodedRequest {
            words: [kind | name << NAME, range.word(), generation, range.second_word()],
            used: if range.is_long() { 4 } else { used },
        }
    }

    /// [`Ask::Space`].
    #[inline]
    pub(crate) fn space(id: u64, generation: u64, range: &Range) -> EncodedRequest {
        EncodedRequest::of_range(1, id, range, generation, 3)
    }

    /// [`Ask::Tag`].
    #[inline]
    pub(crate) fn tag(tag: Tag, range: &Range) -> EncodedRequest {
        EncodedRequest::of_range(2, u64::from(tag.0), range, 0, 2)
    }

    /// [`Ask::Kernel`].
    #[inline]
    pub(crate) fn kernel(range: &Range) -> EncodedRequest {
        EncodedRequest::of_range(3, 0, range, 0, 2)
    }

    /// The words of the descriptor, and how many of them are used.
    #[inline]
    fn in_full(self, walked: u64, departed: u64) -> ([u64; 6], usize) {
        let EncodedRequest {
            words: [kind, range, generation, end],
            used,
        } = self;
        let flag = |address: u64, flag: u64| if address != 0 { flag } else { 0 };
        let kind = kind | flag(walked, FORGET) | flag(departed, DEPART);
        let used = match (walked, departed) {
            (0, 0) => used,
            (_, 0) => 5,
            _ => 6,
        };
        ([kind, range, generation, end, walked, departed], used)
    }

    /// Whether a target learns it from a descriptor only: a tag is not in the log, and to synchronise is no catching
    /// up.
    #[inline]
    pub(crate) fn needs_descriptor(&self) -> bool {
        matches!(self.words[0] & KIND, 2 | 5)
    }
}

/// Where the kind stands, with the flags below.
const KIND: u64 = 7;

/// Set in the kind of a request that names a space whose walkers are to be forgotten.
const FORGET: u64 = 8;

/// Set in the kind of a request that names a space whose set its target leaves if it has left the space.
const DEPART: u64 = 16;

/// Above the kind stands the id of the space, or the tag. Ids have 59 bits (`State`), so none is lost.
const NAME: u32 = 5;

/// Stands in the count of those who have not acknowledged until the requester knows how many there are.
const SENDING: u64 = 1 << 32;

/// Stands there when nobody uses the descriptor: neither targets nor the requester, which has seen that they are done.
const IDLE: u64 = 1 << 33;

/// A descriptor: 64 bytes that targets read, 64 where they acknowledge.
pub(crate) struct Request<F: Facade> {
    body: CachePadded<[F::U64; 6]>,
    /// Targets that have not acknowledged; more by [`SENDING`] while the requester is still sending.
    pub(crate) unacknowledged: CachePadded<F::U64>,
}

// What targets read fits one line, they acknowledge on another, and a frame that holds a request need not be aligned to
// more than a line.
#[cfg(any(target_arch = "x86_64", target_arch = "x86", not(target_os = "none")))]
const _: () = {
    use crate::facade::Native;
    assert!(size_of::<CachePadded<[<Native as Facade>::U64; 6]>>() == 64);
    assert!(size_of::<Request<Native>>() == 128 && align_of::<Request<Native>>() == 64);
};

impl<F: Facade> Request<F> {
    /// A descriptor that is about to be sent. [`sent`](Self::sent) says to how many.
    pub(crate) fn sending() -> Self {
        Self::awaiting(SENDING)
    }

    fn awaiting(unacknowledged: u64) -> Self {
        Request {
            body: CachePadded(core::array::from_fn(|_| F::U64::new(0))),
            unacknowledged: CachePadded(F::U64::new(unacknowledged)),
        }
    }

    /// A descriptor that nobody uses.
    pub(crate) fn idle() -> Self {
        Self::awaiting(IDLE)
    }

    /// Whether nobody uses it (acquire; pairs with [`close`](Self::close)).
    pub(crate) fn is_idle(&self) -> bool {
        self.unacknowledged.0.load(Ordering::Acquire) == IDLE
    }

    /// The requester has seen that it is complete, and looks at it no more.
    pub(crate) fn close(&self) {
        self.unacknowledged.0.store(IDLE, Ordering::Release);
    }

    /// Makes a request that nobody uses one that is about to be sent.
    pub(crate) fn reopen(&self) {
        self.unacknowledged.0.store(SENDING, Ordering::Relaxed);
    }

    /// The request has gone to `targets` CPUs and to no more, and the requester has done its own part. Until then it
    /// cannot be complete, however many have acknowledged. A full barrier.
    #[inline]
    pub(crate) fn sent(&self, targets: u32) {
        self.unacknowledged
            .0
            .fetch_add_full(u64::from(targets).wrapping_sub(SENDING));
    }

    /// Writes what is asked. The stores become visible before the full barrier of the first [`Queue::put`].
    ///
    /// `walked`: address of a space in whose walker set targets are forgotten, or 0. `departed`: of one whose set
    /// targets leave that have left it, or 0.
    #[inline]
    pub(crate) fn write(&self, asked: EncodedRequest, walked: u64, departed: u64) {
        let (words, used) = asked.in_full(walked, departed);
        for (word, value) in self.body.0.iter().zip(words).take(used) {
            word.store(value, Ordering::Relaxed);
        }
    }

    /// [`write`](Self::write), while nobody else knows of the descriptor.
    #[inline]
    pub(crate) fn fill(&mut self, asked: EncodedRequest, walked: u64, departed: u64) {
        let (words, used) = asked.in_full(walked, departed);
        for (word, value) in self.body.0.iter_mut().zip(words).take(used) {
            word.set(value);
        }
    }

    /// What is asked; the address of the space in whose walker set this target is forgotten (0 for none); and of the
    /// one whose set it leaves if it has left the space (0 for none). The requester keeps both alive until this is
    /// acknowledged. The acquire was done when the ready bits were taken.
    #[inline(always)]
    pub(crate) fn ask(&self) -> (Ask, u64, u64) {
        let word = |index: usize| self.body.0[index].load(Ordering::Relaxed);
        let kind = word(0);
        let range = || Range::from_word(word(1), || word(3));
        let ask = match kind & KIND {
            0 => Ask::CatchUp,
            4 => Ask::EndWalks,
            5 => Ask::Synchronise,
            1 => Ask::Space {
                id: kind >> NAME,
                generation: word(2),
                range: range(),
            },
            2 => Ask::Tag {
                tag: Tag((kind >> NAME) as u16),
                range: range(),
            },
            _ => Ask::Kernel { range: range() },
        };
        let walked = if kind & FORGET == 0 { 0 } else { word(4) };
        let departed = if kind & DEPART == 0 { 0 } else { word(5) };
        (ask, walked, departed)
    }

    /// One target is done. A full barrier: the invalidation comes before it; pairs with the acquire load of the waiter.
    /// The descriptor may be gone when this returns.
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

/// Stands in a slot whose request was taken back, until the CPU comes by.
pub(crate) const TAKEN_BACK: u64 = 1;

/// A CPU's queue: many requesters put, the CPU itself takes. No lock; the taking side never waits for a requester.
#[repr(C, align(64))]
pub(crate) struct Queue<F: Facade> {
    /// Slots whose pointer may be read. A slot's bit is cleared before the slot is.
    ready: F::U64,
    /// Pointers to requests; 0 where nobody has one.
    slots: CachePadded<[F::U64; QUEUE_SLOTS]>,
}

impl<F: Facade> Queue<F> {
    pub(crate) fn new() -> Self {
        Queue {
            ready: F::U64::new(0),
            slots: CachePadded(core::array::from_fn(|_| F::U64::new(0))),
        }
    }

    /// Puts `request` of the CPU `me` into a slot and makes it known. Returns the slot, and whether the queue was
    /// empty, so that an interrupt is needed; `None` when all slots are taken. Each of the two operations is a full
    /// barrier: the descriptor is visible before the ready bit (regression 14).
    #[inline(always)]
    pub(crate) fn put(&self, me: CpuId, request: *const Request<F>) -> Option<(u32, bool)> {
        let slot = self.claim(me, request as usize as u64)?;
        Some((slot, self.publish_slot(slot)))
    }

    /// Each CPU has a slot that it tries first, where it meets those only whose number is a multiple of [`QUEUE_SLOTS`]
    /// away, and itself when it interrupted its own request.
    ///
    /// Reads before it writes, to find a free slot; so do the call queues of the kernels that the presets with stack
    /// requests stand for, and the second transfer of the line is part of their cost.
    #[inline(always)]
    pub(crate) fn claim(&self, me: CpuId, pointer: u64) -> Option<u32> {
        let take = |slot: u32| self.slots.0[slot as usize].compare_exchange_full(0, pointer).is_ok();
        let (first, ready) = ((me % QUEUE_SLOTS) as u32, self.ready.load(Ordering::Relaxed));
        match ready >> first & 1 == 0 && take(first) {
            true => Some(first),
            false => self.claim_another(first, ready, take),
        }
    }

    #[cold]
    fn claim_another(&self, first: u32, ready: u64, take: impl Fn(u32) -> bool) -> Option<u32> {
        let mut free = !ready.rotate_right(first) & !1;
        while free != 0 {
            let slot = (first + free.trailing_zeros()) % QUEUE_SLOTS as u32;
            if self.slots.0[slot as usize].load(Ordering::Relaxed) == 0 && take(slot) {
                return Some(slot);
            }
            free &= free - 1;
        }
        None
    }

    /// The bit is clear: whoever takes it lets go of the slot only after that. To add it is one instruction where to
    /// set it, and learn of the others, takes a loop.
    #[inline(always)]
    pub(crate) fn publish_slot(&self, slot: u32) -> bool {
        self.ready.fetch_add_full(1 << slot) == 0
    }

    /// Takes a published request back, because its target turned out to be off. False when the target has taken it:
    /// then the target acknowledges.
    ///
    /// Whose request it is is decided by the pointer, not by the ready bit: when the target has taken ours, somebody
    /// else may have claimed the same slot and set its bit again. For the same reason bit and slot are left to the
    /// target, which takes them, and no request, at the latest when it comes online.
    #[inline]
    pub(crate) fn cancel(&self, slot: u32, request: *const Request<F>) -> bool {
        let pointer = &self.slots.0[slot as usize];
        pointer
            .compare_exchange_full(request as usize as u64, TAKEN_BACK)
            .is_ok()
    }

    /// Whether `request` still waits here. For reports only (C7): relaxed, and false while the target is serving it.
    #[inline(never)]
    pub(crate) fn holds(&self, request: *const Request<F>) -> bool {
        let pointer = request as usize as u64;
        // A length that the compiler does not know: unrolled, this cold loop is 900 bytes (`cargo xtask size`).
        let slots = &self.slots.0[..core::hint::black_box(self.slots.0.len())];
        slots.iter().any(|slot| slot.load(Ordering::Relaxed) == pointer)
    }

    /// Whether there is anything to take.
    #[inline]
    pub(crate) fn has_ready(&self) -> bool {
        self.ready.load(Ordering::Relaxed) != 0
    }

    /// Takes everything that is ready and calls `serve` with each pointer, but not for a request that was taken back.
    /// Owner only, interrupts off. The swap is a full barrier: what `serve` reads (descriptor, generation) is at least
    /// as new as the ready bit. All slots are free before the first is served: a requester may need one at once.
    #[inline]
    pub(crate) fn take(&self, mut serve: impl FnMut(*const Request<F>)) {
        let ready = self.ready.swap_full(0);
        let taken = |slot: u32| self.slots.0[slot as usize].swap_full(0);
        let mut serve = |pointer: u64| {
            // Taken back (or regression 14, where the ready bit comes before the pointer).
            if pointer != TAKEN_BACK {
                serve(core::ptr::with_exposed_provenance(pointer as usize));
            }
        };
        if ready.is_power_of_two() {
            // Most often it is one, and then no list of them is needed.
            return serve(taken(ready.trailing_zeros()));
        }
        let mut all = [TAKEN_BACK; QUEUE_SLOTS];
        let mut count = 0;
        let mut left = ready;
        while left != 0 {
            all[count] = taken(left.trailing_zeros());
            left &= left - 1;
            count += 1;
        }
        all[..count].iter().for_each(|&request| serve(request));
    }
}

/// Waits for a request when dropped, so that its stack frame cannot be left, not even by a panic, while a target may
/// still read it.
pub(crate) struct WaitOnDrop<W: FnMut()>(pub(crate) W);

impl<W: FnMut()> Drop for WaitOnDrop<W> {
    fn drop(&mut self) {
        (self.0)()
    }
}

#[cfg(test)]
mod tests;
