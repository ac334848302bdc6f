//! An address space as the engine sees it: its generation, its CPUs, its tag mode, its flush log.
//!
//! Does not own the page tables: the root is an opaque number that is passed back to the kernel.
//!
//! # Invariants
//! * **C1** The generation only grows, by one full barrier for each flush on slots and for each change of mode after
//!   which CPUs compare it again.
//! * **C4** State and tag share one word ([`Mode`]). It contains an era, so a compare-exchange that was meant for an
//!   earlier life of the same tag fails.
//! * **C6** A log entry that is missing, overwritten or half written reads as "unknown".
//!
//! # Barriers
//! ```text
//!   requester, FlushLog::append               CPU that catches up, FlushLog::read
//!     key := generation | BUSY (full)           read key       (acquire)
//!     range := ...                              read range     (acquire)
//!     key := generation        (release)        read key again (relaxed)
//!                                             ─ both keys are the generation: the range is that generation's
//!
//!   Space::change_mode (full)                 requester: generation += 1 (full), then reads the mode (flush/mod.rs)
//!                                             CPU that switches: join (full), then reads the mode (cpu/switch.rs)
//! ```

pub(crate) mod log;

use crate::cache_padded::CachePadded;
use crate::cpuset::{CpuMask, CpuSet};
use crate::facade::{Facade, Word};
use crate::hooks::{Root, Tag};
use crate::space::log::FlushLog;
use crate::walk::state::Counts;
use core::sync::atomic::Ordering;

/// An address space. `W` words of CPUs; see [`Engine`](crate::Engine) for the calls that take one.
///
/// Each group of words that is written together has its own cache line. Size: 704 bytes with `W` = 1, 2.6 KiB with 128.
///
/// # Example
/// ```
/// # mod stub { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/stub.rs")); }
/// # use stub::*;
/// let engine = start();
/// let space = engine.space(Root(0x2000));
/// assert!(space.cpus().is_empty()); // no CPU has loaded it
/// // SAFETY: the space is retired before it is dropped.
/// unsafe { engine.switch_to(&space) };
/// assert!(space.cpus().contains(0));
/// engine.switch_to_kernel();
/// let _ = engine.retire(&space); // no CPU has it loaded any more
/// drop(space);
/// ```
#[repr(C, align(64))]
pub struct Space<F: Facade, const W: usize> {
    /// Never reused, from 1. Read-only.
    pub(crate) id: u64,
    pub(crate) root: Root,
    /// How walks of this space register, where that is decided per space ([`crate::walk::policy`]). It is on this
    /// otherwise read-only line because walks read the id anyway.
    pub(crate) walk_mode: F::U64,
    /// [`Mode`], packed. Read by every flush and switch; written only at promotion, demotion and roll-over.
    pub(crate) mode: CachePadded<F::U64>,
    /// Generation of the last batched unmap that may not have been flushed, or 0 (rule 9).
    pub(crate) pending: F::U64,
    /// Samples in a row that found the space better off with a tag if it has none, or without if it has one. Written
    /// only where the mode is considered.
    pub(crate) streak: F::U64,
    /// When a request next looks for CPUs that have left, ns; 0 before the first time.
    pub(crate) next_trim: F::U64,
    /// Number of times that requests scanned a CPU that had left, since such CPUs last got a request to leave the set.
    pub(crate) stale_scans: F::U64,
    /// On how many CPUs it is active, and which share of them were targets of requests on per-CPU tags
    /// ([`Share`](crate::adaptive::tag_costs::Share)). Written at samples, like the next field.
    pub(crate) target_share: F::U64,
    /// Mean cost of its requests with a system-wide tag, ns. Measured while it has one. Kept, decaying, after it gave
    /// the tag up because requests cost less without. 0 if nothing is known.
    pub(crate) broadcast_cost: F::U64,
    /// CPUs that may cache it.
    pub(crate) cpus: CpuSet<F, W>,
    pub(crate) log: FlushLog<F>,
    /// CPUs that may walk it without a lock, registered by their walks. Distinct from `cpus`: a walker need not have
    /// the space loaded.
    pub(crate) walkers: CpuSet<F, W>,
    /// Counts of frees, for the policy.
    pub(crate) walk_counts: CachePadded<Counts<F>>,
}

#[cfg(any(target_arch = "x86_64", target_arch = "x86", not(target_os = "none")))]
const _: () = assert!(size_of::<Space<crate::facade::Native, 1>>() == 704);
#[cfg(any(target_arch = "x86_64", target_arch = "x86", not(target_os = "none")))]
const _: () = assert!(size_of::<Space<crate::facade::Native, 128>>() == 2624);

impl<F: Facade, const W: usize> Space<F, W> {
    pub(crate) fn new(id: u64, root: Root) -> Self {
        Space {
            id,
            root,
            walk_mode: F::U64::new(0),
            mode: CachePadded(F::U64::new(Mode::PerCpu.pack())),
            pending: F::U64::new(0),
            streak: F::U64::new(0),
            next_trim: F::U64::new(0),
            stale_scans: F::U64::new(0),
            target_share: F::U64::new(0),
            broadcast_cost: F::U64::new(0),
            cpus: CpuSet::new(),
            log: FlushLog::new(),
            walkers: CpuSet::new(),
            walk_counts: CachePadded(Counts::new()),
        }
    }

