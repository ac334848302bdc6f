//! The published measurements, embedded from `evidence/published.toml`.

use serde::Deserialize;
use shootdown_sim::model::Model;
use shootdown_sim::run::RunSpec;

use crate::catalog;
use crate::failure::Failure;
use crate::plan::Settings;
use crate::target::Target;

/// What was measured, and the unit that its numbers are in.
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
    /// Seconds that a given number of operations takes.
    Seconds,
    /// Time of the same work, over the time it takes in another measurement.
    TimeRatio,
    /// Operations per second, over those of another measurement.
    RateRatio,
    /// Nanoseconds that 99 of 100 samples of a latency distribution do not exceed.
    P99Ns,
}

impl Metric {
    /// All, in the order of their declaration.
    pub const ALL: [Metric; 8] = [
        Metric::OpsPerS,
        Metric::NsPerOp,
        Metric::InterruptsPerOp,
        Metric::IdleShare,
        Metric::Seconds,
        Metric::TimeRatio,
        Metric::RateRatio,
        Metric::P99Ns,
    ];

    /// Its name for programs, with the unit.
    pub const fn name(self) -> &'static str {
        match self {
            Metric::OpsPerS => "ops_per_s",
            Metric::NsPerOp => "ns_per_op",
            Metric::InterruptsPerOp => "interrupts_per_op",
            Metric::IdleShare => "idle_share",
            Metric::Seconds => "seconds",
            Metric::TimeRatio => "time_ratio",
            Metric::RateRatio => "rate_ratio",
            Metric::P99Ns => "p99_ns",
        }
    }
}

/// The measurement that a ratio is over: the same but for these.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reference {
    /// Design preset.
    pub design: String,
    /// Threads.
    pub threads: usize,
}

/// One published measurement.
#[derive(Debug, Clone, PartialEq)]
pub struct Published {
    /// The table it belongs to (`E1`).
    pub table: String,
    /// The workload, as this program calls it.
    pub workload: String,
    /// The machine model that stands for the measured machine.
    pub machine: String,
    /// The design preset that stands for the measured kernel.
    pub design: String,
    /// Threads.
    pub threads: usize,
    /// Whether each madvise drained the LRU batch under the LRU lock.
    pub lru_drain: bool,
    /// Numbers of the machine model or the workload that were different in this measurement, as `path=value`.
    pub set: Vec<String>,
    /// Virtual milliseconds that this row needs, if not the usual window: for what is rare.
    pub virtual_ms: Option<f64>,
    /// What a ratio is over; given for ratios only.
    pub over: Option<Reference>,
    /// Operations of the published program, all threads together; given for [`Metric::Seconds`] only.
    pub operations: Option<f64>,
    /// Name of the latency distribution; given for [`Metric::P99Ns`] only.
    pub distribution: Option<String>,
    /// What was measured.
    pub metric: Metric,
    /// The number, in the unit of `metric`.
    pub value: f64,
    /// Whether machine-model parameters were fitted on this row.
    pub fitted: bool,
    /// What was measured, in words.
    pub source: String,
}

impl Published {
    /// Why this row cannot be run by this program, if so.
    pub fn not_run(&self) -> Option<String> {
        if catalog::workload(&self.workload).is_none() {
            return Some(format!("there is no workload `{}`", self.workload));
        }
        let over = self.over.iter().map(|reference| &reference.design);
        if let Some(design) = over.chain([&self.design]).find(|name| catalog::design(name).is_none()) {
            return Some(format!("there is no design `{design}`"));
        }
        if !Model::builtin_names().contains(&&*self.machine) {
            return Some(format!("there is no machine `{}`", self.machine));
        }
        None
    }

    /// The measurement that this one's ratio is over, as a row.
    pub fn reference(&self) -> Option<Published> {
        self.over.as_ref().map(|over| Published {
            design: over.design.clone(),
            threads: over.threads,
            ..self.clone()
        })
    }

