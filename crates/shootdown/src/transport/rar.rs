//! Remote Action Requests (RAR, Intel): a back end for [`Kernel::broadcast_to`](crate::Kernel::broadcast_to).
//! Experimental.
//!
//! A requester writes what is to be done into an *entry* of a table that all CPUs share, marks the entry in the *action
//! vector* of each CPU concerned, and signals those through the interrupt controller. Their microcode does it between
//! two instructions, with interrupts masked or not, and takes the mark away. No software runs there: what is answered
//! says nothing of lockless walks (C3), and who waits here waits for hardware only, so there is nothing to serve
//! meanwhile (C5).
//!
//! Owns who uses which entry, and when an action is over. What stands in an entry is the kernel's (`shootdown-arch`
//! encodes it), as is the signal.
//!
//! # Ordering
//! Entry words, then the mark (a full barrier), then [`Facade::before_ipi`] and the signal. The microcode looks at the
//! marks first, and may do so for another requester's signal. It takes the mark away when the invalidation is complete;
//! the acquire load that finds it gone comes before everything that the requester does with the proof.

use crate::cpuset::CpuMask;
use crate::facade::{Facade, Word};
use crate::flush::targets::AHEAD;
use crate::hooks::CpuId;
use crate::space::CachePadded;
use core::sync::atomic::Ordering;

/// Most entries of a table, as the hardware has it: one byte each in a vector of one cache line.
pub const RAR_ENTRIES: usize = 64;

/// Actions that share a word of the vector.
const LANES: usize = 8;

/// A mark: to be done. 0: done, or never asked for.
const PENDING: u64 = 0x01;
/// What the microcode leaves when it refuses: nothing is known of what it invalidated.
const FAILED: u64 = 0x80;

/// One entry as the hardware reads it: four words, and four that it does not look at.
#[repr(C, align(64))]
struct Payload<F: Facade>([F::U64; 8]);

/// Who uses an entry.
#[repr(C, align(64))]
struct User<F: Facade, const W: usize> {
    /// Number of the CPU, and one; 0 for nobody. Taken by a compare-exchange, given back by its user.
    cpu: F::U64,
    /// Whom it has asked; written and read by its user only.
    targets: [F::U64; W],
}

/// The table, shared by all CPUs. Its first 4 KiB are what the hardware reads.
#[repr(C, align(4096))]
pub struct RarTable<F: Facade, const W: usize> {
    payloads: [Payload<F>; RAR_ENTRIES],
    users: [User<F, W>; RAR_ENTRIES],
}

impl<F: Facade, const W: usize> RarTable<F, W> {
    /// A table that nobody uses.
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

/// What each CPU has. Its first 64 bytes are its action vector, as the hardware reads and writes it.
#[repr(C, align(64))]
pub struct RarCpu<F: Facade> {
    actions: [F::U64; RAR_ENTRIES / LANES],
    /// The entry that this CPU uses, and one; 0 for none. Its own, pinned.
    entry: CachePadded<F::U64>,
}

impl<F: Facade> RarCpu<F> {
    /// A CPU of which nothing is asked.
    pub fn new() -> Self {
        RarCpu {
            actions: core::array::from_fn(|_| F::U64::new(0)),
            entry: CachePadded(F::U64::new(0)),
        }
    }

    /// What stands for an entry in the action vector.
    fn action(&self, entry: usize) -> u64 {
        // Acquire: the microcode took the mark away after it had invalidated.
        self.actions[entry / LANES].load(Ordering::Acquire) >> (entry % LANES * 8) & 0xFF
    }
}

impl<F: Facade> Default for RarCpu<F> {
    fn default() -> Self {
        Self::new()
    }
}

/// What the back end needs of the kernel besides memory.
pub trait RarSignal<const W: usize> {
    /// Has the microcode of each CPU in `targets` look at its action vector. Pinned, interrupts on or off.
    fn signal(&self, targets: &CpuMask<W>);

    /// Whether remote actions are off on `cpu`: then it is not waited for (C5). See [`Rar::reset`] for what it owes.
    fn is_off(&self, cpu: CpuId) -> bool;

    /// The entry that stands for everything, global translations included: asked for where the microcode has refused
    /// another (C6).
    fn everything(&self) -> [u64; 4];

    /// `waiter` has looked in vain for the `looks`th time, from 1, for the answer of `target`, or for an entry, all of
    /// which are taken, `target` being one of those that have one. A kernel that has a bound reports here when it is
    /// exceeded (C7); the wait goes on. Pinned.
    fn waits(&self, _waiter: CpuId, _target: CpuId, _looks: u64) {}
}

/// The back end: a table, and the action vectors of all CPUs, by number.
pub struct Rar<'k, F: Facade, const W: usize> {
    table: &'k RarTable<F, W>,
    cpus: &'k [RarCpu<F>],
    entries: usize,
}

impl<'k, F: Facade, const W: usize> Rar<'k, F, W> {
    /// With the first `entries` of the table: as many as every processor of the machine looks at.
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

    /// Where the table is, for the register that tells the hardware.
    pub fn payload_base(&self) -> *const RarTable<F, W> {
        self.table
    }

    /// Where the action vector of `cpu` is, for its register.
    pub fn action_vector(&self, cpu: CpuId) -> *const RarCpu<F> {
        &self.cpus[cpu]
    }

