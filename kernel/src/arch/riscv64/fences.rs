//! Remote fences beside harts that stop.
//!
//! OpenSBI asks every hart that runs when the call begins, and waits until each has fenced. A hart that stops in
//! between never answers, and the call never returns (read in versions 1.1 and 1.9: `sbi_ipi_send_many`, `sbi_tlb.c`).
//! So a hart that is about to stop is first left out of all fences that begin, and then waits for those that have
//! begun.

use crate::cpu::{self, Cpu, controller_id, cpu};
use core::sync::atomic::{AtomicU64, Ordering};
use shootdown::{Broadcast, Facade};
use shootdown_cpu::{BareMetal, Processor, Refused};

/// A bit for each CPU that is left out.
static AWAY: AtomicU64 = AtomicU64::new(0);

/// Fences every hart that is not left out, this one included.
///
/// # Errors
/// The firmware refuses. Some harts may have fenced.
pub fn broadcast(processor: &Processor, what: Broadcast) -> Result<(), Refused> {
    let fencing = &cpu().local.fencing;
    let begun = fencing.load(Ordering::Relaxed) + 1;
    fencing.store(begun, Ordering::Relaxed);
    // Pairs with the one in `leave_out`: that hart sees the call, or this one that it is left out.
    BareMetal::full_barrier();
    let fenced = match AWAY.load(Ordering::Relaxed) {
        0 => processor.broadcast(what),
        away => {
            let stays = |other: &&Cpu| away & 1 << other.id == 0;
            let others = cpu::all().iter().filter(stays);
            processor.broadcast_to(what, others.map(|other| controller_id(other.id)))
        }
    };
    fencing.store(begun + 1, Ordering::Release);
    fenced
}

/// From here on no fence names this CPU, and none that does is in progress.
pub fn leave_out() {
    let me = cpu().id;
    AWAY.fetch_or(1 << me, Ordering::Relaxed);
    // Pairs with the one in `broadcast`.
    BareMetal::full_barrier();
    for other in cpu::all().iter().filter(|other| other.id != me) {
        let fencing = &other.local.fencing;
        let seen = fencing.load(Ordering::Acquire);
        // Odd: a call is in progress. This hart answers it although its interrupts are off: the firmware's are not.
        while seen % 2 == 1 && fencing.load(Ordering::Acquire) == seen {
            crate::time::relax();
        }
    }
}

/// Fences reach this CPU again. It flushes everything afterwards.
pub fn take_in() {
    AWAY.fetch_and(!(1 << cpu().id), Ordering::Relaxed);
    BareMetal::full_barrier();
}
