//! Requests with a descriptor, on the requester's stack or one per CPU, and each CPU's queue of pointers to them.
//!
//! Used by designs with [`Requests::PerRequest`](crate::Requests::PerRequest) and
//! [`Requests::PerCpu`](crate::Requests::PerCpu). The descriptor is one cache line that targets read, and another in
//! which they acknowledge. A descriptor is released, with its stack frame or for the next request, only when every
//! target has acknowledged or was proved offline (C5). [`WaitOnDrop`] enforces that: it waits when it is dropped.

use crate::cache_padded::CachePadded;
use crate::facade::{Facade, Word};
use crate::hooks::{CpuId, Tag};
use crate::range::Range;
use core::mem::MaybeUninit;
use core::sync::atomic::Ordering;

/// What a target must do: a request as its handler reads it from a descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DecodedRequest {
    /// Flush a range of a space on per-CPU tags, as its `generation`-th request.
    Space { id: u64, generation: u64, range: Range },
    /// Flush a range under a tag, regardless of what is loaded (roll-over tags).
    Tag { tag: Tag, range: Range },
    /// Flush a range of the kernel.
    Kernel { range: Range },
    /// Catch up in the loaded space (batches, tag transitions).
    CatchUp,
    /// Nothing: the answer proves that no walk is in progress.
    EndWalks,
    /// Wait until everything in progress on this CPU has finished: the interrupt alone is enough.
    Synchronise,
}

/// What a request asks for: its kind, below the id or the tag. Small, so that its requester passes it in a register.
/// Built directly, not from a [`DecodedRequest`], so that no code has to match on the kind.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked(u64);

impl Asked {
    /// [`DecodedRequest::CatchUp`].
    pub(crate) const CATCH_UP: Asked = Asked(CATCH_UP);
    /// The same, also for the requester, unless it is in lazy TLB mode.
    pub(crate) const ALL_CATCH_UP: Asked = Asked(ALL_CATCH_UP);
    /// The same, also for a requester in lazy TLB mode.
    pub(crate) const ALL_CATCH_UP_WITH_TABLES: Asked = Asked(ALL_CATCH_UP_WITH_TABLES);
    /// [`DecodedRequest::EndWalks`].
    pub(crate) const END_WALKS: Asked = Asked(END_WALKS);
    /// [`DecodedRequest::Synchronise`].
    pub(crate) const SYNCHRONISE: Asked = Asked(SYNCHRONISE);
    /// [`DecodedRequest::Kernel`].
    pub(crate) const KERNEL: Asked = Asked(KERNEL);

    /// [`DecodedRequest::Space`].
    #[inline]
    pub(crate) fn space(id: u64) -> Asked {
        Asked(SPACE | id << NAME)
    }

    /// [`DecodedRequest::Tag`].
    #[inline]
    pub(crate) fn tag(tag: Tag) -> Asked {
        Asked(TAG | u64::from(tag.0) << NAME)
    }

    /// Whether a target learns it only from a descriptor: a tag is not in the log, and synchronising is not catching
    /// up.
    #[inline]
    pub(crate) fn needs_descriptor(self) -> bool {
        matches!(self.0 & KIND, TAG | SYNCHRONISE)
    }

    /// The descriptor's words but for the addresses. A request without a range ignores it, one without a space the
    /// generation.
    #[inline]
    pub(crate) fn encode(self, generation: u64, range: &Range) -> EncodedRequest {
        let words = match self.0 & KIND {
            SPACE => [self.0, range.word(), generation, range.second_word()],
            TAG | KERNEL => [self.0, range.word(), 0, range.second_word()],
            ALL_CATCH_UP | ALL_CATCH_UP_WITH_TABLES => [CATCH_UP, 0, 0, 0],
            _ => [self.0, 0, 0, 0],
        };
        EncodedRequest { words }
    }

    /// Whether its requester does something itself; if not, its caller has done it, or there is nothing to do.
    #[inline]
    pub(crate) fn has_own_part(self) -> bool {
        self.0 & KIND >= SPACE
    }

    /// What its requester does itself, while its targets do their part. Only where it
    /// [does something](Self::has_own_part).
    #[inline]
    pub(crate) fn own_part(self) -> OwnPart {
        match self.0 & KIND {
            SPACE => OwnPart::Space(self.0 >> NAME),
            TAG => OwnPart::Tag(Tag((self.0 >> NAME) as u16)),
            KERNEL => OwnPart::Kernel,
            ALL_CATCH_UP => OwnPart::CatchUp { if_lazy: false },
            _ => OwnPart::CatchUp { if_lazy: true },
        }
    }
}

