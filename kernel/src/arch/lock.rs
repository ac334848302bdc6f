//! Spin locks that yield the emulator's turn. The lock whose waiters sleep is in `sleeping.rs`.
//!
//! Nobody may wait for another CPU while holding one of these with interrupts off, nor take one in the shootdown handler
//! (C5). Whoever spins for one has interrupts on, except for the page allocator's, under which nobody waits.

/// Yields while a lock is taken.
pub struct Relax;

impl spin::RelaxStrategy for Relax {
    #[inline]
    fn relax() {
        super::relax();
    }
}

/// A lock.
pub type Mutex<T> = spin::mutex::SpinMutex<T, Relax>;
