//! The kernel in Bochs, whose processor has PCIDs, INVPCID and global translations that outlive a root: boots,
//! measures, survives torture with all of these in use; and known bugs are caught.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use serde_json::Value;
use shootdown_qemu::{BOCHS_CPU, BOCHS_NEEDS, Bochs, Ended, ISO_NEEDS, Image, Run, write_iso};

use super::{cases, debian, kernel, torture, workspace};

/// Longest run, on a busy host.
const MOST: Duration = Duration::from_secs(90);
const CPUS: usize = 4;
/// Seeds that are tried for a known bug, until it is caught.
const SEEDS: u32 = 32;
/// Back ends that torture must have used, over all designs: fields of `instructions` in what it prints.
const BACK_ENDS: [&str; 6] = [
    "invlpg",
    "invpcid_address",
    "invpcid_tag",
    "invpcid_all",
    "root_tagged",
    "root_kept",
];
/// Known bugs that are tried by default: one of each part of the engine.
const SAMPLED: [&str; 5] = [
    "SkipWhenNotCurrent",
    "WholeTagOnlyHere",
    "BroadcastCountOffByOne",
    "ReusedUnderWalk",
    "LazyLeavesSet",
];

enum Expected {
    /// The table of rates, with no stale translation.
    Table,
    /// The line of torture, and the executed instructions.
    Torture,
    /// Caught, with one of [`SEEDS`].
    Caught,
}

struct Case {
    name: String,
    command_line: String,
    expected: Expected,
}

/// Paths.
struct Place {
    bochs: Bochs,
    plain: PathBuf,
    faulty: PathBuf,
    folder: PathBuf,
}

/// Ensures that Bochs and the image tools are installed: installs them as root; otherwise prints the command.
///
/// # Errors
/// The command to run by hand.
pub fn install(end: Instant) -> Result<(), String> {
    debian::programs(&[&BOCHS_NEEDS[..], &ISO_NEEDS].concat(), end)
}

/// Runs everything; with every known bug that can show, or only some of them.
///
/// # Errors
/// Every failure, a line each.
pub fn run(every_fault: bool, end: Instant) -> Result<(), String> {
    install(end)?;
    let image = Image::around(&workspace::root().canonicalize().map_err(|error| error.to_string())?)?;
    println!("building the kernel, and once more with its known bugs");
    let never = AtomicBool::new(false);
    let place = Place {
        bochs: Bochs::find()?,
        plain: image.build(&never)?,
        faulty: image.clone().with_faults().build(&never)?,
        folder: workspace::root().join("target/bochs"),
    };
    std::fs::create_dir_all(&place.folder).map_err(|error| format!("{}: {error}", place.folder.display()))?;
    println!(
        "Bochs {}, processor {BOCHS_CPU}: PCID, INVPCID, x2APIC; {CPUS} CPUs",
        place.bochs.version
    );
    let all = all(every_fault);
    let used = Mutex::new([0; BACK_ENDS.len()]);
    let mut failures = cases::run(&all, |number, case| case.run(&place, number, &used))?;
    let used = used.into_inner().map_err(|_| "a thread panicked")?;
    let executed: Vec<String> = BACK_ENDS
        .iter()
        .zip(used)
        .map(|(name, count)| format!("{name} {count}"))
        .collect();
    println!("executed under torture: {}", executed.join(", "));
    let unused = BACK_ENDS.iter().zip(used).filter(|(_, count)| *count == 0);
    failures.extend(unused.map(|(name, _)| format!("{name}: never executed under torture")));
    if failures.is_empty() {
        Ok(())
    } else {
        Err(failures.join("\n"))
    }
}

