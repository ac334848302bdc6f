//! For unit tests: words between whose operations somebody else can do something, at a moment that the test chooses.

use crate::facade::{Facade, Word};
use core::cell::{Cell, RefCell};
use core::sync::atomic::{AtomicU64, Ordering};

/// Operations until then, and what is done.
type Due = (u32, Box<dyn FnOnce()>);

std::thread_local! {
    static NEXT: RefCell<Option<Due>> = const { RefCell::new(None) };
    static MEDDLING: Cell<bool> = const { Cell::new(false) };
}

/// Does `what` after `operations` more operations, just before the next; once.
pub(crate) fn after(operations: u32, what: impl FnOnce() + 'static) {
    NEXT.set(Some((operations, Box::new(what))));
}

/// Does nothing of what was to be done and was not.
pub(crate) fn never() {
    NEXT.set(None);
}

fn operation() {
    if MEDDLING.get() {
        return;
    }
    let due = NEXT.with_borrow_mut(|next| match next {
        Some((0, _)) => next.take(),
        Some((left, _)) => {
            *left -= 1;
            None
        }
        None => None,
    });
    if let Some((_, what)) = due {
        MEDDLING.set(true);
        what();
        MEDDLING.set(false);
    }
}

/// The host's own words, meddled with.
pub(crate) struct Meddled(AtomicU64);

impl Word for Meddled {
    fn new(value: u64) -> Self {
        Meddled(AtomicU64::new(value))
    }
    fn load(&self, order: Ordering) -> u64 {
        operation();
        self.0.load(order)
    }
    fn store(&self, value: u64, order: Ordering) {
        operation();
        self.0.store(value, order);
    }
    fn fetch_add_full(&self, value: u64) -> u64 {
        operation();
        self.0.fetch_add_full(value)
    }
    fn fetch_or_full(&self, bits: u64) -> u64 {
        operation();
        self.0.fetch_or_full(bits)
    }
    fn fetch_and_full(&self, bits: u64) -> u64 {
        operation();
        self.0.fetch_and_full(bits)
    }
    fn swap_full(&self, value: u64) -> u64 {
        operation();
        self.0.swap_full(value)
    }
    fn compare_exchange_full(&self, current: u64, new: u64) -> Result<u64, u64> {
        operation();
        self.0.compare_exchange_full(current, new)
    }
}

/// The world of those words.
pub(crate) struct Meddling;

impl Facade for Meddling {
    type U64 = Meddled;
    fn full_barrier() {}
    fn publish_tables() {}
    fn before_ipi() {}
    fn before_root_load() {}
    fn wait_until(mut condition: impl FnMut() -> bool) {
        while !condition() {}
    }
}
