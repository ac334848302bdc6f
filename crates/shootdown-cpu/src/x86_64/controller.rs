//! Interrupts by the local APIC.

use super::instructions::{mfence_lfence, pause, read_msr, write_msr};
use shootdown_arch::x86_64::icr::{Command, MSR, PENDING};

/// How the controller identifies a CPU: its APIC id, which differs from the kernel's CPU number.
pub type ControllerId = u32;

/// The local APIC of each CPU, in xAPIC or x2APIC mode.
#[derive(Debug, Clone, Copy)]
pub enum Controller {
    /// Through registers in memory, mapped uncached at this address: 4 KiB.
    XApic(*mut u32),
    /// Through model-specific registers (CPUID 1, ECX bit 21).
    X2Apic,
}

// SAFETY: every CPU finds its own controller at the address.
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
    /// The controller's id of this CPU.
    #[inline]
    pub fn this_cpu(&self) -> ControllerId {
        match self {
            // SAFETY: a register of this CPU's controller.
            Controller::XApic(base) => unsafe { base.byte_add(ID).read_volatile() >> 24 },
            Controller::X2Apic => read_msr(msr(ID)) as u32,
        }
    }

    /// Raises the interrupt with vector `interrupt`, 16 or above, on `cpus`. The handlers see earlier stores: a write
    /// to uncached memory is ordered after them. A write to a model-specific register is not, so fences precede it.
    ///
    /// # Panics
    /// On a vector that the controller does not accept, and on an id that its mode cannot name.
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
                // Required by the manuals. A compiler may use a locked instruction for its own fence, which is neither.
                mfence_lfence();
                write_msr(MSR, value);
            }
        }
    }

    /// Acknowledges the current interrupt (end of interrupt). Call it before or after `Engine::on_ipi`.
    #[inline]
    pub fn acknowledge(&self) {
        match self {
            // SAFETY: a register of this CPU's controller.
            Controller::XApic(base) => unsafe { base.byte_add(END_OF_INTERRUPT).write_volatile(0) },
            Controller::X2Apic => write_msr(msr(END_OF_INTERRUPT), 0),
        }
    }
}

/// Two registers, and handlers send too, so this runs with interrupts off.
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
