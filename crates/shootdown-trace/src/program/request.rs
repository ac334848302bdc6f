//! One CPU's requests: which lines belong to the same one, and whether it frees page-table pages.

use crate::{Call, Reason};

/// Bytes that one lowest-level table maps.
const TABLE_SPAN: u64 = 2 << 20;

/// The state of a CPU's running thread.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Caller {
    /// The request that was sent and whose local part has not been seen: task and pages.
    sent: Option<(u32, i64)>,
    /// The last memory system call, until the thread requests a flush of everything or another thread is switched in.
    call: Option<(u32, Call, u64, u64)>,
}

impl Caller {
    /// The thread has entered a memory system call.
    pub fn calls(&mut self, task: u32, call: Call, address: u64, length: u64) {
        self.call = Some((task, call, address, length));
    }

    /// Whether a line is the local part of the request that was sent before. The kernel first logs the send, then its
    /// local flush, which may be everything (it was behind) or nothing (requests of others had brought it up to date).
    pub fn is_own_part(&mut self, task: u32, pages: i64, reason: Reason) -> bool {
        let sent = self.sent.take();
        if reason == Reason::Sent {
            self.sent = Some((task, pages));
            return false;
        }
        sent.is_some_and(|(sender, requested)| sender == task && (pages == requested || pages <= 0))
    }

    /// Whether the request of that many pages frees page-table pages, and its address if the recording has it.
    ///
    /// The kernel does not log it. A request for few pages is assumed not to. One for everything is assumed to, unless
    /// a system call says otherwise: forks, new programs and the end of a process request it, as do calls of many
    /// pages. If calls are recorded (`calls`), dropping or unmapping a range frees tables if it spans the whole range
    /// of one.
    pub fn frees_tables(&mut self, task: u32, pages: i64, calls: bool) -> (bool, Option<u64>) {
        let call = self.call.filter(|(sender, ..)| calls && *sender == task);
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
