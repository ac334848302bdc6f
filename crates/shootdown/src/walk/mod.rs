//! Lockless walks: software that reads page tables without a lock. A CPU that frees a page-table page must know that no
//! walk still holds a pointer to it (C3).
//!
//! ```text
//!   mod.rs      the guard that a walk holds           retire.rs   the freeing side: which CPUs must answer, the proof
//!   slots.rs    what a CPU records about its walks    grace.rs    page-table pages that wait for a grace period
//!   state.rs    what a space records about frees      policy.rs   sticky or precise, decided per space
//! ```
//!
//! Walks run with interrupts off, so a CPU that answers an interrupt is in no walk. The modes differ in which CPUs are
//! interrupted:
//!
//! | [`Walkers`] | cost of a walk | a CPU that frees a page-table page |
//! | --- | --- | --- |
//! | `InterruptAll` | nothing | interrupts every online CPU |
//! | `Precise` | a store and a full barrier | reads a word of every online CPU, interrupts those that walk the space |
//! | `PreciseExchange` | an exchange | the same |
//! | `Sticky` | a load and a compare; the first one an atomic | interrupts the space's walker set, and empties it |
//! | `GracePeriod` | nothing | waits until every CPU was seen outside a walk; interrupts no CPU |
//! | `Adaptive` | as sticky; if published, as precise plus two loads | as sticky or precise, per space |
//!
//! # Invariants
//! * **C3** A page-table page is free when every CPU that could hold a pointer to it has answered an interrupt outside
//!   a walk, or was seen outside one. `TablesFree` is created then, and nowhere else.
//! * **C5** A CPU that holds a guard waits for no CPU (`walkers_of` panics, `serve_pending_masked` does not answer).
//! * **C6** In doubt, a slot or a word counts as a walk: a bit without a slot costs an interrupt.
//!
//! # Barriers
//! ```text
//!   walk                                          freeing side, retire.rs walkers_of
//!     walk_published: publish, full barrier         unlink
//!     register_walker: bit (full barrier), slot     full barrier (the generation of the flush)
//!     walk_from_nmi: bit (full barrier)             read the published words, walker sets, NMI walkers
//!     read tables                                 ─ sees the walk and interrupts it, or the walk misses the link
//!
//!   end of a walk                                 freeing side
//!     published := 0 (release)                      read published (acquire): its table reads are over
//!
//!   grace.rs quiescent_here                       grace.rs flush_tables_later, graces_over
//!     read the period (acquire)                     unlink; period += 1 (full barrier)
//!     quiescent := period (release)                 read quiescent of every CPU (acquire)
//!
//!   policy.rs: a walk reads the mode with         policy.rs change_walks
//!     interrupts off, then registers or             mode := changing (compare-exchange, full barrier)
//!     publishes                                     interrupt every CPU; mode := new (release)
//! ```
//!
//! Broadcast invalidation, skipping lazy CPUs and skipping descheduled virtual CPUs prove nothing about walks. None of
//! them is used here.

mod grace;
pub(crate) mod policy;
mod retire;
pub(crate) mod slots;
pub(crate) mod state;
#[cfg(test)]
mod tests;

pub use grace::{Grace, GracesOver, Retired};
pub use retire::TablesFree;

use crate::cpu::state::PerCpu;
use crate::design::Walkers;
use crate::engine::Engine;
use crate::facade::{Facade, Word};
use crate::hooks::Kernel;
use crate::space::Space;
use core::marker::PhantomData;
use core::sync::atomic::Ordering;

/// A lockless walk in progress on this CPU. While it is held, no page-table page that the walk can reach from tables it
/// has read is returned to its allocator. Interrupts are off.
///
/// Tied to its CPU: not `Send`. Guards nest, and may be dropped in any order. When the last is dropped, the interrupt
/// state from before the first is restored, and all walks of this CPU count as ended (C3). Do not wait while one is
/// held (flush, retire, `Token::wait`): the CPU would answer although walks continue. A debug build panics. A release
/// build does not answer until the walk is over, so nothing is freed too early, but two CPUs that both break the rule
/// may wait forever.
///
/// # Example
/// ```
/// # mod stub { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/stub.rs")); }
/// # use stub::*;
/// let engine = start();
/// let space = engine.space(Root(0x2000));
/// let walk = engine.walk(&space);
/// // Read the page table from its root: no page-table page that can be reached is freed meanwhile.
/// drop(walk);
/// // The other side has unlinked a page-table page that maps 2 MiB.
/// let free = engine.flush_tables(&space, Range::pages(0, 1 << 21, Stride::Size4K));
/// drop(free); // the proof that the page may be freed
/// ```
#[must_use = "the walk is over when the guard is dropped"]
pub struct Walk<'e, 'k, K: Kernel<W>, const W: usize> {
    engine: &'e Engine<'k, K, W>,
    cpu: &'e PerCpu<K::Facade>,
    /// Begun by [`Engine::walk_from_nmi`].
    in_nmi: bool,
    /// The end belongs to the CPU of the beginning.
    not_send: PhantomData<*mut ()>,
}