/// What the requester does itself.
pub(crate) enum OwnPart {
    /// It flushes the range of the space with this id, if it has that loaded.
    Space(u64),
    /// It flushes the range under this tag.
    Tag(Tag),
    /// It flushes the range of the kernel.
    Kernel,
    /// It catches up in the space that it has loaded; in lazy TLB mode only `if_lazy`.
    CatchUp { if_lazy: bool },
}

/// A request as stored in a descriptor: what is asked, the range, the generation, the end of a long range.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EncodedRequest {
    words: [u64; 4],
}

impl EncodedRequest {
    /// The range, of a request that has one.
    #[inline]
    fn range(&self) -> Range {
        Range::from_word(self.words[1], || self.words[3])
    }

    /// The words of the descriptor, and how many of them are used.
    #[inline]
    fn in_full(&self, walked: u64, departed: u64) -> ([u64; 6], usize) {
        let [kind, range, generation, end] = self.words;
        let used = match kind & KIND {
            SPACE | TAG | KERNEL if self.range().is_long() => 4,
            SPACE => 3,
            TAG | KERNEL => 2,
            _ => 1,
        };
        let flag = |address: u64, flag: u64| if address != 0 { flag } else { 0 };
        let kind = kind | flag(walked, FORGET) | flag(departed, DEPART);
        let used = match (walked, departed) {
            (0, 0) => used,
            (_, 0) => 5,
            _ => 6,
        };
        ([kind, range, generation, end, walked, departed], used)
    }
}

/// Bits of the kind, below the flags.
const KIND: u64 = 7;

// The kinds; in a descriptor the last two are `CATCH_UP`.
const CATCH_UP: u64 = 0;
const END_WALKS: u64 = 1;
const SYNCHRONISE: u64 = 2;
const SPACE: u64 = 3;
const TAG: u64 = 4;
const KERNEL: u64 = 5;
const ALL_CATCH_UP: u64 = 6;
const ALL_CATCH_UP_WITH_TABLES: u64 = 7;

/// Flag of a request with a space from whose walker set its targets are removed.
const FORGET: u64 = 8;

/// Flag of a request with a space whose set a target leaves if it has left the space.
const DEPART: u64 = 16;

/// Shift of the id of the space, or the tag, above the kind. Ids have 59 bits (`State`), so none is lost.
const NAME: u32 = 5;

/// Added to the count of missing acknowledgements until the requester knows the number of targets.
const SENDING: u64 = 1 << 32;

/// Value of the count while the descriptor is unused: the targets are done, and the requester has seen it.
pub(crate) const IDLE: u64 = 1 << 33;

/// A descriptor: the line that targets read, and the word in the next line in which they acknowledge. Where it lies
/// aligns it to a line ([`Room`](crate::transport::room::Room), [`PerCpu`](crate::PerCpu)). The rest of the second line
/// belongs to the requester's frame: a waiter reads that line anyway, and writes nothing in it.
#[repr(C)]
pub(crate) struct Request<F: Facade> {
    body: [F::U64; 6],
    _rest_of_line: [MaybeUninit<F::U64>; 2],
    /// Targets that have not acknowledged, plus [`SENDING`] while the requester is still sending.
    pub(crate) unacknowledged: F::U64,
}

#[cfg(any(target_arch = "x86_64", target_arch = "x86", not(target_os = "none")))]
const _: () = {
    use crate::facade::Native;
    assert!(core::mem::offset_of!(Request<Native>, unacknowledged) == 64);
};

impl<F: Facade> Request<F> {
    /// A descriptor that is about to be sent. [`sent`](Self::sent) sets the number of targets.
    pub(crate) fn sending() -> Self {
        Self::awaiting(SENDING)
    }

    fn awaiting(unacknowledged: u64) -> Self {
        Request {
            body: core::array::from_fn(|_| F::U64::new(0)),
            _rest_of_line: [const { MaybeUninit::uninit() }; 2],
            unacknowledged: F::U64::new(unacknowledged),
        }
    }

    /// A descriptor for one target.
    pub(crate) fn to_one() -> Self {
        Self::awaiting(1)
    }

    /// An unused descriptor.
    pub(crate) fn idle() -> Self {
        Self::awaiting(IDLE)
    }

    /// Whether it is unused (acquire; pairs with [`close`](Self::close)).
    pub(crate) fn is_idle(&self) -> bool {
        self.unacknowledged.load(Ordering::Acquire) == IDLE
    }

    /// Called when the requester has seen that it is complete, and accesses it no more.
    pub(crate) fn close(&self) {
        self.unacknowledged.store(IDLE, Ordering::Release);
    }

