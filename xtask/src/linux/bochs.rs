//! `cargo xtask linux test --bochs`: the programs in Bochs, whose processor has PCIDs and INVPCID; QEMU's has none.

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use shootdown_qemu::{BOCHS_CPU, Bochs, write_linux_iso};

use super::{Config, Guest, Planned, guest, number_of_cpus, planned, programs, reports};
use crate::linux_baseline::boot::report_of;
use crate::linux_baseline::initramfs;
use crate::workspace;

/// Longest boot, on a busy host.
const MOST: Duration = Duration::from_secs(15 * 60);

const CPUS: [u32; 2] = [1, 2];

/// In the report about what the processor of Bochs says of its cores, before the engine is made.
const OF_BOCHS: &str = "cpu/topology_common.c";

/// Operations of a program. Bochs interprets.
const OPS: u64 = 200;

/// Words of the command line, and the tags that the engine then finds.
const TRIED: [(&str, &str); 3] = [
    ("pti=off", "4096 PCIDs"),
    ("mitigations=auto pti=on", "4096 PCIDs, in pairs"),
    ("pti=off nopcid", "1 PCIDs"),
];

/// Runs the tests of the kernels with these designs.
///
/// # Errors
/// The first failure.
pub fn run(designs: &[String], config: Option<&str>, end: Instant) -> Result<(), String> {
    crate::bochs::install(end)?;
    let bochs = Bochs::find()?;
    let programs = programs(end)?;
    println!("Bochs {}, processor {BOCHS_CPU}", bochs.version);
    for design in designs {
        let guest = guest(design, &Config::read(config)?, end)?;
        for cpus in CPUS {
            for (words, tags) in TRIED {
                let what = format!("{design}, {}, {words}", number_of_cpus(cpus));
                let summary =
                    attempt(&bochs, &guest, &programs, cpus, words, tags).map_err(|why| format!("{what}: {why}"))?;
                println!("{what}: {summary}");
            }
        }
    }
    Ok(())
}

fn plan() -> Vec<Planned> {
    let programs = ["remap", "drop_shared"];
    programs
        .iter()
        .flat_map(|name| [1, 2].map(|threads| planned(name, threads, OPS)))
        .collect()
}

/// Boots and runs the plan; returns what was run, in words.
fn attempt(
    bochs: &Bochs,
    guest: &Guest,
    programs: &Path,
    cpus: u32,
    words: &str,
    tags: &str,
) -> Result<String, String> {
    let folder = workspace::root().join("target/linux/bochs");
    let at = |error: std::io::Error| format!("{}: {error}", folder.display());
    std::fs::create_dir_all(&folder).map_err(at)?;
    let (archive, iso) = (folder.join("archive"), folder.join("linux.iso"));
    let plan = plan();
    std::fs::write(&archive, initramfs::archive(programs, &plan, &[])?).map_err(at)?;
    let all = format!("{} {} {words}", guest.append(false), reports::WORDS);
    write_linux_iso(&guest.kernel, &archive, &all, &iso, &AtomicBool::new(false))?;
    // Whole: the port is slow.
    let is_last =
        |line: &str| ["{\"done\"", "{\"failed\""].iter().any(|what| line.starts_with(what)) && line.ends_with('}');
    let begun = Instant::now();
    let [console, lines] = bochs.run_linux(&iso, cpus as usize, &folder.join("run"), MOST, &is_last)?;
    let report = report_of(&lines)?;
    let engine = console.iter().find_map(|line| line.split_once("shootdown: design "));
    let (_, engine) = engine.ok_or("the engine says nothing on the console")?;
    if !engine.ends_with(tags) {
        return Err(format!("{tags} was expected, and the engine says: {engine}"));
    }
    let mut new = reports::of(&console.join("\n"));
    new.retain(|title| !title.contains(OF_BOCHS));
    if !new.is_empty() {
        return Err(new.into_iter().collect::<Vec<_>>().join("\n"));
    }
    let ops: u64 = report.ran.iter().map(|ran| ran.ops_with_warm_up).sum();
    Ok(format!(
        "{tags}; {} runs of 2 programs, {ops} operations, no stale read, {} s",
        report.ran.len(),
        begun.elapsed().as_secs()
    ))
}
