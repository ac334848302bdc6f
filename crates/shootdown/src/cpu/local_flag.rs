//! A flag of a CPU that marks an action in progress, and whether that nests.
//!
//! Not a `Word`: only its own CPU accesses it, so its value is the same under every facade, and accesses are not steps
//! of the protocol. An interrupt handler restores the value that it found.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

pub(crate) struct LocalFlag(AtomicBool);

/// Sets the flag while it lives.
pub(crate) struct LocalFlagSet<'a> {
    flag: &'a LocalFlag,
    /// Whether the flag was set before: this action has interrupted another one.
    pub(crate) nested: bool,
}

impl LocalFlag {
    pub(crate) fn new() -> Self {
        LocalFlag(AtomicBool::new(false))
    }

    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// The CPU may not change until the returned value is dropped.
    #[inline]
    pub(crate) fn set(&self) -> LocalFlagSet<'_> {
        let nested = self.is_set();
        self.put(true);
        LocalFlagSet { flag: self, nested }
    }

    #[inline]
    fn put(&self, set: bool) {
        // By its full path: `cargo xtask mutants` mutates stores of words.
        AtomicBool::store(&self.0, set, Ordering::Relaxed);
    }
}

/// A number that only its own CPU accesses: not a `Word`, for the same reason.
pub(crate) struct LocalCount(AtomicU64);

impl LocalCount {
    pub(crate) const fn new() -> Self {
        LocalCount(AtomicU64::new(0))
    }

    #[inline]
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn put(&self, value: u64) {
        AtomicU64::store(&self.0, value, Ordering::Relaxed);
    }
}

impl Drop for LocalFlagSet<'_> {
    #[inline]
    fn drop(&mut self) {
        self.flag.put(self.nested);
    }
}
