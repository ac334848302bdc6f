//! The cost of walks as JSON, for programs: a contract, explained in `docs/src/tools/json.md`.

use schemars::{JsonSchema, Schema};
use serde::Serialize;

use super::{DESIGNS, Findings, Row, interrupts_per_s, pairs};
use crate::print::schema;

/// The cost of lockless walks under each design, by the rate of table frees.
#[derive(Serialize, JsonSchema)]
struct Document<'a> {
    /// The command line that repeats the runs.
    command: &'a str,
    /// The machine, with what `--set` changed.
    machine: &'a str,
    /// Whether tables of the process that is walked are freed.
    shared: bool,
    /// One element for each rate of frees and design.
    runs: Vec<Run<'a>>,
    /// One element for each pair of designs.
    break_evens: Vec<BreakEven>,
    /// Absent when every run ended.
    #[serde(skip_serializing_if = "crate::print::json::is_none")]
    missing_runs: usize,
}

/// One design at one rate of frees; numbers are null when it failed, with the reason in `error`.
#[derive(Serialize, JsonSchema)]
struct Run<'a> {
    /// Requested table frees per second.
    frees_requested_per_s: u64,
    /// Name of the design.
    design: &'static str,
    /// Pages pinned by lockless walks per second.
    pins_per_s: Option<f64>,
    /// `pins_per_s` as a share of the best design's at this rate.
    share_of_best: Option<f64>,
    /// Achieved table frees per second.
    frees_per_s: Option<f64>,
    /// Interrupts sent per second.
    interrupts_per_s: Option<f64>,
    /// Accesses through a translation that should have been gone.
    stale: Option<u64>,
    /// Accesses that the oracle has checked.
    accesses_checked: Option<u64>,
    /// Why the run failed, or null.
    error: Option<&'a str>,
}

/// Two designs, and the rates at which one is ahead; empty where they do not differ.
#[derive(Serialize, JsonSchema)]
struct BreakEven {
    /// Their names.
    designs: [&'static str; 2],
    /// Rates from which one of them is ahead. None where they are within 0.1 % of each other.
    leads: Vec<Lead>,
}

/// The rate from which one design is ahead.
#[derive(Serialize, JsonSchema)]
struct Lead {
    /// The design that is ahead.
    ahead: &'static str,
    /// The first rate at which it is.
    from_frees_per_s: u64,
    /// The last rate before that.
    after_frees_per_s: u64,
}

/// What `walkers --json` prints.
pub fn schema() -> Schema {
    schema::of::<Document>("walkers")
}

pub(super) fn render(findings: &Findings) -> String {
    let break_evens = pairs().map(|(one, two)| BreakEven {
        designs: [DESIGNS[one], DESIGNS[two]],
        leads: findings
            .leads(one, two)
            .into_iter()
            .map(|(from, after, design)| Lead {
                ahead: DESIGNS[design],
                from_frees_per_s: from,
                after_frees_per_s: after,
            })
            .collect(),
    });
    crate::print::json::pretty(&Document {
        command: &findings.command,
        machine: &findings.machine,
        shared: findings.shared,
        runs: findings.rows.iter().flat_map(runs).collect(),
        break_evens: break_evens.collect(),
        missing_runs: findings.missing,
    })
}

fn runs(row: &Row) -> impl Iterator<Item = Run<'_>> {
    row.results().map(|(design, outcome)| {
        let result = outcome.as_ref().ok();
        Run {
            frees_requested_per_s: row.frees,
            design,
            pins_per_s: result.map(|result| result.ops_per_s),
            share_of_best: result.map(|result| result.ops_per_s / row.best()),
            frees_per_s: result.map(|result| result.tables_freed_per_s),
            interrupts_per_s: result.map(interrupts_per_s),
            stale: result.map(|result| result.stale),
            accesses_checked: result.map(|result| result.accesses_checked),
            error: outcome.as_ref().err().map(String::as_str),
        }
    })
}
