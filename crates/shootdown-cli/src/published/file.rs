//! Reads a file of published rows: each entry with its line, so that errors can be located.
//!
//! Owns the syntax and which keys belong together. The simulator decides whether a row can be run.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::Deserialize;
use shootdown_sim::os::Latencies;
use toml::Spanned;

use super::{Beside, Explanation, Metric, Note, Published, Reference, Tables};
use crate::runs::plan::Settings;

/// A row of the file: exactly one number, or a pair of numbers whose quotient counts.
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
    kernel: Option<String>,
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
    flush_share: Option<f64>,
    seconds: Option<f64>,
    time_ratio: Option<[f64; 2]>,
    rate_ratio: Option<[f64; 2]>,
    p50_us: Option<f64>,
    p99_us: Option<f64>,
    #[serde(default)]
    fitted: bool,
    source: String,
    explanation: Option<String>,
}

/// An explanation that rows name.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Named {
    name: String,
    cause: String,
    settled_by: String,
}

impl Row {
    /// A measured quantity that a row may have: the key, the metric, and the number if it is present, in the unit of
    /// the metric.
    fn numbers(&self) -> [(&'static str, Metric, Option<f64>); Metric::ALL.len()] {
        let ratio = |pair: Option<[f64; 2]>| pair.map(|[number, over]| number / over);
        let thousands = |number: Option<f64>| number.map(|number| number * 1e3);
        [
            ("kloops_per_s", Metric::OpsPerS, thousands(self.kloops_per_s)),
            ("ns_per_op", Metric::NsPerOp, self.ns_per_op),
            ("interrupts_per_op", Metric::InterruptsPerOp, self.interrupts_per_op),
            ("idle_share", Metric::IdleShare, self.idle_share),
            ("flush_share", Metric::FlushShare, self.flush_share),
            ("seconds", Metric::Seconds, self.seconds),
            ("time_ratio", Metric::TimeRatio, ratio(self.time_ratio)),
            ("rate_ratio", Metric::RateRatio, ratio(self.rate_ratio)),
            ("p50_us", Metric::P50Ns, thousands(self.p50_us)),
            ("p99_us", Metric::P99Ns, thousands(self.p99_us)),
        ]
    }

    /// The row, if it has exactly one number and the keys that belong to it.
    fn checked(self, explanations: &BTreeMap<String, Explanation>) -> Result<Published, String> {
        let numbers = self.numbers();
        let mut given = numbers
            .iter()
            .filter_map(|(key, metric, value)| Some((*key, *metric, (*value)?)));
        let (Some((key, metric, value)), None) = (given.next(), given.next()) else {
            let known = numbers.map(|(key, ..)| key).join(", ");
            return Err(format!(
                "row: expected exactly one of {known}; give each number a row of its own"
            ));
        };
        let share = [Metric::IdleShare, Metric::FlushShare].contains(&metric);
        if !(value.is_finite() && value > 0.0 && (!share || value <= 1.0)) {
            let most = if share { ", at most 1" } else { "" };
            return Err(format!(
                "{key}: expected a number above 0{most}; errors are relative to it"
            ));
        }
        let latency = [Metric::P50Ns, Metric::P99Ns].contains(&metric);
        let ratio = [Metric::TimeRatio, Metric::RateRatio].contains(&metric);
        for (companion, given, needed) in [
            ("over", self.over.is_some(), ratio),
            ("operations", self.operations.is_some(), metric == Metric::Seconds),
            ("distribution", self.distribution.is_some(), latency),
        ] {
            if given && !needed {
                return Err(format!("{companion}: does not belong to `{key}`; leave it out"));
            }
            if needed && !given {
                return Err(format!("{companion}: is missing beside `{key}`; add it"));
            }
        }
        if let Some(name) = &self.distribution {
            let known = Latencies::default().all().map(|(name, _)| name);
            if !known.contains(&&**name) {
                let name = name.escape_debug();
                return Err(format!(
                    "distribution: `{name}` is not known; use one of: {}",
                    known.join(", ")
                ));
            }
        }
        let explanation = match &self.explanation {
            Some(name) => Some(explanations.get(name).cloned().ok_or_else(|| {
                let name = name.escape_debug();
                format!("explanation: `{name}` is not known; add an [[explanation]] with that name")
            })?),
            None => None,
        };
        Ok(Published {
            table: self.table,
            workload: self.workload,
            machine: self.machine,
            design: self.design,
            threads: self.threads,
            lru_drain: self.lru_drain,
            kernel: self.kernel.or_else(|| release_in(&self.source)),
            set: self.set,
            virtual_ms: self.virtual_ms,
            over: self.over,
            operations: self.operations,
            distribution: self.distribution,
            metric,
            value,
            fitted: self.fitted,
            source: self.source,
            explanation,
        })
    }
}

/// The text without its line breaks.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The release that a source names, as in `v5.17` or `Linux 6.18`.
fn release_in(source: &str) -> Option<String> {
    source
        .split(|c: char| !c.is_ascii_alphanumeric() && c != '.')
        .find_map(|word| {
            let word = word.strip_prefix('v').unwrap_or(word).trim_end_matches('.');
            let (major, minor) = word.split_once('.')?;
            let known = [2..=7, 0..=99]
                .iter()
                .zip([major, minor])
                .all(|(range, number)| number.parse::<u32>().is_ok_and(|number| range.contains(&number)));
            let named = source.contains(&format!("v{word}")) || source.contains(&format!("Linux {word}"));
            (known && named).then(|| word.to_string())
        })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    row: Vec<Spanned<Row>>,
    #[serde(default)]
    beside: Vec<Spanned<Beside>>,
    #[serde(default)]
    note: Vec<Spanned<Note>>,
    #[serde(default)]
    explanation: Vec<Named>,
}

/// The error and its line, from 1.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Complaint {
    pub(super) line: usize,
    pub(super) what: String,
}

