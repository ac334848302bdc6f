//! The local interrupt controller of each CPU: IPIs and the one-shot timer. By registers in memory (xAPIC), or by
//! model-specific registers if the processor has them (x2APIC).

use super::{acpi, boot, features, traps};
use crate::cpu::{self, controller_id};
use crate::memory::direct;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};
use shootdown_arch::x86_64::icr::Command;
use shootdown_cpu::{Controller, ControllerId};
use x86_64::instructions::port::Port;
use x86_64::registers::model_specific::Msr;

/// Model-specific register: base and mode.
const BASE: u32 = 0x1B;
const ENABLED: u64 = 1 << 11;
const X2APIC: u64 = 1 << 10;
/// Default address of the registers.
const REGISTERS: u64 = 0xFEE0_0000;

/// Registers, by their offset in memory; the model-specific one is 0x800 + offset / 16.
const SPURIOUS: u32 = 0xF0;
const TIMER: u32 = 0x320;
const TIMER_COUNT: u32 = 0x380;
const TIMER_DIVIDE: u32 = 0x3E0;

/// Whether the registers are model-specific.
static USES_MSRS: AtomicBool = AtomicBool::new(false);

fn by_msr() -> bool {
    USES_MSRS.load(Ordering::Relaxed)
}

fn write(register: u32, value: u32) {
    if by_msr() {
        // SAFETY: an x2APIC register, in x2APIC mode, and a value that it takes.
        return unsafe { Msr::new(0x800 + register / 16).write(u64::from(value)) };
    }
    // SAFETY: a register of this CPU's controller, mapped uncached.
    unsafe { direct::<u32>(REGISTERS + u64::from(register)).write_volatile(value) }
}

/// Finds the CPUs, the running one first. On that one, before the controller is used.
pub fn set_up(boot_info: &boot::BootInfo) -> Vec<ControllerId> {
    choose_mode();
    features::get();
    enable();
    acpi::cpus(boot_info.root_pointer, controller().this_cpu())
}

fn choose_mode() {
    USES_MSRS.store(features::get().x2apic, Ordering::Relaxed);
    // The legacy interrupt controllers: moved off the exception vectors, and masked.
    for (port, value) in [
        (0x20, 0x11),
        (0xA0, 0x11),
        (0x21, 0x20),
        (0xA1, 0x28),
        (0x21, 4),
        (0xA1, 2),
        (0x21, 1),
        (0xA1, 1),
        (0x21, 0xFF),
        (0xA1, 0xFF),
    ] {
        // SAFETY: the command and mask registers of the two 8259s, which no other code uses.
        unsafe { Port::<u8>::new(port).write(value) };
    }
}

/// Switches this CPU's controller on.
pub fn enable() {
    let mut base = Msr::new(BASE);
    // SAFETY: enabling it, in the mode that the processor supports.
    unsafe {
        let mode = if by_msr() { ENABLED | X2APIC } else { ENABLED };
        let value = base.read();
        base.write(value | ENABLED);
        base.write(value | mode);
    }
    write(SPURIOUS, 0x100 | u32::from(traps::SPURIOUS));
    write(TIMER_DIVIDE, 0b1011);
    write(TIMER, u32::from(traps::TIMER));
}

#[inline]
fn controller() -> Controller {
    if by_msr() {
        Controller::X2Apic
    } else {
        Controller::XApic(direct(REGISTERS))
    }
}

/// Must be called by every handler of an interrupt that came through the controller.
#[inline]
pub fn end_of_interrupt() {
    controller().acknowledge();
}

/// Raises the timer interrupt here once, after this many bus cycles (nanoseconds, under QEMU); 0 stops it.
#[inline]
pub fn arm_timer(count: u32) {
    write(TIMER_COUNT, count);
}

/// Raises `vector` on these CPUs. Earlier stores are visible before it arrives.
#[inline]
pub fn send(cpus: impl IntoIterator<Item = usize>, vector: u8) {
    // A CPU's number is not its number in the interrupt controller (regression 19).
    cpus.into_iter().for_each(|cpu| send_one(controller_id(cpu), vector));
}

fn send_one(id: ControllerId, vector: u8) {
    controller().send([id], vector);
}

/// Sends an NMI to every other CPU, as firmware may at any time, and waits for the answers.
pub fn survive_nmis() {
    let all = cpu::all();
    for other in &all[1..] {
        controller().command(controller_id(other.id), Command::NMI);
    }
    crate::smp::on_all(all.len(), |_| {});
}

/// Resets a CPU.
pub fn send_init(apic_id: u32) {
    controller().command(apic_id, Command::INIT);
}

/// Starts a CPU at a page below 1 MiB.
pub fn send_startup(apic_id: u32, page: u64) {
    controller().command(apic_id, Command::startup(page).expect("a page below 1 MiB"));
}
