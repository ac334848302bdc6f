//! The contended locks of the simulated kernel: a spinlock with a queue, and the address-space lock, whose waiters sleep.
//!
//! Owns who holds and who waits; costs come from the lines of the lock words, so contention is simulated, not assumed.

use super::category::{self, Category};
use super::preemption::Preemption;
use super::scheduler::Threads;
use crate::machine::{self, Machine, Shared, SimWord};
use shootdown::Word;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::atomic::Ordering;

/// A queued spinlock, as kernels have it for short sections: acquiring is one read-modify-write; a waiter spins on a word
/// of its CPU, which the holder before it sets.
pub struct SpinLock {
    /// Counts the holder and the waiters.
    word: Shared<SimWord>,
    queue: RefCell<VecDeque<Shared<SimWord>>>,
    /// One word per CPU to spin on; shared by all locks, since a CPU waits for one at a time.
    nodes: Rc<[Shared<SimWord>]>,
    preemption: Rc<Preemption>,
}

impl SpinLock {
    /// A free lock; `nodes` has a word per CPU.
    pub fn new(machine: &Machine, nodes: Rc<[Shared<SimWord>]>, preemption: Rc<Preemption>) -> Self {
        SpinLock {
            word: machine.alloc(SimWord::new(0)),
            queue: RefCell::default(),
            nodes,
            preemption,
        }
    }

    /// Runs `section` under the lock, from the wait on with preemption off. With `masked`, interrupts are off from before the wait until the release, as with a
    /// lock that interrupt handlers take too.
    pub fn with<T>(&self, masked: bool, section: impl FnOnce() -> T) -> T {
        let saved = masked.then(machine::interrupts_off);
        self.preemption.off();
        // Queueing follows its read-modify-write without anything in between
        // that takes virtual time, so a release that counts a waiter finds it queued.
        let node = &self.nodes[machine::cpu()];
        if self.word.fetch_add_full(1) != 0 {
            node.poke(0);
            self.queue.borrow_mut().push_back(node.clone());
            machine::wait_until(|| node.load(Ordering::Acquire) == 1);
        }
        let result = section();
        if self.word.fetch_add_full(u64::MAX) != 1
            && let Some(next) = { self.queue.borrow_mut().pop_front() }
        {
            next.store(1, Ordering::Release);
        }
        let outermost = self.preemption.on();
        if let Some(saved) = saved {
            machine::interrupts_restore(saved);
        } else if outermost {
            machine::preemption_point();
        }
        result
    }
}

/// How an address-space lock is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Faults and `madvise`.
    Shared,
    /// Mapping and unmapping.
    Exclusive,
}

const WRITER: u64 = 1;
const WAITERS: u64 = 2;
const READER: u64 = 4;

/// The words of a [`SleepLock`] that every user writes, on one line.
struct Words {
    /// Readers, whether a writer holds it, whether anybody waits.
    count: SimWord,
    /// Who took it last, for spinning writers to look at; Linux's `rwsem` writes it at every acquisition, by readers too,
    /// which makes the line move once more under contention.
    owner: SimWord,
}

/// The address-space lock: a reader/writer semaphore, as Linux's `rwsem`. Every acquisition is one read-modify-write of its
/// count and one store to its owner, every release one read-modify-write; whoever cannot have it sleeps. A release hands the lock to the longest waiter, or to all readers that wait in a row.
pub struct SleepLock {
    words: Shared<Words>,
    /// Stands for the line of the wait list, which its users modify.
    list: Shared<SimWord>,
    waiters: RefCell<VecDeque<(usize, Access)>>,
    granted: Vec<Shared<SimWord>>,
    /// Who waits, where there are several threads on a CPU; else each CPU is a thread.
    threads: Option<Box<dyn Threads>>,
    preemption: Rc<Preemption>,
    wake_cost: u64,
    wake_latency: u64,
}

