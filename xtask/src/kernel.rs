//! The bare-metal kernel in QEMU: boots, is deterministic, survives torture; the control and every known bug that can
//! show there are caught; the image for real machines boots.

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use shootdown_qemu::{Arch, Clock, Emulator, Ended, Image, Machine, Run};

use super::{cases, iso, stream, torture, workspace};

/// Longest run, on a busy host.
const MOST: Duration = Duration::from_secs(240);
/// CPUs of a case, unless it says otherwise.
const CPUS: usize = 4;
/// Designs that are tortured, in turn.
pub const TORTURED: [&str; 10] = [
    "ipi",
    "adaptive",
    "broadcast",
    "walk-sticky",
    "ipi-trim",
    "walk-precise",
    "preemptible",
    "arm-broadcast",
    "ipi-early",
    "arm-ipi",
];
/// Runs under torture: each clock shift, each design, another seed and another jitter every time.
const TORTURES: u8 = 22;
/// Seeds that are tried for a known bug, until it is caught: the rarest (`NoSelfService`) shows in 9 of 40.
const SEEDS: u32 = 64;

/// Number of runs, of which two must be the same.
const TRIES: u32 = 6;

/// One case.
pub struct Case {
    /// In reports.
    pub name: String,
    /// The machine.
    pub emulator: Emulator,
    /// CPUs.
    pub cpus: usize,
    /// log2 of the nanoseconds of an instruction.
    pub shift: u8,
    /// Instructions are not counted, and CPUs run in parallel.
    pub at_once: bool,
    /// The kernel's command line.
    pub command_line: String,
    /// Whether to use the kernel with known bugs.
    pub faults: bool,
    /// The expected end.
    pub expected: Expected,
}

