//! The measured window of a run: when it begins and ends, and what was done in it.
//!
//! Normally virtual time decides. Thousands of threads need two things more. They map their regions one by one and interrupt
//! one another, so nobody may have finished anything when the time is over: who is [`Plan::patient`] waits for operations.
//! And they do in a virtual millisecond what takes minutes to simulate, so the warm-up, and a window whose length nobody
//! asked for, also end after a number of charged operations. Both are looked at between turns, when the machine reports
//! progress: still a pure function of the seed. Owns no count of its own.

use crate::machine::{self, Machine, Progress, Statistics};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// Charged operations after which the warm-up ends, whatever the time. `tlb_flush2` with 1008 threads needs 60 million for
/// its warm-up under `ipi`, fewer under other designs. With [`WINDOW_EVENTS`]: what ten host minutes allow at the half to one
/// million per second that `ipi` was seen to take on a busy host.
pub const WARM_UP_EVENTS: u64 = 120_000_000;

/// Charged operations after which a window of the default length ends. Beyond them no run waits for its threads to finish
/// what they are at.
pub const WINDOW_EVENTS: u64 = 180_000_000;

/// Threads beyond which a run waits for operations: up to here the warm-up of `tlb_flush2` sees many of each thread.
pub(crate) const PATIENT_THREADS: usize = 256;

/// When a window is to begin and end.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    /// Cycles before it.
    pub warm_up: u64,
    /// Its cycles.
    pub length: u64,
    /// Whether somebody asked for that length: then it is kept.
    pub asked: bool,
    /// Operations that the warm-up and the window each have to see, however long that takes; unless the length was asked for.
    pub patient: Option<u64>,
    /// Charged operations after which the warm-up and the window end all the same.
    pub events: (u64, u64),
}

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
    plan: Plan,
    /// Operations to wait for; 0 = none.
    least: u64,
    /// An end was put off: the run goes on until `look` ends it.
    late: Cell<bool>,
    begun: Cell<Option<Begun>>,
    measured: RefCell<Option<Measured>>,
    /// Charged operations when the beginning was first noticed.
    events: Cell<Option<u64>>,
}

impl Window {
    /// The window of a run. `counters` count the workload's operations; `observer` is told when the window begins and ends,
    /// on the machine.
    pub(crate) fn new(
        machine: &Machine,
        plan: Plan,
        counters: Vec<Rc<Cell<u64>>>,
        observer: impl Fn(Edge) + 'static,
    ) -> Rc<Self> {
        let window = Rc::new(Window {
            counters,
            observer: Box::new(observer),
            plan,
            least: plan.patient.filter(|_| !plan.asked).unwrap_or(0),
            late: Cell::new(false),
            begun: Cell::default(),
            measured: RefCell::default(),
            events: Cell::default(),
        });
        let at = |cycles, what: fn(&Window, u64)| {
            let window = window.clone();
            machine.at(cycles, move || what(&window, cycles));
        };
        at(plan.warm_up, |window, now| {
            if window.ops() >= window.least {
                window.begin(now);
            } else if window.begun.get().is_none() {
                window.put_off();
            }
        });
        at(plan.warm_up + plan.length, |window, now| {
            if window.late.get() {
                return;
            }
            if window.seen() >= window.least {
                window.end(now);
            } else {
                window.put_off();
            }
        });
        window
    }

    /// The threads work on until [`look`](Self::look) ends the run.
    fn put_off(&self) {
        self.late.set(true);
        machine::never_stop();
    }

    /// Operations since the window began.
    fn seen(&self) -> u64 {
        self.begun.get().map_or(0, |begun| self.ops() - begun.ops)
    }

