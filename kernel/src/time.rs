//! The counter, its unit, and yielding.
//!
//! With `-icount` QEMU's counter is virtual nanoseconds, and each instruction takes 2^shift of them. The counter
//! shifted down counts the instructions of all CPUs together exactly, because one thread runs them in turn. An emulated
//! CPU gives up its turn at `pause` and `hlt`, otherwise only when a timer of any CPU expires, and every 100 virtual
//! milliseconds. So the time of the others can be measured here and subtracted: see [`Own`].

use crate::arch::{interrupts, timer};
use crate::cpu::{Cpu, cpu};
use core::sync::atomic::{AtomicU8, AtomicU64, Ordering};

pub use crate::arch::timer::ticks;

/// Ticks per second.
static HERTZ: AtomicU64 = AtomicU64::new(1_000_000_000);
/// log2 of the ticks of one instruction, plus one; 0 when instructions cannot be counted.
static SHIFT: AtomicU64 = AtomicU64::new(0);

/// Additional work of a CPU when it yields: one word, because each wait for a flush reads it.
static CHORES: AtomicU8 = AtomicU8::new(0);

/// CPUs keep accounts of their time: see [`Own`]. It costs instructions at each yield and each interrupt.
pub const ACCOUNTS: u8 = 1;
/// Waiters carry out emulated broadcasts.
pub const MAIL: u8 = 2;
/// PAUSE leaves the emulator's loop and takes the lock under which interrupts are sent, as in QEMU when it emulates
/// CPUs in parallel. Waiters then execute it only once in [`LOOKS`].
pub const COSTLY_PAUSE: u8 = 4;

/// Polls of a waiter for each PAUSE, if PAUSE is expensive. 1 and 64 were compared, by `cargo xtask linux-baseline
/// --only rates`: with 1 `tlb_flush2` makes two thirds of the operations.
pub const LOOKS: u32 = 64;

/// Sets the additional work of CPUs.
pub fn take_up(chore: u8) {
    CHORES.fetch_or(chore, Ordering::Relaxed);
}

/// The additional work.
#[inline]
pub fn chores() -> u8 {
    CHORES.load(Ordering::Relaxed)
}

/// With `icount`, from the launcher; else from the machine.
pub fn set_up(icount: Option<u64>) {
    if let Some(shift) = icount {
        SHIFT.store(shift + 1, Ordering::Relaxed);
    } else if timer::is_pause_costly() {
        take_up(COSTLY_PAUSE);
    }
    HERTZ.store(timer::hertz(icount.is_some()), Ordering::Relaxed);
}

/// Ticks per second.
pub fn hertz() -> u64 {
    HERTZ.load(Ordering::Relaxed)
}

/// log2 of the ticks that an instruction takes, where it takes a fixed time.
pub fn instruction_shift() -> Option<u32> {
    SHIFT.load(Ordering::Relaxed).checked_sub(1).map(|shift| shift as u32)
}

/// Nanoseconds since the machine was switched on.
#[inline]
pub fn now_ns() -> u64 {
    let hertz = hertz();
    if hertz == 1_000_000_000 {
        return ticks();
    }
    (u128::from(ticks()) * 1_000_000_000 / u128::from(hertz)) as u64
}

/// Yields the emulator's turn to other CPUs, and subtracts the time they use from this CPU's account.
#[inline]
pub fn relax() {
    relax_with(chores());
}

/// The same, for a caller that has just read the additional work.
#[inline]
pub fn relax_with(chores: u8) {
    let begun = (chores & ACCOUNTS != 0).then(|| Own::now(cpu()));
    interrupts::pause();
    if let Some(begun) = begun {
        begun.took_turn(cpu());
    }
}

/// Sleeps until an interrupt. Interrupts are off, and off again when it returns.
pub fn sleep() {
    let begun = Own::if_kept();
    interrupts::sleep();
    if let Some(begun) = begun {
        begun.took_turn(cpu());
    }
}

/// A moment on one CPU's own account, which excludes other CPUs' time in its yields, and its interrupt handlers.
pub struct Own {
    ticks: u64,
    away: u64,
    in_handlers: u64,
}

impl Own {
    /// Now, on this CPU, if it keeps accounts.
    #[inline]
    pub fn if_kept() -> Option<Own> {
        (chores() & ACCOUNTS != 0).then(|| Own::now(cpu()))
    }

    /// Now, on this CPU.
    #[inline]
    pub fn now(cpu: &Cpu) -> Own {
        Own {
            ticks: ticks(),
            away: cpu.away.get(),
            in_handlers: cpu.in_handlers.get(),
        }
    }

    /// Ticks of this CPU's own since then.
    #[inline]
    pub fn elapsed(&self, cpu: &Cpu) -> u64 {
        let others = cpu.away.get() - self.away + cpu.in_handlers.get() - self.in_handlers;
        (ticks() - self.ticks).saturating_sub(others)
    }

    /// All that time belonged to other CPUs.
    #[inline]
    fn took_turn(&self, cpu: &Cpu) {
        let spent = self.elapsed(cpu);
        cpu.away.set(cpu.away.get() + spent);
    }

    /// Ticks of the machine since then.
    #[inline]
    pub fn machine(&self) -> u64 {
        ticks() - self.ticks
    }
}
