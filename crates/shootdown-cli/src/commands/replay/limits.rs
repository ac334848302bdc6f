//! What a recording can tell and what not, and how well a replay of it predicts what the recorded kernel did.

use schemars::JsonSchema;
use serde::Serialize;
use shootdown_sim::model::Model;
use shootdown_trace::Processes;

use super::row::{Prediction, Row};
use super::source::Recording;
use crate::failure::Failure;
use crate::print::number;
use crate::runs::distinct::{self, Cost, FEW};

/// Design that does with a request what the recorded kernel does (see `docs/src/tools/recording.md`).
pub const LINUX: &str = "ipi-trim";

/// Error of a prediction that is called good. Assumed: whole recordings stay within 3 %.
const GOOD: f64 = 0.05;

/// Predicted beside recorded, on a model of the recorded machine.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Fit {
    /// The machine model.
    pub machine: String,
    /// The design that does with a request what the recorded kernel does.
    pub design: &'static str,
    /// Interrupts that were recorded.
    pub recorded: u64,
    /// Interrupts that the replay makes.
    pub predicted: u64,
    /// (predicted - recorded) / recorded. Null when nothing was recorded.
    pub error: Option<f64>,
    /// Requests to CPUs on which the recording had not shown the process: no replay can predict them.
    pub unpredictable: u64,
}

impl Fit {
    pub fn new(machine: &str, prediction: &Prediction, unpredictable: u64) -> Self {
        Fit {
            machine: machine.to_string(),
            design: LINUX,
            recorded: prediction.recorded,
            predicted: prediction.predicted,
            error: prediction.error,
            unpredictable,
        }
    }

    /// One line.
    pub fn words(&self) -> String {
        let error = self
            .error
            .map_or("no error can be given".to_string(), number::signed_percent);
        let off = self.predicted.abs_diff(self.recorded);
        let verdict = if self.recorded < FEW {
            "too few to judge"
        } else if self.error.is_some_and(|error| error.abs() <= GOOD) {
            "good"
        } else if off <= self.unpredictable {
            "what is missing is at CPUs that the recording does not show"
        } else {
            "poor: read the tables with that error"
        };
        format!(
            "fit: {} interrupts recorded, {} predicted by {} on {} ({error}): {verdict}; {} went to CPUs on which the recording \
             had not shown the process, and cannot be predicted",
            number::count(self.recorded),
            number::count(self.predicted),
            self.design,
            self.machine,
            number::count(self.unpredictable)
        )
    }
}

/// What stands before the tables, a line each.
pub fn lines(recording: &Recording, models: &[Model]) -> Vec<String> {
    let mut lines = vec![processes(&recording.coverage.processes), losses(recording)];
    lines.push(absent(recording));
    lines.push(machine(recording, models));
    lines
}

fn processes(processes: &Processes) -> String {
    match processes {
        Processes::Recorded => "processes: the recording has their numbers".to_string(),
        Processes::Rebuilt(found) => format!(
            "processes: inferred, {} from {} tasks; {} of the observations agree",
            number::count(found.processes),
            number::count(found.tasks),
            number::percent(found.confidence())
        ),
        Processes::Absent => "processes: not recorded".to_string(),
    }
}

fn losses(recording: &Recording) -> String {
    let coverage = &recording.coverage;
    match (
        recording.metadata.lost_events,
        coverage.losses.iter().any(|loss| loss.events.is_none()),
    ) {
        (0, false) => "losses: the recording notes none".to_string(),
        (0, true) => "losses: events were lost, how many is not recorded; every count is a lower bound".to_string(),
        (lost, _) => format!("losses: {} events; every count is a lower bound", number::count(lost)),
    }
}

/// The events whose absence limits what the tables say.
fn absent(recording: &Recording) -> String {
    const MEANINGS: [(&str, &str); 4] = [
        ("sched_switch", "which CPU runs what is inferred"),
        ("tlb_flush", "no flush is known"),
        ("csd_queue_cpu", "the recorded interrupts are not known"),
        ("sys_enter_madvise", "system calls that send requests are not known"),
    ];
    let absent = MEANINGS
        .iter()
        .filter(|(event, _)| recording.coverage.count(event) == 0);
    let absent: Vec<String> = absent.map(|(event, meaning)| format!("{event} ({meaning})")).collect();
    match absent.is_empty() {
        true => "absent events: none that the tables need".to_string(),
        false => format!("absent events: {}", absent.join(", ")),
    }
}

/// The recording does not name its machine; a model with as many CPUs may be of it.
fn machine(recording: &Recording, models: &[Model]) -> String {
    let kernel = recording.metadata.kernel.as_deref().unwrap_or("kernel not said");
    let names: Vec<&str> = models.iter().map(|model| model.name.as_str()).collect();
    match names.is_empty() {
        true => format!(
            "machine: {} CPUs, {kernel}; no model has as many CPUs, so the fit cannot be checked (`shootdown calibrate` makes a model)",
            recording.cpus()
        ),
        false => format!(
            "machine: {} CPUs, {kernel}; the recording does not name it; models with as many CPUs: {}",
            recording.cpus(),
            names.join(", ")
        ),
    }
}

/// Why the designs cannot be told apart, if they cannot: all but the control are compared.
pub fn indistinct(rows: &[Row]) -> Option<String> {
    let cost = |row: &Row| Cost {
        shootdowns: row.shootdowns,
        share: row.lost_share,
        spread: 0.0,
    };
    distinct::indistinct(&rows.iter().map(cost).collect::<Vec<_>>())
}

/// The models with as many CPUs as were recorded: one of them may be of the recorded machine.
pub fn models_of(cpus: usize) -> Result<Vec<Model>, Failure> {
    let models: Result<Vec<Model>, _> = Model::builtin_names().iter().map(|name| Model::find(name)).collect();
    let models = models.map_err(|error| Failure::Input(error.to_string()))?;
    Ok(models
        .into_iter()
        .filter(|model| model.topology.cpus() == cpus)
        .collect())
}
