//! Walks, frees of page-table pages, changes from registered to published walks, grace periods.

use super::{at_each_operation, designs, leaked, on_cpu_0};
use crate::caches::{self, LINK};
use crate::interleaving;
use crate::memory::Memory;
use crate::play::Play;
use crate::world::{CPUS, is_busy, on};
use shootdown::{Design, Grace, GracesOver, Machine, Policy, Requests, Retired, Walkers};
use std::cell::Cell;

fn walked_by(walkers: Walkers) -> impl Iterator<Item = (&'static str, Design)> {
    [("ipi", Policy::IPI), ("arm-broadcast", Policy::ARM_BROADCAST)]
        .into_iter()
        .map(move |(name, design)| (name, Policy { walkers, ..design }.on(Machine::PCID)))
}

/// Starts a walk on this CPU that does not end yet.
fn walk_begins(play: &'static Play) {
    interleaving::walk(play, 0, false);
}

/// CPU 0 unlinks the table of space 0 and begins a grace period. Returns it, and the version without the link.
fn unlinked(play: &Play) -> (Grace, u64) {
    on(0, || {
        let link = (play.space(0).root().0, LINK);
        play.withdraw(play.space(0).root(), 0..0, true);
        let unlinked = caches::with(|caches| caches.version(link));
        match play.engine.flush_tables_later(play.space(0), Play::tables()) {
            Retired::Later(grace) => (grace, unlinked),
            Retired::Now(_) => panic!("it waits for a grace period"),
        }
    })
}

fn freed_if_over(play: &Play, (grace, unlinked): (Grace, u64), over: GracesOver) {
    if over.proof(grace).is_some() {
        interleaving::assert_no_walk((play.space(0).root().0, LINK), unlinked);
    }
}

/// CPU 1 comes online and walks; CPU 0 unlinks the table. CPU 2, which checks the grace periods, may have seen neither.
#[test]
fn grace_period_waits_for_a_walk_of_a_cpu_just_online() {
    for (name, design) in walked_by(Walkers::GracePeriod) {
        println!("{name}");
        let (asked, over) = (leaked::<Cell<Option<_>>>(), leaked::<Cell<Option<GracesOver>>>());
        at_each_operation(
            design,
            (1, 16),
            |play| {
                on(1, || play.goes_off());
                on(2, || play.engine.graces_over());
            },
            |play| over.set(Some(on(2, || play.engine.graces_over()))),
            |play| {
                on(1, || {
                    play.comes_on();
                    walk_begins(play);
                });
                asked.set(Some(unlinked(play)));
            },
            |play| {
                freed_if_over(
                    play,
                    asked.get().expect("it has come in"),
                    over.get().expect("just now"),
                );
                interleaving::end_walks();
            },
        );
    }
}

/// CPU 0 unlinks the table while CPU 1 ticks. CPU 1 then walks.
#[test]
fn walk_after_a_tick_does_not_see_unlinked_tables() {
    for (name, design) in walked_by(Walkers::GracePeriod) {
        println!("{name}");
        let asked = leaked::<Cell<Option<_>>>();
        at_each_operation(
            design,
            (1, 4),
            |_| {},
            |play| {
                on(1, || {
                    play.engine.tick();
                    walk_begins(play);
                });
            },
            |play| asked.set(Some(unlinked(play))),
            |play| {
                on(2, || play.engine.tick());
                let over = on(0, || play.engine.graces_over());
                freed_if_over(play, asked.get().expect("it has come in"), over);
                interleaving::end_walks();
            },
        );
    }
}

/// Several periods pass while CPU 1 requests one. Then CPU 2 walks what CPU 0 unlinks.
#[test]
fn grace_period_request_never_goes_backwards() {
    for (name, design) in walked_by(Walkers::GracePeriod) {
        println!("{name}");
        at_each_operation(
            design,
            (1, 2),
            |_| {},
            |play| {
                on(1, || {
                    let _later = play.engine.flush_tables_later(play.space(0), Play::tables());
                });
            },
            |play| {
                for _ in 0..3 {
                    unlinked(play);
                    (0..CPUS)
                        .filter(|&cpu| !is_busy(cpu))
                        .for_each(|cpu| on(cpu, || play.engine.tick()));
                }
            },
            |play| {
                on(2, || walk_begins(play));
                let asked = unlinked(play);
                on(1, || play.engine.tick());
                freed_if_over(play, asked, on(0, || play.engine.graces_over()));
                interleaving::end_walks();
            },
        );
    }
}

