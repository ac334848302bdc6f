//! `build`: a parallel compile of many small files. Each CPU works on jobs, one after the other. A job is a driver
//! process that starts a compiler and then an assembler and waits for each. One operation is a millisecond of the
//! recorded CPU time computed: a job has 21 of them. Operations per second under a design over those under `ideal` are
//! therefore the time of the build under `ideal` over its time under the design.
//!
//! **Provenance.** The flushes of the processes are taken from a recording of `make -j2` compiling C on Linux 6.18, two
//! virtual CPUs of a Zen 5 host, by the example `flush_mix` (run it on `tests/data/cc_make_extract.txt` for one job of
//! it). The whole recording: 24,057 events in 1.204 s, 2.292 s of CPU time, 317 processes ended, and per second of CPU
//! time 7,204 flushes of the own space (90.4 % of one page, 2.4 % of everything), 1,128 switches, 86 migrations. Of the
//! flushes 88.2 % were for spaces that had run on one CPU only, 11.5 % had another CPU in the space's set, and 0.7 %
//! interrupted one. [`DRIVER`], [`COMPILER`] and [`ASSEMBLER`] hold its figures per process. Of the migrations 93 were
//! of jobs: 44 of a compiler and 4 of an assembler while they ran. The other 45 were of a driver, when it was woken by
//! its last child, with no flush left to do. The rest were of `make` and of kernel threads.
//!
//! A trace of flushes does not say what caused an event. The causes are inferred from size and place: two flushes at
//! exec (the page with the arguments is moved and its table freed), single pages copied on write in a private file
//! mapping (relocations, initialised data), `mprotect` of 2 and 4 pages (relocations made read-only), `munmap` of 10
//! and 20 pages, and one `munmap` beyond the flush ceiling by the assembler. Faults and unmaps that flush nothing are
//! part of the compute time, and so is the recorded cost of those that flush: simulating them adds 2 to 3 % to the
//! time, under every design.
//!
//! The recorded `make` starts its children without copying its space (vfork), so that no flush of a fork is in the mix.
//! Builds whose recipes go through a shell do fork: `workload.build.forks` says how many of a job's do.
//!
//! **Other machines.** A slower core needs longer for the same work, so its flushes are less frequent. The compute time
//! is multiplied by `workload.build.slowdown`; the kernel's costs are the machine model's own. The flushes per second
//! of CPU time are then the recorded ones divided by it.

use super::{Parameter, Parameters, Thread};
use crate::hw::Access;
use crate::machine;
use crate::os::{File, Mapping, PAGE, Process, System, USER_BASE};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

/// How many times longer the compute part takes than on the recorded machine.
const SLOWDOWN: Parameter = Parameter {
    path: "workload.build.slowdown",
    default: 1.0,
    least: 0.1,
    most: 100.0,
    whole: false,
    about: "times longer that a core computes than the recorded Zen 5 (a 2 GHz in-order core: assumed 3..8)",
};

/// Pages that the program touches again between two flushes.
const WORKING_SET: Parameter = Parameter {
    path: "workload.build.working_set",
    default: 64.0,
    least: 1.0,
    most: 256.0,
    whole: true,
    about: "pages touched again between two flushes: what flushing a whole tag costs to refill (assumed 16..256)",
};

/// Children of a job that are forked with a copy of the driver's space, 0 to 2.
const FORKS: Parameter = Parameter {
    path: "workload.build.forks",
    default: 0.0,
    least: 0.0,
    most: 2.0,
    whole: false,
    about: "children per job (of 2) started by copying the parent's space; \
        recorded: 0 (vfork), recipes in a shell: 1 or 2",
};

/// Migrations of a job.
const MIGRATIONS: Parameter = Parameter {
    path: "workload.build.migrations",
    default: 0.88,
    least: 0.0,
    most: 100.0,
    whole: false,
    about: "moves of a job to another CPU (recorded on two CPUs: 93 of 106 jobs)",
};

pub(super) const PARAMETERS: &[Parameter] = &[SLOWDOWN, WORKING_SET, FORKS, MIGRATIONS];