    /// How much of the run is done, 0 to 1; never less than before.
    pub(crate) fn fraction(&self, progress: Progress) -> f64 {
        let Plan { warm_up, length, .. } = self.plan;
        let share = |of: u64, all: u64| (of as f64 / all.max(1) as f64).min(1.0);
        if self.least == 0 {
            return share(progress.cycles, warm_up + length);
        }
        let first = share(warm_up, warm_up + length);
        if self.measured.borrow().is_some() {
            return 1.0;
        }
        let Some(begun) = self.begun.get() else {
            let waited = share(progress.cycles, warm_up).min(share(self.ops(), self.least));
            return first * waited.max(share(progress.events, self.plan.events.0));
        };
        let events = progress.events - self.events.get().unwrap_or(progress.events);
        let waited = share(progress.cycles.saturating_sub(begun.at), length).min(share(self.seen(), self.least));
        first + (1.0 - first) * waited.max(share(events, self.plan.events.1))
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
            let waited = self.late.get() && self.ops() >= self.least;
            if waited || progress.events >= self.plan.events.0 {
                self.begin(progress.cycles);
            }
            return true;
        };
        let since = self.events.get().unwrap_or(progress.events);
        self.events.set(Some(since));
        let enough = progress.events - since >= self.plan.events.1;
        let over = progress.cycles >= begun.at + self.plan.length;
        let ends = if self.plan.asked {
            over
        } else if self.least > 0 && self.seen() == 0 {
            // A window without an operation says nothing: four times the patience.
            (progress.events - since) / 4 >= self.plan.events.1
        } else {
            enough || self.late.get() && over && self.seen() >= self.least
        };
        if ends {
            self.end(progress.cycles);
        }
        !((enough || self.late.get()) && self.measured.borrow().is_some())
    }

    /// What was done in the window, once it has ended.
    pub(crate) fn take(&self) -> Option<Measured> {
        self.measured.borrow_mut().take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::{Config, Outcome, Topology};

    /// What a window saw of `cpus` CPUs that finish an operation each `cycles` after a first one at `start`, the fractions that
    /// were shown, and how the run ended.
    fn run(plan: Plan, cpus: usize, start: u64, cycles: u64) -> (Measured, Vec<f64>, Outcome) {
        let mut config = Config::new(Topology {
            cpus,
            core_of: (0..cpus as u16).collect(),
            cluster_of: vec![0; cpus],
            socket_of: vec![0; cpus],
        });
        config.progress_events = 1;
        let mut machine = Machine::new(config);
        let counters: Vec<_> = (0..cpus).map(|_| Rc::new(Cell::new(0))).collect();
        for (cpu, counter) in counters.iter().cloned().enumerate() {
            machine.spawn(cpu, move || {
                machine::charge(start);
                while !machine::stop_requested() {
                    counter.set(counter.get() + 1);
                    machine::charge(cycles);
                }
            });
        }
        let edges = Rc::new(RefCell::new(Vec::new()));
        let told = edges.clone();
        let window = Window::new(&machine, plan, counters, move |edge| told.borrow_mut().push(edge));
        let mut shown = Vec::new();
        let outcome = machine.run(plan.warm_up + plan.length, |progress| {
            let on = window.look(progress);
            shown.push(window.fraction(progress));
            on
        });
        assert_eq!(*edges.borrow(), [Edge::Begin, Edge::End]);
        (window.take().expect("the window has ended"), shown, outcome)
    }

    const PLAN: Plan = Plan {
        warm_up: 10_000,
        length: 40_000,
        asked: false,
        patient: None,
        events: (u64::MAX, u64::MAX),
    };

    #[test]
    fn time_decides_where_operations_are_many() {
        for patient in [None, Some(20)] {
            let (measured, _, outcome) = run(Plan { patient, ..PLAN }, 2, 50, 100);
            assert_eq!((measured.cycles, measured.ops), (40_000, 800));
            assert_eq!(outcome, Outcome::Finished);
        }
    }

    #[test]
    fn the_patient_wait_for_operations_and_say_how_long_that_took() {
        // Nobody has finished anything when the time is over.
        let slow = Plan {
            patient: Some(6),
            ..PLAN
        };
        let (measured, shown, outcome) = run(slow, 2, 70_000, 30_000);
        assert!(measured.ops >= 6, "{}", measured.ops);
        // Two CPUs, one operation each 30 000 cycles: the length goes with the operations.
        let expected = measured.ops * 15_000;
        assert!(
            measured.cycles.abs_diff(expected) <= 30_000,
            "{} for {}",
            measured.cycles,
            measured.ops
        );
        assert_eq!(outcome, Outcome::Abandoned);
        assert!(
            shown.is_sorted() && shown.iter().all(|share| (0.0..=1.0).contains(share)),
            "{shown:?}"
        );
        assert_eq!(shown.last(), Some(&1.0));
        // The impatient measure what there is in the time.
        let (measured, ..) = run(PLAN, 2, 70_000, 30_000);
        assert_eq!((measured.cycles, measured.ops), (40_000, 0));
    }

    #[test]
    fn a_length_that_was_asked_for_is_kept() {
        let asked = Plan {
            asked: true,
            patient: Some(1000),
            events: (u64::MAX, 10),
            ..PLAN
        };
        let (measured, ..) = run(asked, 2, 50, 1000);
        assert_eq!((measured.cycles, measured.ops), (40_000, 80));
    }

    #[test]
    fn charged_operations_end_both_parts_early() {
        let short = Plan {
            events: (20, 40),
            ..PLAN
        };
        let (measured, ..) = run(short, 2, 50, 100);
        // 40 charged operations after the first 20, and one operation for each; a CPU that runs ahead does several in a turn,
        // and both ends are noticed between turns. By time it would be 800.
        assert!((40..=80).contains(&measured.ops), "{}", measured.ops);
        assert!(measured.cycles < 5_000, "{}", measured.cycles);
    }

    #[test]
    fn a_window_without_an_operation_is_given_more_but_not_for_ever() {
        let plan = Plan {
            patient: Some(1),
            events: (0, 10),
            ..PLAN
        };
        // The first operation comes long after the time; with single-cycle charges it would need many events.
        let mut config = Config::new(Topology {
            cpus: 2,
            core_of: vec![0, 1],
            cluster_of: vec![0; 2],
            socket_of: vec![0; 2],
        });
        config.progress_events = 1;
        let mut machine = Machine::new(config);
        for cpu in 0..2 {
            machine.spawn(cpu, || {
                while !machine::stop_requested() {
                    machine::charge(5_000_000);
                }
            });
        }
        let window = Window::new(&machine, plan, vec![Rc::default()], |_| {});
        let outcome = machine.run(50_000, |progress| window.look(progress));
        assert_eq!(outcome, Outcome::Abandoned);
        let measured = window.take().expect("the window has ended");
        assert_eq!(measured.ops, 0);
        assert!((40..=50).contains(&machine.events()), "{}", machine.events());
    }
}
