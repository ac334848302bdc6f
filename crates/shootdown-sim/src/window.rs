//! The measured window of a run: its start, its end, and the counts in it.
//!
//! Up to a few hundred threads virtual time decides. Thousands of threads map their regions one by one and interrupt
//! one another. None may have finished an operation when the time is over, and a virtual millisecond takes minutes to
//! simulate. A [`Plan::patient`] run therefore warms up until there are as many operations as threads. It then measures
//! until there are as many again and the rate is known well enough ([`PRECISE`]). A limit on charged operations, some
//! minutes of host time, ends it early; the limit is half as high if the result cannot become meaningful. Both are
//! checked between turns, when the machine reports progress, so the result is still a pure function of the seed. The
//! result always states its uncertainty. Owns no count of its own.

use crate::machine::{self, Machine, Progress, Statistics};
use crate::precision::{Series, UNCERTAIN};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// Charged operations after which the warm-up ends, at any virtual time. `tlb_flush2` with 8192 threads under `ipi`
/// needs some 350 million for its warm-up, plus the window's share ([`WINDOW_EVENTS_PER_THREAD`]). Together that takes
/// one host core seven minutes, at the 5.9 million per second that were measured there; a busy host takes longer. A run
/// that needs more than half as much again for its warm-up (`never-broadcast` does, at 4 million per second) would take
/// more than ten.
pub const WARM_UP_EVENTS: u64 = 500_000_000;

/// Charged operations per thread after which a window of the default length ends, even if threads have unfinished
/// operations. If each of 8192 threads interrupts all others once, that takes 2000 million, 244 thousand per thread.
pub const WINDOW_EVENTS_PER_THREAD: u64 = 250_000;

/// The fewest charged operations after which a window of the default length ends.
const LEAST_WINDOW_EVENTS: u64 = 200_000_000;

/// Charged operations after which a window of the default length ends, with this many threads.
pub(crate) fn window_events(threads: usize) -> u64 {
    (threads as u64 * WINDOW_EVENTS_PER_THREAD).max(LEAST_WINDOW_EVENTS)
}

/// Half the width of the 95 % confidence interval, as a share of the rate, at which a patient run ends.
pub const PRECISE: f64 = 0.05;

/// Samples from which a patient run checks its precision: the widest of the intervals rests on 32 batches of two.
const SAMPLES: usize = 64;

/// Longest patient window, as a multiple of its length, once it has seen enough operations.
pub(crate) const LONGEST: u64 = 16;

/// Threads beyond which a run waits for operations: up to here the warm-up of `tlb_flush2` sees many of each thread.
pub const PATIENT_THREADS: usize = 256;

/// Start and end of a window.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    /// Cycles before it.
    pub warm_up: u64,
    /// Its cycles.
    pub length: u64,
    /// Whether the length was given explicitly: then it is kept.
    pub fixed_length: bool,
    /// Operations that the warm-up and the window must each see, however long that takes, unless the length was given.
    /// The window then also waits until the rate is precise, at most [`LONGEST`] times its length.
    pub patient: Option<u64>,
    /// Charged operations after which the warm-up and the window end unconditionally.
    pub events: (u64, u64),
}

/// The counts of the window.
pub(crate) struct Measured {
    /// Operations of the workload.
    pub ops: u64,
    /// Length, cycles.
    pub cycles: u64,
    /// The machine's counts.
    pub statistics: Statistics,
    /// Half the width of the rate's 95 % confidence interval, as a share of the rate.
    pub half_width: Option<f64>,
    /// Whether the warm-up saw the required operations.
    pub warm: bool,
}

#[derive(Clone, Copy)]
struct Begun {
    at: u64,
    ops: u64,
    warm: bool,
}

/// The two ends of the window, for observers with their own counts.
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
    /// An end was deferred: the run continues until `look` ends it.
    late: Cell<bool>,
    begun: Cell<Option<Begun>>,
    measured: RefCell<Option<Measured>>,
    /// Charged operations when the beginning was first noticed.
    events: Cell<Option<u64>>,
    series: RefCell<Series>,
    /// Number of samples at which the precision is next checked.
    look_at: Cell<usize>,
    /// Half of the charged operations are over.
    half_over: Cell<bool>,
}