    /// Makes an unused request one that is about to be sent.
    pub(crate) fn reopen(&self) {
        self.unacknowledged.store(SENDING, Ordering::Relaxed);
    }

    /// The request has gone to `targets` CPUs in total, and the requester has done its local part. Until then it cannot
    /// be complete, no matter how many have acknowledged. A full barrier.
    #[inline]
    pub(crate) fn sent(&self, targets: u32) {
        self.unacknowledged
            .fetch_add_full(u64::from(targets).wrapping_sub(SENDING));
    }

    /// Writes the request. The stores become visible before the full barrier of the first [`Queue::put`].
    ///
    /// `walked`: address of a space from whose walker set targets are removed, or 0. `departed`: address of a space
    /// whose set a target leaves if it has left the space, or 0.
    #[inline]
    pub(crate) fn write(&self, encoded: &EncodedRequest, walked: u64, departed: u64) {
        let (words, used) = encoded.in_full(walked, departed);
        for (word, value) in self.body.iter().zip(words).take(used) {
            word.store(value, Ordering::Relaxed);
        }
    }

    /// [`write`](Self::write), while no other CPU can access the descriptor. Words that no target reads are initialised
    /// with their value too: to branch around them takes more instructions (`linux-baseline --only counts`).
    #[inline]
    pub(crate) fn fill(&mut self, encoded: &EncodedRequest, walked: u64, departed: u64) {
        let (words, used) = encoded.in_full(walked, departed);
        for (index, (word, value)) in self.body.iter_mut().zip(words).enumerate() {
            if index < used {
                word.set(value);
            } else {
                *word = F::U64::new(value);
            }
        }
    }

    /// Returns the request and two addresses, each 0 for none: of the space from whose walker set this target is
    /// removed, and of the space whose set it leaves if it has left the space. The requester keeps both alive until
    /// this is acknowledged. The acquire was done when the ready bits were taken.
    #[inline]
    pub(crate) fn decode(&self) -> (DecodedRequest, u64, u64) {
        let word = |index: usize| self.body[index].load(Ordering::Relaxed);
        let kind = word(0);
        let range = || Range::from_word(word(1), || word(3));
        let decoded = match kind & KIND {
            CATCH_UP => DecodedRequest::CatchUp,
            END_WALKS => DecodedRequest::EndWalks,
            SYNCHRONISE => DecodedRequest::Synchronise,
            SPACE => DecodedRequest::Space {
                id: kind >> NAME,
                generation: word(2),
                range: range(),
            },
            TAG => DecodedRequest::Tag {
                tag: Tag((kind >> NAME) as u16),
                range: range(),
            },
            _ => DecodedRequest::Kernel { range: range() },
        };
        let walked = if kind & FORGET == 0 { 0 } else { word(4) };
        let departed = if kind & DEPART == 0 { 0 } else { word(5) };
        (decoded, walked, departed)
    }

    /// Address of the space from whose walker set this target is removed, and whether it stays in while it has that
    /// space loaded; `None` if it stays in every set.
    #[inline]
    pub(crate) fn walks_to_forget(&self) -> Option<(u64, bool)> {
        let word = |index: usize| self.body[index].load(Ordering::Relaxed);
        let kind = word(0);
        (kind & FORGET != 0).then(|| (word(4), kind & KIND != END_WALKS))
    }

    /// Returns id, generation and range of a request that invalidates one leaf of a space. `None` if it also removes
    /// its target from a set, and for any other request.
    #[inline(always)]
    pub(crate) fn as_leaf(&self) -> Option<(u64, u64, Range)> {
        let word = |index: usize| self.body[index].load(Ordering::Relaxed);
        let kind = word(0);
        if kind & (KIND | FORGET | DEPART) != SPACE {
            return None;
        }
        // A range that is long is of more.
        let range = Range::from_word(word(1), || u64::MAX);
        range.is_one_leaf().then(|| (kind >> NAME, word(2), range))
    }

    /// Acknowledges for one target. Full barrier: the invalidation precedes it. Pairs with the acquire load of the
    /// waiter. The descriptor may be gone when this returns.
    #[inline]
    pub(crate) fn acknowledge(&self) {
        self.unacknowledged.fetch_add_full(u64::MAX);
    }

    /// Whether all targets have acknowledged (acquire; pairs with [`acknowledge`](Self::acknowledge)).
    pub(crate) fn is_complete(&self) -> bool {
        self.unacknowledged.load(Ordering::Acquire) == 0
    }
}

/// Requests that can be queued at one CPU at the same time; one bit each in a word. A requester that finds all slots
/// taken waits for a free one and serves its own requests meanwhile.
const QUEUE_SLOTS: usize = 64;

