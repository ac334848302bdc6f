//! Spin locks that yield the emulator's turn. `sleeping.rs` has the lock whose waiters sleep.
//!
//! The holder of one waits for nothing: no flush, no sleeping lock, no other CPU (C5). No handler takes a lock that it
//! may interrupt: neither the shootdown handler nor another. So they may be taken with interrupts on or off. A CPU that
//! spins with interrupts off delays others only for the holder's critical section.

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
