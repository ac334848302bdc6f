//! The spinlock of the simulated kernel, with a queue.
//!
//! Owns the holder and the waiters. Costs come from the lines of the lock words, so contention is simulated, not
//! assumed.

use super::preemption::Preemption;
use crate::machine::{self, Machine, Shared, SimWord};
use shootdown::Word;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::atomic::Ordering;

/// A queued spinlock, as kernels use for short sections. Acquiring is one read-modify-write. Releasing is a plain
/// store, after which earlier stores of the section may still be buffered. The first waiter spins on the lock's word,
/// each other one on a word of its CPU, which the waiter before it sets.
pub struct SpinLock {
    /// 1 while held.
    word: Shared<SimWord>,
    /// The waiters, and the word of each.
    queue: RefCell<VecDeque<(usize, Shared<SimWord>)>>,
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

    /// Runs `section` under the lock, with preemption off from the wait on. With `masked`, interrupts are off from
    /// before the wait until the release, as with a lock that interrupt handlers take too.
    pub fn with<T>(&self, masked: bool, section: impl FnOnce() -> T) -> T {
        let saved = masked.then(machine::interrupts_off);
        self.preemption.off();
        if !self.try_take() {
            self.wait();
        }
        let result = section();
        self.release();
        let outermost = self.preemption.on();
        if let Some(saved) = saved {
            machine::interrupts_restore(saved);
        } else if outermost {
            machine::preemption_point();
        }
        result
    }

    fn try_take(&self) -> bool {
        self.word.compare_exchange_full(0, 1).is_ok()
    }

    /// A virtual machine's lock is released by a read-modify-write, which wakes the first waiter if it has halted.
    fn release(&self) {
        let host = self.preemption.host().filter(|host| host.locks_halt());
        let Some(host) = host else {
            return self.word.store(0, Ordering::Release);
        };
        self.word.swap_full(0);
        let first = self.queue.borrow().front().map(|&(cpu, _)| cpu);
        if let Some(first) = first {
            host.kick(first);
        }
    }

    fn wait_until(&self, previous: Option<usize>, condition: impl FnMut() -> bool) {
        match self.preemption.host() {
            Some(host) => host.wait_for_lock(previous, condition),
            None => machine::wait_until(condition),
        }
    }

    /// Queues and takes the lock in its turn. Queueing follows a read-modify-write without virtual time in between:
    /// that of the lock's word stands for that of the queue's end.
    fn wait(&self) {
        let node = &self.nodes[machine::cpu()];
        node.poke(0);
        let previous = self.queue.borrow().back().map(|&(cpu, _)| cpu);
        self.queue.borrow_mut().push_back((machine::cpu(), node.clone()));
        if previous.is_some() {
            self.wait_until(previous, || node.load(Ordering::Acquire) == 1);
        }
        loop {
            self.wait_until(None, || self.word.load(Ordering::Acquire) == 0);
            if self.try_take() {
                break;
            }
        }
        self.queue.borrow_mut().pop_front();
        let next = self.queue.borrow().front().cloned();
        if let Some((_, next)) = next {
            next.store(1, Ordering::Release);
        }
    }
}

/// Mode in which an address-space lock is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Faults and `madvise`.
    Shared,
    /// Mapping and unmapping.
    Exclusive,
}
