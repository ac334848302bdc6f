//! Requests to other CPUs: tokens, and reports of CPUs that do not answer.

use crate::{Memory, Recorder};
use shootdown::{Engine, Native, Policy, Range, Root, Space};

#[test]
#[allow(clippy::forget_non_drop, reason = "that it has nothing to drop is what is tested")]
fn forgotten_token_leaks_no_state() {
    let (kernel, mut machine) = (Recorder::default(), Memory::new(2, Policy::ADAPTIVE));
    let engine = machine.engine(&kernel, Policy::ADAPTIVE);
    let space = engine.space(Root(1));
    for cpu in [1, 0] {
        kernel.cpu.set(cpu);
        // SAFETY: the spaces outlive the engine's use of them.
        unsafe { engine.switch_to(&space) };
    }
    let token = engine.dispatch(&space, Range::page(0x1000));
    assert!(!token.needs_no_wait());
    assert_eq!(kernel.ipis.get(), 1);
    std::mem::forget(token);
    // A second request finds the first still posted, and sends no second interrupt.
    let token = engine.dispatch(&space, Range::page(0x2000));
    assert_eq!(kernel.ipis.get(), 1);
    kernel.cpu.set(1);
    kernel.masked.set(true);
    // SAFETY: one thread, which selects the CPU.
    unsafe { engine.on_ipi() };
    kernel.masked.set(false);
    kernel.cpu.set(0);
    let _done = token.wait();
    let on_1: Vec<_> = kernel
        .local
        .borrow()
        .iter()
        .filter(|(cpu, _)| *cpu == 1)
        .map(|&(_, what)| what)
        .collect();
    assert_eq!(on_1.len(), 2, "both ranges, by one interrupt: {on_1:?}");
}

#[test]
fn stuck_report_omits_cpus_that_answered() {
    let design = Policy {
        stuck_ns: 1,
        ..Policy::IPI
    };
    // Leaked, so that the clock can let the other CPUs act while CPU 0 waits.
    let kernel: &'static Recorder = Box::leak(Box::default());
    let machine: &'static mut Memory = Box::leak(Box::new(Memory::new(3, design)));
    let engine: &'static _ = Box::leak(Box::new(machine.engine(kernel, design)));
    let space = engine.space(Root(1));
    for cpu in [2, 1, 0] {
        kernel.cpu.set(cpu);
        // SAFETY: the space outlives the engine's use of it.
        unsafe { engine.switch_to(&space) };
    }
    *kernel.on_clock.borrow_mut() = Some(Box::new(move || {
        // CPU 1 answers at once, CPU 2 when it has been reported.
        let answers = if kernel.reported.borrow().is_empty() { 1 } else { 2 };
        let me = kernel.cpu.replace(answers);
        // SAFETY: one thread, which selects the CPU.
        unsafe { engine.on_ipi() };
        kernel.cpu.set(me);
    }));
    let _done = engine.flush(&space, Range::page(0x1000));
    assert_eq!(*kernel.reported.borrow(), [2]);
}

#[test]
fn stuck_report_omits_an_offline_cpu_with_a_full_queue() {
    /// Slots of a CPU's queue (`transport/request.rs`).
    const SLOTS: usize = 64;
    let design = Policy {
        stuck_ns: 1,
        ..Policy::IPI
    };
    let kernel: &'static Recorder = Box::leak(Box::default());
    let machine: &'static mut Memory = Box::leak(Box::new(Memory::new(3, design)));
    let engine: &'static Engine<'_, &Recorder, 1> = Box::leak(Box::new(machine.engine(kernel, design)));
    let space: &'static Space<Native, 1> = Box::leak(Box::new(engine.space(Root(1))));
    for cpu in [1, 0] {
        kernel.cpu.set(cpu);
        // SAFETY: the space outlives the engine's use of it.
        unsafe { engine.switch_to(space) };
    }
    // Each request finds CPU 1 online and is interrupted by another request before it is sent. The last of them sees
    // CPU 1 go offline. Then they are sent, the last first, and taken back one by one. Their slots stay taken, so the
    // first request finds none.
    fn interrupted(kernel: &'static Recorder, before: usize, last: &'static dyn Fn(), flush: &'static dyn Fn()) {
        *kernel.on_mask.borrow_mut() = Some(Box::new(move || match before {
            0 => last(),
            _ => {
                interrupted(kernel, before - 1, last, flush);
                flush();
            }
        }));
    }
    let go_off = Box::leak(Box::new(move || {
        kernel.cpu.set(1);
        engine.cpu_offline();
        kernel.cpu.set(0);
    }));
    let flush = Box::leak(Box::new(move || {
        let _done = engine.flush(space, Range::page(0x1000));
    }));
    interrupted(kernel, SLOTS, go_off, flush);
    // CPU 2 answers when the clock is read, which only a wait does.
    *kernel.on_clock.borrow_mut() = Some(Box::new(move || {
        let me = kernel.cpu.replace(2);
        // SAFETY: one thread, which selects the CPU.
        unsafe { engine.on_ipi() };
        kernel.cpu.set(me);
    }));
    let _done = engine.flush_kernel(Range::page(0x2000));
    assert!(!engine.online().contains(1));
    assert!(
        kernel.local.borrow().iter().any(|(cpu, _)| *cpu == 2),
        "it was waited for"
    );
}
