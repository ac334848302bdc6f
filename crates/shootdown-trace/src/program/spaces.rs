//! The space of each thread.
//!
//! A process is a space, with two exceptions. `exec` gives it a new one. `vfork`, by which compilers and shells start
//! other programs, lets the child run in its parent's space until its own `exec`, with the parent asleep (state `D`).
//! So a process that is first seen while a thread sleeps in that state is taken to be its child. It gets a space of its
//! own when it requests a flush, or when the parent runs again.

use std::collections::{HashMap, HashSet};

#[derive(Debug, Default)]
pub(super) struct Spaces {
    processes: HashMap<u32, Process>,
    /// The process of each live thread.
    threads: HashMap<u32, u32>,
    /// Threads that sleep in state `D`, in the order in which they slept.
    waiting: Vec<u32>,
    /// The process that borrows the space of a thread, by the thread.
    lent: HashMap<u32, u32>,
    made: u32,
    /// Flushes that were requested.
    pub requests: u64,
    /// Of spaces that the recording does not name.
    pub foreign: u64,
}

#[derive(Debug)]
struct Process {
    space: u32,
    threads: HashSet<u32>,
    /// The thread whose space it borrows.
    borrowed_from: Option<u32>,
}

impl Spaces {
    /// The space of `task` of `process`; both are created if missing.
    pub fn of(&mut self, task: u32, process: u32) -> u32 {
        if let Some(entry) = self.processes.get_mut(&process) {
            if entry.threads.insert(task) {
                self.threads.insert(task, process);
            }
            return entry.space;
        }
        let parent = self.waiting.pop().filter(|&parent| parent != task);
        let lent = parent.and_then(|parent| self.processes.get(self.threads.get(&parent)?).map(|of| of.space));
        let space = lent.unwrap_or_else(|| self.make());
        if let Some(parent) = parent.filter(|_| lent.is_some()) {
            self.lent.insert(parent, process);
        }
        self.threads.insert(task, process);
        self.processes.insert(
            process,
            Process {
                space,
                threads: HashSet::from([task]),
                borrowed_from: parent.filter(|_| lent.is_some()),
            },
        );
        space
    }

    fn make(&mut self) -> u32 {
        self.made += 1;
        self.made
    }

    /// Spaces so far.
    pub fn made(&self) -> u64 {
        u64::from(self.made)
    }

    /// A thread leaves its CPU in that state.
    pub fn leaves(&mut self, task: u32, state: u8) {
        if state == b'D' {
            self.waiting.push(task);
        }
    }

    /// A thread is switched in: a process that borrowed its space has one of its own by now. Returns that process.
    pub fn comes(&mut self, task: u32) -> Option<u32> {
        self.waiting.retain(|&waiting| waiting != task);
        let borrower = *self.lent.get(&task)?;
        self.give_own(borrower);
        Some(borrower)
    }

    fn give_own(&mut self, process: u32) {
        let space = self.make();
        if let Some(entry) = self.processes.get_mut(&process) {
            entry.space = space;
            if let Some(parent) = entry.borrowed_from.take() {
                self.lent.remove(&parent);
            }
        }
    }

    /// A thread requests a flush: it no longer borrows its space.
    pub fn settles(&mut self, task: u32) {
        let Some(&process) = self.threads.get(&task) else {
            return;
        };
        if self
            .processes
            .get(&process)
            .is_some_and(|entry| entry.borrowed_from.is_some())
        {
            self.give_own(process);
        }
    }

    /// A new program is loaded. Returns the space that ends, if that was the process's own.
    pub fn executes(&mut self, task: u32) -> Option<u32> {
        let process = *self.threads.get(&task)?;
        let entry = self.processes.get(&process)?;
        let old = (entry.borrowed_from.is_none()).then_some(entry.space);
        self.give_own(process);
        old
    }

    /// A thread has ended. Returns the space that ends with it.
    pub fn ends(&mut self, task: u32) -> Option<u32> {
        let process = self.threads.remove(&task)?;
        let entry = self.processes.get_mut(&process)?;
        entry.threads.remove(&task);
        if !entry.threads.is_empty() {
            return None;
        }
        let entry = self.processes.remove(&process)?;
        if let Some(parent) = entry.borrowed_from {
            self.lent.remove(&parent);
            return None;
        }
        Some(entry.space)
    }
}
