//! The host under a virtual machine: which virtual CPUs run, which wait for a CPU of the host, which are halted.
//!
//! One queue for all CPUs of the host, first come first served in slices; a virtual CPU that wakes up goes to the
//! front. Owns no cost but those of its settings. Which CPU of the host a virtual CPU runs on is not modelled:
//! distances are those of the guest. The host takes a CPU away at an interrupt of its own, so never in a section with
//! interrupts off; those are shorter than a thousandth of a slice. A halted virtual CPU counts as one that runs for
//! whoever wants to have it flushed, as Linux's hosts say since 5.19.

use super::System;
use super::category::{self, Category};
use crate::machine;
use crate::timeline::{What, note};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

/// A host.
#[derive(Debug, Clone, PartialEq)]
pub struct HostConfig {
    /// Its CPUs.
    pub cpus: usize,
    /// Virtual CPUs of other machines, which are always busy.
    pub others: usize,
    /// Mean length of a slice, cycles.
    pub slice: u64,
    /// By what share a slice is at most shorter or longer.
    pub spread: f64,
    /// From one virtual CPU's leaving a host CPU to the next one's running, cycles.
    pub switch: u64,
    /// Until a halted virtual CPU runs on a host CPU that is free, cycles.
    pub wake: u64,
    /// Whether virtual CPUs that do not run are flushed at their entry.
    pub pv_flush: bool,
}

/// What the host runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Who {
    Vcpu(usize),
    /// One of another machine.
    Other(usize),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Off,
    Halted,
    Queued,
    Running,
}

#[derive(Debug)]
struct Runner {
    who: Who,
    /// When its slice ends, cycles.
    until: u64,
    /// Whether it is told to leave at the end of its slice.
    kicked: bool,
}

/// The host's scheduler.
#[derive(Debug)]
pub(crate) struct Host {
    config: HostConfig,
    running: RefCell<Vec<Runner>>,
    queue: RefCell<VecDeque<Who>>,
    vcpus: Vec<Cell<Place>>,
    /// Whether a virtual CPU has come online.
    begun: Cell<bool>,
    /// Whether each halted virtual CPU serves an interrupt.
    serving: Vec<Cell<bool>>,
    /// Time that the host has kept each virtual CPU waiting, cycles.
    taken: Vec<Cell<u64>>,
}

impl Host {
    fn new(config: HostConfig, vcpus: usize) -> Rc<Self> {
        Rc::new(Host {
            config,
            running: RefCell::default(),
            queue: RefCell::default(),
            vcpus: vec![Cell::new(Place::Off); vcpus],
            begun: Cell::new(false),
            serving: vec![Cell::new(false); vcpus],
            taken: vec![Cell::new(0); vcpus],
        })
    }

    fn slice(&self) -> u64 {
        let spread = (self.config.slice as f64 * self.config.spread) as u64;
        self.config.slice - spread + machine::random_below(2 * spread + 1)
    }

    /// `who` runs from now on; one that waits is woken.
    fn starts(&self, who: Who, now: u64, waits: bool) {
        let until = now + self.slice();
        self.running.borrow_mut().push(Runner {
            who,
            until,
            kicked: false,
        });
        if let Who::Vcpu(cpu) = who {
            self.vcpus[cpu].set(Place::Running);
            if waits {
                machine::wake(cpu, self.config.switch);
            }
        }
    }

    /// `who` wants to run: whether it does, or waits in the queue.
    fn joins(self: &Rc<Self>, who: Who, now: u64, first: bool) -> bool {
        if self.running.borrow().len() < self.config.cpus {
            self.starts(who, now, false);
            return true;
        }
        match first {
            true => self.queue.borrow_mut().push_front(who),
            false => self.queue.borrow_mut().push_back(who),
        }
        if let Who::Vcpu(cpu) = who {
            self.vcpus[cpu].set(Place::Queued);
        }
        self.kick(now);
        false
    }

    /// The virtual CPUs of other machines have been there before the first of this one; those that run are somewhere in
    /// their slices.
    fn others_come(self: &Rc<Self>, now: u64) {
        for other in 0..self.config.others {
            if self.joins(Who::Other(other), now, false) {
                let rest = machine::random_below(self.config.slice);
                if let Some(started) = self.running.borrow_mut().last_mut() {
                    started.until = now + rest;
                }
            }
        }
    }

    /// `who` gives up its CPU, and whoever is first in the queue runs.
    fn leaves(self: &Rc<Self>, who: Who, now: u64) {
        self.running.borrow_mut().retain(|runner| runner.who != who);
        let next = self.queue.borrow_mut().pop_front();
        if let Some(next) = next {
            self.starts(next, now, true);
        }
        self.kick(now);
    }

    /// As many CPUs are given up at the ends of their slices as are waited for.
    fn kick(self: &Rc<Self>, now: u64) {
        let mut running = self.running.borrow_mut();
        let waiting = self.queue.borrow().len();
        while running.iter().filter(|runner| runner.kicked).count() < waiting {
            let free = running.iter_mut().filter(|runner| !runner.kicked);
            let Some(runner) = free.min_by_key(|runner| runner.until) else {
                return;
            };
            runner.kicked = true;
            let at = runner.until.max(now + 1);
            match runner.who {
                Who::Vcpu(cpu) => machine::raise(cpu, at),
                other => {
                    let host = self.clone();
                    machine::at(at, move || host.takes_turns(other, at));
                }
            }
        }
    }

