//! Remote Action Requests (RAR, Intel): a back end for [`Kernel::broadcast_to`](crate::Kernel::broadcast_to).
//! Experimental.
//!
//! A requester writes the action into an *entry* of a table that all CPUs share. It marks the entry in the *action
//! vector* of each target, and signals the targets through the interrupt controller. Their microcode carries it out
//! between two instructions, whether or not interrupts are masked, and clears the mark. No software runs there, so an
//! answer proves nothing about lockless walks (C3). A waiter waits only for hardware, so it has nothing to serve
//! meanwhile (C5).
//!
//! Owns the allocation of entries, and detects when an action is complete. The contents of an entry are the kernel's
//! (`shootdown-arch` encodes them), and so is the signal.
//!
//! # Ordering
//! Entry words, then the mark (a full barrier), then [`Facade::before_ipi`] and the signal. The microcode reads the
//! marks first, perhaps because of another requester's signal. It clears the mark when the invalidation is complete.
//! The acquire load that finds it clear precedes everything that the requester does with the proof.

use crate::cache_padded::CachePadded;
use crate::cpuset::CpuMask;
use crate::facade::{AHEAD, Facade, Word};
use crate::hooks::CpuId;
use core::sync::atomic::Ordering;

/// Most entries of a table, as in hardware: one byte each in a vector of one cache line.
pub const RAR_ENTRIES: usize = 64;

/// Actions that share a word of the vector.
const LANES: usize = 8;

/// A pending mark. 0: complete, or never requested.
const PENDING: u64 = 0x01;
/// Set by the microcode when it refuses: what it has invalidated is unknown.
const FAILED: u64 = 0x80;

/// One entry as the hardware reads it: four words, and four that it ignores.
#[repr(C, align(64))]
struct Payload<F: Facade>([F::U64; 8]);

/// The user of an entry.
#[repr(C, align(64))]
struct User<F: Facade, const W: usize> {
    /// Number of the CPU plus one, or 0 if free. Claimed by a compare-exchange, released by its user.
    cpu: F::U64,
    /// The targets of its action; accessed only by its user.
    targets: [F::U64; W],
}

/// The table, shared by all CPUs. The hardware reads its first 4 KiB.
#[repr(C, align(4096))]
pub struct RarTable<F: Facade, const W: usize> {
    payloads: [Payload<F>; RAR_ENTRIES],
    users: [User<F, W>; RAR_ENTRIES],
}

impl<F: Facade, const W: usize> RarTable<F, W> {
    /// A table without users.
    pub fn new() -> Self {
        RarTable {
            payloads: core::array::from_fn(|_| Payload(core::array::from_fn(|_| F::U64::new(0)))),
            users: core::array::from_fn(|_| User {
                cpu: F::U64::new(0),
                targets: core::array::from_fn(|_| F::U64::new(0)),
            }),
        }
    }
}

impl<F: Facade, const W: usize> Default for RarTable<F, W> {
    fn default() -> Self {
        Self::new()
    }
}

/// State of one CPU. Its first 64 bytes are its action vector, which the hardware reads and writes.
#[repr(C, align(64))]
pub struct RarCpu<F: Facade> {
    actions: [F::U64; RAR_ENTRIES / LANES],
    /// The entry that this CPU uses, plus one; 0 for none. Accessed only by its own CPU, pinned.
    entry: CachePadded<F::U64>,
}

impl<F: Facade> RarCpu<F> {
    /// A CPU without pending actions.
    pub fn new() -> Self {
        RarCpu {
            actions: core::array::from_fn(|_| F::U64::new(0)),
            entry: CachePadded(F::U64::new(0)),
        }
    }

    /// The byte of an entry in the action vector.
    fn action(&self, entry: usize) -> u64 {
        // Acquire: the microcode cleared the mark after it had invalidated.
        self.actions[entry / LANES].load(Ordering::Acquire) >> (entry % LANES * 8) & 0xFF
    }
}

impl<F: Facade> Default for RarCpu<F> {
    fn default() -> Self {
        Self::new()
    }
}

/// What the back end needs from the kernel in addition to memory.
pub trait RarSignal<const W: usize> {
    /// Makes the microcode of each CPU in `targets` read its action vector. Pinned, interrupts on or off.
    fn signal(&self, targets: &CpuMask<W>);

