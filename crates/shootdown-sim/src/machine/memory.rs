//! Memory operations: loads, stores through a store buffer (x86-TSO), read-modify-writes and barriers.
//!
//! Owns when a store enters the store buffer and when it drains. A buffered store is visible to its own CPU at once and
//! to others from its drain time on; stores of one CPU drain in order. Charges go through `line_access`.

use super::activity::{waited_for_line, writes_to};
use super::config::{NEVER, StoreBuffer};
use super::cpu::{Cpu, Miss, SLOW_BUFFERED, SLOW_HOST};
use super::lines::{WAITED, tag};
use super::record::Core;
use super::store_buffer::{Buffered, Target};
use rand_xoshiro::rand_core::Rng;
use std::cmp::Reverse;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

impl Core {
    /// A load of the word at `address`.
    #[inline]
    pub(crate) fn load(&self, word: &AtomicU64) -> u64 {
        let cpu = self.cpu();
        let id = self.lines.of(std::ptr::from_ref(word) as usize);
        if cpu.slow.get() == 0 && self.near(cpu, id) {
            cpu.count();
            cpu.clock.set(cpu.clock.get() + u64::from(cpu.l1.get()));
            return word.load(Relaxed);
        }
        self.load_slow(cpu, word, id)
    }

    /// Whether `cpu` has a copy of `id` that it may read at its clock. Such a copy is valid until a writer has gained
    /// the line, so pending operations of other CPUs cannot have changed it yet.
    #[inline]
    pub(crate) fn near(&self, cpu: &Cpu, id: u32) -> bool {
        let line = self.lines.get(id);
        cpu.clock.get() <= self.private_limit.get()
            && (line.owner.get() == cpu.name || cpu.tag(id).get() == tag(id, line.version.get()))
    }

    #[inline(never)]
    fn load_slow(&self, cpu: &Cpu, word: &AtomicU64, id: u32) -> u64 {
        if !self.on_cpu() {
            return word.load(Relaxed);
        }
        cpu.count();
        self.await_prefetched(cpu, id);
        let near = self.near(cpu, id);
        if !near {
            self.sync(cpu);
        }
        let forwarded = self.forwarded(cpu, Target::Word(word));
        if near || forwarded.is_some() {
            cpu.pass(self.costs.l1);
            self.record(cpu, id);
        } else {
            self.read_line(cpu, id);
        }
        forwarded.unwrap_or_else(|| word.load(Relaxed))
    }

    /// The value of the youngest buffered store of `cpu` to `target`.
    pub(crate) fn forwarded(&self, cpu: &Cpu, target: Target) -> Option<u64> {
        if cpu.slow.get() & SLOW_BUFFERED == 0 {
            return None;
        }
        cpu.buffer
            .borrow()
            .iter()
            .rev()
            .find(|store| store.target == target)
            .map(|store| store.value)
    }

    /// Arrival time of line `id`, if a buffered store of `cpu` has requested it.
    #[inline]
    pub(crate) fn asked_for(&self, cpu: &Cpu, id: u32) -> Option<u64> {
        if cpu.slow.get() & SLOW_BUFFERED == 0 {
            return None;
        }
        let buffer = cpu.buffer.borrow();
        buffer
            .iter()
            .rev()
            .find(|store| store.line == id)
            .map(|store| store.gained)
    }

    /// Whether `cpu` may write `id` at its clock without another CPU seeing it.
    #[inline]
    fn exclusive(&self, cpu: &Cpu, id: u32) -> bool {
        let line = self.lines.get(id);
        cpu.slow.get() == 0
            && line.owner.get() == cpu.name
            && line.sharer.get() == 0
            && line.version.get() & WAITED == 0
            && cpu.clock.get() <= self.private_limit.get()
    }

    /// A plain store.
    #[inline]
    pub(crate) fn store(&self, word: &AtomicU64, value: u64) {
        let cpu = self.cpu();
        let id = self.lines.of(std::ptr::from_ref(word) as usize);
        if self.exclusive(cpu, id) {
            cpu.count();
            cpu.clock.set(cpu.clock.get() + u64::from(cpu.l1.get()));
            word.store(value, Relaxed);
        } else if self.on_cpu() {
            self.store_to(cpu, id, Target::Word(word), value);
        } else {
            word.store(value, Relaxed);
        }
    }