impl Window {
    /// The window of a run. `counters` count the workload's operations; `observer` is called when the window begins and
    /// ends, on the machine.
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
            least: plan.patient.filter(|_| !plan.fixed_length).unwrap_or(0),
            late: Cell::new(false),
            begun: Cell::default(),
            measured: RefCell::default(),
            events: Cell::default(),
            series: RefCell::default(),
            look_at: Cell::new(SAMPLES),
            half_over: Cell::new(false),
        });
        let at = |cycles, what: fn(&Window, u64)| {
            let window = window.clone();
            machine.at(cycles, move || what(&window, cycles));
        };
        at(plan.warm_up, |window, now| {
            if window.ops() >= window.least {
                window.begin(now, true);
            } else if window.begun.get().is_none() {
                window.put_off();
            }
        });
        at(plan.warm_up + plan.length, |window, now| {
            if window.late.get() {
                return;
            }
            if window.least == 0 {
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

    /// Fraction of the run done, 0 to 1; never less than before.
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

    fn begin(&self, now: u64, warm: bool) {
        if self.begun.get().is_none() {
            self.begun.set(Some(Begun {
                at: now,
                ops: self.ops(),
                warm,
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
                half_width: self.half_width(begun, now),
                warm: begun.warm,
            });
            (self.observer)(Edge::End);
        }
    }

    fn half_width(&self, begun: Begun, now: u64) -> Option<f64> {
        let series = self.series.borrow();
        series.half_width((begun.at, begun.ops), (now, self.ops()))
    }

    /// Whether the rate is known well enough. Checked more rarely the longer it takes: frequent checks would find a
    /// moment that only seems precise.
    fn is_precise(&self, begun: Begun, now: u64) -> bool {
        let samples = self.series.borrow().len();
        if samples < self.look_at.get() {
            return false;
        }
        self.look_at.set(samples + samples / 4);
        self.half_width(begun, now).is_some_and(|half| half <= PRECISE)
    }

    /// Whether doubling the window could not make the rate meaningful: the warm-up was cut short, or an interval with
    /// half the variance would still be too wide. Checked once, when half of the charged operations are over.
    fn is_hopeless(&self, begun: Begun, now: u64, events: u64) -> bool {
        if events < self.plan.events.1 / 2 || self.half_over.replace(true) {
            return false;
        }
        let wide = |half| half > UNCERTAIN * std::f64::consts::SQRT_2;
        !begun.warm || self.half_width(begun, now).is_some_and(wide)
    }

    /// Begins or ends the window if the limit on charged operations is reached. Returns whether the run continues. For
    /// the machine's progress callback.
    pub(crate) fn look(&self, progress: Progress) -> bool {
        let Some(begun) = self.begun.get() else {
            let waited = self.late.get() && self.ops() >= self.least;
            if waited || progress.events >= self.plan.events.0 {
                self.begin(progress.cycles, waited || self.least == 0);
            }
            return true;
        };
        let since = self.events.get().unwrap_or(progress.events);
        self.events.set(Some(since));
        let now = progress.cycles;
        if self.measured.borrow().is_none() {
            self.series.borrow_mut().add(now, self.ops());
        }
        let events = progress.events - since;
        let enough = events >= self.plan.events.1;
        let ends = if self.plan.fixed_length {
            now >= begun.at + self.plan.length
        } else if self.least > 0 && self.seen() == 0 {
            // A window without an operation is useless: twice the limit.
            events / 2 >= self.plan.events.1
        } else if self.least > 0 {
            let over = || now >= begun.at + LONGEST * self.plan.length;
            let known = || self.seen() >= self.least && (self.is_precise(begun, now) || over());
            enough || known() || self.is_hopeless(begun, now, events)
        } else {
            enough
        };
        if ends {
            self.end(now);
        }
        !((enough || self.least > 0) && self.measured.borrow().is_some())
    }

    /// The counts of the window, once it has ended.
    pub(crate) fn take(&self) -> Option<Measured> {
        self.measured.borrow_mut().take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::{Config, Outcome, Topology};

    /// The window of `cpus` CPUs that finish an operation each `cycles` after a first one at `start`, the reported
    /// fractions, and the outcome of the run.
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
        let noted = edges.clone();
        let window = Window::new(&machine, plan, counters, move |edge| noted.borrow_mut().push(edge));
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
        fixed_length: false,
        patient: None,
        events: (u64::MAX, u64::MAX),
    };

    #[test]
    fn window_ends_by_time_if_operations_are_many() {
        let (measured, _, outcome) = run(PLAN, 2, 50, 100);
        assert_eq!((measured.cycles, measured.ops), (40_000, 800));
        assert!(measured.warm);
        assert_eq!(outcome, Outcome::Finished);
    }

    #[test]
    fn patient_window_waits_for_enough_operations() {
        // No thread has finished an operation when the time is over.
        let slow = Plan {
            patient: Some(6),
            ..PLAN
        };
        let (measured, shown, outcome) = run(slow, 2, 70_000, 30_000);
        assert!(measured.ops >= 6, "{}", measured.ops);
        // Two CPUs, one operation each 30 000 cycles: the length follows the operations.
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
        // Runs that are not patient measure what happens in the time.
        let (measured, ..) = run(PLAN, 2, 70_000, 30_000);
        assert_eq!((measured.cycles, measured.ops), (40_000, 0));
    }

    #[test]
    fn requested_window_length_is_kept() {
        let fixed_length = Plan {
            fixed_length: true,
            patient: Some(1000),
            events: (u64::MAX, 10),
            ..PLAN
        };
        let (measured, ..) = run(fixed_length, 2, 50, 1000);
        assert_eq!((measured.cycles, measured.ops), (40_000, 80));
    }

    #[test]
    fn event_limit_ends_warm_up_and_measurement() {
        let short = Plan {
            events: (20, 40),
            ..PLAN
        };
        let (measured, ..) = run(short, 2, 50, 100);
        // 40 charged operations after the first 20, and one operation for each; a CPU that runs ahead does several in a
        // turn, and both ends are noticed between turns. By time it would be 800.
        assert!((40..=80).contains(&measured.ops), "{}", measured.ops);
        assert!(measured.cycles < 5_000, "{}", measured.cycles);
    }

    #[test]
    fn patient_window_continues_until_the_rate_is_precise() {
        // Enough operations come at once; then the samples, one a turn, must suffice for batches.
        let slow = Plan {
            patient: Some(1),
            ..PLAN
        };
        let (measured, ..) = run(slow, 2, 50, 1000);
        let half = measured.half_width.expect("there were batches");
        assert!(half <= PRECISE, "{half}");
        assert!(measured.warm && measured.ops >= SAMPLES as u64, "{}", measured.ops);
        // A warm-up that was cut short is reported.
        let cut = Plan {
            patient: Some(1000),
            events: (20, 40),
            ..PLAN
        };
        let (measured, ..) = run(cut, 2, 50, 1000);
        assert!(!measured.warm);
    }

    #[test]
    fn hopeless_measurement_ends_half_way() {
        let plan = |warm_up, patient| Plan {
            patient: Some(patient),
            events: (warm_up, 400),
            ..PLAN
        };
        let (measured, ..) = run(plan(20, 1000), 2, 50, 1000);
        assert!(!measured.warm);
        assert!((195..=215).contains(&measured.ops), "{}", measured.ops);
        // Warm, but each operation takes longer than the one before.
        let mut config = Config::new(Topology {
            cpus: 1,
            core_of: vec![0],
            cluster_of: vec![0],
            socket_of: vec![0],
        });
        config.progress_events = 1;
        let ops = |grows: f64| {
            let mut machine = Machine::new(config.clone());
            let counter = Rc::new(Cell::new(0));
            let counted = counter.clone();
            machine.spawn(0, move || {
                let mut gap = 20_000.0;
                while !machine::stop_requested() {
                    counted.set(counted.get() + 1);
                    machine::charge(gap as u64);
                    gap *= grows;
                }
            });
            let plan = Plan {
                length: 1 << 40,
                ..plan(u64::MAX, 1)
            };
            let window = Window::new(&machine, plan, vec![counter], |_| {});
            machine.run(plan.warm_up + plan.length, |progress| window.look(progress));
            window.take().expect("the window has ended").ops
        };
        assert!((195..=215).contains(&ops(1.08)), "{}", ops(1.08));
        assert!((395..=425).contains(&ops(1.0)), "{}", ops(1.0));
    }

    #[test]
    fn window_without_operations_is_extended_within_a_bound() {
        let plan = Plan {
            patient: Some(1),
            events: (0, 20),
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
