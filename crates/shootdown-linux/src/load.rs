//! The other load of this machine, which makes a measurement doubtful.

use std::fs;
use std::io;
use std::path::Path;
use std::thread;
use std::time::Duration;

/// Samples of one reading, and the time between two.
const SAMPLES: usize = 20;
const APART: Duration = Duration::from_millis(10);

/// Mean number of other ready tasks from which a machine counts as busy. Assumed: an occasional daemon stays below.
const BUSY_TASKS: f64 = 0.25;

/// Share of CPU time stolen by the hypervisor from which this machine counts as busy. Assumed.
const BUSY_STEAL: f64 = 0.02;

/// The other load, over `SAMPLES` samples.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Load {
    /// Mean number of other tasks that are running or ready (`/proc/loadavg`, the fourth number). Not the load average,
    /// which includes tasks that ended a minute ago.
    pub others: f64,
    /// Share of CPU time that the hypervisor gave to other machines (`/proc/stat`, steal).
    pub steal: f64,
}

impl Load {
    /// Reads `proc`, which is `/proc`, while this thread sleeps.
    ///
    /// # Errors
    /// When a file is missing or not in Linux's format.
    pub fn read(proc: &Path) -> io::Result<Load> {
        let stat = || fs::read_to_string(proc.join("stat"));
        let first = stat()?;
        let mut others = 0.0;
        for _ in 0..SAMPLES {
            thread::sleep(APART);
            let text = fs::read_to_string(proc.join("loadavg"))?;
            others += others_in(&text).ok_or_else(|| io::Error::other("loadavg: not what Linux writes"))?;
        }
        let steal = steal_between(&first, &stat()?).ok_or_else(|| io::Error::other("stat: not what Linux writes"))?;
        Ok(Load {
            others: others / SAMPLES as f64,
            steal,
        })
    }

    /// Why a measurement would be doubtful, in words; `None` on a quiet machine.
    pub fn caveat(&self) -> Option<String> {
        let mut reasons = Vec::new();
        if self.others > BUSY_TASKS {
            reasons.push(format!("{:.1} other tasks run or are ready to run", self.others));
        }
        if self.steal > BUSY_STEAL {
            reasons.push(format!(
                "the hypervisor gives {:.0} % of the CPU time to others",
                100.0 * self.steal
            ));
        }
        (!reasons.is_empty()).then(|| reasons.join(", and "))
    }
}

/// Other tasks that are ready to run: of the three in `0.20 0.18 0.12 3/80 11206` one is the reader.
fn others_in(loadavg: &str) -> Option<f64> {
    let (ready, _) = loadavg.split_whitespace().nth(3)?.split_once('/')?;
    Some(ready.parse::<f64>().ok()?.max(1.0) - 1.0)
}

/// Steal as a share of all time between two texts of `/proc/stat`, whose first line counts user, nice, system, idle,
/// iowait, irq, softirq and steal; guest time is within user time.
fn steal_between(first: &str, second: &str) -> Option<f64> {
    let counts = |text: &str| {
        let line = text.lines().next()?.strip_prefix("cpu ")?;
        let counts = line.split_whitespace().take(8).map(|count| count.parse::<u64>().ok());
        counts.collect::<Option<Vec<u64>>>().filter(|counts| counts.len() == 8)
    };
    let (first, second) = (counts(first)?, counts(second)?);
    let passed = |from: usize| -> f64 {
        let pairs = first[from..].iter().zip(&second[from..]);
        pairs.map(|(first, second)| second.saturating_sub(*first) as f64).sum()
    };
    let all = passed(0);
    Some(if all > 0.0 { passed(7) / all } else { 0.0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUIET: &str = "cpu  100 0 50 1000 5 0 1 10 0 0\ncpu0 100 0 50 1000 5 0 1 10 0 0\n";

    fn faked(loadavg: &str) -> io::Result<Load> {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("loadavg"), loadavg).unwrap();
        fs::write(folder.path().join("stat"), QUIET).unwrap();
        Load::read(folder.path())
    }

    #[test]
    fn load_excludes_the_reader_and_the_average() {
        let load = faked("7.50 3.00 1.00 1/200 4711\n").unwrap();
        assert_eq!((load.others, load.steal, load.caveat()), (0.0, 0.0, None));
        let load = faked("0.00 0.00 0.00 4/200 4711\n").unwrap();
        assert_eq!(load.others, 3.0);
        assert_eq!(load.caveat().unwrap(), "3.0 other tasks run or are ready to run");
    }

    #[test]
    fn steal_is_a_share_of_elapsed_time() {
        let later = "cpu  150 0 50 1040 5 0 1 20 0 0\n";
        assert_eq!(steal_between(QUIET, later), Some(0.1));
        assert_eq!(steal_between(QUIET, QUIET), Some(0.0));
        let load = Load {
            others: 0.0,
            steal: 0.1,
        };
        assert_eq!(
            load.caveat().unwrap(),
            "the hypervisor gives 10 % of the CPU time to others"
        );
    }

    #[test]
    fn text_not_written_by_linux_is_refused() {
        assert!(faked("hello").is_err());
        assert_eq!(steal_between("cpu  1 2 3", QUIET), None);
    }
}
