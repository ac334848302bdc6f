//! The GICv3: IPIs and the timer interrupt.

use super::{boot, timer, traps};
use crate::cpu::controller_id;
use crate::memory::direct;
use crate::serial;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};
use shootdown_cpu::{Controller, ControllerId};

/// Distributor: control, with affinity routing, and interrupts of group 1.
const CONTROL: u64 = 0;
const BY_AFFINITY_GROUP_1: u32 = 0x12;
/// Each redistributor, and the next frame for its own interrupts.
const TYPE: u64 = 8;
const WAKER: u64 = 0x14;
const FRAME: u64 = 0x1_0000;
const GROUP: u64 = FRAME + 0x80;
const ENABLE: u64 = FRAME + 0x100;
/// Bytes of a redistributor.
const REDISTRIBUTOR: u64 = 0x2_0000;

/// Begin and end of the redistributors.
static REDISTRIBUTORS: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

fn write(register: u64, value: u32) {
    // SAFETY: a register of the controller, mapped as a device.
    unsafe { direct::<u32>(register).write_volatile(value) }
}

fn read(register: u64) -> u32 {
    // SAFETY: as in `write`; reading has no effect.
    unsafe { direct::<u32>(register).read_volatile() }
}

/// Finds the CPUs, the running one first. On that one, before the controller is used.
/// Gives up when the device tree has no GICv3.
pub fn set_up(boot_info: &boot::BootInfo) -> Vec<ControllerId> {
    let Some([(distributor, _), (first, length), ..]) = boot_info.tree.device(&["arm,gic-v3"]).as_deref().map(|all| {
        let [distributor, redistributors, ..] = all else {
            serial::give_up(format_args!(
                "device tree: the GICv3 has no `reg` with distributor and redistributors; use another device tree"
            ))
        };
        [*distributor, *redistributors]
    }) else {
        serial::give_up(format_args!(
            "device tree: no interrupt controller compatible with arm,gic-v3; start QEMU with -M virt,gic-version=3"
        ))
    };
    write(distributor + CONTROL, BY_AFFINITY_GROUP_1);
    REDISTRIBUTORS[0].store(first, Ordering::Relaxed);
    REDISTRIBUTORS[1].store(first + length, Ordering::Relaxed);
    boot_info.tree.cpus(boot_info.running)
}

/// The redistributor of this CPU, by its affinity.
fn redistributor() -> u64 {
    let [first, end] = [0, 1].map(|index: usize| REDISTRIBUTORS[index].load(Ordering::Relaxed));
    let me = Controller.this_cpu();
    let packed = (me & 0xFF_FFFF | me >> 8 & 0xFF00_0000) as u32;
    let mut all = (first..end).step_by(REDISTRIBUTOR as usize);
    let own = all.find(|&base| read(base + TYPE + 4) == packed);
    own.unwrap_or_else(|| {
        serial::give_up(format_args!(
            "GICv3: no redistributor at {first:#x} to {end:#x} for the CPU with affinity {me:#x}; start fewer CPUs"
        ))
    })
}

/// Enables this CPU's part: its interrupts in group 1, of every priority.
pub fn enable() {
    let base = redistributor();
    write(base + WAKER, 0);
    while read(base + WAKER) & 1 << 2 != 0 {
        super::interrupts::pause();
    }
    write(base + GROUP, u32::MAX);
    write(
        base + ENABLE,
        1 << traps::SHOOTDOWN | 1 << traps::JOB | 1 << timer::INTERRUPT,
    );
    // SAFETY: ICC_SRE_EL1, by system registers; ICC_PMR_EL1, every priority; ICC_IGRPEN1_EL1.
    unsafe {
        core::arch::asm!(
            "msr S3_0_C12_C12_5, {seven}",
            "isb",
            "msr S3_0_C4_C6_0, {all}",
            "msr S3_0_C12_C12_7, {one}",
            "isb",
            seven = in(reg) 7_u64,
            all = in(reg) 0xFF_u64,
            one = in(reg) 1_u64,
            options(nostack)
        );
    }
}

/// Raises an interrupt on these CPUs. Earlier stores are visible before it arrives.
#[inline]
pub fn send(cpus: impl IntoIterator<Item = usize>, interrupt: u8) {
    use shootdown::Facade;
    // The engine has done so for its own stores; jobs and wake-ups have not.
    if interrupt != traps::SHOOTDOWN {
        shootdown_cpu::BareMetal::before_ipi();
    }
    Controller.send(cpus.into_iter().map(controller_id), interrupt);
}

/// The interrupt that an acknowledgement would return (ICC_HPPIR1_EL1).
pub fn pending() -> u32 {
    let number: u64;
    // SAFETY: reads a register.
    unsafe { core::arch::asm!("mrs {}, S3_0_C12_C12_2", out(reg) number, options(nostack)) };
    number as u32 & 0xFF_FFFF
}
