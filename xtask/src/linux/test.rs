//! `cargo xtask linux test`: programs that check what they read, and that notice when invalidation is switched off.

use std::collections::BTreeSet;
use std::time::Instant;

use super::{Config, Mode, Planned, Report, boot, guest, planned, programs};

/// Numbers of CPUs. One emulator thread runs them all in turns.
const CPUS: [u32; 4] = [1, 2, 4, 8];

/// The programs, and their operations.
const CHECKED: [(&str, u64); 12] = [
    ("compact", 100),
    ("collapse", 100),
    ("drop_shared", 1000),
    ("remap", 1000),
    ("poke", 200),
    ("tlb_flush1", 1000),
    ("tlb_flush2", 1000),
    ("tlb_flush3", 1000),
    ("mprotect_all", 1000),
    ("gup", 1000),
    ("page_fault", 1000),
    ("mmap", 200),
];

/// Fewest operations that a program takes.
const LEAST: u64 = 100;

/// Operations of `drop_shared` while CPUs go and come back.
const WHILE_HOTPLUG: u64 = 20_000;

/// Those that must notice a CPU that was not flushed.
const NOTICE: [&str; 2] = ["drop_shared", "remap"];

/// The word at boot that leaves other CPUs without flushes.
const OFF: &str = "shootdown=none";

/// Runs the tests of the kernels with these designs.
///
/// # Errors
/// The first failure.
pub fn run(designs: &[String], end: Instant) -> Result<(), String> {
    let programs = programs(end)?;
    for design in designs {
        let guest = guest(design, &Config::read(None)?, end)?;
        for cpus in CPUS {
            let plan = plan(cpus, &[1, 2, cpus + 1], 1, &[]);
            let report = boot(&guest, &programs, &plan, cpus, Mode::Turns(None), "", end)?;
            println!(
                "{design}, {}, {}: {}, no stale read",
                super::number_of_cpus(cpus),
                report.kernel,
                extent(&report, &plan)
            );
        }
        for name in NOTICE {
            match boot(
                &guest,
                &programs,
                &[planned(name, 2, 1000)],
                2,
                Mode::Turns(None),
                OFF,
                end,
            ) {
                Err(why) if why.contains("reads were stale") => println!("{design}, {OFF}: {name} notices"),
                Err(why) => return Err(why),
                Ok(_) => {
                    return Err(format!(
                        "{design}, {OFF}: {name} read nothing stale, so it would notice nothing"
                    ));
                }
            }
        }
    }
    Ok(())
}

/// Every program but those of `without`, with these numbers of threads and this part of its operations; and CPUs that
/// go and come back.
pub fn plan(cpus: u32, threads: &[u32], share: u64, without: &[&str]) -> Vec<Planned> {
    let programs = CHECKED.iter().filter(|(name, _)| !without.contains(name));
    let each = programs.flat_map(|(name, ops)| {
        let planned = move |threads: &u32| planned(name, *threads, (ops / share).max(LEAST));
        threads.iter().map(planned)
    });
    let mut plan: Vec<_> = each.collect();
    if cpus > 1 {
        plan.push(hotplug(cpus, WHILE_HOTPLUG / share));
    }
    plan
}

/// What a boot ran, in words.
pub fn extent(report: &Report, plan: &[Planned]) -> String {
    let interrupts: u64 = report.ran.iter().map(|ran| ran.shootdown_interrupts).sum();
    let ops: u64 = report.ran.iter().map(|ran| ran.ops_with_warm_up).sum();
    format!(
        "{} runs of {} programs, {ops} operations, {interrupts} shootdown interrupts",
        plan.len(),
        plan.iter().map(|run| &run.workload).collect::<BTreeSet<_>>().len()
    )
}

/// CPUs go offline and come back while each of the others drops pages that all read.
fn hotplug(cpus: u32, ops: u64) -> Planned {
    Planned {
        workload: "hotplug".into(),
        threads: cpus,
        arguments: format!("drop_shared {cpus} --ops {ops}"),
    }
}
