//! Early acknowledgement: a target answers when its handler begins, and invalidates before it returns.
//!
//! Owns when that is right. The requester goes on, and frees frames, while stale entries are still cached here; C1
//! allows that only where they cannot be used. Four conditions; for each there is a known bug that drops it:
//!
//! 1. No table page is freed: the CPU may walk through its paging-structure caches at any moment (C3).
//! 2. No kernel range is concerned: the handler itself may use kernel addresses.
//! 3. The generation that the slot records is not advanced before the flush, so that whoever interrupts the handler
//!    sees that it is behind.
//! 4. The CPU touches no user address before it has invalidated: the handler runs with interrupts off and returns last,
//!    and what interrupts even that asks [`Engine::user_access_ok`]. A routine that copies to or from user memory is
//!    interrupted as a whole: the invalidation is over when it goes on.
//!
//! Only the interrupt's handler answers early; whoever serves while it waits answers when it is done. So does everybody
//! where a request names a tag, a batch, or a change of tags: nothing on the CPU would tell that it is behind. Whoever
//! asks for a range of one space has found it on slots. Where it has been given a tag meanwhile, user accesses are
//! refused on the slot, and entries under the tag are younger than the change (`tags/promotion.rs`).

use crate::cpu::catch_up::Missed;
use crate::cpu::state::{PerCpu, State};
use crate::design::Ack;
use crate::engine::Engine;
use crate::facade::{Facade, Word};
use crate::hooks::Kernel;
use crate::space::{Mode, Space};
use crate::transport::request::Ask;
use core::sync::atomic::Ordering;

impl<K: Kernel<W>, const W: usize> Engine<'_, K, W> {
    /// Whether a handler that has just begun may answer a request before it does what is asked.
    pub(crate) fn may_answer_early(&self, ask: Ask, walked: u64) -> bool {
        if self.policy().ack != Ack::Early || walked != 0 {
            return false;
        }
        match ask {
            Ask::Space { range, .. } => !range.tables(),
            Ask::Kernel { .. } | Ask::CatchUp | Ask::Tag { .. } | Ask::EndWalks | Ask::Synchronise => false,
        }
    }

    /// The same for what was posted: everything between what this CPU has seen and now is known, and none of it is a
    /// kernel range, frees tables or moves this CPU to another tag. After the full barrier of the take, so that
    /// whatever was published before a post that is answered is looked at: relaxed, for nothing is done yet.
    pub(crate) fn may_answer_posts_early(&self, cpu: &PerCpu<K::Facade>) -> bool {
        if self.policy().ack != Ack::Early || self.machine().errata.interrupt_too {
            return false;
        }
        let kernel = self.kernel_log.generation.load(Ordering::Relaxed);
        if cpu.own.kernel_seen.load(Ordering::Relaxed) != kernel {
            return false;
        }
        // SAFETY: interrupts are off; see `loaded`.
        let Some(space) = (unsafe { self.loaded(cpu) }) else {
            return true;
        };
        if self.mode(space) != Mode::PerCpu {
            return false;
        }
        let slot = &cpu.own.slots[cpu.own.slot.load(Ordering::Relaxed) as usize];
        let seen = slot.generation.load(Ordering::Relaxed);
        match self.missed(&space.log, seen, space.log.generation.load(Ordering::Relaxed)) {
            Missed::Nothing | Missed::Leaves => true,
            Missed::Tables | Missed::Whole => false,
        }
    }

    /// Whether this CPU may touch user addresses of `space` now, asked from a context that may have interrupted
    /// anything: an NMI or machine-check handler that reads a user stack. False while another space is loaded, while
    /// this one is being loaded, while it is loaded lazily, and while this CPU has not carried out a request that it
    /// may have acknowledged already. On any doubt false (C6); the caller then does without.
    ///
    /// At most five loads and one full barrier. What is read is written by this CPU, but for the generation and the
    /// mode, and a requester that asked this CPU was told nothing before this CPU had seen that generation, or what
    /// comes after it: relaxed. The barrier is for requesters that did not ask it: what was interrupted may be the end
    /// of laziness, whose store this CPU sees before anybody else does.
    pub fn user_access_ok(&self, space: &Space<K::Facade, W>) -> bool {
        let cpu = &self.cpus[self.kernel.cpu()];
        let state = State(cpu.state.load(Ordering::Relaxed));
        if state.id() != space.id || state.is_switching() || state.is_lazy() {
            return false;
        }
        // Not lazy, full barrier, generation: the interrupted `leave_lazy_here` may not have come to its own. Pairs
        // with `dispatch`.
        K::Facade::full_barrier();
        match self.mode(space) {
            Mode::PerCpu => {
                let slot = &cpu.own.slots[cpu.own.slot.load(Ordering::Relaxed) as usize];
                let seen = slot.generation.load(Ordering::Relaxed);
                // A space with a CPU on its tag is not on slots.
                let current = space.log.generation.load(Ordering::Relaxed);
                seen == current
            }
            // A CPU that has the space on a tag has it on this one: until the last has left that, there is no other.
            Mode::System(_) | Mode::Transition(_) | Mode::Rolled { .. } => state.is_on_system_tag(),
            // CPUs move from the tag to slots, which may have to catch up.
            Mode::Demoting(_) => false,
        }
    }
}
