//! Designs that are refused, and calls out of place.

use crate::{Memory, Recorder};
use shootdown::{Engine, Local, Machine, Policy, Range, Root, Storage, Tags, USER_HALF, tag_words};

#[test]
#[should_panic(expected = "system-wide tags must outnumber the CPUs")]
fn fewer_tags_than_cpus_are_refused() {
    let design = Policy {
        tags: Tags::System,
        ..Policy::IPI
    }
    .on(Machine {
        tag_limit: 4,
        ..Machine::PCID
    });
    let (kernel, mut machine) = (Recorder::default(), Memory::new(4, design));
    let _engine = machine.engine(&kernel, design);
}

#[test]
fn slots_on_kernel_or_user_half_tags_are_refused() {
    let refused = [
        (
            Policy::IPI.on(Machine {
                first_tag: 0,
                ..Machine::PCID
            }),
            "tag 0 is the kernel's root's",
        ),
        (
            Policy::IPI.on(Machine {
                tag_limit: 6,
                ..Machine::PCID
            }),
            "the slots' tags must lie below the end of tags",
        ),
        (
            Policy::IPI.on(Machine {
                split: true,
                first_tag: shootdown::USER_HALF - 5,
                ..Machine::PCID
            }),
            "the slots' tags must lie below the end of tags",
        ),
        (
            Policy {
                consider_window_ns: 0,
                ..Policy::BROADCAST
            }
            .on(Machine::PCID),
            "a sampling window has a length",
        ),
        (
            Policy {
                tags: Tags::System,
                ..Policy::IPI
            }
            .on(Machine {
                first_tag: 100,
                tag_limit: 50,
                ..Machine::PCID
            }),
            "system-wide tags must outnumber the CPUs",
        ),
    ];
    for (design, reason) in refused {
        let made = std::panic::catch_unwind(|| {
            let (kernel, mut machine) = (Recorder::default(), Memory::new(1, design));
            let _engine = machine.engine(&kernel, design);
        });
        let panic = made.expect_err("it is refused");
        let literal = panic.downcast_ref::<&str>().map(ToString::to_string);
        let message = panic.downcast_ref::<String>().cloned().or(literal);
        assert!(message.is_some_and(|message| message.contains(reason)), "{design:?}");
    }
}

/// Runs a misuse: a debug build panics, a release build flushes more than requested.
fn panics_in_debug_builds(misuse: impl FnOnce()) {
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(misuse));
    assert_eq!(outcome.is_err(), cfg!(debug_assertions));
}

#[test]
fn second_cpu_online_keeps_the_loaded_space_visible() {
    let (kernel, mut machine) = (Recorder::default(), Memory::new(2, Policy::ADAPTIVE));
    let engine = machine.engine(&kernel, Policy::ADAPTIVE);
    let space = engine.space(Root(1));
    kernel.cpu.set(1);
    // SAFETY: the space outlives the engine's use of it.
    unsafe { engine.switch_to(&space) };
    panics_in_debug_builds(|| engine.cpu_online());
    kernel.cpu.set(0);
    let _token = engine.dispatch(&space, Range::page(0x1000));
    assert_eq!(kernel.ipis.get(), 1, "CPU 1 is interrupted");
}

#[test]
fn offline_cpu_does_not_load_a_space_with_stale_entries() {
    let (kernel, mut machine) = (Recorder::default(), Memory::new(2, Policy::IPI));
    let engine = machine.engine(&kernel, Policy::IPI);
    let space = engine.space(Root(1));
    kernel.cpu.set(1);
    engine.cpu_offline();
    // SAFETY: the space outlives the engine's use of it.
    panics_in_debug_builds(|| unsafe { engine.switch_to(&space) });
    if !cfg!(debug_assertions) {
        assert!(engine.online().contains(1), "it was brought online");
        assert!(kernel.local.borrow().contains(&(1, Local::All)));
    }
}

#[test]
fn unfit_storage_and_meaningless_settings_are_refused() {
    let sampled = |sample_one_in| {
        Policy {
            sample_one_in,
            ..Policy::ADAPTIVE
        }
        .on(Machine::PCID)
    };
    let slots = |slots| Policy { slots, ..Policy::IPI }.on(Machine::PCID);
    let tagged = |split, tag_limit| {
        Policy::BROADCAST.on(Machine {
            split,
            tag_limit,
            ..Machine::PCID
        })
    };
    let cases = [
        (Policy::IPI.into(), 0, usize::MAX, Some("1 to 64 CPUs for each")),
        (Policy::IPI.into(), 65, usize::MAX, Some("1 to 64 CPUs for each")),
        (Policy::IPI.into(), 64, usize::MAX, None),
        (slots(0), 2, usize::MAX, Some("slots must be 1 to")),
        (slots(17), 2, usize::MAX, Some("slots must be 1 to")),
        (sampled(3), 2, usize::MAX, Some("sampling one in a power of two")),
        (Policy::BROADCAST.into(), 2, 1, Some("tag words needed")),
        // Tags of slots need no words, and neither do user halves. Other tags need one bit for each tag of the machine.
        (Policy::IPI.into(), 2, 0, None),
        (tagged(true, 4096), 2, tag_words(USER_HALF.into()), None),
        (
            tagged(false, 4096),
            2,
            tag_words(USER_HALF.into()),
            Some("tag words needed"),
        ),
        (tagged(true, 100), 2, tag_words(100), None),
    ];
    for (design, cpus, words, reason) in cases {
        let kernel = Recorder::default();
        let mut machine = Memory::new(cpus, design);
        let made = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let words = words.min(machine.tags.len());
            let storage = Storage {
                cpus: &mut machine.cpus,
                tags: &mut machine.tags[..words],
            };
            let _engine = Engine::<_, 1>::new(&kernel, design, Root(0), storage);
        }));
        let said = made.err().map(|panic| match panic.downcast_ref::<String>() {
            Some(text) => text.clone(),
            None => (*panic.downcast_ref::<&str>().expect("a text")).to_string(),
        });
        let as_expected = match (&said, reason) {
            (Some(said), Some(reason)) => said.contains(reason),
            (said, reason) => said.is_none() && reason.is_none(),
        };
        assert!(as_expected, "{cpus} CPUs, {words} words: {said:?}, expected {reason:?}");
    }
}
