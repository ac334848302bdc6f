//! Early acknowledgement: a target answers when its handler begins, and invalidates before it returns.
//!
//! Decides when that is safe. The requester continues, and frees frames, while stale entries are still cached here; C1
//! allows that only if they cannot be used. Four conditions apply. For each there is a known bug that drops it:
//!
//! 1. No page-table page is freed: the CPU may walk through its paging-structure caches at any time (C3).
//! 2. No kernel range is involved: the handler itself may use kernel addresses.
//! 3. The generation in the slot does not advance before the flush, so code that interrupts the handler sees that the
//!    slot is behind.
//! 4. The CPU accesses no user address before it has invalidated. The handler runs with interrupts off and returns
//!    last, and an NMI handler that interrupts it checks [`Engine::user_access_ok`]. A routine that copies to or from
//!    user memory is interrupted as a whole: the invalidation is over when it continues.
//!
//! Only the interrupt handler answers early. A CPU that serves requests while it waits answers when it is done. So does
//! the handler if a request names a tag, a batch, or a change of tags: nothing on the CPU would show that it is behind.
//! A requester that names a range of one space has found the space on slots. If the space has been given a tag since,
//! user accesses are refused on the slot, and entries under the tag are newer than the change (`tags/promotion.rs`).

use crate::cpu::catch_up::Missed;
use crate::cpu::state::{PerCpu, State};
use crate::design::Ack;
use crate::engine::Engine;
use crate::facade::{Facade, Word};
use crate::hooks::Kernel;
use crate::space::{Mode, Space};
use crate::transport::request::DecodedRequest;
use core::sync::atomic::Ordering;

impl<K: Kernel<W>, const W: usize> Engine<'_, K, W> {
    /// Whether a handler that has just begun may answer a request before it carries it out.
    pub(crate) fn may_answer_early(&self, decoded: DecodedRequest, walked: u64) -> bool {
        if self.policy().ack != Ack::Early || walked != 0 {
            return false;
        }
        match decoded {
            DecodedRequest::Space { range, .. } => !range.tables(),
            DecodedRequest::Kernel { .. }
            | DecodedRequest::CatchUp
            | DecodedRequest::Tag { .. }
            | DecodedRequest::EndWalks
            | DecodedRequest::Synchronise => false,
        }
    }

    /// The same for posts. Every request between what this CPU has seen and the present generation is known. None of
    /// them is for a kernel range, frees page-table pages or moves this CPU to another tag. Called after the full
    /// barrier of the take, so it sees everything published before a post that is answered. Relaxed: nothing has been
    /// carried out yet.
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
        let (_, slot) = cpu.own.loaded_slot();
        let seen = slot.generation.load(Ordering::Relaxed);
        match self.missed(&space.log, seen, space.log.generation.load(Ordering::Relaxed)) {
            Missed::Nothing | Missed::Leaves => true,
            Missed::Tables | Missed::Whole => false,
        }
    }

    /// Whether this CPU may access user addresses of `space`. For contexts that may have interrupted anything: an NMI
    /// or machine-check handler that reads a user stack. Returns false while another space is loaded, while this one is
    /// being loaded, and in lazy TLB mode. Returns false while this CPU has not carried out a request that it may have
    /// acknowledged already, and in any doubt (C6); the caller then skips the access.
    ///
    /// At most five loads and one full barrier. All but the generation and the mode are written by this CPU. A
    /// requester with this CPU among its targets gets no answer before this CPU has seen that generation or a later
    /// state: relaxed. The barrier is for requesters that did not choose this CPU as a target. The interrupted code may
    /// be leaving lazy TLB mode, with a store that other CPUs do not see yet.
    pub fn user_access_ok(&self, space: &Space<K::Facade, W>) -> bool {
        let cpu = &self.cpus[self.kernel.cpu()];
        let state = State(cpu.state.load(Ordering::Relaxed));
        if state.id() != space.id || state.is_switching() || state.is_lazy() {
            return false;
        }
        // Not lazy, full barrier, generation: the interrupted `leave_lazy_here` may not have reached its own barrier.
        // Pairs with `dispatch`.
        K::Facade::full_barrier();
        match self.mode(space) {
            Mode::PerCpu => {
                let (_, slot) = cpu.own.loaded_slot();
                let seen = slot.generation.load(Ordering::Relaxed);
                // A space with a CPU on its tag is not on slots.
                let current = space.log.generation.load(Ordering::Relaxed);
                seen == current
            }
            // A CPU that has the space on a tag has it on this one: there is no other before the last CPU has left this
            // one.
            Mode::System(_) | Mode::Transition(_) | Mode::Rolled { .. } => state.is_on_system_tag(),
            // CPUs move from the tag to slots, which may have to catch up.
            Mode::Demoting(_) => false,
        }
    }
}
