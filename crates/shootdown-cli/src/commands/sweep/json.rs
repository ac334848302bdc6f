//! The runs of a sweep as JSON, for programs: a contract, explained in `docs/src/tools/json.md`.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Map, Value, json};

use super::results::{self, Kind, Results, kind};
use crate::print::json::{is_none, pretty};
use crate::print::schema;

/// One object for each run, `null` where a number is unknown.
impl Serialize for Results {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        struct Row<'a>(&'a [String], &'a [results::Value]);
        impl Serialize for Row<'_> {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let mut map = serializer.serialize_map(Some(self.0.len()))?;
                for (name, value) in self.0.iter().zip(self.1) {
                    map.serialize_entry(name, value)?;
                }
                map.end()
            }
        }
        let rows: Vec<Row> = self.rows.iter().map(|row| Row(&self.columns, row)).collect();
        let mut map = serializer.serialize_map(Some(1))?;
        map.serialize_entry("runs", &rows)?;
        map.end()
    }
}

/// Columns that every sweep has, with descriptions.
const COLUMNS: [(&str, &str); 26] = [
    (results::SWEEP, "Identity of the sweep: the same in all its shards."),
    (results::POINT, "Number of the run in the whole sweep, from 0."),
    (results::POINTS, "Runs of the whole sweep."),
    ("workload", "Its name."),
    ("machine", "The machine model."),
    ("design", "Name of the design."),
    ("cpus", "CPUs of the machine."),
    ("threads", "Number of threads."),
    ("seed", "Seed of this run."),
    ("ops", "Operations in the window."),
    ("virtual_ns", "Length of the window."),
    (
        "ops_per_s",
        "Operations per second of virtual time, all threads together.",
    ),
    (
        "interval_90_low",
        "Lower end of the 90 % interval of `ops_per_s` on the real machine. Null for recordings and virtual machines.",
    ),
    ("interval_90_high", "Its upper end."),
    (
        "half_width",
        "Half the 95 % confidence interval of `ops_per_s`, as a share of it.",
    ),
    ("caveat", "Why `ops_per_s` is no measurement, or null."),
    ("ipis_per_op", "Interrupts sent per operation, one for each target."),
    ("interrupts_per_op", "Interrupts taken per operation."),
    ("flush_share", "Share of CPU time spent on invalidation, 0 to 1."),
    ("stale", "Accesses through a translation that should have been gone."),
    ("accesses_checked", "Accesses that the oracle has checked."),
    (
        "caught_after",
        "Events after which the first stale access was seen, or null.",
    ),
    ("diagnosis", "The history of the first stale access, or null."),
    ("events", "Simulated events."),
    (
        "host_time_ns",
        "Time that the run took on the host. The only nondeterministic column.",
    ),
    (results::ERROR, "Why the run failed, or null."),
];

/// Columns that depend on the workload and on what is swept: patterns of their names.
const FAMILIES: [(&str, &str, &str); 4] = [
    (
        "^share_",
        "number",
        "Share of CPU time that is spent on what the name says, 0 to 1.",
    ),
    (
        "^latency_.+_count$",
        "integer",
        "How many latencies of this name were recorded.",
    ),
    (
        "^latency_.+_(p50|p99|max)_ns$",
        "number",
        "Median, 99th percentile and longest of the latencies of this name.",
    ),
    (
        "^[a-z_]+\\.",
        "any",
        "The value of a swept number of the machine, of the workload or of the design, by its path.",
    ),
];

impl JsonSchema for Results {
    fn schema_name() -> Cow<'static, str> {
        "Sweep".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let types = |name: &str| match kind(name) {
            Kind::Count => json!(["integer", "null"]),
            Kind::Number => json!(["number", "null"]),
            Kind::Text => json!(["string", "null"]),
        };
        let columns: Map<String, Value> = COLUMNS
            .iter()
            .map(|(name, about)| (name.to_string(), json!({"description": about, "type": types(name)})))
            .collect();
        let families: Map<String, Value> = FAMILIES
            .iter()
            .map(|(pattern, form, about)| {
                let types = match *form {
                    "any" => json!(["number", "string", "null"]),
                    form => json!([form, "null"]),
                };
                (pattern.to_string(), json!({"description": about, "type": types}))
            })
            .collect();
        json_schema!({
            "description": "The runs of a sweep, one object for each.",
            "type": "object",
            "properties": {
                "runs": {
                    "description": "The columns of a CSV or Parquet file are the keys of a run.",
                    "type": "array",
                    "items": {
                        "type": "object",
                        "properties": columns,
                        "patternProperties": families,
                        "additionalProperties": false,
                    },
                },
            },
            "required": ["runs"],
        })
    }
}

/// The output of a sweep: its finished runs.
#[derive(serde::Serialize, JsonSchema)]
struct Document<'a> {
    #[serde(flatten)]
    results: &'a Results,
    /// Unfinished runs after Ctrl-C; absent when all ended.
    #[serde(skip_serializing_if = "is_none")]
    missing_runs: usize,
}

/// The runs that ended, and how many did not.
pub fn render(results: &Results, missing_runs: usize) -> String {
    pretty(&Document { results, missing_runs })
}

/// What `sweep --json` prints.
pub fn schema() -> Schema {
    schema::of::<Document>("sweep")
}