/// The content of a file, with the line of each row and of each additional design.
#[derive(Debug)]
pub(super) struct Entries {
    pub(super) tables: Tables,
    row_lines: Vec<usize>,
    beside_lines: Vec<usize>,
}

/// Reads `text`, every entry checked against the keys and the other entries.
pub(super) fn parse(text: &str) -> Result<Entries, Complaint> {
    let complaint = |span: Option<Range<usize>>, what: String| Complaint {
        line: line_of(text, span.map_or(text.len(), |span| span.start)),
        what,
    };
    let file: File = toml::from_str(text).map_err(|error| {
        let message = error.message().split_whitespace().collect::<Vec<_>>().join(" ");
        complaint(error.span(), message)
    })?;
    if file.row.is_empty() {
        return Err(complaint(
            None,
            "there is no row; write at least one [[row]]".to_string(),
        ));
    }
    let explanations = file.explanation.into_iter().map(|named| {
        let explanation = Explanation {
            cause: one_line(&named.cause),
            settled_by: one_line(&named.settled_by),
        };
        (named.name, explanation)
    });
    let explanations: BTreeMap<String, Explanation> = explanations.collect();
    let (mut rows, mut row_lines) = (Vec::<Published>::new(), Vec::new());
    for row in file.row {
        let span = row.span();
        row_lines.push(line_of(text, span.start));
        let checked = row.into_inner().checked(&explanations);
        rows.push(checked.map_err(|what| complaint(Some(span), what))?);
    }
    let unused = explanations.iter().find(|(_, explanation)| {
        let is_its = |row: &Published| row.explanation.as_ref() == Some(explanation);
        !rows.iter().any(is_its)
    });
    if let Some((name, _)) = unused {
        let what = format!("no row has the explanation `{name}`; name it in a [[row]], or remove it");
        return Err(complaint(None, what));
    }
    let (mut beside, mut beside_lines) = (Vec::new(), Vec::new());
    for entry in file.beside {
        let (span, entry) = (entry.span(), entry.into_inner());
        let first = rows
            .iter()
            .find(|row| row.table == entry.table && row.workload == entry.workload);
        let Some(first) = first else {
            let what = format!(
                "beside: table {} has no row of `{}` to be run as; name a table and a workload of a [[row]]",
                entry.table, entry.workload
            );
            return Err(complaint(Some(span), what));
        };
        beside_lines.push(line_of(text, span.start));
        beside.push(Published {
            design: entry.design,
            fitted: false,
            ..first.clone()
        });
    }
    let mut notes = Vec::new();
    for note in file.note {
        let (span, note) = (note.span(), note.into_inner());
        if rows.iter().all(|row| row.table != note.table) {
            let what = format!("note: table {} has no row; name the table of a [[row]]", note.table);
            return Err(complaint(Some(span), what));
        }
        notes.push(note);
    }
    Ok(Entries {
        tables: Tables { rows, beside, notes },
        row_lines,
        beside_lines,
    })
}

impl Entries {
    /// Checks that the simulator supports every row and every additional design.
    pub(super) fn check_runs(&self) -> Result<(), Complaint> {
        let settings = Settings {
            seed: 1,
            runs: 1,
            jobs: 1,
            virtual_ms: None,
        };
        let Tables { rows, beside, .. } = &self.tables;
        let lines = self.row_lines.iter().chain(&self.beside_lines);
        for (row, &line) in rows.iter().chain(beside).zip(lines) {
            for row in [Some(row.clone()), row.reference()].into_iter().flatten() {
                let found = row.spec(&settings).map_err(|failure| failure.line());
                let checked = found.and_then(|spec| shootdown_sim::run::validate(&spec));
                checked.map_err(|what| Complaint {
                    line,
                    what: as_keys(&what),
                })?;
            }
        }
        Ok(())
    }
}

