//! `cargo xtask linux test`: programs that check what they read, and that notice when invalidation is switched off.

use std::time::Instant;

use super::{Mode, Planned, boot, guest, planned, programs};

/// Numbers of CPUs. One emulator thread runs them all in turns.
const CPUS: [u32; 4] = [1, 2, 4, 8];

/// The programs, and their operations.
const CHECKED: [(&str, u64); 11] = [
    ("compact", 100),
    ("collapse", 100),
    ("drop_shared", 1000),
    ("remap", 1000),
    ("tlb_flush1", 1000),
    ("tlb_flush2", 1000),
    ("tlb_flush3", 1000),
    ("mprotect_all", 1000),
    ("gup", 1000),
    ("page_fault", 1000),
    ("mmap", 200),
];

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
        let guest = guest(design, end)?;
        for cpus in CPUS {
            let threads = [1, 2, cpus + 1];
            let each = CHECKED
                .iter()
                .flat_map(|(name, ops)| threads.map(|threads| planned(name, threads, *ops)));
            let mut plan: Vec<_> = each.collect();
            if cpus > 1 {
                plan.push(hotplug(cpus));
            }
            let report = boot(&guest, &programs, &plan, cpus, Mode::Turns(None), "", end)?;
            let interrupts: u64 = report.ran.iter().map(|ran| ran.shootdown_interrupts).sum();
            let ops: u64 = report.ran.iter().map(|ran| ran.ops_with_warm_up).sum();
            println!(
                "{design}, {}, {}: {} runs of {} programs, {ops} operations, \
                 {interrupts} shootdown interrupts, no stale read",
                super::number_of_cpus(cpus),
                report.kernel,
                plan.len(),
                CHECKED.len()
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

/// CPUs go offline and come back while each of the others drops pages that all read.
fn hotplug(cpus: u32) -> Planned {
    Planned {
        workload: "hotplug".into(),
        threads: cpus,
        arguments: format!("drop_shared {cpus} --ops {WHILE_HOTPLUG}"),
    }
}
