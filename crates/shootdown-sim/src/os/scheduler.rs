//! The scheduler: several threads on each CPU, preempted when their time slice is over or a thread of higher priority
//! wakes up.
//!
//! Owns the run queues and the placement of threads. Shaped after Linux's as far as translation coherence is concerned:
//! one queue per CPU; round robin in slices among normal threads; real-time threads before all of them; idle CPUs in
//! lazy TLB mode on their last space. A thread that wakes up goes to its last CPU if that is idle, to another idle one,
//! or else queues at its last. An idle CPU takes a thread that waits elsewhere. Preemption happens only where the
//! machine allows it and [`Preemption`] is on. The cost of a switch and a wake-up includes the queues' lines and locks.
//!
//! A machine with one thread per CPU has no scheduler.

use super::System;
use super::category::{self, Category};
use super::host;
use super::preemption::Preemption;
use super::process::Process;
use super::rwsem::{ThreadId, Threads};
use crate::machine::{self, Machine, Shared, SimWord};
use shootdown::Word;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::{Rc, Weak};

/// Priority of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Priority {
    /// Round robin, a slice each.
    Normal,
    /// Before all normal ones, until it sleeps (`SCHED_FIFO`). Stays on its CPU.
    RealTime,
}

struct Thread<const W: usize> {
    /// Its number in the machine.
    task: usize,
    process: Rc<Process<W>>,
    priority: Priority,
    /// CPU that it ran on last, runs on, or is queued at.
    cpu: Cell<usize>,
    sleeps: Cell<bool>,
    /// Woken before it slept: the sleep does not happen.
    woken: Cell<bool>,
    /// Set by the CPU that hands it the lock that it waits for.
    granted: Shared<SimWord>,
}

/// What happens to a CPU's current thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Leave {
    /// It sleeps, unless it is woken before.
    Asleep,
    /// It continues later, queued at this CPU.
    Preempted(usize),
    /// It has ended, or is the idle task.
    Gone,
}

struct Cpu {
    /// The thread that runs; `None` is the idle task.
    current: Cell<Option<ThreadId>>,
    queue: RefCell<VecDeque<ThreadId>>,
    /// The current thread is to be preempted.
    due: Cell<bool>,
    /// The preempted thread that is queued, at that CPU, once it is parked.
    leaving: Cell<Option<(ThreadId, usize)>>,
    /// End of the current thread's slice, cycles.
    slice_end: Cell<u64>,
    /// Expiry of a sleeper's timer on this CPU, and the sleeper.
    timers: RefCell<VecDeque<(u64, ThreadId)>>,
    online: Cell<bool>,
}

/// The scheduler of one system.
pub struct Scheduler<const W: usize> {
    system: RefCell<Weak<System<W>>>,
    preemption: Rc<Preemption>,
    threads: RefCell<Vec<Rc<Thread<W>>>>,
    cpus: Vec<Cpu>,
    slice: u64,
    /// Probability, in tests, that a thread is preempted at a preemption point and then queued at a random CPU.
    pub chaos: Cell<f64>,
    preemptions: Cell<u64>,
    migrations: Cell<u64>,
}

impl<const W: usize> Scheduler<W> {
    pub(super) fn new(cpus: usize, slice: u64, preemption: Rc<Preemption>) -> Self {
        let cpu = |_| Cpu {
            current: Cell::new(None),
            queue: RefCell::default(),
            due: Cell::new(false),
            leaving: Cell::new(None),
            slice_end: Cell::new(0),
            timers: RefCell::default(),
            online: Cell::new(false),
        };
        Scheduler {
            system: RefCell::default(),
            preemption,
            threads: RefCell::default(),
            cpus: (0..cpus).map(cpu).collect(),
            slice,
            chaos: Cell::new(0.0),
            preemptions: Cell::new(0),
            migrations: Cell::new(0),
        }
    }

    /// Number of preemptions so far.
    pub fn preemptions(&self) -> u64 {
        self.preemptions.get()
    }

    /// Number of migrations of threads so far.
    pub fn migrations(&self) -> u64 {
        self.migrations.get()
    }

    /// The thread that this CPU runs.
    pub fn current(&self) -> Option<ThreadId> {
        self.cpus.get(machine::cpu()).and_then(|cpu| cpu.current.get())
    }

