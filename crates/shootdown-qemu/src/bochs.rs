//! Bochs, an emulator with features that QEMU's translator lacks: PCIDs, INVPCID, and global translations that outlive
//! the load of a root. Its CPUs take turns of a few instructions each, so that races show at every place; two boots of
//! an image are identical.
//!
//! It boots images only (see [`write_iso`](crate::write_iso)), and passes no exit status on: with `bochs=1` the kernel
//! prints one on the serial port.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::needs;
use crate::run::{Ended, Run};

/// Required files, and the package of each.
pub const BOCHS_NEEDS: [(&str, &str); 3] = [("bochs", "bochs"), (BIOS, "bochsbios"), (VIDEO_BIOS, "vgabios")];
/// The command that installs it, on Debian and Ubuntu.
pub const BOCHS_INSTALL: &str = "apt-get install -y --no-install-recommends bochs bochsbios vgabios";

const BIOS: &str = "/usr/share/bochs/BIOS-bochs-latest";
const VIDEO_BIOS: &str = "/usr/share/bochs/VGABIOS-lgpl-latest";
/// The oldest processor that it offers with PCID and INVPCID.
pub const BOCHS_CPU: &str = "corei7_haswell_4770";
/// Instructions of a virtual second. Few, because firmware waits by the clock.
const SPEED: u32 = 2_000_000;
/// The same for Linux, whose timer interrupts would take most of so few.
const SPEED_OF_LINUX: u32 = 50_000_000;
/// Instructions of a CPU's turn.
const TURN: u32 = 16;
/// Starts of Bochs while every port for its screen is taken, and the pause between them. A judgement: seen once.
const PORT_TRIES: u32 = 10;
const PORT_PAUSE: Duration = Duration::from_secs(1);

/// A Bochs that can be used.
#[derive(Debug, Clone)]
pub struct Bochs {
    /// Its version string.
    pub version: String,
    /// It is built with its debugger, which waits for a command before it begins.
    debugger: bool,
}

