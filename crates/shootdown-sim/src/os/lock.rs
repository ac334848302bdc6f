//! The spinlock of the simulated kernel, with a queue.
//!
//! Owns the holder and the waiters. Costs come from the lines of the lock words, so contention is simulated, not
//! assumed.

use super::host::Host;
use super::preemption::Preemption;
use crate::machine::{self, Machine, Shared, SimWord};
use shootdown::Word;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::atomic::Ordering;

/// A CPU holds the lock.
const HELD: u64 = 1;
/// On a virtual machine: the first waiter spins, and nobody else may take the lock.
const FIRST_SPINS: u64 = 2;

/// A queued spinlock, as kernels use for short sections. Acquiring is one read-modify-write. Releasing is a plain
/// store, after which earlier stores of the section may still be buffered. The first waiter spins on the lock's word,
/// each other one on a word of its CPU, which the waiter before it sets.
///
/// On a virtual machine whose waiters do not halt it is a test-and-set lock without a queue, as Linux's is there
/// (`virt_spin_lock`): a queue would pass it to virtual CPUs that do not run.
///
/// Where they halt it follows Linux's paravirtual queued spinlock (`kernel/locking/qspinlock_paravirt.h`): a
/// waiter that has spun for long halts until the release wakes it. While the first waiter has halted, other CPUs do not
/// queue behind it but take the lock as they find it free (since Linux 4.15, "locking/pvqspinlock: Implement hybrid PV
/// queued/unfair locks").
pub struct SpinLock {
    /// [`HELD`], [`FIRST_SPINS`].
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
        self.word.compare_exchange_full(0, HELD).is_ok()
    }

    fn is_held(&self) -> bool {
        self.word.load(Ordering::Acquire) & HELD != 0
    }

    /// Whether waiters have no order: on a virtual machine whose waiters do not halt.
    fn is_unfair(&self) -> bool {
        self.preemption.host().is_some_and(|host| !host.locks_halt())
    }

    /// The host of a virtual machine whose waiters halt.
    fn host(&self) -> Option<&Rc<Host>> {
        self.preemption.host().filter(|host| host.locks_halt())
    }

    /// A virtual machine's lock is released by a read-modify-write, which wakes the first waiter if it has halted.
    fn release(&self) {
        let Some(host) = self.host() else {
            return self.word.store(0, Ordering::Release);
        };
        self.word.fetch_and_full(!HELD);
        let first = self.queue.borrow().front().map(|&(cpu, _)| cpu);
        if let Some(first) = first {
            host.kick(first);
        }
    }

    /// Queues and takes the lock in its turn. Queueing follows a read-modify-write without virtual time in between:
    /// that of the lock's word stands for that of the queue's end.
    fn wait(&self) {
        if self.is_unfair() {
            return self.wait_first();
        }
        let host = self.host();
        if host.is_some() && self.takes_past_the_queue() {
            return;
        }
        let node = &self.nodes[machine::cpu()];
        node.poke(0);
        let previous = self.queue.borrow().back().map(|&(cpu, _)| cpu);
        self.queue.borrow_mut().push_back((machine::cpu(), node.clone()));
        if let Some(previous) = previous {
            let mut is_first = || node.load(Ordering::Acquire) == 1;
            match host {
                None => machine::wait_until(is_first),
                Some(host) if host.spins_for_lock(Some(previous), &mut is_first) => {}
                Some(host) => host.halts_for_lock(is_first),
            }
        }
        match host {
            None => self.wait_first(),
            Some(host) => self.wait_first_virtually(host),
        }
        self.queue.borrow_mut().pop_front();
        let next = self.queue.borrow().front().cloned();
        if let Some((_, next)) = next {
            next.store(1, Ordering::Release);
        }
    }

    /// Takes the lock as it finds it free.
    fn wait_first(&self) {
        loop {
            machine::wait_until(|| !self.is_held());
            if self.try_take() {
                return;
            }
        }
    }

    /// As first in the queue: spins, and halts when that takes long. The lock is then open to others.
    fn wait_first_virtually(&self, host: &Rc<Host>) {
        loop {
            self.word.fetch_or_full(FIRST_SPINS);
            while host.spins_for_lock(None, || !self.is_held()) {
                if self.word.compare_exchange_full(FIRST_SPINS, HELD).is_ok() {
                    return;
                }
            }
            self.word.fetch_and_full(!FIRST_SPINS);
            host.halts_for_lock(|| !self.is_held());
        }
    }

    /// Waits for the lock without queueing while the first waiter has halted; false if it has not.
    fn takes_past_the_queue(&self) -> bool {
        loop {
            let mut seen = 0;
            machine::wait_until(|| {
                seen = self.word.load(Ordering::Acquire);
                seen != HELD || self.queue.borrow().is_empty()
            });
            if seen == 0 && self.try_take() {
                return true;
            }
            if seen & FIRST_SPINS != 0 || self.queue.borrow().is_empty() {
                return false;
            }
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
