//! One simulated CPU that carries out its part of the recording at the recorded times.
//!
//! Between steps it runs user code, which occasionally touches pages so that the oracle has accesses to check and a
//! flush has entries to refill; or kernel code; or idles. When the CPU is late it drops user code first.

use super::HOT_PAGES;
use super::feed::{Feed, Next};
use super::spaces::{Live, Spaces};
use super::victims::Victims;
use crate::hw::Access;
use crate::machine;
use crate::os::category::{self, Category};
use crate::os::{PAGE, Roots, System, USER_BASE};
use shootdown_trace::Cause;
use shootdown_trace::program::Action;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// User code touches a page at least so often, ns.
const TOUCH_NS: f64 = 50_000.0;

/// A stretch shorter than this, ns, is waited for instead of computed.
const SHORT_NS: f64 = 2_000.0;

/// A stretch of this many times [`SHORT_NS`] has time for one page fault more than the recorded program had.
const SPARE_STRETCHES: f64 = 4.0;

/// Share of the rest that is computed at once: with a busy sibling that takes up to 1.5 times as long, which must not
/// overshoot.
const AT_ONCE: f64 = 0.65;

/// State that all CPUs share.
pub(super) struct Shared<const W: usize> {
    pub system: Rc<System<W>>,
    pub feed: RefCell<Feed>,
    pub spaces: Spaces<W>,
    pub ghz: f64,
    pub tally: Tally,
    pub victims: Rc<Victims>,
}

/// Counts that the CPUs keep themselves.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// Flushes requested.
    pub requests: Cell<u64>,
    /// Root loads at switches that the recording lacks.
    pub roots_inferred: Cell<u64>,
    /// Root loads and catch-ups at recorded switches, without and with a flush.
    pub kept: Cell<u64>,
    pub flushed: Cell<u64>,
    /// Longest delay of a CPU, ns.
    pub latest_ns: Cell<u64>,
}

/// One CPU.
pub(super) struct Cpu<const W: usize> {
    shared: Rc<Shared<W>>,
    number: usize,
    runs: Runs<W>,
    /// The space that is loaded while kernel code runs.
    lazy: Option<Rc<Live<W>>>,
}

enum Runs<const W: usize> {
    Idle,
    Kernel,
    User(Rc<Live<W>>),
}

fn add(counter: &Cell<u64>, count: u64) {
    counter.set(counter.get() + count);
}

impl<const W: usize> Cpu<W> {
    pub fn new(shared: Rc<Shared<W>>, number: usize) -> Self {
        Cpu {
            shared,
            number,
            runs: Runs::Idle,
            lazy: None,
        }
    }

    /// Until the recording ends.
    pub fn run(mut self) {
        self.shared.system.online();
        loop {
            let now_ns = self.now_ns();
            let next = self.shared.feed.borrow_mut().next(self.number, now_ns);
            match next {
                Next::End => break,
                Next::Nothing { until_ns } => self.advance(until_ns),
                Next::Do { at_ns, copy, action } => {
                    self.advance(at_ns);
                    let late = self.now_ns().saturating_sub(at_ns);
                    let latest = &self.shared.tally.latest_ns;
                    latest.set(latest.get().max(late));
                    self.act(copy, action);
                }
            }
        }
        self.stop_user();
        self.shared.system.unload();
        self.shared.system.offline();
    }

    fn now_ns(&self) -> u64 {
        (machine::now() as f64 / self.shared.ghz) as u64
    }

    /// Carries out its steps until then.
    fn advance(&mut self, until_ns: u64) {
        let until = (until_ns as f64 * self.shared.ghz).ceil() as u64;
        match &self.runs {
            Runs::Idle => self.rest(until, Category::Idle),
            Runs::Kernel => self.rest(until, Category::Kernel),
            Runs::User(live) => {
                let (slice, short) = (TOUCH_NS * self.shared.ghz, SHORT_NS * self.shared.ghz);
                if until.saturating_sub(machine::now()) as f64 > SPARE_STRETCHES * short {
                    self.touch(live);
                }
                let (mut taken, mut until) = (self.shared.system.taken_by_host(), until);
                loop {
                    // Time taken by the host is still to be computed.
                    let before = std::mem::replace(&mut taken, self.shared.system.taken_by_host());
                    until += taken - before;
                    let left = until.saturating_sub(machine::now()) as f64;
                    if left < short {
                        break;
                    }
                    machine::charge((left * AT_ONCE).min(slice) as u64);
                    if left > slice {
                        self.touch(live);
                    }
                }
                self.rest(until, Category::User);
            }
        }
    }

