//! The evidence as JSON, for programs: a contract, explained in `docs/src/tools/json.md`.

use schemars::{JsonSchema, Schema};
use serde::Serialize;

use super::coverage::Coverage;
use super::floor::Below;
use super::{Line, distinct, errors};
use crate::commands::evidence::shape::Statement;
use crate::comparison::summary::relative_error;
use crate::print::number::median;
use crate::print::schema;
use crate::published::Published;

/// The findings.
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

/// Published measurements beside simulated ones. Times are virtual; numbers are medians where there are several runs.
#[derive(Serialize, JsonSchema)]
struct Document<'a> {
    /// The command line that repeats the runs.
    command: &'a str,
    /// One element for each published row, or for each row of `--rows`.
    rows: Vec<Row<'a>>,
    /// One element for each machine.
    machines: Vec<Machine<'a>>,
    /// The coverage of the 90 % intervals on held-out rows; null if no such row has one.
    intervals: Option<Coverage>,
    /// Statements about the curves. Null when a run for them failed, and with `--rows`.
    shape: Option<Vec<Shape>>,
    /// Rows whose published rate the design `ideal` does not reach; none in a sound model.
    floor: &'a [Below<'a>],
    /// Stale accesses of all runs.
    stale: u64,
    /// Accesses that the oracle has checked, of all runs.
    accesses_checked: u64,
    /// Failed runs, with the reason.
    failures: &'a [String],
    /// Absent when every run ended.
    #[serde(skip_serializing_if = "crate::print::json::is_none")]
    missing_runs: usize,
}

/// A published row; numbers in the unit of its metric.
#[derive(Serialize, JsonSchema)]
struct Row<'a> {
    /// The published table.
    table: &'a str,
    /// Name of the workload.
    workload: &'a str,
    /// The machine model.
    machine: &'a str,
    /// Name of the design.
    design: &'a str,
    /// Number of threads.
    threads: usize,
    /// Whether each `madvise` drains the LRU batch under the LRU lock.
    lru_drain: bool,
    /// Settings that differ in this measurement, as `path=value`.
    set: &'a [String],
    /// Of a ratio, the measurement that it is over.
    over: Option<Over<'a>>,
    /// The unit of the row's numbers: `ops_per_s`, `ns_per_op`, `interrupts_per_op`, `idle_share` and `flush_share` (0
    /// to 1), `seconds`, `time_ratio`, `rate_ratio`, `p50_ns` or `p99_ns`.
    metric: &'static str,
    /// The published number.
    published: f64,
    /// Whether the machine model was fitted on this row.
    fitted: bool,
    /// The simulated number.
    simulated: Option<f64>,
    /// `simulated` against `published`: (simulated - published) / published.
    relative_error: Option<f64>,
    /// Ends of the 90 % interval around `simulated`, from the assumed ranges of the machine and the errors on published
    /// rows. Null without one.
    interval_90: Option<[f64; 2]>,
    /// Why a row that was not fitted is off by more than 25 %. Null for other rows.
    cause: Option<&'a str>,
    /// The measurement that would settle whether this is the cause. Null where `cause` is.
    settled_by: Option<&'a str>,
    /// The prediction of interpolation between fitted rows.
    interpolated: Option<f64>,
    /// Why the row was not run, or null.
    not_run: Option<String>,
    /// Source of the published number.
    source: &'a str,
}

/// The measurement that a ratio is over.
#[derive(Serialize, JsonSchema)]
struct Over<'a> {
    /// Name of the design.
    design: &'a str,
    /// Number of threads.
    threads: usize,
    /// Its settings that differ from those of the row. Absent if none do.
    #[serde(skip_serializing_if = "Option::is_none")]
    set: Option<&'a [String]>,
}

/// Errors on the held-out rows of one machine.
#[derive(Serialize, JsonSchema)]
struct Machine<'a> {
    /// The machine model.
    machine: &'a str,
    /// Rows that the model was fitted on.
    fitted_rows: usize,
    /// Rows that it was not fitted on.
    held_out_rows: usize,
    /// Errors of the model on these. Null without any.
    model: Option<Errors>,
    /// Errors of plain interpolation on these. Null without any.
    interpolation: Option<Errors>,
}

/// Absolute relative errors.
#[derive(Serialize, JsonSchema)]
struct Errors {
    /// Over how many rows.
    rows: usize,
    /// The largest.
    worst: f64,
    /// The median.
    median: f64,
}

/// A statement about a curve.
#[derive(Serialize, JsonSchema)]
struct Shape {
    /// What the simulation shows.
    found: String,
    /// What is published.
    expected: &'static str,
    /// Whether the two agree.
    met: bool,
}

/// What `evidence --json` prints.
pub fn schema() -> Schema {
    schema::of::<Document>("evidence")
}

pub(super) fn render(findings: Findings) -> String {
    let run = findings.lines.iter().map(|line| Row {
        interval_90: line.ends(),
        cause: line.why().map(|why| &*why.cause),
        settled_by: line.why().map(|why| &*why.settled_by),
        ..row(&line.published, line.simulated, line.interpolated, None)
    });
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
        intervals: Coverage::of(findings.lines),
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
        interval_90: None,
        cause: None,
        settled_by: None,
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
