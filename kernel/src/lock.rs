//! Spin locks that yield the emulator's turn. The lock whose waiters sleep is in `sleeping.rs`.
//!
//! Whoever holds one waits for nobody: for no flush, no sleeping lock, no other CPU (C5). No handler takes one that can
//! come while one is held: neither the shootdown handler nor another interrupt's. So they may be taken with interrupts
//! on or off: who spins with interrupts off keeps others waiting for as long as the holder works, and no longer.

/// Yields while a lock is taken.
pub struct Relax;

impl spin::RelaxStrategy for Relax {
    #[inline]
    fn relax() {
        crate::time::relax();
    }
}

/// A lock.
pub type Mutex<T> = spin::mutex::SpinMutex<T, Relax>;
