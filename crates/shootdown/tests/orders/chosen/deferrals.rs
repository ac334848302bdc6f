//! Deferred unmaps, epochs, and ticks that stop and resume.

use super::{Thing, at_each_operation, designs, leaked, on_cpu_0};
use crate::caches;
use crate::clocks::{self, Clock};
use crate::memory::Memory;
use crate::play::{Play, Withdrawn};
use crate::world::{CPUS, engine, is_busy, on, write_tables};
use shootdown::{Deferral, DeferralsOver, Design, Free, Range, Root, Tags, Unmapped};
use std::cell::Cell;

fn tick_everywhere(play: &Play) {
    let idle = (0..CPUS).filter(|&cpu| !is_busy(cpu) && !play.off[cpu].get());
    idle.for_each(|cpu| on(cpu, || play.engine.tick()));
}

/// Every CPU ticks in three epochs, and CPU 0 frees what is over.
fn epochs_go_by(play: &'static Play) {
    for _ in 0..3 {
        tick_everywhere(play);
        on_cpu_0(play, Play::free);
    }
}

fn later(play: &Play) {
    play.later(0, &play.random);
}

/// CPU 0 runs nothing, so that no epoch waits for it; the others run space 0.
fn others_run(play: &'static Play) {
    (1..CPUS).for_each(|cpu| on(cpu, || play.enter(0)));
}

/// Flushes pages that were not withdrawn, so that it may promote.
fn flushes(play: &'static Play) {
    for _ in 0..3 {
        on(2, || {
            play.opens_window();
            write_tables();
            let _done = play.engine.flush(play.space(0), Range::page(1 << 30));
        });
    }
}

/// CPU 1 returns to space 0 and resumes its ticks. No frame is still counted as deferred: each CPU may defer the full
/// number.
fn nothing_is_kept(play: &'static Play) {
    on(1, || {
        play.engine.tick_resumes();
        play.enter(0);
    });
    let most = play.engine.policy().defer_frames;
    for cpu in 0..CPUS {
        let unmapped = on(cpu, || play.engine.flush_later(play.space(0), Range::page(0), most));
        let promoted = play.space(0).system_tag().is_some();
        assert!(
            promoted || matches!(unmapped, Unmapped::Later(_)),
            "CPU {cpu} may not keep {most} frames"
        );
    }
}

const OF_CPU_1: [Thing; 6] = [
    ("a tick", |play| play.engine.tick()),
    ("ticks stop", |play| play.engine.tick_stops()),
    ("ticks resume", |play| play.engine.tick_resumes()),
    ("an unmap", later),
    ("frees", Play::free),
    ("another space", |play| play.enter(1)),
];

const OF_OTHERS: [Thing; 5] = [
    ("an unmap", |play| on_cpu_0(play, later)),
    ("frees", |play| on_cpu_0(play, Play::free)),
    ("epochs", epochs_go_by),
    ("an unmap and epochs", |play| {
        on_cpu_0(play, later);
        epochs_go_by(play);
    }),
    ("flushes", flushes),
];

