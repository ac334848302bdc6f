//! The JSON of runs for programs: a contract, so a test checks the keys and their order.

use schemars::JsonSchema;
use serde::Serialize;
use shootdown_sim::run::{RunResult, RunSpec};

use super::interval;
use super::kernel_counts::KernelCounts;
use super::ratios::{self, Point};
use super::summary::{Comparison, caveat_in_words, p99, relative_error, shootdown};
use crate::print::json::{is_none, pretty};
use crate::published;

/// The runs of a comparison or of a measurement.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Document<'a> {
    /// The command line that repeats the runs, every default written out. Absent of `host` and `qemu`.
    #[serde(skip_serializing_if = "Option::is_none")]
    command: Option<String>,
    /// One element for each workload, design, number of threads and seed.
    runs: Vec<Run<'a>>,
    /// Ratios of rates to those of `ipi`, or of the first design. Absent for recordings, for real runs, and without a
    /// second design.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    ratios: Vec<Point>,
    /// Unfinished runs after Ctrl-C; absent when all ended.
    #[serde(skip_serializing_if = "is_none")]
    missing_runs: usize,
}

/// One run. The results of a failed run are null, and `error` says why it failed.
#[derive(Debug, Default, Serialize, JsonSchema)]
pub(crate) struct Run<'a> {
    /// Its name.
    pub(crate) workload: &'a str,
    /// The machine, with what `--set` and `--cpus` changed.
    pub(crate) target: String,
    /// Name of the design.
    pub(crate) design: &'a str,
    /// Number of threads.
    pub(crate) threads: usize,
    /// Seed of this run.
    pub(crate) seed: u64,
    /// Operations in the window.
    pub(crate) ops: Option<u64>,
    /// Operations per second of virtual time, all threads together. Of `host` and QEMU, of real time.
    pub(crate) ops_per_s: Option<f64>,
    /// Time that one operation takes its thread, waiting included: threads / `ops_per_s`.
    pub(crate) time_per_op_ns: Option<f64>,
    /// CPU time in invalidation, of requesters and interrupted CPUs, per operation.
    pub(crate) flush_cpu_per_op_ns: Option<f64>,
    /// Median time from the call of a flush that reaches other CPUs to its end. Null where none does.
    pub(crate) shootdown_p50_ns: Option<f64>,
    /// The 99th percentile of the same. Null of fewer than 20.
    pub(crate) shootdown_p99_ns: Option<f64>,
    /// Half the 95 % confidence interval of `ops_per_s`, as a share of it.
    pub(crate) half_width: Option<f64>,
    /// Ends of the 90 % interval of `ops_per_s` on the real machine, from the assumed ranges of the machine and the
    /// errors on published rows. Null for recordings, real runs and virtual machines, and if `caveat` is not null.
    pub(crate) interval_90: Option<[f64; 2]>,
    /// Why `ops_per_s` is not meaningful, or null.
    pub(crate) caveat: Option<&'static str>,
    /// Interrupts sent per operation, one for each target.
    pub(crate) ipis_per_op: Option<f64>,
    /// Interrupts taken per operation.
    pub(crate) interrupts_per_op: Option<f64>,
    /// Share of CPU time spent on invalidation, 0 to 1.
    pub(crate) flush_share: Option<f64>,
    /// Accesses through a translation that should have been gone.
    pub(crate) stale: Option<u64>,
    /// Accesses that the oracle has checked.
    pub(crate) accesses_checked: Option<u64>,
    /// Simulated events.
    pub(crate) events: Option<u64>,
    /// Time that the run took on the host. The only nondeterministic field of a simulated run.
    pub(crate) host_time_ns: Option<f64>,
    /// The published rate of the real machine, operations per second.
    pub(crate) published: Option<f64>,
    /// `ops_per_s` against `published`: (simulated - published) / published.
    pub(crate) relative_error: Option<f64>,
    /// Why the run failed, or null.
    pub(crate) error: Option<&'a str>,
    /// Of `trace:FILE`, events that the recording lost, which are missing from every number. Absent when there are
    /// none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) lost_events: Option<u64>,
    /// Counts of the bare-metal kernel. Absent elsewhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) qemu: Option<&'a KernelCounts>,
    /// Distributions of latencies. Absent when none was recorded.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) latencies: Vec<Distribution<'a>>,
}

