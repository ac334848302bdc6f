//! The address-space lock: a reader/writer lock whose waiters sleep.
//!
//! A thread that must wait is blocked, and its CPU runs another or is idle. An idle CPU is in lazy TLB mode, so flushes
//! do not interrupt it; they interrupt a CPU that spins on the lock. Without a thread to block (the kernel's own
//! workloads, torture), or with interrupts off, waiting is spinning.
//!
//! Any thread may take a free lock, so that none waits for a thread that was woken and does not run yet. After a futile
//! wake-up of a thread, new ones queue behind it.
//!
//! A thread that takes this lock holds no spin lock, because it may sleep.

use crate::linux::task::{self, Task};
use crate::lock::Mutex;
use crate::time;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering};

/// Held for writing.
const WRITER: u32 = 1 << 31;
/// A thread is queued. Changed under the queue's lock.
const QUEUED: u32 = 1 << 30;
/// A thread was woken without success: threads that have not been woken queue.
const FIRST_COME: u32 = 1 << 29;
/// Number of readers that hold it.
const READERS: u32 = FIRST_COME - 1;

/// The lock.
pub type RwLock<T> = lock_api::RwLock<Raw, T>;

/// The lock without the protected data.
pub struct Raw {
    word: AtomicU32,
    /// The sleepers, the next to be woken first.
    queue: Mutex<VecDeque<Waiter>>,
}

struct Waiter {
    task: Arc<Task>,
    writes: bool,
}

impl Raw {
    /// Takes it if it is free in that mode, and none of `unless` is set.
    #[inline]
    fn try_take(&self, writes: bool, unless: u32) -> bool {
        let (taken, change) = if writes {
            (WRITER | READERS, WRITER)
        } else {
            (WRITER, 1)
        };
        let free = |word: u32| (word & (taken | unless) == 0).then(|| word + change);
        self.word
            .fetch_update(Ordering::Acquire, Ordering::Relaxed, free)
            .is_ok()
    }

    #[inline]
    fn take(&self, writes: bool) {
        if !self.try_take(writes, FIRST_COME) {
            self.wait(writes);
        }
    }

    #[cold]
    fn wait(&self, writes: bool) {
        let mut was_woken = false;
        while let Some(task) = task::that_may_sleep() {
            {
                let mut queue = self.queue.lock();
                // Set, then tried: a holder that releases after the try sees the flag, and checks the queue.
                self.word.fetch_or(QUEUED, Ordering::AcqRel);
                if self.try_take(writes, if was_woken { 0 } else { FIRST_COME }) {
                    let over = if was_woken { FIRST_COME } else { 0 } | if queue.is_empty() { QUEUED } else { 0 };
                    self.word.fetch_and(!over, Ordering::AcqRel);
                    return;
                }
                let waiter = Waiter { task, writes };
                if was_woken {
                    self.word.fetch_or(FIRST_COME, Ordering::AcqRel);
                    queue.push_front(waiter);
                } else {
                    queue.push_back(waiter);
                }
            }
            task::wait();
            was_woken = true;
        }
        // The first was woken without success and waits for a CPU, perhaps for this one: do not wait for it.
        while !self.try_take(writes, 0) {
            time::relax();
        }
    }

    /// It was released while a thread was queued: wakes the next one or ones.
    #[cold]
    fn wake(&self) {
        let mut next = Vec::new();
        {
            let mut queue = self.queue.lock();
            // Taken again meanwhile: the next release finds the queue unchanged.
            let word = self.word.load(Ordering::Acquire);
            let held = |writes: bool| word & (WRITER | if writes { READERS } else { 0 }) != 0;
            // The first, and if it reads, those behind it that read too.
            let count = match queue.front() {
                Some(first) if held(first.writes) => 0,
                Some(first) if first.writes => 1,
                _ => queue.iter().take_while(|waiter| !waiter.writes).count(),
            };
            next.extend(queue.drain(..count).map(|waiter| waiter.task));
            if queue.is_empty() {
                self.word.fetch_and(!QUEUED, Ordering::AcqRel);
            }
        }
        next.into_iter().for_each(task::wake);
    }
}

// SAFETY: a writer holds it alone: `try_take` adds to the word by compare-exchange, and only then.
unsafe impl lock_api::RawRwLock for Raw {
    type GuardMarker = lock_api::GuardNoSend;

    #[allow(clippy::declare_interior_mutable_const, reason = "what every lock begins as")]
    const INIT: Raw = Raw {
        word: AtomicU32::new(0),
        queue: Mutex::new(VecDeque::new()),
    };

    #[inline]
    fn lock_shared(&self) {
        self.take(false);
    }

    #[inline]
    fn try_lock_shared(&self) -> bool {
        self.try_take(false, FIRST_COME)
    }

    #[inline]
    unsafe fn unlock_shared(&self) {
        // Release: pairs with the acquire in `try_take`.
        let before = self.word.fetch_sub(1, Ordering::Release);
        if before & (READERS | QUEUED) == 1 | QUEUED {
            self.wake();
        }
    }

    #[inline]
    fn lock_exclusive(&self) {
        self.take(true);
    }

    #[inline]
    fn try_lock_exclusive(&self) -> bool {
        self.try_take(true, FIRST_COME)
    }

    #[inline]
    unsafe fn unlock_exclusive(&self) {
        // Release: pairs with the acquire in `try_take`.
        let before = self.word.fetch_and(!WRITER, Ordering::Release);
        if before & QUEUED != 0 {
            self.wake();
        }
    }
}
