//! Sets of more than 512 CPUs, which keep a summary: what joining, leaving and looking order.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use shootdown::{CpuSet, Facade, Word};
use shootdown_loom::{ACQUIRE, FENCES, Loom, NOTHING};
use std::panic::{catch_unwind, set_hook, take_hook};
use std::sync::atomic::Ordering::Relaxed;

type Set<const WEAK: u8> = CpuSet<Loom<WEAK>, 9>;

const CPU: usize = 70;

/// Whether `scene` holds in every interleaving.
fn holds(scene: fn()) -> bool {
    let hook = take_hook();
    set_hook(Box::new(|_| {}));
    let held = catch_unwind(|| loom::model(scene)).is_ok();
    set_hook(hook);
    held
}

/// A CPU uses something and leaves; `is_gone` says that it is not in the set: then what it used is used by somebody else.
fn leaves<const WEAK: u8>(is_gone: fn(&Set<WEAK>) -> bool) {
    let shared = Arc::new((Set::<WEAK>::new(), UnsafeCell::new(0)));
    shared.0.join(CPU);
    let its = shared.clone();
    let cpu = thread::spawn(move || {
        its.1.with(|_| ());
        its.0.leave(CPU);
    });
    if is_gone(&shared.0) {
        shared.1.with_mut(|_| ());
    }
    cpu.join().expect("it does not fail");
}

#[test]
fn who_is_seen_to_have_left_is_through_with_what_it_used() {
    assert!(holds(|| leaves::<NOTHING>(|set| set.is_empty())));
    assert!(holds(|| leaves::<NOTHING>(|set| !set.has_others(0, 9 * 64))));
    assert!(!holds(|| leaves::<ACQUIRE>(|set| set.is_empty())));
    assert!(!holds(|| leaves::<ACQUIRE>(|set| !set.has_others(0, 9 * 64))));
}

/// A CPU that is in the set joins, and reads; another that writes what it reads looks for what the first has written.
fn joins_again<const WEAK: u8>() {
    let shared = Arc::new((
        Set::<WEAK>::new(),
        [(); 2].map(|()| <Loom<WEAK> as Facade>::U64::new(0)),
    ));
    shared.0.join(CPU);
    let its = shared.clone();
    let cpu = thread::spawn(move || {
        its.1[0].store(1, Relaxed);
        its.0.join(CPU);
        its.1[1].load(Relaxed)
    });
    shared.1[1].store(1, Relaxed);
    Loom::<NOTHING>::full_barrier();
    let seen = shared.1[0].load(Relaxed);
    assert_ne!(
        (cpu.join().expect("it does not fail"), seen),
        (0, 0),
        "each missed the other"
    );
}

#[test]
fn to_join_again_is_a_full_barrier_too() {
    assert!(holds(joins_again::<NOTHING>));
    assert!(!holds(joins_again::<FENCES>));
}
