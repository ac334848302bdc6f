//! The target CPUs of a request.

use crate::cpu::state::State;
use crate::cpuset::{CpuMask, bits};
use crate::design::{Departure, Requests, Tags, Targets};
use crate::engine::Engine;
use crate::facade::{AHEAD, Facade, Word};
use crate::hooks::{CpuId, Kernel};
use crate::space::Space;
use core::sync::atomic::Ordering;

impl<K: Kernel<W>, const W: usize> Engine<'_, K, W> {
    /// CPUs other than `me` that must answer before a flush of `space` is complete.
    ///
    /// Called after the full-barrier increment of the generation (rule 3): a CPU that is missed here because it joined
    /// later reads the new generation, because its join is a full barrier too.
    ///
    /// `keep_lazy`: lazy CPUs may not be skipped, because page-table pages are freed (C3) or tags change.
    // Not inlined: what follows in its callers needs no room for this.
    #[inline(never)]
    pub(crate) fn targets(&self, space: &Space<K::Facade, W>, keep_lazy: bool, me: CpuId) -> CpuMask<W> {
        self.targets_and_departed(space, keep_lazy, me, false).0
    }

    /// [`targets`](Self::targets), for a request that, if it `tells`, can ask CPUs that have left the space to leave
    /// its set. Also returns whether they are among the targets.
    pub(crate) fn targets_and_departed(
        &self,
        space: &Space<K::Facade, W>,
        keep_lazy: bool,
        me: CpuId,
        may_trim: bool,
    ) -> (CpuMask<W>, bool) {
        let (mut targets, departed) = self.targets_present(space, keep_lazy, me);
        let asks =
            departed > 0 && (self.asks_departed(keep_lazy, space) || may_trim && self.should_trim(space, departed));
        if asks {
            self.add_departed(space, keep_lazy, me, &mut targets);
        }
        (targets, asks)
    }

    /// Targets without CPUs that have left the space and may be skipped, and the number of those.
    fn targets_present(&self, space: &Space<K::Facade, W>, keep_lazy: bool, me: CpuId) -> (CpuMask<W>, u64) {
        let (mut targets, mut departed) = (CpuMask::EMPTY, 0);
        let asks = self.policy().targets;
        // Under roll-over tags a CPU that has left still holds entries under the tag, and nothing on it records which
        // requests it missed. Neither such CPUs nor lazy ones can be skipped.
        let keep_departed = self.tags() == Tags::System;
        let keep_lazy = keep_lazy || keep_departed;
        let set = if asks.is_all() { &self.online } else { &space.cpus };
        for (first, members) in set.words_but(me) {
            // Prefetch the states; remote CPUs have likely written them. (Where only switches write them they are
            // likely cached.)
            let prefetches = asks == Targets::InUser;
            let mut ahead = bits(members);
            let mut prefetch_next = || {
                if let Some(bit) = ahead.next() {
                    K::Facade::prefetch(&self.cpus[first + bit].state);
                }
            };
            if prefetches {
                (0..AHEAD).for_each(|_| prefetch_next());
            }
            for bit in bits(members) {
                if prefetches {
                    prefetch_next();
                }
                let cpu = first + bit;
                // Acquire, after the acquire load that showed the member: a CPU seen as joined is seen as switching
                // (rule 5).
                let state = self.cpus[cpu].state();
                let concerned = match asks {
                    #[cfg(feature = "published")]
                    Targets::All => true,
                    Targets::Space => true,
                    Targets::Active | Targets::InUser if state.is_switching() => true,
                    Targets::Active | Targets::InUser if state.id() != space.id => {
                        departed += u64::from(!state.is_off());
                        keep_departed
                    }
                    Targets::Active | Targets::InUser => keep_lazy || !state.is_lazy(),
                };
                if concerned {
                    self.add_target(cpu, state, keep_lazy, &mut targets);
                }
            }
        }
        (targets, departed)
    }

    /// An offline CPU flushes everything before it uses anything (C5). The hypervisor flushes a descheduled virtual CPU
    /// at its entry; that proves nothing about walks, so not with tables. Checked last, and after the caller's full
    /// barrier, which pairs with the hypervisor's exchange at entry.
    #[inline]
    fn add_target(&self, cpu: CpuId, state: State, keep_lazy: bool, targets: &mut CpuMask<W>) {
        if !state.is_off() && (keep_lazy || !self.kernel.flush_at_entry(cpu)) {
            targets.insert(cpu);
        }
    }

    #[cold]
    fn add_departed(&self, space: &Space<K::Facade, W>, keep_lazy: bool, me: CpuId, targets: &mut CpuMask<W>) {
        space.cpus.for_each_but(me, |cpu| {
            let state = self.cpus[cpu].state();
            if state.id() != space.id {
                self.add_target(cpu, state, keep_lazy, targets);
            }
        });
    }

    /// Whether a CPU other than `me` is in the set of `space`. After a full barrier that pairs with the join of
    /// `switch_to`, as for [`targets`](Self::targets): a CPU that is missed here reads the new generation.
    #[inline]
    pub(crate) fn others_in(&self, space: &Space<K::Facade, W>, me: CpuId) -> bool {
        space.cpus.has_others(me, self.cpus.len())
    }

    /// Whether a flush of `space`, which `me` runs, needs no list of targets and no entry in the log: there is no other
    /// CPU in the set. Only where the design reads the log; other designs look for targets like the kernels that they
    /// represent. After the full barrier of the request, as for [`others_in`](Self::others_in).
    #[inline]
    pub(crate) fn runs_alone(&self, space: &Space<K::Facade, W>, me: CpuId) -> bool {
        self.policy().requests == Requests::Log
            && !self.policy().targets.is_all()
            && !self.others_in(space, me)
            && self.cpus[me].own_state().id() == space.id
    }

    /// When CPUs leave the sets of spaces that they have left: as the design says, if its requests and tags support
    /// that. Under a roll-over tag a CPU may hold entries of a space that it has left, so a request cannot ask it to
    /// leave the set.
    #[inline]
    pub(crate) fn departure(&self) -> Departure {
        if self.tags() == Tags::System {
            return Departure::AtSwitch;
        }
        match (self.policy().departure, self.policy().requests) {
            #[cfg(feature = "published")]
            (when @ Departure::WhenAsked { .. }, Requests::PerRequest) => when,
            (when @ Departure::WhenShared { .. }, Requests::PerRequest | Requests::Log) => when,
            _ => Departure::AtSwitch,
        }
    }

    /// Whether CPUs may be in the sets of spaces that they have left.
    #[inline]
    pub(crate) fn departs_on_request(&self) -> bool {
        !matches!(self.departure(), Departure::AtSwitch)
    }

    /// Whether a request includes CPUs that have left, even if it cannot ask them to leave the set. That is so if it
    /// frees page-table pages, or if it is time to look for them. The first time is one period after the first check.
    /// Two racing requests may both scan. That is harmless: relaxed.
    fn asks_departed(&self, keep_lazy: bool, space: &Space<K::Facade, W>) -> bool {
        let Some(trim_ns) = self.departure().trim_ns() else {
            return false;
        };
        if keep_lazy {
            return true;
        }
        let (now, next) = (self.kernel.now_ns(), space.next_trim.load(Ordering::Relaxed));
        let due = now >= next;
        if due {
            space
                .next_trim
                .store(now.saturating_add(trim_ns).max(1), Ordering::Relaxed);
        }
        due && next != 0
    }

    /// Whether requests of `space` have scanned departed CPUs so often that asking them costs no more; this one found
    /// `departed`. Concurrent requests may count one scan for two: relaxed.
    fn should_trim(&self, space: &Space<K::Facade, W>, departed: u64) -> bool {
        let Departure::WhenShared { looks } = self.departure() else {
            return false;
        };
        let scans = space.stale_scans.load(Ordering::Relaxed) + departed;
        let asks = scans >= departed * u64::from(looks);
        space.stale_scans.store(if asks { 0 } else { scans }, Ordering::Relaxed);
        asks
    }

    /// Every online CPU but `me`, for kernel ranges (rule 7). A CPU that goes offline meanwhile is interrupted
    /// unnecessarily, as if it had gone offline a little later, and not waited for.
    pub(crate) fn all_targets(&self, me: CpuId) -> CpuMask<W> {
        let mut targets = CpuMask::EMPTY;
        self.online.for_each_but(me, |cpu| targets.insert(cpu));
        targets
    }

    /// CPUs other than `me` that may be using translations of `space`: those that run it, or are switching.
    pub(crate) fn running(&self, space: &Space<K::Facade, W>, me: CpuId) -> CpuMask<W> {
        let mut running = CpuMask::EMPTY;
        space.cpus.for_each_but(me, |cpu| {
            let state = self.cpus[cpu].state();
            if state.is_switching() || (state.id() == space.id && !state.is_lazy()) {
                running.insert(cpu);
            }
        });
        running
    }

    /// Number of CPUs that run `space`. Lazy CPUs are not counted unless they are about to return to it. Stops counting
    /// at `enough`.
    pub(crate) fn active_on(&self, space: &Space<K::Facade, W>, enough: u32) -> u32 {
        let mut active = 0;
        space.cpus.for_each(|cpu| {
            if active < enough {
                let state = self.cpus[cpu].state();
                active += u32::from(state.id() == space.id && (!state.is_lazy() || state.is_in_kernel()));
            }
        });
        active
    }

    /// CPUs other than `me` that have `space` loaded on the wrong kind of tag, lazy ones included. During a promotion
    /// that is a per-CPU slot; during a demotion, with `on_system_tag`, it is the system-wide tag. Waits for CPUs in
    /// the middle of a switch. They have interrupts off and wait for no CPU, and what they load is known only
    /// afterwards.
    #[inline(never)]
    pub(crate) fn stragglers(&self, space: &Space<K::Facade, W>, me: CpuId, on_system_tag: bool) -> CpuMask<W> {
        let mut stragglers = CpuMask::EMPTY;
        // The caller has read, or written, the transition; now set and states are read. Pairs with the join of
        // `switch_to`: a CPU that is missed here joins later, and reads that mode too. The caller's increment of the
        // generation came before its read of the mode, so that barrier is not enough.
        K::Facade::full_barrier();
        space.cpus.for_each_but(me, |cpu| {
            let mut state = self.cpus[cpu].state();
            if state.is_switching() {
                state = self.wait_until_switched(cpu, me, space.id);
            }
            if state.id() == space.id && state.is_on_system_tag() == on_system_tag {
                stragglers.insert(cpu);
            }
        });
        stragglers
    }

    /// Waits until `cpu` is not in the middle of a switch. Returns its state after it.
    // Always: with a frame of its own a report would lie deeper (`cargo xtask stack`).
    #[inline(always)]
    fn wait_until_switched(&self, cpu: CpuId, me: CpuId, space: u64) -> State {
        let mut state = State::KERNEL;
        let over = || {
            state = self.cpus[cpu].state();
            !state.is_switching()
        };
        self.wait_without_serving(|| self.report_stuck(me, cpu, (space, 0)), over);
        state
    }
}

#[cfg(test)]
mod tests;
