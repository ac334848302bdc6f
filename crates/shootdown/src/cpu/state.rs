//! The engine's state of each CPU, and which CPU may write which line.
//!
//! | line | written by | read by |
//! | --- | --- | --- |
//! | `state` | the CPU itself, at switch, lazy, online and offline | every requester of a space it is in |
//! | `post`, on that line | requesters set a bit, which the CPU takes | the same |
//! | `served` | the CPU itself | waiters |
//! | `queue` | requesters and the CPU itself | both |
//! | `request` | requesters on this CPU; targets acknowledge in it | targets |
//! | `running` | the CPU itself; the roll-over, under its lock | the roll-over, if there is one |
//! | `deferring` | the CPU itself; the CPU that frees its unmapped frames | CPUs that check which deferrals are over |
//! | `own` | the CPU itself, interrupts off | no other CPU, except for `lag` and `mask_seen` (see there) |
//! | `walking` | the CPU itself (see `walk/slots.rs`) | freeing CPUs, two of its three lines |

use crate::adaptive::tag_costs::CatchUpLag;
use crate::cache_padded::CachePadded;
use crate::cpu::local_flag::LocalFlag;
use crate::cpu::mask_seen::MaskSeen;
use crate::design::MAX_SLOTS;
use crate::facade::{Facade, Word};
use crate::flush::state::Deferring;
use crate::hooks::{CpuId, Kernel};
use crate::tags::state::Running;
use crate::transport::request::{IDLE, Queue, Request};
use crate::walk::slots::Walking;
use core::marker::PhantomData;
use core::mem::MaybeUninit;
use core::ops::Index;
use core::sync::atomic::{AtomicU64, Ordering};

/// Per-CPU state; the kernel supplies one for each CPU. 1,536 bytes, 1,600 with debug assertions.
#[repr(C, align(64))]
pub struct PerCpu<F: Facade> {
    /// [`State`], packed into one word: loaded space, lazy, switching, kind of tag, offline. One word because a
    /// requester must read "loaded" before "lazy" (rule 4).
    pub(crate) state: F::U64,
    /// Bit 0: something was posted since the last take. Above: the number of takes. A requester posts with one
    /// `fetch_or`, and needs none if the bit is already set. The owner takes with one `fetch_add(1)`, whose carry
    /// clears the bit and counts. The ticket of a post is the count it saw. It shares the state's line: a posting CPU
    /// has just read the state, and the target writes it at its next step in any case. So the line is transferred once
    /// each way.
    pub(crate) post: F::U64,
    /// Number of takes that have been served completely.
    pub(crate) served: CachePadded<F::U64>,
    /// Requests queued for this CPU.
    pub(crate) queue: Queue<F>,
    pub(crate) running: Running<F>,
    /// This CPU's descriptor, for designs with one per CPU. Written by requesters on this CPU, pinned; read by targets.
    pub(crate) request: CachePadded<Request<F>>,
    pub(crate) deferring: CachePadded<Deferring<F>>,
    pub(crate) own: Own<F>,
    pub(crate) walking: Walking<F>,
}

#[cfg(any(target_arch = "x86_64", target_arch = "x86", not(target_os = "none")))]
const _: () = assert!(size_of::<PerCpu<crate::facade::Native>>() == if cfg!(debug_assertions) { 1600 } else { 1536 });

/// Set in a CPU's `post` word if something was posted since the last take.
pub(crate) const POSTED: u64 = 1;

/// Words that only their CPU accesses, with interrupts off. They are words of the facade, so that there is no data race
/// even if the contract is broken. All accesses are relaxed.
#[repr(C, align(64))]
pub(crate) struct Own<F: Facade> {
    /// Address of the loaded [`Space`](crate::Space), 0 for none.
    pub(crate) space: F::U64,
    /// Slot in use while on per-CPU tags.
    pub(crate) slot: F::U64,
    /// Tag loaded.
    pub(crate) tag: F::U64,
    /// Generation of the kernel range log that this CPU has seen.
    pub(crate) kernel_seen: F::U64,
    /// Next slot to evict.
    pub(crate) next_victim: F::U64,
    /// How far this CPU falls behind before it catches up by itself ([`CatchUpLag`]), where reach is adaptive. Also
    /// read, for an estimate, by a requester that has since migrated away from this CPU.
    pub(crate) lag: F::U64,
    /// Consecutive kernel sections during which no request arrived; see [`enter_kernel`](crate::Engine::enter_kernel).
    pub(crate) unused_kernel_sections: F::U64,
    /// Whether a requester on this CPU may have interrupts to send on which others rely: from its first post, or
    /// descriptor, to the send. Pinned.
    pub(crate) sending: LocalFlag,
    pub(crate) slots: [Slot<F>; MAX_SLOTS],
    /// Whether the handler, or a waiter in its place, is serving on this CPU. Last, so that no offset depends on the
    /// build.
    #[cfg(debug_assertions)]
    pub(crate) serving: LocalFlag,
    /// Whether interrupts were off when the engine last saw this CPU. Also read by CPUs that wait for this one. Empty
    /// in a release build.
    pub(crate) mask_seen: MaskSeen,
}

