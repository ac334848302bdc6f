//! What is printed, line by line, and the way out of the emulator.

use crate::arch::console::{self, Line};
use crate::arch::interrupts;
use core::fmt::{self, Write};
use core::sync::atomic::{AtomicBool, Ordering};

pub use crate::arch::console::{exit, set_up};

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

/// Taken while a line is printed; a panic prints without it.
static BUSY: AtomicBool = AtomicBool::new(false);
/// Somebody prints the last line.
static ENDING: AtomicBool = AtomicBool::new(false);

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        console::write(*self, text.as_bytes());
        Ok(())
    }
}

/// Prints one line, whole.
pub fn print_line(text: fmt::Arguments<'_>) {
    alone(|| {
        console::show(text);
        writeln!(Line::First, "{text}")
    })
    .ok();
}

/// Prints one line, whole, on the second port.
pub fn report_line(text: fmt::Arguments<'_>) {
    alone(|| writeln!(Line::Second, "{text}")).ok();
}

/// Prints what a program has written, on the second port.
pub fn report_bytes(bytes: &[u8]) {
    alone(|| console::write(Line::Second, bytes));
}

fn alone<T>(print: impl FnOnce() -> T) -> T {
    while BUSY.swap(true, Ordering::Acquire) {
        crate::time::relax();
    }
    let result = print();
    BUSY.store(false, Ordering::Release);
    result
}

/// Prints one line although another CPU may be printing, or this one: before the end of the world, which the first CPU
/// to come here brings about alone.
pub fn print_last(text: fmt::Arguments<'_>) {
    interrupts::disable();
    if ENDING.swap(true, Ordering::AcqRel) {
        loop {
            interrupts::pause();
        }
    }
    // Nobody begins to print any more.
    take_at_once();
    let _ = writeln!(Line::First, "\n{text}");
    console::show(text);
}

/// Prints one line, by whoever must take no lock: a hook of the engine.
pub fn print_at_once(text: fmt::Arguments<'_>) {
    let mine = take_at_once();
    let _ = writeln!(Line::First, "{text}");
    if mine {
        console::show(text);
        BUSY.store(false, Ordering::Release);
    }
}

/// Whoever prints may finish, unless that is this CPU itself. Whether nobody else prints.
fn take_at_once() -> bool {
    for _ in 0..LAST_LOOKS {
        if !BUSY.swap(true, Ordering::Acquire) {
            return true;
        }
        crate::time::relax();
    }
    false
}

/// Prints one line on the serial port.
#[macro_export]
macro_rules! println {
    ($($arg:tt)*) => { $crate::serial::print_line(format_args!($($arg)*)) };
}
