//! The counter, what it means, and yielding.
//!
//! With `-icount` QEMU's counter is virtual nanoseconds, and each instruction takes 2^shift of them: the counter
//! shifted down counts instructions, exactly, of all CPUs together, because one thread runs them in turn. An emulated
//! CPU gives up its turn at `pause` and `hlt` (else only when a timer of any CPU falls due, and every 100 virtual
//! milliseconds), so what the others do meanwhile can be seen from here and taken off: that is [`Own`].

use crate::arch::{interrupts, timer};
use crate::cpu::{Cpu, cpu};
use core::sync::atomic::{AtomicU8, AtomicU64, Ordering};

pub use crate::arch::timer::ticks;

/// Ticks per second.
static HERTZ: AtomicU64 = AtomicU64::new(1_000_000_000);
/// log2 of the ticks of one instruction, plus one; 0 when instructions cannot be counted.
static SHIFT: AtomicU64 = AtomicU64::new(0);

/// What else a CPU has to do when it yields: one word, because each wait for a flush reads it.
static CHORES: AtomicU8 = AtomicU8::new(0);

/// CPUs keep accounts of their time: see [`Own`]. It costs instructions at each yield and each interrupt.
pub const ACCOUNTS: u8 = 1;
/// Whoever waits carries out broadcasts that are emulated.
pub const MAIL: u8 = 2;
/// PAUSE leaves the emulator's loop and takes the lock that interrupts are sent under: so it is in QEMU when it
/// emulates CPUs in parallel. Whoever waits executes it once in [`LOOKS`] only.
pub const DEAR_PAUSE: u8 = 4;

/// Looks of a waiter for each PAUSE, where PAUSE is expensive. 1 and 64 were compared, by `cargo xtask linux-baseline
/// --only rates`: with 1 `tlb_flush2` makes two thirds of the operations.
pub const LOOKS: u32 = 64;

/// From now on CPUs do this.
pub fn take_up(chore: u8) {
    CHORES.fetch_or(chore, Ordering::Relaxed);
}

/// What they do.
#[inline]
pub fn chores() -> u8 {
    CHORES.load(Ordering::Relaxed)
}

/// With `icount`, takes the launcher's word for it; else the machine's.
pub fn set_up(icount: Option<u64>) {
    if let Some(shift) = icount {
        SHIFT.store(shift + 1, Ordering::Relaxed);
    } else if timer::is_pause_dear() {
        take_up(DEAR_PAUSE);
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

/// Lets other CPUs have the emulator's turn, and takes the time they use off this CPU's account.
#[inline]
pub fn relax() {
    relax_with(chores());
}

/// The same, by whoever has just read what it has to do.
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

/// A moment on one CPU's own account: what other CPUs do in its yields, and its interrupt handlers, do not count.
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

    /// All that time was other CPUs'.
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