    #[inline(never)]
    pub(crate) fn store_to(&self, cpu: &Cpu, id: u32, target: Target, value: u64) {
        cpu.count();
        let bufferable = self.mode != StoreBuffer::Off && (id != 0 || matches!(target, Target::Other(_)));
        // Its entry into the buffer is not observable, and it drains in order.
        if !bufferable || cpu.clock.get() > self.private_limit.get() {
            self.sync(cpu);
        }
        if !bufferable {
            // Not delayed itself, but it must not overtake older stores.
            self.drain_own(cpu);
            self.gain_line(cpu, id, 0);
            self.deliver(
                cpu,
                Buffered {
                    target,
                    value,
                    line: id,
                    gained: cpu.clock.get(),
                    drain: cpu.clock.get(),
                },
            );
            return;
        }
        while cpu.buffer.borrow().len() >= self.entries {
            let oldest = cpu.buffer.borrow().front().map_or(0, |store| store.drain);
            cpu.clock.set(cpu.clock.get().max(oldest));
            self.catch_up(cpu);
            if !self.on_cpu() {
                return self.apply(
                    cpu,
                    Buffered {
                        target,
                        value,
                        line: id,
                        gained: 0,
                        drain: 0,
                    },
                );
            }
        }
        let now = cpu.clock.get();
        cpu.pass(self.costs.l1);
        self.record(cpu, id);
        let gained = match self.gain_cost(cpu, id) {
            None => self.prefetched_until(cpu, id),
            Some(_) if cpu.holds(id) => now,
            // One transfer of the line serves all stores to it.
            Some(cost) => self.asked_for(cpu, id).unwrap_or_else(|| {
                let (start, cost) = self.queue_for(cpu, id, now, cost, 0);
                start + cost
            }),
        };
        let delay = match self.mode {
            StoreBuffer::Random { max_cycles } => self.below(max_cycles * super::TICKS_PER_CYCLE + 1),
            StoreBuffer::Off | StoreBuffer::Timing => 0,
        };
        let empty = cpu.slow.get() & SLOW_BUFFERED == 0;
        if empty && delay == 0 && gained <= cpu.clock.get() {
            self.apply(
                cpu,
                Buffered {
                    target,
                    value,
                    line: id,
                    gained,
                    drain: gained,
                },
            );
            return;
        }
        let drain = gained.max(if empty { 0 } else { cpu.last_drain.get() }) + delay;
        cpu.last_drain.set(drain);
        cpu.buffer.borrow_mut().push_back(Buffered {
            target,
            value,
            line: id,
            gained,
            drain,
        });
        if empty {
            cpu.set_slow(SLOW_BUFFERED, true);
            self.drains.heads.borrow_mut().push(Reverse((drain, cpu.name)));
            if drain < self.drains.next.get() {
                self.drains.next.set(drain);
                self.refresh();
            }
        }
    }

    /// Makes a store visible.
    fn apply(&self, cpu: &Cpu, store: Buffered) {
        if store.line != 0 && cpu.holds(store.line) && !self.alone(cpu, store.line) {
            self.withdraw_copies(store.line);
        } else if store.line == 0 || !self.alone(cpu, store.line) {
            self.own(cpu, store.line);
        }
        self.deliver(cpu, store);
    }

    /// Adds to a word on behalf of `cpu`, which then owns the line.
    pub(crate) fn add_by_hardware(&self, cpu: usize, word: &AtomicU64, change: u64, at: u64) {
        let cpu = &self.cpus[cpu];
        let id = self.lines.of(std::ptr::from_ref(word) as usize);
        self.own(cpu, id);
        word.store(word.load(Relaxed).wrapping_add(change), Relaxed);
        self.changed(cpu, id, at);
    }

    /// Writes the value of a store whose line has arrived.
    fn deliver(&self, cpu: &Cpu, store: Buffered) {
        let changed = match store.target {
            Target::Word(word) => {
                // SAFETY: the word is either the argument of the current call, or lies in the arena, which is mapped
                // for the machine's lifetime; `SimWord` forgets its buffered stores before it is dropped.
                let word = unsafe { &*word };
                word.swap_value(store.value)
            }
            Target::Other(a) => {
                self.store_becomes_visible(cpu, a, store.value);
                true
            }
        };
        if changed {
            self.changed(cpu, store.line, store.drain);
        }
    }

    /// Makes visible every store that drains by `now`.
    pub(crate) fn drain_until(&self, now: u64) {
        loop {
            let head = self.drains.heads.borrow().peek().map(|head| head.0);
            let Some((due, name)) = head.filter(|&(due, _)| due <= now) else {
                self.drains.next.set(head.map_or(NEVER, |(due, _)| due));
                break;
            };
            let cpu = &self.cpus[usize::from(name) - 1];
            // All stores of this CPU that drain by then: they come next in any case. If a store drained early, its
            // queue entry may be late; then there is none.
            let next = loop {
                let mut buffer = cpu.buffer.borrow_mut();
                let head = buffer.front().map(|store| store.drain);
                let store = if head.is_some_and(|drain| drain <= due) {
                    buffer.pop_front()
                } else {
                    None
                };
                let Some(store) = store else { break head };
                if buffer.is_empty() {
                    cpu.set_slow(SLOW_BUFFERED, false);
                }
                drop(buffer);
                self.apply(cpu, store);
            };
            let mut heads = self.drains.heads.borrow_mut();
            match next {
                Some(drain) => {
                    if let Some(mut head) = heads.peek_mut() {
                        *head = Reverse((drain, name));
                    }
                }
                None => {
                    heads.pop();
                    cpu.set_slow(SLOW_BUFFERED, false);
                }
            }
        }
        self.refresh();
    }