    /// The first run of this row.
    ///
    /// # Errors
    /// A machine or a number that does not exist.
    pub fn spec(&self, settings: &Settings) -> Result<RunSpec, Failure> {
        let target = Target::new(&self.machine, None, &self.set)?;
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

/// A row as the file has it: exactly one number, or pair of numbers whose quotient counts.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    table: String,
    workload: String,
    machine: String,
    design: String,
    threads: usize,
    #[serde(default)]
    lru_drain: bool,
    #[serde(default)]
    set: Vec<String>,
    virtual_ms: Option<f64>,
    over: Option<Reference>,
    operations: Option<f64>,
    distribution: Option<String>,
    kloops_per_s: Option<f64>,
    ns_per_op: Option<f64>,
    interrupts_per_op: Option<f64>,
    idle_share: Option<f64>,
    seconds: Option<f64>,
    time_ratio: Option<[f64; 2]>,
    rate_ratio: Option<[f64; 2]>,
    p99_ms: Option<f64>,
    #[serde(default)]
    fitted: bool,
    source: String,
}

impl TryFrom<Row> for Published {
    type Error = String;

    fn try_from(row: Row) -> Result<Self, String> {
        let given = [
            (Metric::OpsPerS, row.kloops_per_s.map(|thousands| thousands * 1e3)),
            (Metric::NsPerOp, row.ns_per_op),
            (Metric::InterruptsPerOp, row.interrupts_per_op),
            (Metric::IdleShare, row.idle_share),
            (Metric::Seconds, row.seconds),
            (Metric::TimeRatio, row.time_ratio.map(|[time, over]| time / over)),
            (Metric::RateRatio, row.rate_ratio.map(|[rate, over]| rate / over)),
            (Metric::P99Ns, row.p99_ms.map(|ms| ms * 1e6)),
        ];
        let mut numbers = given.into_iter().filter_map(|(metric, value)| Some((metric, value?)));
        let (Some((metric, value)), None) = (numbers.next(), numbers.next()) else {
            return Err(format!("{}, {}: expected exactly one number", row.table, row.source));
        };
        let goes_with = [
            (
                "over",
                row.over.is_some(),
                [Metric::TimeRatio, Metric::RateRatio].contains(&metric),
            ),
            ("operations", row.operations.is_some(), metric == Metric::Seconds),
            ("distribution", row.distribution.is_some(), metric == Metric::P99Ns),
        ];
        if let Some((key, given, _)) = goes_with.iter().find(|(_, given, needed)| given != needed) {
            let trouble = if *given {
                "does not belong to"
            } else {
                "is missing beside"
            };
            return Err(format!("{}, {}: `{key}` {trouble} this number", row.table, row.source));
        }
        Ok(Published {
            table: row.table,
            workload: row.workload,
            machine: row.machine,
            design: row.design,
            threads: row.threads,
            lru_drain: row.lru_drain,
            set: row.set,
            virtual_ms: row.virtual_ms,
            over: row.over,
            operations: row.operations,
            distribution: row.distribution,
            metric,
            value,
            fitted: row.fitted,
            source: row.source,
        })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    row: Vec<Row>,
    #[serde(default)]
    beside: Vec<Beside>,
    #[serde(default)]
    note: Vec<Note>,
}

/// A design of which nothing is published, run as the first row of a table was and shown under it.
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

/// What a reader of a table must know.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Note {
    /// The table.
    pub table: String,
    /// The note, one paragraph.
    pub text: String,
}

/// The file is part of the program and a test parses it, so a mistake cannot reach a user.
fn embedded() -> File {
    toml::from_str(include_str!("../../../evidence/published.toml")).expect("embedded evidence/published.toml")
}

fn read(file: File) -> Result<Vec<Published>, String> {
    file.row.into_iter().map(Published::try_from).collect()
}

/// Every design that is shown beside published ones, as the row that it would be; its `value` is that of the row it is
/// modelled on and means nothing.
pub fn beside() -> Vec<Published> {
    let rows = rows();
    let modelled = |beside: Beside| {
        let row = rows
            .iter()
            .find(|row| row.table == beside.table && row.workload == beside.workload)?;
        Some(Published {
            design: beside.design,
            fitted: false,
            ..row.clone()
        })
    };
    embedded().beside.into_iter().filter_map(modelled).collect()
}

/// What must be known of the tables.
pub fn notes() -> Vec<Note> {
    embedded().note
}

/// Every published row, in the order of the file.
pub fn rows() -> Vec<Published> {
    read(embedded()).expect("embedded evidence/published.toml")
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
            [
                ("ipi", 1, false),
                ("ipi", 16, false),
                ("broadcast", 16, false),
                ("ipi", 36, true)
            ]
        );
        for machine in rows.iter().map(|row| &row.machine).filter(|name| *name != "milan-72") {
            assert!(fitted(machine).len() <= 2, "{machine}");
        }
    }

    #[test]
    fn what_a_model_says_it_was_fitted_on_is_marked_as_fitted() {
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
    fn no_two_rows_describe_the_same_number_of_the_same_run() {
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
    fn rows_that_can_be_run_fit_their_machine_and_others_say_why_not() {
        for row in rows() {
            assert!(row.value > 0.0 && row.threads > 0, "{row:?}");
            assert!(row.metric != Metric::IdleShare || row.value < 1.0, "{row:?}");
            match row.not_run() {
                None => assert!(
                    row.threads <= Model::find(&row.machine).unwrap().topology.cpus()
                        || Workload::named(&row.workload).unwrap().oversubscribes(),
                    "{row:?}"
                ),
                Some(reason) => assert!(reason.contains('`'), "{reason}"),
            }
        }
    }

    #[test]
    fn a_row_has_exactly_one_number() {
        let row = |numbers: &str| {
            let text = format!(
                "[[row]]\ntable = \"E0\"\nworkload = \"w\"\nmachine = \"m\"\ndesign = \"d\"\nthreads = 1\n\
                 {numbers}\nsource = \"s\""
            );
            read(toml::from_str(&text).unwrap())
        };
        let one = row("ns_per_op = 5").unwrap();
        assert_eq!((one[0].metric, one[0].value), (Metric::NsPerOp, 5.0));
        assert!(row("").is_err() && row("ns_per_op = 5\nidle_share = 0.5").is_err());
        let over = "over = { design = \"e\", threads = 2 }";
        let ratio = row(&format!("{over}\ntime_ratio = [3, 2]")).unwrap();
        assert_eq!((ratio[0].metric, ratio[0].value), (Metric::TimeRatio, 1.5));
        let error = row("time_ratio = [3, 2]").unwrap_err();
        assert!(error.contains("`over` is missing"), "{error}");
        let error = row(&format!("{over}\nns_per_op = 5")).unwrap_err();
        assert!(error.contains("`over` does not belong"), "{error}");
    }

    #[test]
    fn what_stands_beside_and_what_is_noted_belongs_to_a_table() {
        let rows = rows();
        let given = embedded().beside;
        assert_eq!(
            beside().len(),
            given.len(),
            "one without a row to be modelled on: {given:?}"
        );
        assert!(beside().iter().all(|row| row.not_run().is_none()));
        for note in notes() {
            assert!(rows.iter().any(|row| row.table == note.table), "{note:?}");
        }
    }

    #[test]
    fn every_table_from_one_to_nine_has_rows_that_this_program_can_run() {
        let rows = rows();
        for number in 1..=9 {
            let table = format!("E{number}");
            let of_table: Vec<_> = rows.iter().filter(|row| row.table == table).collect();
            assert!(!of_table.is_empty(), "{table}");
            for row in of_table {
                assert_eq!(row.not_run(), None, "{table}");
            }
        }
    }
}
