//! `shootdown calibrate`: a machine model of this machine, and its errors.
//!
//! Owns the order of steps. Measure the workloads and the single costs. Begin with the nearest built-in model
//! ([`base`]) and fit the numbers that cannot be measured alone ([`fit`]). Write the file, read it back, simulate every
//! row with it and print both.

mod base;
mod fit;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use indicatif::{ProgressBar, ProgressStyle};
use schemars::{JsonSchema, Schema};
use serde::Serialize;
use shootdown_linux::load::Load;
use shootdown_linux::work::Workload;
use shootdown_sim::model::Model;
use shootdown_sim::run::{self, Parameters, RunSpec};

use crate::args::CalibrateArgs;
use crate::commands::host::{self, Place, Row, Settings};
use crate::failure::{Failure, SUCCESS};
use crate::print::json;
use crate::print::number;
use crate::print::output::{self, Destination, Kind};
use crate::print::schema;
use crate::print::table::{Column, Grid, Tables};
use crate::runs::plan;
use fit::Fitted;

/// The design of Linux without broadcast.
const LINUX: &str = match std::env::consts::ARCH.as_bytes() {
    b"x86_64" => "ipi-trim",
    b"aarch64" => "arm-broadcast",
    _ => "ipi",
};

/// Virtual milliseconds of each simulated row: a thousand operations and more.
const VIRTUAL_MS: f64 = 10.0;

/// The source of measured numbers, as the file names it.
const MEASURED: &str = "measured on this machine by `shootdown calibrate`";

/// Measures, fits, writes, and prints the errors.
///
/// # Errors
/// One line when the machine cannot be measured or the file cannot be written; Ctrl-C, which writes nothing.
pub fn command(args: &CalibrateArgs, stop: &AtomicBool) -> Result<u8, Failure> {
    let destination = Destination::new("-o", &args.output, Kind::Model)?;
    let name = name_of(&args.output)?;
    let settings = Settings::new(&args.measure)?;
    let place = Place::find()?;
    place.note();
    let caveat = caveat(args)?;
    let threads = plan::default_threads(1, place.cpus.len());
    let plan: Vec<_> = Workload::ALL
        .into_iter()
        .flat_map(|workload| threads.iter().map(move |&threads| (workload, threads)))
        .collect();
    let rows = host::measure(&place, &plan, &settings, stop)?;
    if rows.len() < plan.len() {
        return Err(Failure::Interrupted);
    }
    let spinner = spinner();
    spinner.set_message("measuring single costs");
    let base = base::model(&name, &place, caveat.as_deref())?;
    let mut simulate = |model: &Model, row: &Row| {
        spinner.tick();
        simulated(model, row, stop)
    };
    spinner.set_message("fitting");
    let (model, fitted) = fit::all(base.model, &rows, &mut simulate)?;
    let heading = format!(
        "{}\n\
         Written by `shootdown calibrate`. Numbers marked source were measured here, \
         those marked fitted make the named rows come\n\
         out right in the simulator, and those marked assumed are those of {}, its nearest built-in model.",
        model.description, base.template
    );
    let text = model.to_toml(&heading);
    // The file is what is judged: its numbers went through text.
    let model = Model::parse(&text, &destination.shown()).map_err(|error| Failure::Input(error.to_string()))?;
    let compared: Vec<_> = rows
        .iter()
        .map(|row| Ok((row, simulate(&model, row)?)))
        .collect::<Result<_, Failure>>()?;
    spinner.finish_and_clear();
    let printed = if args.json {
        document(&model, &compared, &fitted, caveat)
    } else {
        let mut text = words(&model, &base.facts, &compared, &fitted);
        if let Some(why) = &caveat {
            text.push_str(&format!(
                "measured on a busy machine ({why}): rates are too low, \
                 and costs too high; the model's description says so\n"
            ));
        }
        text
    };
    let label = (!args.json).then_some("machine model");
    output::results(&printed, Some(&destination), label, || &text, stop)?;
    if !args.json {
        output::show(&how_to_use(&destination.shown()))?;
    }
    Ok(SUCCESS)
}

