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
use shootdown_arch::x86_64::icr::Command;
use shootdown_cpu::relax;

/// Number of remaps of the page.
const ROUNDS: u64 = 200;
/// The remapped page. Above the identity mapping: memory from 0, devices from 3 GiB.
const PAGE: u64 = 1 << 39;
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
    /// Identity-mapped pages of 1 GiB, global: memory, and devices, uncached.
    const fn identity() -> Words {
        let mut table = Words::zero();
        table.0[0] = AtomicU64::new(0x183);
        table.0[3] = AtomicU64::new(3 << 30 | 0x19B);
        table
    }
    /// An entry for it: present, writable.
    fn entry(&self) -> u64 {
        core::ptr::from_ref(self) as u64 | 0b11
    }
}

/// The kernel's own two top levels, and the tables of the space, which shares the second of them.
static KERNEL: [Words; 2] = [Words::zero(), Words::identity()];
static SPACE: [Words; 4] = [const { Words::zero() }; 4];
static FRAMES: [Words; 4] = [const { Words::zero() }; 4];
static READS: AtomicU64 = AtomicU64::new(0);
static STALE: AtomicU64 = AtomicU64::new(0);

/// The first CPU: starts the second, and remaps.
extern "C" fn first_cpu() -> ! {
    SPACE[0].0[0].store(KERNEL[1].entry(), Relaxed);
    for level in 0..3 {
        SPACE[level].0[usize::from(level == 0)].store(SPACE[level + 1].entry(), Relaxed);
    }
    glue::start(&raw const KERNEL as u64, &raw const SPACE as u64);
    glue::join();
    glue::CONTROLLER.command(1, Command::INIT);
    glue::CONTROLLER.command(1, Command::startup(0x8000).expect("a page below 1 MiB"));
    let entry = &SPACE[3].0[0];
    for round in 0..ROUNDS {
        let frame = &FRAMES[round as usize % FRAMES.len()];
        frame.0[0].store(1, Relaxed);
        entry.store(frame.entry(), Release);
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
    glue::CONTROLLER.acknowledge();
    glue::on_ipi();
}

/// Writes to a port.
fn out(port: u16, byte: u8) {
    // SAFETY: the serial port's data, or a reset.
    unsafe { asm!("out dx, al", in("dx") port, in("al") byte) };
}

/// The first serial port.
struct Serial;

impl Write for Serial {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        text.bytes().for_each(|byte| out(0x3F8, byte));
        Ok(())
    }
}

/// Prints the last line, and resets by the keyboard controller, which ends QEMU.
fn end(last: core::fmt::Arguments) -> ! {
    let _ = writeln!(Serial, "{last}");
    loop {
        out(0x64, 0xFE);
    }
}

#[panic_handler]
fn panic(info: &core::panic::PanicInfo) -> ! {
    end(format_args!("{info}"))
}
