//! The results: every mutation with the probe that caught it, sums by file and by tool, and the survivors.

use crate::arguments::{Arguments, Class};
use crate::journal::Entry;
use crate::mutant::Mutant;
use crate::tool::Tool;
use comfy_table::{Cell, CellAlignment, Table, presets};
use serde_json::json;
use std::collections::BTreeMap;

/// The state of a mutation.
pub enum Outcome<'a> {
    /// It was tried.
    Tried(&'a Entry),
    /// There is an argument.
    Argued(Class, &'a str),
    /// It was not tried: the run was stopped before.
    Unknown,
}

/// A mutation, and its state.
pub struct Row<'a> {
    /// The mutation.
    pub mutant: &'a Mutant,
    /// Its state.
    pub outcome: Outcome<'a>,
}

impl Row<'_> {
    /// No probe caught it, and there is no argument.
    pub fn survives(&self) -> bool {
        matches!(self.outcome, Outcome::Tried(entry) if entry.caught.is_none())
    }

    fn cells(&self) -> [String; 4] {
        match &self.outcome {
            Outcome::Tried(Entry {
                caught: Some(caught), ..
            }) => [
                format!("{} {}", caught.tool, caught.probe),
                caught.count.clone(),
                format!("{:.2}", caught.seconds),
                caught.how.clone(),
            ],
            Outcome::Tried(entry) => {
                let uncaught = if entry.probes == 0 {
                    "never executed"
                } else {
                    "SURVIVED"
                };
                [
                    uncaught.into(),
                    format!("{} probes", entry.probes),
                    format!("{:.2}", entry.seconds),
                    String::new(),
                ]
            }
            Outcome::Argued(class, why) => [
                format!("{class:?}").to_lowercase(),
                String::new(),
                String::new(),
                (*why).into(),
            ],
            Outcome::Unknown => ["not tried".into(), String::new(), String::new(), String::new()],
        }
    }
}

/// The known result of every mutation.
pub fn rows<'a>(
    mutants: &[&'a Mutant],
    known: impl Fn(&str) -> Option<&'a Entry>,
    arguments: &'a Arguments,
) -> Vec<Row<'a>> {
    let outcome = |name: &str| match (arguments.about(name), known(name)) {
        (Some((class, why)), entry) if entry.is_none_or(|entry| entry.caught.is_none()) => Outcome::Argued(class, why),
        (_, Some(entry)) => Outcome::Tried(entry),
        _ => Outcome::Unknown,
    };
    mutants
        .iter()
        .map(|mutant| Row {
            mutant,
            outcome: outcome(&mutant.name()),
        })
        .collect()
}

fn table(head: &[&str]) -> Table {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_header(head.iter().map(ToString::to_string));
    table
}

/// The whole table.
pub fn whole(rows: &[Row]) -> String {
    let mut whole = table(&["mutation", "caught by", "after", "s", "what"]);
    for row in rows {
        let mut cells = vec![row.mutant.name()];
        cells.extend(row.cells());
        whole.add_row(cells);
    }
    whole.to_string()
}

/// Sums: a line for each file, and one for all.
pub fn sums(rows: &[Row]) -> String {
    let mut files: BTreeMap<&str, Vec<&Row>> = BTreeMap::new();
    for row in rows {
        files.entry(&row.mutant.file).or_default().push(row);
    }
    let mut head = vec!["file".to_string(), "mutations".into()];
    head.extend(Tool::ALL.iter().map(ToString::to_string));
    head.extend(["equivalent", "harmless", "survive"].map(String::from));
    let mut sums = Table::new();
    sums.load_style(presets::NOTHING).set_header(head);
    let all: Vec<&Row> = rows.iter().collect();
    for (file, rows) in files.into_iter().chain([("all", all)]) {
        let mut cells = vec![Cell::new(file)];
        cells.extend(counts(&rows).map(|count| Cell::new(count).set_alignment(CellAlignment::Right)));
        sums.add_row(cells);
    }
    sums.to_string()
}

fn counts(rows: &[&Row]) -> [usize; 8] {
    let count = |holds: &dyn Fn(&Outcome) -> bool| rows.iter().filter(|row| holds(&row.outcome)).count();
    let by = |tool: Tool| {
        count(&|outcome| matches!(outcome, Outcome::Tried(Entry { caught: Some(caught), .. }) if caught.tool == tool))
    };
    let argued = |class: Class| count(&|outcome| matches!(outcome, Outcome::Argued(of, _) if *of == class));
    let [engine, check, sim, loom] = Tool::ALL.map(by);
    let survive = rows.iter().filter(|row| row.survives()).count();
    let (equivalent, harmless) = (argued(Class::Equivalent), argued(Class::Harmless));
    [rows.len(), engine, check, sim, loom, equivalent, harmless, survive]
}

/// How quickly each tool caught its mutations.
pub fn speeds(rows: &[Row]) -> String {
    let mut speeds = table(&["tool", "caught", "median s", "longest s"]);
    for tool in Tool::ALL {
        let mut seconds: Vec<f64> = rows
            .iter()
            .filter_map(|row| match &row.outcome {
                Outcome::Tried(Entry {
                    caught: Some(caught), ..
                }) if caught.tool == tool => Some(caught.seconds),
                _ => None,
            })
            .collect();
        seconds.sort_by(f64::total_cmp);
        let (Some(longest), Some(median)) = (seconds.last(), seconds.get(seconds.len() / 2)) else {
            continue;
        };
        speeds.add_row([
            tool.to_string(),
            seconds.len().to_string(),
            format!("{median:.2}"),
            format!("{longest:.2}"),
        ]);
    }
    speeds.to_string()
}

/// All of it, for programs.
pub fn as_json(rows: &[Row]) -> serde_json::Value {
    let one = |row: &Row| {
        let Mutant {
            file,
            function,
            kind,
            line,
            ..
        } = row.mutant;
        let mut value = json!({
            "mutant": row.mutant.name(), "file": file, "function": function, "kind": kind, "line": line,
        });
        let (outcome, more) = match &row.outcome {
            Outcome::Tried(Entry {
                caught: Some(caught), ..
            }) => ("caught", json!(caught)),
            Outcome::Tried(entry) => ("survives", json!({ "probes": entry.probes, "seconds": entry.seconds })),
            Outcome::Argued(class, why) => (
                match class {
                    Class::Equivalent => "equivalent",
                    Class::Harmless => "harmless",
                },
                json!({ "why": why }),
            ),
            Outcome::Unknown => ("not tried", json!({})),
        };
        value["outcome"] = outcome.into();
        for (key, item) in more.as_object().into_iter().flatten() {
            value[key] = item.clone();
        }
        value
    };
    rows.iter().map(one).collect()
}