/// A kind of process, with figures per process of the recording.
struct Program {
    /// CPU time, microseconds.
    cpu_us: f64,
    /// Flushes of one page, except that of exec.
    single: f64,
    /// `mprotect` of 2 pages.
    protect_2: f64,
    /// `mprotect` of 4 pages.
    protect_4: f64,
    /// `munmap` of 10 pages.
    unmap_10: f64,
    /// `munmap` of 20 pages.
    unmap_20: f64,
    /// `munmap` of a range that is flushed whole.
    unmap_many: f64,
    /// Switches to other tasks and back, except those of starting and ending processes.
    naps: f64,
    /// Share of a job's migrations.
    moves: f64,
    /// Whether it migrates after all its other events, or at any time.
    moves_last: bool,
}

/// `cc`: 108 processes, 1,413 us and 6.92 switches each; flushes by pages -1: 0.92, 1: 10.52, 2: 0.98, 4: 0.98, 10:
/// 0.98.
const DRIVER: Program = Program {
    cpu_us: 1413.0,
    single: 9.52,
    protect_2: 0.98,
    protect_4: 0.98,
    unmap_10: 0.98,
    unmap_20: 0.0,
    unmap_many: 0.0,
    naps: 1.96,
    moves: 45.0 / 93.0,
    moves_last: true,
};

/// `cc1`: 106 processes, 17,622 us and 6.03 switches each; flushes by pages -1: 0.92, 1: 97.67, 2: 2.00, 4: 1.00, 10:
/// 1.00.
const COMPILER: Program = Program {
    cpu_us: 17_622.0,
    single: 96.67,
    protect_2: 2.0,
    protect_4: 1.0,
    unmap_10: 1.0,
    unmap_20: 0.0,
    unmap_many: 0.0,
    naps: 2.5,
    moves: 44.0 / 93.0,
    moves_last: false,
};

/// `as`: 106 processes, 2,199 us and 3.13 switches each; flushes by pages -1: 1.90, 1: 31.08, 2: 0.98, 4: 0.98, 10:
/// 0.98, 20: 0.98.
const ASSEMBLER: Program = Program {
    cpu_us: 2199.0,
    single: 30.08,
    protect_2: 0.98,
    protect_4: 0.98,
    unmap_10: 0.98,
    unmap_20: 0.98,
    unmap_many: 0.98,
    naps: 1.06,
    moves: 4.0 / 93.0,
    moves_last: false,
};

// Layout of a process, in pages from its base. Everything but exec's argument page shares one table.
const WORKING: u64 = 0;
const DATA: u64 = 256;
const DATA_PAGES: u64 = 128;
const MANY: u64 = 384;
const MANY_PAGES: u64 = 64;
const SMALL: u64 = 448;
const PROTECTED: u64 = 470;
const PROTECTED_PAGES: u64 = 4;
const STACK: u64 = 480;
const ARGUMENTS: u64 = 512;

/// Bytes of each process.
pub(super) const BYTES: u64 = 4 << 20;

/// The next step of a process, after a stretch of computing.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Event {
    Write,
    Protect(u64),
    Unmap(u64),
    Nap,
    Migrate,
}

/// State that all CPUs share.
pub(crate) struct Commons<const W: usize> {
    /// The data of the programs, in the page cache.
    binary: Rc<File>,
    /// Jobs that migrate to another CPU.
    moving: RefCell<VecDeque<Job<W>>>,
}

impl<const W: usize> Commons<W> {
    pub(super) fn new(system: &System<W>) -> Self {
        Commons {
            binary: system.file(MANY + MANY_PAGES),
            moving: RefCell::default(),
        }
    }
}

/// A running process.
struct Run<const W: usize> {
    process: Rc<Process<W>>,
    events: Vec<Event>,
    /// Events done.
    done: usize,
    /// Pages of data written.
    written: u64,
    /// Mean length of a stretch of computing, cycles.
    stretch: u64,
}

/// A job: a driver, and the child that it waits for.
struct Job<const W: usize> {
    driver: Run<W>,
    child: Option<Run<W>>,
    /// Children started.
    children: usize,
}

/// State of a job after a step.
#[derive(PartialEq)]
enum Step {
    Going,
    Moves,
    Ended,
}

/// One CPU's work: it has its own random numbers, so that every design gets the same work.
struct Worker<'t, const W: usize> {
    thread: &'t Thread<W>,
    commons: &'t Commons<W>,
    random: u64,
    working_set: u64,
    forks: f64,
    migrations: f64,
    cycles_per_us: f64,
    /// Computed so far, cycles.
    computed: u64,
}