impl<'k, K: Kernel<W>, const W: usize> Engine<'k, K, W> {
    /// Begins a lockless walk of `space`'s tables; do not read them before. Masks interrupts until the guard is
    /// dropped.
    ///
    /// Context: any but NMI (see [`walk_from_nmi`](Self::walk_from_nmi)), on an online CPU; preemption is implicitly
    /// off. The space need not be loaded here. No allocation, no lock, no wait. Ordering: either this walk sees a
    /// page-table page unlinked, or the CPU that frees the page sees this walk.
    ///
    /// # Panics
    /// If the design says that the kernel has no lockless walks.
    #[inline]
    pub fn walk<'e>(&'e self, space: &Space<K::Facade, W>) -> Walk<'e, 'k, K, W> {
        let saved = self.kernel.interrupts_off();
        let me = self.kernel.cpu();
        let cpu = &self.cpus[me];
        cpu.own.mask_seen.note(true);
        match self.policy().walkers {
            Walkers::InterruptAll | Walkers::GracePeriod => {}
            Walkers::Sticky | Walkers::Adaptive => self.walk_registered(cpu, me, space),
            Walkers::Precise => self.walk_published(cpu, space, false),
            #[cfg(feature = "published")]
            Walkers::PreciseExchange => self.walk_published(cpu, space, true),
            Walkers::None => panic!("the design says that there are no lockless walks: set its walkers"),
        }
        cpu.walking.begin(saved);
        Walk {
            engine: self,
            cpu,
            in_nmi: false,
            not_send: PhantomData,
        }
    }

    /// Begins a walk in NMI context. The NMI may have interrupted a walk, a registration, or the handler that removes
    /// one, so this accesses none of their words. Instead this CPU joins a machine-wide set, by a full-barrier
    /// read-modify-write, that every freeing CPU reads. Masks nothing: an NMI handler is not interrupted by the
    /// shootdown interrupt. Not on an offline CPU, which is never waited for: an NMI may arrive there too.
    ///
    /// # Panics
    /// As [`walk`](Self::walk).
    pub fn walk_from_nmi<'e>(&'e self, _space: &Space<K::Facade, W>) -> Walk<'e, 'k, K, W> {
        assert!(
            self.policy().walkers != Walkers::None,
            "the design says that there are no lockless walks: set its walkers"
        );
        let me = self.kernel.cpu();
        let cpu = &self.cpus[me];
        cpu.walking.begin_in_nmi();
        // Pairs with the full barrier of the freeing CPU, as in `walk_published`.
        self.nmi_walkers.join(me);
        Walk {
            engine: self,
            cpu,
            in_nmi: true,
            not_send: PhantomData,
        }
    }

    /// Publishes a walk of `space` in this CPU's word.
    #[inline]
    fn walk_published(&self, cpu: &PerCpu<K::Facade>, space: &Space<K::Facade, W>, exchange: bool) {
        let Some(published) = cpu.walking.to_publish(space.id) else {
            return;
        };
        let word = &cpu.walking.published.0;
        // Publish, full barrier, read tables. Pairs with the freeing CPU: write tables, full barrier, read this word.
        // One of them sees the other. A release store, or a read barrier on the other side, would not be enough
        // (regression 9).
        if exchange {
            word.swap_full(published);
        } else {
            word.store(published, Ordering::Relaxed);
            K::Facade::full_barrier();
        }
    }

    /// Counts a walk of `space` in the slot of this CPU's registration. Registers if there is none.
    #[inline]
    fn walk_registered(&self, cpu: &PerCpu<K::Facade>, me: usize, space: &Space<K::Facade, W>) {
        // No barrier: the registration was one, and only this CPU could have removed it since. If a freeing CPU has not
        // seen the registration, this CPU has seen its unlinking ever since.
        if cpu.walking.count_registered(space.id) {
            return;
        }
        // Relaxed: in both cases a full barrier precedes the table reads, so they see the writes of any freeing CPU
        // that read an older mode. `policy.rs` covers a walk that reads the old mode.
        if self.policy().walkers == Walkers::Adaptive && policy::is_precise(space.walk_mode.load(Ordering::Relaxed)) {
            self.walk_published(cpu, space, false);
        } else {
            self.register_walker(cpu, me, space);
        }
    }

    /// The first walk since this CPU's registration was last removed: bit, full barrier, slot.
    #[cold]
    fn register_walker(&self, cpu: &PerCpu<K::Facade>, me: usize, space: &Space<K::Facade, W>) {
        debug_assert!(!cpu.state().is_off(), "CPU {me} walks while it is off");
        // Pairs with the freeing CPU: write tables, full barrier, read the set. The bit comes before the slot, so that
        // a slot never exists without its bit. A bit without a slot only costs an interrupt.
        space.walkers.join(me);
        cpu.walking.register(space.id);
    }
}

impl<K: Kernel<W>, const W: usize> Drop for Walk<'_, '_, K, W> {
    #[inline]
    fn drop(&mut self) {
        if self.in_nmi {
            if self.cpu.walking.end_in_nmi() {
                self.engine.nmi_walkers.leave(self.engine.kernel.cpu());
            }
        } else if let Some(saved) = self.cpu.walking.end() {
            self.engine.kernel.interrupts_restore(saved);
            self.engine.note_mask(self.engine.interrupts_were_off());
        }
    }
}

impl<K: Kernel<W>, const W: usize> core::fmt::Debug for Walk<'_, '_, K, W> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Walk")
            .field("in_nmi", &self.in_nmi)
            .finish_non_exhaustive()
    }
}
