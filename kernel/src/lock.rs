//! Spin locks that yield the emulator's turn. `sleeping.rs` has the lock whose waiters sleep.
//!
//! While a CPU holds one, it does not flush, take a sleeping lock or wait for another CPU (C5). No interrupt handler
//! takes a lock that the interrupted code may hold. So these locks may be taken with interrupts on or off. A CPU that
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