/// CPU 1 frees the table `ns` later, and finds that CPU 2 has walked.
fn free_finds_a_walker(play: &'static Play, ns: u64) {
    let clock = &play.engine.kernel().now;
    clock.set(clock.get() + ns);
    on(2, || drop(play.engine.walk(play.space(0))));
    on(1, || play.free_tables_now(0));
}

/// All but one of the frees that it takes to change to published walks.
fn frees_find_a_walker(play: &'static Play) {
    (0..15).for_each(|_| free_finds_a_walker(play, 10));
    on(2, || drop(play.engine.walk(play.space(0))));
}

#[test]
fn walk_during_a_mode_change_is_found_or_over() {
    for (name, design) in walked_by(Walkers::Adaptive) {
        println!("{name}");
        let memory = leaked::<Cell<Memory>>();
        at_each_operation(
            design,
            (1, 2),
            |play| {
                memory.take();
                frees_find_a_walker(play);
            },
            |play| on(1, || play.free_tables_now(0)),
            |play| {
                on(2, || {
                    let walk = play.engine.walk(play.space(0));
                    let uses = Memory::default();
                    uses.touch();
                    memory.set(uses);
                    drop(walk);
                });
            },
            |play| {
                on(0, || {
                    play.free_tables_now(0);
                    memory.take().free();
                });
            },
        );
    }
}

/// Frees have become rare, and walks change back to registrations. Here by posts, which are waited for by their token.
#[test]
fn published_walk_is_waited_for_during_the_change_back() {
    let design = Policy {
        walkers: Walkers::Adaptive,
        requests: Requests::Log,
        ..Policy::IPI
    };
    at_each_operation(
        design.into(),
        (1, 2),
        |play| {
            (0..16).for_each(|_| free_finds_a_walker(play, 10));
            (0..15).for_each(|_| free_finds_a_walker(play, 1_000_000));
        },
        |play| on(1, || play.free_tables_now(0)),
        |play| on(2, || walk_begins(play)),
        |play| {
            on(0, || play.free_tables_now(0));
            interleaving::end_walks();
        },
    );
}

#[test]
fn cpu_coming_online_adopts_the_walk_mode() {
    for (name, design) in walked_by(Walkers::Adaptive) {
        println!("{name}");
        at_each_operation(
            design,
            (1, 16),
            |play| {
                frees_find_a_walker(play);
                on(0, || play.goes_off());
            },
            |play| on(1, || play.free_tables_now(0)),
            |play| {
                on(0, || {
                    play.comes_on();
                    walk_begins(play);
                });
            },
            |play| {
                on(2, || play.free_tables_now(0));
                interleaving::end_walks();
            },
        );
    }
}

/// A free that finds walks published, and nothing to invalidate by interrupts, still waits for the walk.
#[test]
fn free_waits_for_an_active_walk_in_every_mode() {
    use Walkers::{GracePeriod, InterruptAll, Precise, PreciseExchange, Sticky};
    for (name, design) in designs(|design| design.policy.reach != shootdown::Reach::None) {
        for walkers in [Sticky, Precise, PreciseExchange, InterruptAll, GracePeriod] {
            println!("{name}, {walkers:?}");
            interleaving::begin(None, 0);
            let play = Play::new(
                crate::world::engine(
                    Policy {
                        walkers,
                        ..design.policy
                    },
                    true,
                ),
                1,
                0,
            );
            on(2, || walk_begins(play));
            on_cpu_0(play, |play| play.free_tables_in_two_steps(0));
            interleaving::end_walks();
        }
    }
}
