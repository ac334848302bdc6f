//! Bugs of how kernels and firmware send and take interrupts: to the wrong CPU, nested too deep, in the middle of a
//! critical step, or not at all.

use super::roles::*;
use super::scene::*;
use shootdown::Policy;
use shootdown_known_bugs::Bug;
use shootdown_sim::hw::{Isa, Riscv64, Rule};
use shootdown_sim::machine;
use shootdown_sim::os::PAGE;

/// 11, Nanos 2179, Twizzler 150: a CPU spun for a lock with interrupts off, whose holder waited for that CPU's answer.
/// The lock is the kernel's, and so is the mistake: the script contains it.
#[test]
fn masked_lock_waiter_polls_for_requests() {
    for design in [IPI, LOG] {
        let mut scene = Scene::new(2, design);
        scene.seeds = 50;
        let script = |masked: bool| {
            move |stage: &Stage| {
                let (a, lock) = (stage.process(1), stage.lock());
                let (b, of_other) = (a.clone(), lock.clone());
                stage.writes_and(0, &a, 1, about(10_000, 1_500), move |system, a| {
                    lock.with(false, || system.drop_pages(a, P, 1));
                });
                stage.cpu(1, move |system| {
                    system.load(&b);
                    rounds(|start| {
                        until(start + 6_000);
                        look(system, P);
                        about(10_000, 1_500).come(start);
                        of_other.with(masked, || dawdle(300));
                    });
                });
            }
        };
        never_broken(&scene, script(false));
        let hangs = |seed: &u64| play(&scene, *seed, None, &script(true)).shows(Symptom::Hangs);
        assert!((0..scene.tries).any(|seed| hangs(&seed)), "no CPU waited for ever");
    }
}

/// 19, Asterinas 3757: logical CPU numbers were taken for those of the interrupt controllers: another CPU was
/// interrupted, and the wait never ended.
#[test]
fn ipi_goes_to_the_logical_cpu_not_its_apic_id() {
    for design in [
        IPI,
        LOG,
        Policy {
            stuck_ns: 0,
            ..Policy::ARM_IPI
        },
    ] {
        let scene = Scene::new(3, design);
        contract(&scene, Bug::CpuNumberAsApicId, Symptom::Hangs, |stage| {
            let a = stage.process(1);
            for cpu in 1..3 {
                let a = a.clone();
                stage.cpu(cpu, move |system| {
                    if cpu == 1 {
                        system.load(&a);
                    }
                    // Idle, until CPU 0 has finished: only an interrupt makes it answer.
                    machine::sleep();
                });
            }
            stage.cpu(0, move |system| {
                system.load(&a);
                rounds(|_| {
                    write(system, &a, 1);
                    system.drop_pages(&a, P, 1);
                });
                (1..3).for_each(|cpu| machine::wake(cpu, 0));
            });
        });
    }
}

/// 27, OpenSBI 402: two harts asked the firmware for remote fences. Each waited in it for the other, which did not
/// serve the fences requested from it.
#[test]
fn harts_do_not_deadlock_in_remote_fences() {
    let scene = |design: Policy| Scene {
        isa: Isa::Riscv64(Riscv64 {
            sbi_call: 500,
            sbi_per_hart: 100,
            ..Riscv64::default()
        }),
        ..Scene::new(2, Policy { stuck_ns: 0, ..design })
    };
    let fence_each_other = |stage: &Stage| {
        let a = stage.process(1);
        for cpu in 0..2 {
            stage.writes_and(cpu, &a, 2, about(10_000, 1_000), move |system, a| {
                system.drop_pages(a, P + cpu as u64 * PAGE, 1);
            });
        }
    };
    let by_firmware = scene(Policy::ARM_BROADCAST);
    contract(
        &by_firmware,
        Bug::FirmwareServesNoRequest,
        Symptom::Spins,
        fence_each_other,
    );
    // The kernel's own IPIs, in place of firmware calls, avoid it.
    let by_interrupts = scene(Policy::ARM_IPI);
    for seed in 0..by_interrupts.tries {
        let fault = Some(Bug::FirmwareServesNoRequest);
        play(&by_interrupts, seed, fault, &fence_each_other).assert_clean(seed);
    }
}

/// 29, Asterinas 1621: the handler enabled interrupts; each further interrupt was handled on top of it, until the
/// interrupt stack overflowed.
#[test]
fn handlers_do_not_nest_on_the_interrupt_stack() {
    for design in [IPI, LOG] {
        let scene = Scene::new(5, design);
        contract(&scene, Bug::HandlerInterruptible, Symptom::Panics, |stage| {
            let a = stage.process(1);
            // Long enough that other requests arrive meanwhile.
            stage.system.engine.kernel().on_invalidate(|| dawdle(2_000));
            stage.reads_pages(0, &a, 4, at(6_000));
            for cpu in 1..5 {
                stage.writes_and(cpu, &a, 4, about(10_000, 2_000), move |system, a| {
                    system.drop_pages(a, P + (cpu as u64 - 1) * PAGE, 1);
                });
            }
        });
    }
}

/// 37, Linux 38cf307c1f20: an interrupt came between two stores of a switch, which together say what is loaded under
/// which tag. The handler flushed under the one and recorded it for the other.
#[test]
fn switch_is_atomic_to_interrupts() {
    for design in [IPI, LOG] {
        let scene = Scene::new(2, design);
        let symptom = Symptom::Breaks(Rule::C1);
        contract(&scene, Bug::SwitchInterruptible, symptom, |stage| {
            let (a, b) = (stage.process(1), stage.process(2));
            // Longer than the delivery of an interrupt, as on a virtual CPU.
            stage.system.engine.kernel().on_load_root(|| dawdle(4_000));
            stage.withdraws_pages(0, &a, 1, about(10_000, 2_500));
            stage.cpu(1, move |system| {
                rounds(|start| {
                    until(start + 4_000);
                    system.load(&a);
                    look(system, P);
                    about(10_000, 1_000).come(start);
                    for _ in 0..4 {
                        system.load(&b);
                        system.load(&a);
                        look(system, P);
                    }
                });
            });
        });
    }
}
