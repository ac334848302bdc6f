//! The 16550 of the board, and exit from QEMU: its test device, which passes a status on.

use super::interrupts;
use crate::memory;
use crate::serial::{Line, Status};
use core::fmt;
use shootdown_cpu::sbi;

/// Its address on QEMU's virt board, for output before the device tree is read.
const UART: u64 = 0x1000_0000;
/// Registers: data, and the line's status with bit 5 set when another byte can be written.
const DATA: u64 = 0;
const STATUS: u64 = 5;
/// Register that ends QEMU: takes the status, and this word.
const TEST: u64 = 0x10_0000;
const END: u32 = 0x3333;
/// System reset, "shutdown".
const RESET: u64 = 0x5352_5354;

/// OpenSBI has set it up.
pub fn set_up() {}

/// Writes to the port, which is the same for both kinds of output.
pub fn write(_line: Line, bytes: &[u8]) {
    for &byte in bytes {
        // SAFETY: registers of the port; no other code uses it.
        unsafe {
            while memory::direct::<u8>(UART + STATUS).read_volatile() & 1 << 5 == 0 {
                interrupts::pause();
            }
            memory::direct::<u8>(UART + DATA).write_volatile(byte);
        }
    }
}

/// There is no screen.
pub fn show(_text: fmt::Arguments<'_>) {}

/// Ends the emulator with the status that QEMU has for the x86-64 kernel. Without the device it switches the machine
/// off.
pub fn exit(status: Status) -> ! {
    let word = (status as u32 * 2 + 1) << 16 | END;
    // SAFETY: the test device of the board.
    unsafe { memory::direct::<u32>(TEST).write_volatile(word) };
    // SAFETY: ends the machine.
    let _refused = unsafe { sbi::call(RESET, 0, [0; 5]) };
    interrupts::stop()
}
