//! Fitting: one number, or a group with one factor, is changed until the simulator reproduces one measured row.
//!
//! Each [`Step`] has a row of its own, and every other row stays a prediction. Steps affect each other slightly, so all
//! are taken twice.

use shootdown_linux::work::Workload;
use shootdown_sim::model::{Model, Provenance, Range};
use shootdown_sim::run::RunResult;

use super::base::{explained, rounded};
use crate::commands::host::Row;
use crate::failure::Failure;
use crate::print::number;

/// Range of a fit around its start, as a factor down and up.
const REACH: f64 = 30.0;

/// Halvings of that range: to a tenth of a per cent.
const HALVINGS: usize = 12;

/// A relative error that needs no further halving.
const CLOSE: f64 = 0.003;

/// Times that all steps are taken.
const ROUNDS: usize = 2;

/// Numbers that are fitted by one factor, and the row that they are fitted on.
struct Step {
    what: &'static str,
    paths: &'static [&'static str],
    workload: Workload,
    /// Threads of the row: this number, or the largest that was measured.
    threads: fn(most: usize) -> usize,
}

const STEPS: &[Step] = &[
    Step {
        what: "all work on pages",
        paths: &[
            "kernel.fault",
            "kernel.page_alloc",
            "kernel.page_zero",
            "kernel.page_free",
            "kernel.map_entry",
            "kernel.unmap_entry",
            "kernel.lru_add",
        ],
        workload: Workload::TlbFlush2,
        threads: |_| 1,
    },
    Step {
        what: "all costs of interrupts",
        paths: &[
            "costs.ipi_send",
            "costs.ipi_deliver_cluster",
            "costs.ipi_deliver_socket",
            "costs.ipi_deliver_remote",
            "costs.interrupt_entry",
            "costs.interrupt_exit",
        ],
        workload: Workload::MadviseSpin,
        threads: |_| 2,
    },
    Step {
        what: "each further target of an interrupt",
        paths: &["costs.ipi_send_more", "kernel.call_target"],
        workload: Workload::MadviseSpin,
        threads: |most| most,
    },
];

/// A step that was taken.
#[derive(Debug, Clone)]
pub(super) struct Fitted {
    what: &'static str,
    /// The row that it was fitted on.
    pub(super) row: (Workload, usize),
    /// The factor on the initial numbers.
    factor: f64,
    /// The remaining error of the row.
    error: f64,
}

impl Fitted {
    /// In words.
    pub(super) fn line(&self) -> String {
        let (workload, threads) = self.row;
        let rest = if self.error.abs() > 10.0 * CLOSE {
            format!("; not reached, {} left", number::signed_percent(self.error))
        } else {
            String::new()
        };
        format!(
            "{}: {} on {} at {threads}{rest}",
            self.what,
            number::ratio(self.factor),
            workload.name()
        )
    }
}

/// The model after all steps whose rows were measured.
///
/// # Errors
/// The errors of `simulate`.
pub(super) fn all(
    base: Model,
    rows: &[Row],
    simulate: &mut dyn FnMut(&Model, &Row) -> Result<RunResult, Failure>,
) -> Result<(Model, Vec<Fitted>), Failure> {
    let most = rows.iter().map(|row| row.threads).max().unwrap_or(1);
    let mut model = base.clone();
    let mut fitted: Vec<Fitted> = Vec::new();
    for round in 0..ROUNDS {
        fitted.clear();
        let mut used = Vec::new();
        for step in STEPS {
            let target = (step.workload, (step.threads)(most));
            let row = rows.iter().find(|row| (row.workload, row.threads) == target);
            // A row determines one number only: two CPUs cannot distinguish further targets from the first.
            let Some(row) = row.filter(|_| !used.contains(&target)) else {
                continue;
            };
            used.push(target);
            // The second pass starts where the first ended.
            let reach = if round == 0 { REACH } else { 2.0 };
            model = one(&model, step, row, reach, simulate)?;
            let error = simulate(&model, row)?.ops_per_s / row.ops_per_s() - 1.0;
            let value = |model: &Model| model.parameter(step.paths[0]).map_or(1.0, |parameter| parameter.value);
            fitted.push(Fitted {
                what: step.what,
                row: target,
                factor: value(&model) / value(&base),
                error,
            });
        }
    }
    Ok((model, fitted))
}

