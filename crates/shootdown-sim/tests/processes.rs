//! Workloads of several processes, under every design and the oracle; and the effects of fork, copy-on-write and exit
//! on frames.

use shootdown::{Design, Order, Policy, Range, Targets};
use shootdown_sim::hw::{Access, FrameKind, Hw, HwConfig, Privilege};
use shootdown_sim::machine::{self, Config, Machine, Outcome, Topology};
use shootdown_sim::model::Model;
use shootdown_sim::os::{HookCosts, OsCosts, OsSettings, PAGE, Process, System, USER_BASE};
use shootdown_sim::run::{self, Parameters, RunResult, RunSpec, designs};
use std::cell::{Cell, OnceCell};
use std::rc::Rc;
use std::sync::Arc;

/// Parameters and their values.
type Set = &'static [(&'static str, f64)];

/// More cycles than an access without a fault takes.
const FAULT: u64 = 100_000;

/// The script of a CPU.
type Body = Box<dyn FnOnce(&Rc<System<1>>)>;

/// An operation of a process's thread in the kernel.
type Call = fn(&System<1>, &Process<1>);

/// Workloads, their lengths in virtual milliseconds, and parameters that make them busy in that time.
const WORKLOADS: [(&str, f64, Set); 8] = [
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
    (
        "madvise_stress",
        0.3,
        &[("workload.madvise_stress.process_threads", 2.0)],
    ),
    ("tlb_flush2", 0.3, &[("workload.tlb_flush2.process_threads", 2.0)]),
];

fn spec(workload: &str, design: &str, ms: f64) -> RunSpec {
    RunSpec {
        workload: workload.into(),
        machine: Arc::new(Model::find("milan-72").expect("shipped")),
        design: design.into(),
        threads: 5,
        seed: 2,
        virtual_ms: Some(ms),
        lru_drain: false,
        parameters: Parameters::default(),
    }
}

fn result(workload: &str, design: &str, ms: f64, set: &[(&str, f64)]) -> RunResult {
    let parameters = set.iter().fold(Parameters::default(), |parameters, (path, value)| {
        parameters.with(path, *value).expect("a parameter")
    });
    let spec = RunSpec {
        parameters,
        ..spec(workload, design, ms)
    };
    let result = run::run(&spec, &mut |_| true).expect("it runs");
    RunResult {
        host_seconds: 0.0,
        ..result
    }
}

/// Nothing stale under a design that invalidates, and the one that does not is caught: even single-threaded processes
/// free frames while their own CPU still has translations of them.
#[test]
fn no_workload_uses_a_stale_translation() {
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
                assert_eq!(result.stale, 0, "{workload} {}: {:?}", entry.name, result.diagnosis);
            }
        }
    }
}

#[test]
fn same_seed_gives_the_same_run() {
    for (workload, ms, set) in WORKLOADS {
        let run = || result(workload, "adaptive", ms, set);
        assert_eq!(run(), run(), "{workload}");
    }
}

/// Two threads on files are interrupted about twice per loop (E10), on anonymous memory about once.
#[test]
fn file_mappings_need_a_second_ipi_per_loop() {
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
    play_on(Kernel::default(), script, other)
}

/// The kernel of a script.
struct Kernel {
    design: Design,
    costs: OsCosts,
    settings: OsSettings,
    stale_faults: bool,
}

impl Default for Kernel {
    fn default() -> Self {
        Kernel {
            design: Policy::IPI.into(),
            costs: OsCosts::default(),
            settings: OsSettings::default(),
            stale_faults: false,
        }
    }
}

fn play_on(
    kernel: Kernel,
    script: impl FnOnce(&Rc<System<1>>) + 'static,
    other: impl FnOnce(&Rc<System<1>>) + 'static,
) -> Rc<System<1>> {
    let mut machine = Machine::new(Config::new(Topology::flat(2)));
    let hw = Hw::new(HwConfig {
        cpus: 2,
        speculation: 0.1,
        stale_faults: kernel.stale_faults,
        ..HwConfig::default()
    });
    let hooks = HookCosts::default();
    let system = System::new(&machine, hw, hooks, kernel.design, kernel.costs, kernel.settings);
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
            // The last owner of a frame writes it in place.
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

/// The reverse: the parent ends first, and its child keeps the shared pages.
#[test]
fn forked_child_outlives_its_parent() {
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
            assert_eq!(frame(system, USER_BASE), shared, "no other space has it");
            system.exit(&child);
            assert_eq!(system.hw.borrow().frame_kind(shared), FrameKind::Free);
        },
        |_| {},
    );
}

