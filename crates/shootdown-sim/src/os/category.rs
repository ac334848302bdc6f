//! Categories of a CPU's time, for the accounts.

use crate::machine;

/// A category of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Category {
    /// User code and everything not named below.
    User = 0,
    /// Page faults and system calls, except what is named below.
    Kernel = 1,
    /// Waiting awake for the address-space lock, and waking other threads.
    LockWait = 2,
    /// Waiting for, and holding, the LRU lock.
    Lru = 3,
    /// Invalidation: the requester's side, waiting included.
    FlushRequester = 4,
    /// Invalidation: the interrupted side.
    FlushTarget = 5,
    /// Catching up at a switch or at the end of lazy TLB mode.
    Switch = 6,
    /// Asleep: waiting for the address-space lock, or idle.
    Idle = 7,
    /// Waiting for a CPU of the host.
    Stolen = 8,
}

impl Category {
    /// All, with their names in reports, in order.
    pub const NAMES: [&'static str; 9] = [
        "user",
        "faults and system calls",
        "address-space lock",
        "LRU lock",
        "invalidation, requester",
        "invalidation, interrupted",
        "switches",
        "idle",
        "taken by the host",
    ];
}

/// Counts this CPU's time to `category` from here on; [`leave`] with the returned value ends that.
#[inline]
pub fn enter(category: Category) -> u8 {
    machine::set_category(category as u8)
}

/// Returns to the previous category.
#[inline]
pub fn leave(outer: u8) {
    machine::set_category(outer);
}
