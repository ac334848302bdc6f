//! One CPU's requests: which lines belong to the same one, and whether it frees table pages.

use crate::{Call, Reason};

/// Bytes that one lowest-level table maps.
const TABLE_SPAN: u64 = 2 << 20;

/// What the thread that a CPU runs is at.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Caller {
    /// The request that was sent and whose local part has not been seen: task and pages.
    sent: Option<(u32, i64)>,
    /// The last memory system call, until the thread asks for a flush of everything or another thread comes.
    call: Option<(u32, Call, u64, u64)>,
}

impl Caller {
    /// The thread has entered a memory system call.
    pub fn calls(&mut self, task: u32, call: Call, address: u64, length: u64) {
        self.call = Some((task, call, address, length));
    }

    /// Whether a line is the local part of the request that was sent before: the kernel notes first that it tells
    /// others, then what it does itself, which may be everything (it was behind) or nothing (others' requests had
    /// brought it up to date).
    pub fn is_own_part(&mut self, task: u32, pages: i64, reason: Reason) -> bool {
        let sent = self.sent.take();
        if reason == Reason::Sent {
            self.sent = Some((task, pages));
            return false;
        }
        sent.is_some_and(|(who, asked)| who == task && (pages == asked || pages <= 0))
    }

    /// Whether the request of so many pages frees table pages, and its address where the recording has it.
    ///
    /// The kernel does not note it. A request for few pages is taken not to. One for everything does, unless a system
    /// call says otherwise: besides those of many pages, it is what forks, new programs and the end of a process ask
    /// for. Where calls are recorded (`calls`), dropping or unmapping a range frees tables if it spans all that one of
    /// them maps.
    pub fn frees_tables(&mut self, task: u32, pages: i64, calls: bool) -> (bool, Option<u64>) {
        let call = self.call.filter(|(who, ..)| calls && *who == task);
        let Some((_, call, address, length)) = call else {
            return (pages < 0, None);
        };
        let first = address.next_multiple_of(TABLE_SPAN);
        let spans = first.saturating_add(TABLE_SPAN) <= address.saturating_add(length);
        let tables = pages < 0
            && match call {
                Call::Madvise | Call::Munmap => spans,
                Call::Mprotect => false,
                Call::Mremap => true,
            };
        (tables, Some(address))
    }
}
