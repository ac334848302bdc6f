//! Catching up: bringing one CPU's entries for one space to the current generation.
//!
//! Interrupt handler, switch-in, lazy exit and CPU online all come here. Everything in this module runs on the CPU
//! concerned with interrupts off.

use crate::cpu::state::{PerCpu, State};
use crate::design::Requests;
use crate::engine::Engine;
use crate::facade::{Facade, Word};
use crate::hooks::{Answer, Event, Kernel, Local, Tag};
use crate::range::Range;
use crate::space::log::{FlushLog, LOG_ENTRIES};
use crate::space::{Mode, Space};
use core::sync::atomic::Ordering;

/// What separates a slot from the current generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Missed {
    /// Nothing.
    Nothing,
    /// Ranges that the log knows, short enough to walk, none of which frees tables.
    Leaves,
    /// The same, but table pages are freed.
    Tables,
    /// Too much, or not all known (C6).
    Whole,
}

impl<K: Kernel<W>, const W: usize> Engine<'_, K, W> {
    /// Compares what was `seen` with `current`, by the log.
    pub(crate) fn missed(&self, log: &FlushLog<K::Facade>, seen: u64, current: u64) -> Missed {
        if seen == current {
            return Missed::Nothing;
        }
        if self.policy().requests != Requests::Log || current.wrapping_sub(seen) > LOG_ENTRIES as u64 {
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

    /// The range that separates what was `seen` from `current`, where it is a single one that the log knows and that is
    /// walked.
    #[inline]
    fn missed_one(&self, log: &FlushLog<K::Facade>, seen: u64, current: u64) -> Option<Range> {
        let one = self.policy().requests == Requests::Log && current == seen + 1;
        let range = if one { log.read(current) } else { None };
        range.filter(|range| range.is_walkable(self.policy().ceiling))
    }

    /// Brings this CPU's current slot to the space's generation. The generation is read before the flush (rule 6).
    pub(crate) fn catch_up(&self, cpu: &PerCpu<K::Facade>, space: &Space<K::Facade, W>) -> Answer {
        let slot = &cpu.own.slots[cpu.own.slot.load(Ordering::Relaxed) as usize];
        let seen = slot.generation.load(Ordering::Relaxed);
        let current = space.log.generation.load(Ordering::Acquire);
        let tag = Tag(cpu.own.tag.load(Ordering::Relaxed) as u16);
        if seen == current {
            return Answer::Current;
        }
        // Somebody flushes this space: being spared inside the kernel is worth its cost.
        cpu.own.unused_kernel_sections.store(0, Ordering::Relaxed);
        // Most often it is one range, and then it need not be read twice.
        if let Some(range) = self.missed_one(&space.log, seen, current) {
            self.flush_range(tag, &range);
            self.kernel.event(Event::CaughtUpPartly);
        } else if self.missed(&space.log, seen, current) == Missed::Whole {
            self.flush_tag(tag);
        } else {
            self.flush_logged(&space.log, seen, current, tag);
        }
        slot.generation.store(current, Ordering::Relaxed);
        Answer::Flushed
    }

    /// Flushes every range of the log after `seen` up to `current`; the whole tag if one was overwritten meanwhile.
    pub(crate) fn flush_logged(&self, log: &FlushLog<K::Facade>, seen: u64, current: u64, tag: Tag) {
        let overrun = core::cell::Cell::new(false);
        self.complete_here(|| {
            for generation in seen + 1..=current {
                match log.read(generation) {
                    Some(range) => self.invalidate_range(tag, &range),
                    None => return overrun.set(true),
                }
            }
        });
        if overrun.get() {
            return self.flush_tag(tag);
        }
        self.kernel.event(Event::CaughtUpPartly);
    }

    /// Flushes a walkable range under `tag`, both halves.
    #[inline(always)]
    pub(crate) fn flush_range(&self, tag: Tag, range: &Range) {
        // Not by `complete_here`: this is what a shootdown does, and a closure would not become part of it.
        for _ in 0..self.times_over() {
            self.invalidate_range(tag, range);
            self.synchronise_here();
        }
    }

    /// As [`flush_range`](Self::flush_range), to be completed by the caller.
    #[inline(always)]
    fn invalidate_range(&self, tag: Tag, range: &Range) {
        let leaf_only = !range.tables();
        let stride = range.stride();
        let (user_half, mut address) = (self.user_half(tag), range.start());
        for _ in 0..range.strides() {
            let page = |tag| Local::Page {
                address,
                stride,
                tag,
                leaf_only,
            };
            self.kernel.invalidate(page(tag));
            if let Some(user_half) = user_half {
                self.kernel.invalidate(page(user_half));
            }
            address = address.wrapping_add(1 << range.shift());
        }
    }

    /// Flushes everything under `tag`, both halves.
    pub(crate) fn flush_tag(&self, tag: Tag) {
        self.complete_here(|| {
            for tag in self.halves(tag) {
                self.kernel.invalidate(Local::Tag(tag));
            }
        });
        self.kernel.event(Event::CaughtUpWhole);
    }

    /// Flushes everything on this CPU.
    pub(crate) fn flush_everything_here(&self) {
        self.complete_here(|| self.kernel.invalidate(Local::All));
    }

    /// Brings this CPU up to date with the kernel ranges.
    #[inline]
    pub(crate) fn catch_up_kernel(&self, cpu: &PerCpu<K::Facade>) {
        let seen = cpu.own.kernel_seen.load(Ordering::Relaxed);
        let current = self.kernel_log.generation.load(Ordering::Acquire);
        if seen != current {
            self.catch_up_kernel_from(cpu, seen, current);
        }
    }

    #[inline(never)]
    fn catch_up_kernel_from(&self, cpu: &PerCpu<K::Facade>, seen: u64, current: u64) {
        match self.missed(&self.kernel_log, seen, current) {
            Missed::Nothing => return,
            Missed::Leaves | Missed::Tables => {
                for generation in seen + 1..=current {
                    match self.kernel_log.read(generation) {
                        Some(range) => self.flush_kernel_range(cpu, &range),
                        None => self.flush_everything_here(),
                    }
                }
            }
            Missed::Whole => self.flush_everything_here(),
        }
        cpu.own.kernel_seen.store(current, Ordering::Relaxed);
    }

    /// Flushes one kernel range on this CPU. With split tags kernel entries are not global: they stand under every tag
    /// that this CPU may load, so one that is not loaded is marked behind, and the loaded pair is flushed in both
    /// halves. A system-wide tag cannot be marked behind on one CPU, so there everything goes (rule 7). Everything goes
    /// as well when kernel table pages are freed: a page invalidation on x86 purges the paging-structure entries of the
    /// loaded PCID only, and links to kernel tables stand under every tag (C3).
    pub(crate) fn flush_kernel_range(&self, cpu: &PerCpu<K::Facade>, range: &Range) {
        if !range.is_walkable(self.policy().ceiling) || range.tables() {
            return self.flush_everything_here();
        }
        if !self.machine().split {
            return self.complete_here(|| {
                for address in range.addresses() {
                    self.kernel.invalidate(Local::Kernel {
                        address,
                        stride: range.stride(),
                    });
                }
            });
        }
        if self.tags() != crate::design::Tags::PerCpu {
            return self.flush_everything_here();
        }
        let loaded = cpu.own.slot.load(Ordering::Relaxed) as usize;
        for (index, slot) in cpu.own.slots[..self.slots()].iter().enumerate() {
            if index != loaded || cpu.own.space.load(Ordering::Relaxed) == 0 {
                slot.space.store(0, Ordering::Relaxed);
            }
        }
        self.complete_here(|| {
            for address in range.addresses() {
                self.kernel.invalidate(Local::Kernel {
                    address,
                    stride: range.stride(),
                });
            }
            if cpu.own.space.load(Ordering::Relaxed) != 0 {
                self.invalidate_range(Tag(cpu.own.tag.load(Ordering::Relaxed) as u16), range);
                // The kernel's own root keeps its entries between loads, under the tag that belongs to no slot.
                for address in range.addresses() {
                    self.kernel.invalidate(Local::Page {
                        address,
                        stride: range.stride(),
                        tag: Tag(0),
                        leaf_only: true,
                    });
                }
            }
        });
    }

    /// Does whatever the loaded space asks of this CPU: leave it when lazy, move to its system-wide tag, or catch up.
    ///
    /// Lazy comes first (regression 6): a lazy CPU on a system-wide tag must let go of the root as well.
    pub(crate) fn sync_loaded_space(&self, cpu: &PerCpu<K::Facade>) -> Answer {
        self.catch_up_kernel(cpu);
        // SAFETY: interrupts are off on this CPU, and the space is loaded here; see `switch_to`.
        let Some(space) = (unsafe { self.loaded(cpu) }) else {
            return Answer::Elsewhere;
        };
        let state = cpu.state();
        if state.is_lazy() {
            self.unload(cpu);
            return Answer::Unloaded;
        }
        self.apply_tag_mode(cpu, space, state).unwrap_or_else(|| {
            // Its requests name the tag and the range; "catch up" without them means everything.
            self.flush_tag(Tag(cpu.own.tag.load(Ordering::Relaxed) as u16));
            Answer::Flushed
        })
    }

    /// Moves this CPU, which has `space` loaded and is not lazy, onto the tag of the space or off it, or brings its
    /// slot up to date; `None` where tags roll over, and there is neither. `state` is that of this CPU, lazy or no
    /// longer.
    #[inline]
    pub(crate) fn apply_tag_mode(
        &self,
        cpu: &PerCpu<K::Facade>,
        space: &Space<K::Facade, W>,
        state: State,
    ) -> Option<Answer> {
        Some(match self.mode(space) {
            Mode::PerCpu | Mode::Demoting(_) if state.is_on_system_tag() => {
                self.leave_system_tag(cpu, space);
                Answer::Current
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
    /// Nothing needs flushing: no entry under the tag is older than its allocation (C4), and a flush that did not see
    /// the promotion wrote its entries before this CPU's first fill under the tag (the promotion's compare-exchange and
    /// the barrier here order them).
    pub(crate) fn adopt_system_tag(&self, cpu: &PerCpu<K::Facade>, space: &Space<K::Facade, W>, tag: Tag) {
        K::Facade::before_root_load();
        self.kernel.load_root(space.root, tag, true);
        cpu.own.tag.store(u64::from(tag.0), Ordering::Relaxed);
        // Not lazy: a lazy CPU lets go, or has just ended that. Release: a requester that sees this CPU on the tag
        // knows that the root load is behind it.
        cpu.publish(State::loaded(space.id, true));
    }

    /// The space loaded on this CPU.
    ///
    /// # Safety
    /// Interrupts must be off on this CPU, and the caller must be it, for as long as the reference is used, and the
    /// state that this CPU has published must name the space, or say that it is switching: whoever called `switch_to`
    /// promised that the space lives that long, and [`retire`](Self::retire) waits that long.
    pub(crate) unsafe fn loaded<'s>(&self, cpu: &PerCpu<K::Facade>) -> Option<&'s Space<K::Facade, W>> {
        let address = cpu.own.space.load(Ordering::Relaxed) as usize;
        // SAFETY: non-zero addresses were stored by `switch_to` from a reference that outlives the loading.
        (address != 0).then(|| unsafe { &*core::ptr::with_exposed_provenance(address) })
    }
}
