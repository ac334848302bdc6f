//! TLBs that belong to no CPU.

use crate::{LIMITS, Memory, Recorder};
use shootdown::{Policy, Range, Reach, Root, Secondary, Tags, Unmapped};

#[test]
fn secondary_tlbs_are_notified_and_synced_before_the_proof() {
    for reach in [Reach::Ipi, Reach::Broadcast, Reach::LocalFirst] {
        for tags in [Tags::PerCpu, Tags::System] {
            if reach == Reach::LocalFirst && tags == Tags::PerCpu {
                continue;
            }
            let design = Policy {
                reach,
                tags,
                ..Policy::IPI
            };
            let mut machine = Memory::new(1, design);
            let kernel = Recorder {
                limits: LIMITS,
                ..Recorder::default()
            };
            let engine = machine.engine(&kernel, design);
            let (a, b) = (engine.space(Root(10)), engine.space(Root(20)));
            // SAFETY: both spaces outlive the engine's use of them.
            unsafe { engine.switch_to(&a) };
            let (page, tables) = (Range::page(0x5000), Range::page(0x7000).with_tables());

            kernel.device.set(false);
            let _done = engine.flush(&a, page);
            assert!(kernel.awaited.borrow().is_empty(), "there is nothing to wait for");
            kernel.device.set(true);
            let token = engine.dispatch(&b, page);
            assert!(!token.needs_no_wait(), "the device is not done");
            let _done = token.wait();
            assert_eq!(*kernel.awaited.borrow(), [2]);
            let mut batch = engine.batch();
            batch.add(&a, page);
            batch.add(&b, tables);
            // A request without a space cannot name A's tag, so A's range takes a flush of its own. B has no tag yet.
            let apart = tags == Tags::System && reach == Reach::Ipi;
            assert_eq!(kernel.awaited.borrow().len(), if apart { 2 } else { 1 });
            let _done = batch.finish();
            if apart {
                assert_eq!(kernel.awaited.borrow_mut().remove(1), 3);
            }
            assert_eq!(
                *kernel.awaited.borrow(),
                [2, 4],
                "once for the rest, and the last of it"
            );
            let _done = engine.flush_tables(&a, page);
            let _done = engine.flush_kernel(Range::page(0x9000));
            let _done = engine.retire(&a);
            assert_eq!(*kernel.awaited.borrow(), [2, 4, 5, 6, 7]);
            let flush = |root, range| (Root(root), Secondary::Flush(range));
            assert_eq!(
                *kernel.notified.borrow(),
                [
                    flush(10, page),
                    flush(20, page),
                    flush(10, page),
                    flush(20, tables),
                    flush(10, page.with_tables()),
                    flush(0, Range::page(0x9000)),
                    (Root(10), Secondary::End),
                ]
            );
        }
    }
}

/// The hook that waits checks that waiting is allowed.
#[test]
fn deferred_unmap_syncs_devices_unpinned() {
    let design = Policy::DEFERRED;
    let mut machine = Memory::new(2, design);
    let kernel = Recorder::default();
    let engine = machine.engine(&kernel, design);
    let space = engine.space(Root(10));
    kernel.device.set(true);
    for (cpu, awaited) in [(0, 1), (1, 2)] {
        kernel.cpu.set(cpu);
        // SAFETY: the space outlives the engine's use of it.
        unsafe { engine.switch_to(&space) };
        kernel.cpu.set(0);
        let unmapped = engine.flush_later(&space, Range::page(0x5000), 1);
        assert_eq!(matches!(unmapped, Unmapped::Later(_)), cpu == 1, "CPU 1 has it too");
        assert_eq!(kernel.awaited.borrow().last(), Some(&awaited));
    }
}
