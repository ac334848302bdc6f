//! For unit tests: words that run another action between their operations, at a point that the test chooses. Also two
//! threads that take turns, each for a given number of operations.

use crate::facade::{Facade, Word};
use core::cell::{Cell, RefCell};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};

/// Number of operations until the action, and the action.
type Due = (u32, Box<dyn FnOnce()>);

std::thread_local! {
    static NEXT: RefCell<Option<Due>> = const { RefCell::new(None) };
    static AFTER_WRITE: RefCell<Option<Box<dyn FnOnce()>>> = const { RefCell::new(None) };
    static MEDDLING: Cell<bool> = const { Cell::new(false) };
    static TURNS: RefCell<Option<(usize, Arc<Turns>)>> = const { RefCell::new(None) };
}

/// Runs `what` once, after `operations` more operations, just before the next one.
pub(crate) fn after(operations: u32, what: impl FnOnce() + 'static) {
    NEXT.set(Some((operations, Box::new(what))));
}

/// Runs `what` before each operation, until it returns true.
pub(crate) fn after_each(mut what: impl FnMut() -> bool + 'static) {
    after(0, move || {
        if !what() {
            after_each(what);
        }
    });
}

/// Runs `what` once, right after the next read-modify-write operation. For actions that precede something that is not
/// an operation.
pub(crate) fn after_next_write(what: impl FnOnce() + 'static) {
    AFTER_WRITE.set(Some(Box::new(what)));
}

/// Cancels the pending actions. Returns whether there were none.
pub(crate) fn never() -> bool {
    NEXT.take().is_none()
}

/// All of these interleavings; under Miri, which is slow, one in 32.
pub(crate) fn some_under_miri<T>(interleavings: impl Iterator<Item = T>) -> impl Iterator<Item = T> {
    interleavings.step_by(if cfg!(miri) { 32 } else { 1 })
}

/// Which of the two threads runs, for how many more operations, and which has ended.
struct Turns {
    state: Mutex<Turn>,
    passed: Condvar,
}

struct Turn {
    owner: usize,
    /// Operations until the other's turn, and so on. When the list is empty each runs to its end.
    left: Vec<u32>,
    ended: [bool; 2],
}

impl Turn {
    /// Passes the turn to the other thread, unless that has ended.
    fn pass(&mut self) {
        if !self.ended[1 - self.owner] {
            self.owner = 1 - self.owner;
        }
    }
}

impl Turns {
    fn operation(&self, me: usize) {
        let mut turn = self.state.lock().expect("no test fails while it holds this");
        while turn.owner != me {
            turn = self.passed.wait(turn).expect("as above");
        }
        match turn.left.first().copied() {
            Some(0) => {
                turn.left.remove(0);
                turn.pass();
                self.passed.notify_one();
                drop(turn);
                self.operation(me);
            }
            Some(left) => turn.left[0] = left - 1,
            None => {}
        }
    }

    fn end(&self, me: usize) {
        let mut turn = self.state.lock().expect("as in `operation`");
        while turn.owner != me && !turn.ended[1 - me] {
            turn = self.passed.wait(turn).expect("as above");
        }
        turn.ended[me] = true;
        if turn.owner == me {
            turn.left.clear();
            turn.pass();
        }
        self.passed.notify_one();
    }
}

/// Runs `one` and `other` in turns. `one` begins, and each runs for as many operations as `turns` says, one number a
/// turn. When these are used up, or one thread ends, the rest runs to its end. Returns whether all turns were used.
pub(crate) fn together(turns: &[u32], one: impl FnOnce() + Send, other: impl FnOnce() + Send) -> bool {
    let turns = Arc::new(Turns {
        state: Mutex::new(Turn {
            owner: 0,
            left: turns.to_vec(),
            ended: [false; 2],
        }),
        passed: Condvar::new(),
    });
    let part = |me: usize, what: &mut dyn FnMut()| {
        /// Ends the turn, also when a test panics.
        struct Ends(usize, Arc<Turns>);
        impl Drop for Ends {
            fn drop(&mut self) {
                self.1.end(self.0);
            }
        }
        let _ends = Ends(me, turns.clone());
        TURNS.set(Some((me, turns.clone())));
        what();
        TURNS.set(None);
    };
    let (mut one, mut other) = (Some(one), Some(other));
    std::thread::scope(|scope| {
        scope.spawn(|| part(0, &mut || one.take().expect("once")()));
        scope.spawn(|| part(1, &mut || other.take().expect("once")()));
    });
    turns.state.lock().expect("both have ended").left.is_empty()
}

fn operation() {
    if let Some((me, turns)) = TURNS.with_borrow(|turns| turns.clone()) {
        return turns.operation(me);
    }
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
        run_interleaved(what);
    }
}

fn run_interleaved(what: Box<dyn FnOnce()>) {
    MEDDLING.set(true);
    what();
    MEDDLING.set(false);
}

/// The host's atomic words, with actions of other CPUs between operations.
pub(crate) struct InterleavedWord(AtomicU64, AtomicU32);

impl InterleavedWord {
    /// How often the word was written.
    pub(crate) fn writes(&self) -> u32 {
        self.1.load(Ordering::Relaxed)
    }

    fn written(&self) {
        operation();
        self.1.fetch_add(1, Ordering::Relaxed);
    }

    /// A read-modify-write operation.
    fn exchanged<T>(&self, exchange: impl FnOnce(&AtomicU64) -> T) -> T {
        self.written();
        let found = exchange(&self.0);
        if !MEDDLING.get()
            && let Some(what) = AFTER_WRITE.take()
        {
            run_interleaved(what);
        }
        found
    }
}

// SAFETY: the host's atomics.
unsafe impl Word for InterleavedWord {
    fn new(value: u64) -> Self {
        InterleavedWord(AtomicU64::new(value), AtomicU32::new(0))
    }
    fn load(&self, order: Ordering) -> u64 {
        operation();
        self.0.load(order)
    }
    fn store(&self, value: u64, order: Ordering) {
        self.written();
        self.0.store(value, order);
    }
    fn fetch_add_full(&self, value: u64) -> u64 {
        self.exchanged(|word| word.fetch_add_full(value))
    }
    fn fetch_or_full(&self, bits: u64) -> u64 {
        self.exchanged(|word| word.fetch_or_full(bits))
    }
    fn fetch_and_full(&self, bits: u64) -> u64 {
        self.exchanged(|word| word.fetch_and_full(bits))
    }
    fn swap_full(&self, value: u64) -> u64 {
        self.exchanged(|word| word.swap_full(value))
    }
    fn compare_exchange_full(&self, current: u64, new: u64) -> Result<u64, u64> {
        self.exchanged(|word| word.compare_exchange_full(current, new))
    }
}

/// The facade with those words.
pub(crate) struct Interleaved;

// SAFETY: the host's atomics.
unsafe impl Facade for Interleaved {
    type U64 = InterleavedWord;
    fn full_barrier() {}
    fn publish_tables() {}
    fn after_ipi() {}
    fn before_ipi() {}
    fn before_root_load() {}
    fn wait_until(mut condition: impl FnMut() -> bool) {
        while !condition() {}
    }
}
