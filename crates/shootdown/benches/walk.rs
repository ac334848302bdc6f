//! What a lockless walk pays for its guard, enter and exit, in each mode, on this host's own atomics.
//!
//! `cargo bench -p shootdown --bench walk` prints ns by criterion, and then ratios. Hooks are empty: masking
//! interrupts, which every mode needs alike, is not in these figures. They check the model, and are no constants of it:
//! simulated walks are charged the machine file's loads, stores, `full_barrier` and `rmw`.

mod nothing;

use criterion::Criterion;
use nothing::Nothing;
use shootdown::{Engine, Machine, PerCpu, Policy, Root, Storage, Walkers, tag_words};
use std::hint::black_box;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

const MODES: [(&str, Walkers); 6] = [
    ("plain (interrupt-all)", Walkers::InterruptAll),
    ("plain (grace period)", Walkers::GracePeriod),
    ("sticky", Walkers::Sticky),
    ("adaptive, sticky", Walkers::Adaptive),
    ("precise (store and fence)", Walkers::Precise),
    ("precise (exchange)", Walkers::PreciseExchange),
];

/// Builds an engine in that mode and hands it to `body`.
fn with_engine(walkers: Walkers, body: impl FnOnce(&Engine<'_, Nothing, 2>)) {
    let design = Policy { walkers, ..Policy::IPI }.on(Machine::PCID);
    let mut cpus: Vec<_> = (0..72).map(|_| PerCpu::new()).collect();
    let mut tags: Vec<_> = (0..tag_words(design.machine.tag_limit))
        .map(|_| AtomicU64::new(0))
        .collect();
    let storage = Storage {
        cpus: &mut cpus,
        tags: &mut tags,
    };
    let engine = Engine::new(Nothing, design, Root(0), storage);
    engine.cpu_online();
    body(&engine);
}

/// ns for one call: the least of many rounds, which noise can only lengthen.
fn least_ns(mut call: impl FnMut()) -> f64 {
    const CALLS: u32 = 100_000;
    let round = |_| {
        let start = Instant::now();
        (0..CALLS).for_each(|_| call());
        start.elapsed().as_secs_f64() * 1e9 / f64::from(CALLS)
    };
    (0..60).map(round).fold(f64::INFINITY, f64::min)
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    let mut measured = Vec::new();
    for (name, walkers) in MODES {
        with_engine(walkers, |engine| {
            let space = engine.space(Root(1));
            let guard = || drop(black_box(engine.walk(black_box(&space))));
            criterion.bench_function(&format!("walk guard, {name}"), |bencher| bencher.iter(guard));
            measured.push((name, least_ns(guard)));
        });
    }
    with_engine(Walkers::Sticky, |engine| {
        let spaces = [engine.space(Root(1)), engine.space(Root(2))];
        let mut turn = 0;
        let alternating = || {
            turn ^= 1;
            drop(black_box(engine.walk(black_box(&spaces[turn]))));
        };
        measured.push(("sticky, two spaces in turn", least_ns(alternating)));
    });
    criterion.final_summary();
    let plain = measured[0].1;
    println!("\nguard enter and exit, least of 60 rounds      ns   over plain     ratio");
    for (name, ns) in measured {
        println!("  {name:36} {ns:9.2} {:12.2} {:9.2}", ns - plain, ns / plain);
    }
}
