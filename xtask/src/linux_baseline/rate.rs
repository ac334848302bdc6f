//! Operations per second, CPUs in parallel: the runs of each program combined.

use serde::Serialize;

use super::guest::Guest;
use super::initramfs::Planned;
use super::report::{Ran, Report};

/// What else the host did.
#[derive(Debug, Serialize)]
pub struct Host {
    /// Its load at the start, in CPUs.
    #[serde(rename = "host_load")]
    pub load: Option<f64>,
    /// Its CPUs.
    #[serde(rename = "host_cpus")]
    pub cpus: usize,
}

impl Host {
    /// The host as it is now.
    pub fn now() -> Host {
        let load = std::fs::read_to_string("/proc/loadavg").ok();
        Host {
            load: load.and_then(|text| text.split_ascii_whitespace().next()?.parse().ok()),
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
        }
    }
}

/// One workload with a number of threads on one kernel, CPUs in parallel.
#[derive(Debug, Serialize)]
pub struct Rate {
    /// `Linux`, or the design.
    pub kernel: String,
    /// The program.
    pub workload: String,
    /// Its threads.
    pub threads: u32,
    /// The median of the runs.
    pub ops_per_s: f64,
    /// The least.
    pub ops_per_s_least: f64,
    /// The most.
    pub ops_per_s_most: f64,
    /// Shootdown interrupts for each operation.
    pub interrupts_per_op: f64,
    /// Number of runs.
    pub runs: usize,
}

/// The runs of each row combined: one row for each kernel, of each workload and number of threads.
pub fn of(guests: &[Guest], reports: &[Vec<Report>], rows: &[Planned]) -> Vec<Rate> {
    let rate = |guest: &Guest, reports: &[Report], row: &Planned| {
        let runs: Vec<&Ran> = reports
            .iter()
            .flat_map(|report| &report.ran)
            .filter(|run| run.workload == row.workload && run.threads == row.threads)
            .collect();
        let mut sorted: Vec<f64> = runs.iter().map(|run| run.ops_per_s).collect();
        sorted.sort_by(f64::total_cmp);
        let sum = |part: fn(&Ran) -> u64| runs.iter().map(|run| part(run)).sum::<u64>() as f64;
        Some(Rate {
            kernel: guest.name.clone(),
            workload: row.workload.clone(),
            threads: row.threads,
            ops_per_s: *sorted.get(sorted.len() / 2)?,
            ops_per_s_least: *sorted.first()?,
            ops_per_s_most: *sorted.last()?,
            interrupts_per_op: sum(|run| run.shootdown_interrupts) / sum(|run| run.ops_with_warm_up),
            runs: runs.len(),
        })
    };
    let of_row = |row| {
        guests
            .iter()
            .zip(reports)
            .filter_map(move |(guest, reports)| rate(guest, reports, row))
    };
    rows.iter().flat_map(of_row).collect()
}