impl Bochs {
    /// Asks the Bochs on the search path.
    ///
    /// # Errors
    /// The missing item and the command that installs it.
    pub fn find() -> Result<Bochs, String> {
        needs::are_met(&BOCHS_NEEDS, BOCHS_INSTALL)?;
        let ask = |words: &[&str]| {
            let output = Command::new("bochs").args(words).stdin(Stdio::null()).output();
            let output = output.map_err(|error| format!("bochs cannot be run ({error}): sudo {BOCHS_INSTALL}"))?;
            Ok::<_, String>(String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
        };
        let models = ask(&["--help", "cpu"])?;
        if !models.lines().any(|line| line.trim() == BOCHS_CPU) {
            return Err(format!(
                "bochs offers no processor {BOCHS_CPU}, \
                 the first with PCID and INVPCID; version 2.7 does (package bochs)"
            ));
        }
        let version = models
            .lines()
            .find_map(|line| line.trim().strip_prefix("Bochs x86 Emulator "));
        Ok(Bochs {
            version: version.unwrap_or("of an unknown version").to_owned(),
            debugger: ask(&["--help"])?.contains("-rc "),
        })
    }

    /// Boots an image on a machine with that many CPUs, for at most `most`. Files are kept in `folder`, which is made
    /// and removed.
    ///
    /// # Errors
    /// When it cannot be started, or the files cannot be written.
    pub fn run(&self, iso: &Path, cpus: usize, folder: &Path, most: Duration) -> Result<Run, String> {
        let machine = Machine {
            cpus,
            speed: SPEED,
            is_last: &|_| false,
        };
        let ran = self.run_in(iso, &machine, folder, most);
        let _ = fs::remove_dir_all(folder);
        let (console, _, run) = ran?;
        Ok(Run {
            ended: match run.ended {
                Ended::TimedOut => Ended::TimedOut,
                _ => ended(&console),
            },
            lines: console,
            ..run
        })
    }

    /// Boots an image of Linux. It writes its console to the first serial port, and to the second one lines, until one
    /// of them is the last. Returns the lines of both. Files are kept in `folder`.
    ///
    /// # Errors
    /// When it cannot be started, ends by itself, or does not end in time, with the last lines of its console.
    pub fn run_linux(
        &self,
        iso: &Path,
        cpus: usize,
        folder: &Path,
        most: Duration,
        is_last: &dyn Fn(&str) -> bool,
    ) -> Result<[Vec<String>; 2], String> {
        let machine = Machine {
            cpus,
            speed: SPEED_OF_LINUX,
            is_last,
        };
        let (console, reports, run) = self.run_in(iso, &machine, folder, most)?;
        if reports.iter().any(|line| is_last(line)) {
            return Ok([console, reports]);
        }
        let why = match (run.ended, run.errors) {
            (Ended::TimedOut, _) => format!("not ended after {} s", most.as_secs()),
            (_, errors) => format!("Bochs ended before Linux did; {errors}"),
        };
        let last = console[console.len().saturating_sub(5)..].join("\n");
        Err(format!("{why}; see {}; its console ends:\n{last}", folder.display()))
    }

    /// [`try_in`](Self::try_in), again if Bochs finds no port for its screen. It tries only 50, which other programs on
    /// the host may hold for a moment, and Debian's Bochs has no display without a port or a terminal.
    fn run_in(
        &self,
        iso: &Path,
        machine: &Machine<'_>,
        folder: &Path,
        most: Duration,
    ) -> Result<(Vec<String>, Vec<String>, Run), String> {
        let mut again = PORT_TRIES;
        loop {
            again -= 1;
            let ran = self.try_in(iso, machine, folder, most)?;
            if again == 0 || !has_no_port(&ran.2.errors) {
                return Ok(ran);
            }
            std::thread::sleep(PORT_PAUSE);
        }
    }

    /// The lines of both serial ports, and the rest of the result.
    fn try_in(
        &self,
        iso: &Path,
        machine: &Machine<'_>,
        folder: &Path,
        most: Duration,
    ) -> Result<(Vec<String>, Vec<String>, Run), String> {
        let in_folder = |error: std::io::Error| format!("{}: {error}", folder.display());
        let [settings, first_words, console, reports, log, output] =
            ["settings", "first-words", "serial", "reports", "log", "output"].map(|name| folder.join(name));
        fs::create_dir_all(folder).map_err(in_folder)?;
        fs::write(&settings, machine.settings(iso, [&console, &reports], &log)).map_err(in_folder)?;
        // Of a run before.
        let _ = fs::remove_file(&reports);
        fs::write(&first_words, "continue\n").map_err(in_folder)?;
        let printed = fs::File::create(&output).map_err(in_folder)?;
        let mut command = Command::new("bochs");
        command.arg("-q").arg("-f").arg(&settings);
        if self.debugger {
            command.arg("-rc").arg(&first_words);
        }
        let begun = Instant::now();
        let started = command
            .stdin(Stdio::null())
            .stdout(printed.try_clone().map_err(in_folder)?)
            .stderr(printed)
            .spawn();
        let mut child = started.map_err(|error| format!("bochs cannot be run ({error}): sudo {BOCHS_INSTALL}"))?;
        let is_over = || lines(&reports).iter().any(|line| (machine.is_last)(line));
        let in_time = wait(&mut child, begun + most, is_over);
        let complaint = |path: &PathBuf| complaint(&String::from_utf8_lossy(&fs::read(path).unwrap_or_default()));
        let run = Run {
            ended: if in_time {
                Ended::Otherwise(None)
            } else {
                Ended::TimedOut
            },
            lines: Vec::new(),
            errors: complaint(&log).or(complaint(&output)).unwrap_or_default(),
            seconds: begun.elapsed().as_secs_f64(),
        };
        Ok((lines(&console), lines(&reports), run))
    }
}

/// The whole lines of a file.
fn lines(path: &Path) -> Vec<String> {
    let bytes = fs::read(path).unwrap_or_default();
    String::from_utf8_lossy(&bytes).lines().map(str::to_owned).collect()
}

/// The error of the emulator itself, if it failed: the first line of it or of its C library (`*** ... ***:
/// terminated`).
fn complaint(text: &str) -> Option<String> {
    let is_one = |line: &&str| line.contains("PANIC") || line.contains("exception()") || line.starts_with("*** ");
    text.lines().find(is_one).map(str::to_owned)
}

/// Whether that is Bochs's complaint that every port for its screen is taken.
fn has_no_port(complaint: &str) -> bool {
    complaint.contains("could not bind any port")
}

/// How the kernel ended, by the last line that it printed.
fn ended(lines: &[String]) -> Ended {
    let status = lines
        .last()
        .and_then(|line| line.strip_prefix("status "))
        .and_then(|status| status.parse().ok());
    Ended::of(status)
}

/// A machine, and when it is over.
struct Machine<'a> {
    cpus: usize,
    /// Instructions of a virtual second.
    speed: u32,
    /// Whether this line of the second serial port is the last.
    is_last: &'a dyn Fn(&str) -> bool,
}

