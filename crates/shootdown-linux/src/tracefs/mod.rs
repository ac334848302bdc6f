//! The kernel's trace file system: finding it, and this program's trace instance in it.
//!
//! An instance has its own buffers, events and clock. Only `instances/` is written, so other tracing is not disturbed.
//! The instance is removed when [`Instance`] is dropped. A killed recorder leaves its instance behind, named after its
//! process: [`Tracefs::remove_leftovers`] finds those whose process is gone.

mod events;
mod pipe;

pub use events::{FAULTS, RECORDED_EVENTS};
pub use pipe::Pipe;

use crate::launch::tasks_of;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// Its documented mount point, and the one before Linux 4.1.
const PLACES: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// Prefix of our instances' names; process and start of that process follow.
const PREFIX: &str = "shootdown-";

/// Longest time until the files of a new instance appear, and until a busy one is released.
const PATIENCE: Duration = Duration::from_secs(2);

/// Why tracing is not possible, with the place.
#[derive(Debug)]
pub enum Error {
    /// There is no trace file system mounted.
    NotMounted,
    /// The kernel refuses access to this path.
    Denied(PathBuf),
    /// Another error at this path.
    Io(PathBuf, io::Error),
}

impl Error {
    fn at(path: &Path, error: io::Error) -> Error {
        match error.kind() {
            ErrorKind::PermissionDenied => Error::Denied(path.into()),
            _ => Error::Io(path.into(), error),
        }
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Error::NotMounted => write!(f, "no trace file system is mounted at {}", PLACES[0]),
            Error::Denied(path) => write!(f, "{}: no rights to trace", path.display()),
            Error::Io(path, error) => write!(f, "{}: {error}", path.display()),
        }
    }
}

impl std::error::Error for Error {}

/// A mounted trace file system.
#[derive(Debug, Clone)]
pub struct Tracefs {
    root: PathBuf,
}

impl Tracefs {
    /// The mounted one: in its usual places, else where `/proc/mounts` says.
    ///
    /// # Errors
    /// When there is none, or it may not be accessed.
    pub fn find() -> Result<Tracefs, Error> {
        let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
        let mounted = mounts.lines().filter_map(|line| {
            let mut words = line.split(' ').skip(1);
            let place = words.next()?;
            (words.next()? == "tracefs").then(|| PathBuf::from(place))
        });
        let mut denied = None;
        for root in PLACES.iter().map(PathBuf::from).chain(mounted) {
            match fs::metadata(root.join("instances")) {
                Ok(_) => return Ok(Tracefs { root }),
                Err(error) if error.kind() == ErrorKind::PermissionDenied => denied = denied.or(Some(root)),
                Err(_) => {}
            }
        }
        Err(denied.map_or(Error::NotMounted, Error::Denied))
    }

    /// The one at `root`, without checks.
    pub fn at(root: &Path) -> Tracefs {
        Tracefs { root: root.into() }
    }

    /// Removes instances that killed recorders of this program left behind; returns their names.
    pub fn remove_leftovers(&self) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.root.join("instances")) else {
            return Vec::new();
        };
        let mut removed = Vec::new();
        for entry in entries.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let owner = name.strip_prefix(PREFIX).and_then(|rest| rest.split_once('-'));
            let Some((process, start)) = owner else { continue };
            // The start time too: the number may have been reused.
            let Ok(process) = process.parse() else { continue };
            if start_of(process).as_deref() == Some(start) {
                continue;
            }
            // Refused while a file of it is open, for example by a recorder in another PID namespace.
            if fs::remove_dir(entry.path()).is_ok() {
                removed.push(name);
            }
        }
        removed
    }

    /// Makes an instance, recording nothing yet. The buffer of each CPU has `buffer_kib` KiB, times are those of
    /// `CLOCK_MONOTONIC`, and each line names the process in addition to the task.
    ///
    /// # Errors
    /// When the kernel refuses; nothing is left behind.
    pub fn create(&self, buffer_kib: u64) -> Result<Instance, Error> {
        let process = std::process::id();
        let start = start_of(process).unwrap_or_default();
        let path = self.root.join("instances").join(format!("{PREFIX}{process}-{start}"));
        fs::create_dir(&path).map_err(|error| Error::at(&path, error))?;
        let instance = Instance {
            path,
            events: Vec::new(),
            removed: false,
        };
        let begun = Instant::now();
        while !instance.path.join("trace_pipe").exists() && begun.elapsed() < PATIENCE {
            thread::sleep(Duration::from_millis(1));
        }
        instance.write("tracing_on", "0")?;
        instance.write("trace_clock", "mono")?;
        instance.write("buffer_size_kb", &buffer_kib.to_string())?;
        // Kernels before 4.14 record only tasks, not processes.
        let _ = instance.write("options/record-tgid", "1");
        Ok(instance)
    }
}

