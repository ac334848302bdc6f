//! Torture: every CPU maps, unmaps, protects, walks, switches, enters lazy TLB mode and goes offline at random, and an
//! oracle checks every access.
//!
//! ```text
//!   oracle.rs    what an access may see        process.rs   the tortured processes
//!   traffic.rs   one step after the other      changes.rs   steps that change tables
//!   power.rs     which CPUs may be off
//! ```

mod changes;
mod oracle;
mod power;
mod process;
mod traffic;

pub use oracle::violation;

use crate::arch::{features, timer};
use crate::counters::Counters;
use crate::engine;
use crate::options::Options;
use crate::serial::{self, Status};
use crate::{cpu, jitter, println, smp, time};
use alloc::boxed::Box;
use core::sync::atomic::{AtomicPtr, Ordering};
use shootdown::{Design, Free, Machine, Policy, Reach};
use traffic::{Arena, Traffic};

/// Instructions that a CPU may take to answer before it counts as stuck.
const STUCK: u64 = 1_500_000;

/// `design` with few tags and a small ceiling, so that tags are reused and whole tags are flushed occasionally; short
/// windows, so that spaces are promoted and demoted. `tags` are the first and the last tag, if the command line has
/// them.
pub fn tightened(design: Design, cpus: usize, tags: Option<(u16, u16)>) -> Design {
    let slots = 2;
    let first_tag = tags.map_or(design.machine.first_tag, |(first, _)| first);
    let few = u32::from(first_tag) + u32::from(slots) + cpus as u32 + 1;
    let tag_limit = match tags {
        Some((_, last)) => (u32::from(last) + 1).min(design.machine.tag_limit),
        None if design.machine.tag_limit > 1 => few,
        None => design.machine.tag_limit,
    };
    Policy {
        slots,
        ceiling: design.policy.ceiling.min(9),
        consider_window_ns: 1 << 12,
        sample_one_in: 4,
        demote_after: 2,
        stuck_ns: STUCK << time::instruction_shift().unwrap_or(6),
        // Quarantine is another contract; unmaps are synchronous here.
        free: if design.policy.free == Free::Deferred {
            Free::Batched
        } else {
            design.policy.free
        },
        ..design.policy
    }
    .on(Machine {
        first_tag,
        tag_limit,
        ..design.machine
    })
}

/// Most PAUSEs at a time where they do not yield a turn: about as many as the instructions of a step.
const LINGER: u64 = 200;

static ARENA: AtomicPtr<Arena> = AtomicPtr::new(core::ptr::null_mut());

/// Runs it, prints the counts, and ends.
pub fn run(options: &Options) -> ! {
    if engine().policy().reach == Reach::Adaptive {
        let _costs = engine().calibrate();
    }
    let all = cpu::all().len();
    let threads = if options.threads == 0 {
        all
    } else {
        options.threads.min(all)
    };
    jitter::set(timer::interval(
        options.jitter << time::instruction_shift().unwrap_or(0),
    ));
    process::poison_large_frames();
    ARENA.store(
        Box::leak(Box::new(Arena::new(
            options.seed,
            options.steps,
            options.bochs.then_some(LINGER),
            threads,
        ))),
        Ordering::Release,
    );
    smp::on_all(threads, |cpu| {
        // SAFETY: leaked, so it is never freed.
        let arena = unsafe { &*ARENA.load(Ordering::Acquire) };
        jitter::begin(cpu, arena.seed);
        Traffic::new(arena, cpu).run();
        jitter::end();
    });
    let sum = |of: fn(&cpu::Cpu) -> u64| cpu::all().iter().map(of).sum::<u64>();
    // SAFETY: as above.
    let done = unsafe { &*ARENA.load(Ordering::Acquire) };
    println!(
        "{{\"workload\":\"torture\",\"target\":\"{}\",\"design\":\"{}\",\"threads\":{threads},\"seed\":{},\
         \"steps\":{},\"stale\":0,\"accesses_checked\":{},\"faults_tolerated\":{},\"interrupts\":{},\
         \"emulation_interrupts\":{},\
         \"broadcast\":\"{}\",\
         \"ticks\":{},\"pcid\":{},\"instructions\":{},\"done\":{}}}",
        options.target(),
        options.design_name,
        options.seed,
        options.steps,
        sum(|cpu| cpu.counts.checked.load(Ordering::Acquire)),
        sum(|cpu| cpu.counts.tolerated.load(Ordering::Acquire)),
        sum(|cpu| cpu.counts.taken.load(Ordering::Acquire)),
        sum(|cpu| cpu.counts.emulation.load(Ordering::Acquire)),
        crate::workloads::broadcast_in_words(),
        time::ticks(),
        features::has_tags(),
        Counters,
        done,
    );
    serial::exit(Status::Success)
}
