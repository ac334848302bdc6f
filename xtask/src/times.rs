//! Durations of steps: measured in this run, and kept from the last one.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::workspace;

/// Seconds of one step.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Times {
    /// Elapsed time.
    pub seconds: f64,
    /// CPU time, user and system, of the step and its children.
    pub cpu_seconds: f64,
}

/// A clock that also reads the CPU time of child processes.
pub struct Stopwatch {
    begun: Instant,
    cpu: f64,
}

impl Stopwatch {
    /// Starts.
    pub fn start() -> Self {
        Stopwatch {
            begun: Instant::now(),
            cpu: cpu_seconds_of_children(),
        }
    }

    /// Both times since the start. CPU time counts children that have ended.
    pub fn times(&self) -> Times {
        Times {
            seconds: self.begun.elapsed().as_secs_f64(),
            cpu_seconds: cpu_seconds_of_children() - self.cpu,
        }
    }
}

#[cfg(unix)]
fn cpu_seconds_of_children() -> f64 {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::uninit();
    // SAFETY: the pointer is to memory for one `rusage`, which the call fills when it returns 0.
    let usage = unsafe {
        if libc::getrusage(libc::RUSAGE_CHILDREN, usage.as_mut_ptr()) != 0 {
            return 0.0;
        }
        usage.assume_init()
    };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}

#[cfg(not(unix))]
fn cpu_seconds_of_children() -> f64 {
    0.0
}

/// Times of steps when they last passed in this checkout.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Kept(BTreeMap<String, Times>);

impl Kept {
    fn file() -> PathBuf {
        workspace::root().join("target/steps/times.json")
    }

    /// Reads them; empty without a file, or with one of another format.
    pub fn read() -> Self {
        let text = std::fs::read_to_string(Self::file()).unwrap_or_default();
        serde_json::from_str(&text).unwrap_or_default()
    }

    /// Of one step.
    pub fn of(&self, step: &str) -> Option<Times> {
        self.0.get(step).copied()
    }

    /// Adds those of a step, in memory.
    pub fn insert(&mut self, step: &str, times: Times) {
        self.0.insert(step.into(), times);
    }

    /// Keeps those of a passed step. If the file cannot be written, only the next estimate suffers.
    pub fn keep(&mut self, step: &str, times: Times) {
        self.insert(step, times);
        if let Ok(text) = serde_json::to_string_pretty(self) {
            let _ = std::fs::create_dir_all(workspace::root().join("target/steps"));
            let _ = std::fs::write(Self::file(), text + "\n");
        }
    }
}

/// `1:05` or `1:02:03`.
pub fn clock(time: Duration) -> String {
    let seconds = time.as_secs();
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    if hours == 0 {
        format!("{minutes}:{seconds:02}")
    } else {
        format!("{hours}:{minutes:02}:{seconds:02}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(unix)]
    fn cpu_time_of_a_child_process_is_counted() {
        let watch = Stopwatch::start();
        let script = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";
        let status = std::process::Command::new("sh").args(["-c", script]).status();
        assert!(status.expect("there is a shell").success());
        assert!(watch.times().cpu_seconds > 0.0);
    }

    #[test]
    fn clock_shows_hours_from_one_hour() {
        let shown = [5, 65, 3723].map(|seconds| clock(Duration::from_secs(seconds)));
        assert_eq!(shown, ["0:05", "1:05", "1:02:03"]);
    }
}
