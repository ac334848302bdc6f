//! Serial ports, the screen, and the ways out of QEMU and Bochs.

use super::screen;
use crate::serial::{Line, Status};
use core::fmt::{self, Write};
use core::sync::atomic::{AtomicBool, Ordering};
use x86_64::instructions::port::Port;

/// The first register of a serial port.
fn base(line: Line) -> u16 {
    match line {
        Line::First => 0x3F8,
        Line::Second => 0x2F8,
    }
}

/// Port of QEMU's `isa-debug-exit`, as the launcher configures it.
const DEBUG_EXIT: u16 = 0xF4;
/// Port through which Bochs is ended. It passes no status on.
const BOCHS_EXIT: (u16, &[u8]) = (0x8900, b"Shutdown");

/// Whether to end Bochs.
static IN_BOCHS: AtomicBool = AtomicBool::new(false);

/// 115200 baud, 8 bits, no parity, FIFO on.
pub fn set_up() {
    for line in [Line::First, Line::Second] {
        for (register, value) in [
            (1, 0x00),
            (3, 0x80),
            (0, 0x01),
            (1, 0x00),
            (3, 0x03),
            (2, 0xC7),
            (4, 0x0B),
        ] {
            // SAFETY: registers of a serial port, which no other code uses; without a port the writes have no effect.
            unsafe { Port::<u8>::new(base(line) + register).write(value) };
        }
    }
}

/// Writes to a port.
pub fn write(line: Line, bytes: &[u8]) {
    let (mut status, mut data) = (Port::<u8>::new(base(line) + 5), Port::<u8>::new(base(line)));
    for &byte in bytes {
        // SAFETY: as in `set_up`; reading the line status has no effect on the port.
        while unsafe { status.read() } & 0x20 == 0 {
            core::hint::spin_loop();
        }
        // SAFETY: as in `set_up`.
        unsafe { data.write(byte) };
    }
}

/// Shows a line on the screen, if there is one.
pub fn show(text: fmt::Arguments<'_>) {
    screen::line(text);
}

/// From here on [`exit`] ends Bochs, after a line `status N`, the N of QEMU's exit status.
pub fn in_bochs() {
    IN_BOCHS.store(true, Ordering::Relaxed);
}

/// Ends the emulator; without one, stops the CPU.
pub fn exit(status: Status) -> ! {
    if IN_BOCHS.load(Ordering::Relaxed) {
        let _ = writeln!(Line::First, "status {}", status as u32 * 2 + 1);
        // Until the last character is sent.
        // SAFETY: as in `write`.
        while unsafe { Port::<u8>::new(base(Line::First) + 5).read() } & 0x40 == 0 {
            core::hint::spin_loop();
        }
        let (port, word) = BOCHS_EXIT;
        for &letter in word {
            // SAFETY: a port of Bochs, which is running, as the command line says.
            unsafe { Port::<u8>::new(port).write(letter) };
        }
    }
    // SAFETY: the port of `isa-debug-exit`; on a machine without it the write has no effect.
    unsafe { Port::<u32>::new(DEBUG_EXIT).write(status as u32) };
    super::interrupts::stop()
}
