//! `cargo xtask linux stress`: Debian's stress-ng, which verifies what it does, while CPUs go offline and come back.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::{Mode, STOCK, busybox, guest, guest_files, packages, programs, reports};
use crate::linux_baseline::boot::Boot;
use crate::linux_baseline::initramfs::GuestFile;
use crate::linux_baseline::report::{Ended, Report};
use crate::linux_baseline::table::draw;
use crate::workspace;

/// The stressors, with options that keep each of four processes to some MiB.
const STRESSORS: [(&str, &str); 19] = [
    ("tlb-shootdown", ""),
    ("mmap", "--mmap-bytes 16M"),
    ("munmap", ""),
    ("mprotect", ""),
    ("madvise", ""),
    ("mremap", "--mremap-bytes 16M"),
    ("remap", ""),
    ("pagemove", "--pagemove-bytes 4M"),
    ("msync", "--msync-bytes 16M"),
    ("mlock", ""),
    ("shm", "--shm-bytes 4M"),
    ("vm", "--vm-bytes 128M"),
    ("vm-segv", ""),
    ("fork", ""),
    ("fault", ""),
    ("userfaultfd", "--userfaultfd-bytes 16M"),
    ("numa", ""),
    ("context", ""),
    ("switch", ""),
];

/// What stress-ng ends with when it has not run a stressor here.
const NOT_HERE: [i32; 2] = [3, 4];

/// Beyond the time of the stressors.
const BOOTS: Duration = Duration::from_secs(20 * 60);

/// A stressor's result.
struct Stressed {
    stressor: &'static str,
    bogo_ops: Option<u64>,
    failures: Vec<String>,
    status: i32,
    turns: u64,
}

/// Runs the stressors with each of these designs, and on stock Linux if wanted, for so many minutes each.
///
/// # Errors
/// When a stressor fails, the kernel reports a mistake, or something cannot be built or booted.
pub fn run(designs: &[String], minutes: u32, stock: bool, end: Instant) -> Result<(), String> {
    let programs = programs(end)?;
    let mut files = guest_files(end)?;
    files.extend(packages::program("stress-ng", "usr/bin/stress-ng", end)?);
    files.push(GuestFile {
        path: "stress.sh".into(),
        from: workspace::root().join("linux/stress.sh"),
    });
    let seconds = (minutes * 60).div_ceil(STRESSORS.len() as u32);
    let mut plan = vec![busybox("sh /setup.sh")];
    plan.extend(STRESSORS.map(|(stressor, options)| busybox(&format!("sh /stress.sh {seconds} {stressor} {options}"))));
    let mut failed = Vec::new();
    for name in stock
        .then_some(STOCK)
        .into_iter()
        .chain(designs.iter().map(String::as_str))
    {
        let guest = guest(name, &super::Config::read(None)?, end)?;
        eprintln!("== {name}: {} stressors, {seconds} s each", STRESSORS.len());
        let boot = Boot {
            guest: &guest,
            programs: &programs,
            plan: &plan,
            cpus: super::LARGE_CPUS,
            mode: Mode::OneThread,
            may_fail: true,
            words: reports::WORDS,
            files: &files,
            machine: &super::LARGE,
        };
        let limit = Duration::from_secs(u64::from(minutes) * 60) + BOOTS;
        let report = super::run_boot(&boot, limit, end)?;
        let all = stressed(&report);
        let reports = reports::of_file(&report.console)?;
        let cpus = super::number_of_cpus(super::LARGE_CPUS);
        println!("{}", table(&format!("{name}, {cpus}, {seconds} s each"), &all));
        println!("{}", summary(name, &all, &reports));
        if all.iter().any(Stressed::has_failed) || !reports.is_empty() {
            failed.push(name.to_string());
        }
    }
    if failed.is_empty() {
        return Ok(());
    }
    Err(format!(
        "stressors failed, or the kernel reported a mistake: {}",
        failed.join(", ")
    ))
}

fn stressed(report: &Report) -> Vec<Stressed> {
    let ended = STRESSORS.iter().zip(report.ended.iter().skip(1));
    ended
        .map(|((stressor, _), ended)| Stressed::of(stressor, ended))
        .collect()
}