    fn thread(&self, id: ThreadId) -> Rc<Thread<W>> {
        self.threads.borrow()[id].clone()
    }

    fn system(&self) -> Rc<System<W>> {
        self.system
            .borrow()
            .upgrade()
            .expect("the system lives while its threads run")
    }

    /// Puts `id` at the end, or the front, of the queue of `cpu`.
    fn enqueue(&self, cpu: usize, id: ThreadId, first: bool) {
        self.thread(id).cpu.set(cpu);
        let mut queue = self.cpus[cpu].queue.borrow_mut();
        let urgent = |id: ThreadId| self.thread(id).priority == Priority::RealTime;
        if first || urgent(id) {
            let place = queue.iter().take_while(|&&other| urgent(other)).count();
            queue.insert(place, id);
        } else {
            queue.push_back(id);
        }
    }

    /// Selects the next thread of `cpu`. The idle task of a CPU without threads takes one from the longest queue.
    fn pick(&self, cpu: usize) -> Option<ThreadId> {
        let own = self.cpus[cpu].queue.borrow_mut().pop_front();
        if own.is_some() || !self.cpus[cpu].online.get() {
            return own;
        }
        let movable = |id: &ThreadId| self.thread(*id).priority == Priority::Normal;
        let waiting = |other: &&Cpu| other.queue.borrow().iter().filter(|id| movable(id)).count();
        let busiest = self.cpus.iter().max_by_key(waiting)?;
        let mut queue = busiest.queue.borrow_mut();
        let place = queue.iter().position(movable)?;
        queue.remove(place)
    }

    /// Continues with the next thread, or the idle task. Returns when the caller runs again, perhaps on another CPU.
    /// Preemption is off, before and after.
    fn switch(&self, leave: Leave) {
        // From the last check to the switch no virtual time passes, so that no CPU runs a thread that is not parked.
        machine::drain_stores();
        machine::synchronise();
        let cpu = machine::cpu();
        let here = &self.cpus[cpu];
        let from = here.current.get();
        if leave == Leave::Asleep && from.is_some_and(|id| !self.thread(id).sleeps.get()) {
            return;
        }
        here.due.set(false);
        let next = self.pick(cpu);
        if next.is_none() && (from.is_none() || leave == Leave::Preempted(cpu)) {
            return self.begin_slice(cpu);
        }
        if let (Leave::Preempted(to), Some(id)) = (leave, from) {
            here.leaving.set(Some((id, to)));
        }
        here.current.set(next);
        machine::switch_task(next.map_or(cpu, |id| self.thread(id).task));
        self.arrive();
    }

    /// First step of a task after a switch to it.
    fn arrive(&self) {
        let cpu = machine::cpu();
        let (here, system) = (&self.cpus[cpu], self.system());
        let outer = category::enter(Category::Switch);
        if let Some((id, to)) = here.leaving.take() {
            self.place(to, id, false);
        }
        match here.current.get() {
            Some(id) => {
                let thread = self.thread(id);
                if thread.cpu.replace(cpu) != cpu {
                    self.migrations.set(self.migrations.get() + 1);
                }
                machine::charge(system.costs.switch);
                system.load(&thread.process);
                self.begin_slice(cpu);
            }
            None => system.go_lazy(),
        }
        category::leave(outer);
    }

    fn begin_slice(&self, cpu: usize) {
        let here = &self.cpus[cpu];
        here.slice_end.set(machine::now() + self.slice);
        if !here.queue.borrow().is_empty() {
            machine::raise(cpu, here.slice_end.get());
        }
    }

    /// At a preemption point of the machine: gives the CPU up if that is due and preemption is on.
    fn preempt_if_due(&self) {
        let here = &self.cpus[machine::cpu()];
        let chaos = self.chaos.get();
        if here.current.get().is_none() || !self.preemption.is_on() {
            return;
        }
        if !here.due.get() && !machine::chance(chaos) {
            return;
        }
        self.preemption.off();
        self.preemptions.set(self.preemptions.get() + 1);
        let to = match here.due.get() {
            true => machine::cpu(),
            false => machine::random_below(self.cpus.len() as u64) as usize,
        };
        self.switch(Leave::Preempted(to));
        self.preemption.on();
    }

