//! The spinlock of the simulated kernel, with a queue.
//!
//! Owns who holds and who waits; costs come from the lines of the lock words, so contention is simulated, not assumed.

use super::preemption::Preemption;
use crate::machine::{self, Machine, Shared, SimWord};
use shootdown::Word;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::atomic::Ordering;

/// A queued spinlock, as kernels have it for short sections: acquiring is one read-modify-write; a waiter spins on a
/// word of its CPU, which the holder before it sets.
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

    /// Runs `section` under the lock, from the wait on with preemption off. With `masked`, interrupts are off from
    /// before the wait until the release, as with a lock that interrupt handlers take too.
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
