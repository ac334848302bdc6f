//! User code has entered the kernel, by a system call or a fault: until it goes back, or the kernel touches a user
//! address for it, a design may leave this CPU alone ([`Targets::InUser`](shootdown::Targets::InUser)). It catches up
//! before either.
//!
//! Each CPU remembers whether it has to. Kernel code is not preempted; when it steps aside, the next thread loads
//! its space, which is catching up, and clears the mark.

use crate::cpu;
use crate::engine;
use crate::space::AddressSpace;

/// User code of the space that is loaded has entered the kernel.
#[inline]
pub fn begin() {
    let cpu = cpu::cpu();
    if let Some(space) = cpu.space.get()
        && engine().enter_kernel(&space.space)
    {
        cpu.owes_catching_up.set(true);
    }
}

/// Before a user address is touched, before a walk that flushes are to wait for, and before the return to user code.
#[inline]
pub fn end() {
    if cpu::cpu().owes_catching_up.get() {
        catch_up();
    }
}

#[cold]
fn catch_up() {
    if let Some(space) = cpu::cpu().space.get() {
        AddressSpace::enter(space);
    }
}
