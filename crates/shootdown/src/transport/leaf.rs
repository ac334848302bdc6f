//! The common request at its target: the CPU runs the space on a slot, has missed this request alone, and one
//! instruction invalidates its one leaf.
//!
//! It takes the steps of `serve_queue` and `serve_posts` (`transport/handler.rs`) in their order, and skips no barrier:
//! the caller has taken the request or the post, with interrupts off. It leaves every other request to them.

use crate::cpu::state::{PerCpu, Slot, State};
use crate::design::Ack;
use crate::engine::Engine;
use crate::facade::Word;
use crate::hooks::{Answer, Event, Kernel, Tag};
use crate::range::Range;
use crate::transport::handler::Next;
use crate::transport::request::Request;
use core::sync::atomic::Ordering;

impl<K: Kernel<W>, const W: usize> Engine<'_, K, W> {
    /// Carries out what most requests on a stack are, and acknowledges. Otherwise returns false, and has done nothing.
    #[inline(always)]
    pub(super) fn answer_leaf(&self, cpu: &PerCpu<K::Facade>, request: *const Request<K::Facade>) -> bool {
        // SAFETY: as in `serve_queue`.
        let request = unsafe { &*request };
        let Some((id, generation, range)) = request.as_leaf() else {
            return false;
        };
        let early = self.policy().ack == Ack::Early;
        if early || cpu.own_state() != State::loaded(id, false) || !self.is_one_instruction(&range) {
            return false;
        }
        // SAFETY: interrupts are off; see `loaded`.
        let Some(space) = (unsafe { self.loaded(cpu) }) else {
            return false;
        };
        let Next::This(slot, tag) = self.next_in_slot(cpu, space, generation) else {
            return false;
        };
        self.flush_leaf_of(slot, tag, generation, &range);
        self.kernel.event(Event::Answered(Answer::Flushed));
        request.acknowledge();
        true
    }

    /// Carries out what most posts are for, after the take; the caller answers. Otherwise returns false, and has done
    /// nothing.
    #[inline(always)]
    pub(super) fn catch_up_leaf(&self, cpu: &PerCpu<K::Facade>) -> bool {
        if self.machine().errata.interrupt_too || !self.has_seen_kernel_ranges(cpu) {
            return false;
        }
        // SAFETY: interrupts are off; see `loaded`.
        let Some(space) = (unsafe { self.loaded(cpu) }) else {
            return false;
        };
        if cpu.own_state() != State::loaded(space.id, false) {
            return false;
        }
        // Relaxed: its entry in the log is acquired below, and whoever wrote that had written the page-table entries.
        let current = space.log.generation.load(Ordering::Relaxed);
        let Next::This(slot, tag) = self.next_in_slot(cpu, space, current) else {
            return false;
        };
        let Some(range) = space.log.read(current).filter(|range| self.is_one_instruction(range)) else {
            return false;
        };
        // As in `catch_up`.
        cpu.own.unused_kernel_sections.store(0, Ordering::Relaxed);
        self.flush_leaf_of(slot, tag, current, &range);
        self.kernel.event(Event::CaughtUpPartly);
        self.kernel.event(Event::Answered(Answer::Flushed));
        true
    }

    /// Whether one instruction flushes `range` on a CPU.
    #[inline(always)]
    pub(crate) fn is_one_instruction(&self, range: &Range) -> bool {
        range.is_one_leaf() && self.one_instruction.here && self.policy().ceiling > 0
    }

    /// Flushes such a range under `tag` of `slot`, which has then seen `generation`. Interrupts off.
    #[inline(always)]
    pub(crate) fn flush_leaf_of(&self, slot: &Slot<K::Facade>, tag: Tag, generation: u64, range: &Range) {
        self.flush_leaf_instruction(tag, range);
        // After the flush: `user_access_ok` relies on it.
        slot.generation.store(generation, Ordering::Relaxed);
    }
}
