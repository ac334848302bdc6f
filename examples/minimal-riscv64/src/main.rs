//! The smallest kernel of two CPUs around the engine: one remaps a page while the other reads it.
//!
//! When a flush has returned, the frame behind the page is free: the first CPU writes [`FREED`] into it. A reader that
//! finds that value has read a freed frame through a stale translation. `glue.rs` is the embedder's part.
#![no_std]
#![no_main]

mod boot;
#[cfg_attr(feature = "without", path = "without.rs")]
mod glue;

use core::fmt::Write;
use core::sync::atomic::{AtomicU64, Ordering::*};
use shootdown_cpu::{Controller, relax, sbi};

/// Number of remaps of the page.
const ROUNDS: u64 = 200;
/// The remapped page. Above the identity mapping: memory from 2 GiB.
const PAGE: u64 = 4 << 30;
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
    /// 1 GiB of memory, identity-mapped: global, dirty and accessed, all rights.
    const fn identity() -> Words {
        let mut table = Words::zero();
        table.0[2] = AtomicU64::new((2 << 30 >> 2) | 0xEF);
        table
    }
    /// An entry for it, with these rights and flags; none for a table.
    fn entry(&self, flags: u64) -> u64 {
        core::ptr::from_ref(self) as u64 >> 2 | flags | 1
    }
}

/// Dirty and accessed, readable and writable, not by user code.
const PAGE_FLAGS: u64 = 0xC6;

/// The kernel's own root, and the tables of the space, level by level.
static KERNEL: Words = Words::identity();
static SPACE: [Words; 3] = [Words::identity(), Words::zero(), Words::zero()];
static FRAMES: [Words; 4] = [const { Words::zero() }; 4];
static READS: AtomicU64 = AtomicU64::new(0);
static STALE: AtomicU64 = AtomicU64::new(0);

/// The first hart, whichever OpenSBI chose: starts the second, and remaps.
extern "C" fn first_cpu(hart: u64) -> ! {
    SPACE[0].0[(PAGE >> 30) as usize].store(SPACE[1].entry(0), Relaxed);
    SPACE[1].0[0].store(SPACE[2].entry(0), Relaxed);
    glue::start(&raw const KERNEL as u64, &raw const SPACE as u64);
    glue::join();
    // HSM: the other hart starts.
    firmware(
        0x48_534D,
        0,
        [1 - hart, boot::start_second as *const () as u64, 0, 0, 0],
    );
    let entry = &SPACE[2].0[0];
    for round in 0..ROUNDS {
        let frame = &FRAMES[round as usize % FRAMES.len()];
        frame.0[0].store(1, Relaxed);
        entry.store(frame.entry(PAGE_FLAGS), Release);
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
    Controller::Sbi.acknowledge();
    glue::on_ipi();
}

/// A firmware call.
fn firmware(extension: u64, function: u64, arguments: [u64; 5]) {
    // SAFETY: writes a character, starts a hart at its entry point, or ends the machine.
    let _ = unsafe { sbi::call(extension, function, arguments) };
}

/// The firmware's console.
struct Serial;

impl Write for Serial {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        text.bytes()
            .for_each(|byte| firmware(1, 0, [u64::from(byte), 0, 0, 0, 0]));
        Ok(())
    }
}

/// Prints the last line, and switches the machine off (SRST).
fn end(last: core::fmt::Arguments) -> ! {
    let _ = writeln!(Serial, "{last}");
    loop {
        firmware(0x5352_5354, 0, [0; 5]);
    }
}

#[panic_handler]
fn panic(info: &core::panic::PanicInfo) -> ! {
    end(format_args!("{info}"))
}
