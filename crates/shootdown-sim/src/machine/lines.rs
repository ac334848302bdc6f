//! Cache lines: the owner of each, the cost of touching it, and the CPUs that wait for a change of it.
//!
//! Owns the line table and the lists of waiting CPUs. Values live in the words themselves. The line of a word is its
//! arena offset, except on stacks, where the offset depends on how a compiler laid out frames: lines there get numbers
//! in the order of first use, which are released when a word on them is dropped. Line 0 stands for everything outside
//! the arena; it always costs a first-level hit.

use super::activity::waited_for_line;
use super::arena::{LINE, Mapping};
use super::contention::Queues;
use super::cpu::{Cpu, SLOW_RECORDING, State};
use super::record::Core;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// One cache line of simulated memory, for operations on things that are not words (page-table entries, say).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LineId(pub(crate) u32);

impl LineId {
    /// The line `index` lines after this one.
    pub fn offset(self, index: usize) -> LineId {
        LineId(self.0 + index as u32)
    }
}

/// State of one line; all zero = never touched.
#[repr(C)]
pub(crate) struct Line {
    /// End of the latest exclusive transfer, ticks.
    pub busy: Cell<u64>,
    /// Incremented by two whenever another CPU's copy is invalidated; bit 0: some CPU waits for a change.
    pub version: Cell<u32>,
    /// Last writer (or first user), as CPU name; 0 = none.
    pub owner: Cell<u16>,
    /// The farthest CPU known to have a copy besides the owner; 0 = the owner has the only one.
    pub sharer: Cell<u16>,
}

/// Set in `Line::version` while a CPU waits.
pub(crate) const WAITED: u32 = 1;

#[derive(Default)]
pub(crate) struct LineHasher(u64);

impl Hasher for LineHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u32(u32::from(byte));
        }
    }
    fn write_u32(&mut self, value: u32) {
        self.0 = (self.0 ^ u64::from(value))
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(29);
    }
}

/// The line table.
pub(crate) struct Lines {
    base: usize,
    count: usize,
    table: Mapping,
    stacks: StackLines,
    /// Requests for busy lines.
    pub(super) queues: Queues,
    /// Waiting CPUs by line; only ever looked up, never iterated.
    waiters: RefCell<HashMap<u32, Vec<u16>, BuildHasherDefault<LineHasher>>>,
}

/// The numbers of lines on stacks.
struct StackLines {
    /// First line, by offset, that can be on a stack.
    start: Cell<usize>,
    /// Lines of one stack; stacks are cut off from the end of the arena.
    each: usize,
    /// Number of each line in use, by offset; 0 = none.
    numbers: Mapping,
    /// The next unused number.
    fresh: Cell<u32>,
    /// Released numbers, by stack, the last first: a stack continues with lines that its CPU held.
    free: RefCell<Vec<Vec<u32>>>,
}

impl Lines {
    /// A table for `count` lines from address `base` on, those from offset `stacks` on for stacks of `each` lines.
    pub(crate) fn new(base: usize, count: usize, stacks: usize, each: usize) -> Self {
        let table = Mapping::new(count * size_of::<Line>());
        table.prefer_large_pages();
        Lines {
            base,
            count,
            table,
            stacks: StackLines {
                start: Cell::new(stacks),
                each,
                numbers: Mapping::new(count * size_of::<u32>()),
                fresh: Cell::new(stacks as u32),
                free: RefCell::default(),
            },
            queues: Queues::default(),
            waiters: RefCell::default(),
        }
    }

    /// The line of a host address.
    #[inline]
    pub(crate) fn of(&self, address: usize) -> u32 {
        let index = address.wrapping_sub(self.base) / LINE;
        if index < self.stacks.start.get() {
            index as u32
        } else if index < self.count {
            self.on_stack(index)
        } else {
            0
        }
    }

    /// Says that stacks reach down to offset `index`.
    pub(crate) fn stacks_from(&self, index: usize) {
        self.stacks.start.set(self.stacks.start.get().min(index));
    }

    #[inline]
    fn number(&self, index: usize) -> &Cell<u32> {
        debug_assert!(index < self.count);
        // SAFETY: every caller has compared `index` with `count`; the mapping has `count` zeroed entries.
        unsafe { &*self.stacks.numbers.start().cast::<Cell<u32>>().add(index) }
    }

    #[inline]
    fn on_stack(&self, index: usize) -> u32 {
        match self.number(index).get() {
            0 => self.give_number(index),
            number => number,
        }
    }

    /// Which stack a line is on.
    fn stack_of(&self, index: usize) -> usize {
        (self.count - 1 - index) / self.stacks.each
    }

    #[inline(never)]
    fn give_number(&self, index: usize) -> u32 {
        let mut free = self.stacks.free.borrow_mut();
        let number = free
            .get_mut(self.stack_of(index))
            .and_then(Vec::pop)
            .unwrap_or_else(|| {
                let number = self.stacks.fresh.get();
                assert!((number as usize) < self.count, "too many words on stacks");
                self.stacks.fresh.set(number + 1);
                number
            });
        self.number(index).set(number);
        number
    }

    /// The word at `address` is dropped: if its line is on a stack, the line's number is released.
    #[inline]
    pub(crate) fn forget(&self, address: usize) {
        let index = address.wrapping_sub(self.base) / LINE;
        if index >= self.stacks.start.get() && index < self.count && self.number(index).get() != 0 {
            self.take_number(index);
        }
    }

    #[inline(never)]
    fn take_number(&self, index: usize) {
        let (stack, number) = (self.stack_of(index), self.number(index).replace(0));
        let mut free = self.stacks.free.borrow_mut();
        if free.len() <= stack {
            free.resize_with(stack + 1, Vec::new);
        }
        free[stack].push(number);
    }

    #[inline]
    pub(crate) fn get(&self, line: u32) -> &Line {
        debug_assert!((line as usize) < self.count);
        // SAFETY: line numbers come from `of` or from the arena, so they are below `count`; the table has `count`
        // zeroed entries, and zero is a valid `Line`.
        unsafe { &*self.table.start().cast::<Line>().add(line as usize) }
    }
}

/// The per-CPU table's record of a read.
#[inline]
pub(crate) fn tag(line: u32, version: u32) -> u64 {
    u64::from(line) << 32 | u64::from(version | WAITED)
}

/// The position of the 16-bit group in which two places differ, counted from the low end; 0: none (see `Core::places`).
/// For several differences OR-ed together: the farthest.
#[inline]
pub(crate) fn distance_of(apart: u64) -> usize {
    debug_assert!(apart < 1 << 48);
    (apart << 1 | 1).ilog2().div_ceil(16) as usize
}

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
                self.load_overlapping(cpu, line, self.costs.transfer[distance & 3]);
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
                cpu.clock.set(start + cpu.scaled(cost + extra));
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
                self.hasten(waiter, at.max(waiter.clock.get()));
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
        fn a_struck_waiter_is_gone_and_nobody_else(list in prop::collection::vec(0u16..300, 0..400), waiter in 0u16..300) {
            let mut left = list.clone();
            strike(&mut left, waiter);
            let mut expected: Vec<u16> = list.into_iter().filter(|&other| other != waiter).collect();
            expected.sort_unstable();
            left.sort_unstable();
            prop_assert_eq!(left, expected);
        }
    }
}
