//! The PL011 of the board, and exit from QEMU: semihosting, which passes a status on.

use super::{interrupts, psci};
use crate::memory;
use crate::serial::{Line, Status};
use core::fmt;
use core::sync::atomic::{AtomicBool, Ordering};

/// Its address on QEMU's virt board, for output before the device tree is read.
const PL011: u64 = 0x0900_0000;
/// Registers: data, and flags with bit 5 set while the FIFO is full.
const DATA: u64 = 0;
const FLAGS: u64 = 0x18;

static ENDS: AtomicBool = AtomicBool::new(false);

/// The loader has set it up.
pub fn set_up() {}

/// Writes to the port, which is the same for both kinds of output.
pub fn write(_line: Line, bytes: &[u8]) {
    for &byte in bytes {
        // SAFETY: registers of the PL011, mapped as a device; no other code uses it.
        unsafe {
            while memory::direct::<u32>(PL011 + FLAGS).read_volatile() & 1 << 5 != 0 {
                interrupts::pause();
            }
            memory::direct::<u32>(PL011 + DATA).write_volatile(u32::from(byte));
        }
    }
}

/// There is no screen.
pub fn show(_text: fmt::Arguments<'_>) {}

/// Ends the emulator with the status that QEMU has for the x86-64 kernel. Without semihosting, which raises an
/// exception, it switches the machine off.
pub fn exit(status: Status) -> ! {
    if !ENDS.swap(true, Ordering::AcqRel) {
        // ADP_Stopped_ApplicationExit, and the status.
        let block = [0x2_0026, status as u64 * 2 + 1];
        // SAFETY: SYS_EXIT does not return, and reads the block.
        unsafe { core::arch::asm!("hlt #0xF000", in("x0") 0x18, in("x1") block.as_ptr(), options(nostack)) };
    }
    psci::system_off();
    interrupts::stop()
}

/// Whether the machine is being switched off: an exception then means that there is no semihosting.
pub fn ends() -> bool {
    ENDS.load(Ordering::Acquire)
}
