//! Waiting for a word of user memory to change.

use super::errno::{EAGAIN, Errno};
use super::process::Process;
use super::task::{self, Task};
use super::user;
use crate::arch::lock::Mutex;
use alloc::sync::Arc;
use alloc::vec::Vec;

struct Waiter {
    process: *const Process,
    address: u64,
    task: Arc<Task>,
}

// SAFETY: the pointer is compared, never followed.
unsafe impl Send for Waiter {}

/// Who waits, those first who came first. Never locked by a handler, nor held while anybody is waited for.
static WAITERS: Mutex<Vec<Waiter>> = Mutex::new(Vec::new());

/// Waits until the word is woken, if it still has that value.
///
/// # Errors
/// EAGAIN when it has another, EFAULT when it cannot be read.
pub fn wait(address: u64, value: u32) -> Result<(), Errno> {
    let task = task::current();
    loop {
        // Without the lock, since a fault may sleep; then with it, if the page is still there.
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
        waiters.push(Waiter { process, address, task });
        break;
    }
    task::wait();
    Ok(())
}

/// Wakes at most so many of those that wait for the word; how many.
pub fn wake(process: &Process, address: u64, most: usize) -> usize {
    take(most, |waiter| {
        core::ptr::eq(waiter.process, process) && waiter.address == address
    })
}

/// Wakes all of a process that ends.
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
    }
    let count = woken.len();
    woken.into_iter().for_each(task::wake);
    count
}
