//! User code enters the kernel and goes back: what that costs, and the engine's part where a design has a use for it.

use super::System;
use super::category::{self, Category};
use super::process::Process;
use crate::machine;
use shootdown::Targets;

impl<const W: usize> System<W> {
    /// A system call of a thread of `process`: its entry, its exit and what it does apart from `body` take `cost`
    /// cycles. `body` touches no user address.
    pub(crate) fn system_call<T>(&self, process: &Process<W>, cost: u64, body: impl FnOnce() -> T) -> T {
        let outer = category::enter(Category::Kernel);
        let entered = self.enter_kernel(process, 0, cost);
        let result = body();
        self.leave_kernel(process, entered);
        category::leave(outer);
        result
    }

    /// User code of `process` enters the kernel, which touches no user address before
    /// [`leave_kernel`](Self::leave_kernel). Charges `before`, and the entry, the work and the exit that `cost` sums
    /// up. Where the design has a use for it the engine is told after the entry, for which half a null system call is
    /// taken.
    pub(super) fn enter_kernel(&self, process: &Process<W>, before: u64, cost: u64) -> bool {
        if self.engine.policy().targets != Targets::InUser {
            machine::charge(before + cost);
            return false;
        }
        let entry = (self.costs.syscall / 2).min(cost);
        machine::charge(before + entry);
        let entered = self.tell_entered(process);
        machine::charge(cost - entry);
        entered
    }

    fn tell_entered(&self, process: &Process<W>) -> bool {
        if self.hw.borrow().is_lazy(machine::cpu()) {
            return false;
        }
        // The promise first: a request may skip this CPU as soon as the engine says so.
        self.hw.borrow_mut().set_lazy(machine::cpu(), true);
        let entered = self.engine.enter_kernel(&process.space);
        if !entered {
            self.now_in_user();
        }
        entered
    }

    pub(super) fn leave_kernel(&self, process: &Process<W>, entered: bool) {
        if entered {
            self.resume(process);
        }
    }
}