impl Stressed {
    /// By the output of stress-ng and `linux/stress.sh`.
    fn of(stressor: &'static str, ended: &Ended) -> Stressed {
        let message = |line: &str| line.split_once("] ").map(|(_, text)| text.to_string());
        let ops = |line: &str| {
            let text = message(line)?;
            let mut words = text.split_ascii_whitespace();
            (words.next()? == stressor).then_some(words.next()?.parse().ok()?)
        };
        let turns = |line: &str| {
            line.strip_prefix("CPUs went and came back ")?
                .split(' ')
                .next()?
                .parse()
                .ok()
        };
        let failures = ended.output.lines().filter(|line| line.contains("fail:"));
        Stressed {
            stressor,
            bogo_ops: ended.output.lines().find_map(ops),
            failures: failures.filter_map(message).collect(),
            status: ended.status,
            turns: ended.output.lines().find_map(turns).unwrap_or(0),
        }
    }

    fn is_skipped(&self) -> bool {
        NOT_HERE.contains(&self.status) && self.failures.is_empty()
    }

    fn has_failed(&self) -> bool {
        !self.is_skipped() && (self.status != 0 || !self.failures.is_empty())
    }
}

fn table(kernel: &str, all: &[Stressed]) -> String {
    let row = |stressed: &Stressed| {
        let verdict = match stressed.status {
            _ if stressed.is_skipped() => "skipped".into(),
            0 if stressed.failures.is_empty() => "passed".into(),
            status => format!("failed, status {status}"),
        };
        vec![
            kernel.into(),
            stressed.stressor.into(),
            stressed.bogo_ops.map_or("–".into(), |ops| ops.to_string()),
            stressed.turns.to_string(),
            stressed.failures.len().to_string(),
            verdict,
        ]
    };
    let header = ["stressor", "bogo ops", "CPU cycles", "failures", "verdict"];
    let mut text = draw(&header, 1, all.iter().map(row).collect());
    for stressed in all {
        for failure in stressed.failures.iter().take(3) {
            text += &format!("  {}: {failure}\n", stressed.stressor);
        }
    }
    text
}

fn summary(name: &str, all: &[Stressed], reports: &BTreeSet<String>) -> String {
    let count = |is: fn(&Stressed) -> bool| all.iter().filter(|stressed| is(stressed)).count();
    let mut text = format!(
        "{name}: {} stressors, {} failed, {} skipped; CPUs went and came back {} times; reports of the kernel: {}",
        all.len(),
        count(Stressed::has_failed),
        count(Stressed::is_skipped),
        all.iter().map(|stressed| stressed.turns).sum::<u64>(),
        reports.len()
    );
    for report in reports {
        text += &format!("\n  {report}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSED: &str = "stress-ng: info:  [9] setting to a 5 second run per stressor\n\
        stress-ng: info:  [9] stressor       bogo ops real time\n\
        stress-ng: info:  [9] mremap             1234      5.00      0.11\n\
        CPUs went and came back 7 times";

    fn stressed(status: i32, output: &str) -> Stressed {
        Stressed::of(
            "mremap",
            &Ended {
                status,
                output: output.into(),
            },
        )
    }

    #[test]
    fn output_of_a_passing_stressor_is_parsed() {
        let found = stressed(0, PASSED);
        assert_eq!(
            (found.bogo_ops, found.turns, found.has_failed()),
            (Some(1234), 7, false)
        );
    }

    #[test]
    fn failure_lines_and_status_fail_a_stressor_and_unsupported_ones_are_skipped() {
        let fails = format!("stress-ng: fail:  [10] mremap: data is wrong\n{PASSED}");
        let found = stressed(0, &fails);
        assert!(found.has_failed() && table("ipi", &[found]).contains("mremap: data is wrong"));
        assert!(stressed(2, PASSED).has_failed());
        let skipped = stressed(4, "");
        assert!(skipped.is_skipped() && !skipped.has_failed());
        let line = summary(
            "ipi",
            &[skipped, stressed(2, PASSED)],
            &BTreeSet::from(["BUG: x".into()]),
        );
        assert_eq!(
            line,
            "ipi: 2 stressors, 1 failed, 1 skipped; CPUs went and came back 7 times; reports of the kernel: 1\n  \
             BUG: x"
        );
    }
}
