//! The evidence as JSON, for programs: a contract, explained in `docs/src/tools/json.md`.

use serde::Serialize;

use super::floor::Below;
use super::text::errors;
use super::{Line, distinct};
use crate::commands::evidence::shape::Statement;
use crate::print::number::median;
use crate::published::Published;
use crate::runs::summary::relative_error;

/// What was found.
pub(super) struct Findings<'a> {
    pub(super) command: &'a str,
    pub(super) lines: &'a [Line],
    /// Rows that were not run.
    pub(super) left: &'a [Published],
    /// None when a run for them failed, or none was made.
    pub(super) statements: Option<Vec<Statement>>,
    /// Rows whose published rate `ideal` does not reach.
    pub(super) floor: &'a [Below<'a>],
    pub(super) stale: u64,
    pub(super) accesses_checked: u64,
    pub(super) failures: &'a [String],
    /// Runs that Ctrl-C kept from ending; their rows are left out.
    pub(super) missing: usize,
}

#[derive(Serialize)]
struct Document<'a> {
    command: &'a str,
    rows: Vec<Row<'a>>,
    machines: Vec<Machine<'a>>,
    shape: Option<Vec<Shape>>,
    floor: &'a [Below<'a>],
    stale: u64,
    accesses_checked: u64,
    failures: &'a [String],
    /// Absent when every run ended.
    #[serde(skip_serializing_if = "crate::print::json::is_none")]
    missing_runs: usize,
}

/// A published row; numbers in the unit of its metric.
#[derive(Serialize)]
struct Row<'a> {
    table: &'a str,
    workload: &'a str,
    machine: &'a str,
    design: &'a str,
    threads: usize,
    lru_drain: bool,
    set: &'a [String],
    over: Option<Over<'a>>,
    metric: &'static str,
    published: f64,
    fitted: bool,
    simulated: Option<f64>,
    relative_error: Option<f64>,
    interpolated: Option<f64>,
    not_run: Option<String>,
    source: &'a str,
}

/// What a ratio is over.
#[derive(Serialize)]
struct Over<'a> {
    design: &'a str,
    threads: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    set: Option<&'a [String]>,
}

/// Errors on the rows of one machine that nothing was fitted on.
#[derive(Serialize)]
struct Machine<'a> {
    machine: &'a str,
    fitted_rows: usize,
    held_out_rows: usize,
    model: Option<Errors>,
    interpolation: Option<Errors>,
}

/// Absolute relative errors.
#[derive(Serialize)]
struct Errors {
    rows: usize,
    worst: f64,
    median: f64,
}

#[derive(Serialize)]
struct Shape {
    found: String,
    expected: &'static str,
    met: bool,
}

pub(super) fn render(findings: Findings) -> String {
    let run = findings
        .lines
        .iter()
        .map(|line| row(&line.published, line.simulated, line.interpolated, None));
    let left = findings
        .left
        .iter()
        .map(|published| row(published, None, None, published.not_run()));
    let statements = findings.statements.map(|statements| {
        let shape = statements.into_iter().map(|statement| Shape {
            found: statement.found,
            expected: statement.expected,
            met: statement.met,
        });
        shape.collect()
    });
    crate::print::json::pretty(&Document {
        command: findings.command,
        rows: run.chain(left).collect(),
        machines: machines(findings.lines),
        shape: statements,
        floor: findings.floor,
        stale: findings.stale,
        accesses_checked: findings.accesses_checked,
        failures: findings.failures,
        missing_runs: findings.missing,
    })
}

fn row(published: &Published, simulated: Option<f64>, interpolated: Option<f64>, not_run: Option<String>) -> Row<'_> {
    Row {
        table: &published.table,
        workload: &published.workload,
        machine: &published.machine,
        design: &published.design,
        threads: published.threads,
        lru_drain: published.lru_drain,
        set: &published.set,
        over: published.over.as_ref().map(|over| Over {
            design: &over.design,
            threads: over.threads,
            set: over.set.as_deref(),
        }),
        metric: published.metric.name(),
        published: published.value,
        fitted: published.fitted,
        simulated,
        relative_error: simulated.map(|number| relative_error(number, published.value)),
        interpolated,
        not_run,
        source: &published.source,
    }
}

fn machines(lines: &[Line]) -> Vec<Machine<'_>> {
    let machine = |name| {
        let of_machine = lines.iter().filter(|line| line.published.machine == name);
        let (fitted, held_out): (Vec<&Line>, Vec<&Line>) = of_machine.partition(|line| line.published.fitted);
        let of = |errors: Vec<f64>| {
            let worst = errors.iter().copied().reduce(f64::max)?;
            Some(Errors {
                rows: errors.len(),
                worst,
                median: median(errors),
            })
        };
        Machine {
            machine: name,
            fitted_rows: fitted.len(),
            held_out_rows: held_out.len(),
            model: of(errors(held_out.iter().map(|line| line.simulated), &held_out)),
            interpolation: of(errors(held_out.iter().map(|line| line.interpolated), &held_out)),
        }
    };
    distinct(lines, |line| &line.published.machine)
        .into_iter()
        .map(machine)
        .collect()
}
