//! A run of the bare-metal kernel in QEMU, and how it must end.

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use shootdown_qemu::{Clock, Emulator, Ended, Machine, Run};

use super::cases;

/// Longest run, on a busy host.
const MOST: Duration = Duration::from_secs(240);
/// CPUs of a case, unless it says otherwise.
pub const CPUS: usize = 4;
/// Seeds that are tried for a known bug, until it is caught: the rarest (`NoSelfService`) shows in 9 of 40.
const SEEDS: u32 = 64;

/// Number of runs, of which two must be the same.
const TRIES: u32 = 20;

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
    /// must equal an earlier one. (On two busy cores one run in five differed, with this kernel and with older ones;
    /// beside the tests six of six did once.)
    Twice,
    /// Caught, with one of [`SEEDS`].
    Caught,
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