/// Value of a slot whose request was taken back, until the CPU takes it.
pub(crate) const TAKEN_BACK: u64 = 1;

/// A CPU's queue: many requesters put, the CPU itself takes. No lock; the taking CPU never waits for a requester.
#[repr(C, align(64))]
pub(crate) struct Queue<F: Facade> {
    /// Slots whose pointer may be read. A slot's bit is cleared before the slot is.
    ready: F::U64,
    /// Pointers to requests; 0 in a free slot.
    slots: CachePadded<[F::U64; QUEUE_SLOTS]>,
}

impl<F: Facade> Queue<F> {
    pub(crate) fn new() -> Self {
        Queue {
            ready: F::U64::new(0),
            slots: CachePadded(core::array::from_fn(|_| F::U64::new(0))),
        }
    }

    /// Puts `request` of the CPU `me` into a slot and publishes it. Returns the slot, and whether the queue was empty,
    /// in which case an interrupt is needed. `None` if all slots are taken. Each of the two operations is a full
    /// barrier: the descriptor is visible before the ready bit (regression 14).
    #[inline]
    pub(crate) fn put(&self, me: CpuId, request: *const Request<F>) -> Option<(u32, bool)> {
        let slot = self.claim(me, request as usize as u64)?;
        Some((slot, self.publish_slot(slot)))
    }

    /// Each CPU has a slot that it tries first. It shares that slot only with CPUs whose number differs by a multiple
    /// of [`QUEUE_SLOTS`], and with itself if it interrupted its own request.
    ///
    /// Reads before it writes, to find a free slot. The call queues of the kernels that the presets with stack requests
    /// represent do the same, and the second transfer of the line is part of their cost.
    #[inline]
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

    /// The bit is clear: the target frees the slot only after it has taken the bit. An add is one instruction. An OR
    /// that also returns the other bits takes a loop.
    #[inline]
    pub(crate) fn publish_slot(&self, slot: u32) -> bool {
        // Full barrier: pairs with the swap in `take`. The ready bit implies the descriptor.
        self.ready.fetch_add_full(1 << slot) == 0
    }

    /// Takes a published request back because its target turned out to be offline. Returns false if the target has
    /// taken it: then the target acknowledges.
    ///
    /// The pointer decides whose request it is, not the ready bit: if the target has taken ours, another requester may
    /// have claimed the same slot and set its bit again. For the same reason bit and slot are left to the target. It
    /// takes them, without a request, at the latest when it comes online.
    #[inline]
    pub(crate) fn cancel(&self, slot: u32, request: *const Request<F>) -> bool {
        let pointer = &self.slots.0[slot as usize];
        pointer
            .compare_exchange_full(request as usize as u64, TAKEN_BACK)
            .is_ok()
    }

    /// Whether `request` is still queued here. Only for reports (C7): relaxed, and false while the target is serving
    /// it.
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

    /// Takes the bits of all requests that are ready, for [`next`](Self::next). Owner only, interrupts off. The swap is
    /// a full barrier: what is read next (descriptor, generation) is at least as new as the ready bits.
    #[inline]
    pub(crate) fn take(&self) -> u64 {
        self.ready.swap_full(0)
    }

    /// [`next`](Self::next) in a function of its own, for a CPU that serves deep in its stack (`cargo xtask stack`).
    /// Returns the request, null if there is none, and the remaining bits.
    #[inline(never)]
    pub(crate) fn next_apart(&self, mut ready: u64) -> (*const Request<F>, u64) {
        let next = self.next(&mut ready);
        (next.unwrap_or(core::ptr::null()), ready)
    }

    /// The next request of those bits that was not taken back. Its slot is freed before it is served: its requester may
    /// need it at once.
    #[inline]
    pub(crate) fn next(&self, ready: &mut u64) -> Option<*const Request<F>> {
        while *ready != 0 {
            let pointer = self.slots.0[ready.trailing_zeros() as usize].swap_full(0);
            *ready &= *ready - 1;
            // Taken back (or regression 14, where the ready bit precedes the pointer).
            if pointer != TAKEN_BACK {
                return Some(core::ptr::with_exposed_provenance(pointer as usize));
            }
        }
        None
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

/// Sends by `send` from within a wait. If a hook that it calls panics, waits by `wait` before the panic goes on.
#[inline(always)]
pub(crate) fn send_or_wait(wait: impl FnMut(), send: impl FnOnce()) {
    let wait = WaitOnDrop(wait);
    send();
    core::mem::forget(wait);
}

#[cfg(test)]
mod tests;
