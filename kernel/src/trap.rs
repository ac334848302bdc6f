//! Handlers of interrupts and page faults, on every instruction set.

use crate::arch::interrupts;
use crate::arch::traps::Frame;
use crate::cpu::{Cpu, add, cpu};
use crate::probe;
use crate::region::Access;
use crate::time::Own;
#[cfg(feature = "known-bugs")]
use core::sync::atomic::AtomicBool;

/// A mistake that this kernel makes on purpose if `fault=AcknowledgedLate`: the shootdown interrupt is acknowledged
/// after the requests were read, so that one that arrives meanwhile is lost. On Arm and RISC-V, in the test kernel.
#[cfg(feature = "known-bugs")]
pub static ACKNOWLEDGES_LATE: AtomicBool = AtomicBool::new(false);

/// Whether it makes that mistake.
#[cfg(not(target_arch = "x86_64"))]
#[inline]
pub fn acknowledges_late() -> bool {
    #[cfg(feature = "known-bugs")]
    return ACKNOWLEDGES_LATE.load(core::sync::atomic::Ordering::Relaxed);
    #[cfg(not(feature = "known-bugs"))]
    false
}

/// The shootdown interrupt. Interrupts are off, and this CPU continues only when it returns.
#[inline]
pub fn shootdown(end_of_interrupt: impl FnOnce()) {
    let cpu = cpu();
    add(&cpu.counts.taken, 1);
    match Own::if_kept() {
        Some(entered) => shootdown_timed(cpu, &entered, end_of_interrupt),
        None => serve_requests(end_of_interrupt),
    }
}

#[inline]
fn serve_requests(end_of_interrupt: impl FnOnce()) {
    // SAFETY: interrupts are off. The controller has taken the interrupt into service: one that is sent meanwhile
    // arrives again.
    unsafe { crate::engine().on_ipi() };
    end_of_interrupt();
}

// Not inlined: the registers that it needs would be saved by every interrupt.
#[cold]
#[inline(never)]
fn shootdown_timed(cpu: &Cpu, entered: &Own, end_of_interrupt: impl FnOnce()) {
    serve_requests(end_of_interrupt);
    let spent = handler_over(cpu, entered);
    add(&cpu.counts.taken_ticks, spent);
}

/// The timer interrupt of this CPU. Returns whether it was rearmed.
pub fn timer(cpu: &Cpu) -> bool {
    // Walks mask interrupts: this CPU is in none.
    crate::engine().quiescent();
    let by_jitter = crate::jitter::rearm(cpu);
    crate::linux::task::tick(cpu) || by_jitter
}

/// The end of an interrupt handler that began then: subtracts its time from the account of the interrupted code.
pub fn handler_over(cpu: &Cpu, entered: &Own) -> u64 {
    let spent = entered.elapsed(cpu);
    // After `elapsed`, which subtracts what nested handlers have added here.
    cpu.in_handlers.set(cpu.in_handlers.get() + spent);
    crate::measure::handler_took(cpu, entered);
    spent
}

/// A page fault: whether the interrupted code can continue. Interrupts are off.
pub fn page_fault(frame: &mut Frame, address: u64, access: Access) -> bool {
    let cpu = cpu();
    add(&cpu.counts.faults, 1);
    if let Some(space) = cpu.space.get()
        && address < crate::memory::USER_END
        && !cpu.faults_fail.get()
    {
        if frame.is_from_user() {
            crate::linux::inside::begin();
        }
        // From here on locks may be taken, so requests must be answered; the thread may sleep, and continue elsewhere.
        let masked = frame.interrupts_were_on();
        if masked {
            interrupts::enable();
        }
        let served = space.fault(address, access);
        if masked {
            interrupts::disable();
        }
        if served {
            return true;
        }
    }
    probe::recover(frame)
}
