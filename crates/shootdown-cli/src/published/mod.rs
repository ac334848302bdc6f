//! The published measurements: those embedded from `evidence/published.toml`, and those of a user's own file.

mod file;

use std::fs;
use std::io::Read;
use std::path::Path;

use serde::Deserialize;
use shootdown_sim::model::Model;
use shootdown_sim::run::{self, PARAMETER_PREFIX, Parameters, RunSpec};

use crate::catalog;
use crate::failure::{Failure, unread};
use crate::runs::plan::Settings;
use crate::runs::target::{RELEASE, Target};

/// The measured quantity, and the unit of its numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Metric {
    /// Operations per second, all threads together.
    OpsPerS,
    /// Nanoseconds per operation, where one thread does all operations.
    NsPerOp,
    /// Interrupts taken per operation.
    InterruptsPerOp,
    /// Share of CPU time that the CPUs of the threads are idle, 0 to 1.
    IdleShare,
    /// Share of CPU time spent on invalidation, requesters and targets, 0 to 1.
    FlushShare,
    /// Seconds that a given number of operations takes.
    Seconds,
    /// Time of the same work, divided by that of another measurement.
    TimeRatio,
    /// Operations per second, divided by those of another measurement.
    RateRatio,
    /// Nanoseconds that half of the samples of a latency distribution do not exceed.
    P50Ns,
    /// Nanoseconds that 99 of 100 samples of a latency distribution do not exceed.
    P99Ns,
}

impl Metric {
    /// Whether it is a rate, or the time that something takes.
    pub fn is_rate(self) -> bool {
        matches!(self, Metric::OpsPerS | Metric::NsPerOp | Metric::Seconds)
    }

    /// Whether it is a share of time, of which a relative error says little if the share is small.
    pub fn is_share(self) -> bool {
        matches!(self, Metric::IdleShare | Metric::FlushShare)
    }

    /// All, in the order of their declaration.
    pub const ALL: [Metric; 10] = [
        Metric::OpsPerS,
        Metric::NsPerOp,
        Metric::InterruptsPerOp,
        Metric::IdleShare,
        Metric::FlushShare,
        Metric::Seconds,
        Metric::TimeRatio,
        Metric::RateRatio,
        Metric::P50Ns,
        Metric::P99Ns,
    ];

    /// Its name for programs, with the unit.
    pub const fn name(self) -> &'static str {
        match self {
            Metric::OpsPerS => "ops_per_s",
            Metric::NsPerOp => "ns_per_op",
            Metric::InterruptsPerOp => "interrupts_per_op",
            Metric::IdleShare => "idle_share",
            Metric::FlushShare => "flush_share",
            Metric::Seconds => "seconds",
            Metric::TimeRatio => "time_ratio",
            Metric::RateRatio => "rate_ratio",
            Metric::P50Ns => "p50_ns",
            Metric::P99Ns => "p99_ns",
        }
    }
}

/// The denominator of a ratio: the same measurement except for these.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reference {
    /// Design preset.
    pub design: String,
    /// Threads.
    pub threads: usize,
    /// Its settings that differ from those of the row.
    pub set: Option<Vec<String>>,
    /// Its window, if it is not that of the row.
    pub virtual_ms: Option<f64>,
}

/// One published measurement.
#[derive(Debug, Clone, PartialEq)]
pub struct Published {
    /// The table it belongs to (`E1`).
    pub table: String,
    /// The workload, by this program's name.
    pub workload: String,
    /// The machine model that stands for the measured machine: a name, in a user's own file also a path.
    pub machine: String,
    /// The design preset that stands for the measured kernel.
    pub design: String,
    /// Threads.
    pub threads: usize,
    /// Whether each madvise drained the LRU batch under the LRU lock.
    pub lru_drain: bool,
    /// The measured release of Linux, such as `6.4`, if known.
    pub kernel: Option<String>,
    /// Settings of the machine model or the workload that differ in this measurement, as `path=value`.
    pub set: Vec<String>,
    /// Virtual milliseconds that this row needs, if not the usual window: for rare events.
    pub virtual_ms: Option<f64>,
    /// The denominator of a ratio; for ratios only.
    pub over: Option<Reference>,
    /// Operations of the published program, all threads together; given for [`Metric::Seconds`] only.
    pub operations: Option<f64>,
    /// Name of the latency distribution; given for [`Metric::P50Ns`] and [`Metric::P99Ns`] only.
    pub distribution: Option<String>,
    /// The measured quantity.
    pub metric: Metric,
    /// The number, in the unit of `metric`.
    pub value: f64,
    /// Whether machine-model parameters were fitted on this row.
    pub fitted: bool,
    /// The measured quantity, in words.
    pub source: String,
    /// Why the simulation is off by much, where it is known to be.
    pub explanation: Option<Explanation>,
}