    /// Waits until every store of `cpu` is visible.
    #[inline]
    pub(crate) fn drain_own(&self, cpu: &Cpu) {
        while cpu.slow.get() & (SLOW_BUFFERED | SLOW_HOST) == SLOW_BUFFERED {
            let since = cpu.clock.get();
            cpu.clock.set(since.max(cpu.last_drain.get()));
            waited_for_line(since);
            self.catch_up(cpu);
        }
    }

    /// A full barrier.
    #[inline]
    pub(crate) fn fence(&self) {
        let cpu = self.cpu();
        cpu.count();
        cpu.miss.set(Miss::NONE);
        if cpu.slow.get() & SLOW_BUFFERED != 0 {
            self.drain_own(cpu);
        } else if cpu.clock.get() > self.private_limit.get() {
            self.catch_up(cpu);
        }
        cpu.pass(self.costs.fence);
    }

    /// A read-modify-write that is a full barrier: `change` maps the old value to the new one, `None` keeps it.
    #[inline(always)]
    pub(crate) fn modify(&self, word: &AtomicU64, change: impl Fn(u64) -> Option<u64>) -> u64 {
        let cpu = self.cpu();
        // Later loads wait for it.
        cpu.miss.set(Miss::NONE);
        let id = self.lines.of(std::ptr::from_ref(word) as usize);
        if self.exclusive(cpu, id) {
            cpu.count();
            cpu.clock.set(cpu.clock.get() + u64::from(cpu.rmw_hit.get()));
        } else if self.on_cpu() {
            self.prepare_modify(cpu, id);
            writes_to(std::ptr::from_ref(word) as usize);
        }
        let old = word.load(Relaxed);
        if let Some(new) = change(old).filter(|&new| new != old) {
            word.store(new, Relaxed);
            self.changed(cpu, id, cpu.clock.get());
        }
        old
    }

    #[inline(never)]
    pub(crate) fn prepare_modify(&self, cpu: &Cpu, id: u32) {
        cpu.count();
        loop {
            self.drain_own(cpu);
            self.sync(cpu);
            // An interrupt taken meanwhile may have stored.
            if cpu.slow.get() & (SLOW_BUFFERED | SLOW_HOST) != SLOW_BUFFERED {
                break;
            }
        }
        if cpu.answers.replace(false) {
            cpu.pass(self.costs.l1);
            return self.own(cpu, id);
        }
        self.gain_line(cpu, id, self.costs.rmw);
    }

    /// Makes every buffered store to a word visible at once before the word is dropped, and releases its line.
    #[inline]
    pub(crate) fn forget_word(&self, word: *const AtomicU64) {
        if self.drains.next.get() != NEVER {
            self.forget_stores(word);
        }
        self.lines.forget(word as usize);
    }

    #[inline(never)]
    fn forget_stores(&self, word: *const AtomicU64) {
        loop {
            let holds = |cpu: &Cpu| {
                cpu.buffer
                    .borrow()
                    .iter()
                    .any(|store| store.target == Target::Word(word))
            };
            let names = self.drains.heads.borrow();
            let Some(cpu) = names
                .iter()
                .map(|head| &self.cpus[usize::from(head.0.1) - 1])
                .find(|cpu| holds(cpu))
            else {
                return;
            };
            drop(names);
            let oldest = cpu.buffer.borrow_mut().pop_front();
            if let Some(store) = oldest {
                self.apply(cpu, store);
            }
        }
    }

    /// A random number below `bound` (at least 1).
    pub(crate) fn below(&self, bound: u64) -> u64 {
        let random = self.rng.borrow_mut().next_u64();
        ((u128::from(random) * u128::from(bound)) >> 64) as u64
    }
}

trait SwapValue {
    /// Stores; returns whether the value changed.
    fn swap_value(&self, value: u64) -> bool;
}

impl SwapValue for AtomicU64 {
    fn swap_value(&self, value: u64) -> bool {
        let changed = self.load(Relaxed) != value;
        self.store(value, Relaxed);
        changed
    }
}
