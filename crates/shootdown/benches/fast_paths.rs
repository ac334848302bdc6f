//! The engine's fast paths on this host's own atomics, beside an empty call.
//!
//! `cargo bench -p shootdown` prints ns per call; hooks are empty, so what is measured is the engine.

mod nothing;

use criterion::{Criterion, criterion_group, criterion_main};
use nothing::Nothing;
use shootdown::{Engine, Machine, PerCpu, Policy, Range, Root, Storage, tag_words};
use std::hint::black_box;
use std::sync::atomic::AtomicU64;

fn benchmark(criterion: &mut Criterion) {
    criterion.bench_function("an empty call", |bencher| bencher.iter(|| black_box(())));
    for (name, design) in [("ipi", Policy::IPI), ("adaptive", Policy::ADAPTIVE)] {
        let design = design.on(Machine::PCID);
        let mut cpus: Vec<_> = (0..72).map(|_| PerCpu::new()).collect();
        let mut tags: Vec<_> = (0..tag_words(design.machine.tag_limit))
            .map(|_| AtomicU64::new(0))
            .collect();
        let engine = Engine::new(
            Nothing,
            design,
            Root(0),
            Storage {
                cpus: &mut cpus,
                tags: &mut tags,
            },
        );
        engine.cpu_online();
        let (space, other) = (engine.space(Root(1)), engine.space(Root(2)));
        // SAFETY: both spaces outlive the engine's use of them: it is not used after this block.
        unsafe { engine.switch_to(&space) };
        criterion.bench_function(
            &format!("{name}: flush of one page that no other CPU uses"),
            |bencher| bencher.iter(|| engine.flush(black_box(&space), Range::page(black_box(0x1000)))),
        );
        criterion.bench_function(&format!("{name}: switch to the space already loaded"), |bencher| {
            // SAFETY: as above.
            bencher.iter(|| unsafe { engine.switch_to(black_box(&space)) })
        });
        criterion.bench_function(
            &format!("{name}: switch to another space and back, both in slots"),
            |bencher| {
                bencher.iter(|| {
                    // SAFETY: as above.
                    unsafe {
                        engine.switch_to(black_box(&other));
                        engine.switch_to(black_box(&space));
                    }
                })
            },
        );
        criterion.bench_function(&format!("{name}: go lazy and come back"), |bencher| {
            bencher.iter(|| {
                engine.enter_lazy();
                // SAFETY: as above.
                unsafe { engine.leave_lazy(black_box(&space)) };
            })
        });
        criterion.bench_function(&format!("{name}: an interrupt with nothing to do"), |bencher| {
            // SAFETY: one thread.
            bencher.iter(|| unsafe { engine.on_ipi() })
        });
    }
}

criterion_group!(benches, benchmark);
criterion_main!(benches);
