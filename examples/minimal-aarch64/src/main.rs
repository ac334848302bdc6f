//! The smallest kernel of two CPUs around the engine: one remaps a page while the other reads it.
//!
//! When a flush has returned, the frame behind the page is free: the first CPU writes [`FREED`] into it. A reader that
//! finds that value has read a freed frame through a stale translation. `glue.rs` is the embedder's part.
#![no_std]
#![no_main]

mod boot;
#[cfg_attr(feature = "without", path = "without.rs")]
mod glue;

use core::arch::asm;
use core::fmt::Write;
use core::sync::atomic::{AtomicU64, Ordering::*};
use shootdown_cpu::{Controller, relax};

/// Number of remaps of the page.
const ROUNDS: u64 = 200;
/// The remapped page. Above the identity mapping: devices from 0, memory from 1 GiB.
const PAGE: u64 = 2 << 30;
/// Content of a free frame; a mapped one holds 1.
const FREED: u64 = 0xDEAD;

/// A page of words: a page table or a frame.
#[repr(C, align(4096))]
struct Words([AtomicU64; 512]);

impl Words {
    /// All zero.
    const fn zero() -> Words {
        Words([const { AtomicU64::new(0) }; 512])
    }
    /// Identity-mapped blocks of 1 GiB, without ASID: devices (attribute 1, never executed) and memory
    /// (attribute 0, inner-shareable).
    const fn identity() -> Words {
        let mut table = Words::zero();
        table.0[0] = AtomicU64::new(3 << 53 | 1 << 10 | 1 << 2 | 0b01);
        table.0[1] = AtomicU64::new(1 << 30 | 1 << 10 | 3 << 8 | 0b01);
        table
    }
    fn address(&self) -> u64 {
        core::ptr::from_ref(self) as u64
    }
}

/// Valid; a table, or at the last level a page.
const TABLE: u64 = 0b11;
/// A page: with ASID, never executed, accessed, inner-shareable.
const USER: u64 = 3 << 53 | 1 << 11 | 1 << 10 | 3 << 8 | 0b11;

/// The kernel's own root, and the tables of the space, level by level.
static KERNEL: Words = Words::identity();
static SPACE: [Words; 3] = [Words::identity(), Words::zero(), Words::zero()];
static FRAMES: [Words; 4] = [const { Words::zero() }; 4];
static READS: AtomicU64 = AtomicU64::new(0);
static STALE: AtomicU64 = AtomicU64::new(0);

/// The first CPU: starts the second, and remaps.
extern "C" fn first_cpu() -> ! {
    SPACE[0].0[(PAGE >> 30) as usize].store(SPACE[1].address() | TABLE, Relaxed);
    SPACE[1].0[0].store(SPACE[2].address() | TABLE, Relaxed);
    glue::start(KERNEL.address(), SPACE[0].address());
    // SAFETY: once on each CPU.
    unsafe { boot::take_interrupts(0) };
    glue::join();
    // PSCI CPU_ON: CPU 1.
    psci(0xC400_0003, 1, boot::start_second as *const () as u64);
    let entry = &SPACE[2].0[0];
    for round in 0..ROUNDS {
        let frame = &FRAMES[round as usize % FRAMES.len()];
        frame.0[0].store(1, Relaxed);
        entry.store(frame.address() | USER, Release);
        let reads = READS.load(Relaxed);
        while READS.load(Relaxed) < reads + 3 {
            relax();
        }
        entry.store(0, Relaxed);
        glue::flush(PAGE);
        frame.0[0].store(FREED, Relaxed);
    }
    let (reads, stale) = (READS.load(Relaxed), STALE.load(Relaxed));
    end(format_args!("rounds={ROUNDS} reads={reads} stale={stale}"))
}

/// The second CPU: reads. While the page is unmapped its read faults, and is retried.
extern "C" fn second_cpu() -> ! {
    // SAFETY: once on each CPU.
    unsafe { boot::take_interrupts(1) };
    glue::join();
    loop {
        // SAFETY: mapped, possibly after a retry, to a frame of atomic words.
        let word = unsafe { &*(PAGE as *const AtomicU64) }.load(Relaxed);
        STALE.fetch_add(u64::from(word == FREED), Relaxed);
        READS.fetch_add(1, Relaxed);
        relax();
    }
}

/// The handler of all interrupts: only one is enabled.
extern "C" fn interrupt() {
    Controller.end(Controller.acknowledge());
    glue::on_ipi();
}

/// A firmware call, which QEMU handles.
fn psci(function: u64, cpu: u64, entry: u64) {
    // SAFETY: starts a CPU at its entry point, or ends the machine.
    unsafe { asm!("hvc #0", inout("x0") function => _, in("x1") cpu, in("x2") entry, clobber_abi("C")) };
}

/// The board's PL011.
struct Serial;

impl Write for Serial {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        // SAFETY: its data register.
        text.bytes()
            .for_each(|byte| unsafe { (0x0900_0000 as *mut u8).write_volatile(byte) });
        Ok(())
    }
}

/// Prints the last line, and switches the machine off (PSCI SYSTEM_OFF).
fn end(last: core::fmt::Arguments) -> ! {
    let _ = writeln!(Serial, "{last}");
    loop {
        psci(0x8400_0008, 0, 0);
    }
}

#[panic_handler]
fn panic(info: &core::panic::PanicInfo) -> ! {
    end(format_args!("{info}"))
}
