//! Accesses to cache lines: the cost of reading and of gaining one, who holds it then, and the CPUs that wait for a
//! change of it.

use super::activity::waited_for_line;
use super::cpu::{Cpu, SLOW_RECORDING, State};
use super::lines::{Line, WAITED, distance_of, tag};
use super::record::Core;

/// Removes a waiter from a list whose order does not matter. A line may have as many waiters as there are CPUs, and
/// each comes here when it changes. So entries are compared in blocks, which the compiler vectorises.
fn strike(list: &mut Vec<u16>, waiter: u16) {
    const BLOCK: usize = 64;
    let mut from = 0;
    while from < list.len() {
        let block = &list[from..list.len().min(from + BLOCK)];
        if block.iter().fold(false, |found, &other| found | (other == waiter)) {
            let at = block.iter().position(|&other| other == waiter);
            list.swap_remove(from + at.expect("it was found in this block"));
        } else {
            from += BLOCK;
        }
    }
}

impl Core {
    /// Distance between the CPUs named `a` and `b`, as an index into cost tables (see `Distance`). Without branches,
    /// because they are unpredictable.
    #[inline]
    pub(crate) fn distance(&self, a: u16, b: u16) -> usize {
        distance_of(self.place(a) ^ self.place(b))
    }

    #[inline]
    pub(crate) fn place(&self, name: u16) -> u64 {
        debug_assert!(usize::from(name) < self.places.len());
        // SAFETY: names are 0 for none, 1 to the number of CPUs, and one more for the host; `places` has them all.
        unsafe { *self.places.get_unchecked(usize::from(name)) }
    }

    /// Charges a read of `id` to `cpu`.
    #[inline]
    pub(crate) fn read_line(&self, cpu: &Cpu, id: u32) {
        let line = self.lines.get(id);
        let owner = line.owner.get();
        if id == 0 || owner == cpu.name || cpu.holds(id) {
            cpu.pass(self.costs.l1);
        } else if let Some(gained) = self.asked_for(cpu, id) {
            // It is already in flight, for a store of this CPU.
            let since = cpu.clock.get();
            cpu.clock.set(since.max(gained));
            waited_for_line(since);
            cpu.pass(self.costs.l1);
        } else if owner == 0 {
            line.owner.set(cpu.name);
            cpu.pass(self.costs.cold_line);
        } else {
            let slot = cpu.tag(id);
            let seen = tag(id, line.version.get());
            if slot.get() == seen {
                cpu.pass(self.costs.l1);
            } else {
                slot.set(seen);
                let since = cpu.clock.get();
                let distance = self.distance(owner, cpu.name);
                self.load_overlapping(cpu, id, self.costs.transfer[distance & 3]);
                waited_for_line(since);
                self.shared_with(line, cpu, distance);
            }
        }
        self.record(cpu, id);
    }

    /// `cpu`, at that distance from the owner of `line`, has a copy from here on.
    #[inline]
    pub(crate) fn shared_with(&self, line: &Line, cpu: &Cpu, distance: usize) {
        let sharer = line.sharer.get();
        let farther = (sharer == 0) | (self.distance(line.owner.get(), sharer) < distance);
        line.sharer.set(if farther { cpu.name } else { sharer });
    }

    /// Whether `cpu` is the only holder of a line. Line 0 has no holder and costs nothing to gain.
    #[inline]
    pub(crate) fn alone(&self, cpu: &Cpu, id: u32) -> bool {
        let line = self.lines.get(id);
        id == 0 || (line.owner.get() == cpu.name && line.sharer.get() == 0)
    }

    /// Cost for `cpu` of becoming the only holder of a line, ticks; `None` when it already is.
    #[inline(always)]
    pub(crate) fn gain_cost(&self, cpu: &Cpu, id: u32) -> Option<u64> {
        let line = self.lines.get(id);
        let (owner, sharer) = (line.owner.get(), line.sharer.get());
        if self.alone(cpu, id) {
            return None;
        }
        if owner == 0 {
            return Some(self.costs.cold_line);
        }
        // The owner stands in for a sharer that does not exist.
        let sharer = if sharer == 0 { owner } else { sharer };
        let own = self.place(cpu.name);
        let farthest = distance_of((own ^ self.place(owner)) | (own ^ self.place(sharer)));
        Some(self.costs.transfer[farthest & 3])
    }

