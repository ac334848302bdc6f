//! The host under virtual machines: which virtual CPUs run, which wait for a CPU of the host, which are halted.
//!
//! Owns no cost except those of its settings. Distances between virtual CPUs are those of the guest, on whichever host
//! CPU they run. The host preempts a CPU at any instruction, also with interrupts off and with locks held.
//!
//! `queues.rs` is the scheduler, `spin.rs` the handling of virtual CPUs that spin.

mod queues;
mod spin;

use super::System;
use super::category::{self, Category};
use super::hypervisor::Guest;
use crate::machine;
use crate::machine::activity::{What, note};
use queues::{Decision, Place, Queues, Rules, TaskId};
use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

/// A host.
#[derive(Debug, Clone, PartialEq)]
pub struct HostConfig {
    /// Its CPUs.
    pub cpus: usize,
    /// Virtual CPUs of machines that are not simulated, which are always busy.
    pub others: usize,
    /// Mean length of the shortest slice, cycles.
    pub slice: u64,
    /// Period in which each task of a CPU runs once, cycles, unless slices become too short.
    pub latency: u64,
    /// How many cycles more than another task the running one must have run to be preempted by it at its wake-up.
    pub wakeup: u64,
    /// Largest variation of a slice, as a share of it.
    pub spread: f64,
    /// Time from one virtual CPU's leaving a host CPU to the next one's running, cycles.
    pub switch: u64,
    /// Time until a halted virtual CPU runs on a free host CPU, cycles.
    pub wake: u64,
    /// Whether descheduled virtual CPUs are flushed at their entry.
    pub pv_flush: bool,
    /// Whether halted ones are, too; else they are interrupted, as running ones.
    pub halted_flush: bool,
    /// Handling of virtual CPUs that spin.
    pub spinning: Spinning,
}

/// How host and guest handle virtual CPUs that spin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Spinning {
    /// How long a virtual CPU spins before its first exit since it began to run, cycles; 0: it never exits.
    pub window: u64,
    /// Cost of such an exit, cycles.
    pub exit: u64,
    /// Which virtual CPUs it yields to: 0, those that were preempted in the kernel; 1, also those that have woken up;
    /// 2, also those with a pending interrupt.
    pub boost: u32,
    /// Whether a sender yields to a descheduled target.
    pub yield_on_send: bool,
    /// How long a waiter spins for a spinlock before the virtual CPU halts, cycles; 0: it never halts.
    pub lock_threshold: u64,
    /// Whether a waiter halts at once if the waiter before it is descheduled; else only if that one has halted.
    pub lock_gives_up: bool,
    /// Cost of waking a halted waiter, for its waker, cycles.
    pub lock_kick: u64,
}

/// The host's scheduler.
#[derive(Debug)]
pub(crate) struct Host {
    config: HostConfig,
    /// Virtual CPUs of all simulated machines, and of each.
    vcpus: usize,
    each: usize,
    queues: RefCell<Queues>,
    /// The simulated machines, each on an equal part of the virtual CPUs, in order.
    guests: Vec<Weak<dyn Guest>>,
    /// Whether a virtual CPU has come online.
    begun: Cell<bool>,
    /// Whether each halted virtual CPU serves an interrupt.
    serving: Vec<Cell<bool>>,
    /// Time that the host has kept each virtual CPU waiting, cycles.
    taken: Vec<Cell<u64>>,
    spinners: Vec<spin::Spinner>,
    /// The virtual CPU of each machine that was yielded to last.
    last_boosted: Vec<Cell<usize>>,
}

impl Host {
    fn new(config: HostConfig, vcpus: usize, guests: Vec<Weak<dyn Guest>>) -> Rc<Self> {
        let rules = Rules {
            slice: config.slice,
            latency: config.latency,
            wakeup: config.wakeup,
        };
        Rc::new(Host {
            queues: RefCell::new(Queues::new(rules, config.cpus, vcpus + config.others)),
            begun: Cell::new(false),
            serving: vec![Cell::new(false); vcpus],
            taken: vec![Cell::new(0); vcpus],
            spinners: (0..vcpus).map(|_| spin::Spinner::default()).collect(),
            last_boosted: vec![Cell::new(0); guests.len()],
            config,
            vcpus,
            each: vcpus / guests.len(),
            guests,
        })
    }

    /// A slice, varied.
    fn length(&self) -> impl Fn(u64) -> u64 + use<> {
        let share = self.config.spread;
        move |slice| {
            let spread = (slice as f64 * share) as u64;
            slice - spread + machine::random_below(2 * spread + 1)
        }
    }

    /// The machine of a virtual CPU.
    fn machine_of(&self, vcpu: usize) -> usize {
        vcpu / self.each
    }

