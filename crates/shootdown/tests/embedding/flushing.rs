//! What a flush does on the requester's CPU, and what a CPU that missed it does at its next load.

use crate::{LIMITS, Memory, Recorder};
use shootdown::{Broadcast, Engine, Local, Machine, Native, Policy, Range, Root, Space, Stride, Tag, Tags};

/// The flush log, and per-CPU tags.
const PER_CPU_TAGS: Policy = Policy {
    tags: Tags::PerCpu,
    ..Policy::ADAPTIVE
};

/// This CPU runs each of `spaces` in turn. The caller keeps them while the engine is used.
fn run_in_turn<const N: usize>(engine: &Engine<'_, &Recorder, 1>, spaces: [&Space<Native, 1>; N]) {
    for space in spaces {
        // SAFETY: the spaces outlive the engine's use of them.
        unsafe { engine.switch_to(space) };
    }
}

#[test]
fn space_on_one_cpu_is_flushed_by_page_without_ipis() {
    let (kernel, mut machine) = (Recorder::default(), Memory::new(4, Policy::IPI));
    let engine = machine.engine(&kernel, Policy::IPI);
    let space = engine.space(Root(1));
    run_in_turn(&engine, [&space]);
    let _done = engine.flush(&space, Range::pages(0x5000, 0x8000, Stride::Size4K));
    assert_eq!(kernel.ipis.get(), 0);
    let pages: Vec<_> = kernel.local.borrow().iter().map(|&(cpu, what)| (cpu, what)).collect();
    assert_eq!(pages.len(), 3, "{pages:?}");
    for (index, (cpu, what)) in pages.into_iter().enumerate() {
        let address = 0x5000 + index as u64 * 4096;
        assert_eq!(
            (cpu, what),
            (
                0,
                Local::Page {
                    address,
                    stride: Stride::Size4K,
                    tag: Tag(1),
                    leaf_only: true
                }
            )
        );
    }
}

#[test]
fn local_only_policy_invalidates_only_locally() {
    let (kernel, mut machine) = (Recorder::default(), Memory::new(2, Policy::LOCAL_ONLY));
    let engine = machine.engine(&kernel, Policy::LOCAL_ONLY);
    let space = engine.space(Root(1));
    for cpu in [1, 0] {
        kernel.cpu.set(cpu);
        run_in_turn(&engine, [&space]);
    }
    kernel.local.borrow_mut().clear();
    kernel.device.set(true);
    let _ = engine.flush(&space, Range::page(0x5000));
    let _ = engine.dispatch(&space, Range::page(0x6000)).wait();
    let mut batch = engine.batch();
    batch.add(&space, Range::page(0x7000));
    let _ = batch.finish();
    let _ = engine.flush_kernel(Range::page(0x8000));
    let local = kernel.local.borrow();
    assert_eq!(local.len(), 4, "{local:?}");
    assert!(local.iter().all(|(cpu, _)| *cpu == 0), "{local:?}");
    assert_eq!(kernel.ipis.get(), 0);
    assert_eq!((kernel.notified.borrow().len(), kernel.awaited.borrow().len()), (4, 4));
}

#[test]
fn spurious_fault_invalidates_its_page_locally_under_every_tag() {
    let (kernel, mut machine) = (Recorder::default(), Memory::new(2, Policy::IPI));
    let engine = machine.engine(&kernel, Policy::IPI);
    engine.spurious_fault(0x5123);
    let (address, stride) = (0x5000, Stride::Size4K);
    assert_eq!(*kernel.local.borrow(), [(0, Local::Kernel { address, stride })]);
    assert!(!kernel.masked.get());
}

#[test]
fn range_above_the_ceiling_flushes_the_tag() {
    let (kernel, mut machine) = (Recorder::default(), Memory::new(1, Policy::IPI));
    let engine = machine.engine(&kernel, Policy::IPI);
    let space = engine.space(Root(1));
    run_in_turn(&engine, [&space]);
    let _done = engine.flush(&space, Range::pages(0, 34 * 4096, Stride::Size4K));
    assert_eq!(*kernel.local.borrow(), [(0, Local::Tag(Tag(1)))]);
}

