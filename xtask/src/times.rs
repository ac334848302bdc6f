//! Durations of steps, kept from the last run; CPU time.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::workspace;

/// CPU time of this process's children that have ended, and of theirs: user and system, seconds.
#[cfg(unix)]
pub fn cpu_seconds_of_children() -> f64 {
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

/// Not known on this host.
#[cfg(not(unix))]
pub fn cpu_seconds_of_children() -> f64 {
    0.0
}

/// Elapsed times of steps, seconds, when they last passed in this checkout.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Kept(BTreeMap<String, f64>);

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
    pub fn of(&self, step: &str) -> Option<f64> {
        self.0.get(step).copied()
    }

    /// Adds that of a step, in memory.
    pub fn insert(&mut self, step: &str, seconds: f64) {
        self.0.insert(step.into(), seconds);
    }

    /// Keeps that of a passed step. If the file cannot be written, only the next estimate suffers.
    pub fn keep(&mut self, step: &str, seconds: f64) {
        self.insert(step, seconds);
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
        let before = cpu_seconds_of_children();
        let script = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";
        let status = std::process::Command::new("sh").args(["-c", script]).status();
        assert!(status.expect("there is a shell").success());
        assert!(cpu_seconds_of_children() > before);
    }

    #[test]
    fn clock_shows_hours_from_one_hour() {
        let shown = [5, 65, 3723].map(|seconds| clock(Duration::from_secs(seconds)));
        assert_eq!(shown, ["0:05", "1:05", "1:02:03"]);
    }
}
