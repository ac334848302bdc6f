//! The place of a scoreboard cell: machine, workload, threads.

use std::fmt;

use schemars::JsonSchema;
use serde::Serialize;
use shootdown_sim::run::RunSpec;

use crate::print::number;
use crate::published::Published;

/// One machine, with or without its broadcast, one workload, one number of threads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub(super) struct Place {
    /// The machine model.
    pub machine: String,
    /// Whether it broadcasts here.
    pub broadcast: bool,
    /// Name of the workload.
    pub workload: String,
    /// Number of threads.
    pub threads: usize,
    /// Settings that differ in a published measurement, as `path=value`. Absent when there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub set: Vec<String>,
    /// Whether each `madvise` drains the LRU batch under the LRU lock. Absent when it does not.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub lru_drain: bool,
}

impl Place {
    /// The place of a run on an unchanged machine model, except for its broadcast.
    pub(super) fn of(spec: &RunSpec) -> Self {
        Place {
            machine: spec.machine.name.clone(),
            broadcast: spec.machine.broadcasts(),
            workload: spec.workload.clone(),
            threads: spec.threads,
            set: Vec::new(),
            lru_drain: spec.lru_drain,
        }
    }

    /// The place of `spec`, which is the run of a published row.
    pub(super) fn of_row(row: &Published, spec: &RunSpec) -> Self {
        Place {
            set: row.set.clone(),
            ..Place::of(spec)
        }
    }

    /// The workload, with the settings that differ in it or in the machine.
    pub(super) fn workload(&self) -> String {
        let drain = self.lru_drain.then(|| "with LRU drain".to_string());
        let changes = self.set.iter().cloned().chain(drain);
        std::iter::once(self.workload.clone())
            .chain(changes)
            .collect::<Vec<_>>()
            .join(" ")
    }
}

/// As in `tlb_flush2 on milan-72 without broadcast at 16 threads`.
impl fmt::Display for Place {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let without = if self.broadcast { "" } else { " without broadcast" };
        write!(
            out,
            "{} on {}{without} at {}",
            self.workload(),
            self.machine,
            number::threads(self.threads)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn place_shows_its_non_default_settings() {
        let place = Place {
            machine: "one".to_string(),
            broadcast: false,
            workload: "gup".to_string(),
            threads: 2,
            set: vec!["tlb.ways=4".to_string()],
            lru_drain: true,
        };
        assert_eq!(
            place.to_string(),
            "gup tlb.ways=4 with LRU drain on one without broadcast at 2 threads"
        );
        let json = serde_json::to_value(&place).unwrap();
        assert_eq!(
            (&json["set"][0], &json["lru_drain"]),
            (&"tlb.ways=4".into(), &true.into())
        );
        let plain = Place {
            set: Vec::new(),
            lru_drain: false,
            broadcast: true,
            ..place
        };
        assert_eq!(plain.to_string(), "gup on one at 2 threads");
        let json = serde_json::to_value(&plain).unwrap();
        assert_eq!(json.get("set"), None);
    }
}
