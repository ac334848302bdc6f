//! How well a replay of a recording predicts the recorded kernel, and whether it separates designs.

use schemars::JsonSchema;
use serde::Serialize;

use super::row::{Prediction, Row};
use crate::comparison::distinct::{self, Cost, FEW};
use crate::print::number;

/// Design that handles a request as the recorded kernel does (see `docs/src/tools/recording.md`).
pub const LINUX: &str = "ipi-trim";

/// Error of a prediction that is called good. Assumed: whole recordings stay within 3 %.
const GOOD: f64 = 0.05;

/// Predicted beside recorded, on a model of the recorded machine.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Fit {
    /// The machine model.
    pub machine: String,
    /// The design that handles a request as the recorded kernel does.
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
            "fit: {} recorded, {} predicted by {} on {} ({error}): {verdict}; {} went to CPUs on which the recording \
             had not shown the process, and cannot be predicted",
            number::counted(self.recorded, "interrupt"),
            number::count(self.predicted),
            self.design,
            self.machine,
            number::count(self.unpredictable)
        )
    }
}

/// Why the designs cannot be separated, if they cannot: all but the control are compared.
pub fn indistinct(rows: &[Row]) -> Option<String> {
    let cost = |row: &Row| Cost {
        shootdowns: row.shootdowns,
        share: row.lost_share,
        spread: 0.0,
    };
    distinct::indistinct(&rows.iter().map(cost).collect::<Vec<_>>())
}