    /// The machine of this virtual CPU, unless it is being dropped.
    fn guest(&self) -> Option<Rc<dyn Guest>> {
        self.guests[self.machine_of(machine::cpu())].upgrade()
    }

    fn place(&self, vcpu: usize) -> Place {
        self.queues.borrow().place(vcpu)
    }

    /// Changes the queues, and carries out the resulting actions.
    fn change<T>(self: &Rc<Self>, change: impl FnOnce(&mut Queues) -> T) -> T {
        let result = change(&mut self.queues.borrow_mut());
        loop {
            let wish = self.queues.borrow_mut().decisions.pop_front();
            match wish {
                None => return result,
                Some(Decision::Runs(vcpu)) if vcpu < self.vcpus => machine::wake(vcpu, self.config.switch),
                Some(Decision::Runs(_)) => {}
                Some(Decision::Leaves(vcpu, at)) if vcpu < self.vcpus => machine::request_exit(vcpu, at),
                Some(Decision::Leaves(other, at)) => {
                    let (host, at) = (self.clone(), at.max(machine::now() + 1));
                    machine::at(at, move || host.other_leaves(other, at));
                }
            }
        }
    }

    /// The slice of another machine's virtual CPU may be over.
    fn other_leaves(self: &Rc<Self>, other: TaskId, now: u64) {
        let length = self.length();
        self.change(|queues| {
            if queues.is_over(other, now) {
                queues.reschedule(other, false, now, length);
            }
        });
    }

    /// The virtual CPUs of other machines were started before the first of this one; the running ones are at random
    /// points of their slices.
    fn others_come(self: &Rc<Self>, now: u64) {
        for other in self.vcpus..self.vcpus + self.config.others {
            let length = self.length();
            self.change(|queues| queues.join(other, now, length));
        }
        for other in self.vcpus..self.vcpus + self.config.others {
            self.change(|queues| {
                if let Some(until) = queues.until(other).filter(|&until| until > now)
                    && queues.place(other) == Place::Running
                {
                    queues.shorten(other, now, machine::random_below(until - now));
                }
            });
        }
    }

    /// Waits, interrupts off, until this virtual CPU runs.
    fn wait(&self, cpu: usize) {
        let (outer, since) = (category::enter(Category::Stolen), machine::now());
        note(|| What::OutBegins);
        let mut others = false;
        while self.place(cpu) == Place::Queued && machine::on_cpu() {
            machine::sleep();
            others |= self.place(cpu) == Place::Queued;
        }
        if others {
            // A wake-up for the guest.
            machine::wake(cpu, 0);
        }
        let taken = &self.taken[cpu];
        taken.set(taken.get() + machine::now().saturating_sub(since));
        self.spinners[cpu].enters();
        note(|| What::OutEnds);
        category::leave(outer);
    }

    /// This virtual CPU, halted or off so far, runs again. Interrupts are off.
    fn runs(self: &Rc<Self>) {
        let (cpu, length) = (machine::cpu(), self.length());
        machine::synchronise();
        let now = machine::now();
        if !self.change(|queues| queues.join(cpu, now, length)) {
            self.wait(cpu);
        }
        self.spinners[cpu].enters();
        self.flush_if_moved(cpu);
    }

    /// A virtual CPU that enters on another CPU of the host than before is flushed: its cached translations are not
    /// there, and those that it once cached here may be stale.
    fn flush_if_moved(&self, cpu: usize) {
        if self.queues.borrow_mut().take_moved(cpu) {
            machine::synchronise();
            if let Some(guest) = self.guest() {
                guest.flush_everything();
            }
        }
    }

    /// This virtual CPU halts. Interrupts are off.
    fn halts(self: &Rc<Self>) {
        self.of_guest(|guest| guest.exits());
        self.rests(Place::Halted);
    }

    /// This virtual CPU, halted so far, runs again. Interrupts are off.
    fn resumes(self: &Rc<Self>) {
        self.runs();
        self.of_guest(|guest| guest.enters());
    }

    /// On hosts that report halted virtual CPUs as preempted ones.
    fn of_guest(&self, step: impl FnOnce(&dyn Guest)) {
        if self.config.halted_flush
            && let Some(guest) = self.guest()
        {
            step(&*guest);
        }
    }

    /// This virtual CPU needs no CPU of the host from here on. Interrupts are off.
    fn rests(self: &Rc<Self>, place: Place) {
        let (cpu, length) = (machine::cpu(), self.length());
        machine::synchronise();
        let now = machine::now();
        self.change(|queues| queues.leave(cpu, place, now, length));
    }

