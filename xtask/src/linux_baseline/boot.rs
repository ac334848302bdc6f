//! One boot of a guest: QEMU's command line, and the reports that come from the second serial port.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use serde::Deserialize;
use shootdown_qemu::{Emulator, Plugin, Version};

use super::initramfs::GuestFile;
use super::report::{Ended, Ran, Report};
use super::{Guest, Planned, child, initramfs, machine};
use crate::workspace;

/// How the virtual CPUs run.
#[derive(Debug, Clone, Copy)]
pub enum Mode<'a> {
    /// In parallel, one host thread each: as fast as the host.
    Parallel,
    /// The same, with a plugin. For a guest whose firmware waits for another CPU without ending its turn.
    ParallelCounted(Counter<'a>),
    /// In turns of one host thread, by the host's clock.
    OneThread,
    /// In turns, by a count of instructions; time is that count, one nanosecond each.
    Turns(Option<Counter<'a>>),
}

/// What counts instructions.
#[derive(Debug, Clone, Copy)]
pub struct Counter<'a> {
    /// The plugin.
    pub plugin: &'a Plugin,
    /// The spans that it counts, as its arguments.
    pub spans: &'a [String],
}

impl Counter<'_> {
    fn argument(&self) -> String {
        self.plugin.argument(self.spans)
    }
}

/// A guest, and its runs.
#[derive(Debug)]
pub struct Boot<'a> {
    /// The kernel.
    pub guest: &'a Guest,
    /// Folder of the programs.
    pub programs: &'a Path,
    /// The runs.
    pub plan: &'a [Planned],
    /// Virtual CPUs.
    pub cpus: u32,
    /// How they run.
    pub mode: Mode<'a>,
    /// Programs may fail: how each ended is reported, and is not an error.
    pub may_fail: bool,
    /// Further words of the kernel command line.
    pub words: &'a str,
    /// Further files of the guest.
    pub files: &'a [GuestFile],
    /// Further arguments of QEMU.
    pub machine: &'a [&'a str],
}

/// A line of the report. The programs of workloads/ and its init.c write them.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Line {
    Kernel {
        kernel: String,
    },
    Symbol {
        symbol: String,
        address: String,
    },
    Result {
        workload: String,
        threads: u32,
        ops: u64,
        ops_per_s: f64,
        ops_with_warm_up: u64,
        stale: u64,
    },
    Ran {
        ran: String,
        status: i32,
        shootdown_interrupts: u64,
    },
    Failed {
        failed: String,
    },
    Done {
        #[allow(dead_code)] // only that it is present
        done: bool,
    },
}

/// The file with the console of this process's last guest.
///
/// # Errors
/// When there is no folder for it.
pub fn console() -> Result<PathBuf, String> {
    Ok(folder()?.join(format!("console-{}.log", std::process::id())))
}

/// QEMU before this version may run code that another CPU has overwritten, where CPUs run in parallel: it can translate
/// code while that is written, and miss the write (its commit deba78709ae8). Linux patches itself as it boots, and then
/// stops at a breakpoint that is no longer there (docs/src/evidence/inside-linux.md says how often).
const TRANSLATES_SAFELY: Version = Version(8, 1);

/// What the console of such a guest shows.
const BREAKPOINT: &str = "Oops: int3";

/// Boots after that at most, before it is an error.
const ATTEMPTS: u32 = 3;