    /// The words of an entry, as the microcode reads them: for emulations of it.
    pub fn payload(&self, entry: usize) -> [u64; 4] {
        core::array::from_fn(|word| self.table.payloads[entry].0[word].load(Ordering::Relaxed))
    }

    /// Which entries are marked for `cpu`, a bit each: for emulations of the microcode.
    pub fn pending(&self, cpu: CpuId) -> u64 {
        (0..self.entries)
            .filter(|&entry| self.cpus[cpu].action(entry) == PENDING)
            .fold(0, |pending, entry| pending | 1 << entry)
    }

    /// What the microcode of `cpu` does when an entry is carried out, or refused: the word that the mark is in, and
    /// what has to be added to it in one step, as the hardware writes a byte. For emulations of it.
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

    /// Takes away marks that were left on `cpu` while it was off. On that CPU, before its hardware looks at its vector,
    /// in this order: [`is_off`](RarSignal::is_off) becomes false; this; the hardware is told to look; the CPU signals
    /// itself, since what others have sent it meanwhile is lost; [`cpu_online`](crate::Engine::cpu_online), which
    /// flushes everything. And the other way round: [`cpu_offline`](crate::Engine::cpu_offline); `is_off` becomes true;
    /// the hardware looks no more.
    ///
    /// So no mark outlives its request on a CPU that looks: one from before this is gone, and who marks later, a full
    /// barrier, finds that the CPU is not off and waits. (With such a mark the microcode could carry out what the entry
    /// held for an earlier request, and answer for a later one.)
    pub fn reset(&self, cpu: CpuId) {
        // "Not off" comes before the words. Pairs with the mark in `ask`, a full barrier before `wait` asks whether the
        // CPU is off.
        F::full_barrier();
        self.cpus[cpu]
            .actions
            .iter()
            .for_each(|word| word.store(0, Ordering::Relaxed));
        // The zeros come before the hardware looks: an answer to a mark that is gone would be taken off the byte of the
        // next.
        F::full_barrier();
    }

    /// Begins what `payload` says on every CPU in `targets`, and waits only for an earlier action of this CPU, or,
    /// where there are more CPUs than entries, for an entry to come free. On `me`, which stays pinned until
    /// [`wait`](Self::wait) has returned: entries are held by CPUs that wait for hardware only. Interrupts on or off;
    /// no handler may call this.
    pub fn request(&self, me: CpuId, payload: [u64; 4], targets: &CpuMask<W>, kernel: &impl RarSignal<W>) {
        self.wait(me, kernel);
        let entry = self.claim(me, kernel);
        self.cpus[me].entry.0.store(entry as u64 + 1, Ordering::Relaxed);
        let user = &self.table.users[entry];
        for (word, targets) in user.targets.iter().zip(targets.words()) {
            word.store(targets, Ordering::Relaxed);
        }
        self.ask(entry, payload, targets, kernel);
    }

    /// Waits until what this CPU has begun is done everywhere, if it has begun anything. On the CPU that began it.
    pub fn wait(&self, me: CpuId, kernel: &impl RarSignal<W>) {
        let Some(entry) = self.entry(me) else { return };
        let user = &self.table.users[entry];
        let mut asked = CpuMask::from_words(core::array::from_fn(|word| user.targets[word].load(Ordering::Relaxed)));
        while !asked.is_empty() {
            let mut refused = CpuMask::EMPTY;
            for target in asked.iter() {
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
                self.ask(entry, kernel.everything(), &refused, kernel);
            }
            asked = refused;
        }
        self.cpus[me].entry.0.store(0, Ordering::Relaxed);
        // Release: whoever takes it next writes its words after everybody has read ours. Pairs with the
        // compare-exchange of `claim`.
        user.cpu.store(0, Ordering::Release);
    }

    /// Takes an entry that nobody uses: this CPU's own if it can, so that CPUs up to the number of entries never meet.
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
                // Or it has come free by now.
                if let Some(user) = user.checked_sub(1) {
                    kernel.waits(me, user as CpuId, looks);
                }
            }
            over
        });
        claimed
    }

    fn ask(&self, entry: usize, payload: [u64; 4], targets: &CpuMask<W>, kernel: &impl RarSignal<W>) {
        for (word, value) in self.table.payloads[entry].0.iter().zip(payload) {
            word.store(value, Ordering::Relaxed);
        }
        let word = |cpu: CpuId| &self.cpus[cpu].actions[entry / LANES];
        // A mark is a full barrier, so the lines would come one after the other.
        targets
            .iter()
            .take(AHEAD)
            .for_each(|cpu| F::prefetch_to_write(word(cpu)));
        for (target, ahead) in targets
            .iter()
            .zip(targets.iter().skip(AHEAD).map(Some).chain(core::iter::repeat(None)))
        {
            ahead.map(word).into_iter().for_each(F::prefetch_to_write);
            // Full barrier: who sees the mark reads the words above, and the target is asked whether it is off later
            // (`reset`). Or-ed, since eight entries share a word.
            word(target).fetch_or_full(PENDING << (entry % LANES * 8));
        }
        F::before_ipi();
        kernel.signal(targets);
    }
}

#[cfg(test)]
mod tests;
