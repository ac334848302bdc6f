//! The CPUs and threads that the interrupts of a replay hit, and the threads and system calls that send them.
//!
//! Owns the activity of each CPU, and the counts. Charges nothing.

use shootdown_trace::Cause;
use shootdown_trace::victims::{Interruption, Interruptions};
use std::cell::{Cell, RefCell};

/// One CPU.
#[derive(Debug, Default)]
struct At {
    /// The thread that it runs; 0 when idle, `None` in kernel code.
    thread: Cell<Option<u32>>,
    /// The thread whose request it makes, and the reason.
    sends: Cell<Option<(u32, Cause)>>,
}

/// All of them.
#[derive(Debug)]
pub(super) struct Victims {
    cpus: Vec<At>,
    counts: RefCell<Interruptions>,
}

impl Victims {
    pub fn new(cpus: usize) -> Self {
        let idle = || At {
            thread: Cell::new(Some(0)),
            sends: Cell::default(),
        };
        Victims {
            cpus: (0..cpus).map(|_| idle()).collect(),
            counts: RefCell::default(),
        }
    }

    /// `cpu` runs that thread from here on.
    pub fn runs(&self, cpu: usize, thread: Option<u32>) {
        self.cpus[cpu].thread.set(thread);
    }

    /// Does `flush`, which `cpu` makes for the thread that it runs.
    pub fn flushes(&self, cpu: usize, cause: Cause, flush: impl FnOnce()) {
        let at = &self.cpus[cpu];
        at.sends.set(Some((at.thread.get().unwrap_or(0), cause)));
        flush();
        at.sends.set(None);
    }

    /// `cpu` sends an interrupt to `target`. One that is not for a request of the program (its touching of pages, the
    /// end of a space) has no recorded call.
    pub fn sends(&self, cpu: usize, target: usize) {
        let at = &self.cpus[cpu];
        let (sender, cause) = at.sends.get().unwrap_or((at.thread.get().unwrap_or(0), Cause::Other));
        let kind = Interruption {
            cpu: target as u32,
            thread: self.cpus[target].thread.get(),
            sender,
            cause,
        };
        self.counts.borrow_mut().add(kind, false);
    }

    /// The counts.
    pub fn take(&self) -> Interruptions {
        self.counts.take()
    }
}
