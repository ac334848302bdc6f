//! The address-space lock: a reader/writer semaphore that follows the rules of Linux's `rwsem` since 5.11, except one.
//!
//! These rules decide how often the readers of a busy address space stall, so they are reproduced:
//! - a reader gets the lock at once unless a writer holds it or another waits; a writer only if the lock is free;
//! - a writer spins first: without limit while another writer holds the lock, for 10 us and half a microsecond per
//!   reader (at most 25 us) while readers do; readers come and go meanwhile. One writer at a time, the others queue to
//!   spin;
//! - a writer that still waits then sleeps in a queue. A release that leaves the lock free wakes the first waiter, and
//!   if that is a reader, every reader in the queue, also those behind a writer;
//! - while a writer holds the lock or it is free, a reader that finds no hand-off in progress may steal it from the
//!   waiters.
//!
//! Not reproduced: a waiting writer requests hand-off, after which the lock cannot be stolen from it, only after 4 ms.
//! Here it does so at once. With the 4 ms a single reader can take the lock repeatedly while the writer is still waking
//! up, for longer the later it wakes. Rates then depend on `kernel.wake_latency`, which is the least certain number of
//! the model.
//!
//! Owns the holders, spinners and waiters; costs come from the lines of the words. Each acquisition is one
//! read-modify-write of the count and one store of the owner, each release one read-modify-write. A fault tries first,
//! which also reads the count.

use super::category::{self, Category};
use super::idle::IdleStates;
use super::lock::{Access, SpinLock};
use super::preemption::Preemption;
use crate::machine::{self, Machine, Shared, SimWord};
use shootdown::Word;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::atomic::Ordering;

/// A thread, by its number from 0.
pub type ThreadId = usize;

/// Threads as a lock sees them.
pub(super) trait Threads {
    /// The thread that this CPU runs.
    fn current(&self) -> ThreadId;
    /// The word through which it is given the lock.
    fn granted(&self, id: ThreadId) -> Shared<SimWord>;
    /// Wakes a thread that waits, `after` cycles from now.
    fn wake(&self, id: ThreadId, after: u64);
}

// The count.
const WRITER: u64 = 1;
const WAITERS: u64 = 2;
const HANDOFF: u64 = 4;
const READER: u64 = 8;

// The owner: the CPU that took it last, from 1, above these.
const BY_READER: u64 = 1;
const NO_SPINNING: u64 = 2;

/// One iteration of a polling loop: PAUSE and two loads, cycles.
const POLL: u64 = 60;

/// The words that every user writes. Linux places them on two lines of an address space (commit 2e3025434a6b).
struct Words {
    count: Shared<SimWord>,
    owner: Shared<SimWord>,
}

/// A waiter.
struct Waiter {
    /// The thread, or the CPU where each CPU is a thread.
    id: usize,
    access: Access,
    /// A writer that has been woken and has not tried yet.
    woken: bool,
}

/// Which waiters may be woken.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wake {
    /// The first waiter, of either kind.
    Any,
    /// Readers, if they are first.
    Readers,
    /// The same, by a reader that holds the lock.
    AsReader,
}

/// Costs of the lock's slow paths, cycles.
#[derive(Debug, Clone, Copy)]
pub struct SleepCosts {
    /// The waker's work for each sleeper.
    pub wake: u64,
    /// From the wake-up until the sleeper runs, if its CPU is in the first idle state.
    pub wake_latency: u64,
    /// The idle states.
    pub idle: IdleStates,
    /// A microsecond: the limit of spinning is a time.
    pub microsecond: u64,
}

/// The lock.
pub struct SleepLock {
    words: Words,
    /// Guards the queue of sleepers.
    queue_lock: SpinLock,
    /// Writers queue here to spin.
    spinners: SpinLock,
    waiters: RefCell<VecDeque<Waiter>>,
    granted: Vec<Shared<SimWord>>,
    /// The waiters, where there are several threads on a CPU; else each CPU is a thread.
    threads: Option<Box<dyn Threads>>,
    costs: SleepCosts,
}

fn is_held(count: u64) -> bool {
    count & WRITER != 0 || count >= READER
}

impl SleepLock {
    /// A free lock; `nodes` has a word per CPU to spin on.
    pub(super) fn new(
        machine: &Machine,
        nodes: Rc<[Shared<SimWord>]>,
        costs: SleepCosts,
        threads: Option<Box<dyn Threads>>,
        preemption: Rc<Preemption>,
    ) -> Self {
        SleepLock {
            words: Words {
                count: machine.alloc(SimWord::new(0)),
                owner: machine.alloc(SimWord::new(0)),
            },
            granted: nodes.iter().map(|_| machine.alloc(SimWord::new(0))).collect(),
            queue_lock: SpinLock::new(machine, nodes.clone(), preemption.clone()),
            spinners: SpinLock::new(machine, nodes, preemption),
            waiters: RefCell::default(),
            threads,
            costs,
        }
    }

