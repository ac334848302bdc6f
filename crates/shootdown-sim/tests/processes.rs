//! Workloads of several processes, under every design and the oracle; and what fork, copy-on-write and exit do to frames.

use shootdown::{BroadcastLimits, Design};
use shootdown_sim::hw::{Access, FrameKind, Hw, HwConfig, Privilege};
use shootdown_sim::machine::{self, Config, Machine, Outcome, Topology};
use shootdown_sim::model::Model;
use shootdown_sim::os::{HookCosts, OsCosts, OsSettings, PAGE, System, USER_BASE};
use shootdown_sim::run::{self, Parameters, RunResult, RunSpec, designs};
use std::rc::Rc;
use std::sync::Arc;

/// Parameters and their values.
type Set = &'static [(&'static str, f64)];

/// What a CPU of a script does.
type Body = Box<dyn FnOnce(&Rc<System<1>>)>;

/// Workloads, how long each runs, virtual milliseconds, and the numbers that make it do much in that time.
const WORKLOADS: [(&str, f64, Set); 6] = [
    ("mprotect_all", 0.2, &[("workload.mprotect_all.pages", 3.0)]),
    ("tlb_flush1", 0.3, &[]),
    ("tlb_flush3", 0.3, &[]),
    (
        "build",
        4.0,
        &[
            ("workload.build.slowdown", 0.1),
            ("workload.build.forks", 2.0),
            ("workload.build.migrations", 8.0),
        ],
    ),
    ("reclaim", 0.2, &[]),
    ("context_switch", 0.3, &[]),
];

fn result(workload: &str, design: &str, ms: f64, set: &[(&str, f64)]) -> RunResult {
    let parameters = set.iter().fold(Parameters::default(), |parameters, (path, value)| {
        parameters.with(path, *value).expect("a parameter")
    });
    let spec = RunSpec {
        workload: workload.into(),
        machine: Arc::new(Model::find("milan-72").expect("shipped")),
        design: design.into(),
        threads: 5,
        seed: 2,
        virtual_ms: Some(ms),
        lru_drain: false,
        parameters,
    };
    let result = run::run(&spec, &mut |_| true).expect("it runs");
    RunResult {
        host_seconds: 0.0,
        ..result
    }
}

