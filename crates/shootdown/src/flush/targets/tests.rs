//! Which CPUs are targets while a CPU is in the middle of a switch, and what a waiter does meanwhile; several requests
//! taken together.

use crate::cpu::state::{PerCpu, State};
use crate::cpuset::CpuMask;
use crate::design::{Ack, Design, Errata, Machine, Policy, Requests, Wait};
use crate::engine::{Engine, Storage};
use crate::facade::{Facade, Word};
use crate::hooks::{Broadcast, BroadcastLimits, CpuId, Kernel, Local, Root, Tag};
use crate::range::{Range, Stride};
use crate::space::Space;
use crate::space::log::{FlushLog, LOG_ENTRIES};
use crate::testing::interleave::{self, InterleavedWord};
use crate::transport::request::{Asked, Request};
use core::cell::{Cell, RefCell};
use core::sync::atomic::Ordering;
use std::boxed::Box;
use std::vec::Vec;

type OnWait = Box<dyn FnMut()>;

std::thread_local! {
    static CPU: Cell<usize> = const { Cell::new(0) };
    /// What each CPU has loaded.
    static ROOTS: Cell<[u64; CPUS]> = const { Cell::new([0; CPUS]) };
    static INTERRUPTED: RefCell<Vec<CpuId>> = const { RefCell::new(Vec::new()) };
    static INVALIDATED: RefCell<Vec<Local>> = const { RefCell::new(Vec::new()) };
    /// Runs at each invalidation.
    static ON_INVALIDATION: RefCell<Option<OnWait>> = const { RefCell::new(None) };
    /// Runs after each poll of a waiter.
    static ON_WAIT: RefCell<Option<OnWait>> = const { RefCell::new(None) };
}

const CPUS: usize = 3;

struct World;

// SAFETY: one thread, no translations.
unsafe impl Facade for World {
    type U64 = InterleavedWord;
    fn full_barrier() {}
    fn publish_tables() {}
    fn after_ipi() {}
    fn before_ipi() {}
    fn before_root_load() {}
    fn wait_until(mut condition: impl FnMut() -> bool) {
        for _ in 0..100 {
            if condition() {
                return;
            }
            let act = ON_WAIT.take();
            ON_WAIT.set(act.map(|mut act| {
                act();
                act
            }));
        }
        panic!("waits for ever");
    }
}

// SAFETY: one thread, no translations.
unsafe impl Kernel<1> for World {
    const PREEMPTIBLE: bool = false;
    type Facade = World;
    fn cpu(&self) -> usize {
        CPU.get()
    }
    fn interrupts_off(&self) -> u64 {
        0
    }
    fn interrupts_restore(&self, _saved: u64) {}
    fn send_ipi(&self, targets: &CpuMask<1>) {
        INTERRUPTED.with_borrow_mut(|all| all.extend(targets.iter()));
    }
    fn invalidate(&self, what: Local) {
        INVALIDATED.with_borrow_mut(|all| all.push(what));
        ON_INVALIDATION.with_borrow_mut(|act| act.iter_mut().for_each(|act| act()));
    }
    fn load_root(&self, root: Root, _tag: Tag, _keep: bool) {
        let mut roots = ROOTS.get();
        roots[CPU.get()] = root.0;
        ROOTS.set(roots);
    }
    fn broadcast_limits(&self) -> Option<BroadcastLimits> {
        Some(BroadcastLimits {
            max_pages: 8,
            max_large_pages: 8,
        })
    }
    fn broadcast(&self, _what: Broadcast) {}
    fn broadcast_sync(&self) {}
    fn now_ns(&self) -> u64 {
        0
    }
}

type Sys = Engine<'static, World, 1>;
type InWorld = &'static Space<World, 1>;

fn on<T>(cpu: usize, what: impl FnOnce() -> T) -> T {
    let me = CPU.replace(cpu);
    let result = what();
    CPU.set(me);
    result
}

fn leaked_space(engine: &Sys, root: u64) -> InWorld {
    Box::leak(Box::new(engine.space(Root(root))))
}

fn switch(engine: &Sys, cpu: usize, space: InWorld) {
    // SAFETY: spaces are leaked.
    on(cpu, || unsafe { engine.switch_to(space) });
}

/// Three CPUs that run one space.
fn three(design: impl Into<Design>) -> (&'static Sys, InWorld) {
    let mut design = design.into();
    design.policy.stuck_ns = 0;
    let storage = Storage {
        cpus: Vec::leak((0..CPUS).map(|_| PerCpu::new()).collect()),
        tags: Vec::leak(
            (0..crate::tag_words(design.machine.tag_limit))
                .map(|_| InterleavedWord::new(0))
                .collect(),
        ),
    };
    let engine: &'static Sys = Box::leak(Box::new(Engine::new(World, design, Root(0), storage)));
    let space = leaked_space(engine, 1);
    for cpu in 0..CPUS {
        on(cpu, || engine.cpu_online());
        switch(engine, cpu, space);
    }
    (engine, space)
}

