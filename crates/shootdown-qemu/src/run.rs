//! One run: a machine, a command line for the kernel, and the result.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use crate::emulator::Emulator;

/// How the machine's time passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clock {
    /// Translated code, one CPU after the other; an instruction takes 2^shift ns. Deterministic.
    Counted {
        /// 0 to 10.
        shift: u8,
    },
    /// Translated code, a host thread for each CPU.
    Translated,
    /// The host's own processor (KVM).
    Hardware,
}

/// The machine.
#[derive(Debug, Clone)]
pub struct Machine {
    /// CPUs.
    pub cpus: usize,
    /// Time.
    pub clock: Clock,
    /// Memory, MiB.
    pub memory_mib: u32,
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// Success.
    Success,
    /// The kernel gave up.
    Failure,
    /// The oracle saw a violation.
    Violation,
    /// The command line asks for something that does not exist.
    Usage,
    /// The emulator ended with another status (QEMU on a triple fault: 0), or without one.
    Otherwise(Option<i32>),
    /// It exceeded its time limit, and was killed.
    TimedOut,
    /// It was stopped, and was killed.
    Stopped,
}

impl Ended {
    /// From QEMU's exit status, which the kernel sets.
    pub(crate) fn of(status: Option<i32>) -> Ended {
        match status {
            Some(33) => Ended::Success,
            Some(35) => Ended::Failure,
            Some(37) => Ended::Violation,
            Some(39) => Ended::Usage,
            other => Ended::Otherwise(other),
        }
    }
}

/// The result.
#[derive(Debug, Clone)]
pub struct Run {
    /// How it ended.
    pub ended: Ended,
    /// Lines of the serial port.
    pub lines: Vec<String>,
    /// The emulator's own messages.
    pub errors: String,
    /// Seconds of the host.
    pub seconds: f64,
}

impl Run {
    /// The last line that is one JSON object.
    pub fn json(&self) -> Option<&str> {
        let objects = self.lines.iter().map(String::as_str);
        objects.rev().find(|line| line.starts_with('{') && line.ends_with('}'))
    }

    /// The line with the oracle's report.
    pub fn violation(&self) -> Option<&str> {
        self.lines.iter().find_map(|line| line.strip_prefix("violation: "))
    }

    /// The invariant that was violated, the seed, and the steps until then, as reports of known bugs print them.
    pub fn caught_with(&self, seed: u32) -> String {
        let diagnosis = self.violation().unwrap_or("stale contents");
        let what = diagnosis.split(':').next().unwrap_or_default();
        let steps = diagnosis
            .rsplit_once(" (after ")
            .and_then(|(_, end)| end.strip_suffix(')'));
        let steps = steps.map(|steps| format!(" after {steps}")).unwrap_or_default();
        format!("caught with seed {seed}{steps}: {what}")
    }

    /// The error, in one line; `None` for success.
    pub fn problem(&self) -> Option<String> {
        let last = || {
            let from_kernel = self
                .lines
                .iter()
                .rev()
                .find(|line| !line.is_empty() && !line.starts_with('{'));
            let text = from_kernel.map_or(self.errors.trim(), String::as_str);
            text.lines().next_back().unwrap_or("it printed nothing").to_owned()
        };
        Some(match self.ended {
            Ended::Success => return None,
            Ended::Violation => match self.violation() {
                Some(violation) => format!("violation: {violation}"),
                None => "stale contents were read".to_owned(),
            },
            Ended::Failure | Ended::Usage => last(),
            Ended::Otherwise(status) => format!(
                "the emulator ended with status {}, as on a triple fault: {}",
                status.map_or("none".to_owned(), |status| status.to_string()),
                last()
            ),
            Ended::TimedOut => format!("it did not end within {:.0} s of the host", self.seconds),
            Ended::Stopped => "stopped".to_owned(),
        })
    }
}

impl Machine {
    /// Runs the kernel `image` with `words` on its command line, for at most `most`, or until `stop`.
    ///
    /// # Errors
    /// When QEMU cannot be started.
    pub fn run(
        &self,
        emulator: &Emulator,
        image: &Path,
        words: &str,
        most: Duration,
        stop: &AtomicBool,
    ) -> Result<Run, String> {
        self.start(emulator, self.arguments(emulator, image, words), most, stop)
    }

    /// Boots an image made by [`write_iso`](crate::write_iso), as a machine with a screen and a BIOS, or with that
    /// firmware (UEFI). Instructions are not counted: the kernel on the image does not know the setting.
    ///
    /// # Errors
    /// When QEMU cannot be started.
    pub fn run_iso(
        &self,
        emulator: &Emulator,
        iso: &Path,
        firmware: Option<&Path>,
        most: Duration,
        stop: &AtomicBool,
    ) -> Result<Run, String> {
        let mut arguments = self.hardware(emulator);
        arguments.extend(self.accelerator(emulator));
        arguments.extend(["-vga".into(), "std".into(), "-cdrom".into(), iso.display().to_string()]);
        if let Some(firmware) = firmware {
            arguments.extend(["-bios".into(), firmware.display().to_string()]);
        }
        self.start(emulator, arguments, most, stop)
    }

