//! NMI handlers, which may interrupt any code, the shootdown handler included.

use super::System;
use super::process::Process;
use crate::hw::{Access, Privilege};
use crate::machine;

impl<const W: usize> System<W> {
    /// An NMI handler on this CPU reads a user address of `process`, like a profiler that walks the user stack, if the
    /// engine allows it. True when it did; it takes no page fault.
    pub fn read_from_nmi(&self, process: &Process<W>, va: u64) -> bool {
        if !self.engine.user_access_ok(&process.space) {
            return false;
        }
        machine::synchronise();
        let (cpu, now) = (machine::cpu(), machine::now());
        let read = (self.hw.borrow_mut()).translate(cpu, va, Access::Read, Privilege::User, now);
        machine::charge(read.map_or_else(|fault| u64::from(fault.cost), |found| u64::from(found.cost)));
        true
    }
}
