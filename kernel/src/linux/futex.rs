//! Waiting for a word of user memory to change.

use super::errno::{EAGAIN, ETIMEDOUT, Errno};
use super::process::Process;
use super::task::{self, Task};
use super::user;
use crate::lock::Mutex;
use crate::time;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};

struct Waiter {
    process: *const Process,
    address: u64,
    /// Nanoseconds of the machine at which it gives up; [`NEVER`] without a limit.
    until: u64,
    task: Arc<Task>,
}

/// No limit.
pub const NEVER: u64 = u64::MAX;

// SAFETY: the pointer is compared, never dereferenced.
unsafe impl Send for Waiter {}

/// The waiters, the oldest first. Never locked by a handler, nor held during a wait.
static WAITERS: Mutex<Vec<Waiter>> = Mutex::new(Vec::new());

/// The earliest limit of the waiters, or sooner; [`NEVER`] without one. Written under the lock.
static NEXT_LIMIT: AtomicU64 = AtomicU64::new(NEVER);

/// Waits until the word is woken, if it still has that value, or until `until`, in nanoseconds of the machine.
///
/// # Errors
/// EAGAIN when it has another, EFAULT when it cannot be read, ETIMEDOUT.
pub fn wait(address: u64, value: u32, until: u64) -> Result<(), Errno> {
    let task = task::current();
    loop {
        // Without the lock, since a fault may sleep; then with it, if the page is still present.
        user::half(address)?;
        let mut waiters = WAITERS.lock();
        let Some(found) = user::half_if_there(address) else {
            continue;
        };
        if found != value {
            return Err(EAGAIN);
        }
        if task.process.is_dying() {
            return Ok(());
        }
        let process = Arc::as_ptr(&task.process);
        task.timed_out.store(false, Ordering::Relaxed);
        waiters.push(Waiter {
            process,
            address,
            until,
            task: task.clone(),
        });
        NEXT_LIMIT.fetch_min(until, Ordering::Relaxed);
        break;
    }
    task::wait();
    // Writes before this task was queued are visible to the CPU that took it from the queue.
    match task.timed_out.load(Ordering::Relaxed) {
        true => Err(ETIMEDOUT),
        false => Ok(()),
    }
}

/// The next moment at which [`expire`] has work, in nanoseconds of the machine; [`NEVER`] for none. A CPU that is about
/// to sleep sets its timer to it. A task that begins to wait leaves its CPU to do this, or to run a task, whose ticks
/// do.
pub fn next_limit() -> u64 {
    NEXT_LIMIT.load(Ordering::Relaxed)
}

/// Wakes the waiters whose time is over.
pub fn expire() {
    if next_limit() == NEVER {
        return;
    }
    let now = time::now_ns();
    if next_limit() > now {
        return;
    }
    take(usize::MAX, |waiter| {
        let over = waiter.until <= now;
        if over {
            waiter.task.timed_out.store(true, Ordering::Relaxed);
        }
        over
    });
}

/// Wakes at most that many waiters of the word; returns the number.
pub fn wake(process: &Process, address: u64, most: usize) -> usize {
    take(most, |waiter| {
        core::ptr::eq(waiter.process, process) && waiter.address == address
    })
}

/// Wakes all waiters of a process that ends.
pub fn wake_all_of(process: &Process) {
    take(usize::MAX, |waiter| core::ptr::eq(waiter.process, process));
}

fn take(most: usize, is_meant: impl Fn(&Waiter) -> bool) -> usize {
    let mut woken = Vec::new();
    {
        let mut waiters = WAITERS.lock();
        let mut index = 0;
        while index < waiters.len() && woken.len() < most {
            if is_meant(&waiters[index]) {
                woken.push(waiters.remove(index).task);
            } else {
                index += 1;
            }
        }
        let next = waiters.iter().map(|waiter| waiter.until).min();
        NEXT_LIMIT.store(next.unwrap_or(NEVER), Ordering::Relaxed);
    }
    let count = woken.len();
    woken.into_iter().for_each(task::wake);
    count
}
