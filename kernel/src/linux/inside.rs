//! User code has entered the kernel, by a system call or a fault. Until it returns, or the kernel touches a user
//! address for it, a design may skip this CPU ([`Targets::InUser`](shootdown::Targets::InUser)). The CPU catches up
//! before either.
//!
//! Each CPU records whether it has to. Kernel code is not preempted. When it yields, the next thread loads its space,
//! which catches up, and clears the record.

use crate::cpu;
use crate::engine;
use crate::space::AddressSpace;

/// User code of the loaded space has entered the kernel.
#[inline]
pub fn begin() {
    let cpu = cpu::cpu();
    if let Some(space) = cpu.space.get()
        && engine().enter_kernel(&space.space)
    {
        cpu.must_catch_up.set(true);
    }
}

/// Called before a user address is touched, before a walk that flushes must wait for, and before the return to user
/// code.
#[inline]
pub fn end() {
    if cpu::cpu().must_catch_up.get() {
        catch_up();
    }
}

#[cold]
fn catch_up() {
    if let Some(space) = cpu::cpu().space.get() {
        AddressSpace::enter(space);
    }
}
