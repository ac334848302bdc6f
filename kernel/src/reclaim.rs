//! Table pages that were unlinked: flushed, and freed when no lockless walk can hold a link to them.

use crate::engine;
use crate::facade::Bare;
use crate::frames::{self, FrameList};
use crate::hooks::WORDS;
use crate::lock::Mutex;
use alloc::collections::VecDeque;
use shootdown::{Grace, Range, Retired, Space};

/// Most pages that wait. A CPU that sleeps, or runs a kernel workload, has no ticks, so a grace period may last for
/// that time.
const MOST: u32 = 256;

/// Pages that wait for a grace period, oldest first.
static WAITING: Mutex<VecDeque<(Grace, FrameList)>> = Mutex::new(VecDeque::new());

/// Flushes `range` of `space`, in which `tables` were unlinked, and frees them, at once or after a grace period. On
/// return C1 and C2 hold for the pages of the range.
pub fn flush_and_free(space: &Space<Bare, WORDS>, range: Range, tables: FrameList) {
    let waiting: u32 = WAITING.lock().iter().map(|(_, tables)| tables.len()).sum();
    let retired = if waiting < MOST {
        engine().flush_tables_later(space, range)
    } else {
        // Every CPU is interrupted, and so seen outside a walk: the grace periods are over too.
        Retired::Now(engine().flush_tables(space, range))
    };
    match retired {
        Retired::Now(_proof) => frames::free_all(tables),
        Retired::Later(grace) => WAITING.lock().push_back((grace, tables)),
    }
    reap();
}

/// Frees pending tables when no CPU can walk: all are offline.
pub fn free_all_that_waits() {
    let waiting = core::mem::take(&mut *WAITING.lock());
    waiting.into_iter().for_each(|(_, tables)| frames::free_all(tables));
}

/// Frees the tables whose grace period is over.
pub fn reap() {
    let over = engine().graces_over();
    while let Some(tables) = {
        let mut waiting = WAITING.lock();
        let is_over = waiting.front().is_some_and(|(grace, _)| over.proof(*grace).is_some());
        is_over.then(|| waiting.pop_front()).flatten()
    } {
        frames::free_all(tables.1);
    }
}
