//! The models. Each runs the sound engine in every interleaving up to its bound on preemptions, then each of its
//! mutants, which must fail.
//!
//! Run with `--test-threads=1`, because the models share the panic hook and the counts.
//!
//! Not covered: several requesters that wait for one CPU. loom follows each of their waits through every stale value,
//! and exceeds its bound on branches. The exploration (`cross-3`), the simulated machine and the torture test on
//! threads cover them.

#[path = "models/sets.rs"]
mod sets;
#[path = "models/tags.rs"]
mod tags;

use shootdown::{Exit, LOG_ENTRIES, Machine, Policy, Range, Requests, Walkers};
use shootdown_known_bugs::{Bug, select};
use shootdown_loom::{ACQUIRE, FENCES, Model, NOTHING, RELEASE, RMW_FENCES, World};

const IPI: Policy = Policy {
    slots: 1,
    stuck_ns: 0,
    walkers: Walkers::None,
    ..Policy::IPI
};

const TWO: Model = Model {
    design: IPI.on(Machine::PCID),
    cpus: 2,
    broadcast: false,
    preemptions: 5,
};

/// For models with few interleavings. Bounded, although loom would end: without a bound it excludes runs as equivalent
/// that are not always equivalent.
const MOST: Model = Model { preemptions: 7, ..TWO };

/// Whether this is the package whose engine holds the known bugs. That one tests only those; the other tests everything
/// else.
fn is_patched() -> bool {
    env!("CARGO_PKG_NAME").ends_with("-patched")
}

