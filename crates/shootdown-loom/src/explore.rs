//! Runs a model in every interleaving.

use crate::execution::known_words;
use crate::model::Model;
use crate::world::{Machine, World, build};
use shootdown::CpuId;
use std::panic::{catch_unwind, set_hook, take_hook};
use std::sync::atomic::{AtomicUsize, Ordering};

impl Model {
    /// Runs `scene` in every interleaving, one model at a time. Returns their number. With two CPUs, each in turn is
    /// the one whose code loom's first thread runs: where that thread waits, and so yields, loom does not come back to
    /// let the other begin before it. (With three CPUs only the first: two that wait for one that begins exceed loom's
    /// bound on branches.)
    ///
    /// # Errors
    /// A description of the first interleaving that broke the contract.
    pub fn check<const WEAK: u8>(self, scene: fn(&'static World<WEAK>)) -> Result<usize, String> {
        let firsts = if self.cpus == 2 { 2 } else { 1 };
        (0..firsts).map(|first| self.check_from::<WEAK>(first, scene)).sum()
    }

    fn check_from<const WEAK: u8>(self, first: CpuId, scene: fn(&'static World<WEAK>)) -> Result<usize, String> {
        static RUNS: AtomicUsize = AtomicUsize::new(0);
        loop {
            RUNS.store(0, Ordering::Relaxed);
            let known = known_words();
            // Failures are expected here. The hook is restored, because loom's coroutines have one of their own.
            let hook = take_hook();
            set_hook(Box::new(|_| {}));
            let checked = catch_unwind(|| self.explore(first, scene, &RUNS));
            set_hook(hook);
            // A word that is created when a CPU first uses it counts as created by that CPU, which is wrong. Now that
            // it is known it is created in time, so the model runs again.
            if known_words() == known {
                return match checked {
                    Ok(()) => Ok(RUNS.load(Ordering::Relaxed)),
                    Err(failure) => Err(
                        match (failure.downcast_ref::<String>(), failure.downcast_ref::<&str>()) {
                            (Some(why), _) => why.clone(),
                            (_, Some(why)) => (*why).to_string(),
                            _ => "it panicked".to_string(),
                        },
                    ),
                };
            }
        }
    }

    fn explore<const WEAK: u8>(self, first: CpuId, scene: fn(&'static World<WEAK>), runs: &'static AtomicUsize) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(self.preemptions);
        builder.max_branches = 5_000;
        builder.check(move || {
            runs.fetch_add(1, Ordering::Relaxed);
            // On a thread of its own, because loom's coroutines have small stacks.
            let built = std::thread::scope(|scope| scope.spawn(|| build::<WEAK>(self, first)).join());
            let (machine, world) = built.expect("it is built");
            let machine: *mut Machine<WEAK> = std::ptr::with_exposed_provenance_mut(machine);
            let world: *mut World<WEAK> = std::ptr::with_exposed_provenance_mut(world);
            // SAFETY: freed below, when all threads have been joined; not at all when one of them panics.
            let scene_of: &'static World<WEAK> = unsafe { &*world };
            scene_of.begin();
            scene(scene_of);
            // SAFETY: the scene has joined its threads (`World::run` does), so this is the only reference.
            unsafe {
                drop(Box::from_raw(world));
                drop(Box::from_raw(machine));
            }
        });
    }
}