/// Nothing stale under a design that invalidates, and the one that does not is caught: even single-threaded processes free
/// frames that their own CPU still has translations of.
#[test]
fn no_workload_sees_what_was_withdrawn() {
    for (workload, ms, set) in WORKLOADS {
        for entry in designs() {
            let result = result(workload, entry.name, ms, set);
            assert!(
                result.ops > 0 && result.accesses_checked > 500,
                "{workload} {}: {result:?}",
                entry.name
            );
            if entry.name == "none" {
                assert!(result.stale > 0, "{workload}: not caught");
            } else {
                assert_eq!(result.stale, 0, "{workload} {}: {:?}", entry.name, result.story);
            }
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    for (workload, ms, set) in WORKLOADS {
        let run = || result(workload, "adaptive", ms, set);
        assert_eq!(run(), run(), "{workload}");
    }
}

/// Two threads on files are interrupted about twice per loop (E10), on anonymous memory about once.
#[test]
fn files_take_a_second_interrupt_per_loop() {
    for (workload, expected) in [("tlb_flush1", 1.94), ("tlb_flush3", 1.94), ("tlb_flush2", 1.0)] {
        let spec = RunSpec {
            workload: workload.into(),
            machine: Arc::new(Model::find("milan-72").expect("shipped")),
            design: "ipi".into(),
            threads: 2,
            seed: 1,
            virtual_ms: Some(2.0),
            lru_drain: false,
            parameters: Parameters::default(),
        };
        let interrupts = run::run(&spec, &mut |_| true).expect("it runs").interrupts_per_op;
        assert!((interrupts - expected).abs() < 0.05, "{workload}: {interrupts}");
    }
}

/// Runs `script` on CPU 0 of a machine with two, online; the second CPU runs `other`.
fn play(script: impl FnOnce(&Rc<System<1>>) + 'static, other: impl FnOnce(&Rc<System<1>>) + 'static) -> Rc<System<1>> {
    let mut machine = Machine::new(Config::new(Topology::flat(2)));
    let hw = Hw::new(HwConfig {
        cpus: 2,
        speculation: 0.1,
        ..HwConfig::default()
    });
    let hooks = HookCosts {
        call_target: 0,
        ghz: 2.0,
        broadcast_sync: 500,
        broadcast_interval: 50,
        broadcast_received: 5,
        limits: None::<BroadcastLimits>,
    };
    let system = System::new(
        &machine,
        hw,
        hooks,
        Design::IPI,
        OsCosts::default(),
        OsSettings::default(),
    );
    let on = |cpu, body: Body| {
        let system = system.clone();
        machine.spawn(cpu, move || {
            system.online();
            body(&system);
            system.unload();
            system.offline();
        });
    };
    on(0, Box::new(script));
    on(1, Box::new(other));
    assert_eq!(machine.run(u64::MAX, |_| true), Outcome::Finished);
    let violations = system.hw.borrow().violations().to_vec();
    assert!(violations.is_empty(), "{}", violations[0]);
    // The machine must outlive the system's engine; tests look at frames only.
    std::mem::forget(machine);
    system
}

/// The frame behind `va` on this CPU, for reading.
fn frame(system: &System<1>, va: u64) -> u32 {
    let result = {
        let mut hw = system.hw.borrow_mut();
        hw.translate(machine::cpu(), va, Access::Read, Privilege::User, machine::now())
    };
    result.expect("mapped").frame
}

#[test]
fn a_forked_frame_is_copied_once_and_freed_with_its_last_reference() {
    play(
        |system| {
            let parent = system.process(1, 2 << 20);
            system.load(&parent);
            system.map(&parent, USER_BASE, 2 * PAGE);
            system.touch(&parent, USER_BASE, Access::Write);
            system.touch(&parent, USER_BASE + PAGE, Access::Write);
            let (first, second) = (frame(system, USER_BASE), frame(system, USER_BASE + PAGE));
            let child = system.fork(&parent);
            system.load(&child);
            assert_eq!(frame(system, USER_BASE), first, "shared until written");
            system.touch(&child, USER_BASE, Access::Write);
            let copy = frame(system, USER_BASE);
            assert_ne!(copy, first, "the writer has a copy");
            system.exit(&child);
            let kind = |frame| system.hw.borrow().frame_kind(frame);
            assert_eq!(kind(copy), FrameKind::Free, "the copy went with the child");
            assert_eq!(
                (kind(first), kind(second)),
                (FrameKind::Data, FrameKind::Data),
                "the parent's remain"
            );
            // The last one that has a frame writes it in place.
            system.load(&parent);
            system.touch(&parent, USER_BASE, Access::Write);
            system.touch(&parent, USER_BASE + PAGE, Access::Write);
            assert_eq!(
                (frame(system, USER_BASE), frame(system, USER_BASE + PAGE)),
                (first, second)
            );
            system.exit(&parent);
            assert_eq!((kind(first), kind(second)), (FrameKind::Free, FrameKind::Free));
        },
        |_| {},
    );
}

/// The other way round: the parent ends first, its child keeps what they shared.
#[test]
fn a_child_outlives_its_parent() {
    play(
        |system| {
            let parent = system.process(1, 2 << 20);
            system.load(&parent);
            system.map(&parent, USER_BASE, PAGE);
            system.touch(&parent, USER_BASE, Access::Write);
            let shared = frame(system, USER_BASE);
            let child = system.fork(&parent);
            system.exit(&parent);
            system.load(&child);
            assert_eq!(frame(system, USER_BASE), shared);
            system.touch(&child, USER_BASE, Access::Write);
            assert_eq!(frame(system, USER_BASE), shared, "nobody else has it");
            system.exit(&child);
            assert_eq!(system.hw.borrow().frame_kind(shared), FrameKind::Free);
        },
        |_| {},
    );
}