    fn start(
        &self,
        emulator: &Emulator,
        arguments: Vec<String>,
        most: Duration,
        stop: &AtomicBool,
    ) -> Result<Run, String> {
        let mut command = Command::new(&emulator.program);
        command.args(arguments);
        let begun = Instant::now();
        let started = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let mut child = started.map_err(|error| format!("{} cannot be run: {error}", emulator.program.display()))?;
        let (sender, lines) = mpsc::channel();
        let output = child.stdout.take().expect("piped");
        let errors = child.stderr.take().expect("piped");
        let printing = std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        let complaining = std::thread::spawn(move || std::io::read_to_string(errors).unwrap_or_default());
        let mut run = Run {
            ended: Ended::TimedOut,
            lines: Vec::new(),
            errors: String::new(),
            seconds: 0.0,
        };
        let status = loop {
            match lines.recv_timeout(Duration::from_millis(50)) {
                Ok(line) => run.lines.push(line.trim_end_matches('\r').to_owned()),
                // The port is closed: QEMU has ended, or will in a moment.
                Err(RecvTimeoutError::Disconnected) => break child.wait().ok(),
                Err(RecvTimeoutError::Timeout) => {}
            }
            if stop.load(Ordering::Relaxed) {
                run.ended = Ended::Stopped;
                break end(&mut child);
            }
            if begun.elapsed() > most {
                break end(&mut child);
            }
        };
        run.seconds = begun.elapsed().as_secs_f64();
        if let Some(status) = status {
            run.ended = Ended::of(status.code());
        }
        let _ = printing.join();
        run.errors = complaining.join().unwrap_or_default();
        Ok(run)
    }

    /// QEMU's arguments for a kernel.
    fn arguments(&self, emulator: &Emulator, image: &Path, words: &str) -> Vec<String> {
        let mut append = words.to_owned();
        let mut arguments = self.hardware(emulator);
        arguments.extend(self.accelerator(emulator));
        if let Clock::Counted { shift } = self.clock {
            append.push_str(&format!(" icount={shift}"));
            arguments.extend(["-icount".into(), format!("shift={shift},sleep=off")]);
            if let Some(plugin) = &emulator.plugin {
                arguments.extend(["-plugin".into(), plugin.argument(&[])]);
            }
        }
        arguments.extend(["-kernel".into(), image.display().to_string(), "-append".into(), append]);
        arguments
    }

    /// The parts of the machine.
    fn hardware(&self, emulator: &Emulator) -> Vec<String> {
        let fixed = ["-nodefaults", "-display", "none", "-serial", "stdio", "-no-reboot"];
        let all = fixed.iter().chain(emulator.arch.board());
        let mut arguments: Vec<String> = all.map(|&word| word.to_owned()).collect();
        if let Some(machine) = emulator.arch.machine() {
            arguments.extend(["-M".into(), format!("{machine}{}", emulator.board)]);
        }
        arguments.extend(["-smp".into(), self.cpus.to_string()]);
        arguments.extend(["-m".into(), format!("{}M", self.memory_mib)]);
        arguments
    }

    fn accelerator(&self, emulator: &Emulator) -> [String; 4] {
        let translated = emulator.processor.unwrap_or(emulator.arch.translated());
        let (cpu, accelerator) = match self.clock {
            Clock::Counted { .. } => (translated, "tcg,thread=single"),
            Clock::Translated => (translated, "tcg,thread=multi"),
            Clock::Hardware => ("host", "kvm"),
        };
        ["-cpu", cpu, "-accel", accelerator].map(str::to_owned)
    }
}

fn end(child: &mut Child) -> Option<std::process::ExitStatus> {
    let _ = child.kill();
    let _ = child.wait();
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::Arch;

    #[test]
    fn counted_machine_passes_its_clock_to_the_kernel() {
        let machine = Machine {
            cpus: 4,
            clock: Clock::Counted { shift: 3 },
            memory_mib: 256,
        };
        let emulator = |arch| Emulator {
            program: "qemu".into(),
            arch,
            board: ",virtualization=on",
            processor: None,
            plugin: None,
            version: crate::OLDEST,
        };
        let arguments = |arch| {
            let all = machine.arguments(&emulator(arch), Path::new("k"), "workload=hello");
            all.join(" ")
        };
        let ported = arguments(Arch::Aarch64);
        assert!(ported.contains("-M virt,gic-version=3,virtualization=on"), "{ported}");
        let arguments = arguments(Arch::X86_64);
        assert!(arguments.contains("-icount shift=3,sleep=off"), "{arguments}");
        assert!(
            arguments.ends_with("-kernel k -append workload=hello icount=3"),
            "{arguments}"
        );
    }

    #[test]
    fn problem_is_one_line() {
        let run = |ended, lines: &[&str]| Run {
            ended,
            lines: lines.iter().map(ToString::to_string).collect(),
            errors: "qemu: no\n".into(),
            seconds: 1.0,
        };
        assert_eq!(run(Ended::Success, &[]).problem(), None);
        let seen = run(Ended::Violation, &["", "violation: C1: page 3"]);
        assert_eq!(seen.problem().as_deref(), Some("violation: C1: page 3"));
        assert_eq!(
            run(Ended::Failure, &["{}", "panicked"]).problem().as_deref(),
            Some("panicked")
        );
        assert!(
            run(Ended::Otherwise(Some(1)), &[])
                .problem()
                .is_some_and(|line| line.contains("qemu: no"))
        );
        assert_eq!(run(Ended::Success, &["x", "{\"a\":1}", "y"]).json(), Some("{\"a\":1}"));
    }
}