/// How a case must end.
pub enum Expected {
    /// With success.
    Success,
    /// The same, and a line of its output has this text.
    Says(&'static str),
    /// The kernel gives up, and its last line has these words.
    Refused(&'static str),
    /// The output equals that of another run too. On a busy host QEMU's own thread occasionally runs a timer in place
    /// of the thread that runs the CPUs, and a turn then ends elsewhere. So when two runs differ, one of a few more
    /// must equal an earlier one. (On two busy cores one run in five differed, with this kernel and with older ones.)
    Twice,
    /// Caught, with one of [`SEEDS`].
    Caught,
}

/// Runs everything.
///
/// # Errors
/// Every failure, a line each.
pub fn run(end: Instant) -> Result<(), String> {
    let emulator = Emulator::find()?;
    let image = Image::around(&workspace::root().canonicalize().map_err(|error| error.to_string())?)?;
    println!("building the kernel, and once more with its known bugs");
    let never = AtomicBool::new(false);
    let (plain, faulty) = (image.build(&never)?, image.clone().with_faults().build(&never)?);
    let all = all(&emulator);
    let mut failures = cases::run(&all, |_, case| {
        let path = if case.faults { &faulty } else { &plain };
        case.run(path)
    })?;
    failures.extend(stream::check(Arch::X86_64, &emulator, &plain).err());
    if let Err(why) = iso::check(&emulator, &plain, end) {
        failures.push(why);
    }
    if failures.is_empty() {
        Ok(())
    } else {
        Err(failures.join("\n"))
    }
}

fn all(emulator: &Emulator) -> Vec<Case> {
    let case = |name, command_line| Case::new(name, emulator, command_line);
    let mut cases = vec![Case {
        cpus: 64,
        ..case("boot, 64 CPUs, an NMI each".into(), "workload=hello".into())
    }];
    cases.push(case(
        "each invalidation, by its effect".into(),
        "workload=operands design=broadcast".into(),
    ));
    for workload in ["tlb_flush2", "madvise_spin", "mprotect_all", "process_churn"] {
        for design in ["ipi", "broadcast", "adaptive"] {
            let command_line = format!("workload={workload} design={design}");
            cases.push(case(format!("{workload}, {design}"), command_line));
        }
    }
    for number in 0..TORTURES {
        let design = TORTURED[usize::from(number) % TORTURED.len()];
        cases.push(torture::case(Arch::X86_64, emulator, design, number, CPUS, 1500));
    }
    cases.push(Case {
        cpus: 16,
        shift: 2,
        ..case(
            "torture, adaptive, 16 CPUs".into(),
            "workload=torture design=adaptive jitter=2000 steps=300".into(),
        )
    });
    for command_line in [
        "workload=torture design=adaptive jitter=1000",
        "workload=tlb_flush2 design=adaptive",
    ] {
        cases.push(Case {
            expected: Expected::Twice,
            ..case(format!("twice: {command_line}"), command_line.to_owned())
        });
    }
    let caught = |name, command_line| case(name, command_line).caught();
    cases.push(caught("control: none".into(), "workload=torture design=none".into()));
    for (fault, design) in visible_faults() {
        let command_line = format!("workload=torture design={design} fault={fault} steps=4000");
        cases.push(caught(format!("fault {fault}, {design}"), command_line));
    }
    cases
}

/// Known bugs that can show in QEMU, each with a design, by the manifest.
pub fn visible_faults() -> Vec<(&'static str, &'static str)> {
    let known = shootdown_known_bugs::ALL.iter();
    let visible: Vec<_> = known.filter_map(|known| Some((known.name, known.qemu?))).collect();
    println!(
        "{} known bugs, {} of them can show in QEMU",
        shootdown_known_bugs::ALL.len(),
        visible.len()
    );
    visible
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
    /// Four CPUs, instructions counted, no known bug; it must end with success.
    pub fn new(name: String, emulator: &Emulator, command_line: String) -> Case {
        Case {
            name,
            emulator: emulator.clone(),
            cpus: CPUS,
            shift: 0,
            at_once: false,
            command_line,
            faults: false,
            expected: Expected::Success,
        }
    }

    /// The same on the kernel with known bugs; the oracle must catch the selected one.
    pub fn caught(self) -> Case {
        Case {
            shift: 4,
            faults: true,
            expected: Expected::Caught,
            ..self
        }
    }

    fn once(&self, image: &Path, command_line: &str) -> Result<Run, String> {
        let machine = Machine {
            cpus: self.cpus,
            clock: match self.at_once {
                true => Clock::Translated,
                false => Clock::Counted { shift: self.shift },
            },
            memory_mib: 256,
        };
        machine.run(&self.emulator, image, command_line, MOST, &AtomicBool::new(false))
    }

    /// Runs it with that kernel, and returns the last line of JSON, which has the counts.
    ///
    /// # Errors
    /// A description of the failure.
    pub fn last_line(&self, image: &Path) -> Result<String, String> {
        let run = self.once(image, &self.command_line)?;
        match (run.problem(), run.json()) {
            (Some(problem), _) => Err(problem),
            (None, Some(line)) => Ok(line.to_owned()),
            (None, None) => Err("the kernel printed no counts".into()),
        }
    }

    /// Runs it with that kernel.
    ///
    /// # Errors
    /// A description of the failure.
    pub fn run(&self, image: &Path) -> Result<String, String> {
        match self.expected {
            Expected::Success => {
                let run = self.once(image, &self.command_line)?;
                match run.problem() {
                    None => Ok(format!("passed in {:.1} s", run.seconds)),
                    Some(problem) => Err(problem),
                }
            }
            Expected::Says(text) => {
                let run = self.once(image, &self.command_line)?;
                match run.problem() {
                    Some(problem) => Err(problem),
                    None if run.lines.iter().any(|line| line.contains(text)) => {
                        Ok(format!("passed in {:.1} s: {text}", run.seconds))
                    }
                    None => Err(format!("expected {text} in {}", run.lines.join("\n"))),
                }
            }
            Expected::Refused(words) => {
                let run = self.once(image, &self.command_line)?;
                match (run.ended, run.problem()) {
                    (Ended::Failure | Ended::Usage, Some(why)) if why.contains(words) => Ok(format!("refused: {why}")),
                    (_, why) => Err(format!(
                        "expected to be refused with {words}: {}",
                        why.unwrap_or_default()
                    )),
                }
            }
            Expected::Twice => {
                let mut seen: Vec<Vec<String>> = Vec::new();
                for number in 1..=TRIES {
                    let run = self.once(image, &self.command_line)?;
                    match run.problem() {
                        Some(problem) => return Err(problem),
                        None if seen.contains(&run.lines) => return Ok(format!("two of {number} identical")),
                        None => seen.push(run.lines),
                    }
                }
                let seen: Vec<String> = seen.iter().map(|lines| lines.join("\n")).collect();
                Err(format!("differ:\n{}", seen.join("\n")))
            }
            Expected::Caught => {
                for seed in 1..=SEEDS {
                    let jitter = if seed % 2 == 1 { 700 } else { 3000 };
                    let command_line = format!("{} seed={seed} jitter={jitter}", self.command_line);
                    let run = self.once(image, &command_line)?;
                    match run.ended {
                        Ended::Violation => return Ok(run.caught_with(seed)),
                        Ended::Success => {}
                        _ => return Err(run.problem().unwrap_or_default()),
                    }
                }
                Err(format!("not caught with any of {SEEDS} seeds"))
            }
        }
    }
}