/// A per-CPU tag slot: the space whose entries it may hold, and their generation (rule 1).
pub(crate) struct Slot<F: Facade> {
    pub(crate) space: F::U64,
    pub(crate) generation: F::U64,
}

impl<F: Facade> Own<F> {
    /// The slot of the loaded space, and its number, which is below `MAX_SLOTS`: a mask takes less than a check.
    #[inline]
    pub(crate) fn loaded_slot(&self) -> (usize, &Slot<F>) {
        let index = self.slot.load(Ordering::Relaxed) as usize % MAX_SLOTS;
        (index, &self.slots[index])
    }
}

impl<F: Facade> PerCpu<F> {
    /// An offline CPU. `OFFLINE` repeats what is not zero.
    pub fn new() -> Self {
        PerCpu {
            state: F::U64::new(State::OFF.0),
            post: F::U64::new(0),
            served: CachePadded(F::U64::new(0)),
            queue: Queue::new(),
            running: Running::new(),
            request: CachePadded(Request::idle()),
            own: Own {
                space: F::U64::new(0),
                slot: F::U64::new(0),
                tag: F::U64::new(0),
                kernel_seen: F::U64::new(0),
                next_victim: F::U64::new(0),
                lag: F::U64::new(CatchUpLag::MAX.0),
                unused_kernel_sections: F::U64::new(0),
                sending: LocalFlag::new(),
                slots: core::array::from_fn(|_| Slot {
                    space: F::U64::new(0),
                    generation: F::U64::new(0),
                }),
                #[cfg(debug_assertions)]
                serving: LocalFlag::new(),
                mask_seen: MaskSeen::new(),
            },
            deferring: Deferring::new(),
            walking: Walking::new(),
        }
    }

    /// The published state (acquire: a CPU that sees a state also sees what this CPU did before it).
    #[inline]
    pub(crate) fn state(&self) -> State {
        State(self.state.load(Ordering::Acquire))
    }

    /// The state, read by its own CPU, which is the only writer.
    #[inline]
    pub(crate) fn own_state(&self) -> State {
        State(self.state.load(Ordering::Relaxed))
    }

    /// Publishes a state (release).
    #[inline]
    pub(crate) fn publish(&self, state: State) {
        self.state.store(state.0, Ordering::Release);
    }
}

impl<F: Facade<U64 = AtomicU64>> PerCpu<F> {
    /// [`new`](PerCpu::new) as a constant, for statics:
    ///
    /// ```
    /// use shootdown::{Native, PerCpu};
    /// static mut CPUS: [PerCpu<Native>; 4] = [PerCpu::OFFLINE; 4];
    /// ```
    #[expect(clippy::declare_interior_mutable_const, reason = "each use is a CPU of its own")]
    pub const OFFLINE: Self = {
        // SAFETY: it consists of atomic integers and booleans, for which zero is a value.
        let mut cpu = unsafe { MaybeUninit::<Self>::zeroed().assume_init() };
        cpu.state = AtomicU64::new(State::OFF.0);
        cpu.request.0.unacknowledged = AtomicU64::new(IDLE);
        cpu.own.lag = AtomicU64::new(CatchUpLag::MAX.0);
        cpu
    };
}

impl<F: Facade> Default for PerCpu<F> {
    fn default() -> Self {
        Self::new()
    }
}

/// The states of all CPUs, by CPU id: one array, or a reference to each if [`Kernel::SCATTERED`]. The other is empty.
/// The constant decides, so that an index takes no branch.
pub(crate) struct Cpus<'a, K: Kernel<W>, const W: usize> {
    together: &'a [PerCpu<K::Facade>],
    scattered: &'a [&'a mut PerCpu<K::Facade>],
    kernel: PhantomData<fn() -> K>,
}

impl<'a, K: Kernel<W>, const W: usize> Cpus<'a, K, W> {
    #[inline]
    pub(crate) fn together(cpus: &'a [PerCpu<K::Facade>]) -> Self {
        Cpus {
            together: cpus,
            scattered: &[],
            kernel: PhantomData,
        }
    }

