//! A running program: its space, its addresses, its files, its end.

use super::errno::{ECHILD, Errno};
use super::files::Files;
use super::memory::Addresses;
use super::task::{self, Task};
use super::{futex, user};
use crate::arch::interrupts;
use crate::arch::traps::Frame;
use crate::lock::Mutex;
use crate::serial;
use crate::sleeping::RwLock;
use crate::space::AddressSpace;
use alloc::boxed::Box;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};

/// A process.
pub struct Process {
    /// Number: that of its first thread.
    pub id: u32,
    space: *mut AddressSpace,
    /// Its used addresses.
    pub addresses: RwLock<Addresses>,
    /// Its files.
    pub files: Mutex<Files>,
    /// Number of threads that have not ended.
    pub threads: AtomicUsize,
    dying: AtomicBool,
    status: AtomicI32,
    parent: Weak<Process>,
    family: Mutex<Family>,
}

/// The children of a process.
#[derive(Default)]
struct Family {
    /// Those that have not been waited for.
    children: Vec<Arc<Process>>,
    /// The threads that wait for one to end: each checks for its own when it is woken.
    waiters: Vec<Arc<Task>>,
}

// SAFETY: the space is shared by reference only, until the process is dropped.
unsafe impl Send for Process {}
// SAFETY: as for `Send`.
unsafe impl Sync for Process {}

impl Process {
    /// A process without threads.
    pub fn new(space: AddressSpace, addresses: Addresses, files: Files) -> Arc<Process> {
        Process::of_parent(space, addresses, files, Weak::new())
    }

    fn of_parent(space: AddressSpace, addresses: Addresses, files: Files, parent: Weak<Process>) -> Arc<Process> {
        Arc::new(Process {
            id: task::next_id(),
            space: Box::into_raw(Box::new(space)),
            addresses: RwLock::new(addresses),
            files: Mutex::new(files),
            threads: AtomicUsize::new(0),
            dying: AtomicBool::new(false),
            status: AtomicI32::new(0),
            parent,
            family: Mutex::new(Family::default()),
        })
    }

    /// A copy without threads, to be [adopted](Self::adopt) when it has one. `None` when memory is exhausted.
    pub fn fork(self: &Arc<Self>) -> Option<Arc<Process>> {
        // Nothing is mapped or unmapped between the two copies.
        let addresses = self.addresses.write();
        let space = self.space().fork()?;
        let files = self.files.lock().clone();
        Some(Process::of_parent(
            space,
            addresses.clone(),
            files,
            Arc::downgrade(self),
        ))
    }

    /// Makes a forked process a child of this one, which can be waited for. It must have a thread, because otherwise it
    /// would seem to have ended.
    pub fn adopt(&self, child: Arc<Process>) {
        self.family.lock().children.push(Arc::clone(&child));
        // `kill` sets its flag, then searches children; here the order is reversed, under the same lock.
        if self.is_dying() {
            child.kill(self.status());
        }
    }

    /// Waits until a child has ended: the one of that number, or any for -1. Returns its number and status.
    ///
    /// # Errors
    /// ECHILD when there is no such child.
    pub fn wait_for(&self, number: i64) -> Result<(u32, i32), Errno> {
        loop {
            {
                let mut family = self.family.lock();
                let is_meant = |child: &Arc<Process>| number == -1 || i64::from(child.id) == number;
                if !family.children.iter().any(is_meant) {
                    return Err(ECHILD);
                }
                let ended = |child: &Arc<Process>| is_meant(child) && child.threads.load(Ordering::Acquire) == 0;
                if let Some(index) = family.children.iter().position(ended) {
                    let child = family.children.swap_remove(index);
                    drop(family);
                    return Ok((child.id, child.status()));
                }
                if self.is_dying() {
                    return Err(ECHILD);
                }
                family.waiters.push(task::current());
            }
            task::wait();
        }
    }

    fn wake_waiters(&self) {
        let waiters = core::mem::take(&mut self.family.lock().waiters);
        waiters.into_iter().for_each(task::wake);
    }

    /// Its address space, for the lifetime of its threads or of a reference to the process.
    pub fn space(&self) -> &'static AddressSpace {
        // SAFETY: freed when the process is dropped. Then no thread of it is left. A CPU that still has the root loaded
        // unloads it first, and keeps the space only while it runs such a thread (`task::run`).
        unsafe { &*self.space }
    }

    /// Whether its threads must end.
    pub fn is_dying(&self) -> bool {
        self.dying.load(Ordering::Acquire)
    }

    /// Ends it, with this status unless it is already ending. Its threads end before they enter user code again.
    pub fn kill(&self, status: i32) {
        if !self.dying.swap(true, Ordering::AcqRel) {
            self.status.store(status, Ordering::Release);
        }
        futex::wake_all_of(self);
        self.wake_waiters();
        // No thread would be left to end them.
        let children = self.family.lock().children.clone();
        children.iter().for_each(|child| child.kill(status));
        task::nudge_all();
    }

    /// Its exit status.
    pub fn status(&self) -> i32 {
        self.status.load(Ordering::Acquire)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // SAFETY: made by `new`, and dropped only here.
        unsafe { Box::from_raw(self.space) }.destroy();
    }
}

/// Status of a program that needs a missing feature of this kernel.
pub const LACKING: i32 = 125;

/// Ends the program whose user code has raised an exception, as Linux does by a signal.
pub fn kill_for(frame: &Frame, address: u64) {
    let signal = frame.signal();
    interrupts::enable();
    serial::report_line(format_args!("ended by signal {signal}: {frame}, address {address:#x}"));
    task::current().process.kill(128 + signal);
    interrupts::disable();
}

/// Ends the running thread. In Linux's order: the word that its joiner waits for is cleared and woken last.
pub fn end_thread() -> ! {
    interrupts::enable();
    {
        let task: Arc<Task> = task::current();
        let word = task.clear_at_end.get();
        // The program may have unmapped it; the error is ignored.
        if word != 0 && user::write(word, &[0; 4]).is_ok() {
            let _woken = futex::wake(&task.process, word, 1);
        }
        if task.process.threads.fetch_sub(1, Ordering::AcqRel) == 1 {
            task.process.files.lock().close_all();
            if let Some(parent) = task.process.parent.upgrade() {
                parent.wake_waiters();
            }
        }
    }
    task::end()
}