/// Bochs's configuration. Without VBE: GRUB's query overruns its stack there. Without sound: if ALSA finds no card, its
/// mixer overruns a buffer and ends the emulator before the first instruction.
impl Machine<'_> {
    fn settings(&self, iso: &Path, ports: [&Path; 2], log: &Path) -> String {
        let Machine { cpus, speed, .. } = self;
        format!(
            "display_library: rfb, options=\"timeout=0\"\n\
         megs: 256\n\
         romimage: file={BIOS}\n\
         vgaromimage: file={VIDEO_BIOS}\n\
         vga: extension=none\n\
         cpu: model={BOCHS_CPU}, count={cpus}, ips={speed}, quantum={TURN}, reset_on_triple_fault=0\n\
         clock: sync=none, time0=0\n\
         ata0: enabled=1, ioaddr1=0x1f0, ioaddr2=0x3f0, irq=14\n\
         ata0-master: type=cdrom, path=\"{}\", status=inserted\n\
         boot: cdrom\n\
         com1: enabled=1, mode=file, dev=\"{}\"\n\
         com2: enabled=1, mode=file, dev=\"{}\"\n\
         speaker: enabled=0\n\
         sound: waveoutdrv=dummy, waveindrv=dummy, midioutdrv=dummy\n\
         log: \"{}\"\n\
         panic: action=fatal\nerror: action=report\ninfo: action=report\ndebug: action=ignore\n",
            iso.display(),
            ports[0].display(),
            ports[1].display(),
            log.display()
        )
    }
}

/// Whether it ended by itself before `end`, or was over; it has ended in any case.
fn wait(child: &mut Child, end: Instant, is_over: impl Fn() -> bool) -> bool {
    loop {
        match child.try_wait() {
            Ok(None) if is_over() => {
                let _ = child.kill();
                let _ = child.wait();
                return true;
            }
            Ok(None) if Instant::now() < end => std::thread::sleep(Duration::from_millis(20)),
            Ok(Some(_)) => return true,
            _ => {
                let _ = child.kill();
                let _ = child.wait();
                return false;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_line_gives_the_status_and_its_absence_is_a_failure() {
        let of = |lines: &[&str]| ended(&lines.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert_eq!(of(&["{}", "status 33"]), Ended::Success);
        assert_eq!(of(&["violation: C1", "status 37"]), Ended::Violation);
        assert_eq!(of(&["status 33", "{}"]), Ended::Otherwise(None));
        assert_eq!(of(&[]), Ended::Otherwise(None));
    }

    #[test]
    fn emulator_panic_is_extracted() {
        let overrun = "i[GUI] started\n*** buffer overflow detected ***: terminated\n";
        assert_eq!(
            complaint(overrun).as_deref(),
            Some("*** buffer overflow detected ***: terminated")
        );
        assert_eq!(
            complaint("p[CPU0] >>PANIC<< no ROM\n").as_deref(),
            Some("p[CPU0] >>PANIC<< no ROM")
        );
        assert_eq!(complaint("i[CPU0] reset\n"), None);
    }

    #[test]
    fn only_a_missing_port_for_the_screen_is_tried_again() {
        let no_port = "p[RFB   ] >>PANIC<< RFB could not bind any port between 5900 and 5949\n";
        assert!(has_no_port(&complaint(no_port).expect("it is a panic")));
        assert!(!has_no_port("p[CPU0] >>PANIC<< no ROM"));
    }

    #[test]
    fn bochs_configuration_has_processor_and_files() {
        let machine = Machine {
            cpus: 4,
            speed: SPEED,
            is_last: &|_| false,
        };
        let text = machine.settings(
            Path::new("/a b.iso"),
            [Path::new("/p"), Path::new("/q")],
            Path::new("/l"),
        );
        assert!(text.contains("model=corei7_haswell_4770, count=4,"), "{text}");
        assert!(
            text.contains("path=\"/a b.iso\"")
                && text.contains("com2: enabled=1, mode=file, dev=\"/q\"")
                && text.contains("log: \"/l\"")
        );
    }
}