/// Sets the action at each poll of a waiter.
fn on_wait(act: impl FnMut() + 'static) {
    ON_WAIT.set(Some(Box::new(act)));
}

/// The shootdown interrupt on the current CPU.
fn handle(engine: &Sys) {
    // SAFETY: one thread.
    unsafe { engine.on_ipi() }
}

/// Every CPU but 0 answers.
fn others_answer(engine: &Sys) {
    (1..CPUS).for_each(|cpu| on(cpu, || handle(engine)));
}

fn tables() -> Range {
    Range::pages(0, 1 << 21, Stride::Size2M).with_tables()
}

const LOG: Policy = Policy {
    requests: Requests::Log,
    wait: Wait::SpinServing,
    ..Policy::IPI
};

/// At each operation of CPU 1's switch to another space, CPU 0 runs `flush`. If CPU 1 has the first root loaded at that
/// point, it must be interrupted: its walker may still use what is flushed.
fn is_asked_until_the_root_is_gone(design: impl Into<Design> + Copy, flush: fn(&'static Sys, InWorld)) {
    let mut moments = 0;
    for operation in 0.. {
        let (engine, space) = three(design);
        let other = leaked_space(engine, 2);
        interleave::after(operation, move || {
            let loaded = ROOTS.get()[1] == space.root().0;
            INTERRUPTED.take();
            on(0, || flush(engine, space));
            let asked = INTERRUPTED.with_borrow(|all| all.contains(&1));
            assert!(asked || !loaded, "before operation {operation} it was not asked");
        });
        switch(engine, 1, other);
        if !interleave::never() {
            break;
        }
        moments += 1;
    }
    assert!(moments > 5, "a switch takes some operations");
}

#[test]
fn cpu_is_a_target_for_tables_until_its_old_root_is_replaced() {
    is_asked_until_the_root_is_gone(LOG, |engine, space| drop(engine.dispatch(space, tables())));
}

#[test]
fn ipi_after_broadcast_includes_cpus_until_the_old_root_is_replaced() {
    let design = Policy::ARM_BROADCAST.on(Machine {
        errata: Errata {
            interrupt_too: true,
            ..Errata::NONE
        },
        ..Machine::PCID
    });
    fn flush(engine: &'static Sys, space: InWorld) {
        on_wait(|| others_answer(engine));
        let _done = engine.flush(space, Range::page(0x1000));
        ON_WAIT.set(None);
    }
    is_asked_until_the_root_is_gone(design, flush);
}

#[test]
fn flush_waits_for_a_switching_cpu_to_load() {
    for on_tag in [false, true] {
        for loads_tag in [false, true] {
            let (engine, space) = three(LOG);
            let (one, two) = (&engine.cpus[1], &engine.cpus[2]);
            two.publish(State::KERNEL);
            one.publish(State::switching(space.id()));
            let mut looks = 0;
            on_wait(move || {
                looks += 1;
                if looks == 3 {
                    one.publish(State::loaded(space.id(), loads_tag));
                }
            });
            let found = engine.stragglers(space, 0, on_tag);
            assert_eq!(found.contains(1), on_tag == loads_tag);
            // On its way to another space, it is not found.
            one.publish(State::switching(space.id() + 1));
            on_wait(move || one.publish(State::loaded(space.id() + 1, on_tag)));
            assert!(engine.stragglers(space, 0, on_tag).is_empty());
            ON_WAIT.set(None);
        }
    }
}

/// A request to catch up in CPU 0's queue.
fn queued() -> &'static Request<World> {
    let asked = Box::leak(Box::new(Request::<World>::sending()));
    asked.write(&Asked::CATCH_UP.encode(0, &Range::WHOLE), 0, 0);
    asked
}

#[test]
fn wait_for_a_switch_ends_with_it_and_serves_nothing() {
    let (engine, space) = three(LOG);
    let asked = queued();
    assert_eq!(engine.cpus[0].queue.put(1, asked), Some((1, true)));
    asked.sent(1);
    let one = &engine.cpus[1];
    one.publish(State::switching(space.id()));
    let mut looks = 0;
    on_wait(move || {
        assert!(!asked.is_complete(), "it would be served deep in the stack");
        looks += 1;
        if looks == 3 {
            one.publish(State::KERNEL);
        }
    });
    engine.stragglers(space, 0, true);
    ON_WAIT.set(None);
    assert!(!one.state().is_switching());
    on(0, || handle(engine));
    assert!(asked.is_complete());
}

