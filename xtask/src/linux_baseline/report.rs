//! The reports of a guest about its kernel and its programs.

use std::collections::BTreeMap;
use std::path::PathBuf;

/// A guest's reports.
#[derive(Debug, Default)]
pub struct Report {
    /// The file with its console.
    pub console: PathBuf,
    /// Name and release of its kernel.
    pub kernel: String,
    /// Addresses of functions of its kernel.
    pub symbols: BTreeMap<String, u64>,
    /// The runs, in the order of the plan; without those that failed.
    pub ran: Vec<Ran>,
    /// How each program ended.
    pub ended: Vec<Ended>,
}

/// How a program ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// Its exit status, or 128 and a signal.
    pub status: i32,
    /// Its output, and messages about it, other than its report.
    pub output: String,
}

/// One run of a program.
#[derive(Debug, Clone, PartialEq)]
pub struct Ran {
    /// The program.
    pub workload: String,
    /// Its threads.
    pub threads: u32,
    /// Operations in its window.
    pub ops: u64,
    /// Operations in total.
    pub ops_with_warm_up: u64,
    /// Operations per second of its window.
    pub ops_per_s: f64,
    /// Shootdown interrupts while it ran.
    pub shootdown_interrupts: u64,
}
