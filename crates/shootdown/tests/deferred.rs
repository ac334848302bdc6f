//! Deferred unmaps on this host's own atomics: which CPUs are interrupted, what waits, and for which CPUs.

use shootdown::{
    CpuMask, Deferral, Engine, Kernel, Local, Native, PerCpu, Policy, Range, Root, Space, Storage, Tag, Unmapped,
};
use std::cell::Cell;

/// A kernel on one host thread. The test selects the CPU; interrupts are taken at once.
#[derive(Default)]
struct ByHand {
    cpu: Cell<usize>,
    interrupted: Cell<CpuMask<1>>,
    invalidations: Cell<usize>,
}

// SAFETY: each test uses its kernel from one thread.
unsafe impl Sync for ByHand {}

// SAFETY: one thread, which selects the CPU; no translations.
unsafe impl Kernel<1> for &ByHand {
    const PREEMPTIBLE: bool = false;
    type Facade = Native;
    fn cpu(&self) -> usize {
        self.cpu.get()
    }
    fn interrupts_off(&self) -> u64 {
        0
    }
    fn interrupts_restore(&self, _saved: u64) {}
    fn send_ipi(&self, targets: &CpuMask<1>) {
        self.interrupted.set(*targets);
    }
    fn invalidate(&self, _what: Local) {
        self.invalidations.set(self.invalidations.get() + 1);
    }
    fn load_root(&self, _root: Root, _tag: Tag, _keep: bool) {}
}

type OnHost<'a> = Engine<'a, &'a ByHand, 1>;

/// Runs `test` with three CPUs, of which the first two run the space.
fn with_two_of_three_running(test: impl Fn(&ByHand, &OnHost<'_>, &Space<Native, 1>)) {
    let kernel = ByHand::default();
    let mut cpus = [PerCpu::new(), PerCpu::new(), PerCpu::new()];
    let design = Policy {
        defer_frames: 8,
        ..Policy::DEFERRED
    };
    let storage = Storage {
        cpus: &mut cpus,
        tags: &mut [],
    };
    let engine = Engine::new(&kernel, design.into(), Root(0), storage);
    let space = engine.space(Root(1));
    for cpu in 0..3 {
        kernel.cpu.set(cpu);
        engine.cpu_online();
        if cpu < 2 {
            // SAFETY: the space outlives the engine's use of it.
            unsafe { engine.switch_to(&space) };
        }
    }
    kernel.cpu.set(0);
    kernel.invalidations.set(0);
    test(&kernel, &engine, &space);
}

fn deferred(unmapped: Unmapped) -> Deferral {
    match unmapped {
        Unmapped::Later(deferral) => deferral,
        Unmapped::Now(_) => panic!("the unmap was not deferred"),
    }
}

fn page() -> Range {
    Range::page(0x7000_0000)
}

#[test]
fn deferred_frames_wait_for_a_tick_on_every_cpu_without_ipis() {
    with_two_of_three_running(|kernel, engine, space| {
        let mut waiting = deferred(engine.flush_later(space, page(), 1));
        assert_eq!(kernel.invalidations.get(), 1, "this CPU is flushed at once");
        let ticks = |cpu| {
            kernel.cpu.set(cpu);
            engine.tick();
            engine.deferrals_over()
        };
        // CPU 0 alone, any number of times.
        for _ in 0..4 {
            waiting = engine.release(waiting, &ticks(0)).expect_err("CPU 1 has not flushed");
        }
        ticks(1);
        assert_eq!(kernel.invalidations.get(), 2, "CPU 1 flushes at its tick");
        ticks(0);
        ticks(1);
        let done = engine.release(waiting, &ticks(0));
        assert!(done.is_ok() && kernel.interrupted.get().is_empty());
    });
}

#[test]
fn deferral_does_not_wait_for_lazy_or_offline_cpus() {
    for goes_off in [false, true] {
        with_two_of_three_running(|kernel, engine, space| {
            let waiting = deferred(engine.flush_later(space, page(), 1));
            kernel.cpu.set(1);
            match goes_off {
                false => engine.enter_lazy(),
                true => engine.cpu_offline(),
            }
            kernel.cpu.set(0);
            for _ in 0..2 {
                engine.tick();
                let _begins_the_next = engine.deferrals_over();
            }
            assert!(engine.release(waiting, &engine.deferrals_over()).is_ok());
        });
    }
}

#[test]
fn deferral_limit_is_enforced_and_restored() {
    with_two_of_three_running(|kernel, engine, space| {
        let waiting = deferred(engine.flush_later(space, page(), 8));
        // No other CPU runs it, so the synchronous flush completes at once.
        kernel.cpu.set(1);
        engine.switch_to_kernel();
        kernel.cpu.set(0);
        let Unmapped::Now(flushed) = engine.flush_later(space, page(), 1) else {
            panic!("more waits than may");
        };
        engine.release_by(waiting, &flushed).expect("of the same space");
        kernel.cpu.set(1);
        // SAFETY: as above.
        unsafe { engine.switch_to(space) };
        kernel.cpu.set(0);
        let waiting = deferred(engine.flush_later(space, page(), 8));
        let flushed = flushed_alone(kernel, engine, space);
        engine.release_by(waiting, &flushed).expect("of the same space");
    });
}

/// A flush that finds the space on CPU 0 only.
fn flushed_alone(kernel: &ByHand, engine: &OnHost<'_>, space: &Space<Native, 1>) -> shootdown::Flushed {
    kernel.cpu.set(1);
    engine.switch_to_kernel();
    kernel.cpu.set(0);
    engine.flush(space, Range::WHOLE)
}

#[test]
fn nmi_user_access_is_refused_until_the_deferred_flush() {
    with_two_of_three_running(|kernel, engine, space| {
        kernel.cpu.set(1);
        assert!(engine.user_access_ok(space));
        kernel.cpu.set(0);
        let waiting = deferred(engine.flush_later(space, page(), 1));
        assert!(engine.user_access_ok(space));
        kernel.cpu.set(1);
        assert!(!engine.user_access_ok(space));
        engine.tick();
        // It has flushed for this epoch already, so it flushes for the next.
        let _begins_the_next = engine.deferrals_over();
        engine.tick();
        assert!(engine.user_access_ok(space));
        engine.enter_lazy();
        assert!(!engine.user_access_ok(space), "lazy");
        kernel.cpu.set(2);
        assert!(!engine.user_access_ok(space), "not loaded");
        let flushed = flushed_alone(kernel, engine, space);
        engine.release_by(waiting, &flushed).expect("of the same space");
    });
}

#[test]
fn foreign_and_batch_proofs_release_no_deferred_frames() {
    with_two_of_three_running(|kernel, engine, space| {
        let other = engine.space(Root(9));
        let mut waiting = deferred(engine.flush_later(space, page(), 1));
        // No other CPU runs it from here on, so flushes wait for no answer.
        let flushed = flushed_alone(kernel, engine, space);
        waiting = engine
            .release_by(waiting, &engine.flush(&other, Range::WHOLE))
            .expect_err("of another space");
        let mut batch = engine.batch();
        batch.add(&other, page());
        batch.add(space, page());
        waiting = engine
            .release_by(waiting, &batch.finish())
            .expect_err("it does not say of which spaces");
        engine.release_by(waiting, &flushed).expect("of the same space");
    });
}
