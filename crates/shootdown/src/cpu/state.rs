//! What the engine keeps for each CPU, and who may write which line.
//!
//! | line | written by | read by |
//! | --- | --- | --- |
//! | `state` | the CPU itself, at switch, lazy, online and offline | every requester of a space it is in |
//! | `post`, on that line | requesters set a bit, which the CPU takes | the same |
//! | `served` | the CPU itself | waiters |
//! | `queue` | requesters and the CPU itself | both |
//! | `request` | requesters on this CPU; targets acknowledge in it | targets |
//! | `running` | the CPU itself; the roll-over, under its lock | the roll-over |
//! | `deferring` | the CPU itself; the CPU that frees what was unmapped on it | CPUs that ask which deferrals are over |
//! | `own` | the CPU itself, interrupts off | no other CPU, but for `lag` (see there) |
//! | `walking` | the CPU itself (see `walk/slots.rs`) | freeing sides, two of its three lines |

use crate::adaptive::tag_policy::CatchUpLag;
use crate::cpu::local_flag::LocalFlag;
use crate::design::MAX_SLOTS;
use crate::facade::{Facade, Word};
use crate::flush::deferred::Deferring;
use crate::space::CachePadded;
use crate::tags::rollover::Running;
use crate::transport::request::{Queue, Request};
use core::sync::atomic::Ordering;

/// Per-CPU state; the kernel supplies an array of these, indexed by CPU id. About 1.4 KiB.
#[repr(C, align(64))]
pub struct PerCpu<F: Facade> {
    /// [`State`], packed into one word: what is loaded, lazy, switching, on which kind of tag, off. One word because a
    /// requester must read "loaded" before "lazy" (rule 4): here it cannot do otherwise.
    pub(crate) state: F::U64,
    /// Bit 0: something was posted since the last take. Above: how many takes there were. A requester posts with one
    /// `fetch_or`, and needs none when the bit is already set; the owner takes with one `fetch_add(1)`, whose carry
    /// clears the bit and counts. The ticket of a post is the count it saw. Beside the state: whoever posts has just
    /// read that, and the CPU writes it at its next turn in any case, so that the line goes there once and back once.
    pub(crate) post: F::U64,
    /// How many takes have been served completely.
    pub(crate) served: CachePadded<F::U64>,
    /// Stack requests queued here.
    pub(crate) queue: Queue<F>,
    pub(crate) running: Running<F>,
    /// This CPU's descriptor, for designs with one per CPU. Written by whoever requests from here, pinned; read by
    /// targets.
    pub(crate) request: Request<F>,
    pub(crate) deferring: CachePadded<Deferring<F>>,
    pub(crate) own: Own<F>,
    pub(crate) walking: crate::walk::Walking<F>,
}

/// Lines that only their CPU touches, with interrupts off. Words of the facade so that no data race can exist even when
/// the contract is broken; all accesses are relaxed.
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
    /// read, for an estimate, by a requester that has migrated from here since.
    pub(crate) lag: F::U64,
    /// Sections inside the kernel, one after the other, that no request fell into; see
    /// [`enter_kernel`](crate::Engine::enter_kernel).
    pub(crate) unused_kernel_sections: F::U64,
    /// Whether a requester here may owe a CPU an interrupt that others count on: from its first post, or descriptor, to
    /// the sending. Pinned.
    pub(crate) sending: LocalFlag,
    pub(crate) slots: [Slot<F>; MAX_SLOTS],
    /// Whether the handler, or a waiter in its place, is serving here. Last, so that no offset depends on the build.
    #[cfg(debug_assertions)]
    pub(crate) serving: LocalFlag,
}

/// A per-CPU tag slot: whose entries it may hold, and how fresh they are (rule 1).
pub(crate) struct Slot<F: Facade> {
    pub(crate) space: F::U64,
    pub(crate) generation: F::U64,
}

impl<F: Facade> PerCpu<F> {
    /// A CPU that is off.
    pub fn new() -> Self {
        PerCpu {
            state: F::U64::new(State::OFF.0),
            post: F::U64::new(0),
            served: CachePadded(F::U64::new(0)),
            queue: Queue::new(),
            running: Running::new(),
            request: Request::idle(),
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
            },
            deferring: Deferring::new(),
            walking: crate::walk::Walking::new(),
        }
    }

    /// The published state (acquire: whoever sees a CPU arrived sees what it did before).
    #[inline]
    pub(crate) fn state(&self) -> State {
        State(self.state.load(Ordering::Acquire))
    }

    /// The state, read by its own CPU, which alone writes it.
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

impl<F: Facade> Default for PerCpu<F> {
    fn default() -> Self {
        Self::new()
    }
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

    /// Off: not yet up, going down, or down.
    pub(crate) const OFF: State = State(Self::IS_OFF);
    /// On, kernel tables only.
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
    /// Lazy because user code has entered the kernel, which will return to it soon.
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