    /// The first idle one of `cpus`.
    fn idle_cpu(&self, cpus: impl Iterator<Item = usize>) -> Option<usize> {
        let idle = |&cpu: &usize| {
            let there = &self.cpus[cpu];
            there.online.get() && there.current.get().is_none() && there.queue.borrow().is_empty()
        };
        { cpus }.find(idle)
    }

    /// Queues `id` at `cpu` and ensures that a CPU notices it.
    fn place(&self, cpu: usize, id: ThreadId, first: bool) {
        self.enqueue(cpu, id, first);
        let there = &self.cpus[cpu];
        match there.current.get() {
            None => self.system().wake_idle(cpu),
            Some(running) => {
                let urgent = |id: ThreadId| self.thread(id).priority == Priority::RealTime;
                if urgent(id) && !urgent(running) {
                    there.due.set(true);
                    if cpu != machine::cpu() {
                        machine::raise(cpu, machine::now());
                    }
                } else {
                    // An idle CPU takes it; else it has its turn when the slice is over.
                    match self.idle_cpu(0..self.cpus.len()) {
                        Some(idle) if !urgent(id) => self.system().wake_idle(idle),
                        _ => machine::raise(cpu, there.slice_end.get().max(machine::now())),
                    }
                }
            }
        }
    }

    /// Puts the current thread to sleep until it is woken; an earlier wake-up counts.
    pub fn sleep(&self) {
        let Some(id) = self.current() else {
            panic!("the idle task does not sleep in the scheduler");
        };
        self.preemption.off();
        machine::synchronise();
        let thread = self.thread(id);
        if !thread.woken.replace(false) {
            thread.sleeps.set(true);
            machine::charge(self.system().costs.sleep);
            self.switch(Leave::Asleep);
        }
        self.preemption.on();
        machine::preemption_point();
    }

    /// Wakes `id`; remembered if it does not sleep.
    pub fn wake(&self, id: ThreadId) {
        machine::synchronise();
        let thread = self.thread(id);
        if !thread.sleeps.replace(false) {
            thread.woken.set(true);
            return;
        }
        let last = thread.cpu.get();
        if self.cpus[last].current.get() == Some(id) {
            // It is about to sleep, and will see the wake-up.
            return;
        }
        let cpu = match thread.priority {
            Priority::RealTime => last,
            Priority::Normal => {
                let by_preference = std::iter::once(last).chain(0..self.cpus.len());
                self.idle_cpu(by_preference).unwrap_or(last)
            }
        };
        // A thread that slept has had less than its share.
        self.place(cpu, id, true);
    }

    /// Sleeps for `cycles`; the timer interrupts this CPU. Returns the delay until the thread runs, cycles.
    pub fn sleep_for(&self, cycles: u64) -> u64 {
        let id = self.current().expect("a thread sleeps");
        let due = machine::now() + cycles;
        let cpu = machine::cpu();
        self.cpus[cpu].timers.borrow_mut().push_back((due, id));
        machine::raise(cpu, due);
        self.sleep();
        machine::now().saturating_sub(due)
    }

    /// First step of every interrupt: expired timers wake their sleepers, an expired slice ends.
    fn interrupt(&self) {
        let cpu = machine::cpu();
        let (here, now) = (&self.cpus[cpu], machine::now());
        loop {
            let due = {
                let mut timers = here.timers.borrow_mut();
                let place = timers.iter().position(|&(at, _)| at <= now);
                place.and_then(|place| timers.remove(place))
            };
            match due {
                Some((_, id)) => self.wake(id),
                None => break,
            }
        }
        let normal = |id: ThreadId| self.thread(id).priority == Priority::Normal;
        if here.current.get().is_some_and(normal) && now >= here.slice_end.get() && !here.queue.borrow().is_empty() {
            here.due.set(true);
        }
    }

    /// The idle task of this CPU.
    fn idle(&self) -> ! {
        category::enter(Category::Idle);
        // Not the system itself: an idle task would keep it alive.
        let host = self.system().host();
        loop {
            self.preemption.off();
            self.switch(Leave::Gone);
            self.preemption.on();
            host::halt(host.as_ref());
        }
    }

    /// Ends the current thread.
    fn exit(&self) {
        self.preemption.off();
        machine::end_task();
        self.switch(Leave::Gone);
        unreachable!("a thread that has ended was switched to");
    }
}

