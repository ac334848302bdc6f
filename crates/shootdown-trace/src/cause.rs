//! Which memory system call of a thread requested a flush.
//!
//! The recording has the entries of calls, not their exits, so the cause is inferred: see [`Callers::cause`].

use crate::Call;
use std::collections::HashMap;
use std::fmt;

/// Why a flush was requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// A memory system call, with the advice of `madvise`; 0 for others.
    Call(Call, u64),
    /// No recorded call: page faults, fork, exec, exit, reclaim.
    Other,
}

/// Values of `behavior` of madvise that withdraw translations (Linux: `include/uapi/asm-generic/mman-common.h`).
const ADVICE: [(u64, &str); 8] = [
    (4, "MADV_DONTNEED"),
    (8, "MADV_FREE"),
    (9, "MADV_REMOVE"),
    (14, "MADV_HUGEPAGE"),
    (20, "MADV_COLD"),
    (21, "MADV_PAGEOUT"),
    (24, "MADV_DONTNEED_LOCKED"),
    (25, "MADV_COLLAPSE"),
];

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Cause::Call(call, advice) = *self else {
            return f.write_str("no recorded call");
        };
        match ADVICE.iter().find(|(known, _)| *known == advice) {
            Some((_, name)) if call == Call::Madvise => write!(f, "madvise, {name}"),
            None if call == Call::Madvise => write!(f, "madvise, advice {advice}"),
            _ => f.write_str(call.name()),
        }
    }
}

/// Time from the entry of a call within which its flushes begin, ns. Assumed; in a recording of a Rust build all but
/// one of 116 began within 0.1 ms.
const CALL_NS: u64 = 1_000_000;

/// The same for each page of its range, ns. Assumed; an munmap of 15,243 pages took 51 ns a page in that recording.
const PAGE_NS: u64 = 200;

/// Bytes of a page.
const PAGE: u64 = 4096;

/// The last memory system call of each thread. Memory: an entry for each live thread that has made one.
#[derive(Debug, Default)]
pub(crate) struct Callers(HashMap<u32, Entered>);

#[derive(Debug)]
struct Entered {
    time_ns: u64,
    cause: Cause,
    pages: u64,
    /// Whether a flush has been attributed to it.
    has_flushed: bool,
}

impl Callers {
    /// `task` enters a call for `length` bytes.
    pub fn enters(&mut self, task: u32, time_ns: u64, call: Call, length: u64, argument: u64) {
        let advice = if call == Call::Madvise { argument } else { 0 };
        let entered = Entered {
            time_ns,
            cause: Cause::Call(call, advice),
            pages: length.div_ceil(PAGE),
            has_flushed: false,
        };
        self.0.insert(task, entered);
    }

    /// Why `task` requests a flush of that many pages, -1 for all of them.
    ///
    /// Its last call, if that began a short time ago and covers as many pages. A second flush of only one page is not
    /// attributed to the call: a call flushes its pages together, while page faults withdraw single pages.
    pub fn cause(&mut self, task: u32, time_ns: u64, pages: i64) -> Cause {
        let Some(entered) = self.0.get_mut(&task) else {
            return Cause::Other;
        };
        let limit = CALL_NS.saturating_add(entered.pages.saturating_mul(PAGE_NS));
        let is_recent = time_ns.saturating_sub(entered.time_ns) <= limit;
        let fits = u64::try_from(pages).is_ok_and(|pages| pages <= entered.pages) || pages < 0;
        if !is_recent || !fits || (entered.has_flushed && pages == 1) {
            return Cause::Other;
        }
        entered.has_flushed = true;
        entered.cause
    }

    /// `task` has ended: its number may be reused.
    pub fn ends(&mut self, task: u32) {
        self.0.remove(&task);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DONTNEED: Cause = Cause::Call(Call::Madvise, 4);

    #[test]
    fn call_causes_flushes_within_its_range_and_time() {
        let mut callers = Callers::default();
        assert_eq!(callers.cause(7, 0, 1), Cause::Other);
        callers.enters(7, 1_000, Call::Madvise, 8 * PAGE, 4);
        assert_eq!(callers.cause(7, 2_000, 9), Cause::Other, "more pages than the call has");
        assert_eq!(callers.cause(8, 2_000, 8), Cause::Other, "another thread");
        assert_eq!(callers.cause(7, 2_000, 8), DONTNEED);
        assert_eq!(callers.cause(7, 3_000, 1), Cause::Other, "a page fault after the call");
        assert_eq!(callers.cause(7, 4_000, -1), DONTNEED, "the rest of a long call");
        callers.enters(7, 10_000, Call::Mprotect, PAGE, 0);
        assert_eq!(callers.cause(7, 15_000_000, 1), Cause::Other, "long after the call");
        callers.enters(7, 20_000_000, Call::Munmap, 100_000 * PAGE, 0);
        assert_eq!(callers.cause(7, 35_000_000, -1), Cause::Call(Call::Munmap, 0));
        callers.ends(7);
        assert_eq!(callers.cause(7, 35_000_001, -1), Cause::Other);
    }

    #[test]
    fn causes_are_named_as_in_the_manual() {
        assert_eq!(DONTNEED.to_string(), "madvise, MADV_DONTNEED");
        assert_eq!(Cause::Call(Call::Madvise, 77).to_string(), "madvise, advice 77");
        assert_eq!(Cause::Call(Call::Mprotect, 4).to_string(), "mprotect");
        assert_eq!(Cause::Other.to_string(), "no recorded call");
    }
}