#[test]
fn only_a_stale_slot_is_flushed_at_its_next_load() {
    let (kernel, mut machine) = (Recorder::default(), Memory::new(2, Policy::IPI));
    let engine = machine.engine(&kernel, Policy::IPI);
    let (a, b) = (engine.space(Root(1)), engine.space(Root(2)));
    run_in_turn(&engine, [&a, &b, &a]);
    let _done = engine.flush(&b, Range::page(0x1000));
    run_in_turn(&engine, [&b]);
    let loads: Vec<_> = kernel
        .loads
        .borrow()
        .iter()
        .map(|&(_, tag, keep)| (tag.0, keep))
        .collect();
    assert_eq!(loads, [(1, false), (2, false), (1, true), (2, false)]);
}

#[test]
fn stale_slot_catches_up_by_page_from_the_flush_log() {
    let (kernel, mut machine) = (Recorder::default(), Memory::new(2, PER_CPU_TAGS));
    let engine = machine.engine(&kernel, PER_CPU_TAGS);
    let (a, b) = (engine.space(Root(1)), engine.space(Root(2)));
    run_in_turn(&engine, [&a, &b]);
    for page in 0..shootdown::LOG_ENTRIES as u64 {
        let _done = engine.flush(&a, Range::page(page * 4096));
    }
    assert!(
        kernel.local.borrow().is_empty(),
        "the space is not loaded, nothing is due yet"
    );
    run_in_turn(&engine, [&a]);
    assert_eq!(
        kernel.loads.borrow().last().copied(),
        Some((0, Tag(1), true)),
        "its entries are kept"
    );
    let flushed: Vec<_> = kernel.local.borrow().iter().map(|&(_, what)| what).collect();
    assert_eq!(flushed.len(), shootdown::LOG_ENTRIES);
    assert!(
        flushed.iter().all(|what| matches!(what, Local::Page { .. })),
        "{flushed:?}"
    );
}

#[test]
fn sole_cpu_flush_writes_no_log_entry() {
    let design = Policy {
        tags: Tags::PerCpu,
        ..Policy::ADAPTIVE
    };
    // Alone, and with CPU 1, which is in lazy TLB mode.
    for (company, kept) in [(false, false), (true, true)] {
        let (kernel, mut machine) = (Recorder::default(), Memory::new(3, design));
        let engine = machine.engine(&kernel, design);
        let (a, b) = (engine.space(Root(1)), engine.space(Root(2)));
        let on = |cpu: usize| kernel.cpu.set(cpu);
        // SAFETY: as above.
        unsafe {
            on(2);
            engine.switch_to(&a);
            engine.switch_to(&b);
            if company {
                on(1);
                engine.switch_to(&a);
                engine.enter_lazy();
            }
            on(0);
            engine.switch_to(&a);
        }
        let _done = engine.flush(&a, Range::page(0x1000));
        assert_eq!(kernel.local.borrow().len(), 1, "its own page, nothing else");
        assert_eq!(kernel.ipis.get(), 0);
        on(2);
        // SAFETY: as above.
        unsafe { engine.switch_to(&a) };
        let load = kernel.loads.borrow().last().copied();
        assert_eq!(load, Some((2, Tag(1), kept)), "company: {company}");
    }
}

#[test]
fn overrun_log_flushes_the_whole_tag() {
    let (kernel, mut machine) = (Recorder::default(), Memory::new(2, PER_CPU_TAGS));
    let engine = machine.engine(&kernel, PER_CPU_TAGS);
    let (a, b) = (engine.space(Root(1)), engine.space(Root(2)));
    run_in_turn(&engine, [&a, &b]);
    for page in 0..=shootdown::LOG_ENTRIES as u64 {
        let _done = engine.flush(&a, Range::page(page * 4096));
    }
    run_in_turn(&engine, [&a]);
    assert_eq!(
        kernel.loads.borrow().last().copied(),
        Some((0, Tag(1), false)),
        "flushed with the load"
    );
}

#[test]
fn flush_covers_user_and_kernel_half() {
    let design = Policy::IPI.on(Machine {
        split: true,
        ..Machine::PCID
    });
    let (kernel, mut machine) = (Recorder::default(), Memory::new(1, design));
    let engine = machine.engine(&kernel, design);
    let space = engine.space(Root(1));
    run_in_turn(&engine, [&space]);
    kernel.local.borrow_mut().clear();
    let _done = engine.flush(&space, Range::page(0x1000));
    let tags: Vec<_> = kernel
        .local
        .borrow()
        .iter()
        .map(|(_, what)| match what {
            Local::Page { tag, .. } => tag.0,
            other => panic!("unexpected {other:?}"),
        })
        .collect();
    assert_eq!(tags, [1, 1 | shootdown::USER_HALF]);
}