    /// Whether remote actions are off on `cpu`: then it is not waited for (C5). [`Rar::reset`] states what it must do
    /// when they are on again.
    fn is_off(&self, cpu: CpuId) -> bool;

    /// The entry that invalidates everything, global translations included. Used after the microcode has refused
    /// another (C6).
    fn everything(&self) -> [u64; 4];

    /// `waiter` has polled for the `looks`th time, from 1, without success. It waits for the answer of `target`, or for
    /// a free entry while all are taken and `target` uses one. A kernel with a bound reports here when it is exceeded
    /// (C7); the wait continues. Pinned.
    fn waits(&self, _waiter: CpuId, _target: CpuId, _looks: u64) {}
}

/// The back end: a table, and the action vectors of all CPUs, by number.
pub struct Rar<'k, F: Facade, const W: usize> {
    table: &'k RarTable<F, W>,
    cpus: &'k [RarCpu<F>],
    entries: usize,
}

impl<'k, F: Facade, const W: usize> Rar<'k, F, W> {
    /// Uses the first `entries` of the table: as many as every processor of the machine reads.
    ///
    /// # Panics
    /// When `entries` is 0 or above [`RAR_ENTRIES`].
    pub fn new(table: &'k RarTable<F, W>, cpus: &'k [RarCpu<F>], entries: usize) -> Self {
        assert!(
            (1..=RAR_ENTRIES).contains(&entries),
            "a table of remote actions has 1 to {RAR_ENTRIES} entries"
        );
        Rar { table, cpus, entries }
    }

    /// Address of the table, for the register that tells the hardware.
    pub fn payload_base(&self) -> *const RarTable<F, W> {
        self.table
    }

    /// Address of the action vector of `cpu`, for its register.
    pub fn action_vector(&self, cpu: CpuId) -> *const RarCpu<F> {
        &self.cpus[cpu]
    }

    /// The words of an entry, as the microcode reads them: for emulators.
    pub fn payload(&self, entry: usize) -> [u64; 4] {
        core::array::from_fn(|word| self.table.payloads[entry].0[word].load(Ordering::Relaxed))
    }

    /// Which entries are marked for `cpu`, one bit each: for emulators of the microcode.
    pub fn pending(&self, cpu: CpuId) -> u64 {
        (0..self.entries)
            .filter(|&entry| self.cpus[cpu].action(entry) == PENDING)
            .fold(0, |pending, entry| pending | 1 << entry)
    }

    /// The effect of `cpu`'s microcode when it carries out or refuses an entry. Returns the word with the mark, and
    /// what must be added to it in one step, as the hardware writes a byte. For emulators.
    pub fn answer(&self, cpu: CpuId, entry: usize, refused: bool) -> (&F::U64, u64) {
        let answer = if refused { FAILED } else { 0 };
        let change = answer.wrapping_sub(PENDING) << (entry % LANES * 8);
        (&self.cpus[cpu].actions[entry / LANES], change)
    }

    /// The entry that `cpu` uses.
    fn entry(&self, cpu: CpuId) -> Option<usize> {
        let entry = self.cpus[cpu].entry.0.load(Ordering::Relaxed);
        entry.checked_sub(1).map(|entry| entry as usize)
    }

    /// Clears marks that were left on `cpu` while it was off. Call on that CPU, before its hardware reads its vector,
    /// in this order:
    /// 1. [`is_off`](RarSignal::is_off) becomes false.
    /// 2. This function.
    /// 3. The hardware is enabled.
    /// 4. The CPU signals itself, because signals sent in the meantime are lost.
    /// 5. [`cpu_online`](crate::Engine::cpu_online), which flushes everything.
    ///
    /// To go off: [`cpu_offline`](crate::Engine::cpu_offline); `is_off` becomes true; the hardware is disabled.
    ///
    /// So no mark outlives its request on an enabled CPU. An earlier mark is cleared here. A requester that marks
    /// later, with a full barrier, sees that the CPU is not off and waits. With a leftover mark the microcode could
    /// carry out the entry of an earlier request, and answer for a later one.
    pub fn reset(&self, cpu: CpuId) {
        // "Not off" precedes the words. Pairs with the mark in `post_entry`, a full barrier before `wait` checks
        // whether the CPU is off.
        F::full_barrier();
        self.cpus[cpu]
            .actions
            .iter()
            .for_each(|word| word.store(0, Ordering::Relaxed));
        // The zeros precede the hardware's reads: otherwise the answer to a cleared mark would be subtracted from the
        // next one's byte.
        F::full_barrier();
    }

