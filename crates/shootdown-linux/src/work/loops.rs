//! The workers' loops: those of the simulator's workloads of the same names.

use std::sync::atomic::{AtomicU32, Ordering};

use rustix::io::{Errno, Result};
use rustix::mm::{MprotectFlags, mprotect};
use rustix::thread::futex;
use rustix::time::{ClockId, Timespec, clock_gettime};

use super::shared::{PAGE, Region, Shared, Slot};

/// `tlb_flush2`: pages of a region.
pub(super) const FLUSH_PAGES: usize = 256;

/// `context_switch`: pages of each process, all read in each stretch of user code.
pub(super) const SPACE_PAGES: usize = 32;
/// Requested idle time of a CPU, ns; the actual time is longer and is measured.
const IDLE_NS: i64 = 2000;
/// One of this many switches goes to the other process.
const OTHER_ONE_IN: u64 = 4;
/// One of this many switches to the first process, times CPUs, is followed by dropping one of its pages, at random.
const DROPS_ONE_IN: u64 = 64;

pub(super) fn tlb_flush2(shared: &Shared, index: usize, _: &Region) -> Result<()> {
    let slot = &shared.slots()[index];
    while !slot.stopped() {
        let region = Region::new(FLUSH_PAGES)?;
        for page in 0..region.pages() {
            region.write(page);
            region.drop_page(page)?;
            Slot::add(&slot.stale, u64::from(region.read(page) != 0));
            Slot::add(&slot.checked, 1);
            Slot::add(&slot.ops, 1);
            if slot.stopped() {
                break;
            }
        }
    }
    Ok(())
}

pub(super) fn madvise_spin(shared: &Shared, index: usize, _: &Region) -> Result<()> {
    let slot = &shared.slots()[index];
    if index > 0 {
        while !slot.stopped() {
            std::hint::spin_loop();
        }
        return Ok(());
    }
    let region = Region::new(1)?;
    while !slot.stopped() {
        region.write(0);
        region.drop_page(0)?;
        Slot::add(&slot.ops, 1);
    }
    Ok(())
}

pub(super) fn mprotect_all(shared: &Shared, index: usize) -> Result<()> {
    let slot = &shared.slots()[index];
    let region = Region::new(1)?;
    region.write(0);
    let protect = |flags| {
        // SAFETY: a page of our own, not accessed while it is read-only.
        unsafe { mprotect(region.at(0).cast(), PAGE, flags) }
    };
    while !slot.stopped() {
        protect(MprotectFlags::READ)?;
        protect(MprotectFlags::READ | MprotectFlags::WRITE)?;
        region.write(0);
        Slot::add(&slot.ops, 1);
    }
    Ok(())
}

/// `context_switch`, a thread of the first process, which all CPUs share.
pub(super) fn own_process(shared: &Shared, index: usize, pages: &Region) -> Result<()> {
    let slot = &shared.slots()[index];
    // SAFETY: changes only the timer slack of this thread; no memory is accessed.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
    let (mut switches, mut random) = (0_u64, index as u64 + 1);
    let drops_one_in = DROPS_ONE_IN * shared.slots().len() as u64;
    while !slot.stopped() {
        switches += 1;
        visit(slot, pages);
        if draw(&mut random).is_multiple_of(drops_one_in) {
            let page = draw(&mut random) as usize % pages.pages();
            pages.write(page);
            pages.drop_page(page)?;
        }
        if switches.is_multiple_of(OTHER_ONE_IN) {
            hand_over(slot, 1)?;
            wait_for(slot, 0)?;
        } else {
            let begun = now_ns();
            let idle = Timespec {
                tv_sec: 0,
                tv_nsec: IDLE_NS,
            };
            // Its duration is measured, for every kind of wake-up.
            let _ = rustix::thread::nanosleep(&idle);
            Slot::add(&slot.idle_ns, now_ns() - begun);
            Slot::add(&slot.idle_times, 1);
        }
    }
    // The other process may wait for its turn: it is killed.
    Ok(())
}

/// `context_switch`, the other process on this CPU.
pub(super) fn other_process(shared: &Shared, index: usize) -> Result<()> {
    let slot = &shared.slots()[index];
    let pages = Region::new(SPACE_PAGES)?;
    while !slot.stopped() {
        wait_for(slot, 1)?;
        visit(slot, &pages);
        hand_over(slot, 0)?;
    }
    Ok(())
}

/// The next of a sequence of numbers without a pattern (xorshift, upper half).
fn draw(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state >> 32
}

/// A stretch of user code.
fn visit(slot: &Slot, pages: &Region) {
    for page in 0..pages.pages() {
        pages.read(page);
    }
    // Both processes of a CPU count here, but never at the same time.
    Slot::add(&slot.ops, 1);
}

fn hand_over(slot: &Slot, to: u32) -> Result<()> {
    // Release. Pairs with the acquire in `wait_for`: the counters of the slot are handed over with the turn.
    slot.turn.store(to, Ordering::Release);
    futex::wake(&slot.turn, futex::Flags::empty(), 1).map(drop)
}

fn wait_for(slot: &Slot, mine: u32) -> Result<()> {
    let turn: &AtomicU32 = &slot.turn;
    // Acquire: see `hand_over`.
    while turn.load(Ordering::Acquire) != mine && !slot.stopped() {
        let patience = Timespec {
            tv_sec: 0,
            tv_nsec: 100_000_000,
        };
        match futex::wait(turn, futex::Flags::empty(), 1 - mine, Some(&patience)) {
            Ok(()) | Err(Errno::AGAIN | Errno::INTR | Errno::TIMEDOUT) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