#[test]
fn waiter_serves_posted_requests() {
    let (engine, space) = three(LOG);
    let posted = on(2, || engine.dispatch(space, Range::page(0x2000)));
    let served = &engine.cpus[0].served.0;
    assert_eq!(served.load(Ordering::Relaxed), 0);
    let mut looks = 0;
    on_wait(move || {
        looks += 1;
        // No CPU answers before it has served.
        if served.load(Ordering::Relaxed) == 1 {
            others_answer(engine);
        }
        assert!(looks < 50, "it does not serve");
    });
    let _done = engine.flush(space, Range::page(0x1000));
    on_wait(|| {});
    let _done = on(2, || posted.wait());
    ON_WAIT.set(None);
}

#[test]
fn handler_acknowledges_early_and_a_waiter_after_invalidation() {
    for in_handler in [true, false] {
        for posted in [true, false] {
            let (engine, space) = three(Policy { ack: Ack::Early, ..LOG });
            let me = &engine.cpus[0];
            let answered: Box<dyn Fn() -> bool> = if posted {
                drop(on(2, || engine.dispatch(space, Range::page(0x2000))));
                Box::new(|| me.served.0.load(Ordering::Relaxed) == 1)
            } else {
                let generation = space.log.generation.fetch_add_full(1) + 1;
                let asked: &'static Request<World> = Box::leak(Box::new(Request::sending()));
                asked.write(&Asked::space(space.id()).encode(generation, &Range::page(0x2000)), 0, 0);
                assert!(me.queue.put(2, asked).is_some());
                asked.sent(1);
                Box::new(|| asked.is_complete())
            };
            let early = std::rc::Rc::new(Cell::new(None));
            let seen = early.clone();
            ON_INVALIDATION.set(Some(Box::new(move || seen.set(Some(answered())))));
            match in_handler {
                true => handle(engine),
                false => assert!(engine.serve_own()),
            }
            ON_INVALIDATION.set(None);
            assert_eq!(early.get(), Some(in_handler), "posted: {posted}");
        }
    }
}

#[test]
fn first_of_two_dequeued_requests_catches_up_with_both() {
    let (engine, space) = three(Policy::IPI);
    let target = &engine.cpus[1];
    let requests = [0x1000, 0x2000].map(|address| {
        let generation = space.log.generation.fetch_add_full(1) + 1;
        let asked: &'static Request<World> = Box::leak(Box::new(Request::sending()));
        asked.write(
            &Asked::space(space.id()).encode(generation, &Range::page(address)),
            0,
            0,
        );
        assert!(target.queue.put(0, asked).is_some());
        asked.sent(1);
        asked
    });
    INVALIDATED.take();
    on(1, || handle(engine));
    assert!(requests.iter().all(|asked| asked.is_complete()));
    let whole = INVALIDATED.take();
    assert!(matches!(whole[..], [Local::Tag(_)]), "{whole:?}");
}

/// `catch_up` with two pages in a log, the second of which is overwritten before one of its operations on words, for
/// each operation in turn. Both pages are invalidated, or `whole` is.
fn nothing_is_missed_that_is_overwritten_meanwhile(
    log_of: fn(&'static Sys, InWorld) -> (&'static FlushLog<World>, &'static InterleavedWord),
    catch_up: fn(&Sys, InWorld, [u64; 2]),
    whole: Local,
) {
    let mut moments = 0;
    for operation in 0.. {
        let (engine, space) = three(LOG);
        let (log, generation) = log_of(engine, space);
        let missed = [1, 2].map(|page| {
            let generation = generation.fetch_add_full(1) + 1;
            log.append(generation, &Range::page(page << 12));
            generation
        });
        INVALIDATED.take();
        interleave::after(operation, move || {
            log.append(missed[1] + LOG_ENTRIES as u64, &Range::page(77 << 12));
        });
        catch_up(engine, space, missed);
        if !interleave::never() {
            break;
        }
        moments += 1;
        let done = INVALIDATED.take();
        let covers = |page: u64| {
            done.iter().any(|what| match *what {
                Local::Kernel { address, .. } | Local::Page { address, .. } => address == page << 12,
                what => what == whole,
            })
        };
        assert!(
            covers(1) && covers(2),
            "{done:?}, overwritten before operation {operation}"
        );
    }
    assert!(moments > 5, "to read the log takes some operations");
}

#[test]
fn overwritten_log_entry_flushes_the_tag() {
    nothing_is_missed_that_is_overwritten_meanwhile(
        |_, space| (&space.log, &space.log.generation),
        |engine, space, [first, last]| {
            let slot = &engine.cpus[1].own.slots[0];
            slot.generation.store(first - 1, Ordering::Relaxed);
            engine.flush_logged(slot, &space.log, last, Tag(5));
        },
        Local::Tag(Tag(5)),
    );
}

#[test]
fn overwritten_kernel_log_entry_flushes_everything() {
    nothing_is_missed_that_is_overwritten_meanwhile(
        |engine, _| (&engine.kernel_log, &engine.kernel_log.generation),
        |engine, _, _| engine.catch_up_kernel(&engine.cpus[1]),
        Local::All,
    );
}
