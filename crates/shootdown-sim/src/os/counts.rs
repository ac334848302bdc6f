//! Counts of engine events in one run.

use shootdown::Answer;

/// Counts of engine events in one run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EngineCounts {
    /// Spaces promoted to a system-wide tag.
    pub promoted: u64,
    /// Promotions that found no tag.
    pub exhausted: u64,
    /// Roll-overs and reclaims of tags.
    pub rolled_over: u64,
    /// Requests, or batches of them, that were broadcast.
    pub broadcast_requests: u64,
    /// Broadcast instructions.
    pub broadcasts: u64,
    /// Flushes that concerned no other CPU.
    pub local_only: u64,
    /// Flushes that concerned other CPUs by interrupt.
    pub interrupting: u64,
    /// Times a CPU caught up page by page.
    pub caught_up_partly: u64,
    /// Times a CPU caught up by flushing a whole tag.
    pub caught_up_whole: u64,
    /// Changes between registered and published walks.
    pub walks_changed: u64,
    /// Reports of CPUs that did not answer in time.
    pub stuck: u64,
    /// Requests that were broadcast under every tag, because that was cheaper than interrupts.
    pub any_tag: u64,
    /// Requests that were timed.
    pub measured: u64,
    /// Times that a cost update moved the threshold between interrupts and broadcast.
    pub threshold_moved: u64,
    /// Spaces that began demotion from their system-wide tag.
    pub demoting: u64,
    /// Spaces that completed it.
    pub demoted: u64,
    /// Unmaps that were deferred.
    pub deferred: u64,
    /// Requests to other CPUs, one per CPU.
    pub queued: u64,
    /// Interrupts for them: a CPU with an unread request needs no further interrupt.
    pub interrupts: u64,
    /// Outcomes of requests at their targets.
    pub answers: Answers,
    /// Loads of the kernel's own root.
    pub roots_kernel: u64,
}

/// Root loads at switches, the kernel's own root not counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Roots {
    /// The tag's translations were kept.
    pub kept: u64,
    /// They were flushed; or the root was loaded already, and the CPU had to catch up.
    pub flushed: u64,
}

/// Outcomes of requests at their targets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Answers {
    /// Translations were invalidated.
    pub flushed: u64,
    /// The CPU had caught up already.
    pub current: u64,
    /// The space was loaded in lazy TLB mode, and was unloaded.
    pub unloaded: u64,
    /// The CPU had left the space.
    pub elsewhere: u64,
}

impl Answers {
    pub(super) fn count(&mut self, answer: Answer) {
        match answer {
            Answer::Flushed => self.flushed += 1,
            Answer::Current => self.current += 1,
            Answer::Unloaded => self.unloaded += 1,
            Answer::Elsewhere => self.elsewhere += 1,
        }
    }
}