/// Threads interrupt those that share their process, and no others: of five threads, two and two and one.
#[test]
fn threads_are_divided_into_processes_of_the_given_size() {
    for workload in ["madvise_stress", "tlb_flush2"] {
        let path = format!("workload.{workload}.process_threads");
        let sent = |each: f64| result(workload, "ipi", 1.0, &[(&path, each)]).ipis_per_op;
        let [all, pairs, none] = [0.0, 2.0, 1.0].map(sent);
        assert_eq!(none, 0.0, "{workload}");
        assert!(
            0.1 < pairs && pairs <= 1.0 && 1.0 < all,
            "{workload}: {pairs} and {all} per operation"
        );
    }
}

/// A page that was never written leaves a drop nothing to flush, and it takes a fraction of the time.
#[test]
fn unwritten_page_is_never_flushed() {
    let [written, never] = [1.0, 0.0].map(|touch| {
        let spec = RunSpec {
            parameters: Parameters::default()
                .with("workload.madvise_spin.touch", touch)
                .expect("a parameter"),
            ..spec("madvise_spin", "ipi", 1.0)
        };
        let (result, explanation) = run::explain(&spec, &mut |_| true).expect("it runs");
        let flushes: u64 = explanation
            .decision_log
            .requests
            .iter()
            .map(|requests| requests.count)
            .sum();
        (result, flushes)
    });
    assert!(
        written.1 >= written.0.ops && written.0.interrupts_per_op > 3.9,
        "{written:?}"
    );
    assert_eq!((never.1, never.0.interrupts_per_op), (0, 0.0));
    assert!(never.0.ops_per_s > 2.0 * written.0.ops_per_s, "{never:?}");
}

/// x86 kernels let spurious faults find a stricter translation when a right is restored; kernels of the others flush
/// it. One operation of `mprotect_all` removes a right and restores it.
#[test]
fn restored_right_is_flushed_except_on_x86() {
    for (machine, design, expected) in [
        ("milan-72", "ipi", 1.0),
        ("zen5-vm-2", "ipi-trim", 1.0),
        ("ampere-32", "ipi", 2.0),
        ("generic-riscv-64", "ipi", 2.0),
    ] {
        let spec = RunSpec {
            workload: "mprotect_all".into(),
            machine: Arc::new(Model::find(machine).expect("shipped")),
            design: design.into(),
            threads: 1,
            seed: 1,
            virtual_ms: Some(1.0),
            lru_drain: false,
            parameters: Parameters::default(),
        };
        let (result, explanation) = run::explain(&spec, &mut |_| true).expect("it runs");
        let flushes: u64 = explanation
            .decision_log
            .requests
            .iter()
            .map(|requests| requests.count)
            .sum();
        let per_op = flushes as f64 / result.ops as f64;
        assert!(
            (per_op - expected).abs() < 0.02,
            "{machine}: {per_op} flushes per operation"
        );
        assert_eq!(result.stale, 0, "{:?}", result.diagnosis);
    }
}

/// A processor may fault on the stricter translation although the tables allow the write: the kernel has nothing to
/// change.
#[test]
fn spurious_fault_changes_no_tables() {
    let kernel = Kernel {
        stale_faults: true,
        costs: OsCosts {
            fault: 2 * FAULT,
            ..OsCosts::default()
        },
        ..Kernel::default()
    };
    let spurious = Rc::new(Cell::new(0));
    let count = spurious.clone();
    play_on(
        kernel,
        move |system| {
            let process = system.process(1, 2 << 20);
            system.load(&process);
            system.map(&process, USER_BASE, PAGE);
            system.touch(&process, USER_BASE, Access::Write);
            let before = frame(system, USER_BASE);
            for _ in 0..64 {
                system.protect(&process, USER_BASE, 1, false);
                system.touch(&process, USER_BASE, Access::Read);
                system.protect(&process, USER_BASE, 1, true);
                let begun = machine::now();
                system.touch(&process, USER_BASE, Access::Write);
                count.set(count.get() + u64::from(machine::now() - begun > FAULT));
                assert_eq!(frame(system, USER_BASE), before, "not copied, not replaced");
            }
        },
        |_| {},
    );
    let faults = spurious.get();
    assert!(
        (10..54).contains(&faults),
        "a processor of this kind faults now and then: {faults}"
    );
}

