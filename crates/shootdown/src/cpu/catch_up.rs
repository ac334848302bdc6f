//! Catching up: brings one CPU's entries for one space to the current generation.
//!
//! Used by the interrupt handler, switch-in, leaving lazy TLB mode and CPU online. Everything in this module runs on
//! the affected CPU with interrupts off.

use crate::cpu::state::{PerCpu, Slot, State};
use crate::design::{Requests, USER_HALF};
use crate::engine::Engine;
use crate::facade::{Facade, Word};
use crate::hooks::{Answer, Event, Kernel, Local, Tag};
use crate::range::{Range, Stride};
use crate::space::log::{FlushLog, LOG_ENTRIES};
use crate::space::{Mode, Space};
use core::sync::atomic::Ordering;

/// The requests between a slot and the current generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Missed {
    /// Nothing.
    Nothing,
    /// Ranges in the log, short enough to flush page by page, none of which frees page-table pages.
    Leaves,
    /// The same, but page-table pages are freed.
    Tables,
    /// Too much, or not all in the log (C6).
    Whole,
}

impl<K: Kernel<W>, const W: usize> Engine<'_, K, W> {
    /// Compares `seen` with `current`, using the log.
    #[inline]
    pub(crate) fn missed(&self, log: &FlushLog<K::Facade>, seen: u64, current: u64) -> Missed {
        if seen == current {
            Missed::Nothing
        } else if self.policy().requests == Requests::Log {
            self.missed_in_log(log, seen, current)
        } else {
            Missed::Whole
        }
    }

    #[inline(never)]
    fn missed_in_log(&self, log: &FlushLog<K::Facade>, seen: u64, current: u64) -> Missed {
        if current.wrapping_sub(seen) > LOG_ENTRIES as u64 {
            return Missed::Whole;
        }
        let (mut strides, mut tables) = (0, false);
        for generation in seen + 1..=current {
            let Some(range) = log.read(generation) else {
                return Missed::Whole;
            };
            strides += range.strides().min(u64::from(u32::MAX));
            tables |= range.tables();
            if strides > u64::from(self.policy().ceiling) {
                return Missed::Whole;
            }
        }
        if tables { Missed::Tables } else { Missed::Leaves }
    }

    /// The range between `seen` and `current`, if it is a single one in the log that is flushed page by page.
    #[inline]
    fn missed_one(&self, log: &FlushLog<K::Facade>, seen: u64, current: u64) -> Option<Range> {
        let one = self.policy().requests == Requests::Log && current == seen + 1;
        let range = if one { log.read(current) } else { None };
        range.filter(|range| range.is_walkable(self.policy().ceiling))
    }

    /// Brings this CPU's current slot to the space's generation, which is read before the flush (rule 6).
    pub(crate) fn catch_up(&self, cpu: &PerCpu<K::Facade>, space: &Space<K::Facade, W>) -> Answer {
        let (_, slot) = cpu.own.loaded_slot();
        let seen = slot.generation.load(Ordering::Relaxed);
        // Acquire: pairs with the increment in `publish_and_count`. A CPU that sees the generation sees the entries.
        let current = space.log.generation.load(Ordering::Acquire);
        let tag = Tag(cpu.own.tag.load(Ordering::Relaxed) as u16);
        if seen == current {
            return Answer::Current;
        }
        // A CPU flushes this space, so being spared inside the kernel pays off.
        cpu.own.unused_kernel_sections.store(0, Ordering::Relaxed);
        // Usually it is one range, which then need not be read twice.
        let Some(range) = self.missed_one(&space.log, seen, current) else {
            return self.catch_up_further(slot, &space.log, (seen, current), tag);
        };
        self.kernel.event(Event::CaughtUpPartly);
        self.flush_range_of(slot, tag, current, &range)
    }

    /// Brings a slot to `current` where more than one range was missed, or too much.
    #[inline(never)]
    fn catch_up_further(
        &self,
        slot: &Slot<K::Facade>,
        log: &FlushLog<K::Facade>,
        (seen, current): (u64, u64),
        tag: Tag,
    ) -> Answer {
        if self.policy().requests != Requests::Log || self.missed_in_log(log, seen, current) == Missed::Whole {
            self.catch_up_whole(slot, current, tag);
        } else {
            self.flush_logged(slot, log, current, tag);
        }
        Answer::Flushed
    }

    /// Brings a slot to `current` by a flush of its whole tag.
    // Not inlined: a tail call, because a waiter serves deep in its stack (`cargo xtask stack`).
    #[inline(never)]
    fn catch_up_whole(&self, slot: &Slot<K::Facade>, current: u64, tag: Tag) {
        self.flush_tag_inlined(tag);
        slot.generation.store(current, Ordering::Relaxed);
    }

    /// Flushes every range of the log that the slot has missed up to `current`, or the whole tag if one was overwritten
    /// meanwhile, and then sets its generation.
    #[inline(never)]
    pub(crate) fn flush_logged(&self, slot: &Slot<K::Facade>, log: &FlushLog<K::Facade>, current: u64, tag: Tag) {
        let mut passes = self.times_over();
        // By hand: iterators keep more at hand, and a waiter is deep in its stack (`cargo xtask stack`).
        while passes != 0 {
            passes -= 1;
            let mut generation = slot.generation.load(Ordering::Relaxed);
            while generation != current {
                generation += 1;
                let word = log.read_apart(generation);
                if word == 0 {
                    return self.catch_up_whole(slot, current, tag);
                }
                self.invalidate_range(tag, &Range::from_word(word, || u64::MAX));
            }
            self.synchronise_here();
        }
        self.kernel.event(Event::CaughtUpPartly);
        slot.generation.store(current, Ordering::Relaxed);
    }

    /// Flushes a range page by page under `tag`, both halves.
    // One page is what most shootdowns invalidate. Always: a call costs the target ten more instructions
    // (`linux-baseline --only counts`).
    #[inline(always)]
    pub(crate) fn flush_range(&self, tag: Tag, range: &Range) {
        if range.is_one_leaf() && self.one_instruction.here {
            self.flush_leaf_instruction(tag, range);
        } else {
            self.flush_pages(tag, *range);
        }
    }

    /// Flushes one leaf under `tag`, where one instruction does.
    #[inline(always)]
    pub(crate) fn flush_leaf_instruction(&self, tag: Tag, range: &Range) {
        self.kernel.invalidate(Local::Page {
            address: range.start(),
            stride: range.stride(),
            tag,
            leaf_only: true,
        });
        self.synchronise_here();
    }

    /// As [`flush_range`](Self::flush_range), where it is no part of most shootdowns.
    #[inline(never)]
    pub(crate) fn flush_pages(&self, tag: Tag, range: Range) {
        self.complete_here(|| self.invalidate_range(tag, &range));
    }

    /// The same for all that a slot has missed, up to `generation`.
    // Not inlined: a tail call, because a waiter serves deep in its stack (`cargo xtask stack`).
    #[inline(never)]
    fn flush_pages_of(&self, slot: &Slot<K::Facade>, tag: Tag, generation: u64, range: Range) -> Answer {
        self.complete_here(|| self.invalidate_range(tag, &range));
        // After the flush: `user_access_ok` relies on it.
        slot.generation.store(generation, Ordering::Relaxed);
        Answer::Flushed
    }

    /// Flushes all that a slot has missed, which is `range`, up to `generation`.
    #[inline(always)]
    pub(crate) fn flush_range_of(&self, slot: &Slot<K::Facade>, tag: Tag, generation: u64, range: &Range) -> Answer {
        if self.is_one_instruction(range) {
            self.flush_leaf_of(slot, tag, generation, range);
            return Answer::Flushed;
        }
        self.flush_pages_of(slot, tag, generation, *range)
    }

    /// As [`flush_range`](Self::flush_range); the caller completes it.
    fn invalidate_range(&self, tag: Tag, range: &Range) {
        range.for_each_address(|address| {
            let page = |tag| Local::Page {
                address,
                stride: range.stride(),
                tag,
                leaf_only: !range.tables(),
            };
            self.kernel.invalidate(page(tag));
            if let Some(user_half) = self.user_half(tag) {
                self.kernel.invalidate(page(user_half));
            }
        });
    }

    /// Flushes everything under `tag`, both halves.
    // Not inlined: a target that flushes one page would save registers for it (`linux-baseline --only counts`).
    #[inline(never)]
    pub(crate) fn flush_tag(&self, tag: Tag) {
        self.flush_tag_inlined(tag);
    }

    #[inline]
    fn flush_tag_inlined(&self, tag: Tag) {
        self.complete_here(|| {
            for tag in self.halves(tag) {
                self.kernel.invalidate(Local::Tag(tag));
            }
        });
        self.kernel.event(Event::CaughtUpWhole);
    }

    /// Flushes everything on this CPU, and on no other: entries of user and kernel pages under every tag. For changes
    /// of kernel mappings that other CPUs do not use, where a page invalidation would leave entries under other tags.
    /// Any context in which the CPU cannot change; masks interrupts itself.
    pub fn flush_this_cpu(&self) {
        self.masked(|| self.flush_everything_here());
    }

    /// Handles a fault at `address` that the present page table does not justify: its entry became valid, or more
    /// permissive, and this CPU used the old one. RISC-V lets harts cache invalid entries. Invalidates the page on this
    /// CPU, for user and kernel addresses. If a page-table page was added above the entry, call
    /// [`flush_this_cpu`](Self::flush_this_cpu). Any context with a CPU that cannot change.
    pub fn spurious_fault(&self, address: u64) {
        let (address, stride) = (address & !(Stride::Size4K.bytes() - 1), Stride::Size4K);
        self.complete_here(|| self.kernel.invalidate(Local::Kernel { address, stride }));
    }

    /// Flushes everything on this CPU.
    pub(crate) fn flush_everything_here(&self) {
        self.complete_here(|| self.kernel.invalidate(Local::All));
    }

    /// Whether this CPU is up to date with the kernel ranges.
    #[inline]
    pub(crate) fn has_seen_kernel_ranges(&self, cpu: &PerCpu<K::Facade>) -> bool {
        // Relaxed: where the two are equal there is nothing new to see.
        cpu.own.kernel_seen.load(Ordering::Relaxed) == self.kernel_log.generation.load(Ordering::Relaxed)
    }

    /// Brings this CPU up to date with the kernel ranges.
    #[inline]
    pub(crate) fn catch_up_kernel(&self, cpu: &PerCpu<K::Facade>) {
        // Acquire: pairs with the increment in `dispatch_kernel_into`, likewise.
        let current = self.kernel_log.generation.load(Ordering::Acquire);
        while cpu.own.kernel_seen.load(Ordering::Relaxed) != current {
            self.catch_up_kernel_further(cpu, current);
        }
    }

    /// [`catch_up_kernel`](Self::catch_up_kernel) in a function of its own.
    #[inline(never)]
    pub(crate) fn catch_up_kernel_apart(&self, cpu: &PerCpu<K::Facade>) {
        self.catch_up_kernel(cpu);
    }

    /// Flushes the next kernel range that this CPU has not seen, or everything if that is due.
    // Not inlined, and each branch ends in a tail call: a waiter serves deep in its stack (`cargo xtask stack`). So it
    // notes as seen what it is about to flush. Only this CPU reads that, with interrupts off.
    #[inline(never)]
    fn catch_up_kernel_further(&self, cpu: &PerCpu<K::Facade>, current: u64) {
        let seen = &cpu.own.kernel_seen;
        let next = seen.load(Ordering::Relaxed) + 1;
        if self.missed(&self.kernel_log, next - 1, current) == Missed::Whole {
            seen.store(current, Ordering::Relaxed);
            return self.flush_everything_here();
        }
        seen.store(next, Ordering::Relaxed);
        match self.kernel_log.read(next) {
            Some(range) => self.flush_kernel_range(cpu, range),
            None => self.flush_everything_here(),
        }
    }

    /// Flushes one kernel range on this CPU. With split tags kernel entries are not global: every tag that this CPU may
    /// load can have them. So tags that are not loaded are marked behind, and the loaded pair is flushed in both
    /// halves. A system-wide tag cannot be marked behind on one CPU, so there everything is flushed (rule 7).
    /// Everything is also flushed if kernel page-table pages are freed. On x86 a page invalidation purges the
    /// paging-structure-cache entries of only the loaded PCID, and every tag can have entries for kernel tables (C3).
    pub(crate) fn flush_kernel_range(&self, cpu: &PerCpu<K::Facade>, range: Range) {
        if !range.is_walkable(self.policy().ceiling) || range.tables() {
            return self.flush_everything_here();
        }
        if self.machine().split {
            return self.flush_split_kernel_range(cpu, range);
        }
        self.complete_here(|| self.invalidate_kernel_pages(&range));
    }

    /// Invalidates kernel pages as global entries; the caller completes it.
    #[inline]
    fn invalidate_kernel_pages(&self, range: &Range) {
        let stride = range.stride();
        range.for_each_address(|address| self.kernel.invalidate(Local::Kernel { address, stride }));
    }

    /// [`flush_kernel_range`](Self::flush_kernel_range) with split tags.
    // Not inlined: it has more at hand, and a waiter that serves such a request is deep in its stack.
    #[inline(never)]
    fn flush_split_kernel_range(&self, cpu: &PerCpu<K::Facade>, range: Range) {
        if self.tags() != crate::design::Tags::PerCpu {
            return self.flush_everything_here();
        }
        let loaded = cpu.own.slot.load(Ordering::Relaxed) as usize;
        for (index, slot) in cpu.own.slots[..self.slots()].iter().enumerate() {
            if index != loaded || cpu.own.space.load(Ordering::Relaxed) == 0 {
                slot.space.store(0, Ordering::Relaxed);
            }
        }
        // The kernel's own root keeps its entries between loads, under the tag that no slot has.
        let loaded_tag = match cpu.own.space.load(Ordering::Relaxed) {
            0 => None,
            _ => Some(Tag(cpu.own.tag.load(Ordering::Relaxed) as u16)),
        };
        let stride = range.stride();
        self.complete_here(|| {
            range.for_each_address(|address| {
                self.kernel.invalidate(Local::Kernel { address, stride });
                let Some(loaded) = loaded_tag else { return };
                for tag in [loaded, Tag(loaded.0 | USER_HALF), Tag(0)] {
                    self.kernel.invalidate(Local::Page {
                        address,
                        stride,
                        tag,
                        leaf_only: true,
                    });
                }
            })
        });
    }

    /// Carries out the pending work of the loaded space on this CPU: unload it in lazy TLB mode, move to its
    /// system-wide tag, or catch up.
    ///
    /// Lazy comes first (regression 6): a lazy CPU on a system-wide tag must unload the root as well.
    // Not inlined: its callers end in it.
    #[inline(never)]
    pub(crate) fn sync_loaded_space(&self, cpu: &PerCpu<K::Facade>) -> Answer {
        self.catch_up_kernel(cpu);
        // SAFETY: interrupts are off on this CPU, and the space is loaded here; see `switch_to`.
        let Some(space) = (unsafe { self.loaded(cpu) }) else {
            return Answer::Elsewhere;
        };
        let state = cpu.state();
        // Each branch ends in a tail call, because a waiter serves deep in its stack (`cargo xtask stack`).
        if state.is_lazy() {
            return self.unload_if_lazy(cpu);
        }
        match self.apply_tag_mode(cpu, space, state) {
            Some(answer) => answer,
            // Its requests name the tag and the range; "catch up" without them means everything.
            None => self.flush_loaded_tag(cpu),
        }
    }

    #[cold]
    #[inline(never)]
    fn unload_if_lazy(&self, cpu: &PerCpu<K::Facade>) -> Answer {
        self.unload(cpu);
        Answer::Unloaded
    }

    #[cold]
    #[inline(never)]
    fn flush_loaded_tag(&self, cpu: &PerCpu<K::Facade>) -> Answer {
        self.flush_tag(Tag(cpu.own.tag.load(Ordering::Relaxed) as u16));
        Answer::Flushed
    }

    /// Moves this CPU, which has `space` loaded and is not lazy, onto the tag of the space or off it, or catches up on
    /// its slot. `None` where tags roll over, because there is neither. `state` is that of this CPU, possibly from
    /// before it left lazy TLB mode.
    #[inline]
    pub(crate) fn apply_tag_mode(
        &self,
        cpu: &PerCpu<K::Facade>,
        space: &Space<K::Facade, W>,
        state: State,
    ) -> Option<Answer> {
        Some(match self.mode(space) {
            Mode::PerCpu | Mode::Demoting(_)
                if self.policy().tags.promote_at().is_some() && state.is_on_system_tag() =>
            {
                self.leave_system_tag(cpu, space)
            }
            Mode::PerCpu | Mode::Demoting(_) => self.catch_up(cpu, space),
            Mode::Transition(tag) | Mode::System(tag) => {
                // Broadcasts have kept entries under the system-wide tag fresh, so there is no generation to compare.
                if !state.is_on_system_tag() {
                    self.adopt_system_tag(cpu, space, tag);
                }
                Answer::Current
            }
            Mode::Rolled { .. } => return None,
        })
    }

    /// Moves this CPU from its slot to the space's system-wide tag.
    ///
    /// Nothing needs flushing. No entry under the tag is older than its allocation (C4). A flush that did not see the
    /// promotion wrote its entries before this CPU's first fill under the tag: the promotion's compare-exchange and the
    /// barrier here order them.
    pub(crate) fn adopt_system_tag(&self, cpu: &PerCpu<K::Facade>, space: &Space<K::Facade, W>, tag: Tag) {
        K::Facade::before_root_load();
        self.kernel.load_root(space.root, tag, true);
        cpu.own.tag.store(u64::from(tag.0), Ordering::Relaxed);
        // Not lazy: a lazy CPU unloads the space, or has just left lazy TLB mode. Release: a requester that sees this
        // CPU on the tag knows that the root load is complete.
        cpu.publish(State::loaded(space.id, true));
    }

    /// The space loaded on this CPU.
    ///
    /// # Safety
    /// Interrupts must be off on this CPU, and the caller must stay on it, while the reference is used. The published
    /// state of this CPU must name the space, or be "switching". The caller of `switch_to` promised that the space
    /// lives that long, and [`retire`](Self::retire) waits that long.
    pub(crate) unsafe fn loaded<'s>(&self, cpu: &PerCpu<K::Facade>) -> Option<&'s Space<K::Facade, W>> {
        let address = cpu.own.space.load(Ordering::Relaxed) as usize;
        // SAFETY: non-zero addresses were stored by `switch_to` from a reference that outlives the load.
        (address != 0).then(|| unsafe { &*core::ptr::with_exposed_provenance(address) })
    }
}