/// When a process started, in the kernel's ticks since boot; `None` when there is no such process.
fn start_of(process: u32) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name in brackets may hold anything; the start is the 20th word after it.
    Some(text.rsplit_once(')')?.1.split_ascii_whitespace().nth(19)?.to_owned())
}

/// A trace instance of this program, removed when dropped.
#[derive(Debug)]
pub struct Instance {
    path: PathBuf,
    events: Vec<&'static str>,
    removed: bool,
}

impl Instance {
    /// Its folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Enables those of [`RECORDED_EVENTS`] that this kernel has, with `faults` also [`FAULTS`]. Returns their names.
    ///
    /// # Errors
    /// When the kernel refuses, or lacks even task switches.
    pub fn enable(&mut self, faults: bool) -> Result<&[&'static str], Error> {
        for &event in RECORDED_EVENTS.iter().chain(faults.then_some(&FAULTS)) {
            let file = format!("events/{event}/enable");
            if self.path.join(&file).exists() {
                self.write(&file, "1")?;
                self.events.push(event);
            }
        }
        if !self.events.contains(&events::SWITCH) {
            let path = self.path.join("events").join(events::SWITCH);
            return Err(Error::Io(
                path,
                io::Error::other("this kernel does not trace task switches"),
            ));
        }
        Ok(&self.events)
    }

    /// Records only tasks that are written to the returned file, and their later children.
    ///
    /// # Errors
    /// When this kernel (before 4.7) cannot follow forks; then everything is recorded.
    pub fn follow(&self) -> Result<File, Error> {
        self.write("options/event-fork", "1")?;
        let path = self.path.join("set_event_pid");
        // Appending adds to the set; opening for a plain write would empty it.
        let file = OpenOptions::new().append(true).open(&path);
        file.map_err(|error| Error::at(&path, error))
    }

    /// Excludes the events of this process.
    ///
    /// # Errors
    /// When the kernel (before 5.7) has no such filter.
    pub fn leave_out_ourselves(&self) -> Result<(), Error> {
        let tasks = tasks_of(std::process::id()).map_err(|error| Error::at(Path::new("/proc/self/task"), error))?;
        self.write("set_event_notrace_pid", &tasks.join(" "))
    }

    /// Begins or ends recording.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn record(&self, on: bool) -> Result<(), Error> {
        self.write("tracing_on", if on { "1" } else { "0" })
    }

    /// The text of the events, each once, as they happen.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn pipe(&self) -> Result<Pipe, Error> {
        let path = self.path.join("trace_pipe");
        Pipe::open(&path).map_err(|error| Error::at(&path, error))
    }

    /// Events that the kernel's buffers lost so far, all CPUs together.
    pub fn lost(&self) -> u64 {
        let Ok(cpus) = fs::read_dir(self.path.join("per_cpu")) else {
            return 0;
        };
        let stats = cpus
            .flatten()
            .filter_map(|cpu| fs::read_to_string(cpu.path().join("stats")).ok());
        stats.map(|text| lost_in(&text)).sum()
    }

    /// Ends recording and removes the instance.
    ///
    /// # Errors
    /// When the kernel refuses, for example because another program still reads from it.
    pub fn remove(mut self) -> Result<(), Error> {
        self.removed = true;
        remove(&self.path)
    }

    fn write(&self, file: &str, text: &str) -> Result<(), Error> {
        write(&self.path.join(file), text)
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        if !self.removed {
            // The error cannot be reported here; the next start removes the leftover.
            let _ = remove(&self.path);
        }
    }
}

/// Writes to a file that must already exist.
fn write(path: &Path, text: &str) -> Result<(), Error> {
    let file = OpenOptions::new().write(true).truncate(true).open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes()))
        .map_err(|error| Error::at(path, error))
}

/// Switches an instance off and removes it. The kernel refuses while a file of it is open, and our own reader may be
/// about to close, so retry for a moment.
fn remove(path: &Path) -> Result<(), Error> {
    let _ = write(&path.join("tracing_on"), "0");
    let _ = write(&path.join("events/enable"), "0");
    let begun = Instant::now();
    loop {
        match fs::remove_dir(path) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(error) if begun.elapsed() > PATIENCE || !is_busy(&error) => return Err(Error::at(path, error)),
            Err(_) => thread::sleep(Duration::from_millis(5)),
        }
    }
}

fn is_busy(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::ResourceBusy | ErrorKind::DirectoryNotEmpty)
}

/// Lost events in the statistics of one CPU.
fn lost_in(stats: &str) -> u64 {
    let count = |line: &str| {
        let (what, number) = line.split_once(": ")?;
        let lost = matches!(what.trim(), "overrun" | "commit overrun" | "dropped events");
        lost.then(|| number.trim().parse::<u64>().ok()).flatten()
    };
    stats.lines().filter_map(count).sum()
}

#[cfg(test)]
mod tests;