    /// Gives the CPU up if another is due; with `skip`, if another can run. Waits until this virtual CPU runs again.
    fn gives_way(self: &Rc<Self>, cpu: usize, skip: bool) {
        let (now, length) = (machine::now(), self.length());
        if !self.change(|queues| queues.reschedule(cpu, skip, now, length)) {
            self.wait(cpu);
        }
    }
}

/// Sleeps, as [`machine::sleep`] does; a virtual CPU leaves its host CPU to others meanwhile.
pub(super) fn halt(host: Option<&Rc<Host>>) {
    let Some(host) = host.filter(|_| machine::on_cpu()) else {
        return machine::sleep();
    };
    let saved = machine::interrupts_off();
    host.halts();
    machine::interrupts_restore(saved);
    machine::sleep();
    let saved = machine::interrupts_off();
    host.resumes();
    machine::charge(host.config.wake);
    machine::interrupts_restore(saved);
}

/// Callbacks from the machine.
struct Hypervisor(Rc<Host>);

impl machine::Hypervisor for Hypervisor {
    fn exits(&self) {
        let (cpu, now) = (machine::cpu(), machine::now());
        let host = &self.0;
        let (over, until) = {
            let queues = host.queues.borrow();
            (queues.is_over(cpu, now), queues.until(cpu))
        };
        if host.place(cpu) != Place::Running {
            return;
        }
        if let Some(target) = host.take_wish(cpu) {
            machine::charge(host.config.spinning.exit);
            if let Some(until) = until {
                machine::request_exit(cpu, until);
            }
            if host.yields_to(cpu, target) {
                self.give_way(cpu);
            }
            return;
        }
        if !over {
            if let Some(until) = until {
                machine::request_exit(cpu, until);
            }
            return;
        }
        self.outside(|| {
            host.note_where(cpu);
            host.gives_way(cpu, false);
        });
    }

    fn spin_window(&self) -> Option<u64> {
        self.0.spin_window(machine::cpu())
    }

    fn spins(&self) {
        let (cpu, host) = (machine::cpu(), &self.0);
        if host.place(cpu) != Place::Running {
            return;
        }
        machine::charge(host.config.spinning.exit);
        if host.spins(cpu) {
            self.give_way(cpu);
        }
    }
}

impl Hypervisor {
    /// This virtual CPU has yielded to another one.
    fn give_way(&self, cpu: usize) {
        self.outside(|| self.0.gives_way(cpu, true));
    }

    /// Leaves the guest. In the middle of an access by the hardware, a little later.
    fn outside(&self, stay: impl FnOnce()) {
        let Some(guest) = self.0.guest() else { return };
        if guest.is_in_hardware() {
            return machine::request_exit(machine::cpu(), machine::now() + 1);
        }
        guest.exit_for(stay);
    }
}

impl<const W: usize> System<W> {
    /// Makes the CPUs of these kernels, all of a machine, virtual ones of a host. Once, before any CPU is online and
    /// before a scheduler or ticks exist.
    ///
    /// # Panics
    /// When there is a hypervisor, or no kernel.
    pub fn run_on_host(kernels: &[Rc<Self>], config: HostConfig) {
        let guests = kernels.iter().map(|kernel| {
            let guest: Weak<dyn Guest> = Rc::downgrade(&(kernel.clone() as Rc<dyn Guest>));
            guest
        });
        let vcpus = kernels[0].hw.borrow().config().cpus;
        let host = Host::new(config, vcpus, guests.collect());
        kernels[0].machine().set_hypervisor(Hypervisor(host.clone()));
        kernels.iter().for_each(|kernel| kernel.join_host(&host));
    }

    fn join_host(self: &Rc<Self>, host: &Rc<Host>) {
        if host.config.pv_flush {
            self.virtualise();
        }
        self.preemption.set_host(host.clone());
        assert!(self.host.set(host.clone()).is_ok(), "there is a host");
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

    /// This CPU is idle until it is woken.
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

    /// It goes offline.
    pub(super) fn host_goes(&self) {
        if let Some(host) = self.host.get() {
            host.rests(Place::Off);
        }
    }

    /// First step of every interrupt: a halted virtual CPU enters.
    fn host_interrupt(&self) {
        let Some(host) = self.host.get() else { return };
        let cpu = machine::cpu();
        // One without a sender is a timer's, which costs a moment.
        if host.place(cpu) == Place::Halted && machine::interrupt_sent().is_some() {
            host.serving[cpu].set(true);
            host.resumes();
            machine::charge(host.config.wake);
        }
    }

    fn host_interrupt_over(&self) {
        if let Some(host) = self.host.get()
            && host.serving[machine::cpu()].replace(false)
        {
            host.halts();
        }
    }
}
