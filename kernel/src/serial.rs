//! Output, line by line, and exit from the emulator.

use crate::arch::console;
use crate::arch::interrupts;
use core::fmt::{self, Write};
use core::sync::atomic::{AtomicBool, Ordering};

pub use crate::arch::console::{exit, set_up};

/// How a run ends. QEMU's exit status is twice this plus one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Status {
    /// 33: success.
    Success = 0x10,
    /// 35: the kernel gave up.
    Failure = 0x11,
    /// 37: the oracle saw a violation.
    Violation = 0x12,
    /// 39: the command line asks for something that does not exist.
    Usage = 0x13,
}

/// The kinds of output, each for a serial port if there are two.
#[derive(Clone, Copy)]
pub enum Line {
    /// The kernel's output.
    First,
    /// The output of programs, and the reports about them.
    Second,
}

/// Polls by a printing CPU while another prints. Far longer than a line takes (a PAUSE is 10 to 140 cycles), and
/// bounded in case that CPU is dead. Chosen, not measured.
const LAST_LOOKS: u32 = 20_000;

/// Held while a line is printed; a panic prints without it.
static BUSY: AtomicBool = AtomicBool::new(false);
/// A CPU prints the last line.
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

/// Prints a program's output, on the second port.
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

/// Prints one line although another CPU may be printing, or this one. For the final message, which only the first CPU
/// to come here prints.
pub fn print_last(text: fmt::Arguments<'_>) {
    interrupts::disable();
    if ENDING.swap(true, Ordering::AcqRel) {
        loop {
            interrupts::pause();
        }
    }
    // No CPU begins to print after this.
    take_at_once();
    let _ = writeln!(Line::First, "\n{text}");
    console::show(text);
}

/// Ends the run: the machine lacks something. The text says what, where it was looked for, and what to do.
pub fn give_up(text: fmt::Arguments<'_>) -> ! {
    print_last(format_args!("shootdown kernel: {text}"));
    exit(Status::Failure)
}

/// Prints one line, for callers that must take no lock: a hook of the engine.
pub fn print_at_once(text: fmt::Arguments<'_>) {
    let mine = take_at_once();
    let _ = writeln!(Line::First, "{text}");
    if mine {
        console::show(text);
        BUSY.store(false, Ordering::Release);
    }
}

/// Lets a printing CPU finish, unless that is this CPU itself. Returns whether no other CPU prints.
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
