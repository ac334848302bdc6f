//! Virtual CPUs that spin: pause-loop exits and directed yield, and spinlocks that halt.
//!
//! Follows KVM's `kvm_vcpu_on_spin` and Linux's paravirtual queued spinlock (`kernel/locking/qspinlock_paravirt.h`);
//! differences between kernels are settings. Owns each virtual CPU's window and its activity when it was preempted.

use super::Host;
use super::queues::Place;
use crate::machine;
use crate::os::category::Category;
use std::cell::Cell;
use std::rc::Rc;

/// How often a lock waiter checks whether the waiter before it runs: 256 iterations of its loop out of 32,768.
const LOOKS: u64 = 128;

/// One virtual CPU.
#[derive(Debug, Default)]
pub(super) struct Spinner {
    /// Number of windows spun since it entered: each doubles the next window.
    exits: Cell<u32>,
    /// Whether it was preempted in the kernel.
    in_kernel: Cell<bool>,
    /// It has exited because it spun, and has not run since; then it is yielded to only every other time.
    yielded: Cell<bool>,
    eligible: Cell<bool>,
    /// It has halted while waiting for a lock, and whether it was woken since.
    lock_halted: Cell<bool>,
    kicked: Cell<bool>,
    /// The virtual CPU to yield to at the next exit.
    wish: Cell<Option<usize>>,
}

impl Spinner {
    /// It runs from here on.
    pub(super) fn enters(&self) {
        self.exits.set(0);
        self.yielded.set(false);
        self.eligible.set(false);
    }
}

impl Host {
    /// Records the activity of a virtual CPU at its preemption.
    pub(super) fn note_where(&self, cpu: usize) {
        let in_kernel = machine::category() != Category::User as u8;
        self.spinners[cpu].in_kernel.set(in_kernel);
    }

    pub(super) fn spin_window(&self, cpu: usize) -> Option<u64> {
        let window = self.config.spinning.window;
        let doubled = window.saturating_mul(1 << self.spinners[cpu].exits.get().min(20));
        (window > 0).then_some(doubled)
    }

    /// A virtual CPU has spun for its window: whether it yields to one of its machine. It does so at once. If it chose
    /// now and yielded after its exit, its target would often run already.
    pub(super) fn spins(self: &Rc<Self>, cpu: usize) -> bool {
        let own = &self.spinners[cpu];
        own.exits.set(own.exits.get() + 1);
        let (machine, each) = (self.machine_of(cpu), self.each);
        let from = self.last_boosted[machine].get() + 1;
        let mut others = (0..each).map(|step| machine * each + (from + step) % each);
        let target = others.find(|&other| other != cpu && self.is_candidate(other));
        target.is_some_and(|target| self.yields_to(cpu, target))
    }

    fn is_candidate(&self, vcpu: usize) -> bool {
        let (place, fresh) = {
            let queues = self.queues.borrow();
            (queues.place(vcpu), queues.is_fresh(vcpu))
        };
        if place != Place::Queued {
            return false;
        }
        let (spinner, boost) = (&self.spinners[vcpu], self.config.spinning.boost);
        let is_boosted = match fresh {
            true => boost >= 1,
            false => spinner.in_kernel.get() || boost >= 2 && machine::interrupt_pending(vcpu),
        };
        // A virtual CPU that yielded itself: every other time.
        let eligible = !spinner.yielded.get() || spinner.eligible.replace(!spinner.eligible.get());
        is_boosted && eligible
    }

    /// Asks the scheduler to run `target` in place of this virtual CPU, which then gives way. False if `target` does
    /// not wait.
    pub(super) fn yields_to(self: &Rc<Self>, cpu: usize, target: usize) -> bool {
        let now = machine::now();
        if !self.change(|queues| queues.yield_to(cpu, target, now)) {
            return false;
        }
        self.last_boosted[self.machine_of(target)].set(target);
        self.spinners[cpu].yielded.set(true);
        self.spinners[cpu].in_kernel.set(true);
        true
    }

    /// This virtual CPU has sent an interrupt to `targets`: it yields to the first descheduled one, if the guest asks
    /// for that.
    pub(crate) fn has_sent(&self, mut targets: impl Iterator<Item = usize>) {
        if self.config.spinning.yield_on_send
            && let Some(target) = targets.find(|&target| self.place(target) == Place::Queued)
        {
            let cpu = machine::cpu();
            self.spinners[cpu].wish.set(Some(target));
            machine::request_exit(cpu, machine::now());
        }
    }

    /// The virtual CPU to which this one yields at its exit.
    pub(super) fn take_wish(&self, cpu: usize) -> Option<usize> {
        self.spinners[cpu].wish.take()
    }

    /// Whether spinlocks halt.
    pub(crate) fn locks_halt(&self) -> bool {
        self.config.spinning.lock_threshold > 0
    }

    fn is_out(&self, cpu: usize) -> bool {
        self.spinners[cpu].lock_halted.get() || self.config.spinning.lock_gives_up && self.place(cpu) == Place::Queued
    }

    /// Spins for `condition` in the queue of a spinlock, behind `previous` unless first. False if it is time to halt:
    /// it has spun for long, or it has to wait for a CPU that does not run.
    pub(crate) fn spins_for_lock(&self, previous: Option<usize>, mut condition: impl FnMut() -> bool) -> bool {
        let cpu = machine::cpu();
        let threshold = self.config.spinning.lock_threshold;
        let (begun, taken) = (machine::now(), self.taken[cpu].get());
        loop {
            let now = machine::now();
            // Iterations of a loop: those during which another virtual CPU ran do not count.
            let end = begun + threshold + (self.taken[cpu].get() - taken);
            if now >= end || previous.is_some_and(|previous| self.is_out(previous)) {
                return false;
            }
            let look = match previous {
                Some(_) => now + (threshold / LOOKS).max(self.spin_window(cpu).unwrap_or(1)),
                None => end,
            };
            if machine::wait_until_or(look.min(end), &mut condition) {
                return true;
            }
        }
    }

    /// Halts in the queue of a spinlock until [`kick`](Self::kick) and `condition`.
    pub(crate) fn halts_for_lock(self: &Rc<Self>, mut condition: impl FnMut() -> bool) {
        let own = &self.spinners[machine::cpu()];
        own.lock_halted.set(true);
        while machine::on_cpu() {
            own.kicked.set(false);
            if condition() {
                break;
            }
            super::halt(Some(self));
        }
        own.lock_halted.set(false);
    }

    /// Wakes the first waiter of a released lock if it has halted, once.
    pub(crate) fn kick(&self, cpu: usize) {
        let waiter = &self.spinners[cpu];
        if waiter.lock_halted.get() && !waiter.kicked.replace(true) {
            machine::charge(self.config.spinning.lock_kick);
            machine::wake(cpu, 0);
        }
    }
}
