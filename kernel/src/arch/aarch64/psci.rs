//! Firmware calls (PSCI), by the instruction that the device tree names.

use crate::arch::device_tree::Tree;
use core::arch::asm;
use core::sync::atomic::{AtomicBool, Ordering};

const CPU_ON: u64 = 0xC400_0003;
const CPU_OFF: u64 = 0x8400_0002;
const SYSTEM_OFF: u64 = 0x8400_0008;

/// Errors of [`cpu_on`]: the CPU is not off, or is being started.
pub const ALREADY_ON: i64 = -4;
/// See [`ALREADY_ON`].
pub const ON_PENDING: i64 = -5;

static BY_SMC: AtomicBool = AtomicBool::new(false);

/// The instruction for firmware calls.
pub fn set_up(tree: Tree) {
    let by_smc = tree.text("/psci", "method").is_some_and(|method| method == "smc");
    BY_SMC.store(by_smc, Ordering::Relaxed);
}

fn call(function: u64, arguments: [u64; 3]) -> i64 {
    let [a, b, c] = arguments;
    let answer: i64;
    // SAFETY: starts a CPU at its entry point, or ends the machine; all registers but the call's are kept.
    unsafe {
        if BY_SMC.load(Ordering::Relaxed) {
            asm!("smc #0", inout("x0") function => answer, in("x1") a, in("x2") b, in("x3") c, clobber_abi("C"));
        } else {
            asm!("hvc #0", inout("x0") function => answer, in("x1") a, in("x2") b, in("x3") c, clobber_abi("C"));
        }
    }
    answer
}

/// Starts the CPU with that affinity at a physical address, with `context` in X0.
///
/// # Errors
/// The firmware's error number.
pub fn cpu_on(affinity: u64, entry: u64, context: u64) -> Result<(), i64> {
    match call(CPU_ON, [affinity, entry, context]) {
        0 => Ok(()),
        error => Err(error),
    }
}

/// Switches this CPU off. Returns only if the firmware refuses: its error number.
pub fn cpu_off() -> i64 {
    call(CPU_OFF, [0; 3])
}

/// Switches the machine off.
pub fn system_off() {
    call(SYSTEM_OFF, [0; 3]);
}