/// The oracle remembers live spaces, not all that ever existed.
#[test]
fn numbers_of_ended_spaces_are_reused() {
    let most = Rc::new(Cell::new(0));
    let highest = most.clone();
    play(
        move |system| {
            for _ in 0..500 {
                let process = system.process(system.next_number(), 2 << 20);
                highest.set(highest.get().max(process.number));
                system.load(&process);
                system.map(&process, USER_BASE, PAGE);
                system.touch(&process, USER_BASE, Access::Write);
                system.exit(&process);
            }
        },
        |_| {},
    );
    assert!(most.get() < 50, "{} numbers for one live process", most.get());
}

/// Lets time pass until `at`, cycles.
fn until(at: u64) {
    machine::charge(at.saturating_sub(machine::now()));
}

/// A thread in any system call touches no user address: a design that uses that does not interrupt it, and a flush that
/// it missed is caught up with before it returns.
#[test]
fn targets_in_user_do_not_interrupt_system_calls() {
    let calls: [(&str, bool, Call); 5] = [
        ("user code", false, |_, _| machine::charge(200_000)),
        ("fork", true, |system, process| drop(system.fork(process))),
        ("exec", true, |system, process| {
            system.exec(process, USER_BASE + (4 << 20), USER_BASE + PAGE);
        }),
        ("mprotect", true, |system, process| {
            system.protect(process, USER_BASE + PAGE, 1, false);
        }),
        ("munmap", true, |system, process| {
            system.unmap(process, USER_BASE + (2 << 20), PAGE);
        }),
    ];
    for (name, in_kernel, call) in calls {
        let kernel = Kernel {
            design: Policy {
                targets: Targets::InUser,
                ..Policy::IPI
            }
            .into(),
            costs: OsCosts {
                syscall: 200_000,
                ..OsCosts::default()
            },
            ..Kernel::default()
        };
        let process: Rc<OnceCell<Rc<Process<1>>>> = Rc::default();
        let theirs = Rc::clone(&process);
        play_on(
            kernel,
            move |system| {
                let process = process.get_or_init(|| system.process(1, 8 << 20));
                system.load(process);
                for region in [0, 2, 4] {
                    system.map(process, USER_BASE + (region << 20), PAGE);
                }
                system.touch(process, USER_BASE, Access::Write);
                until(3_000_000);
                let frames = system.withdraw(process, USER_BASE, 1);
                // CPU 1 is in the middle of its system call's charge.
                until(3_150_000);
                system.flush(process, Range::page(USER_BASE));
                system.free_frames(frames);
                let interrupting = system.engine.kernel().counts().interrupting;
                assert_eq!(interrupting, u64::from(!in_kernel), "{name}");
                until(9_000_000);
            },
            move |system| {
                until(2_000_000);
                let process = theirs.get().expect("made by CPU 0");
                system.load(process);
                system.touch(process, USER_BASE, Access::Read);
                until(3_000_000);
                call(system, process);
            },
        );
    }
}

/// Unmaps that release the address-space lock during their flush leave nothing behind where invalidation is free.
#[test]
fn ideal_covers_flushes_that_unlock_early() {
    let kernel = Kernel {
        design: Policy {
            order: Order::Concurrent,
            ..Policy::NONE
        }
        .into(),
        costs: OsCosts::default(),
        settings: OsSettings {
            ideal: true,
            ..OsSettings::default()
        },
        ..Kernel::default()
    };
    let unmap = |system: &Rc<System<1>>| {
        let process = system.process(1, 4 << 20);
        system.load(&process);
        for round in 0..20 {
            system.map(&process, USER_BASE, 2 * PAGE);
            system.map(&process, USER_BASE + 2 * PAGE, 2 * PAGE);
            for page in 0..4 {
                system.touch(&process, USER_BASE + page * PAGE, Access::Write);
            }
            system.drop_pages(&process, USER_BASE, 1);
            // The table stays: the other region needs it.
            system.unmap(&process, USER_BASE, 2 * PAGE);
            system.unmap(&process, USER_BASE + 2 * PAGE, 2 * PAGE);
            machine::charge(round);
        }
    };
    play_on(kernel, unmap, |_| {});
}