/// An error about command-line options as one about the keys of a row.
fn as_keys(what: &str) -> String {
    what.replace(", or scale the machine with --cpus", ", or name a larger machine")
        .replace("--threads ", "threads = ")
        .replace("--virtual-ms", "virtual_ms")
        .replace("--set ", "set: ")
}

fn line_of(text: &str, at: usize) -> usize {
    let before = text.as_bytes().iter().take(at);
    1 + before.filter(|byte| **byte == b'\n').count()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROW: &str = "# Mine.\n\n\
        [[row]]\n\
        table = \"lab\"\n\
        workload = \"tlb_flush2\"\n\
        machine = \"milan-72\"\n\
        design = \"ipi\"\n\
        threads = 1\n\
        source = \"s\"\n";

    /// A file of one row, with `more` lines from the tenth on.
    fn with(more: &str) -> Result<Entries, Complaint> {
        parse(&format!("{ROW}{more}\n"))
    }

    fn only(more: &str) -> (Metric, f64) {
        let row = &with(more).unwrap().tables.rows[0];
        (row.metric, row.value)
    }

    #[track_caller]
    fn refused(more: &str, line: usize, expected: &str) {
        let complaint = with(more).unwrap_err();
        assert!(
            complaint.line == line && complaint.what.contains(expected),
            "{complaint:?}"
        );
    }

    #[test]
    fn a_row_has_exactly_one_number() {
        assert_eq!(only("ns_per_op = 5"), (Metric::NsPerOp, 5.0));
        assert_eq!(only("kloops_per_s = 3"), (Metric::OpsPerS, 3e3));
        assert_eq!(only("flush_share = 0.4"), (Metric::FlushShare, 0.4));
        assert_eq!(only("distribution = \"flush\"\np50_us = 9"), (Metric::P50Ns, 9e3));
        refused("", 3, "expected exactly one of kloops_per_s, ns_per_op,");
        refused("ns_per_op = 5\nidle_share = 0.5", 3, "a row of its own");
        refused("ns_per_op = 0", 3, "ns_per_op: expected a number above 0");
        refused("idle_share = 40", 3, "at most 1");
    }

    #[test]
    fn unrunnable_row_error_names_keys_not_options() {
        for (row, expected) in [
            (
                ROW.replace("threads = 1", "threads = 400"),
                "threads = 400: milan-72 has 72 CPUs; give at most 72",
            ),
            (ROW.replace("threads = 1", "threads = 0"), "threads = 0"),
            (format!("{ROW}set = [\"costs.invlpg=-1\"]\n"), "set: costs.invlpg=-1"),
            (format!("{ROW}virtual_ms = 1e9\n"), "virtual_ms: expected"),
        ] {
            let complaint = parse(&format!("{row}ns_per_op = 5\n"))
                .unwrap()
                .check_runs()
                .unwrap_err();
            assert!(complaint.what.contains(expected), "{complaint:?}");
            assert!(!complaint.what.contains("--"), "{complaint:?}");
        }
    }

    #[test]
    fn denominator_of_a_ratio_may_have_its_own_window() {
        let own = |ms| format!("over = {{ design = \"ipi\", threads = 1, virtual_ms = {ms} }}\nrate_ratio = [1, 2]");
        let rows = with(&own("240")).unwrap().tables.rows;
        assert_eq!(rows[0].reference().unwrap().virtual_ms, Some(240.0));
        let complaint = with(&own("1e9")).unwrap().check_runs().unwrap_err();
        assert!(complaint.what.contains("virtual_ms: expected"), "{complaint:?}");
    }

    #[test]
    fn each_metric_requires_exactly_its_keys() {
        let over = "over = { design = \"broadcast\", threads = 2 }";
        assert_eq!(only(&format!("{over}\ntime_ratio = [3, 2]")), (Metric::TimeRatio, 1.5));
        refused("time_ratio = [3, 2]", 3, "over: is missing beside `time_ratio`");
        refused(
            &format!("{over}\nns_per_op = 5"),
            3,
            "over: does not belong to `ns_per_op`",
        );
        refused("p99_us = 5", 3, "distribution: is missing");
        refused(
            "ns_per_op = 5\nexplanation = \"why\"",
            3,
            "explanation: `why` is not known",
        );
        refused(
            "p99_us = 5\ndistribution = \"naps\"",
            3,
            "`naps` is not known; use one of: flush,",
        );
    }

    #[test]
    fn explanation_belongs_to_a_row() {
        let why = "[[explanation]]\nname = \"why\"\ncause = \"It is.\"\nsettled_by = \"A look.\"\n";
        let named = with(&format!("ns_per_op = 5\nexplanation = \"why\"\n{why}")).unwrap();
        assert!(named.tables.rows[0].explanation.is_some());
        let unused = with(&format!("ns_per_op = 5\n{why}")).unwrap_err();
        assert!(unused.what.contains("no row has the explanation `why`"), "{unused:?}");
    }

    #[test]
    fn kernel_release_is_given_or_read_from_the_source() {
        let kernel = |more: &str| with(more).unwrap().tables.rows[0].kernel.clone();
        assert_eq!(kernel("ns_per_op = 5"), None);
        assert_eq!(kernel("ns_per_op = 5\nkernel = \"6.4\"").as_deref(), Some("6.4"));
        assert_eq!(
            release_in("a series, +Patch (v5.17+); 2.5 GHz").as_deref(),
            Some("5.17")
        );
        assert_eq!(release_in("AMD Zen 5 host, Linux 6.18").as_deref(), Some("6.18"));
        assert_eq!(release_in("mean of 9.5, 2x Xeon 8358"), None);
        let complaint = parse(&format!("{ROW}ns_per_op = 5\nkernel = \"new\"\n"))
            .unwrap()
            .check_runs();
        assert!(complaint.unwrap_err().what.contains("expected a release of Linux"));
    }

    #[test]
    fn syntax_errors_name_their_line() {
        refused(
            "ns_per_op = 5\nns_per_hop = 5",
            11,
            "unknown field `ns_per_hop`, expected one of",
        );
        refused("ns_per_op = five", 10, "");
        refused("ns_per_op = 5\n[[rows]]", 11, "unknown field `rows`");
        let missing = parse("\n[[row]]\ntable = \"lab\"\n").unwrap_err();
        assert_eq!((missing.line, &*missing.what), (2, "missing field `workload`"));
        let empty = parse("# nothing\n").unwrap_err();
        assert!(empty.what.contains("there is no row"), "{empty:?}");
    }

    #[test]
    fn beside_rows_and_notes_belong_to_a_table() {
        let row = "ns_per_op = 5\n";
        let beside = "[[beside]]\ntable = \"lab\"\nworkload = \"tlb_flush2\"\ndesign = \"adaptive\"\n";
        let note = "[[note]]\ntable = \"lab\"\ntext = \"read this\"";
        let tables = with(&format!("{row}{beside}{note}")).unwrap().tables;
        assert_eq!((tables.beside.len(), tables.notes.len()), (1, 1));
        assert_eq!((&*tables.beside[0].design, tables.beside[0].threads), ("adaptive", 1));
        let elsewhere = beside.replace("lab", "attic");
        refused(
            &format!("{row}{elsewhere}"),
            11,
            "table attic has no row of `tlb_flush2`",
        );
        refused(
            &format!("{row}{}", note.replace("lab", "attic")),
            11,
            "table attic has no row",
        );
    }

    #[test]
    fn unrunnable_row_is_refused_with_its_line() {
        let complaint = |text: &str| parse(text).unwrap().check_runs().unwrap_err();
        let good = format!("{ROW}ns_per_op = 5\n");
        assert_eq!(parse(&good).unwrap().check_runs(), Ok(()));
        for (there, instead, expected) in [
            (
                "milan-72",
                "abacus",
                "abacus: unknown machine; expected one of milan-72",
            ),
            (
                "tlb_flush2",
                "naps",
                "workload `naps` is not known; use one of: tlb_flush2",
            ),
            ("\"ipi\"", "\"smoke\"", "design `smoke` is not known"),
            ("threads = 1", "threads = 73", "milan-72 has 72 CPUs"),
            ("source", "set = [\"costs.foo=1\"]\nsource", "unknown parameter"),
        ] {
            let found = complaint(&good.replace(there, instead));
            assert!(found.line == 3 && found.what.contains(expected), "{found:?}");
        }
        let ratio = "over = { design = \"smoke\", threads = 1 }\nrate_ratio = [1, 2]\n";
        assert!(complaint(&format!("{ROW}{ratio}")).what.contains("`smoke`"));
        let beside = "[[beside]]\ntable = \"lab\"\nworkload = \"tlb_flush2\"\ndesign = \"smoke\"\n";
        assert_eq!(complaint(&format!("{good}{beside}")).line, 11);
    }
}
