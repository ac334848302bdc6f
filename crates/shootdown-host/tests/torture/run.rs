//! One run: a machine, its traffic, and the outcome.

use super::guest::{Guest, Mmu};
use super::traffic;
use shootdown::{Design, Engine, PerCpu, Root, Storage, tag_words};
use shootdown_host::Threads;
use std::sync::atomic::{AtomicU64, Ordering};

const CPUS: usize = 4;

/// Steps of each CPU in one run; `TORTURE_STEPS` overrides it.
pub fn steps() -> u64 {
    let asked = std::env::var("TORTURE_STEPS").ok();
    asked.map_or(20_000, |steps| steps.parse().expect("TORTURE_STEPS is a number"))
}

/// The outcome of one run.
pub struct Outcome {
    pub violation: Option<String>,
    pub checked: u64,
}

pub fn run(design: impl Into<Design>, broadcast: bool, has_bug: bool, seed: u64) -> Outcome {
    let design = design.into();
    // With a bug there are real races, on which ordinary memory is undefined behaviour.
    let sound = !has_bug && design.policy.reach != shootdown::Reach::None;
    run_with(design, broadcast, seed, sound)
}

/// As [`run()`]; `plain`: stamps of frames are ordinary memory.
pub fn run_with(design: impl Into<Design>, broadcast: bool, seed: u64, plain: bool) -> Outcome {
    let design = traffic::tightened(design.into(), CPUS);
    let mut cpus: Vec<_> = (0..CPUS).map(|_| PerCpu::new()).collect();
    let mut tags: Vec<_> = (0..tag_words(design.machine.tag_limit))
        .map(|_| AtomicU64::new(0))
        .collect();
    let mut threads = Threads::new(CPUS, |_| Mmu::default());
    if broadcast {
        threads = threads.with_broadcast(4);
    }
    let storage = Storage {
        cpus: &mut cpus,
        tags: &mut tags,
    };
    let engine: Engine<'_, _, 1> = Engine::new(threads, design, Root(0), storage);
    let guest = Guest::new(traffic::frames(CPUS), plain);
    traffic::run(&guest, &engine, CPUS, seed, steps());
    Outcome {
        violation: guest.violation().map(String::from),
        checked: guest.checked.load(Ordering::Relaxed),
    }
}