/// Runs `scene` on the sound engine; prints the number of executions.
fn sound(name: &str, model: Model, scene: fn(&'static World<NOTHING>)) {
    if is_patched() {
        return;
    }
    let begun = std::time::Instant::now();
    let runs = model.check(scene).unwrap_or_else(|why| panic!("{name}: {why}"));
    let most = model.preemptions;
    println!(
        "{name:<28} sound in {runs} executions (up to {most} preemptions), {:.1?}",
        begun.elapsed()
    );
}

/// Runs `scene` with a fault; it must fail.
fn finds(name: &str, model: Model, fault: Bug, scene: fn(&'static World<NOTHING>)) {
    if !is_patched() {
        return;
    }
    select(Some(fault));
    let checked = model.check(scene);
    select(None);
    must_fail(name, &format!("{fault:?}"), checked);
}

/// Runs `scene` on a weakened facade; it must fail.
fn finds_weak<const WEAK: u8>(name: &str, model: Model, scene: fn(&'static World<WEAK>)) {
    if is_patched() {
        return;
    }
    let weak = ["fences", "read-modify-write fences", "release", "acquire"];
    let missing: Vec<_> = (0..4).filter(|bit| WEAK >> bit & 1 == 1).map(|bit| weak[bit]).collect();
    must_fail(name, &format!("no {}", missing.join(", no ")), model.check(scene));
}

fn must_fail(name: &str, mutant: &str, checked: Result<usize, String>) {
    let why = match checked {
        Ok(runs) => panic!("{name}: {mutant} was not found in {runs} executions"),
        Err(why) => why,
    };
    assert!(
        ["Causality violation", "C1", "C4"]
            .iter()
            .any(|broken| why.contains(broken)),
        "{name}: {mutant}: {why}"
    );
    println!("{name:<28} finds {mutant}: {}", why.lines().next().unwrap_or_default());
}

/// CPU 0 withdraws a page while CPU 1 starts to run the space, and uses the page.
fn unmap_against_arrival<const WEAK: u8>(world: &'static World<WEAK>) {
    world.run([
        |world| world.unmap(0),
        |world| {
            world.switch_to(0);
            world.access(0);
        },
    ]);
}

/// Rule 3: a CPU switches in while another flushes.
fn switching<const WEAK: u8>(world: &'static World<WEAK>) {
    world.on(0, |world| world.switch_to(0));
    unmap_against_arrival(world);
}

#[test]
fn generation_against_switch() {
    sound("switch", TWO, switching);
    finds("switch", TWO, Bug::NoBarrierAfterJoin, switching);
    finds("switch", TWO, Bug::SkipSwitchingCpu, switching);
    finds("switch", TWO, Bug::RootLoadBeforeJoin, switching);
    finds_weak::<RMW_FENCES>("switch", TWO, switching);
}

/// Rule 4: a CPU leaves lazy TLB mode while another flushes.
fn lazy<const WEAK: u8>(world: &'static World<WEAK>) {
    world.on(0, |world| world.switch_to(0));
    world.on(1, |world| {
        world.switch_to(0);
        world.access(0);
        world.engine.enter_lazy();
    });
    unmap_against_arrival(world);
}

#[test]
fn lazy_exit() {
    sound("lazy exit", MOST, lazy);
    finds("lazy exit", MOST, Bug::NoBarrierAfterLazy, lazy);
    finds_weak::<FENCES>("lazy exit", MOST, lazy);
}

/// A CPU enters lazy TLB mode, after it has used a page that another withdraws.
fn goes_lazy<const WEAK: u8>(world: &'static World<WEAK>) {
    world.on(1, |world| {
        world.switch_to(0);
        world.access(0);
    });
    world.run([
        |world| world.unmap(0),
        |world| {
            world.access(0);
            world.engine.enter_lazy();
            world.poll();
        },
    ]);
}

#[test]
fn lazy_entry() {
    sound("lazy entry", TWO, goes_lazy);
    finds_weak::<RELEASE>("lazy entry", TWO, goes_lazy);
    finds_weak::<ACQUIRE>("lazy entry", TWO, goes_lazy);
}

/// An NMI arrives between the end of lazy TLB mode and its barrier, and would use what another CPU withdraws.
fn lazy_nmi<const WEAK: u8>(world: &'static World<WEAK>) {
    world.on(1, |world| {
        world.switch_to(0);
        world.access(0);
        world.engine.enter_lazy();
    });
    world.run([
        |world| world.unmap(0),
        |world| {
            world.nmi_at_barrier(0, 0);
            world.switch_to(0);
        },
    ]);
}

#[test]
fn nmi_during_lazy_exit() {
    sound("lazy exit, NMI", MOST, lazy_nmi);
    finds("lazy exit, NMI", MOST, Bug::UserAccessWithoutBarrier, lazy_nmi);
}

fn lazy_and_watched<const WEAK: u8>(world: &'static World<WEAK>) {
    world.watch(0);
    world.on(1, |world| {
        world.switch_to(0);
        world.engine.enter_lazy();
    });
}

/// Space 0 ends, and is dropped, while a CPU that has it loaded lazily switches to another.
fn dropped<const WEAK: u8>(world: &'static World<WEAK>) {
    lazy_and_watched(world);
    world.run([
        |world| world.end(0),
        |world| {
            world.switch_to(1);
            world.poll();
        },
    ]);
}

/// The same, switching to none.
fn dropped_for_none<const WEAK: u8>(world: &'static World<WEAK>) {
    lazy_and_watched(world);
    world.run([
        |world| world.end(0),
        |world| {
            world.engine.switch_to_kernel();
            world.poll();
        },
    ]);
}

#[test]
fn retired_space_is_not_dropped_while_loaded() {
    let tags = Policy {
        exit: Exit::DeferToRollOver,
        ..tags::ROLL_OVER.design.policy
    };
    for (name, design) in [
        ("space ends", TWO.design),
        ("space ends, log", LOG.design),
        ("space ends, tags", tags.on(Machine::PCID)),
    ] {
        let model = Model {
            design,
            preemptions: 3,
            ..TWO
        };
        sound(name, model, dropped);
        sound(name, model, dropped_for_none);
        finds(name, model, Bug::PublishedBeforeDeparture, dropped);
        finds(name, model, Bug::PublishedBeforeDeparture, dropped_for_none);
    }
}

const THREE: Model = Model {
    cpus: 3,
    preemptions: 2,
    ..TWO
};

const LOG: Model = Model {
    design: Policy {
        requests: Requests::Log,
        ..IPI
    }
    .on(Machine::PCID),
    ..THREE
};

/// A lazy CPU is two generations behind; their two requesters write their log entries meanwhile.
fn behind<const WEAK: u8>(world: &'static World<WEAK>) {
    world.on(1, |world| {
        world.switch_to(0);
        world.access(0);
        world.access(1);
        world.engine.enter_lazy();
    });
    world.run([
        |world| world.unmap(0),
        |world| {
            world.switch_to(0);
            world.access(0);
            world.access(1);
        },
        |world| world.unmap(1),
    ]);
}

#[test]
fn log_append_against_catch_up() {
    sound("log against catch-up", LOG, behind);
    finds("log against catch-up", LOG, Bug::NoBarrierAfterLazy, behind);
}

/// Flushes of another page than those that are withdrawn, from CPU 1, as many as the log has entries. They wait for no
/// CPU before the last was sent.
fn fill_log<const WEAK: u8>(world: &World<WEAK>) {
    let flush = |_| world.engine.dispatch(world.space(0), Range::page(0x1000));
    let tokens: [_; LOG_ENTRIES] = std::array::from_fn(flush);
    tokens.into_iter().for_each(|token| drop(token.wait()));
}

/// CPU 0 has a page cached and is in lazy TLB mode.
fn lazy_with_a_page<const WEAK: u8>(world: &'static World<WEAK>) {
    world.on(0, |world| {
        world.switch_to(0);
        world.access(0);
        world.engine.enter_lazy();
    });
}

/// It returns, and uses the page; an interrupt arrives late.
fn comes_back<const WEAK: u8>(world: &World<WEAK>) {
    world.switch_to(0);
    world.access(0);
    world.poll();
    world.access(0);
}

/// A lazy CPU returns while a page is withdrawn whose log entry has been used before for another.
fn entry_used_again<const WEAK: u8>(world: &'static World<WEAK>) {
    lazy_with_a_page(world);
    world.on(1, fill_log);
    lazy_with_a_page(world);
    world.run([comes_back, |world| world.unmap(0)]);
}

/// A lazy CPU returns, and reads a log entry that is being reused.
fn entry_replaced<const WEAK: u8>(world: &'static World<WEAK>) {
    lazy_with_a_page(world);
    world.on(1, |world| world.unmap(0));
    world.run([comes_back, |world| fill_log(world)]);
}

#[test]
fn log_entries_are_reused() {
    let log = Model {
        design: LOG.design,
        preemptions: 2,
        ..TWO
    };
    sound("log, entry used again", log, entry_used_again);
    finds_weak::<RELEASE>("log, entry used again", log, entry_used_again);
    finds_weak::<ACQUIRE>("log, entry used again", log, entry_used_again);
    let once = Model { preemptions: 1, ..log };
    sound("log, entry replaced", once, entry_replaced);
    finds_weak::<ACQUIRE>("log, entry replaced", once, entry_replaced);
}

/// A CPU that polls occasionally, and goes offline, is a target.
fn asked<const WEAK: u8>(world: &'static World<WEAK>) {
    world.on(1, |world| {
        world.switch_to(0);
        world.access(0);
    });
    world.run([
        |world| world.unmap(0),
        |world| {
            world.access(0);
            world.poll();
            world.access(0);
        },
    ]);
}

#[test]
fn tickets_of_the_log() {
    let log = Model {
        design: LOG.design,
        preemptions: 3,
        ..TWO
    };
    sound("tickets", log, asked);
    finds("tickets", log, Bug::SendBeforePublish, asked);
    finds("tickets", log, Bug::GiveUpWaiting, asked);
}

/// A page of the kernel is withdrawn while a CPU answers an earlier request, and catches up with both.
fn kernel_range<const WEAK: u8>(world: &'static World<WEAK>) {
    for cpu in 0..2 {
        world.on(cpu, |world| {
            world.switch_to(0);
            world.access(0);
        });
    }
    world.on(1, |world| {
        drop(world.engine.dispatch(world.space(0), Range::page(1 << 12)))
    });
    world.run([
        |world| {
            world.poll();
            world.access(0);
            world.poll();
            world.access(0);
        },
        |world| world.unmap_kernel(0),
    ]);
}

#[test]
fn kernel_range_against_catch_up() {
    let log = Model {
        design: LOG.design,
        preemptions: 3,
        ..TWO
    };
    sound("kernel range", log, kernel_range);
    finds("kernel range", log, Bug::GiveUpWaiting, kernel_range);
    finds_weak::<ACQUIRE>("kernel range", log, kernel_range);
}

#[test]
fn queue_of_requests() {
    sound("queue", TWO, asked);
    finds("queue", TWO, Bug::GiveUpWaiting, asked);
    finds_weak::<ACQUIRE>("queue", TWO, asked);
}

/// A CPU walks while another frees the table.
fn walk_and_free<const WEAK: u8>(world: &'static World<WEAK>) {
    world.run([
        |world| world.free_table(),
        |world| {
            world.walk();
            world.poll();
            world.walk();
        },
    ]);
}

const fn walkers(walkers: Walkers) -> Model {
    Model {
        design: Policy { walkers, ..IPI }.on(Machine::PCID),
        ..TWO
    }
}

#[test]
fn walker_publishes_against_free() {
    let precise = walkers(Walkers::Precise);
    sound("precise walk", precise, walk_and_free);
    finds("precise walk", precise, Bug::WalkWithoutFullBarrier, walk_and_free);
    finds("precise walk", precise, Bug::WalkersReadBeforeBarrier, walk_and_free);
    finds("precise walk", precise, Bug::FlushTellsNoWalkers, walk_and_free);
    finds_weak::<FENCES>("precise walk", precise, walk_and_free);
}

#[test]
fn walker_registers_against_free() {
    let sticky = Model {
        preemptions: 7,
        ..walkers(Walkers::Sticky)
    };
    sound("sticky walk", sticky, walk_and_free);
    finds("sticky walk", sticky, Bug::WalkWithoutFullBarrier, walk_and_free);
    finds("sticky walk", sticky, Bug::WalkersReadBeforeBarrier, walk_and_free);
    finds_weak::<RMW_FENCES>("sticky walk", sticky, walk_and_free);
}

/// Two CPUs withdraw a page each and wait for each other.
fn crossed<const WEAK: u8>(world: &'static World<WEAK>) {
    for cpu in 0..2 {
        world.on(cpu, |world| {
            world.switch_to(0);
            world.access(0);
            world.access(1);
        });
    }
    world.run([
        |world| {
            world.access(1);
            world.unmap(0);
        },
        |world| {
            world.access(0);
            world.unmap(1);
        },
    ]);
}

#[test]
fn two_requesters_wait_for_each_other() {
    let model = Model {
        design: LOG.design,
        preemptions: 2,
        ..TWO
    };
    sound("two waiters", model, crossed);
    finds("two waiters", model, Bug::GiveUpWaiting, crossed);
}
