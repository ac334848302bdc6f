//! The serial port that everything is printed on (and the screen, where there is one), and the way out of the emulator.

use core::fmt::{self, Write};
use core::sync::atomic::{AtomicBool, Ordering};
use x86_64::instructions::port::Port;

/// Base of the first serial port: what the kernel prints.
const COM1: u16 = 0x3F8;
/// Base of the second: what programs print, and what is reported about them.
const COM2: u16 = 0x2F8;
/// Where the launcher puts QEMU's `isa-debug-exit`.
const DEBUG_EXIT: u16 = 0xF4;

/// Where Bochs waits for a word that ends it. It passes no status on.
const BOCHS_EXIT: (u16, &[u8]) = (0x8900, b"Shutdown");

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

/// Looks of a CPU that prints at once, while another prints: far longer than a line takes (a PAUSE is 10 to 140
/// cycles), and an end should that CPU be dead. A choice, not a measurement.
const LAST_LOOKS: u32 = 20_000;

struct Serial(u16);

/// Taken while a line is printed; a panic prints without it.
static BUSY: AtomicBool = AtomicBool::new(false);
/// Bochs is to be ended.
static IN_BOCHS: AtomicBool = AtomicBool::new(false);
/// Somebody prints the last line.
static ENDING: AtomicBool = AtomicBool::new(false);

/// 115200 baud, 8 bits, no parity, FIFO on.
pub fn set_up() {
    set_up_port(COM1);
    set_up_port(COM2);
}

fn set_up_port(base: u16) {
    for (register, value) in [
        (1, 0x00),
        (3, 0x80),
        (0, 0x01),
        (1, 0x00),
        (3, 0x03),
        (2, 0xC7),
        (4, 0x0B),
    ] {
        // SAFETY: registers of a serial port, which nothing else drives; where there is none, nothing listens.
        unsafe { Port::<u8>::new(base + register).write(value) };
    }
}

impl Write for Serial {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.write_bytes(text.as_bytes());
        Ok(())
    }
}

impl Serial {
    fn write_bytes(&mut self, bytes: &[u8]) {
        let (mut status, mut data) = (Port::<u8>::new(self.0 + 5), Port::<u8>::new(self.0));
        for &byte in bytes {
            // SAFETY: as in `set_up`; reading the line status has no effect on the port.
            while unsafe { status.read() } & 0x20 == 0 {
                core::hint::spin_loop();
            }
            // SAFETY: as in `set_up`.
            unsafe { data.write(byte) };
        }
    }
}

/// Prints one line, whole.
pub fn print_line(text: fmt::Arguments<'_>) {
    alone(|| {
        crate::screen::line(text);
        writeln!(Serial(COM1), "{text}")
    })
    .ok();
}

/// Prints one line, whole, on the second port.
pub fn report_line(text: fmt::Arguments<'_>) {
    alone(|| writeln!(Serial(COM2), "{text}")).ok();
}

/// Prints what a program has written, on the second port.
pub fn report_bytes(bytes: &[u8]) {
    alone(|| Serial(COM2).write_bytes(bytes));
}

fn alone<T>(print: impl FnOnce() -> T) -> T {
    while BUSY.swap(true, Ordering::Acquire) {
        crate::arch::relax();
    }
    let result = print();
    BUSY.store(false, Ordering::Release);
    result
}

/// Prints one line although another CPU may be printing, or this one: before the end of the world, which the first CPU
/// to come here brings about alone.
pub fn print_last(text: fmt::Arguments<'_>) {
    x86_64::instructions::interrupts::disable();
    if ENDING.swap(true, Ordering::AcqRel) {
        loop {
            core::hint::spin_loop();
        }
    }
    // Nobody begins to print any more.
    take_at_once();
    let _ = writeln!(Serial(COM1), "\n{text}");
    crate::screen::line(text);
}

/// Prints one line, by whoever must take no lock: a hook of the engine.
pub fn print_at_once(text: fmt::Arguments<'_>) {
    let mine = take_at_once();
    let _ = writeln!(Serial(COM1), "{text}");
    if mine {
        crate::screen::line(text);
        BUSY.store(false, Ordering::Release);
    }
}

/// Whoever prints may finish, unless that is this CPU itself. Whether nobody else prints.
fn take_at_once() -> bool {
    for _ in 0..LAST_LOOKS {
        if !BUSY.swap(true, Ordering::Acquire) {
            return true;
        }
        crate::arch::relax();
    }
    false
}

/// Prints one line on the serial port.
#[macro_export]
macro_rules! println {
    ($($arg:tt)*) => { $crate::serial::print_line(format_args!($($arg)*)) };
}

/// From now on [`exit`] ends Bochs, after a line `status N`, the N that QEMU would exit with.
pub fn in_bochs() {
    IN_BOCHS.store(true, Ordering::Relaxed);
}

/// Ends the emulator; where there is none, stops.
pub fn exit(status: Status) -> ! {
    if IN_BOCHS.load(Ordering::Relaxed) {
        let _ = writeln!(Serial(COM1), "status {}", status as u32 * 2 + 1);
        // Until the last letter is out.
        // SAFETY: as in `write_bytes`.
        while unsafe { Port::<u8>::new(COM1 + 5).read() } & 0x40 == 0 {
            core::hint::spin_loop();
        }
        let (port, word) = BOCHS_EXIT;
        for &letter in word {
            // SAFETY: a port of Bochs, in which this runs, as the command line says.
            unsafe { Port::<u8>::new(port).write(letter) };
        }
    }
    // SAFETY: the port of `isa-debug-exit`; on a machine without it nothing listens there.
    unsafe { Port::<u32>::new(DEBUG_EXIT).write(status as u32) };
    loop {
        x86_64::instructions::interrupts::disable();
        x86_64::instructions::hlt();
    }
}