    /// Charges gaining `id` for writing, plus `extra` ticks, to `cpu`, and makes it the owner.
    pub(crate) fn gain_line(&self, cpu: &Cpu, id: u32, extra: u64) {
        match self.gain_cost(cpu, id) {
            None => {
                self.await_prefetched(cpu, id);
                cpu.pass(self.costs.l1 + extra);
                if id == 0 {
                    self.own(cpu, 0);
                }
            }
            Some(_) if cpu.holds(id) => {
                cpu.pass(self.costs.l1 + extra);
                self.withdraw_copies(id);
            }
            Some(cost) => {
                let since = cpu.clock.get();
                let (start, cost) = self.queue_for(cpu, id, since, cost, extra);
                cpu.clock.set(start + cost + cpu.scaled(extra));
                cpu.hold(id, self.costs.line_hold);
                waited_for_line(since);
                self.own(cpu, id);
            }
        }
        self.record_own_write(cpu, id);
    }

    /// Makes `cpu` the only holder of `id`; every other copy is invalidated.
    #[inline]
    pub(crate) fn own(&self, cpu: &Cpu, id: u32) {
        let line = self.lines.get(id);
        line.owner.set(cpu.name);
        line.sharer.set(0);
        line.version.set(line.version.get().wrapping_add(2));
    }

    /// Invalidates every copy of `id` but the owner's: the line was written by a CPU that still held it.
    pub(crate) fn withdraw_copies(&self, id: u32) {
        let line = self.lines.get(id);
        line.version.set(line.version.get().wrapping_add(2));
    }

    /// Lets the CPUs that wait for a change of `id` evaluate again at `at`; `writer` itself already sees the value.
    #[inline]
    pub(crate) fn changed(&self, writer: &Cpu, id: u32, at: u64) {
        if self.lines.get(id).version.get() & WAITED != 0 {
            self.wake_waiters(writer, id, at);
        }
    }

    #[inline(never)]
    fn wake_waiters(&self, writer: &Cpu, id: u32, at: u64) {
        let waiters = self.lines.waiters.borrow();
        for &waiter in waiters.get(&id).into_iter().flatten() {
            let waiter = &self.cpus[usize::from(waiter)];
            if waiter.name != writer.name && waiter.state.get() == State::Waiting {
                self.wake_no_later(waiter, at.max(waiter.clock.get()));
            }
        }
    }

    /// Records that the condition being evaluated depends on `id`.
    #[inline]
    pub(crate) fn record(&self, cpu: &Cpu, id: u32) {
        if cpu.slow.get() & SLOW_RECORDING != 0 {
            let version = self.lines.get(id).version.get() & !WAITED;
            let mut recorded = cpu.recorded.borrow_mut();
            if recorded.last() != Some(&(id, version)) {
                recorded.push((id, version));
            }
        }
    }

    /// As [`record`](Self::record), when the condition itself wrote: older records of the line are updated.
    fn record_own_write(&self, cpu: &Cpu, id: u32) {
        if cpu.slow.get() & SLOW_RECORDING != 0 {
            let version = self.lines.get(id).version.get() & !WAITED;
            let mut recorded = cpu.recorded.borrow_mut();
            for note in recorded
                .iter_mut()
                .filter(|note| note.0 == id && note.1 == version.wrapping_sub(2))
            {
                note.1 = version;
            }
            recorded.push((id, version));
        }
    }

    /// Whether no line recorded since `from` was written by another CPU; if so, and `enlist`, waits on all of them.
    pub(crate) fn enlist(&self, cpu: &Cpu, from: usize) -> bool {
        let mut recorded = cpu.recorded.borrow_mut();
        let unchanged = |&(id, version): &(u32, u32)| self.lines.get(id).version.get() & !WAITED == version;
        if !recorded[from..].iter().all(unchanged) {
            return false;
        }
        let own = cpu.id() as u16;
        let mut waiters = self.lines.waiters.borrow_mut();
        let mut kept = from;
        for index in from..recorded.len() {
            let note = recorded[index];
            if recorded[from..kept].iter().any(|other| other.0 == note.0) {
                continue;
            }
            recorded[kept] = note;
            kept += 1;
            waiters.entry(note.0).or_default().push(own);
            let line = self.lines.get(note.0);
            line.version.set(line.version.get() | WAITED);
        }
        recorded.truncate(kept);
        true
    }

    /// Undoes [`enlist`](Self::enlist).
    pub(crate) fn delist(&self, cpu: &Cpu, from: usize) {
        let own = cpu.id() as u16;
        let mut waiters = self.lines.waiters.borrow_mut();
        for &(id, _) in &cpu.recorded.borrow()[from..] {
            if let Some(list) = waiters.get_mut(&id) {
                strike(list, own);
                if list.is_empty() {
                    let line = self.lines.get(id);
                    line.version.set(line.version.get() & !WAITED);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn strike_removes_one_waiter(
            list in prop::collection::vec(0u16..300, 0..400),
            waiter in 0u16..300,
        ) {
            let mut left = list.clone();
            strike(&mut left, waiter);
            let mut expected: Vec<u16> = list.into_iter().filter(|&other| other != waiter).collect();
            expected.sort_unstable();
            left.sort_unstable();
            prop_assert_eq!(left, expected);
        }
    }
}
