//! Per-execution state: which CPU runs, where the machine has its words, and how a waiting CPU takes broadcasts.

use shootdown::CpuId;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Mutex;

loom::thread_local! {
    pub(crate) static HERE: Cell<CpuId> = Cell::new(usize::MAX);
}

std::thread_local! {
    /// The mailboxes of this execution's machine, for waits, which have no reference to the machine.
    pub(crate) static MAIL: Cell<Option<fn(CpuId)>> = const { Cell::new(None) };
    /// The address ranges of this execution's machine, while its CPUs run.
    pub(crate) static REGIONS: RefCell<Vec<Range<usize>>> = const { RefCell::new(Vec::new()) };
}

/// Carries out a broadcast that is pending at this thread's CPU.
pub(crate) fn take_mail_here() {
    if let Some(take) = MAIL.get() {
        take(HERE.with(Cell::get));
    }
}

/// Words that CPUs have used: region and offset; and whether waits repeat a read-modify-write on them.
pub(crate) static LEARNED: Mutex<BTreeSet<(usize, usize, bool)>> = Mutex::new(BTreeSet::new());

/// How many are known.
pub(crate) fn known_words() -> usize {
    LEARNED.lock().map_or(0, |words| words.len())
}

/// A word at `address` is first used, or `spun` on. If it belongs to a machine, the next execution creates it before
/// its CPUs run.
pub(crate) fn learn(address: usize, spun: bool) {
    REGIONS.with_borrow(|regions| {
        for (number, region) in regions.iter().enumerate() {
            if region.contains(&address)
                && let Ok(mut words) = LEARNED.lock()
            {
                words.insert((number, address - region.start, spun));
            }
        }
    });
}
