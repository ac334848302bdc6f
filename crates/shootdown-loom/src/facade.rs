//! The facade over loom, and its weakened forms.

use crate::execution::{learn, take_mail_here};
use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU64, fence};
use shootdown::{Facade, Word};
use std::cell::{Cell, OnceCell, RefCell};
use std::ops::Range;
use std::sync::atomic::Ordering::{self, AcqRel, Acquire, Relaxed, Release, SeqCst};

/// Weakens nothing.
pub const NOTHING: u8 = 0;
/// [`Facade::full_barrier`] does nothing.
pub const FENCES: u8 = 1;
/// Read-modify-write operations named `*_full` acquire and release, but are not fences.
pub const RMW_FENCES: u8 = 2;
/// Release stores are relaxed.
pub const RELEASE: u8 = 4;
/// Acquire loads are relaxed.
pub const ACQUIRE: u8 = 8;

/// A word of loom's. A machine has a thousand words, of which a model uses fifty, and loom's fences scan all words. So
/// those of a machine are created at their first use, or earlier if an earlier execution has used them
/// (`execution.rs`).
/// that there is.
#[repr(C)]
pub struct LoomWord<const WEAK: u8> {
    first: Cell<u64>,
    /// Waits repeat a read-modify-write on it. loom orders those among themselves, but lets one read forever what a
    /// plain store has replaced. So a store to such a word is a read-modify-write too, which orders no more.
    spun: Cell<bool>,
    word: OnceCell<AtomicU64>,
}

loom::thread_local! {
    /// Whether this CPU evaluates a wait condition.
    static WAITING: Cell<bool> = Cell::new(false);
}

/// An action in the middle of another.
type Comes = Box<dyn FnOnce()>;

std::thread_local! {
    /// Memory that will be freed, and its uses.
    static WATCHED: RefCell<Option<(Range<usize>, UnsafeCell<()>)>> = const { RefCell::new(None) };
}

loom::thread_local! {
    /// The action before this CPU's next full barrier.
    static AT_BARRIER: RefCell<Option<Comes>> = RefCell::new(None);
}

/// Watches the uses of the words in this range, and of no others.
pub(crate) fn watch(addresses: Option<Range<usize>>) {
    WATCHED.set(addresses.map(|addresses| (addresses, UnsafeCell::new(()))));
}

/// Frees what is watched: every use of it must be ordered before this.
pub(crate) fn give_back() {
    WATCHED.with_borrow(|watched| watched.as_ref().map(|(_, cell)| cell.with_mut(|_| ())));
}

/// Runs `what` on this CPU just before its next full barrier, where the barrier has had no effect yet.
pub(crate) fn at_barrier(what: impl FnOnce() + 'static) {
    AT_BARRIER.with(|at| at.replace(Some(Box::new(what))));
}

std::thread_local! {
    static BUILDING: Cell<bool> = const { Cell::new(false) };
}

/// This thread builds a machine, outside of loom and before any CPU runs: its operations are plain ones from here on.
pub(crate) fn building() {
    BUILDING.set(true);
}

// SAFETY: all threads of a loom execution are coroutines of one thread of the host, and nothing here yields in between.
unsafe impl<const WEAK: u8> Sync for LoomWord<WEAK> {}
// SAFETY: as above.
unsafe impl<const WEAK: u8> Send for LoomWord<WEAK> {}

impl<const WEAK: u8> LoomWord<WEAK> {
    pub(crate) fn word(&self) -> &AtomicU64 {
        let address = std::ptr::from_ref(self).addr();
        WATCHED.with_borrow(|watched| {
            if let Some((_, cell)) = watched.as_ref().filter(|(addresses, _)| addresses.contains(&address)) {
                cell.with(|_| ());
            }
        });
        self.word.get_or_init(|| {
            learn(address, false);
            AtomicU64::new(self.first.get())
        })
    }