    /// Takes the lock, sleeping by `block` (which returns when this CPU was woken) while it is not available.
    pub fn lock(&self, access: Access, block: impl Fn()) {
        match access {
            Access::Shared => {
                let before = self.words.count.fetch_add_full(READER);
                if before & (WRITER | WAITERS | HANDOFF) != 0 {
                    let outer = category::enter(Category::LockWait);
                    self.read_slow(before, block);
                    category::leave(outer);
                }
                self.owned_by_reader();
            }
            Access::Exclusive => {
                if self.words.count.compare_exchange_full(0, WRITER).is_err() {
                    let outer = category::enter(Category::LockWait);
                    if !self.spin() {
                        self.write_queued(block);
                    }
                    category::leave(outer);
                }
                self.set_owner(0);
            }
        }
    }

    /// Takes the lock for reading if no writer holds it and nobody waits. Linux reads the count before it exchanges it
    /// since 5.17 (commit 14c240488411), and did so before 5.2. In between it guessed that the lock was free, which is
    /// not simulated.
    pub(super) fn try_read(&self) -> bool {
        let mut count = self.words.count.load(Ordering::Relaxed);
        while count & (WRITER | WAITERS | HANDOFF) == 0 {
            match self.words.count.compare_exchange_full(count, count + READER) {
                Ok(_) => {
                    self.owned_by_reader();
                    return true;
                }
                Err(found) => count = found,
            }
        }
        false
    }

    fn set_owner(&self, flags: u64) {
        let me = machine::cpu() as u64 + 1;
        self.words.owner.store(me << 2 | flags, Ordering::Relaxed);
    }

    /// A reader keeps the writer's flag about spinning.
    fn owned_by_reader(&self) {
        self.set_owner(BY_READER | self.words.owner.peek() & NO_SPINNING);
    }

    fn read_slow(&self, before: u64, block: impl Fn()) {
        let alone = before < READER;
        let by_reader = self.words.owner.load(Ordering::Relaxed) & BY_READER != 0;
        let passed_over = by_reader && !alone && before & WRITER == 0;
        if !passed_over && before & (WRITER | HANDOFF) == 0 {
            self.owned_by_reader();
            if alone && before & WAITERS != 0 {
                let woken = self.queue_lock.with(true, || self.choose(Wake::AsReader));
                self.wake(&woken);
            }
            return;
        }
        let me = self.current();
        let granted = self.granted(me);
        let woken = self.queue_lock.with(true, || {
            let first = self.waiters.borrow().is_empty();
            if first && self.words.count.load(Ordering::Relaxed) & (WRITER | HANDOFF) == 0 {
                return None;
            }
            granted.store(0, Ordering::Relaxed);
            self.enqueue(me, Access::Shared);
            let change = if first { WAITERS } else { 0 }.wrapping_sub(READER);
            let count = self.words.count.fetch_add_full(change).wrapping_add(change);
            Some(self.choose_if_free(count))
        });
        let Some(woken) = woken else { return };
        self.wake(&woken);
        while granted.load(Ordering::Acquire) == 0 {
            block();
        }
    }

    /// Spins for the lock as a writer; false: sleep. Where threads share CPUs no writer spins. Linux spins, but stops
    /// when the holder is descheduled, which the simulated lock cannot tell.
    fn spin(&self) -> bool {
        if self.threads.is_some() || self.words.owner.load(Ordering::Relaxed) & NO_SPINNING != 0 {
            return false;
        }
        self.spinners.with(false, || {
            let mut limit = None;
            loop {
                let owner = self.words.owner.load(Ordering::Relaxed);
                if owner & NO_SPINNING != 0 {
                    return false;
                }
                if owner != 0 && owner & BY_READER == 0 {
                    machine::wait_until(|| self.words.owner.load(Ordering::Relaxed) != owner);
                    limit = None;
                    continue;
                }
                let count = self.words.count.load(Ordering::Relaxed);
                let free = !is_held(count) && count & HANDOFF == 0;
                if free && self.words.count.compare_exchange_full(count, count | WRITER).is_ok() {
                    return true;
                }
                if owner & BY_READER != 0 {
                    let half_microseconds = 20 + (count / READER).min(30);
                    let allowed = || machine::now() + half_microseconds * self.costs.microsecond / 2;
                    if machine::now() > *limit.get_or_insert_with(allowed) {
                        self.words.owner.fetch_or_full(NO_SPINNING);
                        return false;
                    }
                }
                machine::charge(POLL);
            }
        })
    }

    fn write_queued(&self, block: impl Fn()) {
        let me = self.current();
        let woken = self.queue_lock.with(true, || {
            let first = self.waiters.borrow().is_empty();
            self.enqueue(me, Access::Exclusive);
            if first {
                self.words.count.fetch_or_full(WAITERS);
                Vec::new()
            } else {
                self.choose_if_free(self.words.count.load(Ordering::Relaxed))
            }
        });
        self.wake(&woken);
        while !self.queue_lock.with(true, || self.try_as_waiter(me)) {
            block();
        }
    }

