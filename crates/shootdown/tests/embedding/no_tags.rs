//! A machine without tags: every root is loaded under tag 0 and nothing survives a load, for every policy.
//! A switch for callers with interrupts off, with tags and without.

use crate::{LIMITS, Memory, Recorder};
use shootdown::{Local, Machine, Policy, Range, Root, Space, Tag};

/// A machine whose other fields have no meaning: without tags there are no lower ones and no pairs.
const NO_TAGS: Machine = Machine {
    split: true,
    ..Machine::NO_TAGS
};

#[test]
fn no_tags_machine_flushes_at_every_root_load() {
    for policy in [
        Policy::IPI,
        Policy::BROADCAST,
        Policy::ADAPTIVE,
        Policy::ARM_LOCAL_FIRST,
    ] {
        let kernel = Recorder {
            limits: LIMITS,
            ..Recorder::default()
        };
        let mut machine = Memory::new(2, policy.on(NO_TAGS));
        let engine = machine.engine(&kernel, policy.on(NO_TAGS));
        let spaces = [1, 2].map(|root| engine.space(Root(root)));
        // SAFETY: each space is retired before it is dropped.
        let enter = |space| unsafe { engine.switch_to(space) };
        // Back to a space that was loaded recently and has missed no flush, through another space and the kernel's
        // root.
        for next in [0, 1, 0] {
            enter(&spaces[next]);
        }
        engine.switch_to_kernel();
        enter(&spaces[0]);
        let loads = kernel.loads.take();
        assert_eq!(loads, [(0, Tag(0), false); 5], "{policy:?}");
        kernel.local.borrow_mut().clear();
        let _done = engine.flush(&spaces[0], Range::page(0x1000));
        let flushed = kernel.local.take();
        assert!(
            matches!(flushed[..], [(0, Local::Page { tag: Tag(0), .. })]),
            "{flushed:?} under {policy:?}"
        );
        assert_eq!(spaces.each_ref().map(Space::system_tag), [None, None]);
        for space in &spaces {
            let _done = engine.retire(space);
        }
    }
}

#[test]
fn no_tags_machine_flushes_a_kernel_page_once() {
    let kernel = Recorder::default();
    let mut machine = Memory::new(1, Policy::IPI.on(NO_TAGS));
    let engine = machine.engine(&kernel, Policy::IPI.on(NO_TAGS));
    let _done = engine.flush_kernel(Range::page(0xFFFF_8000_0000_0000));
    let flushed = kernel.local.take();
    assert!(matches!(flushed[..], [(0, Local::Kernel { .. })]), "{flushed:?}");
    assert!(!engine.machine().split);
}

#[test]
fn tagged_machine_keeps_entries_of_a_fresh_space() {
    let kernel = Recorder::default();
    let mut machine = Memory::new(1, Policy::IPI);
    let engine = machine.engine(&kernel, Policy::IPI);
    let space = engine.space(Root(1));
    for _ in 0..2 {
        // SAFETY: the space is retired before it is dropped.
        unsafe { engine.switch_to(&space) };
        engine.switch_to_kernel();
    }
    let loads = kernel.loads.take();
    let expected = [
        (0, Tag(1), false),
        (0, Tag(0), true),
        (0, Tag(1), true),
        (0, Tag(0), true),
    ];
    assert_eq!(loads, expected);
    let _done = engine.retire(&space);
}

#[test]
fn switch_with_interrupts_off_leaves_them_alone() {
    for machine in [NO_TAGS, Machine::PCID] {
        let kernel = Recorder::default();
        let mut memory = Memory::new(1, Policy::IPI.on(machine));
        let engine = memory.engine(&kernel, Policy::IPI.on(machine));
        let spaces = [1, 2].map(|root| engine.space(Root(root)));
        kernel.masked.set(true);
        *kernel.on_mask.borrow_mut() = Some(Box::new(|| panic!("interrupts are masked again")));
        for next in [0, 1, 1] {
            // SAFETY: each space is retired before it is dropped.
            unsafe { engine.switch_to_interrupts_off(&spaces[next]) };
        }
        kernel.on_mask.take();
        assert!(kernel.masked.replace(false));
        assert_eq!(kernel.loads.take().len(), 2);
        assert_eq!(spaces.each_ref().map(|space| space.cpus().len()), [0, 1]);
        for space in &spaces {
            let _done = engine.retire(space);
        }
    }
}