    /// The number of this space, never reused, from 1.
    #[inline]
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The top table, as given at creation.
    #[inline]
    pub fn root(&self) -> Root {
        self.root
    }

    /// CPUs that may hold translations of this space and would be targets of a flush: a copy, `8 * W` bytes. A CPU that
    /// joins or leaves concurrently may or may not be in it.
    pub fn cpus(&self) -> CpuMask<W> {
        let mut cpus = CpuMask::EMPTY;
        self.cpus.for_each(|cpu| cpus.insert(cpu));
        cpus
    }

    /// Replaces the mode in `word`, read before, by `to`, in the next era. A full barrier when it succeeds. The era
    /// makes the exchange fail if the space has since lost and regained its tag. Returns the new word.
    pub(crate) fn change_mode(&self, word: u64, to: Mode) -> Option<u64> {
        self.change_word(word, to.pack())
    }

    /// The same, to per-CPU tags permanently: the space has ended.
    pub(crate) fn end(&self, word: u64) -> bool {
        self.change_word(word, Mode::PerCpu.pack() | Mode::ENDED).is_some()
    }

    fn change_word(&self, word: u64, to: u64) -> Option<u64> {
        let new = to | (word & Mode::ERA).wrapping_add(Mode::ONE_ERA);
        self.mode.0.compare_exchange_full(word, new).is_ok().then_some(new)
    }

    /// The system-wide tag, if the space has one. Where tags roll over it is the tag of its last load, which another
    /// space may have by now.
    pub fn system_tag(&self) -> Option<Tag> {
        // Relaxed: the caller may see an outdated tag in any case.
        match Mode::unpack(self.mode.0.load(Ordering::Relaxed)) {
            Mode::PerCpu => None,
            Mode::Transition(tag) | Mode::System(tag) | Mode::Demoting(tag) => Some(tag),
            Mode::Rolled { tag, .. } => Some(tag),
        }
    }
}

/// Which tags a space uses. State and tag share one word, so they are always read together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Per-CPU slots.
    PerCpu,
    /// Being promoted: the tag is in use, and some CPUs may still run on a slot.
    Transition(Tag),
    /// Promoted: every CPU that has the space loaded uses the tag.
    System(Tag),
    /// Being demoted: CPUs move to slots, and some may still run on the tag.
    Demoting(Tag),
    /// A tag of the roll-over allocator, valid in that roll-over only.
    Rolled {
        /// Count of roll-overs, from 1.
        epoch: u64,
        /// The tag.
        tag: Tag,
    },
}

/// Packed word: bits 0 and 1 hold the mode, bits 2 to 17 the tag. Bit 18 distinguishes demotion from transition, and
/// marks spaces on per-CPU tags that have ended. Above is the era, which each change increments (for roll-over tags:
/// the epoch, from bit 18).
impl Mode {
    const DEMOTING: u64 = 1 << 18;
    /// For a space on per-CPU tags: it has ended, and never gets a tag again.
    pub(crate) const ENDED: u64 = 1 << 18;
    const ONE_ERA: u64 = 1 << 19;
    const ERA: u64 = !(Self::ONE_ERA - 1);

    #[inline]
    pub(crate) const fn pack(self) -> u64 {
        match self {
            Mode::PerCpu => 0,
            Mode::Transition(Tag(tag)) => 1 | (tag as u64) << 2,
            Mode::System(Tag(tag)) => 2 | (tag as u64) << 2,
            Mode::Demoting(Tag(tag)) => 1 | (tag as u64) << 2 | Self::DEMOTING,
            Mode::Rolled { epoch, tag: Tag(tag) } => 3 | (tag as u64) << 2 | epoch << 18,
        }
    }

    #[inline]
    pub(crate) const fn unpack(word: u64) -> Mode {
        let tag = Mode::tag_in(word);
        match word & 3 {
            0 => Mode::PerCpu,
            1 if word & Self::DEMOTING != 0 => Mode::Demoting(tag),
            1 => Mode::Transition(tag),
            2 => Mode::System(tag),
            _ => Mode::Rolled { epoch: word >> 18, tag },
        }
    }

    /// Whether a word holds [`Mode::PerCpu`].
    #[inline]
    pub(crate) const fn is_per_cpu(word: u64) -> bool {
        word & 3 == 0
    }

    /// Whether a word holds [`Mode::System`] or [`Mode::Rolled`]: flushes alone keep the entries under its tag fresh.
    #[inline]
    pub(crate) const fn is_kept_fresh(word: u64) -> bool {
        word & 2 != 0
    }

    /// The tag in a word of any mode but [`Mode::PerCpu`].
    #[inline]
    pub(crate) const fn tag_in(word: u64) -> Tag {
        Tag((word >> 2) as u16)
    }
}
