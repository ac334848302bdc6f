//! The host's own atomics, and a wait that yields.

use shootdown::{Facade, Native};
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Spins before a wait yields. An answer takes about as long as one block of guest code. With more threads than
/// processors the answer comes only after yielding.
const SPINS: u32 = 64;

thread_local! {
    /// Carries out broadcasts for this thread while it waits.
    pub(crate) static POLLED: RefCell<Option<Arc<dyn Poll>>> = const { RefCell::new(None) };
}

/// A machine, as seen by a waiting thread.
pub(crate) trait Poll {
    fn poll(&self);
}

/// Carries out broadcasts posted to this thread, if it is a CPU.
fn poll_current() {
    POLLED.with_borrow(|polled| {
        if let Some(polled) = polled {
            polled.poll();
        }
    });
}

/// The facade of [`Threads`](crate::Threads): [`Native`], except that a wait yields to other threads, and carries out
/// broadcasts that arrive meanwhile.
#[derive(Debug, Clone, Copy)]
pub struct Host;

// SAFETY: the processor's own atomics; software TLBs are read by their own thread.
unsafe impl Facade for Host {
    type U64 = AtomicU64;

    #[inline]
    fn full_barrier() {
        Native::full_barrier();
    }
    #[inline]
    fn publish_tables() {
        Native::publish_tables();
    }
    /// Nothing: a software walker reads by loads, which the following full barrier orders.
    #[inline]
    fn publish_tables_before_full() {}
    #[inline]
    fn publish_tables_full() {
        Native::publish_tables_full();
    }
    #[inline]
    fn after_ipi() {}
    #[inline]
    fn before_ipi() {
        Native::before_ipi();
    }
    /// Nothing: loading a root writes only this thread's own memory.
    #[inline]
    fn before_root_load() {}
    #[inline(always)]
    fn prefetch(word: &AtomicU64) {
        Native::prefetch(word);
    }
    #[inline(always)]
    fn prefetch_to_write(word: &AtomicU64) {
        Native::prefetch_to_write(word);
    }
    fn wait_until(mut condition: impl FnMut() -> bool) {
        let mut spins = 0;
        while !condition() {
            spins += 1;
            if spins % SPINS == 0 {
                std::thread::yield_now();
            } else {
                std::hint::spin_loop();
            }
            poll_current();
        }
    }
}
