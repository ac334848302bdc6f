//! The measured window of a run: when it begins and ends, and what was done in it.
//!
//! Normally virtual time decides. Thousands of threads that interrupt one another do in a virtual millisecond what takes
//! minutes to simulate, so the warm-up, and a window whose length nobody asked for, also end after a number of charged
//! operations. That number is looked at between turns, when the machine reports progress: still a pure function of the seed.

use crate::machine::{self, Machine, Progress, Statistics};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// Charged operations after which the warm-up ends, whatever the time. Like [`WINDOW_EVENTS`] a guess at what ten host minutes
/// allow with 8192 CPUs, not yet measured there; `tlb_flush2` with 1008 threads needs 60 million for its warm-up under `ipi`,
/// fewer under other designs.
pub const WARM_UP_EVENTS: u64 = 400_000_000;

/// Charged operations after which a window of the default length ends. Beyond them no run waits for its threads to finish
/// what they are at.
pub const WINDOW_EVENTS: u64 = 2_000_000_000;

/// What was done in the window.
pub(crate) struct Measured {
    /// Operations of the workload.
    pub ops: u64,
    /// Length, cycles.
    pub cycles: u64,
    /// What the machine did.
    pub statistics: Statistics,
}

#[derive(Clone, Copy)]
struct Begun {
    at: u64,
    ops: u64,
}

/// The two ends of the window, for whoever keeps counts of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Edge {
    /// Counting begins.
    Begin,
    /// Counting ends.
    End,
}

/// One run's window.
pub(crate) struct Window {
    counters: Vec<Rc<Cell<u64>>>,
    observer: Box<dyn Fn(Edge)>,
    /// Cycles asked for, when they were.
    length: Option<u64>,
    begun: Cell<Option<Begun>>,
    measured: RefCell<Option<Measured>>,
    /// Charged operations when the beginning was first noticed.
    events: Cell<Option<u64>>,
}

impl Window {
    /// A window of `length` cycles after `warm_up` cycles, that ends early if there is too much to simulate unless its length
    /// was `asked` for. `counters` count the workload's operations; `observer` is told when the window begins and ends, on the
    /// machine.
    pub(crate) fn new(
        machine: &Machine,
        warm_up: u64,
        length: u64,
        asked: bool,
        counters: Vec<Rc<Cell<u64>>>,
        observer: impl Fn(Edge) + 'static,
    ) -> Rc<Self> {
        let window = Rc::new(Window {
            counters,
            observer: Box::new(observer),
            length: asked.then_some(length),
            begun: Cell::default(),
            measured: RefCell::default(),
            events: Cell::default(),
        });
        let at = |cycles, what: fn(&Window, u64)| {
            let window = window.clone();
            machine.at(cycles, move || what(&window, cycles));
        };
        at(warm_up, Window::begin);
        at(warm_up + length, Window::end);
        window
    }

    fn ops(&self) -> u64 {
        self.counters.iter().map(|count| count.get()).sum()
    }

    fn begin(&self, now: u64) {
        if self.begun.get().is_none() {
            self.begun.set(Some(Begun {
                at: now,
                ops: self.ops(),
            }));
            machine::reset_statistics();
            (self.observer)(Edge::Begin);
        }
    }

    fn end(&self, now: u64) {
        let mut measured = self.measured.borrow_mut();
        if let (Some(begun), None) = (self.begun.get(), &*measured) {
            *measured = Some(Measured {
                ops: self.ops() - begun.ops,
                cycles: now - begun.at,
                statistics: machine::statistics(),
            });
            (self.observer)(Edge::End);
        }
    }

    /// Begins or ends the window if there is too much to simulate. Returns whether the run is to go on. For the machine's
    /// progress callback.
    pub(crate) fn look(&self, progress: Progress) -> bool {
        let Some(begun) = self.begun.get() else {
            if progress.events >= WARM_UP_EVENTS {
                self.begin(progress.cycles);
            }
            return true;
        };
        let since = self.events.get().unwrap_or(progress.events);
        self.events.set(Some(since));
        let enough = progress.events - since >= WINDOW_EVENTS;
        if self
            .length
            .map_or(enough, |length| progress.cycles >= begun.at + length)
        {
            self.end(progress.cycles);
        }
        !(enough && self.measured.borrow().is_some())
    }

    /// What was done in the window, once it has ended.
    pub(crate) fn take(&self) -> Option<Measured> {
        self.measured.borrow_mut().take()
    }
}
