//! Counts of a run: the activities that interrupts hit, and the method of each request.

use shootdown::{Design, Policy, Targets, Walkers};
use shootdown_sim::hw::{Access, Hw, HwConfig};
use shootdown_sim::machine::{self, Config, Machine, Outcome, Topology};
use shootdown_sim::os::{Hit, HookCosts, OsCosts, OsSettings, System, USER_BASE};
use std::rc::Rc;

type Sys = Rc<System<1>>;

/// Length of a round, cycles: longer than any operation in it.
const ROUND: u64 = 40_000;

/// Rounds in a run.
const ROUNDS: u64 = 30;

const IPI: Policy = Policy {
    walkers: Walkers::None,
    stuck_ns: 0,
    ..Policy::IPI
};

/// Plays a script, which spawns a task on each of `cpus` CPUs; returns the counts.
fn play(cpus: usize, design: impl Into<Design>, script: impl FnOnce(&Machine, &Sys)) -> Sys {
    let mut machine = Machine::new(Config::new(Topology::flat(cpus)));
    let hw = Hw::new(HwConfig {
        cpus,
        ..HwConfig::default()
    });
    let (hooks, costs) = (HookCosts::default(), OsCosts::default());
    let system = System::new(&machine, hw, hooks, design.into(), costs, OsSettings::default());
    system.engine.kernel().keep_decision_log(cpus);
    script(&machine, &system);
    assert_eq!(machine.run(u64::MAX, |_| true), Outcome::Finished);
    assert_eq!(system.hw.borrow().violation_count(), 0);
    // The machine must outlive the system's engine; tests look at the counts only.
    std::mem::forget(machine);
    system
}

/// Lets time pass until `at`, cycles.
fn until(at: u64) {
    machine::charge(at.saturating_sub(machine::now()));
}

/// CPU 0 flushes a page in each round, which interrupts all other CPUs: CPU 1, which runs the same process, and CPUs 2
/// and 3, which run another.
fn interrupt_every_cpu(machine: &Machine, system: &Sys) {
    // The handlers of the others alternately begin before and after CPU 1 has answered.
    system.on_interrupt(|| {
        if machine::cpu() > 1 {
            machine::charge(machine::now() / ROUND * 20);
        }
    });
    let (one, two) = (system.process(1, 2 << 20), system.process(2, 2 << 20));
    for cpu in 0..4 {
        let system = system.clone();
        let process = if cpu < 2 { one.clone() } else { two.clone() };
        machine.spawn(cpu, move || {
            system.online();
            system.load(&process);
            for round in 1..=ROUNDS {
                until(round * ROUND);
                if cpu == 0 {
                    system.touch(&process, USER_BASE, Access::Write);
                    until(round * ROUND + ROUND / 2);
                    system.drop_pages(&process, USER_BASE, 1);
                }
            }
            until((ROUNDS + 1) * ROUND);
            system.unload();
            until((ROUNDS + 2) * ROUND);
            system.offline();
        });
    }
}

#[test]
fn handler_is_not_credited_with_a_concurrent_handlers_flush() {
    let design = Policy {
        targets: Targets::All,
        ..IPI
    };
    let system = play(4, design, interrupt_every_cpu);
    let hits = |hit| system.preemption.interrupted.of(hit).0;
    assert_eq!((hits(Hit::Concerned), hits(Hit::Bystander)), (ROUNDS, 2 * ROUNDS));
    let found = |recorder: &shootdown_sim::os::Recorder| recorder.distribution().map_or(0, |found| found.count);
    assert_eq!(found(&system.preemption.latencies.bystanders), 2 * ROUNDS);
}

#[test]
fn timer_interrupt_counts_no_bystander() {
    let system = play(4, IPI, |machine, system| {
        interrupt_every_cpu(machine, system);
        (1..ROUNDS).for_each(|round| machine.raise(3, round * ROUND + ROUND / 4));
    });
    let hits = Hit::ALL.map(|hit| system.preemption.interrupted.of(hit).0);
    assert_eq!(hits[Hit::Concerned as usize], ROUNDS);
    assert_eq!(hits.iter().sum::<u64>(), ROUNDS, "{hits:?}");
}

/// CPU 1 runs a process, then is in lazy TLB mode on it. CPU 0 makes a request of each kind that interrupts CPU 1, and
/// after each a request of a process that no other CPU has seen.
#[test]
fn flush_is_counted_by_its_own_method() {
    const KINDS: u64 = 4;
    let system = play(2, IPI, |machine, system| {
        let (shared, own) = (system.process(1, 2 << 20), system.process(2, 2 << 20));
        let kernel = system.kernel_pages();
        let (elsewhere, also_shared) = (system.clone(), shared.clone());
        machine.spawn(1, move || {
            elsewhere.online();
            elsewhere.load(&also_shared);
            until(KINDS * ROUND - ROUND / 2);
            elsewhere.go_lazy();
            until((KINDS + 1) * ROUND);
            elsewhere.offline();
        });
        let system = system.clone();
        machine.spawn(0, move || {
            system.online();
            for kind in 0..KINDS {
                system.load(&shared);
                if kind < 3 {
                    system.touch(&shared, USER_BASE, Access::Write);
                }
                system.map_kernel(&kernel, kind);
                until((kind + 1) * ROUND);
                match kind {
                    0 => system.flush_space(&shared),
                    1 => assert_eq!(system.reclaim(&[(&*shared, USER_BASE)]), 1),
                    2 => system.unmap_kernel(&kernel, 0, 1),
                    _ => {
                        system.unload();
                        system.exit(&shared);
                    }
                }
                system.load(&own);
                system.touch(&own, USER_BASE, Access::Write);
                system.drop_pages(&own, USER_BASE, 1);
            }
            system.unload();
            until((KINDS + 2) * ROUND);
            system.offline();
        });
    });
    let decision_log = system.engine.kernel().take_decision_log().expect("it was kept");
    let counts = decision_log.requests.each_ref().map(|requests| requests.count);
    assert_eq!(counts, [KINDS, KINDS, 0], "local, interrupts, broadcast");
    let flushes = system
        .preemption
        .latencies
        .flush
        .distribution()
        .expect("there were some");
    assert_eq!(flushes.count, 2 * KINDS);
}