/// Why the measurement is doubtful, if it is and `--busy-host` accepted that.
///
/// # Errors
/// One line if it is doubtful without `--busy-host`.
fn caveat(args: &CalibrateArgs) -> Result<Option<String>, Failure> {
    let proc = args.proc.as_deref().unwrap_or(Path::new("/proc"));
    match Load::read(proc).map(|load| load.caveat()) {
        Ok(Some(why)) if !args.busy_host => Err(Failure::Unusable(format!(
            "calibrate: this machine is busy: {why}; wait until it is quiet, keep others off with \
             `sudo chrt -r 1 shootdown calibrate ... --busy-host`, or accept a doubtful model with --busy-host"
        ))),
        Ok(caveat) => Ok(caveat),
        Err(error) => {
            output::note(&format!(
                "{}: {error}; whether other programs run is not known",
                proc.display()
            ));
            Ok(None)
        }
    }
}

/// The name of the machine: that of the file, without its ending.
fn name_of(path: &Path) -> Result<String, Failure> {
    let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
    let toml = path.extension().is_some_and(|ending| ending == "toml");
    match stem {
        Some(name) if toml && !name.chars().any(char::is_control) => Ok(name),
        _ => Err(Failure::Input(format!(
            "-o {}: expected the name of a model file, for example machines/mine.toml",
            path.display()
        ))),
    }
}

fn spinner() -> ProgressBar {
    let spinner = ProgressBar::new_spinner();
    if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}  {elapsed}") {
        spinner.set_style(style);
    }
    spinner
}

/// Operations per second of a row in the simulator.
fn simulated(model: &Model, row: &Row, stop: &AtomicBool) -> Result<run::RunResult, Failure> {
    let mut parameters = Parameters::default();
    if let Some(idle) = row.idle_ns() {
        // When it is to idle for 2 microseconds, this machine idles longer: the simulated one must as well.
        parameters = parameters
            .with("workload.context_switch.lazy_ns", idle.clamp(0.0, 1e7))
            .map_err(Failure::Input)?;
    }
    let spec = RunSpec {
        workload: row.workload.name().into(),
        machine: Arc::new(model.clone()),
        design: LINUX.into(),
        threads: row.threads,
        seed: 1,
        virtual_ms: Some(VIRTUAL_MS),
        lru_drain: false,
        parameters,
    };
    let result = run::run(&spec, &mut |_| !stop.load(Ordering::Relaxed));
    match result {
        _ if stop.load(Ordering::Relaxed) => Err(Failure::Interrupted),
        Ok(result) => Ok(result),
        Err(error) => Err(Failure::Input(format!(
            "{} with {} cannot be simulated: {error}",
            row.workload.name(),
            number::threads(row.threads)
        ))),
    }
}

fn error_of(row: &Row, result: &run::RunResult) -> f64 {
    result.ops_per_s / row.ops_per_s() - 1.0
}

fn is_fitted(fitted: &[Fitted], row: &Row) -> bool {
    fitted.iter().any(|fit| fit.row == (row.workload, row.threads))
}

/// A command that uses the model.
fn how_to_use(shown: &str) -> String {
    // Without a folder it would be searched among the built-in models.
    let folder = if shown.contains('/') { "" } else { "./" };
    format!("try: shootdown compare tlb_flush2 --on {folder}{shown}\n")
}