impl Boot<'_> {
    /// Boots, runs the plan and waits for the end. `progress` is called with the number of finished runs and the next
    /// one. Boots again where QEMU has overlooked that the guest patched its code.
    ///
    /// # Errors
    /// When QEMU fails, does not end in time, or a program fails or reads stale data.
    pub fn run(&self, end: Instant, mut progress: impl FnMut(usize, &str)) -> Result<Report, String> {
        let mut attempts = 1;
        loop {
            let outcome = self.attempt(end, &mut progress);
            match outcome {
                Err(_) if attempts < ATTEMPTS && self.ran_overwritten_code()? => attempts += 1,
                outcome => return outcome,
            }
            eprintln!(
                "== {}: QEMU before {TRANSLATES_SAFELY} ran code that another CPU had overwritten; booting again",
                self.guest.name
            );
        }
    }

    /// Whether the last boot may have ended because QEMU ran code that another CPU had overwritten.
    fn ran_overwritten_code(&self) -> Result<bool, String> {
        let in_parallel = matches!(self.mode, Mode::Parallel | Mode::ParallelCounted(_));
        if !in_parallel {
            return Ok(false);
        }
        // A guest that did not begin has no console.
        let shown = std::fs::read_to_string(console()?).unwrap_or_default();
        Ok(is_overwritten_code(Emulator::of(self.guest.arch)?.version, &shown))
    }

    fn attempt(&self, end: Instant, mut progress: impl FnMut(usize, &str)) -> Result<Report, String> {
        // Several commands may run at the same time. The archive is large: it goes when QEMU ends.
        let (folder, pid) = (folder()?, std::process::id());
        let archive = folder.join(format!("initramfs-{pid}"));
        let console = console()?;
        let bytes = initramfs::archive(self.programs, self.plan, self.files)?;
        std::fs::write(&archive, bytes).map_err(|error| format!("{}: {error}", archive.display()))?;
        let mut report = Report {
            console: console.clone(),
            ..Report::default()
        };
        let mut reading = Reading {
            may_fail: self.may_fail,
            ..Reading::default()
        };
        let next = |done: usize| match self.plan.get(done) {
            Some(run) => format!("{} {}", run.workload, run.arguments),
            None => String::new(),
        };
        let outcome = child::lines(&mut self.command(&archive, &console), end, |line| {
            reading.take(line, &mut report)?;
            if !report.kernel.is_empty() {
                progress(report.ended.len(), &next(report.ended.len()));
            }
            Ok(())
        });
        let _ = std::fs::remove_file(&archive);
        let outcome = outcome.and_then(|status| {
            match (
                reading.done,
                self.may_fail || status.code() == Some(self.guest.good_status()),
            ) {
                (true, true) => Ok(()),
                (false, true) => Err("the guest ended before all was run".into()),
                (_, false) => Err(format!("QEMU ended with {status}")),
            }
        });
        if let Err(why) = outcome {
            let during = match next(report.ended.len()) {
                run if self.may_fail && !run.is_empty() => format!(" during {run:?}"),
                _ => String::new(),
            };
            return Err(format!(
                "{why}{during}{}; its console is in {}",
                reading.output(),
                console.display()
            ));
        }
        if report.ended.len() != self.plan.len() {
            return Err(format!(
                "{} of {} runs were reported",
                report.ended.len(),
                self.plan.len()
            ));
        }
        Ok(report)
    }

    fn command(&self, archive: &Path, console: &Path) -> Command {
        let arch = self.guest.arch;
        let mut command = machine::qemu(arch, self.cpus, console);
        command.arg("-kernel").arg(&self.guest.kernel);
        command.args(machine::archive(arch, self.guest.is_linux(), archive));
        let counted = matches!(self.mode, Mode::Turns(_));
        let append = format!("{} {}", self.guest.append(counted), self.words);
        command.args(["-append", append.trim_end()]).args(self.machine);
        match self.mode {
            Mode::OneThread => {
                command.args(["-accel", "tcg,thread=single"]);
            }
            Mode::Parallel => {
                command.args(["-accel", "tcg,thread=multi"]);
            }
            Mode::ParallelCounted(counter) => {
                command.args(["-accel", "tcg,thread=multi", "-plugin", &counter.argument()]);
            }
            Mode::Turns(plugin) => {
                command.args(["-accel", "tcg,thread=single", "-icount", "shift=0,sleep=off"]);
                // The guest's random numbers and its date must not differ from boot to boot either.
                command.args(["-seed", "1", "-rtc", "base=2026-01-01,clock=vm"]);
                if let Some(counter) = plugin {
                    command.args(["-plugin", &counter.argument()]);
                }
            }
        }
        command
    }
}

fn is_overwritten_code(qemu: Version, console: &str) -> bool {
    qemu < TRANSLATES_SAFELY && console.contains(BREAKPOINT)
}

/// The report that these lines make, of a guest that was not booted here.
///
/// # Errors
/// When a program failed or read stale data, or the guest did not end.
pub fn report_of(lines: &[String]) -> Result<Report, String> {
    let (mut report, mut reading) = (Report::default(), Reading::default());
    for line in lines {
        reading.take(line, &mut report)?;
    }
    match reading.done {
        true => Ok(report),
        false => Err(format!("the guest ended before all was run{}", reading.output())),
    }
}

/// Path of a boot's files.
fn folder() -> Result<PathBuf, String> {
    let folder = workspace::root().join("target/linux-baseline");
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    folder
        .canonicalize()
        .map_err(|error| format!("{}: {error}", folder.display()))
}

/// State of the parser.
#[derive(Debug, Default)]
struct Reading {
    may_fail: bool,
    done: bool,
    /// The line of the program that runs.
    result: Option<Ran>,
    /// Lines that are not reports: error messages of programs.
    others: Vec<String>,
}

