//! Sets of more than 512 CPUs, which keep a summary: a join is a full barrier, whether or not the CPU is a member.

use loom::sync::Arc;
use loom::thread;
use shootdown::{CpuSet, Facade, Word};
use shootdown_loom::{FENCES, Loom, NOTHING};
use std::panic::{catch_unwind, set_hook, take_hook};
use std::sync::atomic::Ordering::Relaxed;

const CPU: usize = 70;

/// A CPU that is in the set writes one word, joins, and reads another. The CPU that writes that word reads the first.
fn joins_again<const WEAK: u8>() {
    let words = [(); 2].map(|()| <Loom<WEAK> as Facade>::U64::new(0));
    let shared = Arc::new((CpuSet::<Loom<WEAK>, 9>::new(), words));
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
fn rejoining_the_set_is_a_full_barrier() {
    let hook = take_hook();
    set_hook(Box::new(|_| {}));
    let sound = catch_unwind(|| loom::model(joins_again::<NOTHING>));
    let weak = catch_unwind(|| loom::model(joins_again::<FENCES>));
    set_hook(hook);
    assert!(
        sound.is_ok() && weak.is_err(),
        "each may miss the other without fences, and only so"
    );
}
