//! What a word needs to know of the execution that it is in: which CPU runs, where the machine has its words, and how a
//! CPU that waits takes what was broadcast to it.

use shootdown::CpuId;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Mutex;

loom::thread_local! {
    pub(crate) static HERE: Cell<CpuId> = Cell::new(usize::MAX);
}

std::thread_local! {
    /// The mail boxes of the machine of this execution, for waits, which know no machine.
    pub(crate) static MAIL: Cell<Option<fn(CpuId)>> = const { Cell::new(None) };
    /// Where this execution's machine has words, while its CPUs run.
    pub(crate) static REGIONS: RefCell<Vec<Range<usize>>> = const { RefCell::new(Vec::new()) };
}

/// Carries out a broadcast that waits for this thread's CPU.
pub(crate) fn take_mail_here() {
    if let Some(take) = MAIL.get() {
        take(HERE.with(Cell::get));
    }
}

/// Words that CPUs have used: region and offset; with true, words that waits repeat a read-modify-write on.
pub(crate) static LEARNED: Mutex<BTreeSet<(usize, usize, bool)>> = Mutex::new(BTreeSet::new());

/// How many are known.
pub(crate) fn known_words() -> usize {
    LEARNED.lock().map_or(0, |words| words.len())
}

/// A word at `address` is made now, or `spun` on. If it is a machine's, the next execution knows before its CPUs run.
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
