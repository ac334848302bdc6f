//! Bugs of kernels around the flush: which call is made, when, and for what. Here the script makes the mistake, not the
//! engine, so there is no patch: without the mistake no rule is broken, with it the oracle reports.

use super::roles::*;
use super::scene::*;
use shootdown::{Local, Range, Stride};
use shootdown_sim::hw::Rule;
use shootdown_sim::os::PAGE;

/// CPU 1 keeps reading the page that CPU 0 withdraws in each round; `kernel` is CPU 0's reaction.
fn withdraw_under_a_reader(kernel: fn(&Sys, &Proc)) -> impl Fn(&Stage) {
    move |stage: &Stage| {
        let a = stage.process(1);
        stage.reads_pages(1, &a, 4, at(6_000));
        stage.writes_and(0, &a, 4, at(10_000), kernel);
    }
}

/// `right` breaks no rule; with `wrong` the oracle reports `rule`.
#[track_caller]
fn only_the_mistake_shows(right: fn(&Sys, &Proc), wrong: fn(&Sys, &Proc), rule: Rule) {
    for design in [IPI, LOG, BROADCAST] {
        let mut scene = Scene::new(2, design);
        scene.seeds = 50;
        never_broken(&scene, withdraw_under_a_reader(right));
        let played = play(&scene, 0, None, &withdraw_under_a_reader(wrong));
        assert!(played.shows(Symptom::Breaks(rule)), "the oracle saw nothing");
    }
}

/// 8, Linux CVE-2018-18281: mremap moved entries and released the lock before it had flushed the old place. A later
/// unmap of the new place flushed that, and freed the frames.
#[test]
fn mremap_flushes_the_old_place_before_frames_are_freed() {
    only_the_mistake_shows(
        |system, a| {
            let frames = system.withdraw(a, P, 1);
            system.flush(a, Range::page(P));
            system.flush(a, Range::page(P + 8 * PAGE));
            system.free_frames(frames);
        },
        |system, a| {
            let frames = system.withdraw(a, P, 1);
            system.flush(a, Range::page(P + 8 * PAGE));
            system.free_frames(frames);
            system.flush(a, Range::page(P));
        },
        Rule::C2,
    );
}

/// 25, Theseus: of several ranges of frames only the first was flushed.
#[test]
fn every_range_of_frames_is_flushed() {
    only_the_mistake_shows(
        |system, a| {
            let mut frames = system.withdraw(a, P, 1);
            frames.extend(system.withdraw(a, P + 2 * PAGE, 1));
            system.flush(a, Range::page(P));
            system.flush(a, Range::page(P + 2 * PAGE));
            system.free_frames(frames);
        },
        |system, a| {
            let mut frames = system.withdraw(a, P, 1);
            frames.extend(system.withdraw(a, P + 2 * PAGE, 1));
            system.flush(a, Range::page(P));
            system.free_frames(frames);
        },
        Rule::C2,
    );
}

/// 28, Hermit: unmap invalidated on its own CPU and sent no IPI.
#[test]
fn unmap_flushes_other_cpus_too() {
    only_the_mistake_shows(
        |system, a| {
            let frames = system.withdraw(a, P, 1);
            system.flush(a, Range::page(P));
            system.free_frames(frames);
        },
        |system, a| {
            let frames = system.withdraw(a, P, 1);
            shootdown::Kernel::<1>::invalidate(system.engine.kernel(), Local::All);
            system.free_frames(frames);
        },
        Rule::C2,
    );
}

/// 45, Linux a4a118f2eead: unsharing a page table of huge pages dropped the last reference to it, and the lock, before
/// the flush.
#[test]
fn shared_table_is_released_only_after_the_flush() {
    only_the_mistake_shows(
        |system, a| {
            let frames = system.withdraw(a, P, 4);
            let table = system.unlink(a, P).expect("it was written to");
            system.flush(a, Range::pages(P, P + 4 * PAGE, Stride::Size4K).with_tables());
            system.free_table(table);
            system.free_frames(frames);
        },
        |system, a| {
            let frames = system.withdraw(a, P, 4);
            let table = system.unlink(a, P).expect("it was written to");
            system.free_table(table);
            system.flush(a, Range::pages(P, P + 4 * PAGE, Stride::Size4K).with_tables());
            system.free_frames(frames);
        },
        Rule::C3,
    );
}