impl<'a> Run<'a> {
    /// A simulated run on `target`, with the published rate if there is one.
    pub(crate) fn of(
        spec: &'a RunSpec,
        target: String,
        published: Option<f64>,
        outcome: Result<&'a RunResult, &'a str>,
    ) -> Self {
        let result = outcome.ok();
        let number = |field: fn(&RunResult) -> f64| result.map(field);
        let count = |field: fn(&RunResult) -> u64| result.map(field);
        let time_per_op = result.map(|result| spec.threads as f64 * 1e9 / result.ops_per_s);
        let shootdown = result.and_then(|result| shootdown(&result.latencies));
        Run {
            workload: &spec.workload,
            target,
            design: &spec.design,
            threads: spec.threads,
            seed: spec.seed,
            ops: count(|result| result.ops),
            ops_per_s: number(|result| result.ops_per_s),
            time_per_op_ns: time_per_op,
            flush_cpu_per_op_ns: time_per_op.zip(result).map(|(ns, result)| ns * result.flush_share),
            shootdown_p50_ns: shootdown.map(|latency| latency.p50_ns),
            shootdown_p99_ns: shootdown.map(p99),
            half_width: result.and_then(|result| result.half_width),
            interval_90: result.and_then(|result| interval::of_run(spec, result)),
            caveat: result.and_then(RunResult::caveat).map(caveat_in_words),
            ipis_per_op: number(|result| result.ipis_per_op),
            interrupts_per_op: number(|result| result.interrupts_per_op),
            flush_share: number(|result| result.flush_share),
            stale: count(|result| result.stale),
            accesses_checked: count(|result| result.accesses_checked),
            events: count(|result| result.events),
            host_time_ns: number(|result| result.host_seconds * 1e9),
            published,
            relative_error: published
                .zip(result)
                .map(|(published, result)| relative_error(result.ops_per_s, published)),
            error: outcome.err(),
            lost_events: None,
            qemu: None,
            latencies: result.map_or(Vec::new(), |result| {
                let distributions = result.latencies.iter().map(|latency| Distribution {
                    name: latency.name,
                    count: latency.count,
                    p50_ns: latency.p50_ns,
                    p99_ns: latency.p99_ns,
                    max_ns: latency.max_ns,
                    buckets: &latency.buckets,
                });
                distributions.collect()
            }),
        }
    }
}

/// A distribution of latencies, in virtual time.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Distribution<'a> {
    /// The timed quantity.
    name: &'a str,
    /// Number of samples.
    count: u64,
    /// Median.
    p50_ns: f64,
    /// 99th percentile.
    p99_ns: f64,
    /// The longest.
    max_ns: f64,
    /// Histogram: the upper edge of each bucket in ns, and how many fell into it.
    buckets: &'a [(f64, u64)],
}

/// The runs of a comparison, one element each, rates in operations per second, `null` where unknown.
pub fn render(comparison: &Comparison) -> String {
    let recording = comparison.plan.workload.recording.as_ref();
    let lost = recording
        .map(|recording| recording.lost_events())
        .filter(|&lost| lost > 0);
    let runs = comparison
        .runs
        .iter()
        .map(|(spec, outcome)| {
            let target = comparison.plan.target_of(spec.threads).to_string();
            let published = published::lookup(&comparison.published, &spec.design, spec.threads);
            Run {
                lost_events: lost,
                ..Run::of(spec, target, published, outcome.as_ref().map_err(String::as_str))
            }
        })
        .collect();
    pretty(&Document {
        command: Some(comparison.plan.command()),
        runs,
        ratios: ratios::of_rates(comparison),
        missing_runs: comparison.missing,
    })
}

