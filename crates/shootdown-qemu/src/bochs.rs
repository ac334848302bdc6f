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
/// Instructions of a CPU's turn.
const TURN: u32 = 16;

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
        let ran = self.run_in(iso, cpus, folder, most);
        let _ = fs::remove_dir_all(folder);
        ran
    }

    fn run_in(&self, iso: &Path, cpus: usize, folder: &Path, most: Duration) -> Result<Run, String> {
        let in_folder = |error: std::io::Error| format!("{}: {error}", folder.display());
        let [settings, first_words, port, log, output] =
            ["settings", "first-words", "serial", "log", "output"].map(|name| folder.join(name));
        fs::create_dir_all(folder).map_err(in_folder)?;
        fs::write(&settings, machine(iso, cpus, &port, &log)).map_err(in_folder)?;
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
        let in_time = wait(&mut child, begun + most);
        let lines: Vec<String> = fs::read(&port).map_or_else(
            |_| Vec::new(),
            |bytes| String::from_utf8_lossy(&bytes).lines().map(str::to_owned).collect(),
        );
        let complaint = |path: &PathBuf| complaint(&String::from_utf8_lossy(&fs::read(path).unwrap_or_default()));
        Ok(Run {
            ended: if in_time { ended(&lines) } else { Ended::TimedOut },
            lines,
            errors: complaint(&log).or(complaint(&output)).unwrap_or_default(),
            seconds: begun.elapsed().as_secs_f64(),
        })
    }
}

/// The error of the emulator itself, if it failed: the first line of it or of its C library (`*** ... ***:
/// terminated`).
fn complaint(text: &str) -> Option<String> {
    let is_one = |line: &&str| line.contains("PANIC") || line.contains("exception()") || line.starts_with("*** ");
    text.lines().find(is_one).map(str::to_owned)
}

/// How the kernel ended, by the last line that it printed.
fn ended(lines: &[String]) -> Ended {
    let status = lines
        .last()
        .and_then(|line| line.strip_prefix("status "))
        .and_then(|status| status.parse().ok());
    Ended::of(status)
}

/// Bochs's configuration. Without VBE: GRUB's query overruns its stack there. Without sound: if ALSA finds no card, its
/// mixer overruns a buffer and ends the emulator before the first instruction.
fn machine(iso: &Path, cpus: usize, port: &Path, log: &Path) -> String {
    format!(
        "display_library: rfb, options=\"timeout=0\"\n\
         megs: 256\n\
         romimage: file={BIOS}\n\
         vgaromimage: file={VIDEO_BIOS}\n\
         vga: extension=none\n\
         cpu: model={BOCHS_CPU}, count={cpus}, ips={SPEED}, quantum={TURN}, reset_on_triple_fault=0\n\
         clock: sync=none, time0=0\n\
         ata0: enabled=1, ioaddr1=0x1f0, ioaddr2=0x3f0, irq=14\n\
         ata0-master: type=cdrom, path=\"{}\", status=inserted\n\
         boot: cdrom\n\
         com1: enabled=1, mode=file, dev=\"{}\"\n\
         speaker: enabled=0\n\
         sound: waveoutdrv=dummy, waveindrv=dummy, midioutdrv=dummy\n\
         log: \"{}\"\n\
         panic: action=fatal\nerror: action=report\ninfo: action=report\ndebug: action=ignore\n",
        iso.display(),
        port.display(),
        log.display()
    )
}

/// Whether it ended by itself before `end`; it has ended in any case.
fn wait(child: &mut Child, end: Instant) -> bool {
    loop {
        match child.try_wait() {
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
    fn bochs_configuration_has_processor_and_files() {
        let text = machine(Path::new("/a b.iso"), 4, Path::new("/p"), Path::new("/l"));
        assert!(text.contains("model=corei7_haswell_4770, count=4,"), "{text}");
        assert!(text.contains("path=\"/a b.iso\"") && text.contains("dev=\"/p\"") && text.contains("log: \"/l\""));
    }
}