    /// Whether waits are known to repeat a read-modify-write on it.
    pub(crate) fn is_spun(&self) {
        self.spun.set(true);
    }

    /// loom treats `SeqCst` accesses as weaker than they are; its fences are right.
    fn full<T>(&self, rmw: impl FnOnce(&AtomicU64) -> T) -> T {
        debug_assert!(!BUILDING.get(), "only words that are counted up are modified so early");
        if WAITING.with(Cell::get) && !self.spun.replace(true) {
            learn(std::ptr::from_ref(self).addr(), true);
        }
        let fenced = WEAK & RMW_FENCES == 0;
        if fenced {
            fence(SeqCst);
        }
        let old = rmw(self.word());
        if fenced {
            fence(SeqCst);
        }
        old
    }
}

// SAFETY: loom's atomics, each `*_full` between two fences. Models must detect what they weaken deliberately.
unsafe impl<const WEAK: u8> Word for LoomWord<WEAK> {
    fn new(value: u64) -> Self {
        let word = LoomWord {
            first: Cell::new(value),
            spun: Cell::new(false),
            word: OnceCell::new(),
        };
        if !BUILDING.get() {
            // On a stack: created by the CPU that passes it on.
            word.word();
        }
        word
    }
    fn load(&self, order: Ordering) -> u64 {
        let order = if WEAK & ACQUIRE != 0 { Relaxed } else { order };
        if BUILDING.get() {
            return self.first.get();
        }
        self.word().load(order)
    }
    fn store(&self, value: u64, order: Ordering) {
        debug_assert!(matches!(order, Relaxed | Release));
        let order = if WEAK & RELEASE != 0 { Relaxed } else { order };
        if BUILDING.get() {
            return self.first.set(value);
        }
        if self.spun.get() {
            self.word().swap(value, order);
        } else {
            self.word().store(value, order);
        }
    }
    fn fetch_add_full(&self, value: u64) -> u64 {
        if BUILDING.get() {
            return self.first.replace(self.first.get().wrapping_add(value));
        }
        self.full(|word| word.fetch_add(value, AcqRel))
    }
    fn fetch_or_full(&self, bits: u64) -> u64 {
        self.full(|word| word.fetch_or(bits, AcqRel))
    }
    fn fetch_and_full(&self, bits: u64) -> u64 {
        self.full(|word| word.fetch_and(bits, AcqRel))
    }
    fn swap_full(&self, value: u64) -> u64 {
        self.full(|word| word.swap(value, AcqRel))
    }
    fn compare_exchange_full(&self, current: u64, new: u64) -> Result<u64, u64> {
        self.full(|word| word.compare_exchange(current, new, AcqRel, Acquire))
    }
}

/// The facade of a model; `WEAK` is a combination of the constants of this module.
pub struct Loom<const WEAK: u8>;

// SAFETY: loom's atomics, each `*_full` between two fences. Models must detect what they weaken deliberately.
unsafe impl<const WEAK: u8> Facade for Loom<WEAK> {
    type U64 = LoomWord<WEAK>;

    fn full_barrier() {
        if let Some(comes) = AT_BARRIER.with(|at| at.borrow_mut().take()) {
            comes();
        }
        if WEAK & FENCES == 0 {
            fence(SeqCst);
        }
    }
    fn publish_tables() {
        fence(SeqCst);
    }
    /// Nothing: a model's table walker reads by loads.
    fn publish_tables_before_full() {}
    fn after_ipi() {}
    fn before_ipi() {
        fence(SeqCst);
    }
    /// Nothing: as on x86, where a root load is serialising. Nothing here relies on it.
    fn before_root_load() {}
    fn wait_until(mut condition: impl FnMut() -> bool) {
        let mut holds = || {
            let outer = WAITING.with(|waiting| waiting.replace(true));
            let holds = condition();
            WAITING.with(|waiting| waiting.set(outer));
            holds
        };
        while !holds() {
            take_mail_here();
            loom::thread::yield_now();
        }
    }
}
