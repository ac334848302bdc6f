//! Queries of a CPU: whether it may access user addresses, and whether it is spared interrupts inside the kernel.

use crate::{LIMITS, Memory, Recorder};
use shootdown::{Design, Engine, Native, Policy, Range, Root, Space, Tags};

/// Everything is leaked, so that hooks can use it.
fn leaked(
    cpus: usize,
    design: impl Into<Design> + Copy,
    broadcasts: bool,
) -> (&'static Recorder, &'static Engine<'static, &'static Recorder, 1>) {
    let kernel: &'static Recorder = Box::leak(Box::new(Recorder {
        limits: LIMITS.filter(|_| broadcasts),
        ..Recorder::default()
    }));
    let machine: &'static mut Memory = Box::leak(Box::new(Memory::new(cpus, design)));
    (kernel, Box::leak(Box::new(machine.engine(kernel, design))))
}

fn space(engine: &Engine<'_, &Recorder, 1>, root: u64) -> &'static Space<Native, 1> {
    Box::leak(Box::new(engine.space(Root(root))))
}

fn run(kernel: &Recorder, engine: &Engine<'_, &Recorder, 1>, cpu: usize, space: &Space<Native, 1>) {
    let before = kernel.cpu.replace(cpu);
    // SAFETY: spaces are leaked.
    unsafe { engine.switch_to(space) };
    kernel.cpu.set(before);
}

fn interrupt(kernel: &Recorder, engine: &Engine<'_, &Recorder, 1>, cpu: usize) {
    let before = kernel.cpu.replace(cpu);
    kernel.masked.set(true);
    // SAFETY: one thread, which selects the CPU.
    unsafe { engine.on_ipi() };
    kernel.masked.set(false);
    kernel.cpu.set(before);
}

/// Promotes as soon as it can.
const PROMOTES: Policy = Policy {
    tags: Tags::HybridByCost { promote_at: 2 },
    consider_window_ns: 1,
    ..Policy::ADAPTIVE
};

#[test]
fn user_access_needs_its_space_loaded_and_fresh() {
    for design in [Policy::IPI, Policy::ADAPTIVE, Policy::ARM_BROADCAST] {
        let (kernel, engine) = leaked(2, design, true);
        let (one, other) = (space(engine, 1), space(engine, 2));
        assert!(!engine.user_access_ok(one), "nothing is loaded");
        run(kernel, engine, 0, one);
        assert!(engine.user_access_ok(one) && !engine.user_access_ok(other));
        // In the middle of a switch, with either root loaded.
        *kernel.on_load.borrow_mut() = Some(Box::new(move || {
            assert!(!engine.user_access_ok(one) && !engine.user_access_ok(other));
        }));
        run(kernel, engine, 0, other);
        run(kernel, engine, 0, one);
        *kernel.on_load.borrow_mut() = None;
        assert!(engine.user_access_ok(one) && !engine.user_access_ok(other));
        engine.enter_lazy();
        assert!(!engine.user_access_ok(one));
        run(kernel, engine, 0, one);
        assert!(engine.user_access_ok(one));
    }
}

#[test]
fn user_access_is_refused_before_a_pending_request_is_served() {
    let (kernel, engine) = leaked(2, Policy::ADAPTIVE, false);
    let one = space(engine, 1);
    run(kernel, engine, 1, one);
    run(kernel, engine, 0, one);
    kernel.cpu.set(1);
    let token = engine.dispatch(one, Range::page(0x1000));
    kernel.cpu.set(0);
    assert!(!engine.user_access_ok(one), "it is behind");
    interrupt(kernel, engine, 0);
    assert!(engine.user_access_ok(one));
    let _done = token.wait();
}

#[test]
fn user_access_is_refused_on_the_slot_of_a_promoted_space() {
    let (kernel, engine) = leaked(2, PROMOTES, true);
    let one = space(engine, 1);
    run(kernel, engine, 1, one);
    run(kernel, engine, 0, one);
    while one.system_tag().is_none() {
        let token = engine.dispatch(one, Range::page(0x1000));
        if one.system_tag().is_none() {
            interrupt(kernel, engine, 1);
        }
        drop(token);
    }
    kernel.cpu.set(1);
    assert!(!engine.user_access_ok(one), "it may be behind on its slot");
    interrupt(kernel, engine, 1);
    kernel.cpu.set(1);
    let token = engine.dispatch(one, Range::page(0x1000));
    interrupt(kernel, engine, 0);
    let _done = token.wait();
    assert!(engine.user_access_ok(one), "it is on the tag");
}

#[test]
fn enter_kernel_defers_flushes_only_if_useful() {
    let (kernel, engine) = leaked(2, Policy::ADAPTIVE, false);
    let (one, other) = (space(engine, 1), space(engine, 2));
    run(kernel, engine, 0, one);
    assert!(!engine.enter_kernel(one), "no other CPU runs it");
    run(kernel, engine, 1, one);
    assert!(!engine.enter_kernel(other), "it is not loaded");
    assert!(engine.enter_kernel(one));
    assert!(!engine.enter_kernel(one), "it is there already");
    kernel.cpu.set(1);
    let done = engine.dispatch(one, Range::page(0x1000));
    assert!(done.needs_no_wait(), "no CPU needs to be interrupted");
    assert_eq!(kernel.ipis.get(), 0);
    let _done = done.wait();
    let before = kernel.local.borrow().len();
    run(kernel, engine, 0, one);
    assert_eq!(kernel.local.borrow().len(), before + 1, "it catches up");
    // An interrupt between the first check and the masking unloads the space, for example to go idle.
    kernel.cpu.set(0);
    *kernel.on_mask.borrow_mut() = Some(Box::new(|| engine.switch_to_kernel()));
    assert!(!engine.enter_kernel(one));
    *kernel.on_mask.borrow_mut() = None;
    run(kernel, engine, 0, one);
    assert!(engine.enter_kernel(one));
}

#[test]
fn enter_kernel_stops_deferring_after_many_unused_sections() {
    let (kernel, engine) = leaked(2, Policy::ADAPTIVE, false);
    let one = space(engine, 1);
    run(kernel, engine, 1, one);
    run(kernel, engine, 0, one);
    let section = || {
        kernel.cpu.set(0);
        let entered = engine.enter_kernel(one);
        run(kernel, engine, 0, one);
        entered
    };
    let flush = || {
        kernel.cpu.set(1);
        engine.dispatch(one, Range::page(0x1000))
    };
    // A request arrives in one of the sections, and has no CPU to interrupt.
    assert!((0..40).all(|_| section()));
    kernel.cpu.set(0);
    assert!(engine.enter_kernel(one));
    let _done = flush().wait();
    run(kernel, engine, 0, one);
    assert_eq!(kernel.ipis.get(), 0);
    // From there on they are counted anew.
    assert!((0..64).all(|_| section()));
    assert!((0..10).all(|_| !section()));
    kernel.cpu.set(0);
    assert!(!engine.enter_kernel(one));
    let token = flush();
    assert_eq!(kernel.ipis.get(), 1);
    interrupt(kernel, engine, 0);
    let _done = token.wait();
    assert!(section());
}

#[test]
fn enter_kernel_defers_only_with_targets_in_user() {
    let (kernel, engine) = leaked(2, Policy::IPI, false);
    let one = space(engine, 1);
    run(kernel, engine, 1, one);
    run(kernel, engine, 0, one);
    assert!(!engine.enter_kernel(one));
}

#[test]
fn enter_kernel_defers_nothing_under_a_system_wide_tag() {
    let design = Policy {
        targets: shootdown::Targets::InUser,
        ..Policy::ARM_BROADCAST
    };
    let (kernel, engine) = leaked(2, design, true);
    let one = space(engine, 1);
    run(kernel, engine, 1, one);
    run(kernel, engine, 0, one);
    assert!(!engine.enter_kernel(one));
}

#[test]
fn online_excludes_offline_cpus() {
    let (kernel, engine) = leaked(4, Policy::IPI, false);
    let online = || engine.online().iter().collect::<Vec<_>>();
    assert_eq!(online(), [0, 1, 2, 3]);
    kernel.cpu.set(2);
    engine.cpu_offline();
    assert_eq!(online(), [0, 1, 3]);
    engine.cpu_online();
    assert_eq!(online(), [0, 1, 2, 3]);
}

#[test]
fn unloaded_hook_reports_each_lazily_unloaded_space() {
    for design in [Policy::IPI, Policy::ADAPTIVE, Policy::ARM_BROADCAST] {
        let (kernel, engine) = leaked(2, design, true);
        let (one, other) = (space(engine, 1), space(engine, 2));
        run(kernel, engine, 0, one);
        run(kernel, engine, 0, other);
        assert_eq!(*kernel.unloaded.borrow(), [], "another space was loaded instead");
        *kernel.on_unload.borrow_mut() = Some(Box::new(move || {
            let loaded = if one.root() == kernel.unloaded.borrow()[0].1 {
                one
            } else {
                other
            };
            assert!(loaded.cpus().contains(kernel.cpu.get()), "it may be freed after that");
        }));
        engine.switch_to_kernel();
        assert_eq!(kernel.unloaded.take(), [(0, other.root())]);
        // Lazily loaded, and asked about by another CPU.
        run(kernel, engine, 1, one);
        kernel.cpu.set(1);
        engine.enter_lazy();
        let _ = engine.retire(one);
        assert_eq!(kernel.unloaded.take(), [(1, one.root())]);
        run(kernel, engine, 1, other);
        engine.cpu_offline();
        assert_eq!(kernel.unloaded.take(), [(1, other.root())]);
    }
}
