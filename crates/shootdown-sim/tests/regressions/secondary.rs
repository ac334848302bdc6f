//! Secondary TLBs: a device reads a process's memory through the page tables while they change.

use super::roles::*;
use super::scene::*;
use shootdown::{Design, Order, Policy, Reach, Tags};
use shootdown_known_bugs::Bug;
use shootdown_sim::hw::Rule;
use shootdown_sim::machine;
use shootdown_sim::os::{KERNEL_BASE, PAGE};

fn scene(design: impl Into<Design>) -> Scene {
    Scene {
        devices: 1,
        ..Scene::new(2, design)
    }
}

/// Two CPUs run the process; CPU 0 maps and unmaps, with and without freeing a table.
fn unmap_under_a_device(stage: &Stage) {
    let a = stage.process(1);
    let b = a.clone();
    stage.device(&a, 4, 300);
    stage.cpu(0, move |system| {
        system.load(&a);
        rounds(|start| {
            map_and_write(system, &a);
            about(10_000, 1200).come(start);
            system.drop_pages(&a, P, 2);
            until(start + 20_000);
            system.unmap(&a, P, 4 * PAGE);
        });
    });
    stage.cpu(1, move |system| {
        system.load(&b);
        rounds(|start| {
            until(start + 4_000);
            look(system, P);
            until(start + 12_000);
            look(system, P);
        });
    });
}

/// For every kind of flush, the device is flushed, and waited for before frames and tables are freed.
#[test]
fn device_uses_no_flushed_translation_under_any_method() {
    let rolled = |reach| Policy {
        tags: Tags::System,
        reach,
        ..IPI
    };
    let adaptive = Policy {
        reach: Reach::Adaptive,
        order: Order::Concurrent,
        ..BROADCAST
    };
    for design in [
        IPI,
        PREEMPTIBLE,
        LOG,
        LOG_PREEMPTIBLE,
        BROADCAST,
        adaptive,
        rolled(Reach::Ipi),
        rolled(Reach::Broadcast),
        rolled(Reach::LocalFirst),
    ] {
        let scene = Scene {
            seeds: 40,
            ..scene(design)
        };
        never_broken(&scene, unmap_under_a_device);
    }
}

/// The proof was given when all CPUs had answered, with the device's invalidation still in its queue.
#[test]
fn proof_waits_for_the_device() {
    for design in [IPI, LOG_PREEMPTIBLE, BROADCAST] {
        let symptom = Symptom::Breaks(Rule::C1);
        contract(&scene(design), Bug::SecondaryNotAwaited, symptom, unmap_under_a_device);
    }
}

/// A broadcast reaches every CPU, and no device.
#[test]
fn device_is_notified_of_broadcast_flushes() {
    let symptom = Symptom::Breaks(Rule::C1);
    contract(
        &scene(BROADCAST),
        Bug::SecondaryNotToldUnderTag,
        symptom,
        unmap_under_a_device,
    );
}

/// The requests of a batch are collected; each space's devices are flushed too.
#[test]
fn device_is_notified_of_batches() {
    for design in [IPI, LOG, BROADCAST] {
        let symptom = Symptom::Breaks(Rule::C1);
        contract(&scene(design), Bug::SecondaryNotToldByBatch, symptom, |stage| {
            let a = stage.process(1);
            stage.device(&a, 4, 300);
            stage.cpu(0, move |system| {
                system.load(&a);
                rounds(|start| {
                    write(system, &a, 2);
                    until(start + 10_000);
                    system.reclaim(&[(&*a, P), (&*a, P + PAGE)]);
                });
            });
        });
    }
}

/// At its end no CPU has a space loaded; a device that is still attached walks tables that are free.
#[test]
fn device_detaches_from_an_ended_space() {
    for design in [IPI, LOG, BROADCAST] {
        let symptom = Symptom::Breaks(Rule::C3);
        contract(&scene(design), Bug::SecondaryNotToldOfEnd, symptom, |stage| {
            let a = stage.process(1);
            stage.device(&a, 4, 300);
            stage.cpu(0, move |system| {
                system.load(&a);
                write(system, &a, 4);
                until(ROUND + machine::random_below(2_000));
                system.unload();
                system.exit(&a);
            });
        });
    }
}

/// 52, CVE-2025-71089 and 71202: a device that shares page tables walks the kernel half too, and keeps links to tables
/// there although it may not use their mappings. Page-table pages of the kernel were freed without flushing it.
#[test]
fn device_drops_links_to_freed_kernel_tables() {
    for design in [IPI, LOG, BROADCAST] {
        let symptom = Symptom::Breaks(Rule::C3);
        contract(&scene(design), Bug::SecondaryNotToldOfKernel, symptom, |stage| {
            let pages = stage.system.kernel_pages();
            let a = stage.process(1);
            stage.device_in(&a, KERNEL_BASE, 4, 300);
            stage.cpu(0, move |system| {
                rounds(|start| {
                    (0..4).for_each(|page| system.map_kernel(&pages, page));
                    until(start + 10_000);
                    system.unmap_kernel(&pages, 0, 4);
                    system.free_kernel_table(&pages);
                });
            });
            stage.cpu(1, move |system| {
                system.load(&a);
                rounds(|start| {
                    for page in 0..40 {
                        system.touch_kernel(page % 4);
                        dawdle(500);
                    }
                    until(start + 20_000);
                });
            });
        });
    }
}

/// 55, XSA-480, CVE-2026-23554: tables of the second stage were freed as soon as they were unlinked; the flush had been
/// deferred to the end of the operation.
#[test]
fn table_is_freed_only_after_its_deferred_flush() {
    for design in [IPI, LOG, BROADCAST] {
        let symptom = Symptom::Breaks(Rule::C3);
        let fault = Bug::TablesFreedBeforeDeferredFlush;
        contract(&scene(design), fault, symptom, unmap_under_a_device);
    }
}
