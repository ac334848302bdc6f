//! What a cross-CPU call costs besides its interrupt, and when: four movements of a line, each where it happens.

use shootdown::{Design, Walkers};
use shootdown_sim::hw::{Access, Hw, HwConfig};
use shootdown_sim::machine::{self, Config, Machine, Outcome, Topology};
use shootdown_sim::os::{HookCosts, OsCosts, OsSettings, System, USER_BASE};
use std::cell::Cell;
use std::rc::Rc;

/// A movement of a line, cycles.
const MOVEMENT: u64 = 1000;

/// Times of a flush that interrupts the other CPUs, cycles: until the first of them takes the interrupt, how long that takes
/// from it, and how long the flush takes.
#[derive(Debug, Clone, Copy)]
struct Times {
    arrival: f64,
    handler: f64,
    flush: f64,
}

fn flush_on(cpus: usize, call_target: u64) -> Times {
    let mut machine = Machine::new(Config {
        slack_cycles: 0,
        ..Config::new(Topology::flat(cpus))
    });
    let hw = Hw::new(HwConfig {
        cpus,
        ..HwConfig::default()
    });
    let hooks = HookCosts {
        call_target,
        ..HookCosts::default()
    };
    let design = Design {
        walkers: Walkers::None,
        stuck_ns: 0,
        ..Design::IPI
    };
    let system = System::<1>::new(&machine, hw, hooks, design, OsCosts::default(), OsSettings::default());
    let (begun, arrived) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(u64::MAX)));
    let first = arrived.clone();
    system.on_interrupt(move || first.set(first.get().min(machine::now())));
    let process = system.process(1, 2 << 20);
    for cpu in 0..cpus {
        let (system, process, begun) = (system.clone(), process.clone(), begun.clone());
        machine.spawn(cpu, move || {
            system.online();
            system.load(&process);
            machine::charge(50_000);
            if cpu == 0 {
                system.touch(&process, USER_BASE, Access::Write);
                begun.set(machine::now());
                system.drop_pages(&process, USER_BASE, 1);
            }
            machine::charge(200_000);
            system.unload();
            machine::charge(50_000);
            system.offline();
        });
    }
    assert_eq!(machine.run(u64::MAX, |_| true), Outcome::Finished);
    let latencies = &system.preemption.latencies;
    let median = |recorder: &shootdown_sim::os::Recorder| recorder.distribution().expect("it has samples").p50;
    let times = Times {
        arrival: (arrived.get() - begun.get()) as f64,
        handler: median(&latencies.disturbance),
        flush: median(&latencies.flush),
    };
    // The machine must outlive the system's engine.
    std::mem::forget(machine);
    times
}

#[test]
fn a_call_is_written_before_it_is_sent_and_read_and_released_by_its_target() {
    for targets in [1, 3] {
        let (without, with) = (flush_on(1 + targets, 0), flush_on(1 + targets, 4 * MOVEMENT));
        let movements = |time: fn(Times) -> f64| (time(with) - time(without)) / MOVEMENT as f64;
        let each = targets as f64;
        for (found, expected) in [
            (movements(|times| times.arrival), each),
            (movements(|times| times.handler), 2.0),
            (movements(|times| times.flush), each + 2.0 + each),
        ] {
            assert!(
                (found - expected).abs() < 0.1,
                "{targets} targets: {found} for {expected}"
            );
        }
    }
}
