//! Several threads on each CPU: random traffic in which a thread is preempted at any preemption point, also in the
//! middle of a wait, and continues on any CPU.

use crate::traffic::{LIMITS, small_hardware};
use shootdown::Design;
use shootdown_sim::hw::{Access, Hw};
use shootdown_sim::machine::{self, Config, Machine, Outcome, StoreBuffer, Topology};
use shootdown_sim::os::{EngineCounts, HookCosts, OsCosts, OsSettings, PAGE, Priority, Scheduler, System, USER_BASE};
use std::cell::Cell;
use std::rc::{Rc, Weak};

/// Pages of each process that its threads touch and drop.
const PAGES: u64 = 10;

/// Pages that are only written and reclaimed, under a table of their own.
const RECLAIM_BASE: u64 = USER_BASE + (2 << 20);
const RECLAIMED: u64 = 3;

/// The results of one run.
#[derive(Debug, Clone, PartialEq)]
pub struct Tally {
    pub engine: EngineCounts,
    pub preemptions: u64,
    pub migrations: u64,
    pub flushes: u64,
    pub longest_off: f64,
    pub checked: u64,
    pub events: u64,
    pub violations: u64,
}

/// Runs `threads` threads of three processes on `cpus` CPUs.
pub fn play(design: impl Into<Design>, cpus: usize, threads: usize, seed: u64) -> (Tally, Option<String>, Outcome) {
    let (tally, diagnosis, outcome, scheduler) = play_once(design.into(), cpus, threads, seed);
    assert!(
        scheduler.upgrade().is_none(),
        "threads and processes outlive their machine"
    );
    (tally, diagnosis, outcome)
}

type Ended = (Tally, Option<String>, Outcome, Weak<Scheduler<1>>);

fn play_once(design: Design, cpus: usize, threads: usize, seed: u64) -> Ended {
    let mut machine = Machine::new(Config {
        seed,
        slack_cycles: 0,
        store_buffer: StoreBuffer::Random { max_cycles: 300 },
        max_events: 20_000_000,
        arena_bytes: 32 << 20,
        extra_tasks: threads,
        ..Config::new(Topology::regular(cpus, 2, 4, 8))
    });
    let hw = Hw::new(small_hardware(cpus, seed));
    let hooks = HookCosts {
        limits: Some(LIMITS),
        ..HookCosts::default()
    };
    let costs = OsCosts {
        wake_latency: 300,
        switch: 200,
        ..OsCosts::default()
    };
    let system: Rc<System<1>> = System::new(&machine, hw, hooks, design, costs, OsSettings::default());
    let scheduler = system.use_scheduler(&machine, 6_000_000);
    scheduler.chaos.set(0.02);
    let processes: Vec<_> = (1..=3).map(|number| system.process(number, 4 << 20)).collect();
    for thread in 0..threads {
        let (own, processes) = (processes[thread % 3].clone(), processes.clone());
        let (of_thread, scheduler) = (system.clone(), scheduler.clone());
        let first = thread < 3;
        let remapping = Rc::new(Cell::new(false));
        system.spawn_thread(
            &machine,
            &processes[thread % 3].clone(),
            thread % cpus,
            Priority::Normal,
            move || {
                let system = of_thread;
                if first {
                    system.map(&own, USER_BASE, PAGES * PAGE);
                    system.map(&own, RECLAIM_BASE, RECLAIMED * PAGE);
                } else {
                    scheduler.sleep_for(20_000);
                }
                for _ in 0..60 {
                    let page = USER_BASE + machine::random_below(PAGES) * PAGE;
                    let reclaimed = RECLAIM_BASE + machine::random_below(RECLAIMED) * PAGE;
                    match machine::random_below(24) {
                        0..8 => system.touch(&own, page, Access::Read),
                        8..13 => system.touch(&own, page, Access::Write),
                        13..17 => {
                            let pages = 1 + machine::random_below(PAGES - (page - USER_BASE) / PAGE);
                            system.drop_pages(&own, page, pages);
                        }
                        17 if first && !remapping.replace(true) => {
                            system.unmap(&own, USER_BASE, PAGES * PAGE);
                            system.map(&own, USER_BASE, PAGES * PAGE);
                            remapping.set(false);
                        }
                        18 => system.touch(&own, reclaimed, Access::Write),
                        19 => system.rely_on_absence(&own, reclaimed),
                        20 => {
                            let victims: Vec<_> = processes.iter().map(|process| (&**process, reclaimed)).collect();
                            system.reclaim(&victims);
                        }
                        21 => drop(scheduler.sleep_for(machine::random_below(4000))),
                        _ => machine::charge(machine::random_below(3000)),
                    }
                }
            },
        );
    }
    let outcome = machine.run(u64::MAX, |_| true);
    let hw = system.hw.borrow();
    let latencies = &system.preemption.latencies;
    let tally = Tally {
        engine: system.engine.kernel().counts(),
        preemptions: scheduler.preemptions(),
        migrations: scheduler.migrations(),
        flushes: latencies.flush.distribution().map_or(0, |flush| flush.count),
        longest_off: latencies.preemption_off.distribution().map_or(0.0, |off| off.max),
        checked: hw.accesses_checked(),
        events: machine.events(),
        violations: hw.violation_count(),
    };
    let diagnosis = hw.violations().first().map(ToString::to_string);
    drop(hw);
    (tally, diagnosis, outcome, Rc::downgrade(&scheduler))
}