    #[inline]
    pub(crate) fn scattered(cpus: &'a [&'a mut PerCpu<K::Facade>]) -> Self {
        Cpus {
            together: &[],
            scattered: cpus,
            kernel: PhantomData,
        }
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        if K::SCATTERED {
            self.scattered.len()
        } else {
            self.together.len()
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &PerCpu<K::Facade>> {
        (0..self.len()).map(|cpu| &self[cpu])
    }
}

impl<K: Kernel<W>, const W: usize> Index<CpuId> for Cpus<'_, K, W> {
    type Output = PerCpu<K::Facade>;

    #[inline]
    fn index(&self, cpu: CpuId) -> &PerCpu<K::Facade> {
        let found = if K::SCATTERED {
            self.scattered.get(cpu).map(|cpu| &**cpu)
        } else {
            self.together.get(cpu)
        };
        match found {
            Some(state) => state,
            None => panic_no_such_cpu(),
        }
    }
}

/// Not a check of the index by the compiler: each would be larger, and bring the formatting of numbers with it.
#[cold]
#[inline(never)]
fn panic_no_such_cpu() -> ! {
    panic!("no such CPU: numbers are below the number of CPUs in the storage")
}

/// What a CPU runs, in one word: the space's id above five flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct State(pub(crate) u64);

impl State {
    const LAZY: u64 = 1;
    const SWITCHING: u64 = 2;
    const SYSTEM: u64 = 4;
    const IS_OFF: u64 = 8;
    const IN_KERNEL: u64 = 16;
    const ID_SHIFT: u32 = 5;

    /// Offline: not yet up, going down, or down.
    pub(crate) const OFF: State = State(Self::IS_OFF);
    /// Online, kernel tables only.
    pub(crate) const KERNEL: State = State(0);

    #[inline]
    pub(crate) const fn loaded(id: u64, system_tag: bool) -> State {
        State(id << Self::ID_SHIFT | if system_tag { Self::SYSTEM } else { 0 })
    }
    #[inline]
    pub(crate) const fn switching(id: u64) -> State {
        State(id << Self::ID_SHIFT | Self::SWITCHING)
    }
    #[inline]
    pub(crate) const fn lazy(self) -> State {
        State(self.0 & !Self::IN_KERNEL | Self::LAZY)
    }
    /// Lazy because user code has entered the kernel, which will soon return to it.
    #[inline]
    pub(crate) const fn in_kernel(self) -> State {
        State(self.0 | Self::LAZY | Self::IN_KERNEL)
    }
    #[inline]
    pub(crate) const fn is_in_kernel(self) -> bool {
        self.0 & Self::IN_KERNEL != 0
    }
    #[inline]
    pub(crate) const fn not_lazy(self) -> State {
        State(self.0 & !(Self::LAZY | Self::IN_KERNEL))
    }
    #[inline]
    pub(crate) const fn id(self) -> u64 {
        self.0 >> Self::ID_SHIFT
    }
    /// Whether its space is that one, by one comparison of a word that a switch makes anyway.
    #[inline]
    pub(crate) const fn names(self, id: u64) -> bool {
        self.0 ^ id << Self::ID_SHIFT < 1 << Self::ID_SHIFT
    }
    #[inline]
    pub(crate) const fn is_lazy(self) -> bool {
        self.0 & Self::LAZY != 0
    }
    #[inline]
    pub(crate) const fn is_switching(self) -> bool {
        self.0 & Self::SWITCHING != 0
    }
    #[inline]
    pub(crate) const fn is_on_system_tag(self) -> bool {
        self.0 & Self::SYSTEM != 0
    }
    #[inline]
    pub(crate) const fn is_off(self) -> bool {
        self.0 & Self::IS_OFF != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facade::Native;

    #[test]
    fn offline_constant_equals_new() {
        let words = |cpu: PerCpu<Native>| {
            let PerCpu {
                state,
                post,
                served,
                own,
                ..
            } = cpu;
            let request = cpu.request.0.unacknowledged;
            let first = [state, post, served.0, request, own.space, own.slot, own.tag];
            let then = [own.kernel_seen, own.next_victim, own.lag, own.unused_kernel_sections];
            let slots = own.slots.into_iter().flat_map(|slot| [slot.space, slot.generation]);
            let all = first.into_iter().chain(then).chain(slots).map(AtomicU64::into_inner);
            all.collect::<std::vec::Vec<_>>()
        };
        assert_eq!(words(PerCpu::OFFLINE), words(PerCpu::new()));
        let offline = PerCpu::<Native>::OFFLINE;
        assert!(!offline.queue.has_ready() && offline.state().is_off());
    }
}
