//! Prefetches: cache lines in flight to a CPU that continues meanwhile.
//!
//! A line is shared, or gained, from the moment of the prefetch, as after a read or a write. The CPU waits for it when
//! it reads or writes it before it has arrived. A write by another CPU in between takes the line away, and the access
//! pays the full cost.

use super::activity::{waited_for_line, writes_to};
use super::cpu::{Cpu, SLOW_PREFETCHED};
use super::lines::tag;
use super::record::Core;
use std::sync::atomic::AtomicU64;

impl Core {
    /// A prefetch of the line of `word`, for reading.
    pub(crate) fn prefetch(&self, word: &AtomicU64) {
        let Some((cpu, id)) = self.begin_prefetch(word) else {
            return;
        };
        let line = self.lines.get(id);
        let (owner, slot, seen) = (line.owner.get(), cpu.tag(id), tag(id, line.version.get()));
        if id == 0 || owner == 0 || owner == cpu.name || slot.get() == seen || self.asked_for(cpu, id).is_some() {
            return;
        }
        let distance = self.distance(owner, cpu.name);
        let arrives = self.fetch(cpu, id, self.costs.transfer[distance & 3]);
        if line.is_modified() {
            line.busy.set(arrives);
        }
        slot.set(seen);
        self.shared_with(line, cpu, distance);
    }

    /// The same, for writing.
    pub(crate) fn prefetch_to_write(&self, word: &AtomicU64) {
        writes_to(std::ptr::from_ref(word) as usize);
        let Some((cpu, id)) = self.begin_prefetch(word) else {
            return;
        };
        let Some(cost) = self.gain_cost(cpu, id).filter(|_| self.asked_for(cpu, id).is_none()) else {
            return;
        };
        let arrives = self.fetch(cpu, id, cost);
        self.lines.get(id).busy.set(arrives);
        self.own(cpu, id);
    }

    /// The prefetch instruction, on a machine that prefetches: the CPU, and the line.
    fn begin_prefetch(&self, word: &AtomicU64) -> Option<(&Cpu, u32)> {
        let cpu = self.cpu();
        if self.costs.prefetches == 0 || !self.on_cpu() {
            return None;
        }
        cpu.count();
        let id = self.lines.of(std::ptr::from_ref(word) as usize);
        if !self.near(cpu, id) {
            self.sync(cpu);
        }
        cpu.pass(self.costs.l1);
        Some((cpu, id))
    }

    /// `id` begins to move to `cpu`. The transfer takes `cost` ticks from the time that a buffer is free and the
    /// present holder releases the line.
    fn fetch(&self, cpu: &Cpu, id: u32, cost: u64) -> u64 {
        let mut in_flight = cpu.in_flight.borrow_mut();
        in_flight.retain(|&(_, arrives)| arrives > cpu.clock.get());
        if in_flight.len() >= self.costs.prefetches {
            // No buffer is free before the first line has arrived.
            let first = (0..in_flight.len()).min_by_key(|&index| in_flight[index].1);
            let (_, arrives) = in_flight.swap_remove(first.unwrap_or(0));
            let since = cpu.clock.get();
            cpu.clock.set(arrives);
            waited_for_line(since);
        }
        let begins = cpu.clock.get().max(self.lines.get(id).busy.get());
        let arrives = begins + cost;
        in_flight.push((id, arrives));
        cpu.set_slow(SLOW_PREFETCHED, true);
        arrives
    }

    /// Waits for `id` if it was prefetched and is still in flight.
    #[inline]
    pub(crate) fn await_prefetched(&self, cpu: &Cpu, id: u32) {
        if cpu.slow.get() & SLOW_PREFETCHED != 0 {
            self.await_line(cpu, id);
        }
    }

    #[inline(never)]
    fn await_line(&self, cpu: &Cpu, id: u32) {
        let since = cpu.clock.get();
        cpu.clock.set(self.prefetched_until(cpu, id));
        waited_for_line(since);
        let mut in_flight = cpu.in_flight.borrow_mut();
        in_flight.retain(|&(_, arrives)| arrives > cpu.clock.get());
        cpu.set_slow(SLOW_PREFETCHED, !in_flight.is_empty());
    }

    /// Time at which `id` is available: at once, or at its arrival if it was prefetched.
    #[inline]
    pub(crate) fn prefetched_until(&self, cpu: &Cpu, id: u32) -> u64 {
        let now = cpu.clock.get();
        if cpu.slow.get() & SLOW_PREFETCHED == 0 {
            return now;
        }
        let in_flight = cpu.in_flight.borrow();
        let of_line = in_flight.iter().find(|(line, _)| *line == id);
        of_line.map_or(now, |&(_, arrives)| arrives.max(now))
    }
}
