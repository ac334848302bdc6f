//! A flag of a CPU that says what is under way there, and whether that is on top of the same.
//!
//! No word of the facade: nobody but its own CPU looks at it, and finds it as it left it in every world; so it is no
//! step of the protocol. Whoever comes in by an interrupt puts back what it found.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

pub(crate) struct LocalFlag(AtomicBool);

/// While it lives the mark is set.
pub(crate) struct LocalFlagSet<'a> {
    flag: &'a LocalFlag,
    /// Whether it was set before: what was under way has been interrupted, and this is on top of it.
    pub(crate) nested: bool,
}

impl LocalFlag {
    pub(crate) fn new() -> Self {
        LocalFlag(AtomicBool::new(false))
    }

    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// On its CPU, which does not change until what is returned is dropped.
    #[inline]
    pub(crate) fn set(&self) -> LocalFlagSet<'_> {
        let nested = self.is_set();
        self.put(true);
        LocalFlagSet { flag: self, nested }
    }

    #[inline]
    fn put(&self, set: bool) {
        // By its path: `cargo xtask mutants` knows stores of words.
        AtomicBool::store(&self.0, set, Ordering::Relaxed);
    }
}

/// A number that only its own CPU accesses: no `Word`, for the reason given above.
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