fn words(model: &Model, facts: &[String], compared: &[(&Row, run::RunResult)], fitted: &[Fitted]) -> String {
    let mut text = format!("{}: {}\n", model.name, model.description);
    text.push_str("measured:\n");
    for fact in facts {
        text.push_str(&format!("  {fact}\n"));
    }
    let columns = vec![
        Column::words("workload", "the workload that was measured and simulated"),
        Column::number("threads", "threads of the workload"),
        Column::number("measured ops/s", "operations per second on this machine's own kernel"),
        Column::number("simulated ops/s", "operations per second of the model that was written"),
        Column::number("error", "the simulated rate against the measured one"),
        Column::number(
            "interrupts per op, measured",
            "TLB interrupts of this machine per operation",
        )
        .optional(1),
        Column::number(
            "interrupts per op, simulated",
            "interrupts taken in the simulation per operation",
        )
        .optional(1),
        Column::words("row", "whether costs were fitted on the row, or it is a prediction"),
    ];
    let mut groups: Vec<Vec<Vec<String>>> = Vec::new();
    let mut last = None;
    for (row, result) in compared {
        let first = last.replace(row.workload) != Some(row.workload);
        if first {
            groups.push(Vec::new());
        }
        groups.last_mut().expect("begun above").push(vec![
            if first {
                row.workload.name().to_owned()
            } else {
                String::new()
            },
            row.threads.to_string(),
            number::rate(row.ops_per_s()),
            number::rate(result.ops_per_s),
            number::signed_percent(error_of(row, result)),
            row.interrupts_per_op()
                .map_or(number::UNKNOWN.into(), number::per_operation),
            number::per_operation(result.interrupts_per_op),
            if is_fitted(fitted, row) { "fitted" } else { "predicted" }.to_owned(),
        ]);
    }
    text.push_str("fitted, as factors on what is assumed otherwise:\n");
    for fit in fitted {
        text.push_str(&format!("  {}\n", fit.line()));
    }
    text.push_str("operations per second:\n");
    text.push_str(&Tables::new().draw(&Grid::new(columns, groups)));
    let mut errors: Vec<_> = compared
        .iter()
        .filter(|(row, _)| !is_fitted(fitted, row))
        .map(|(row, result)| error_of(row, result).abs())
        .collect();
    errors.sort_by(f64::total_cmp);
    if let Some(worst) = errors.last() {
        text.push_str(&format!(
            "fitted: {}; on {}, absolute error: median {}, worst {}\n",
            number::counted(compared.len() - errors.len(), "row"),
            number::counted(errors.len(), "other"),
            number::percent(number::median(errors.iter().copied())),
            number::percent(*worst)
        ));
    }
    text
}

/// A measurement of this machine and the same row on its model.
#[derive(Serialize, JsonSchema)]
struct Line<'a> {
    /// Name of the workload.
    workload: &'a str,
    /// Number of threads.
    threads: usize,
    /// Measured operations per second.
    measured_ops_per_s: f64,
    /// Operations per second on the model.
    simulated_ops_per_s: f64,
    /// Simulated against measured: (simulated - measured) / measured.
    relative_error: f64,
    /// Measured interrupts per operation. Null where the kernel does not count them.
    measured_interrupts_per_op: Option<f64>,
    /// Interrupts per operation on the model.
    simulated_interrupts_per_op: f64,
    /// Whether the model was fitted on this row.
    fitted: bool,
}

/// The measurements, with the predictions of the fitted model.
#[derive(Serialize, JsonSchema)]
struct Document<'a> {
    /// Name of the model.
    machine: &'a str,
    /// What else ran on this machine, if that makes the measurement doubtful; or null.
    caveat: Option<String>,
    /// One element for each workload and number of threads.
    rows: Vec<Line<'a>>,
}

/// What `calibrate --json` prints.
pub fn schema() -> Schema {
    schema::of::<Document>("calibrate")
}

fn document(model: &Model, compared: &[(&Row, run::RunResult)], fitted: &[Fitted], caveat: Option<String>) -> String {
    let line = |(row, result): &(&Row, run::RunResult)| Line {
        workload: row.workload.name(),
        threads: row.threads,
        measured_ops_per_s: row.ops_per_s(),
        simulated_ops_per_s: result.ops_per_s,
        relative_error: error_of(row, result),
        measured_interrupts_per_op: row.interrupts_per_op(),
        simulated_interrupts_per_op: result.interrupts_per_op,
        fitted: is_fitted(fitted, row),
    };
    json::pretty(&Document {
        machine: &model.name,
        caveat,
        rows: compared.iter().map(line).collect(),
    })
}
