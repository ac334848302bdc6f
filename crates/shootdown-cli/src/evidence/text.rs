//! The tables of the evidence for the terminal, and the errors under them.

use super::{Line, distinct, shown};
use crate::number::{self, UNKNOWN, median};
use crate::published::{self, Metric, Published};
use crate::summary::relative_error;
use crate::table::Grid;

pub(super) fn text(lines: &[Line], beside: &[Line], left: &[Published], runs: u64) -> String {
    let mut text = String::new();
    let notes = published::notes();
    for table in distinct(lines, |line| &line.published.table) {
        let of_table: Vec<&Line> = lines.iter().filter(|line| line.published.table == table).collect();
        let machines: Vec<Line> = of_table.iter().map(|line| (*line).clone()).collect();
        text.push_str(&format!(
            "{table}. {} on {}{}{}\n",
            distinct(&machines, |line| &line.published.workload).join(", "),
            distinct(&machines, |line| &line.published.machine).join(" and "),
            if of_table.iter().any(|line| line.published.metric == Metric::OpsPerS) {
                ", loops per second, all threads together"
            } else {
                ""
            },
            if runs > 1 {
                format!("; simulated: medians of {runs} runs")
            } else {
                String::new()
            }
        ));
        text.push_str(&grid(&of_table).draw());
        for line in beside.iter().filter(|line| line.published.table == table) {
            let row = &line.published;
            let number = line
                .simulated
                .map_or("failed".to_string(), |number| shown(row.metric, number));
            text.push_str(&format!(
                "  not published: {} at {} threads, {}: {number}\n",
                row.workload, row.threads, row.design
            ));
        }
        for note in notes.iter().filter(|note| note.table == table) {
            text.push_str(&wrapped(&note.text));
        }
        text.push('\n');
    }
    for table in distinct(left, |row| &row.table) {
        let rows: Vec<&Published> = left.iter().filter(|row| row.table == table).collect();
        let mut reasons: Vec<String> = rows.iter().filter_map(|row| row.not_run()).collect();
        reasons.dedup();
        text.push_str(&format!(
            "{table}: {} rows not run: {}\n",
            rows.len(),
            reasons.join("; ")
        ));
    }
    for machine in distinct(lines, |line| &line.published.machine) {
        let of_machine = lines.iter().filter(|line| line.published.machine == machine);
        let (fitted, held_out): (Vec<&Line>, Vec<&Line>) = of_machine.partition(|line| line.published.fitted);
        text.push_str(&format!(
            "{machine}: {} rows were used for fitting; on the {} others, absolute error:\n",
            fitted.len(),
            held_out.len()
        ));
        text.push_str(&summary("model", held_out.iter().map(|line| line.simulated), &held_out));
        if held_out.iter().any(|line| line.interpolated.is_some()) {
            let interpolated = held_out.iter().map(|line| line.interpolated);
            text.push_str(&summary("interpolation", interpolated, &held_out));
        }
    }
    text.push_str(
        "interpolation: log(rate) linear in log(threads) through each design's fitted rows, constant through one\n",
    );
    text
}

/// A paragraph in lines of at most 100 characters, indented.
pub(super) fn wrapped(paragraph: &str) -> String {
    let mut text = String::new();
    let mut line = String::new();
    for word in paragraph.split_whitespace() {
        if line.len() + 1 + word.len() > 98 {
            text.push_str(&format!("  {line}\n"));
            line.clear();
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    text.push_str(&format!("  {line}\n"));
    text
}

fn grid(lines: &[&Line]) -> Grid {
    // The heading names the workload where all rows have the same.
    let several = lines
        .windows(2)
        .any(|pair| pair[0].published.workload != pair[1].published.workload);
    let mut header = vec!["machine"];
    header.extend(several.then_some("workload"));
    header.extend([
        "design",
        "threads",
        "LRU drain",
        "published",
        "simulated",
        "error",
        "fitted",
        "interpolated",
        "error",
    ]);
    let mut groups: Vec<Vec<Vec<String>>> = Vec::new();
    let mut group = None;
    for line in lines {
        let row = &line.published;
        let of = (&row.machine, &row.workload, &row.design);
        if group != Some(of) {
            group = Some(of);
            groups.push(Vec::new());
        }
        let error_of = |number: Option<f64>| {
            number.map_or(UNKNOWN.to_string(), |number| {
                number::signed_percent(relative_error(number, row.value))
            })
        };
        let set = row.set.iter().map(|set| format!(" {set}"));
        let over = match &row.over {
            None => String::new(),
            Some(over) if over.design == row.design => format!(" over {} threads", over.threads),
            Some(over) => format!(" over {}", over.design),
        };
        let mut cells = vec![row.machine.clone()];
        cells.extend(several.then(|| row.workload.clone()));
        cells.extend([
            format!("{}{over}{}", row.design, set.collect::<String>()),
            row.threads.to_string(),
            if row.lru_drain { "yes" } else { "no" }.to_string(),
            shown(row.metric, row.value),
            line.simulated
                .map_or("failed".to_string(), |number| shown(row.metric, number)),
            error_of(line.simulated),
            if row.fitted { "fitted" } else { "" }.to_string(),
            line.interpolated
                .map_or(UNKNOWN.to_string(), |number| shown(row.metric, number)),
            error_of(line.interpolated),
        ]);
        groups.last_mut().expect("a group was just pushed").push(cells);
    }
    Grid {
        header: header.into_iter().map(str::to_string).collect(),
        groups,
        words: 2 + usize::from(several),
    }
}

/// Absolute relative errors of predictions, in order; rows without a prediction are left out.
pub fn errors(predictions: impl Iterator<Item = Option<f64>>, held_out: &[&Line]) -> Vec<f64> {
    predictions
        .zip(held_out)
        .filter_map(|(prediction, line)| prediction.map(|number| relative_error(number, line.published.value).abs()))
        .collect()
}

/// Worst and median absolute error of predictions on held-out rows.
fn summary(name: &str, predictions: impl Iterator<Item = Option<f64>>, held_out: &[&Line]) -> String {
    let errors = errors(predictions, held_out);
    let any = !errors.is_empty();
    let worst = errors.iter().copied().fold(0.0, f64::max);
    let of_any = |error: f64| match any {
        true => number::percent(error),
        false => UNKNOWN.to_string(),
    };
    let missing = match held_out.len() - errors.len() {
        0 => String::new(),
        missing => format!(" ({missing} rows without a prediction)"),
    };
    format!(
        "  {name:<14} worst {:>7}, median {:>7}{missing}\n",
        of_any(worst),
        of_any(median(errors))
    )
}