impl SleepLock {
    /// A free lock. `wake_cost`: what waking one sleeper costs the waker; `wake_latency`: until it runs (cycles).
    pub(super) fn new(
        machine: &Machine,
        cpus: usize,
        (wake_cost, wake_latency): (u64, u64),
        threads: Option<Box<dyn Threads>>,
        preemption: Rc<Preemption>,
    ) -> Self {
        SleepLock {
            words: machine.alloc(Words {
                count: SimWord::new(0),
                owner: SimWord::new(0),
            }),
            list: machine.alloc(SimWord::new(0)),
            waiters: RefCell::default(),
            granted: (0..cpus).map(|_| machine.alloc(SimWord::new(0))).collect(),
            wake_cost,
            wake_latency,
            threads,
            preemption,
        }
    }

    /// Takes the lock, sleeping by `block` (which returns when this CPU was woken) while it cannot be had.
    pub fn lock(&self, access: Access, block: impl Fn()) {
        let taken = match access {
            Access::Shared => self.words.count.fetch_add_full(READER) & (WRITER | WAITERS) == 0,
            Access::Exclusive => self.words.count.compare_exchange_full(0, WRITER).is_ok(),
        };
        if !taken {
            let outer = category::enter(Category::LockWait);
            self.wait(access, block);
            category::leave(outer);
        }
        self.words.owner.store(machine::cpu() as u64 + 1, Ordering::Relaxed);
    }

    fn wait(&self, access: Access, block: impl Fn()) {
        let me = self
            .threads
            .as_ref()
            .map_or_else(machine::cpu, |threads| threads.current());
        let granted = self.granted(me);
        // The wait list has a spinlock of its own, which is not modelled but for this.
        self.preemption.off();
        granted.store(0, Ordering::Relaxed);
        self.list.fetch_add_full(1);
        self.waiters.borrow_mut().push_back((me, access));
        // Give back the reader's claim and leave the mark in one step; whoever leaves the lock free hands it on.
        self.words.count.fetch_or_full(WAITERS);
        if access == Access::Shared {
            self.words.count.fetch_add_full(READER.wrapping_neg());
        }
        self.hand_on();
        self.preemption.on();
        while granted.load(Ordering::Acquire) == 0 {
            block();
        }
    }

    /// Turns exclusive into shared access without letting go, and lets the readers that wait first in.
    pub fn downgrade(&self) {
        let before = self.words.count.fetch_add_full(READER - WRITER);
        if before & WAITERS != 0 {
            self.hand_on();
        }
    }

    /// Releases the lock.
    pub fn unlock(&self, access: Access) {
        let held = match access {
            Access::Shared => READER,
            Access::Exclusive => WRITER,
        };
        let before = self.words.count.fetch_add_full(held.wrapping_neg());
        if before & WAITERS != 0 && before - held < READER {
            self.hand_on();
        }
    }

    fn granted(&self, id: usize) -> Shared<SimWord> {
        match &self.threads {
            Some(threads) => threads.granted(id),
            None => self.granted[id].clone(),
        }
    }

    /// If the lock is free and wanted, gives it to who waits first.
    fn hand_on(&self) {
        self.preemption.off();
        self.choose_and_wake();
        if self.preemption.on() {
            machine::preemption_point();
        }
    }

    fn choose_and_wake(&self) {
        self.list.fetch_add_full(1);
        let mut chosen = Vec::new();
        {
            let mut waiters = self.waiters.borrow_mut();
            let word = self.words.count.peek();
            if word & WRITER != 0 || waiters.is_empty() {
                return;
            }
            match waiters.front() {
                Some((_, Access::Exclusive)) if word < READER => chosen.extend(waiters.pop_front()),
                Some((_, Access::Exclusive)) | None => return,
                Some((_, Access::Shared)) => {
                    while let Some((_, Access::Shared)) = waiters.front() {
                        chosen.extend(waiters.pop_front());
                    }
                }
            }
            let claim = match chosen[0].1 {
                Access::Exclusive => WRITER,
                Access::Shared => READER * chosen.len() as u64,
            };
            let still = if waiters.is_empty() { 0 } else { WAITERS };
            self.words.count.poke(((word & !WAITERS) + claim) | still);
        }
        // The line was modified above without charge, so that choosing and claiming are one step.
        machine::modify_line(machine::line_of(&self.words.count));
        for (id, _) in chosen {
            machine::charge(self.wake_cost);
            self.granted(id).store(1, Ordering::Release);
            match &self.threads {
                Some(threads) => threads.wake(id, self.wake_latency),
                None => machine::wake(id, self.wake_latency),
            }
        }
    }
}
