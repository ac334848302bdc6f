//! A kernel whose policy is fixed when it is compiled.

use shootdown::{
    Broadcast, BroadcastLimits, CpuMask, Engine, Kernel, Local, Machine, Native, PerCpu, Policy, Range, Root, Storage,
    Tag,
};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// A kernel of one CPU that is compiled for one design: by broadcast, or by interrupts. Counts its invalidations, and
/// its broadcasts.
#[derive(Default)]
struct Compiled<const BROADCASTS: bool>(AtomicUsize, AtomicUsize);

// SAFETY: one thread; no translations.
unsafe impl<const BROADCASTS: bool> Kernel<1> for Compiled<BROADCASTS> {
    const PREEMPTIBLE: bool = false;
    const POLICY: Option<Policy> = Some(if BROADCASTS { Policy::ARM_BROADCAST } else { Policy::IPI });
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
    fn broadcast_limits(&self) -> Option<BroadcastLimits> {
        BROADCASTS.then_some(BroadcastLimits {
            max_pages: 1,
            max_large_pages: 1,
        })
    }
    fn broadcast(&self, what: Broadcast) {
        assert!(matches!(what, Broadcast::Pages { tag: Tag(1..), .. }), "{what:?}");
        self.1.fetch_add(1, Relaxed);
    }
    fn broadcast_sync(&self) {}
}

#[test]
#[should_panic(expected = "the kernel is compiled for another policy")]
fn policy_other_than_the_compiled_one_is_refused() {
    let mut cpus = [PerCpu::new()];
    let made = |cpus: &mut [PerCpu<Native>], design| {
        *Engine::new(
            Compiled::<false>::default(),
            design,
            Root(0),
            Storage { cpus, tags: &mut [] },
        )
        .policy()
    };
    assert_eq!(made(&mut cpus, Policy::IPI.into()), Policy::IPI);
    made(&mut cpus, Policy::PREEMPTIBLE.into());
}

#[test]
fn flush_of_this_cpu_invalidates_under_a_compiled_policy() {
    let cpus = &mut [PerCpu::new()];
    let storage = Storage { cpus, tags: &mut [] };
    let engine = Engine::new(Compiled::<false>::default(), Policy::IPI.into(), Root(0), storage);
    engine.cpu_online();
    let space = engine.space(Root(1));
    // SAFETY: the space outlives the engine's use of it.
    unsafe { engine.switch_to(&space) };
    let before = engine.kernel().0.load(Relaxed);
    let _done = engine.flush(&space, Range::page(0x1000));
    assert_eq!(engine.kernel().0.load(Relaxed), before + 1);
}

#[test]
fn flush_broadcasts_under_the_tag_of_a_compiled_policy() {
    let cpus = &mut [PerCpu::new()];
    let tags = &mut Vec::from_iter((0..shootdown::tag_words(256)).map(|_| shootdown::Word::new(0)))[..];
    let storage = Storage { cpus, tags };
    let design = Policy::ARM_BROADCAST.on(Machine::with_tag_bits(8));
    let engine = Engine::new(Compiled::<true>::default(), design, Root(0), storage);
    engine.cpu_online();
    let space = engine.space(Root(1));
    // SAFETY: the space outlives the engine's use of it.
    unsafe { engine.switch_to(&space) };
    let counts = || (engine.kernel().0.load(Relaxed), engine.kernel().1.load(Relaxed));
    let (here, broadcast) = counts();
    let _done = engine.flush(&space, Range::page(0x1000));
    assert_eq!(counts(), (here, broadcast + 1));
}
