//! `cargo xtask linux test --config`: the programs in a configuration that checks more, or isolates page tables.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Instant;

use super::sources::at;
use super::{Config, Guest, Mode, Planned, Report, STOCK, boot, guest, number_of_cpus, programs, reports, test};
use crate::linux_baseline::boot::console;
use crate::workspace;

/// Numbers of CPUs.
const CPUS: [u32; 3] = [1, 2, 4];

/// Operations, as a divisor of those of the tests without checks: these take several times as long.
const SHARE: u64 = 5;

/// Programs that take too long with checks: each operation moves all pages of the machine.
const TOO_LONG: [&str; 1] = ["compact"];

/// Runs the tests of the kernels with these designs in that configuration.
///
/// # Errors
/// The first failure; reports that Linux itself does not print and that [may concern](reports::concerns) the engine.
pub fn run(designs: &[String], config: &str, end: Instant) -> Result<(), String> {
    let config = Config::read(Some(config))?;
    let programs = programs(end)?;
    let glue = workspace::root().join("linux/tlb.c");
    let glue = std::fs::read_to_string(&glue).map_err(|error| at(&glue, error))?;
    for design in designs {
        let kernel = guest(design, &config, end)?;
        for cpus in CPUS {
            let without: &[&str] = if config.has_checks() { &TOO_LONG } else { &[] };
            let plan = test::plan(cpus, &[cpus], SHARE, without);
            let (report, all) = attempt(&kernel, &programs, &plan, cpus, &config, end)?;
            let (printed, elsewhere): (BTreeSet<_>, BTreeSet<_>) =
                all.into_iter().partition(|title| reports::concerns(title, &glue));
            let of_linux = match printed.is_empty() {
                true => BTreeSet::new(),
                false => attempt(&guest(STOCK, &config, end)?, &programs, &plan, cpus, &config, end)?.1,
            };
            let new: Vec<&str> = printed.difference(&of_linux).map(String::as_str).collect();
            let what = format!("{design}, {}, {}", config.file_name(), number_of_cpus(cpus));
            if !new.is_empty() {
                return Err(format!(
                    "{what}: reports that Linux does not print:\n{}",
                    new.join("\n")
                ));
            }
            let mut found = match printed.len() {
                0 => "no report".to_string(),
                count => format!("{count} reports, which Linux prints too"),
            };
            if !elsewhere.is_empty() {
                found += &format!("; data races elsewhere: {}", elsewhere.len());
            }
            println!(
                "{what}, {}: {}, no stale read; {found}",
                report.kernel,
                test::extent(&report, &plan),
            );
        }
    }
    Ok(())
}

/// Boots and runs the plan; returns the reports on the console too.
fn attempt(
    kernel: &Guest,
    programs: &Path,
    plan: &[Planned],
    cpus: u32,
    config: &Config,
    end: Instant,
) -> Result<(Report, BTreeSet<String>), String> {
    let words = format!("{} {}", reports::WORDS, config.words);
    let outcome = boot(kernel, programs, plan, cpus, Mode::Turns(None), words.trim_end(), end);
    match outcome {
        Ok(report) => {
            let printed = reports::of_file(&report.console)?;
            Ok((report, printed))
        }
        // A guest that did not begin has no console.
        Err(why) => {
            let printed = console().and_then(|file| reports::of_file(&file)).unwrap_or_default();
            let printed: String = printed.iter().map(|title| format!("\n{title}")).collect();
            Err(format!("{why}{printed}"))
        }
    }
}