/// Why a simulated number is far from the published one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    /// What the model gets wrong, or what is not known of the measurement; whole sentences.
    pub cause: String,
    /// The measurement that would settle it; whole sentences.
    pub settled_by: String,
}

impl Published {
    /// Why this program cannot run the row, if so.
    pub fn not_run(&self) -> Option<String> {
        if catalog::workload(&self.workload).is_none() {
            return Some(format!("there is no workload `{}`", self.workload));
        }
        let over = self.over.iter().map(|reference| &reference.design);
        if let Some(design) = over.chain([&self.design]).find(|name| catalog::design(name).is_none()) {
            return Some(format!("there is no design `{design}`"));
        }
        if !Model::builtin_names().contains(&&*self.machine) && Model::find(&self.machine).is_err() {
            return Some(format!("there is no machine `{}`", self.machine));
        }
        None
    }

    /// The measurement that is this one's denominator, as a row.
    pub fn reference(&self) -> Option<Published> {
        self.over.as_ref().map(|over| Published {
            design: over.design.clone(),
            threads: over.threads,
            set: over.set.clone().unwrap_or_else(|| self.set.clone()),
            virtual_ms: over.virtual_ms.or(self.virtual_ms),
            ..self.clone()
        })
    }

    /// Whether it was measured with the workload's `parameters`, on a machine that needs no change of its model.
    pub fn is_of_workload_with(&self, parameters: &Parameters) -> bool {
        let of_workload = |set: &String| set.starts_with(PARAMETER_PREFIX);
        let same = |own: &Parameters| run::parameters().all(|known| own.get(known) == parameters.get(known));
        parameters.design().is_empty()
            && self.set.iter().all(of_workload)
            && Target::new(&self.machine, None, &self.set).is_ok_and(|target| same(&target.parameters))
    }

    /// The first run of this row.
    ///
    /// # Errors
    /// A machine or a number that does not exist.
    pub fn spec(&self, settings: &Settings) -> Result<RunSpec, Failure> {
        let kernel = self.kernel.iter().map(|release| format!("{RELEASE}={release}"));
        let set: Vec<String> = kernel.chain(self.set.iter().cloned()).collect();
        let target = Target::new(&self.machine, None, &set)?;
        Ok(RunSpec {
            workload: self.workload.clone(),
            machine: target.machine,
            design: self.design.clone(),
            threads: self.threads,
            seed: settings.seed,
            virtual_ms: settings.virtual_ms.or(self.virtual_ms),
            lru_drain: self.lru_drain,
            parameters: target.parameters,
        })
    }
}

/// A design without published rates, run as the first row of a table was and shown under it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Beside {
    /// The table.
    pub table: String,
    /// Names as in the first row of the table that is of this workload.
    pub workload: String,
    /// The design.
    pub design: String,
}

/// A note for readers of a table.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Note {
    /// The table.
    pub table: String,
    /// The note, one paragraph.
    pub text: String,
}

/// The published tables of one file.
#[derive(Debug, Clone, PartialEq)]
pub struct Tables {
    /// Every row, in the order of the file.
    pub rows: Vec<Published>,
    /// Every design that is shown beside published ones, as the row that it would be; its `value` is that of the row it
    /// is modelled on and has no meaning.
    pub beside: Vec<Published>,
    /// Notes on the tables.
    pub notes: Vec<Note>,
}

/// Largest file of rows that is read, bytes: rejects a device or a disk image.
const MOST_BYTES: u64 = 1 << 20;

impl Tables {
    /// The embedded rows. A test parses them, so an error cannot reach a user.
    pub fn embedded() -> Self {
        let text = include_str!("../../../../evidence/published.toml");
        file::parse(text).expect("embedded evidence/published.toml").tables
    }

    /// The rows of a user's own file, all of which can be run.
    ///
    /// # Errors
    /// One line naming the file, the line and the remedy.
    pub fn read(path: &Path) -> Result<Self, Failure> {
        let name = path.display();
        let fail = |what: &str| Failure::Input(format!("{name}: {what}"));
        let mut text = String::new();
        fs::File::open(path)
            .and_then(|file| file.take(MOST_BYTES + 1).read_to_string(&mut text))
            .map_err(|error| fail(&unread(&error)))?;
        if text.len() as u64 > MOST_BYTES {
            return Err(fail("is larger than 1 MiB; is it the right file?"));
        }
        let entries = file::parse(&text).and_then(|entries| entries.check_runs().map(|()| entries));
        let entries = entries.map_err(|file::Complaint { line, what }| {
            // Names come from the file, and may contain line breaks.
            let what = what.split_whitespace().collect::<Vec<_>>().join(" ");
            Failure::Input(format!(
                "{name}:{line}: {what} (the format: `shootdown evidence --help`)"
            ))
        })?;
        Ok(entries.tables)
    }
}

