//! A kernel whose policy is fixed when it is compiled.

use shootdown::{CpuMask, Engine, Kernel, Local, Native, PerCpu, Policy, Range, Root, Storage, Tag};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// A kernel of one CPU that is compiled for one design. Counts its invalidations.
#[derive(Default)]
struct Compiled(AtomicUsize);

// SAFETY: one thread; no translations.
unsafe impl Kernel<1> for Compiled {
    const PREEMPTIBLE: bool = false;
    const POLICY: Option<Policy> = Some(Policy::IPI);
    type Facade = Native;
    fn cpu(&self) -> usize {
        0
    }
    fn interrupts_off(&self) -> u64 {
        0
    }
    fn interrupts_restore(&self, _saved: u64) {}
    fn send_ipi(&self, _targets: &CpuMask<1>) {}
    fn invalidate(&self, _what: Local) {
        self.0.fetch_add(1, Relaxed);
    }
    fn load_root(&self, _root: Root, _tag: Tag, _keep: bool) {}
}

#[test]
#[should_panic(expected = "the kernel is compiled for another policy")]
fn policy_other_than_the_compiled_one_is_refused() {
    let mut cpus = [PerCpu::new()];
    let made = |cpus: &mut [PerCpu<Native>], design| {
        *Engine::new(Compiled::default(), design, Root(0), Storage { cpus, tags: &mut [] }).policy()
    };
    assert_eq!(made(&mut cpus, Policy::IPI.into()), Policy::IPI);
    made(&mut cpus, Policy::PREEMPTIBLE.into());
}

#[test]
fn flush_of_this_cpu_invalidates_under_a_compiled_policy() {
    let cpus = &mut [PerCpu::new()];
    let storage = Storage { cpus, tags: &mut [] };
    let engine = Engine::new(Compiled::default(), Policy::IPI.into(), Root(0), storage);
    engine.cpu_online();
    let space = engine.space(Root(1));
    // SAFETY: the space outlives the engine's use of it.
    unsafe { engine.switch_to(&space) };
    let before = engine.kernel().0.load(Relaxed);
    let _done = engine.flush(&space, Range::page(0x1000));
    assert_eq!(engine.kernel().0.load(Relaxed), before + 1);
}
