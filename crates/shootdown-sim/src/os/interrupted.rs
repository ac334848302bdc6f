//! The activities that shootdowns interrupt, and the time lost.
//!
//! Owns the sums of one run. The caller says whether the interrupted space was concerned.

use super::category::Category;
use std::cell::Cell;

/// The activity that was interrupted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hit {
    /// A CPU that ran the space concerned.
    Concerned,
    /// A bystander: a CPU that ran another space, or kernel code with the space loaded in lazy TLB mode, or that had
    /// left. It gains nothing from the interrupt.
    Bystander,
    /// A CPU that waited for its own request: the time was already lost.
    Waiter,
    /// An idle CPU.
    Idle,
}

impl Hit {
    /// All, in order.
    pub const ALL: [Hit; 4] = [Hit::Concerned, Hit::Bystander, Hit::Waiter, Hit::Idle];

    /// Classifies a CPU whose time counted to `category`; `concerned` if it had to invalidate, or had just done so.
    pub(super) fn of(category: u8, concerned: bool) -> Hit {
        if category == Category::Idle as u8 {
            Hit::Idle
        } else if category == Category::FlushRequester as u8 {
            Hit::Waiter
        } else if concerned {
            Hit::Concerned
        } else {
            Hit::Bystander
        }
    }
}

/// Interrupts by activity: their number, and their total time.
#[derive(Debug, Default)]
pub struct Interrupted([Cell<(u64, u64)>; Hit::ALL.len()]);

impl Interrupted {
    /// Adds one that took `cycles`.
    pub(super) fn add(&self, hit: Hit, cycles: u64) {
        let sum = &self.0[hit as usize];
        let (count, all) = sum.get();
        sum.set((count + 1, all + cycles));
    }

    /// How many, and how many cycles.
    pub fn of(&self, hit: Hit) -> (u64, u64) {
        self.0[hit as usize].get()
    }

    /// Resets all sums.
    pub(super) fn reset(&self) {
        self.0.iter().for_each(|sum| sum.set((0, 0)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interrupt_counts_once_by_what_it_interrupted() {
        let interrupted = Interrupted::default();
        for (category, concerned, expected) in [
            (Category::User, true, Hit::Concerned),
            (Category::Kernel, false, Hit::Bystander),
            (Category::FlushRequester, true, Hit::Waiter),
            (Category::Idle, true, Hit::Idle),
        ] {
            let hit = Hit::of(category as u8, concerned);
            assert_eq!(hit, expected);
            interrupted.add(hit, 7);
        }
        for hit in Hit::ALL {
            assert_eq!(interrupted.of(hit), (1, 7));
        }
        interrupted.reset();
        assert_eq!(interrupted.of(Hit::Idle), (0, 0));
    }
}