/// After `before`, each of those actions interrupts each of these.
fn nothing_is_freed_early(before: fn(&'static Play)) {
    for (name, design) in designs(|design| design.policy.free == Free::Deferred) {
        for (outer, one) in OF_CPU_1 {
            for (inner, other) in OF_OTHERS {
                println!("{name}: on {outer} comes in: {inner}");
                at_each_operation(
                    design,
                    (2, 2),
                    |play| {
                        others_run(play);
                        before(play);
                    },
                    |play| on(1, || one(play)),
                    other,
                    |play| {
                        on_cpu_0(play, later);
                        on_cpu_0(play, Play::free);
                        on_cpu_0(play, Play::free);
                        epochs_go_by(play);
                        epochs_go_by(play);
                        nothing_is_kept(play);
                    },
                );
            }
        }
    }
}

#[test]
fn deferral_does_not_end_early() {
    nothing_is_freed_early(|_| {});
}

#[test]
fn earlier_deferral_does_not_end_early() {
    nothing_is_freed_early(|play| {
        on(1, || later(play));
        on_cpu_0(play, later);
        on_cpu_0(play, Play::free);
    });
}

#[test]
fn deferral_does_not_end_early_while_others_end() {
    nothing_is_freed_early(|play| {
        on(1, || later(play));
        on_cpu_0(play, later);
        on_cpu_0(play, Play::free);
        tick_everywhere(play);
    });
}

#[test]
fn deferral_by_another_cpu_does_not_end_early() {
    nothing_is_freed_early(|play| {
        on(1, || play.leave());
        on_cpu_0(play, |play| play.enter(0));
    });
}

/// No epoch waits for CPU 2, which runs nothing; CPU 1 uses the page until then.
#[test]
fn cpu_stopping_its_tick_flushes_first() {
    let ends: [fn(&Play); 2] = [|play| play.engine.tick_stops(), |play| play.engine.tick()];
    for (name, design) in designs(PER_CPU) {
        for end in ends {
            println!("{name}");
            let play = Play::new(engine(design, true), 1, 0);
            on(1, || play.enter(0));
            let names = on(0, || play.withdraw(Root(1), 0..1, false));
            let unmapped = on(0, || unmapped_later(play));
            on(0, || play.engine.deferrals_over());
            on(1, || end(play));
            on(0, || {
                assert!(play.engine.release(unmapped, &play.engine.deferrals_over()).is_ok());
                caches::with(|caches| caches.flushed(&names));
            });
        }
    }
}

#[test]
fn deferral_does_not_end_early_with_stopped_ticks() {
    nothing_is_freed_early(|play| on(1, || play.engine.tick_stops()));
}

/// CPU 0 withdraws page 0 and defers its frame, if it may.
fn unmaps_later(play: &Play) -> (Unmapped, Withdrawn) {
    on(0, || {
        let names = play.withdraw(Root(1), 0..1, false);
        (play.engine.flush_later(play.space(0), Range::page(0), 1), names)
    })
}

fn unmapped_later(play: &Play) -> Deferral {
    match play.engine.flush_later(play.space(0), Range::page(0), 1) {
        Unmapped::Later(deferral) => deferral,
        Unmapped::Now(_) => panic!("CPU 1 runs the space, on a tag of its own, and has ticks"),
    }
}

const PER_CPU: fn(&Design) -> bool =
    |design| design.policy.free == Free::Deferred && design.policy.tags == Tags::PerCpu;

/// CPU 1 has returned, and begins the epoch that an unmap on CPU 0 waits for. CPU 2, which has seen neither, checks
/// which epochs are over.
#[test]
fn deferral_waits_for_a_cpu_back_from_lazy_mode() {
    for (name, design) in designs(PER_CPU) {
        println!("{name}");
        let (unmapped, over) = (leaked::<Cell<Option<_>>>(), leaked::<Cell<Option<DeferralsOver>>>());
        at_each_operation(
            design,
            (1, 16),
            |play| {
                on(1, || play.enter(0));
                on(1, || play.lazy());
                on(1, || play.returns());
                over.set(None);
            },
            |play| {
                on(0, || {
                    let names = play.withdraw(Root(1), 0..1, false);
                    unmapped.set(Some((unmapped_later(play), names)));
                });
            },
            |play| {
                on(1, || play.engine.deferrals_over());
                over.set(Some(on(2, || play.engine.deferrals_over())));
            },
            |play| {
                let (deferral, names) = unmapped.take().expect("just now");
                let over = over.get().expect("it has come in");
                if on(0, || play.engine.release(deferral, &over)).is_ok() {
                    caches::with(|caches| caches.flushed(&names));
                }
            },
        );
    }
}

/// CPU 2 begins an epoch. CPU 1 resumes ticks, and reports that it has flushed for that epoch. An unmap on CPU 0 that
/// no longer finds CPU 1 without ticks waits for the following epoch.
#[test]
fn deferral_waits_for_a_cpu_with_resumed_ticks() {
    for (name, design) in designs(PER_CPU) {
        println!("{name}");
        let unmapped = leaked::<Cell<Option<_>>>();
        at_each_operation(
            design,
            (1, 16),
            |play| {
                on(1, || {
                    play.enter(0);
                    play.engine.tick_stops();
                });
            },
            |play| unmapped.set(Some(unmaps_later(play))),
            |play| {
                on(2, || _ = play.engine.deferrals_over());
                on(1, || play.engine.tick_resumes());
            },
            |play| {
                let (unmapped, names) = unmapped.take().expect("just now");
                let over = match unmapped {
                    Unmapped::Now(_) => true,
                    Unmapped::Later(deferral) => on(0, || {
                        play.engine.release(deferral, &play.engine.deferrals_over()).is_ok()
                    }),
                };
                if over {
                    on(0, || caches::with(|caches| caches.flushed(&names)));
                }
            },
        );
    }
}

/// CPU 0, which runs nothing, has found the space on per-CPU tags. Then CPU 2 promotes it, and both CPUs that run it
/// fill what CPU 0 has withdrawn under the new tag. No tick flushes that.
#[test]
fn entries_under_a_new_tag_are_not_left_to_ticks() {
    let promotes = |design: &Design| design.policy.free == Free::Deferred && design.policy.tags.promote_at().is_some();
    for (name, design) in designs(promotes) {
        println!("{name}");
        let unmapped = leaked::<Cell<Option<_>>>();
        at_each_operation(
            design,
            (1, 2),
            others_run,
            |play| unmapped.set(Some(unmaps_later(play))),
            flushes,
            |play| {
                assert!(play.space(0).system_tag().is_some(), "it was to be promoted");
                let (unmapped, names) = unmapped.take().expect("just now");
                if let Unmapped::Later(deferral) = unmapped {
                    epochs_go_by(play);
                    let over = play.engine.deferrals_over();
                    assert!(
                        on(0, || play.engine.release(deferral, &over).is_ok()),
                        "three epochs have gone by"
                    );
                }
                on(0, || caches::with(|caches| caches.flushed(&names)));
            },
        );
    }
}

/// CPU 0 checks, CPU 2 frees: CPU 2 learns from CPU 0 what CPU 1 did before it ticked. At the same time CPU 1 begins
/// the next epoch.
#[test]
fn ended_deferral_orders_every_cpu_that_observes_it() {
    for (name, design) in designs(PER_CPU) {
        println!("{name}");
        let (unmapped, memory) = (leaked::<Cell<Option<Deferral>>>(), leaked::<Cell<Memory>>());
        let told = leaked::<Cell<Option<(DeferralsOver, Clock)>>>();
        at_each_operation(
            design,
            (1, 4),
            |play| {
                on(1, || play.enter(0));
                unmapped.set(Some(on(2, || unmapped_later(play))));
                on(1, || {
                    play.engine.deferrals_over();
                    let uses = Memory::default();
                    uses.touch();
                    memory.set(uses);
                    play.engine.tick();
                });
            },
            |play| on(0, || told.set(Some((play.engine.deferrals_over(), clocks::now())))),
            |play| on(1, || _ = play.engine.deferrals_over()),
            |play| {
                let (over, known) = told.get().expect("CPU 0 has looked");
                on(2, || {
                    clocks::learn(&known);
                    let deferral = unmapped.take().expect("before");
                    if play.engine.release(deferral, &over).is_ok() {
                        memory.take().free();
                    }
                });
            },
        );
    }
}