/// The document with these runs.
pub(crate) fn document(runs: Vec<Run>) -> String {
    pretty(&Document {
        command: None,
        runs,
        ratios: Vec::new(),
        missing_runs: 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runs::fake;

    /// The contract. Programs rely on it: a change breaks them.
    const KEYS: [&str; 25] = [
        "workload",
        "target",
        "design",
        "threads",
        "seed",
        "ops",
        "ops_per_s",
        "time_per_op_ns",
        "flush_cpu_per_op_ns",
        "shootdown_p50_ns",
        "shootdown_p99_ns",
        "half_width",
        "interval_90",
        "caveat",
        "ipis_per_op",
        "interrupts_per_op",
        "flush_share",
        "stale",
        "accesses_checked",
        "events",
        "host_time_ns",
        "published",
        "relative_error",
        "error",
        "latencies",
    ];

    #[test]
    fn json_keys_match_the_documented_list_in_order() {
        let text = render(&fake::comparison(fake::plan(&["ipi"], &[2])));
        let keys: Vec<&str> = text
            .lines()
            .filter_map(|line| line.strip_prefix("      \"").and_then(|rest| rest.split_once("\":")))
            .map(|(key, _)| key)
            .collect();
        assert_eq!(keys, KEYS);
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            value.as_object().unwrap().keys().collect::<Vec<_>>(),
            ["command", "runs"]
        );
        assert!(value["command"].as_str().unwrap().starts_with("shootdown compare "));
    }

    #[test]
    fn json_page_explains_every_key() {
        let words = include_str!("../../../../docs/src/tools/json.md");
        for key in KEYS.iter().chain(&["command", "lost_events", "qemu"]) {
            assert!(words.contains(&format!("| `{key}` |")), "{key}");
        }
    }

    #[test]
    fn each_run_is_one_element_with_its_own_seed() {
        let mut plan = fake::plan(&["ipi", "broadcast"], &[1, 4]);
        plan.settings.runs = 3;
        plan.settings.seed = 40;
        let value: serde_json::Value = serde_json::from_str(&render(&fake::comparison(plan))).unwrap();
        let runs = value["runs"].as_array().unwrap();
        assert_eq!(runs.len(), 12);
        assert_eq!(
            runs.iter()
                .take(3)
                .map(|run| run["seed"].as_u64().unwrap())
                .collect::<Vec<_>>(),
            [40, 41, 42]
        );
    }

    #[test]
    fn a_failed_run_has_a_reason_and_no_numbers() {
        let plan = fake::plan(&["ipi"], &[4]);
        let comparison = Comparison::new(plan, vec![Err("hangs".to_string())], None, 1.0);
        let value: serde_json::Value = serde_json::from_str(&render(&comparison)).unwrap();
        let run = &value["runs"][0];
        assert_eq!(run["error"], "hangs");
        assert!(run.get("latencies").is_none(), "nothing was recorded");
        assert!(run["ops_per_s"].is_null() && run["stale"].is_null() && run["relative_error"].is_null());
        assert_eq!(run["published"], 644_000.0);
    }

    #[test]
    fn unknown_values_are_null_and_errors_are_relative() {
        let value: serde_json::Value =
            serde_json::from_str(&render(&fake::comparison(fake::plan(&["ipi"], &[2, 4])))).unwrap();
        assert!(value["runs"][0]["published"].is_null() && value["runs"][0]["relative_error"].is_null());
        let run = &value["runs"][1];
        assert_eq!(run["published"], 644_000.0);
        let expected = run["ops_per_s"].as_f64().unwrap() / 644_000.0 - 1.0;
        assert!((run["relative_error"].as_f64().unwrap() - expected).abs() < 1e-12);
    }
}