    /// Begins the action `payload` on every CPU in `targets`. Waits only for an earlier action of this CPU or, if there
    /// are more CPUs than entries, for a free entry. On `me`, which stays pinned until [`wait`](Self::wait) has
    /// returned: a CPU that holds an entry waits only for hardware. Interrupts on or off; no handler may call this.
    pub fn request(&self, me: CpuId, payload: [u64; 4], targets: &CpuMask<W>, kernel: &impl RarSignal<W>) {
        self.wait(me, kernel);
        let entry = self.claim(me, kernel);
        self.cpus[me].entry.0.store(entry as u64 + 1, Ordering::Relaxed);
        let user = &self.table.users[entry];
        for (word, targets) in user.targets.iter().zip(targets.words()) {
            word.store(targets, Ordering::Relaxed);
        }
        self.post_entry(entry, payload, targets, kernel);
    }

    /// Waits until the action that this CPU has begun, if any, is complete on all targets. On the CPU that began it.
    pub fn wait(&self, me: CpuId, kernel: &impl RarSignal<W>) {
        let Some(entry) = self.entry(me) else { return };
        let user = &self.table.users[entry];
        let mut targets = CpuMask::from_words(core::array::from_fn(|word| user.targets[word].load(Ordering::Relaxed)));
        while !targets.is_empty() {
            let mut refused = CpuMask::EMPTY;
            for target in targets.iter() {
                let cpu = &self.cpus[target];
                let (mut action, mut looks) = (PENDING, 0);
                F::wait_until(|| {
                    action = cpu.action(entry);
                    let over = action & PENDING == 0 || kernel.is_off(target);
                    if !over {
                        looks += 1;
                        kernel.waits(me, target, looks);
                    }
                    over
                });
                if action & FAILED != 0 {
                    cpu.actions[entry / LANES].fetch_and_full(!(0xFF << (entry % LANES * 8)));
                    refused.insert(target);
                }
            }
            if !refused.is_empty() {
                self.post_entry(entry, kernel.everything(), &refused, kernel);
            }
            targets = refused;
        }
        self.cpus[me].entry.0.store(0, Ordering::Relaxed);
        // Release: the next user writes its words after every CPU has read ours. Pairs with the compare-exchange of
        // `claim`.
        user.cpu.store(0, Ordering::Release);
    }

    /// Claims a free entry: this CPU's own if possible, so that CPUs up to the number of entries never collide.
    fn claim(&self, me: CpuId, kernel: &impl RarSignal<W>) -> usize {
        let (mut claimed, mut looks) = (me % self.entries, 0);
        F::wait_until(|| {
            let over = (0..self.entries).any(|further| {
                claimed = (me + further) % self.entries;
                let user = &self.table.users[claimed].cpu;
                user.load(Ordering::Relaxed) == 0 && user.compare_exchange_full(0, me as u64 + 1).is_ok()
            });
            if !over {
                looks += 1;
                let user = self.table.users[me % self.entries].cpu.load(Ordering::Relaxed);
                // Or it has become free since.
                if let Some(user) = user.checked_sub(1) {
                    kernel.waits(me, user as CpuId, looks);
                }
            }
            over
        });
        claimed
    }

    fn post_entry(&self, entry: usize, payload: [u64; 4], targets: &CpuMask<W>, kernel: &impl RarSignal<W>) {
        for (word, value) in self.table.payloads[entry].0.iter().zip(payload) {
            word.store(value, Ordering::Relaxed);
        }
        let word = |cpu: CpuId| &self.cpus[cpu].actions[entry / LANES];
        // A mark is a full barrier, so without prefetching the lines would arrive one after the other.
        targets
            .iter()
            .take(AHEAD)
            .for_each(|cpu| F::prefetch_to_write(word(cpu)));
        for (target, ahead) in targets
            .iter()
            .zip(targets.iter().skip(AHEAD).map(Some).chain(core::iter::repeat(None)))
        {
            ahead.map(word).into_iter().for_each(F::prefetch_to_write);
            // Full barrier: a CPU that sees the mark reads the words above, and whether the target is off is checked
            // later (`reset`). An OR, since eight entries share a word.
            word(target).fetch_or_full(PENDING << (entry % LANES * 8));
        }
        F::before_ipi();
        kernel.signal(targets);
    }
}

#[cfg(test)]
mod tests;