    /// User code writes to one of the pages in use. A read would map the zero page, whose replacement is an extra
    /// flush.
    fn touch(&self, live: &Live<W>) {
        let page = machine::random_below(HOT_PAGES);
        self.shared
            .system
            .touch(&live.process, USER_BASE + page * PAGE, Access::Write);
    }

    fn act(&mut self, copy: u32, action: Action) {
        match action {
            Action::Run { space, task, recorded } => {
                self.shared.victims.runs(machine::cpu(), Some(task));
                self.load(space, copy, recorded);
            }
            Action::Lazy { idle } => {
                self.stop_user();
                self.runs = if idle { Runs::Idle } else { Runs::Kernel };
                self.shared.victims.runs(machine::cpu(), idle.then_some(0));
            }
            Action::Flush {
                space,
                pages,
                tables,
                cause,
                ..
            } => {
                let victims = self.shared.victims.clone();
                victims.flushes(machine::cpu(), cause, || self.flush(space, copy, pages, tables));
            }
            Action::KernelFlush { space, pages } => {
                let victims = self.shared.victims.clone();
                victims.flushes(machine::cpu(), Cause::Other, || self.kernel_flush(space, copy, pages));
            }
            Action::End { space } => {
                self.stop_user();
                self.lazy = None;
                self.shared.spaces.ends(space, copy);
            }
        }
    }

    fn load(&mut self, space: u32, copy: u32, recorded: bool) {
        let shared = self.shared.clone();
        let live = shared.spaces.get(space, copy);
        if let Runs::User(runs) = &self.runs
            && Rc::ptr_eq(runs, &live)
        {
            return;
        }
        machine::charge(shared.system.costs.switch);
        shared.spaces.enters(&live);
        let resumes = self.lazy.take().is_some_and(|lazy| Rc::ptr_eq(&lazy, &live));
        let kernel = shared.system.engine.kernel();
        if resumes {
            shared.system.resume(&live.process);
        } else {
            shared.system.load(&live.process);
        }
        let Roots { kept, flushed } = kernel.take_roots();
        if recorded {
            add(&shared.tally.kept, kept);
            add(&shared.tally.flushed, flushed);
        } else {
            add(&shared.tally.roots_inferred, kept + flushed);
        }
        if let Runs::User(before) = std::mem::replace(&mut self.runs, Runs::User(live.clone())) {
            shared.spaces.leaves(&before);
        }
        self.touch(&live);
    }

    /// Waits for that moment; time counts to `kind`. An idle virtual CPU releases its host CPU.
    fn rest(&self, until: u64, kind: Category) {
        let outer = category::enter(kind);
        let cpu = machine::cpu();
        while machine::now() < until && machine::on_cpu() {
            machine::at(until, move || machine::wake(cpu, 0));
            match kind {
                Category::Idle => self.shared.system.halt(),
                _ => machine::sleep(),
            }
            if self.shared.system.host().is_none() {
                break;
            }
        }
        category::leave(outer);
    }

    /// Kernel code only from here on.
    fn stop_user(&mut self) {
        if let Runs::User(live) = std::mem::replace(&mut self.runs, Runs::Kernel) {
            self.shared.system.go_lazy();
            self.lazy = Some(live.clone());
            self.shared.spaces.leaves(&live);
        }
    }

    /// A kernel thread's flush of a space that this CPU need not have loaded.
    fn kernel_flush(&mut self, space: u32, copy: u32, pages: Option<u32>) {
        let shared = self.shared.clone();
        let live = shared.spaces.get(space, copy);
        let (va, range) = live.next_range(pages);
        add(&shared.tally.requests, 1);
        shared.system.flush_for_kernel(&live.process, va, range);
    }

    fn flush(&mut self, space: u32, copy: u32, pages: Option<u32>, tables: bool) {
        let shared = self.shared.clone();
        let live = shared.spaces.get(space, copy);
        let (va, range) = live.next_range(pages);
        let runs = matches!(&self.runs, Runs::User(runs) if Rc::ptr_eq(runs, &live));
        let range = if tables { range.with_tables() } else { range };
        add(&shared.tally.requests, 1);
        if runs {
            shared.system.flush_as_recorded(&live.process, va, range);
        }
    }
}