/// Bisection: the more everything costs, the fewer operations there are.
fn one(
    model: &Model,
    step: &Step,
    row: &Row,
    reach: f64,
    simulate: &mut dyn FnMut(&Model, &Row) -> Result<RunResult, Failure>,
) -> Result<Model, Failure> {
    let target = row.ops_per_s();
    let (mut low, mut high) = (-reach.ln(), reach.ln());
    let mut best = (f64::INFINITY, model.clone());
    for halving in 0..HALVINGS {
        let middle = if halving == 0 { 0.0 } else { (low + high) / 2.0 };
        let scaled = scaled(model, step, row, middle.exp(), reach)?;
        let error = simulate(&scaled, row)?.ops_per_s / target - 1.0;
        if error.abs() < best.0 {
            best = (error.abs(), scaled);
        }
        if error.abs() < CLOSE {
            break;
        }
        if error > 0.0 {
            low = middle;
        } else {
            high = middle;
        }
    }
    Ok(best.1)
}

/// The model with the numbers of the step times `factor`.
fn scaled(model: &Model, step: &Step, row: &Row, factor: f64, reach: f64) -> Result<Model, Failure> {
    let mut scaled = model.clone();
    for &path in step.paths {
        let now = model.parameter(path).map_or(1.0, |parameter| parameter.value);
        let (low, high) = (rounded(now / reach), rounded(now * reach));
        let value = rounded(now * factor).clamp(low, high);
        let provenance = Provenance::Fitted {
            rows: format!(
                "{} at {} on this machine, by `shootdown calibrate`: {} by one factor",
                row.workload.name(),
                row.threads,
                step.what
            ),
            range: Some(Range { low, high }),
        };
        scaled = explained(&scaled, path, value, provenance)?;
    }
    Ok(scaled)
}

#[cfg(test)]
mod tests {
    use super::*;
    use shootdown_linux::interrupts::Interrupts;
    use shootdown_linux::work::Measured;

    fn row(workload: Workload, threads: usize, ops: u64) -> Row {
        let run = Measured {
            ops,
            seconds: 1.0,
            interrupts: Interrupts::default(),
            stale: 0,
            checked: 0,
            idle_ns: None,
        };
        Row {
            workload,
            threads,
            runs: vec![run],
        }
    }

    /// A machine whose operation time is determined by these two numbers.
    fn rate(model: &Model, row: &Row) -> f64 {
        let interrupts = if row.threads > 1 {
            model.ns(model.costs.ipi_send)
        } else {
            0.0
        };
        1e9 / (model.ns(model.kernel.page_zero) + interrupts)
    }

    fn fit(work: f64, interrupt: f64) -> (Model, Vec<Fitted>) {
        let model = Model::find("milan-72").unwrap();
        let rows = [
            row(Workload::TlbFlush2, 1, (1e9 / work) as u64),
            row(Workload::MadviseSpin, 2, (1e9 / (work + interrupt)) as u64),
        ];
        let result = crate::runs::fake::result(&crate::runs::fake::plan(&["ipi"], &[1]).specs()[0]);
        all(model, &rows, &mut |model, row| {
            Ok(RunResult {
                ops_per_s: rate(model, row),
                ..result.clone()
            })
        })
        .unwrap()
    }

    #[test]
    fn fit_recovers_known_costs() {
        let (model, fitted) = fit(500.0, 900.0);
        let work = model.ns(model.kernel.page_zero);
        assert!((work / 500.0 - 1.0).abs() < 0.02, "{work}");
        let send = model.ns(model.costs.ipi_send);
        assert!((send / 900.0 - 1.0).abs() < 0.05, "{send}");
        assert_eq!(fitted.len(), 2, "only rows that were measured");
        let parameter = model.parameter("costs.ipi_send").unwrap();
        assert!(parameter.provenance.to_string().contains("madvise_spin at 2"));
    }

    #[test]
    fn fit_reports_targets_that_no_factor_reaches() {
        let (_, fitted) = fit(500.0, 1e6);
        assert!(fitted[1].line().contains("not reached"), "{}", fitted[1].line());
        assert!(!fitted[0].line().contains("not reached"), "{}", fitted[0].line());
    }
}