#[test]
fn kernel_range_is_broadcast_in_chunks_with_one_sync() {
    let (kernel, mut machine) = (
        Recorder {
            limits: LIMITS,
            ..Recorder::default()
        },
        Memory::new(2, Policy::BROADCAST),
    );
    let engine = machine.engine(&kernel, Policy::BROADCAST);
    let start = 0xffff_8000_0000_0000;
    let _done = engine.flush_kernel(Range::pages(start, start + 20 * 4096, Stride::Size4K));
    let counts: Vec<_> = kernel
        .broadcasts
        .borrow()
        .iter()
        .map(|what| match what {
            Broadcast::Kernel { count, .. } => *count,
            other => panic!("unexpected {other:?}"),
        })
        .collect();
    assert_eq!((counts.as_slice(), kernel.synced.get()), ([8, 8, 4].as_slice(), 1));
}

#[test]
fn kernel_table_flush_covers_unloaded_tags() {
    for design in [Policy::IPI, Policy::ADAPTIVE] {
        let (kernel, mut machine) = (Recorder::default(), Memory::new(2, design));
        let engine = machine.engine(&kernel, design);
        let range = Range::page(0xffff_8000_0000_0000).with_tables();
        kernel.cpu.set(1);
        engine.cpu_offline();
        kernel.cpu.set(0);
        let _done = engine.flush_kernel(range);
        assert_eq!(
            *kernel.local.borrow(),
            [(0, Local::All)],
            "a page invalidation is not enough"
        );
    }
}

#[test]
fn flush_pending_flushes_a_batch_once() {
    let (kernel, mut machine) = (Recorder::default(), Memory::new(2, Policy::IPI));
    let engine = machine.engine(&kernel, Policy::IPI);
    let space = engine.space(Root(1));
    run_in_turn(&engine, [&space]);
    let flushes = || kernel.local.borrow().len();
    engine.flush_pending(&space);
    assert_eq!(flushes(), 0, "nothing is pending");
    let mut batch = engine.batch();
    batch.add(&space, Range::page(0x1000));
    assert_eq!(flushes(), 0, "it waits for the others");
    engine.flush_pending(&space);
    assert_eq!(flushes(), 1);
    engine.flush_pending(&space);
    assert_eq!(flushes(), 1, "nothing is pending any more");
    let _done = batch.finish();
}

#[test]
fn empty_batch_does_nothing() {
    let (kernel, mut machine) = (Recorder::default(), Memory::new(2, Policy::IPI));
    let engine = machine.engine(&kernel, Policy::IPI);
    let space = engine.space(Root(1));
    run_in_turn(&engine, [&space]);
    let _behind = engine.flush(&space, Range::page(0x1000));
    let (before, pins) = (kernel.local.borrow().len(), kernel.pinned.get());
    let _done = engine.batch().finish();
    drop(engine.batch());
    assert_eq!((kernel.local.borrow().len(), kernel.pinned.get()), (before, pins));
}

#[test]
fn dispatched_kernel_flush_can_be_polled_and_waited_for() {
    for design in [Policy::IPI, PER_CPU_TAGS] {
        let (kernel, mut machine) = (Recorder::default(), Memory::new(1, design));
        let engine = machine.engine(&kernel, design);
        let token = engine.dispatch_kernel(Range::page(0xffff_8000_0000_0000));
        assert!(token.poll() && token.needs_no_wait(), "no other CPU is on");
        let _done = token.wait();
        assert_eq!(kernel.local.borrow().len(), 1, "{:?}", design.requests);
    }
}

#[test]
fn flush_this_cpu_is_local_and_flush_everything_is_global() {
    for policy in [Policy::IPI, PER_CPU_TAGS] {
        let kernel = Recorder::default();
        let mut machine = Memory::new(2, policy);
        let engine = machine.engine(&kernel, policy);
        engine.flush_this_cpu();
        assert_eq!(kernel.local.take(), [(0, Local::All)]);
        assert_eq!(kernel.ipis.get(), 0);
        kernel.cpu.set(1);
        engine.cpu_offline();
        kernel.cpu.set(0);
        let _done = engine.flush_all();
        assert_eq!(kernel.local.take(), [(0, Local::All)], "the other CPU is off");
    }
    let kernel = Recorder {
        limits: LIMITS,
        ..Recorder::default()
    };
    let mut machine = Memory::new(2, Policy::ARM_BROADCAST);
    let engine = machine.engine(&kernel, Policy::ARM_BROADCAST);
    let _done = engine.flush_all();
    assert_eq!(kernel.broadcasts.take(), [Broadcast::All]);
}
