//! Interrupts of programs whose threads sleep for a lock. Which CPU is idle while another flushes is chance, and it
//! decides how many CPUs a flush interrupts. So there are many runs, and the table shows the error of their mean.

use super::{Planned, STOCK, planned};
use crate::linux_baseline::report::Report;
use crate::linux_baseline::table::{draw, of_threads, per_operation};

/// The programs, each with two threads.
pub const PROGRAMS: [&str; 3] = ["tlb_flush1", "tlb_flush2", "tlb_flush3"];
const THREADS: u32 = 2;

/// Runs of each in a boot; operations of the first thread in each.
pub const RUNS: usize = 40;
const OPS: u64 = 2000;

/// A difference of so many standard errors is not taken for chance.
const ERRORS: f64 = 2.0;

/// The runs of one boot.
pub fn plan() -> Vec<Planned> {
    let round = PROGRAMS.map(|name| planned(name, THREADS, OPS));
    (0..RUNS).flat_map(|_| round.clone()).collect()
}

/// Interrupts of a program on a kernel.
#[derive(Debug, Clone)]
pub struct Interrupts {
    kernel: String,
    workload: String,
    /// For each operation: the mean of the runs, and its standard error.
    pub mean: f64,
    error: f64,
    least: f64,
    most: f64,
}

impl Interrupts {
    fn of(kernel: &str, workload: &str, runs: &[f64]) -> Interrupts {
        let count = runs.len() as f64;
        let mean = runs.iter().sum::<f64>() / count;
        let variance = runs.iter().map(|run| (run - mean).powi(2)).sum::<f64>() / (count - 1.0).max(1.0);
        Interrupts {
            kernel: kernel.into(),
            workload: workload.into(),
            mean,
            error: (variance / count).sqrt(),
            least: runs.iter().copied().fold(f64::INFINITY, f64::min),
            most: runs.iter().copied().fold(0.0, f64::max),
        }
    }

    /// Whether it is of that kernel and program.
    pub fn is(&self, kernel: &str, workload: &str) -> bool {
        self.kernel == kernel && self.workload == workload
    }

    /// Beside those of Linux.
    fn verdict(&self, linux: &Interrupts) -> &'static str {
        let (difference, error) = (self.mean - linux.mean, self.error.hypot(linux.error));
        match difference {
            _ if self.kernel == STOCK => "–",
            _ if difference < -ERRORS * error => "fewer",
            _ if difference > ERRORS * error => "more",
            _ => "as many",
        }
    }
}

/// What the boot of a kernel with that plan counted.
pub fn of(kernel: &str, report: &Report) -> Vec<Interrupts> {
    let each = |workload: &&str| {
        let runs = report.ran.iter().filter(|ran| ran.workload == *workload);
        let per_op = runs.map(|ran| ran.shootdown_interrupts as f64 / ran.ops_with_warm_up as f64);
        Interrupts::of(kernel, workload, &per_op.collect::<Vec<_>>())
    };
    PROGRAMS.iter().map(each).collect()
}

/// One row for each program and kernel; the kernel without the engine comes first.
pub fn table(all: &[Interrupts]) -> String {
    let rows = |workload: &&str| {
        let same: Vec<&Interrupts> = all.iter().filter(|found| found.workload == *workload).collect();
        let row = |found: &&Interrupts| {
            let mut cells = vec![of_threads(workload, THREADS), found.kernel.clone()];
            cells.extend([found.mean, found.error, found.least, found.most].map(per_operation));
            cells.push(found.verdict(same[0]).into());
            cells
        };
        same.iter().map(row).collect::<Vec<_>>()
    };
    let titles = ["kernel", "mean", "+/-", "least", "most", "beside Linux"];
    format!(
        "Interrupts per operation of programs whose threads sleep: {RUNS} runs each\n{}\
         +/-: standard error of the mean; more, fewer: by more than {ERRORS} of both together\n",
        draw(&titles, 1, PROGRAMS.iter().flat_map(rows).collect())
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_within_chance_is_as_many() {
        let linux = Interrupts::of(STOCK, PROGRAMS[0], &[0.2, 0.4, 0.3, 0.3]);
        let verdict = |runs: &[f64]| Interrupts::of("ipi", PROGRAMS[0], runs).verdict(&linux);
        assert_eq!(verdict(&[0.3, 0.4, 0.3, 0.4]), "as many");
        assert_eq!(verdict(&[0.6, 0.7, 0.6, 0.7]), "more");
        assert_eq!(verdict(&[0.0, 0.1, 0.0, 0.1]), "fewer");
        assert!(
            (linux.mean - 0.3).abs() < 1e-9 && (linux.error - 0.040_8).abs() < 1e-3,
            "{linux:?}"
        );
        let text = table(&[linux]);
        assert!(
            text.contains("0.30") && text.lines().all(|line| line.chars().count() <= 80),
            "{text}"
        );
    }
}