/// Every embedded row, in the order of the file.
pub fn rows() -> Vec<Published> {
    Tables::embedded().rows
}

/// The published rate of a design at a thread count among `rows`, in operations per second, if there is one.
pub fn lookup(rows: &[Published], design: &str, threads: usize) -> Option<f64> {
    rows.iter()
        .find(|row| row.metric == Metric::OpsPerS && row.design == design && row.threads == threads)
        .map(|row| row.value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use shootdown_sim::run::Workload;

    #[test]
    fn few_rows_are_fitted_on_each_machine() {
        let rows = rows();
        let fitted = |machine: &str| -> Vec<_> {
            rows.iter()
                .filter(|row| row.fitted && row.machine == machine)
                .map(|row| (&*row.design, row.threads, row.lru_drain))
                .collect()
        };
        assert_eq!(
            fitted("milan-72"),
            [("ipi", 1, false), ("broadcast", 16, false), ("ipi", 36, true)]
        );
        for machine in rows.iter().map(|row| &row.machine).filter(|name| *name != "milan-72") {
            assert!(fitted(machine).len() <= 2, "{machine}");
        }
    }

    #[test]
    fn virtual_machine_rows_run_and_none_is_fitted() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../evidence/virtual-machines.toml");
        let tables = Tables::read(&file).unwrap();
        let settings = Settings {
            seed: 1,
            runs: 1,
            jobs: 1,
            virtual_ms: None,
        };
        assert!(tables.rows.len() >= 10);
        for row in tables
            .rows
            .iter()
            .flat_map(|row| [Some(row.clone()), row.reference()])
            .flatten()
        {
            let spec = row.spec(&settings).unwrap();
            assert!(
                spec.machine.vm.is_some() && !row.fitted && row.not_run().is_none(),
                "{row:?}"
            );
            run::validate(&spec).unwrap();
        }
    }

    #[test]
    fn rows_that_models_were_fitted_on_are_marked_fitted() {
        let rows = rows();
        for name in Model::builtin_names() {
            let model = Model::find(name).unwrap();
            for parameter in model.parameters() {
                let shown = parameter.provenance.to_string();
                let Some(on) = shown.strip_prefix("fitted on ") else {
                    continue;
                };
                let table = &on[..2];
                assert!(
                    rows.iter().any(|row| row.fitted && row.table == table),
                    "{name}: {shown}, but no row of {table} is marked so"
                );
            }
        }
    }

    #[test]
    fn published_rows_are_unique() {
        let rows = rows();
        for (index, row) in rows.iter().enumerate() {
            let same = |other: &Published| {
                (&other.workload, &other.machine, &other.design) == (&row.workload, &row.machine, &row.design)
                    && (other.threads, other.lru_drain, other.metric) == (row.threads, row.lru_drain, row.metric)
                    && other.set == row.set
            };
            assert!(
                !rows[..index].iter().any(same),
                "row {index} is hidden by an earlier one"
            );
        }
    }

    #[test]
    fn runnable_rows_fit_their_machine_and_others_have_a_reason() {
        let settings = Settings {
            seed: 1,
            runs: 1,
            jobs: 1,
            virtual_ms: None,
        };
        for row in rows() {
            assert!(row.value > 0.0 && row.threads > 0, "{row:?}");
            match row.not_run() {
                None => assert!(
                    row.threads <= row.spec(&settings).unwrap().machine.topology.cpus()
                        || Workload::named(&row.workload).unwrap().oversubscribes(),
                    "{row:?}"
                ),
                Some(reason) => assert!(reason.contains('`'), "{reason}"),
            }
        }
    }

    #[test]
    fn tables_e1_to_e10_have_runnable_rows() {
        let rows = rows();
        for number in 1..=10 {
            let table = format!("E{number}");
            let of_table: Vec<_> = rows.iter().filter(|row| row.table == table).collect();
            assert!(!of_table.is_empty(), "{table}");
            for row in of_table {
                assert_eq!(row.not_run(), None, "{table}");
            }
        }
        assert!(Tables::embedded().beside.iter().all(|row| row.not_run().is_none()));
    }
}
