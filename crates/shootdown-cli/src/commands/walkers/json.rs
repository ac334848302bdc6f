//! What walks pay as JSON, for programs: a contract, explained in `docs/src/tools/json.md`.

use serde::Serialize;

use super::{DESIGNS, Findings, Row, interrupts_per_s, pairs};

#[derive(Serialize)]
struct Document<'a> {
    command: &'a str,
    machine: &'a str,
    shared: bool,
    runs: Vec<Run<'a>>,
    break_evens: Vec<BreakEven>,
    /// Absent when every run ended.
    #[serde(skip_serializing_if = "crate::print::json::is_none")]
    missing_runs: usize,
}

/// One design at one rate of frees; numbers are null when it failed, and `error` says why.
#[derive(Serialize)]
struct Run<'a> {
    frees_asked_per_s: u64,
    design: &'static str,
    pins_per_s: Option<f64>,
    share_of_best: Option<f64>,
    frees_per_s: Option<f64>,
    interrupts_per_s: Option<f64>,
    stale: Option<u64>,
    accesses_checked: Option<u64>,
    error: Option<&'a str>,
}

/// Two designs, and who of them is ahead from where on; empty where they do not differ.
#[derive(Serialize)]
struct BreakEven {
    designs: [&'static str; 2],
    turns: Vec<Turn>,
}

#[derive(Serialize)]
struct Turn {
    ahead: &'static str,
    /// The rate at which it is seen first.
    from_frees_per_s: u64,
    /// The last rate before that.
    after_frees_per_s: u64,
}

pub(super) fn render(findings: &Findings) -> String {
    let break_evens = pairs().map(|(one, two)| BreakEven {
        designs: [DESIGNS[one], DESIGNS[two]],
        turns: findings
            .turns(one, two)
            .into_iter()
            .map(|(from, after, who)| Turn {
                ahead: DESIGNS[who],
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
            frees_asked_per_s: row.asked,
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
