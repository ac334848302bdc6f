//! Switches a CPU between spaces, and in and out of lazy TLB mode: rules 3 and 4.

use crate::cpu::catch_up::Missed;
use crate::cpu::state::{PerCpu, State};
use crate::design::Departure;
use crate::engine::Engine;
use crate::facade::{Facade, Word};
use crate::hooks::{Kernel, Local, Root, Tag};
use crate::space::{Mode, Space};
use core::sync::atomic::Ordering;

/// Consecutive kernel sections without a request after which a CPU is no longer spared in the kernel. They cost as much
/// as the interrupt that they could save: 30 ns for each, two stores and a barrier. An interrupt costs 1 to 2 us on
/// both sides together (0.5 to 1 us for the requester, 500 to 1,500 cycles of the target). So at worst both are paid.
const UNUSED_SECTIONS: u64 = 64;

impl<K: Kernel<W>, const W: usize> Engine<'_, K, W> {
    /// Loads `space` on this CPU. Leaves lazy TLB mode if the space is loaded already. Any context without migration
    /// (the scheduler); masks interrupts itself. Never waits for another CPU, except for the roll-over lock.
    ///
    /// If the space is loaded and not lazy this is one load and a compare. Ordering: on return this CPU's walker sees
    /// everything that was written before a completed flush of `space`; joining the set is a full barrier.
    ///
    /// # Panics
    /// In debug builds, if this CPU is offline; a release build brings it online first, which flushes everything on
    /// this CPU. If the CPU's number is not below the number of CPUs given to [`Engine::new`].
    ///
    /// # Safety
    /// `space` must stay alive and in place until every CPU has left it: by `switch_to` another, `switch_to_kernel`,
    /// `cpu_offline`, or [`retire`](Self::retire), after which it may be dropped.
    pub unsafe fn switch_to(&self, space: &Space<K::Facade, W>) {
        // SAFETY: the caller's.
        let switch = || unsafe { self.switch_apart(space) };
        // Interrupts stay off until the loaded space and its tag are published (regression 37).
        self.masked(switch);
    }

    /// [`switch_to_interrupts_off`](Self::switch_to_interrupts_off) in a function of its own.
    ///
    /// # Safety
    /// As there.
    // Not inlined: it ends in tail calls, so that only the small frame of `switch_to` is below a CPU that comes online
    // (`cargo xtask stack`).
    #[inline(never)]
    unsafe fn switch_apart(&self, space: &Space<K::Facade, W>) {
        // SAFETY: the caller's.
        unsafe { self.switch_to_interrupts_off(space) }
    }

    /// [`switch_to`](Self::switch_to) for a caller that has interrupts off, as most schedulers do: it neither masks
    /// them nor asks whether they are.
    ///
    /// # Panics
    /// As there. In debug builds, if interrupts are on.
    ///
    /// # Safety
    /// As there. Interrupts are off on this CPU.
    // Always: once in the caller, once in `switch_apart`.
    #[inline(always)]
    pub unsafe fn switch_to_interrupts_off(&self, space: &Space<K::Facade, W>) {
        debug_assert!(self.kernel.interrupts_are_off(), "interrupts are on");
        let me = self.kernel.cpu();
        let cpu = &self.cpus[me];
        self.quiescent_here(cpu);
        let state = cpu.own_state();
        if state.names(space.id) {
            if state.is_lazy() {
                self.leave_lazy_here(cpu, space);
            }
            return;
        }
        // SAFETY: the caller's; except in the first case this CPU is online.
        unsafe {
            if state.is_off() {
                self.switch_when_off(cpu, me, space);
            } else if self.machine().has_tags() {
                self.switch_otherwise(cpu, me, space);
            } else {
                self.switch_to_masked::<false>(cpu, me, space);
            }
        }
    }

    /// [`switch_to_masked`](Self::switch_to_masked) on a CPU that is off. It comes online first: flushes have not
    /// waited for it, so its entries must not be used (C5, C6).
    ///
    /// # Safety
    /// As there, except that the CPU is off.
    #[cold]
    #[inline(never)]
    unsafe fn switch_when_off(&self, cpu: &PerCpu<K::Facade>, me: usize, space: &Space<K::Facade, W>) {
        debug_assert!(false, "CPU {me} loads a space while it is off");
        self.cpu_online();
        // SAFETY: the caller's, and this CPU is online.
        unsafe { self.switch_otherwise(cpu, me, space) }
    }

    /// [`switch_to_masked`](Self::switch_to_masked) where there may be tags.
    ///
    /// # Safety
    /// As there.
    // Not inlined: a switch without tags would save registers for it.
    #[inline(never)]
    unsafe fn switch_otherwise(&self, cpu: &PerCpu<K::Facade>, me: usize, space: &Space<K::Facade, W>) {
        // SAFETY: the caller's.
        unsafe { self.switch_to_masked::<true>(cpu, me, space) }
    }

    /// Loads `space` in place of the loaded one. `TAGS`: there may be tags.
    ///
    /// # Safety
    /// As [`switch_to`](Self::switch_to). Interrupts are off, and this CPU is online.
    #[inline(always)]
    unsafe fn switch_to_masked<const TAGS: bool>(
        &self,
        cpu: &PerCpu<K::Facade>,
        me: usize,
        space: &Space<K::Facade, W>,
    ) {
        // Read once: the compiler does not know that nothing below writes it.
        let id = space.id;
        // SAFETY: interrupts are off; the previous space is loaded, or being left, until step 4 publishes.
        let previous = unsafe { self.loaded(cpu) };

        // Step 1: publish that this CPU is switching. Requesters of either space include it (rule 5).
        cpu.publish(State::switching(id));
        // Step 2: join. A full barrier. Pairs with `dispatch`, which increments the generation (full barrier) and then
        // reads set and states: either it sees this CPU, or this CPU sees its generation.
        self.join(space, me);
        // Step 3: choose the tag (reads the mode), read the generation, load the root.
        let on_system_tag = if TAGS {
            self.load(cpu, me, space)
        } else {
            self.load_untagged(cpu, space);
            false
        };
        // Step 4: leave the old set. Never before the new root is loaded (regressions 23 and 40): until then this CPU
        // can still fill from the old tables. Then publish the loaded space (release). Never before: with that this CPU
        // is done with the old space, which may be dropped (`retire` waits for members that are switching).
        cpu.own
            .space
            .store(core::ptr::from_ref(space).expose_provenance() as u64, Ordering::Relaxed);
        if let Some(previous) = previous {
            self.depart::<TAGS>(previous, me);
        }
        cpu.publish(State::loaded(id, on_system_tag));
        self.flush_deferred_here(cpu);
    }

    fn join(&self, space: &Space<K::Facade, W>, me: usize) {
        if self.departs_on_request() && space.cpus.contains(me) {
            // No other CPU removes this one. The barrier of a join, without the write.
            return K::Facade::full_barrier();
        }
        space.cpus.join(me);
    }

    /// Leaves the set of a space whose root is no longer loaded on this CPU, unless the space is on a system-wide tag.
    ///
    /// Under roll-over tags this CPU has to stay a member: it may hold entries under the tag until it flushes at the
    /// next roll-over. Under the tag of a promoted space it may stay, because requesters also read each member's state,
    /// and flushes there are broadcast. The CPUs of a promoted space usually return to it, so leaving would write their
    /// shared line needlessly. A CPU that stayed leaves when it next departs after a demotion; until then it costs
    /// unnecessary scans (C6).
    ///
    /// It also stays where departures wait for a request: for all spaces, or for those that other CPUs are in.
    /// `TAGS`: there may be tags.
    fn depart<const TAGS: bool>(&self, space: &Space<K::Facade, W>, me: usize) {
        let stays = TAGS && self.stays_under_tag(space)
            || match self.departure() {
                Departure::AtSwitch => false,
                #[cfg(feature = "published")]
                Departure::WhenAsked { .. } => true,
                Departure::WhenShared { .. } => self.others_in(space, me),
            };
        if !stays {
            space.cpus.leave(me);
        }
    }

    fn stays_under_tag(&self, space: &Space<K::Facade, W>) -> bool {
        let mode = self.mode(space);
        matches!(mode, Mode::Rolled { .. } | Mode::System(_)) || self.holds_tag_in_set(mode)
    }

    /// Whether a CPU that may hold entries under the tag of a space in that mode has to stay in the space's set after
    /// it has left the space: targeted broadcasts go to the set. The mode is read after the CPU has left. So a CPU that
    /// loaded the tag finds that mode or a later one, or that the tag has been taken back, which invalidates it on
    /// every CPU.
    #[inline]
    pub(crate) fn holds_tag_in_set(&self, mode: Mode) -> bool {
        self.kernel.broadcast_is_targeted() && matches!(mode, Mode::Transition(_) | Mode::System(_))
    }

    /// Chooses a tag and loads the root under it. Returns whether the tag is system-wide.
    fn load(&self, cpu: &PerCpu<K::Facade>, me: usize, space: &Space<K::Facade, W>) -> bool {
        if !self.machine().has_tags() {
            self.load_untagged(cpu, space);
            return false;
        }
        let tag = match (self.tags(), self.mode(space)) {
            (crate::design::Tags::System, _) => {
                // From the choice of the next tag, a roll-over reserves that one for this CPU, and no longer the loaded
                // one. So the loaded root is unloaded first, and nothing is filled or walked under its tag (C3, C4).
                if cpu.own.space.load(Ordering::Relaxed) != 0 {
                    K::Facade::before_root_load();
                    self.kernel.load_root(self.kernel_root, Tag(0), true);
                }
                self.rolled_tag(me, space)
            }
            (_, Mode::PerCpu | Mode::Demoting(_)) => {
                self.load_slot(cpu, space);
                return false;
            }
            (_, Mode::Transition(tag) | Mode::System(tag) | Mode::Rolled { tag, .. }) => tag,
        };
        // Entries under a system-wide tag are kept fresh by broadcasts, by requests that name the tag, or by the local
        // flush of a roll-over, whether or not the space is loaded here: keep them.
        // The barrier pairs with changes of mode and epoch, as for any root load (head of `cpu/mod.rs`).
        K::Facade::before_root_load();
        self.kernel.load_root(space.root, tag, true);
        cpu.own.tag.store(u64::from(tag.0), Ordering::Relaxed);
        true
    }

    /// Number of slots in use. Without tags one, for the loaded space.
    #[inline]
    pub(crate) fn slots(&self) -> usize {
        if self.machine().has_tags() {
            usize::from(self.policy().slots)
        } else {
            1
        }
    }

    /// The tag of slot `index` on every CPU.
    #[inline]
    pub(crate) fn slot_tag(&self, index: usize) -> Tag {
        Tag(self.machine().first_tag + index as u16)
    }

    /// Loads the root where there are no tags, which drops everything.
    #[inline]
    fn load_untagged(&self, cpu: &PerCpu<K::Facade>, space: &Space<K::Facade, W>) {
        // Slot and tag are always 0, and no owner of the slot is looked for.
        let slot = &cpu.own.slots[0];
        // After the full barrier of the join (step 2).
        let current = space.log.generation.load(Ordering::Acquire);
        K::Facade::before_root_load();
        self.kernel.load_root(space.root, Tag(0), false);
        slot.generation.store(current, Ordering::Relaxed);
    }

    /// Loads `space` under one of this CPU's slots: its own if it still has one, otherwise the next victim's.
    pub(crate) fn load_slot(&self, cpu: &PerCpu<K::Facade>, space: &Space<K::Facade, W>) {
        let (index, is_own) = self.slot_for(cpu, space);
        let (slot, tag) = (&cpu.own.slots[index], self.slot_tag(index));
        let seen = if is_own {
            slot.generation.load(Ordering::Relaxed)
        } else {
            0
        };
        // After the full barrier of the join (step 2).
        let current = space.log.generation.load(Ordering::Acquire);
        let missed = if is_own {
            self.missed(&space.log, seen, current)
        } else {
            Missed::Whole
        };
        K::Facade::before_root_load();
        match missed {
            Missed::Nothing => self.kernel.load_root(space.root, tag, true),
            // Leaves may be invalidated after the load: nothing runs in between. With freed tables the processor must
            // not walk under the tag even once (C3), so those are invalidated with the load.
            Missed::Leaves => self.kernel.load_root(space.root, tag, true),
            // One step, so that nothing can refill in between (regression 42).
            Missed::Tables | Missed::Whole => self.load_root_flushing(space.root, tag),
        }
        slot.space.store(space.id, Ordering::Relaxed);
        if missed != Missed::Leaves {
            slot.generation.store(current, Ordering::Relaxed);
        }
        cpu.own.slot.store(index as u64, Ordering::Relaxed);
        cpu.own.tag.store(u64::from(tag.0), Ordering::Relaxed);
        if missed == Missed::Leaves {
            self.flush_logged(slot, &space.log, current, tag);
        }
    }

    /// The same where the slot's entries, if it has any, are to be flushed in any case.
    pub(crate) fn load_slot_flushing(&self, cpu: &PerCpu<K::Facade>, space: &Space<K::Facade, W>) {
        let (index, _) = self.slot_for(cpu, space);
        let (slot, tag) = (&cpu.own.slots[index], self.slot_tag(index));
        // After the full barrier of the join (step 2).
        let current = space.log.generation.load(Ordering::Acquire);
        K::Facade::before_root_load();
        self.load_root_flushing(space.root, tag);
        slot.space.store(space.id, Ordering::Relaxed);
        slot.generation.store(current, Ordering::Relaxed);
        cpu.own.slot.store(index as u64, Ordering::Relaxed);
        cpu.own.tag.store(u64::from(tag.0), Ordering::Relaxed);
    }

    /// The slot for `space`, and whether it is its own: otherwise it is the next victim's.
    #[inline]
    fn slot_for(&self, cpu: &PerCpu<K::Facade>, space: &Space<K::Facade, W>) -> (usize, bool) {
        let slots = &cpu.own.slots[..self.slots()];
        let found = slots
            .iter()
            .position(|slot| slot.space.load(Ordering::Relaxed) == space.id);
        (found.unwrap_or_else(|| self.victim(cpu, slots.len())), found.is_some())
    }

    /// The next of `slots` slots to be evicted.
    #[inline]
    fn victim(&self, cpu: &PerCpu<K::Facade>, slots: usize) -> usize {
        let next = cpu.own.next_victim.load(Ordering::Relaxed) as usize;
        let victim = if next < slots { next } else { 0 };
        cpu.own.next_victim.store(victim as u64 + 1, Ordering::Relaxed);
        victim
    }

    /// Loads a root and drops everything under its tag. The user half is not loaded, so it can be dropped first.
    fn load_root_flushing(&self, root: Root, tag: Tag) {
        if self.machine().split {
            self.complete_here(|| {
                for half in self.halves(tag).skip(1) {
                    self.kernel.invalidate(Local::Tag(half));
                }
            });
        }
        self.kernel.load_root(root, tag, false);
    }

    /// Enters lazy TLB mode: this CPU runs only kernel code, and the space stays loaded. Requesters skip it unless
    /// page-table pages are freed. Any context without migration; one store if a space is loaded.
    pub fn enter_lazy(&self) {
        self.masked(|| {
            let me = self.kernel.cpu();
            let cpu = &self.cpus[me];
            self.quiescent_here(cpu);
            let state = cpu.own_state();
            // SAFETY: interrupts are off.
            if unsafe { self.loaded(cpu) }.is_some() {
                cpu.publish(state.lazy());
            }
        });
    }

    /// User code that runs `space` has entered the kernel. With [`Targets::InUser`](crate::Targets::InUser) this CPU
    /// counts as lazy until [`leave_lazy`](Self::leave_lazy). If this returns true, the caller must call that before
    /// the return to user code *and before any other access to user addresses*. Copying routines, and handlers that
    /// interrupt this section and walk user stacks, have to call it first. Any context without migration.
    ///
    /// The CPU is spared, not the thread. The thread that returns to user code on that CPU must make the call, even if
    /// the scheduler has switched to another thread of the same space. A scheduler that calls
    /// [`switch_to`](Self::switch_to) at each switch of threads has made it.
    ///
    /// Takes effect only where requests may arrive by interrupt: not under a system-wide tag, and not while no other
    /// CPU has the space. It also has no effect if none arrived during the last 64 sections, until one interrupts this
    /// CPU. Then it costs a load of the set for each 64 CPUs of the machine, or two more of lines of this CPU; all of
    /// these are rarely written. Otherwise it also costs a store of its state, and a barrier at the end.
    #[inline]
    pub fn enter_kernel(&self, space: &Space<K::Facade, W>) -> bool {
        if self.policy().targets != crate::design::Targets::InUser {
            return false;
        }
        let me = self.kernel.cpu();
        let cpu = &self.cpus[me];
        let needs_flushes = |state: State| state.id() == space.id && !state.is_lazy() && !state.is_on_system_tag();
        // Checked with interrupts on first: usually there is nothing to do, and masking costs more than the loads.
        let rarely_interrupted = || cpu.own.unused_kernel_sections.load(Ordering::Relaxed) >= UNUSED_SECTIONS;
        if !self.others_in(space, me) || rarely_interrupted() || !needs_flushes(cpu.own_state()) {
            return false;
        }
        self.masked(|| {
            // The CPU number is read again; it cannot change from here on.
            let cpu = &self.cpus[self.kernel.cpu()];
            let state = cpu.own_state();
            if !needs_flushes(state) {
                return false;
            }
            cpu.publish(state.in_kernel());
            true
        })
    }

    /// Leaves lazy TLB mode for the loaded space, or loads the space if an interrupt has unloaded it. Call it before
    /// any access to user addresses.
    ///
    /// # Safety
    /// As [`switch_to`](Self::switch_to).
    pub unsafe fn leave_lazy(&self, space: &Space<K::Facade, W>) {
        // SAFETY: the caller's promise is the same.
        unsafe { self.switch_to(space) }
    }

    /// Rule 4: clear lazy, full barrier, read the generation, catch up.
    // Not inlined: a switch would save registers for it.
    #[inline(never)]
    fn leave_lazy_here(&self, cpu: &PerCpu<K::Facade>, space: &Space<K::Facade, W>) {
        let state = cpu.state();
        cpu.publish(state.not_lazy());
        // Pairs with `dispatch`: increments the generation (full barrier), then reads the state.
        K::Facade::full_barrier();
        if state.is_in_kernel() {
            // Until catching up finds something.
            let unused = cpu.own.unused_kernel_sections.load(Ordering::Relaxed);
            cpu.own.unused_kernel_sections.store(unused + 1, Ordering::Relaxed);
        }
        let before = self.weighs_tags().then(|| {
            let (_, slot) = cpu.own.loaded_slot();
            (slot, slot.generation.load(Ordering::Relaxed))
        });
        // Where tags roll over no request has skipped this CPU, but a flush of everything may be due (regression 38).
        // The tag is the loaded one. It stays reserved for this CPU through any number of roll-overs, so its renewal
        // keeps it.
        if self.apply_tag_mode(cpu, space, state).is_none() {
            self.rolled_tag(self.kernel.cpu(), space);
        }
        if let Some((slot, seen)) = before {
            self.record_lag(cpu, slot, seen);
        }
    }

    /// Loads the kernel's own root: this CPU leaves its space, if any. Same context as `switch_to`.
    pub fn switch_to_kernel(&self) {
        self.masked(|| {
            let cpu = &self.cpus[self.kernel.cpu()];
            self.quiescent_here(cpu);
            self.unload(cpu);
            self.flush_deferred_here(cpu);
        });
    }

    /// Loads the kernel's root in place of the loaded space; interrupts off, on that CPU.
    // Not inlined: four callers, one body.
    #[inline(never)]
    pub(crate) fn unload(&self, cpu: &PerCpu<K::Facade>) {
        // SAFETY: interrupts are off.
        let Some(space) = (unsafe { self.loaded(cpu) }) else {
            return;
        };
        cpu.publish(State::switching(0));
        K::Facade::before_root_load();
        // Without tags the entries of the space are under tag 0 too, and their cached links lead to tables that may be
        // freed.
        let keep = self.machine().has_tags();
        self.kernel.load_root(self.kernel_root, Tag(0), keep);
        cpu.own.space.store(0, Ordering::Relaxed);
        cpu.own.tag.store(0, Ordering::Relaxed);
        // Before this CPU leaves the set, after which the space may be freed.
        self.kernel.unloaded(space.root());
        // In this order, as in step 4 of `switch_to_masked`.
        self.depart::<true>(space, self.kernel.cpu());
        cpu.publish(State::KERNEL);
    }
}
