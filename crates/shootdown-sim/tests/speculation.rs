//! A CPU speculates outside of accesses too: wherever the kernel's hooks are called, a page that it has used may be
//! cached again.

use shootdown::{Kernel, Local, Policy, Root, Tag};
use shootdown_sim::hw::{Access, Entry, Hw, HwConfig, Rule, table_index};
use shootdown_sim::machine::{self, Config, Machine, Outcome, Topology};
use shootdown_sim::os::{HookCosts, OsCosts, OsSettings, PAGE, SimKernel, System, USER_BASE};
use std::rc::Rc;

const SEEDS: u64 = 60;

/// How often, over the seeds, a page is cached that was flushed before `step` and is not used in it, on a machine that
/// speculates as often as it can: the oracle finds it when the page is withdrawn.
fn filled_by(step: fn(&SimKernel, Root, Tag)) -> usize {
    let run = |seed| {
        let mut machine = Machine::new(Config {
            seed,
            ..Config::new(Topology::flat(1))
        });
        let hw = Hw::new(HwConfig {
            speculation: 1.0,
            seed,
            ..HwConfig::default()
        });
        let (hooks, costs) = (HookCosts::default(), OsCosts::default());
        let system = System::<1>::new(&machine, hw, hooks, Policy::IPI.into(), costs, OsSettings::default());
        let mine = Rc::clone(&system);
        machine.spawn(0, move || {
            let process = mine.process(1, 2 << 20);
            mine.online();
            mine.load(&process);
            mine.touch(&process, USER_BASE, Access::Write);
            let (root, tag, _) = mine.hw.borrow().loaded(0);
            let flushed = mine.hw.borrow_mut().local(0, Local::All, machine::now());
            flushed.expect("a valid operand");
            let before = machine::now();
            step(mine.engine.kernel(), Root(u64::from(root)), Tag(tag));
            assert!(machine::now() - before < 10_000);
            let mut hw = mine.hw.borrow_mut();
            let now = machine::now();
            let table = hw.table_at(root, USER_BASE, 1).expect("it is mapped");
            hw.store_entry(table, table_index(USER_BASE, 1), Entry::NONE, 0, now);
            let stamp = hw.request_begins(0, now);
            hw.completed(1, USER_BASE..USER_BASE + PAGE, stamp, 0, now);
            hw.caught_up(0, now);
        });
        assert_eq!(machine.run(u64::MAX, |_| true), Outcome::Finished);
        let hw = system.hw.borrow();
        let found = hw.violations().iter().any(|violation| violation.rule == Rule::C1);
        drop(hw);
        // The machine must outlive the system's engine.
        std::mem::forget(machine);
        found
    };
    (0..SEEDS).filter(|&seed| run(seed)).count()
}

#[track_caller]
fn sometimes(count: usize) {
    assert!(0 < count && count < SEEDS as usize, "{count} of {SEEDS}");
}

#[test]
fn speculation_fills_around_an_invalidation() {
    sometimes(filled_by(|kernel, _, _| {
        Kernel::<1>::invalidate(kernel, Local::Tag(Tag(77)))
    }));
}

#[test]
fn speculation_fills_around_a_root_load() {
    sometimes(filled_by(|kernel, root, tag| {
        Kernel::<1>::load_root(kernel, root, tag, true)
    }));
}

#[test]
fn speculation_fills_during_the_broadcast_wait() {
    sometimes(filled_by(|kernel, _, _| Kernel::<1>::broadcast_sync(kernel)));
}

#[test]
fn speculation_fills_in_a_handler() {
    sometimes(filled_by(|_, _, _| {
        machine::raise(0, machine::now());
        machine::charge(100);
    }));
}

#[test]
fn speculation_does_not_fill_in_user_code_without_accesses() {
    assert_eq!(filled_by(|_, _, _| machine::charge(1000)), 0);
}
