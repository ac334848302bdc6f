//! Interrupts by the local APIC.

use super::instructions::{mfence_lfence, pause, read_msr, write_msr};
use shootdown_arch::x86_64::icr::{Command, MSR, PENDING};

/// How the controller knows a CPU: its APIC id, which is not the number that the kernel gives it.
pub type ControllerId = u32;

/// The local APIC of each CPU, in one of its modes.
#[derive(Debug, Clone, Copy)]
pub enum Controller {
    /// By registers in memory, mapped uncached at this address: 4 KiB.
    XApic(*mut u32),
    /// By model-specific registers (CPUID 1, ECX bit 21).
    X2Apic,
}

// SAFETY: at the address every CPU finds its own controller.
unsafe impl Send for Controller {}
// SAFETY: as for `Send`.
unsafe impl Sync for Controller {}

/// Registers, by their offset in memory; the model-specific one is 0x800 + offset / 16.
const ID: usize = 0x20;
const END_OF_INTERRUPT: usize = 0xB0;
const COMMAND: usize = 0x300;
const COMMAND_HIGH: usize = 0x310;

const fn msr(register: usize) -> u32 {
    0x800 + (register / 16) as u32
}

impl Controller {
    /// What the controller calls this CPU.
    #[inline]
    pub fn this_cpu(&self) -> ControllerId {
        match self {
            // SAFETY: a register of this CPU's controller.
            Controller::XApic(base) => unsafe { base.byte_add(ID).read_volatile() >> 24 },
            Controller::X2Apic => read_msr(msr(ID)) as u32,
        }
    }

    /// Raises the interrupt with vector `interrupt`, 16 or above, on `cpus`. Earlier stores are seen by the handlers: a
    /// write to uncached memory is ordered after them, and a write to a model-specific register, which is not, comes
    /// after fences.
    ///
    /// # Panics
    /// On a vector that the controller does not take, and on an id that its mode cannot name.
    #[inline]
    pub fn send(&self, cpus: impl IntoIterator<Item = ControllerId>, interrupt: u8) {
        let command = Command::interrupt(interrupt).expect("vectors from 16 on");
        cpus.into_iter().for_each(|cpu| self.command(cpu, command));
    }

    /// Sends one command: also NMI, INIT and STARTUP.
    ///
    /// # Panics
    /// As [`send`](Self::send).
    #[inline]
    pub fn command(&self, cpu: ControllerId, command: Command) {
        match self {
            Controller::XApic(base) => xapic(*base, cpu, command),
            Controller::X2Apic => {
                let value = command.x2apic(cpu).expect("an id of one CPU");
                // What the manuals ask for. A compiler may make a locked instruction of its own fence, which is
                // neither.
                mfence_lfence();
                write_msr(MSR, value);
            }
        }
    }

    /// Acknowledges the interrupt that is being handled (end of interrupt). Before `Engine::on_ipi`, or after.
    #[inline]
    pub fn acknowledge(&self) {
        match self {
            // SAFETY: a register of this CPU's controller.
            Controller::XApic(base) => unsafe { base.byte_add(END_OF_INTERRUPT).write_volatile(0) },
            Controller::X2Apic => write_msr(msr(END_OF_INTERRUPT), 0),
        }
    }
}

/// Two registers, and handlers send too: so with interrupts off.
#[inline]
fn xapic(base: *mut u32, cpu: ControllerId, command: Command) {
    let high = Command::high(cpu).expect("an id of one CPU, which fits 8 bits");
    let saved = super::interrupts_off();
    // SAFETY: registers of this CPU's controller, mapped uncached.
    unsafe {
        while base.byte_add(COMMAND).read_volatile() & PENDING != 0 {
            pause();
        }
        base.byte_add(COMMAND_HIGH).write_volatile(high);
        base.byte_add(COMMAND).write_volatile(command.low());
    }
    super::interrupts_restore(saved);
}
