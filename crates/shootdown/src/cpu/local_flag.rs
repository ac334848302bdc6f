//! A flag of a CPU that marks an action in progress, and whether that nests.
//!
//! Not a `Word`: only its own CPU accesses it, so its value is the same under every facade, and accesses are not steps
//! of the protocol. An interrupt handler restores the value that it found.

use core::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// 0 or 1. Not a `bool`: the value that is put back would first be made 0 or 1 again.
pub(crate) struct LocalFlag(AtomicU8);

/// Sets the flag while it lives.
pub(crate) struct LocalFlagSet<'a> {
    flag: &'a LocalFlag,
    was: u8,
}

impl LocalFlagSet<'_> {
    /// Whether the flag was set before: this action has interrupted another one.
    #[inline]
    pub(crate) fn is_nested(&self) -> bool {
        self.was != 0
    }
}

impl LocalFlag {
    pub(crate) fn new() -> Self {
        LocalFlag(AtomicU8::new(0))
    }

    /// Only checks for misuse ask.
    #[cfg(debug_assertions)]
    pub(crate) fn is_set(&self) -> bool {
        self.get() != 0
    }

    #[inline]
    fn get(&self) -> u8 {
        self.0.load(Ordering::Relaxed)
    }

    /// The CPU may not change until the returned value is dropped.
    #[inline]
    pub(crate) fn set(&self) -> LocalFlagSet<'_> {
        let was = self.get();
        self.put(1);
        LocalFlagSet { flag: self, was }
    }

    #[inline]
    fn put(&self, value: u8) {
        // By its full path: `cargo xtask mutants` mutates stores of words.
        AtomicU8::store(&self.0, value, Ordering::Relaxed);
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
        self.flag.put(self.was);
    }
}