impl Reading {
    fn take(&mut self, line: &str, report: &mut Report) -> Result<(), String> {
        if line.is_empty() {
            return Ok(());
        }
        let Ok(line) = serde_json::from_str(line) else {
            self.others.push(line.to_string());
            return Ok(());
        };
        match line {
            Line::Kernel { kernel } => report.kernel = kernel,
            Line::Symbol { symbol, address } => {
                let address = u64::from_str_radix(&address, 16).map_err(|error| format!("{symbol}: {error}"))?;
                report.symbols.insert(symbol, address);
            }
            Line::Result {
                workload,
                threads,
                ops,
                ops_per_s,
                ops_with_warm_up,
                stale,
            } => {
                if stale > 0 {
                    return Err(format!("{workload} with {threads} threads: {stale} reads were stale"));
                }
                self.result = Some(Ran {
                    workload,
                    threads,
                    ops,
                    ops_with_warm_up,
                    ops_per_s,
                    shootdown_interrupts: 0,
                });
            }
            Line::Ran {
                ran,
                status,
                shootdown_interrupts,
            } => {
                let result = self.result.take();
                match (status, result) {
                    (0, Some(result)) => report.ran.push(Ran {
                        shootdown_interrupts,
                        ..result
                    }),
                    _ if self.may_fail => {}
                    (0, None) => return Err(format!("{ran} reported nothing")),
                    _ => return Err(format!("{ran} ended with status {status}")),
                }
                let output = if self.may_fail {
                    self.others.drain(..).collect::<Vec<_>>().join("\n")
                } else {
                    String::new()
                };
                report.ended.push(Ended { status, output });
            }
            Line::Failed { failed } => return Err(failed),
            Line::Done { .. } => self.done = true,
        }
        Ok(())
    }

    /// The last error messages of programs, for a message.
    fn output(&self) -> String {
        let last = &self.others[self.others.len().saturating_sub(3)..];
        last.iter().map(|line| format!("; it said: {line}")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESULT: &str =
        r#"{"workload":"mmap","threads":2,"ops":10,"seconds":0.5,"ops_per_s":20.0,"ops_with_warm_up":12,"stale":0}"#;

    fn read(lines: &[&str]) -> Result<(Report, Reading), String> {
        let (mut report, mut reading) = (Report::default(), Reading::default());
        for line in lines {
            reading.take(line, &mut report)?;
        }
        Ok((report, reading))
    }

    #[test]
    fn only_a_breakpoint_on_an_old_qemu_is_booted_again() {
        let oops = "Oops: int3: 0000 [#1] SMP NOPTI\nCPU: 1 UID: 0 PID: 0 Comm: swapper/1";
        assert!(is_overwritten_code(Version(7, 2), oops) && is_overwritten_code(Version(8, 0), oops));
        assert!(!is_overwritten_code(Version(8, 1), oops) && !is_overwritten_code(Version(10, 0), oops));
        assert!(!is_overwritten_code(Version(7, 2), "Oops: general protection fault\n"));
    }

    #[test]
    fn interrupts_belong_to_the_preceding_report() {
        let ran = r#"{"ran":"/mmap","status":0,"shootdown_interrupts":3,"call_interrupts":4}"#;
        let symbol = r#"{"symbol":"f","address":"ffffffff81e01690"}"#;
        let (report, reading) = read(&[symbol, RESULT, ran, "", r#"{"done":true}"#]).unwrap();
        assert_eq!(report.symbols["f"], 0xffff_ffff_81e0_1690);
        assert_eq!(
            (report.ran[0].ops_with_warm_up, report.ran[0].shootdown_interrupts),
            (12, 3)
        );
        assert!(reading.done);
    }

    #[test]
    fn failed_stale_and_silent_programs_are_errors() {
        let ran = |status: i32| format!(r#"{{"ran":"/mmap","status":{status},"shootdown_interrupts":3}}"#);
        assert!(read(&[RESULT, &ran(127)]).is_err_and(|why| why.contains("status 127")));
        assert!(read(&[&ran(0)]).is_err_and(|why| why.contains("reported nothing")));
        assert!(read(&[&RESULT.replace("\"stale\":0", "\"stale\":1")]).is_err_and(|why| why.contains("stale")));
        assert!(read(&[r#"{"failed":"mount: no"}"#]).is_err_and(|why| why == "mount: no"));
    }

    #[test]
    fn allowed_failures_are_reported_with_status_and_output() {
        let mut reading = Reading {
            may_fail: true,
            ..Reading::default()
        };
        let mut report = Report::default();
        for line in [
            "ended by signal 11",
            r#"{"ran":"/x","status":139,"shootdown_interrupts":0}"#,
            "",
            r#"{"ran":"/x","status":0,"shootdown_interrupts":0}"#,
        ] {
            reading.take(line, &mut report).unwrap();
        }
        let ended = |status, output: &str| Ended {
            status,
            output: output.into(),
        };
        assert_eq!(report.ended, [ended(139, "ended by signal 11"), ended(0, "")]);
    }

    #[test]
    fn stderr_lines_appear_in_the_error() {
        let (_, reading) = read(&["vmsplice: Bad address"]).unwrap();
        assert_eq!(reading.output(), "; it said: vmsplice: Bad address");
    }
}
