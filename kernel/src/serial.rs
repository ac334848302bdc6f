//! The serial port that everything is printed on, and the way out of the emulator.

use core::fmt::{self, Write};
use core::sync::atomic::{AtomicBool, Ordering};
use x86_64::instructions::port::Port;

/// Base of the first serial port.
const COM1: u16 = 0x3F8;
/// Where the launcher puts QEMU's `isa-debug-exit`.
const DEBUG_EXIT: u16 = 0xF4;

/// How a run ends. QEMU's exit status is twice this plus one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Status {
    /// 33: everything as it should be.
    Success = 0x10,
    /// 35: the kernel gave up.
    Failure = 0x11,
    /// 37: the oracle saw a violation.
    Violation = 0x12,
    /// 39: the command line asks for something that there is not.
    Usage = 0x13,
}

struct Serial;

/// Taken while a line is printed; a panic prints without it.
static BUSY: AtomicBool = AtomicBool::new(false);
/// Somebody prints the last line.
static ENDING: AtomicBool = AtomicBool::new(false);

/// 115200 baud, 8 bits, no parity, FIFO on.
pub fn set_up() {
    for (register, value) in [
        (1, 0x00),
        (3, 0x80),
        (0, 0x01),
        (1, 0x00),
        (3, 0x03),
        (2, 0xC7),
        (4, 0x0B),
    ] {
        // SAFETY: registers of the first serial port, which nothing else drives.
        unsafe { Port::<u8>::new(COM1 + register).write(value) };
    }
}

impl Write for Serial {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let (mut status, mut data) = (Port::<u8>::new(COM1 + 5), Port::<u8>::new(COM1));
        for byte in text.bytes() {
            // SAFETY: as in `set_up`; reading the line status has no effect on the port.
            while unsafe { status.read() } & 0x20 == 0 {
                core::hint::spin_loop();
            }
            // SAFETY: as in `set_up`.
            unsafe { data.write(byte) };
        }
        Ok(())
    }
}

/// Prints one line, whole.
pub fn print_line(text: fmt::Arguments<'_>) {
    while BUSY.swap(true, Ordering::Acquire) {
        crate::arch::relax();
    }
    let _ = writeln!(Serial, "{text}");
    BUSY.store(false, Ordering::Release);
}

/// Prints one line although another CPU may be printing: before the end of the world, which the first CPU to come here brings
/// about alone.
pub fn print_last(text: fmt::Arguments<'_>) {
    x86_64::instructions::interrupts::disable();
    if ENDING.swap(true, Ordering::AcqRel) {
        loop {
            core::hint::spin_loop();
        }
    }
    let _ = writeln!(Serial, "\n{text}");
}

/// Prints one line on the serial port.
#[macro_export]
macro_rules! println {
    ($($arg:tt)*) => { $crate::serial::print_line(format_args!($($arg)*)) };
}

/// Ends the emulator; where there is none, stops.
pub fn exit(status: Status) -> ! {
    // SAFETY: the port of `isa-debug-exit`; on a machine without it nothing listens there.
    unsafe { Port::<u32>::new(DEBUG_EXIT).write(status as u32) };
    loop {
        x86_64::instructions::interrupts::disable();
        x86_64::instructions::hlt();
    }
}