    /// A queued writer tries, under the queue's lock.
    fn try_as_waiter(&self, me: usize) -> bool {
        let (place, last) = {
            let mut waiters = self.waiters.borrow_mut();
            let place = waiters.iter().position(|waiter| waiter.id == me).expect("still queued");
            waiters[place].woken = false;
            (place, waiters.len() == 1)
        };
        loop {
            let count = self.words.count.load(Ordering::Relaxed);
            if count & HANDOFF != 0 && place != 0 {
                return false;
            }
            if is_held(count) {
                if place == 0 && count & HANDOFF == 0 {
                    self.words.count.fetch_or_full(HANDOFF);
                }
                return false;
            }
            let cleared = if last { HANDOFF | WAITERS } else { HANDOFF };
            let taken = count & !cleared | WRITER;
            if self.words.count.compare_exchange_full(count, taken).is_ok() {
                self.waiters.borrow_mut().remove(place);
                return true;
            }
        }
    }

    fn enqueue(&self, id: usize, access: Access) {
        self.waiters.borrow_mut().push_back(Waiter {
            id,
            access,
            woken: false,
        });
    }

    /// Downgrades exclusive to shared access without releasing, and admits the readers if they wait first.
    pub fn downgrade(&self) {
        let before = self.words.count.fetch_add_full(READER - WRITER);
        self.set_owner(BY_READER);
        if before & WAITERS != 0 {
            let woken = self.queue_lock.with(true, || self.choose(Wake::AsReader));
            self.wake(&woken);
        }
    }

    /// Releases the lock.
    pub fn unlock(&self, access: Access) {
        let held = match access {
            Access::Shared => READER,
            Access::Exclusive => {
                self.words.owner.store(0, Ordering::Relaxed);
                WRITER
            }
        };
        let count = self.words.count.fetch_add_full(held.wrapping_neg()) - held;
        if count & WAITERS != 0 && !is_held(count) {
            if access == Access::Shared {
                self.allow_spinning();
            }
            let woken = self.queue_lock.with(true, || self.choose(Wake::Any));
            self.wake(&woken);
        }
    }

    fn allow_spinning(&self) {
        if self.words.owner.load(Ordering::Relaxed) & NO_SPINNING != 0 {
            self.words.owner.fetch_and_full(!NO_SPINNING);
        }
    }

    /// After a waiter that has just queued saw `count`, under the queue's lock: no other CPU may check for it.
    fn choose_if_free(&self, count: u64) -> Vec<usize> {
        if count & WRITER != 0 {
            return Vec::new();
        }
        if count >= READER {
            return self.choose(Wake::Readers);
        }
        self.allow_spinning();
        self.choose(Wake::Any)
    }

    /// Selects the waiters to wake and gives readers the lock, under the queue's lock.
    fn choose(&self, wake: Wake) -> Vec<usize> {
        match self.waiters.borrow_mut().front_mut() {
            None => return Vec::new(),
            Some(first) if first.access == Access::Exclusive => {
                let chosen = wake == Wake::Any && !std::mem::replace(&mut first.woken, true);
                return if chosen { vec![first.id] } else { Vec::new() };
            }
            Some(_) => {}
        }
        let claimed = if wake == Wake::AsReader { 0 } else { READER };
        if claimed != 0 {
            // Claim it for the first before searching for the others: a spinning writer may be faster.
            let before = self.words.count.fetch_add_full(claimed);
            if before & WRITER != 0 {
                if before & HANDOFF == 0 {
                    self.words.count.fetch_or_full(HANDOFF);
                }
                let without = self.words.count.fetch_add_full(claimed.wrapping_neg()) - claimed;
                // A writer that released in between took the claim for a reader, and woke no waiter.
                let gone = without & WRITER == 0;
                return if gone { self.choose(wake) } else { Vec::new() };
            }
            self.owned_by_reader();
        }
        let (chosen, all) = {
            let mut waiters = self.waiters.borrow_mut();
            let readers = waiters.iter().filter(|waiter| waiter.access == Access::Shared);
            let chosen: Vec<usize> = readers.map(|waiter| waiter.id).collect();
            waiters.retain(|waiter| waiter.access == Access::Exclusive);
            (chosen, waiters.is_empty())
        };
        let mut cleared = self.words.count.load(Ordering::Relaxed) & HANDOFF;
        if all {
            cleared |= WAITERS;
        }
        let change = (READER * chosen.len() as u64).wrapping_sub(claimed + cleared);
        self.words.count.fetch_add_full(change);
        chosen
    }

    fn current(&self) -> usize {
        self.threads
            .as_ref()
            .map_or_else(machine::cpu, |threads| threads.current())
    }

    fn granted(&self, id: usize) -> Shared<SimWord> {
        match &self.threads {
            Some(threads) => threads.granted(id),
            None => self.granted[id].clone(),
        }
    }

    fn wake(&self, chosen: &[usize]) {
        for &id in chosen {
            machine::charge(self.costs.wake);
            self.granted(id).store(1, Ordering::Release);
            match &self.threads {
                Some(threads) => threads.wake(id, self.costs.wake_latency),
                None => machine::wake(id, self.costs.wake_latency + self.costs.idle.beyond_first(id)),
            }
        }
    }
}
