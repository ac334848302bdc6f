//! Which CPUs may be switched off: never all, because each is started by another.

use crate::arch::boot::CAN_STOP;
use crate::{smp, time};
use core::sync::atomic::{AtomicU64, Ordering};

/// One CPU that runs, and one that is off, in the word.
const RUNS: u64 = 1;
const IS_OFF: u64 = 1 << 32;

/// The numbers of CPUs that take steps, and of those that are off or about to be.
pub struct Power {
    word: AtomicU64,
}

impl Power {
    /// All run.
    pub fn new(threads: usize) -> Power {
        Power {
            word: AtomicU64::new(threads as u64),
        }
    }

    /// Whether this CPU may be switched off now. From then on it counts as off.
    pub fn may_stop(&self) -> bool {
        let stop = |word: u64| (word as u32 > 1).then(|| word - RUNS + IS_OFF);
        CAN_STOP
            && self
                .word
                .fetch_update(Ordering::AcqRel, Ordering::Acquire, stop)
                .is_ok()
    }

    /// This CPU runs again.
    pub fn started(&self) {
        self.word.fetch_add(RUNS.wrapping_sub(IS_OFF), Ordering::AcqRel);
    }

    /// This CPU has taken its steps. The last that runs starts one that is off, which does the same.
    pub fn finish(&self) {
        let mut word = self.word.fetch_sub(RUNS, Ordering::AcqRel) - RUNS;
        while word as u32 == 0 && word >= IS_OFF {
            smp::start_one();
            time::relax();
            word = self.word.load(Ordering::Acquire);
        }
    }
}
