//! Prefetches: lines on their way to a CPU that goes on meanwhile.
//!
//! A line is shared from the moment of the prefetch, as after a read; the CPU waits for it when it reads it, if it has not
//! arrived. Whoever writes it in between takes it away again, and the read pays in full.

use super::cpu::{Cpu, SLOW_PREFETCHED};
use super::lines::tag;
use super::record::Core;
use std::sync::atomic::AtomicU64;

impl Core {
    /// A prefetch of the line of `word`, for reading.
    pub(crate) fn prefetch(&self, word: &AtomicU64) {
        let cpu = self.cpu();
        if self.costs.prefetches == 0 || !self.on_cpu() {
            return;
        }
        cpu.count();
        let id = self.lines.of(std::ptr::from_ref(word) as usize);
        if !self.near(cpu, id) {
            self.sync(cpu);
        }
        cpu.pass(self.costs.l1);
        let line = self.lines.get(id);
        let (owner, slot, seen) = (line.owner.get(), cpu.tag(id), tag(id, line.version.get()));
        if id == 0 || owner == 0 || owner == cpu.name || slot.get() == seen {
            return;
        }
        let mut under_way = cpu.under_way.borrow_mut();
        under_way.retain(|&(_, arrives)| arrives > cpu.clock.get());
        if under_way.len() >= self.costs.prefetches {
            // There is no buffer free before the first has arrived.
            let first = (0..under_way.len()).min_by_key(|&index| under_way[index].1);
            let (_, arrives) = under_way.swap_remove(first.unwrap_or(0));
            cpu.clock.set(arrives);
        }
        let distance = self.distance(owner, cpu.name);
        let begins = cpu.clock.get().max(line.busy.get());
        under_way.push((id, begins + cpu.scaled(self.costs.transfer[distance & 3])));
        slot.set(seen);
        self.shared_with(line, cpu, distance);
        cpu.set_slow(SLOW_PREFETCHED, true);
    }

    /// Waits for `id` if it was prefetched and is still on its way.
    #[inline]
    pub(crate) fn await_prefetched(&self, cpu: &Cpu, id: u32) {
        if cpu.slow.get() & SLOW_PREFETCHED != 0 {
            self.await_line(cpu, id);
        }
    }

    #[inline(never)]
    fn await_line(&self, cpu: &Cpu, id: u32) {
        let mut under_way = cpu.under_way.borrow_mut();
        if let Some(&(_, arrives)) = under_way.iter().find(|(line, _)| *line == id) {
            cpu.clock.set(cpu.clock.get().max(arrives));
        }
        under_way.retain(|&(_, arrives)| arrives > cpu.clock.get());
        cpu.set_slow(SLOW_PREFETCHED, !under_way.is_empty());
    }
}
