//! Memory that CPUs use until it is withdrawn, and which CPUs must know of the withdrawal.

use crate::clocks;
use crate::world::{CPUS, here, write_tables};
use std::cell::RefCell;

/// Memory that is used and finally freed: a frame with its entry, or a table.
#[derive(Default)]
pub struct Memory {
    used: RefCell<[u64; CPUS]>,
}

impl Memory {
    /// This CPU uses it.
    pub fn touch(&self) {
        self.used.borrow_mut()[here()] = clocks::tick();
    }

    /// Whether that CPU has used it.
    pub fn is_used_by(&self, cpu: usize) -> bool {
        self.used.borrow()[cpu] != 0
    }

    /// Frees it on this CPU: every use must have happened before.
    pub fn free(&self) {
        for (cpu, &time) in self.used.borrow().iter().enumerate() {
            assert!(
                clocks::knows(cpu, time),
                "freed by CPU {}, which does not know that CPU {cpu} is through",
                here()
            );
        }
    }
}

/// A page-table entry that was withdrawn.
pub struct Withdrawn {
    by: usize,
    time: u64,
}

impl Withdrawn {
    /// This CPU withdraws it.
    pub fn now() -> Self {
        write_tables();
        Withdrawn {
            by: here(),
            time: clocks::tick(),
        }
    }

    /// Nothing that any CPU has to see.
    pub fn nothing() -> Self {
        Withdrawn { by: 0, time: 0 }
    }

    /// This CPU may fill from the tables: after the flush it must find what was written.
    pub fn is_seen(&self) {
        assert!(
            clocks::is_found(self.by, self.time),
            "CPU {} may fill from what CPU {} has withdrawn",
            here(),
            self.by
        );
    }
}
