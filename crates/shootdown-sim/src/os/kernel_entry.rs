//! Kernel entry and exit of user code: their cost, and the calls of the engine that some designs need.

use super::System;
use super::category::{self, Category};
use super::process::Process;
use crate::machine;
use shootdown::Targets;

impl<const W: usize> System<W> {
    /// A system call of a thread of `process`: entry, exit and its own work apart from `body` take `cost` cycles.
    /// `body` touches no user address.
    pub(crate) fn system_call<T>(&self, process: &Process<W>, cost: u64, body: impl FnOnce() -> T) -> T {
        let outer = category::enter(Category::Kernel);
        let entered = self.enter_kernel(process, 0, cost);
        let result = body();
        self.leave_kernel(process, entered);
        category::leave(outer);
        result
    }

    /// User code of `process` enters the kernel, which touches no user address before
    /// [`leave_kernel`](Self::leave_kernel). Charges `before`, and the entry, the work and the exit, whose sum is
    /// `cost`. For designs that use it, the engine is called after the entry, which is taken as half a null system
    /// call.
    pub(super) fn enter_kernel(&self, process: &Process<W>, before: u64, cost: u64) -> bool {
        if self.engine.policy().targets != Targets::InUser {
            machine::charge(before + cost);
            return false;
        }
        let entry = (self.costs.syscall / 2).min(cost);
        machine::charge(before + entry);
        let entered = self.notify_engine_of_entry(process);
        machine::charge(cost - entry);
        entered
    }

    fn notify_engine_of_entry(&self, process: &Process<W>) -> bool {
        if self.hw.borrow().is_lazy(machine::cpu()) {
            return false;
        }
        // The promise first: a request may skip this CPU as soon as the engine has recorded it.
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