fn all(every_fault: bool) -> Vec<Case> {
    let mut cases = Vec::new();
    for workload in ["tlb_flush2", "madvise_spin", "mprotect_all"] {
        cases.push(Case {
            name: format!("{workload}; ipi, broadcast, adaptive"),
            command_line: format!("workload={workload} table=1 design=ipi,broadcast,adaptive threads=1,{CPUS} ms=20"),
            expected: Expected::Table,
        });
    }
    for (seed, design) in (0..).zip(kernel::TORTURED) {
        let jitter = torture::jitter(seed);
        cases.push(Case {
            name: format!("torture, {design}, seed {seed}"),
            command_line: format!("workload=torture design={design} seed={seed} jitter={jitter} steps=1500"),
            expected: Expected::Torture,
        });
    }
    let mut caught = |name: String, command_line: String| {
        cases.push(Case {
            name,
            command_line: format!("workload=torture {command_line} steps=4000"),
            expected: Expected::Caught,
        });
    };
    caught("control: none".into(), "design=none".into());
    // A mistake of hooks that QEMU hides: its root loads drop global translations.
    let hidden = "KernelRangeByTag";
    caught(format!("mistake {hidden}, ipi"), format!("design=ipi fault={hidden}"));
    for (fault, design) in kernel::visible_faults() {
        if every_fault || SAMPLED.contains(&fault) {
            caught(
                format!("fault {fault}, {design}"),
                format!("design={design} fault={fault}"),
            );
        }
    }
    cases
}

impl cases::Case for Case {
    fn name(&self) -> &str {
        &self.name
    }
    fn command_line(&self) -> &str {
        &self.command_line
    }
}

impl Case {
    fn once(&self, place: &Place, kernel: &Path, number: usize, command_line: &str) -> Result<Run, String> {
        let iso = place.folder.join(format!("{number}.iso"));
        write_iso(
            kernel,
            &format!("bochs=1 {command_line}"),
            &iso,
            &AtomicBool::new(false),
        )?;
        let ran = place
            .bochs
            .run(&iso, CPUS, &place.folder.join(number.to_string()), MOST);
        let _ = std::fs::remove_file(&iso);
        ran
    }

    fn run(&self, place: &Place, number: usize, used: &Mutex<[u64; BACK_ENDS.len()]>) -> Result<String, String> {
        match self.expected {
            Expected::Table => {
                let run = self.once(place, &place.plain, number, &self.command_line)?;
                if let Some(problem) = run.problem() {
                    return Err(problem);
                }
                let tags = run.lines.iter().any(|line| line.contains("tags: PCID and INVPCID"));
                tags.then(|| format!("printed the table in {:.1} s", run.seconds))
                    .ok_or_else(|| format!("no tags were used:\n{}", run.lines.join("\n")))
            }
            Expected::Torture => {
                let run = self.once(place, &place.faulty, number, &self.command_line)?;
                if let Some(problem) = run.problem() {
                    return Err(problem);
                }
                let result: Value = serde_json::from_str(run.json().ok_or("no line of JSON")?)
                    .map_err(|error| format!("what torture prints: {error}"))?;
                let mut used = used.lock().expect("no panics");
                for (sum, name) in used.iter_mut().zip(BACK_ENDS) {
                    *sum += result["instructions"][name]
                        .as_u64()
                        .ok_or("no count of instructions")?;
                }
                Ok(format!(
                    "passed in {:.1} s: {} accesses checked",
                    run.seconds, result["accesses_checked"]
                ))
            }
            Expected::Caught => {
                for seed in 1..=SEEDS {
                    let jitter = if seed % 2 == 1 { 700 } else { 3000 };
                    let command_line = format!("{} seed={seed} jitter={jitter}", self.command_line);
                    let run = self.once(place, &place.faulty, number, &command_line)?;
                    match run.ended {
                        Ended::Violation => return Ok(run.caught_with(seed)),
                        // A bug may also cause any other failure: that is neither a catch nor a reason to stop.
                        Ended::Success | Ended::TimedOut | Ended::Otherwise(_) => {}
                        _ => return Err(run.problem().unwrap_or_default()),
                    }
                }
                Err(format!("not caught with any of {SEEDS} seeds"))
            }
        }
    }
}
