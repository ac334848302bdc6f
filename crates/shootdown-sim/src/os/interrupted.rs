//! What shootdown interrupts hit, and the time that they took from it.
//!
//! Owns the sums of one run. Knows nothing of what was asked: whether the interrupted space was concerned is told.

use super::category::Category;
use std::cell::Cell;

/// Who was interrupted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hit {
    /// A CPU that ran the space concerned.
    Concerned,
    /// One that ran another space, or kernel code while the space was only lazily loaded, or had left: a bystander, who
    /// gains nothing from the interrupt.
    Bystander,
    /// One that waited for its own request: the time was lost already.
    Waiter,
    /// One that had nothing to do.
    Idle,
}

impl Hit {
    /// All, in order.
    pub const ALL: [Hit; 4] = [Hit::Concerned, Hit::Bystander, Hit::Waiter, Hit::Idle];

    /// What a CPU that was busy with `category` is hit as; `concerned` when it had to invalidate, or had just done so.
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

/// Interrupts by what they hit: how many, and how long they took together.
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

    /// Forgets all.
    pub(super) fn reset(&self) {
        self.0.iter().for_each(|sum| sum.set((0, 0)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interrupt_counts_once_and_to_whom_it_hit() {
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