pub(super) fn run<const W: usize>(thread: &Thread<W>, commons: &Commons<W>) {
    let parameters: &Parameters = &thread.parameters;
    let mut worker = Worker {
        thread,
        commons,
        random: thread.seed << 20 ^ thread.index as u64,
        working_set: parameters.count(&WORKING_SET),
        forks: parameters.get(&FORKS),
        migrations: parameters.get(&MIGRATIONS),
        cycles_per_us: parameters.get(&SLOWDOWN) * thread.model.ghz * 1e3,
        computed: 0,
    };
    // Jobs do not begin in step.
    machine::charge(worker.below((DRIVER.cpu_us * worker.cycles_per_us) as u64 + 1));
    let mut job = worker.begin();
    while !machine::stop_requested() {
        match worker.step(&mut job) {
            Step::Going => {}
            Step::Moves => job = worker.exchange(job),
            Step::Ended => job = worker.next_job(job),
        }
    }
    // Running processes are left as they are; no space stays loaded.
    thread.system.unload();
    commons.moving.borrow_mut().push_back(job);
}

impl<const W: usize> Worker<'_, W> {
    fn system(&self) -> &System<W> {
        &self.thread.system
    }

    /// SplitMix64.
    fn next(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.random ^ (self.random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// A whole number whose mean is `mean`.
    fn about(&mut self, mean: f64) -> usize {
        let more = (self.below(1 << 20) as f64) < mean.fract() * (1 << 20) as f64;
        mean as usize + usize::from(more)
    }

    /// The driver of a new job, loaded and running. Its parent, `make`, is not simulated.
    fn begin(&mut self) -> Job<W> {
        Job {
            driver: self.start(&DRIVER),
            child: None,
            children: 0,
        }
    }

    /// Starts a program in a new address space, on this CPU.
    fn start(&mut self, program: &Program) -> Run<W> {
        let moves = self.about(self.migrations * program.moves);
        let (early, late) = if program.moves_last { (0, moves) } else { (moves, 0) };
        let mut events = Vec::new();
        let mut add = |event: Event, count: usize| events.extend(std::iter::repeat_n(event, count));
        add(Event::Write, self.about(program.single).min(DATA_PAGES as usize));
        add(Event::Protect(2), self.about(program.protect_2));
        add(Event::Protect(4), self.about(program.protect_4));
        add(Event::Unmap(10), self.about(program.unmap_10));
        add(Event::Unmap(20), self.about(program.unmap_20));
        add(Event::Unmap(MANY_PAGES), self.about(program.unmap_many));
        add(Event::Nap, self.about(program.naps));
        add(Event::Migrate, early);
        for last in (1..events.len()).rev() {
            events.swap(last, self.below(last as u64 + 1) as usize);
        }
        events.extend(std::iter::repeat_n(Event::Migrate, late));
        let system = self.system();
        let process = system.process(system.next_number(), BYTES);
        system.load(&process);
        system.map(&process, at(WORKING), self.working_set * PAGE);
        system.map_file(
            &process,
            at(DATA),
            DATA_PAGES * PAGE,
            &self.commons.binary,
            Mapping::Private,
        );
        system.map(&process, at(PROTECTED), PROTECTED_PAGES * PAGE);
        system.map(&process, at(STACK), PAGE);
        system.exec(&process, at(ARGUMENTS), at(STACK));
        for page in 0..PROTECTED_PAGES {
            system.touch(&process, at(PROTECTED + page), Access::Write);
        }
        Run {
            process,
            stretch: (program.cpu_us * self.cycles_per_us / (events.len() + 1) as f64) as u64,
            events,
            done: 0,
            written: 0,
        }
    }

    /// A stretch of computing and its next step.
    fn step(&mut self, job: &mut Job<W>) -> Step {
        let Job {
            driver,
            child,
            children,
        } = job;
        // The driver's events are spread over the time before, between and after its children.
        let due = match child {
            Some(child) => child.events.len(),
            None => driver.events.len() * (*children + 1) / (CHILDREN.len() + 1),
        };
        let running = child.as_mut().unwrap_or(driver);
        self.compute(running);
        if running.done < due {
            let event = running.events[running.done];
            running.done += 1;
            self.carry_out(running, event);
            return if event == Event::Migrate {
                Step::Moves
            } else {
                Step::Going
            };
        }
        let system = &*self.thread.system;
        if let Some(ended) = child.take() {
            self.end(ended);
            machine::charge(system.costs.switch);
            system.load(&driver.process);
        } else if *children < CHILDREN.len() {
            *child = Some(self.spawn(driver, CHILDREN[*children]));
            *children += 1;
        } else {
            return Step::Ended;
        }
        Step::Going
    }

    /// The driver ends, and the next job begins.
    fn next_job(&mut self, job: Job<W>) -> Job<W> {
        self.end(job.driver);
        self.begin()
    }

    /// The driver starts a child and waits.
    fn spawn(&mut self, driver: &Run<W>, program: &Program) -> Run<W> {
        machine::charge(self.system().costs.syscall + self.system().costs.sleep);
        if self.about(self.forks / CHILDREN.len() as f64) == 0 {
            return self.start(program);
        }
        // The copy writes some of the pages that it shares with its parent before exec, which drops it.
        let copy = self.system().fork(&driver.process);
        self.system().load(&copy);
        for page in 0..self.working_set.min(WRITES_AFTER_FORK) {
            self.system().touch(&copy, at(WORKING + page), Access::Write);
        }
        let run = self.start(program);
        self.system().exit(&copy);
        run
    }

    fn end(&mut self, ended: Run<W>) {
        self.system().exit(&ended.process);
    }

    fn compute(&mut self, run: &Run<W>) {
        for page in 0..self.working_set {
            self.system().touch(&run.process, at(WORKING + page), Access::Write);
        }
        let stretch = self.below(2 * run.stretch + 1);
        machine::charge(stretch);
        self.system().take_in_broadcasts();
        self.computed += stretch;
        let milliseconds = self.computed as f64 / (self.cycles_per_us * 1e3);
        self.thread.operations.set(milliseconds as u64);
    }

    fn carry_out(&mut self, run: &mut Run<W>, event: Event) {
        let (system, process) = (&*self.thread.system, &*run.process);
        match event {
            // Read first, so that the page is mapped when it is written: a copy, and a flush.
            Event::Write => {
                let va = at(DATA + run.written);
                run.written += 1;
                system.touch(process, va, Access::Read);
                system.touch(process, va, Access::Write);
            }
            Event::Protect(pages) => {
                system.touch(process, at(PROTECTED), Access::Write);
                system.protect(process, at(PROTECTED), pages, false);
                system.allow_writes(process, at(PROTECTED), pages);
            }
            Event::Unmap(pages) => {
                let va = at(if pages < MANY_PAGES { SMALL } else { MANY });
                system.map_file(process, va, pages * PAGE, &self.commons.binary, Mapping::Private);
                system.touch(process, va, Access::Read);
                system.unmap(process, va, pages * PAGE);
            }
            Event::Nap => {
                system.go_lazy();
                machine::charge(system.costs.switch);
                system.resume(process);
            }
            Event::Migrate => {}
        }
    }

    /// Passes a job to another CPU and takes the one that waits longest; the first CPU to pass one begins another.
    fn exchange(&mut self, job: Job<W>) -> Job<W> {
        if self.thread.threads == 1 {
            return job;
        }
        let system = &*self.thread.system;
        system.go_lazy();
        machine::charge(system.costs.switch + system.costs.wake);
        machine::drain_stores();
        machine::synchronise();
        self.commons.moving.borrow_mut().push_back(job);
        let waiting = {
            let mut moving = self.commons.moving.borrow_mut();
            if moving.len() > 1 { moving.pop_front() } else { None }
        };
        match waiting {
            Some(job) => {
                let running = job.child.as_ref().unwrap_or(&job.driver);
                system.load(&running.process);
                job
            }
            None => self.begin(),
        }
    }
}

/// The children of a job, in order.
const CHILDREN: [&Program; 2] = [&COMPILER, &ASSEMBLER];

/// CPU time of a job, microseconds.
const JOB_US: f64 = DRIVER.cpu_us + COMPILER.cpu_us + ASSEMBLER.cpu_us;

/// Upper bound of the processes that one CPU starts in `ms` milliseconds: a job's three and two copies take at least
/// half their time.
pub(super) fn most_processes(ms: f64, parameters: &Parameters) -> usize {
    let jobs = ms * 1e3 / (0.5 * JOB_US * parameters.get(&SLOWDOWN));
    (5.0 * (jobs + 2.0)) as usize
}

/// Pages that a forked shell writes before exec; assumed 2..30.
const WRITES_AFTER_FORK: u64 = 8;

/// Address of a page of a process.
fn at(page: u64) -> u64 {
    USER_BASE + page * PAGE
}