impl<const W: usize> System<W> {
    /// Adds a scheduler to the system; its idle tasks run on every CPU of `machine`. Call it before any process is
    /// made. Normal threads take turns of `slice` cycles. [`spawn_thread`](Self::spawn_thread) adds threads.
    ///
    /// # Panics
    /// When it has one, or a CPU has a task.
    pub fn use_scheduler(self: &Rc<Self>, machine: &Machine, slice: u64) -> Rc<Scheduler<W>> {
        let cpus = self.hw.borrow().config().cpus;
        let scheduler = Rc::new(Scheduler::new(cpus, slice, self.preemption.clone()));
        *scheduler.system.borrow_mut() = Rc::downgrade(self);
        assert!(self.scheduler.set(scheduler.clone()).is_ok(), "the scheduler is set");
        for cpu in self.own_cpus.get().expect("set in `new`").clone() {
            let (system, scheduler) = (Rc::downgrade(self), scheduler.clone());
            machine.spawn_daemon(cpu, move || {
                if let Some(system) = system.upgrade() {
                    system.online();
                }
                scheduler.cpus[cpu].online.set(true);
                scheduler.idle();
            });
        }
        let weak = Rc::downgrade(&scheduler);
        self.on_interrupt({
            let weak = weak.clone();
            move || {
                if let Some(scheduler) = weak.upgrade() {
                    scheduler.interrupt();
                }
            }
        });
        machine.set_preemption_hook(move || {
            if let Some(scheduler) = weak.upgrade() {
                scheduler.preempt_if_due();
            }
        });
        scheduler
    }

    /// Puts the current thread, one of a scheduler's, to sleep for `cycles`, and records its wake-up delay.
    pub fn sleep_for(&self, cycles: u64) {
        let scheduler = self.scheduler.get().expect("a scheduler was set");
        let late = scheduler.sleep_for(cycles);
        self.preemption.latencies.wake_up.record(late);
    }

    /// Runs `section` with preemption off.
    pub fn without_preemption(&self, section: impl FnOnce()) {
        self.preemption.off();
        section();
        self.preemption.on();
        machine::preemption_point();
    }

    /// A thread of `process` that runs `body`, first on `cpu`. Before the run.
    ///
    /// # Panics
    /// Without a scheduler, or when the machine has no stack left for another task.
    pub fn spawn_thread(
        self: &Rc<Self>,
        machine: &Machine,
        process: &Rc<Process<W>>,
        cpu: usize,
        priority: Priority,
        body: impl FnOnce() + 'static,
    ) -> ThreadId {
        let scheduler = self.scheduler.get().expect("a scheduler was set").clone();
        let of_task = Rc::downgrade(&scheduler);
        let task = machine.add_task(move || {
            let scheduler = of_task.upgrade().expect("the scheduler lives while its threads run");
            scheduler.arrive();
            scheduler.preemption.on(); // disabled since the switch to it
            body();
            scheduler.exit();
        });
        let id = scheduler.threads.borrow().len();
        scheduler.threads.borrow_mut().push(Rc::new(Thread {
            task,
            process: process.clone(),
            priority,
            cpu: Cell::new(cpu),
            sleeps: Cell::new(false),
            woken: Cell::new(false),
            granted: self.allocate(SimWord::new(0)),
        }));
        scheduler.enqueue(cpu, id, false);
        id
    }
}

/// Weak: a lock belongs to a process, and the scheduler's threads belong to their processes.
impl<const W: usize> Threads for Weak<Scheduler<W>> {
    fn current(&self) -> ThreadId {
        let current = scheduler_of(self).current();
        current.expect("only threads wait for locks that sleep")
    }

    fn granted(&self, id: ThreadId) -> Shared<SimWord> {
        scheduler_of(self).thread(id).granted.clone()
    }

    fn wake(&self, id: ThreadId, after: u64) {
        let scheduler = scheduler_of(self);
        // Not before this CPU's stores are visible: the sleeper would check, find nothing and sleep on.
        machine::drain_stores();
        machine::at(machine::now() + after, move || Scheduler::wake(&scheduler, id));
    }
}

fn scheduler_of<const W: usize>(scheduler: &Weak<Scheduler<W>>) -> Rc<Scheduler<W>> {
    scheduler.upgrade().expect("locks are taken while their system lasts")
}