    /// If the slice of `who` is over and another waits, they change places.
    fn takes_turns(self: &Rc<Self>, who: Who, now: u64) {
        if !self.is_over(who, now) {
            return;
        }
        if let Who::Vcpu(cpu) = who {
            self.vcpus[cpu].set(Place::Queued);
        }
        self.queue.borrow_mut().push_back(who);
        self.leaves(who, now);
    }

    /// Whether `who` runs, its slice is over and another waits.
    fn is_over(&self, who: Who, now: u64) -> bool {
        let mut running = self.running.borrow_mut();
        let runner = running
            .iter_mut()
            .find(|runner| runner.who == who && runner.kicked && now >= runner.until);
        let Some(runner) = runner else { return false };
        runner.kicked = !self.queue.borrow().is_empty();
        runner.kicked
    }

    /// Waits, interrupts off, until this virtual CPU runs.
    fn wait(&self, cpu: usize) {
        let (outer, since) = (category::enter(Category::Stolen), machine::now());
        note(|| What::OutBegins);
        let mut others = false;
        while self.vcpus[cpu].get() == Place::Queued && machine::on_cpu() {
            machine::sleep();
            others |= self.vcpus[cpu].get() == Place::Queued;
        }
        if others {
            // A wake-up that was for the guest.
            machine::wake(cpu, 0);
        }
        let taken = &self.taken[cpu];
        taken.set(taken.get() + machine::now().saturating_sub(since));
        note(|| What::OutEnds);
        category::leave(outer);
    }

    /// This virtual CPU, halted or off so far, runs again. Interrupts are off.
    fn runs(self: &Rc<Self>) {
        let cpu = machine::cpu();
        machine::synchronise();
        if !self.joins(Who::Vcpu(cpu), machine::now(), true) {
            self.wait(cpu);
        }
    }

    /// This virtual CPU needs no CPU of the host from now on. Interrupts are off.
    fn rests(self: &Rc<Self>, place: Place) {
        let cpu = machine::cpu();
        machine::synchronise();
        self.vcpus[cpu].set(place);
        self.leaves(Who::Vcpu(cpu), machine::now());
    }
}

/// Sleeps, as [`machine::sleep`] does; a virtual CPU leaves its CPU to others meanwhile.
pub(super) fn halt(host: Option<&Rc<Host>>) {
    let Some(host) = host.filter(|_| machine::on_cpu()) else {
        return machine::sleep();
    };
    let saved = machine::interrupts_off();
    host.rests(Place::Halted);
    machine::interrupts_restore(saved);
    machine::sleep();
    let saved = machine::interrupts_off();
    host.runs();
    machine::charge(host.config.wake);
    machine::interrupts_restore(saved);
}

impl<const W: usize> System<W> {
    /// Makes the CPUs virtual ones of this host. Once, before any CPU is online and before a scheduler or ticks are
    /// there.
    ///
    /// # Panics
    /// When there is a hypervisor.
    pub fn run_on_host(self: &Rc<Self>, config: HostConfig) {
        if config.pv_flush {
            self.virtualise();
        }
        let host = Host::new(config, self.hw.borrow().config().cpus);
        assert!(self.host.set(host).is_ok(), "there is a host");
        let (begins, ends) = (Rc::downgrade(self), Rc::downgrade(self));
        self.on_interrupt(move || {
            if let Some(system) = begins.upgrade() {
                system.host_interrupt();
            }
        });
        self.after_interrupt.borrow_mut().push(Box::new(move || {
            if let Some(system) = ends.upgrade() {
                system.host_interrupt_over();
            }
        }));
    }

    pub(crate) fn host(&self) -> Option<Rc<Host>> {
        self.host.get().cloned()
    }

    /// This CPU has nothing to do until it is woken.
    pub(crate) fn halt(&self) {
        halt(self.host.get());
    }

    /// Cycles for which the host has kept this CPU waiting so far.
    pub(crate) fn taken_by_host(&self) -> u64 {
        self.host.get().map_or(0, |host| host.taken[machine::cpu()].get())
    }

    /// This virtual CPU comes online.
    pub(super) fn host_comes(&self) {
        if let Some(host) = self.host.get() {
            if !host.begun.replace(true) {
                host.others_come(machine::now());
            }
            host.runs();
        }
    }

    /// It goes off.
    pub(super) fn host_goes(&self) {
        if let Some(host) = self.host.get() {
            host.rests(Place::Off);
        }
    }

    /// What every interrupt does first: a slice that is over ends, a halted virtual CPU enters.
    fn host_interrupt(&self) {
        let Some(host) = self.host.get() else { return };
        let (cpu, now) = (machine::cpu(), machine::now());
        match host.vcpus[cpu].get() {
            Place::Running if host.is_over(Who::Vcpu(cpu), now) => self.exit_for(|| {
                host.takes_turns(Who::Vcpu(cpu), machine::now());
                host.wait(cpu);
            }),
            // One that nobody sent is the end of a slice before it halted, or a timer's that costs a moment.
            Place::Halted if machine::interrupt_sent().is_some() => {
                host.serving[cpu].set(true);
                host.runs();
                machine::charge(host.config.wake);
            }
            _ => {}
        }
    }

    fn host_interrupt_over(&self) {
        if let Some(host) = self.host.get()
            && host.serving[machine::cpu()].replace(false)
        {
            host.rests(Place::Halted);
        }
    }
}
