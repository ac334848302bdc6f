//! The tables of the evidence for the terminal, and the errors under them.

use super::{Line, coverage, distinct, errors, misses, shown, worst};
use crate::comparison::summary::relative_error;
use crate::print::number::{self, UNKNOWN, median};
use crate::print::table::{Column, Grid, Tables};
use crate::published::{Metric, Note, Published, Reference};

pub(super) fn text(lines: &[Line], beside: &[Line], left: &[Published], notes: &[Note], runs: u64) -> String {
    let (mut text, mut tables) = (String::new(), Tables::new());
    for table in distinct(lines, |line| &line.published.table) {
        let of_table: Vec<&Line> = lines.iter().filter(|line| line.published.table == table).collect();
        let machines: Vec<Line> = of_table.iter().map(|line| (*line).clone()).collect();
        let heading = format!(
            "{table}. {} on {}{}{}",
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
        );
        text.push_str(&(heading + "\n"));
        text.push_str(&tables.draw(&grid(&of_table)));
        for line in beside.iter().filter(|line| line.published.table == table) {
            let row = &line.published;
            let number = line
                .simulated
                .map_or("failed".to_string(), |number| shown(row.metric, number));
            text.push_str(&format!(
                "  not published: {} at {}, {}: {number}\n",
                row.workload,
                number::threads(row.threads),
                row.design
            ));
        }
        for miss in misses::of(of_table) {
            text.push_str(&format!("  {}\n", miss.sentences()));
        }
        for note in notes.iter().filter(|note| note.table == table) {
            let words: Vec<&str> = note.text.split_whitespace().collect();
            text.push_str(&format!("  {}\n", words.join(" ")));
        }
        text.push('\n');
    }
    for table in distinct(left, |row| &row.table) {
        let rows: Vec<&Published> = left.iter().filter(|row| row.table == table).collect();
        let mut reasons: Vec<String> = rows.iter().filter_map(|row| row.not_run()).collect();
        reasons.dedup();
        text.push_str(&format!(
            "{table}: {} not run: {}\n",
            number::counted(rows.len(), "row"),
            reasons.join("; ")
        ));
    }
    for machine in distinct(lines, |line| &line.published.machine) {
        let of_machine = lines.iter().filter(|line| line.published.machine == machine);
        let (fitted, held_out): (Vec<&Line>, Vec<&Line>) = of_machine.partition(|line| line.published.fitted);
        text.push_str(&format!(
            "{machine}: used for fitting: {}; on {}, absolute error:\n",
            number::counted(fitted.len(), "row"),
            number::counted(held_out.len(), "other")
        ));
        text.push_str(&summary("model", held_out.iter().map(|line| line.simulated), &held_out));
        if held_out.iter().any(|line| line.interpolated.is_some()) {
            let interpolated = held_out.iter().map(|line| line.interpolated);
            text.push_str(&summary("interpolation", interpolated, &held_out));
        }
    }
    text.push_str(&misses::summary(lines));
    text.push_str(&coverage::text(lines));
    if lines.iter().any(|line| line.interpolated.is_some()) {
        text.push_str(
            "interpolation: log(rate) linear in log(threads) through each design's fitted rows, constant through one\n",
        );
    }
    text
}

/// A column of a table, and its cell in a line.
type Filled<'a> = (Column, Box<dyn Fn(&Line) -> String + 'a>);

/// The heading of the simulation's error; that of interpolation is longer.
pub(super) const ERROR: &str = "error";

/// The table, without empty columns.
pub(super) fn grid(lines: &[&Line]) -> Grid {
    let sets = distinct_sets(lines);
    // The heading names machine and workload where all rows have the same.
    let several = |of: fn(&Published) -> &String| {
        lines
            .windows(2)
            .any(|pair| of(&pair[0].published) != of(&pair[1].published))
    };
    let any = |such: fn(&Line) -> bool| lines.iter().any(|line| such(line));
    let error = |number: Option<f64>, line: &Line| {
        number.map_or(UNKNOWN.to_string(), |number| {
            number::signed_percent(relative_error(number, line.published.value))
        })
    };
    let mut columns: Vec<Filled> = Vec::new();
    if several(|row| &row.machine) {
        columns.push((
            Column::words("machine", "the machine model"),
            Box::new(|line| line.published.machine.clone()),
        ));
    }
    if several(|row| &row.workload) {
        columns.push((
            Column::words("workload", "the workload; `shootdown list` describes each"),
            Box::new(|line| line.published.workload.clone()),
        ));
    }
    columns.push((
        Column::words("design", "the design; \"over\" names what a ratio is over"),
        Box::new(|line| design(&line.published, &sets)),
    ));
    columns.push((
        Column::number("threads", "simulated threads"),
        Box::new(|line| line.published.threads.to_string()),
    ));
    if any(|line| line.published.lru_drain) {
        let drains = |line: &Line| if line.published.lru_drain { "yes" } else { "no" }.to_string();
        columns.push((
            Column::number("LRU drain", "whether each madvise drains the LRU batch under its lock"),
            Box::new(drains),
        ));
    }
    columns.push((
        Column::number(
            "published",
            "as measured on the real machine; evidence/published.toml names the source",
        ),
        Box::new(|line| shown(line.published.metric, line.published.value)),
    ));
    let simulated = |line: &Line| {
        let shown = |number| shown(line.published.metric, number);
        line.simulated.map_or("failed".to_string(), shown)
    };
    columns.push((
        Column::number("simulated", "the median of the runs"),
        Box::new(simulated),
    ));
    columns.push((
        Column::number(ERROR, "simulated against published"),
        Box::new(|line| error(line.simulated, line)),
    ));
    if any(|line| line.interval.is_some()) {
        columns.push((Column::interval().optional(1), Box::new(interval)));
    }
    if any(|line| line.published.fitted) {
        let fitted = |line: &Line| if line.published.fitted { "fitted" } else { "" }.to_string();
        columns.push((
            Column::number(
                "fitted",
                "whether the machine model was fitted on this row; the others are predictions",
            ),
            Box::new(fitted),
        ));
    }
    if any(|line| line.interpolated.is_some()) {
        let interpolated = |line: &Line| {
            let shown = |number| shown(line.published.metric, number);
            line.interpolated.map_or(UNKNOWN.to_string(), shown)
        };
        columns.push((
            Column::number("interpolated", "what interpolation through the fitted rows predicts").optional(3),
            Box::new(interpolated),
        ));
        columns.push((
            Column::number("interpolation error", "interpolated against published").optional(2),
            Box::new(|line| error(line.interpolated, line)),
        ));
    }
    let mut groups: Vec<Vec<Vec<String>>> = Vec::new();
    let mut group = None;
    for line in lines {
        let of = (
            &line.published.machine,
            &line.published.workload,
            &line.published.design,
        );
        if group != Some(of) {
            group = Some(of);
            groups.push(Vec::new());
        }
        let cells = columns.iter().map(|(_, cell)| cell(line)).collect();
        groups.last_mut().expect("a group was just pushed").push(cells);
    }
    let mut grid = Grid::new(columns.into_iter().map(|(column, _)| column).collect(), groups);
    for (index, set) in sets.iter().enumerate() {
        grid = grid.note(format!("  {}: {}", mark(index), set.join(" ")));
    }
    grid
}

/// The ends of a line's interval, with a mark where the published number is outside.
fn interval(line: &Line) -> String {
    let Some([low, high]) = line.ends() else {
        return UNKNOWN.to_string();
    };
    let shown = |number| shown(line.published.metric, number);
    let mark = if line.is_within() == Some(false) { " missed" } else { "" };
    let suffixes = [" int.", " idle", " flush", " p50", " p99"];
    let bare = |text: String| {
        let bare = suffixes.iter().find_map(|suffix| text.strip_suffix(suffix));
        bare.unwrap_or(&text).to_string()
    };
    format!("[{}, {}]{mark}", bare(shown(low)), bare(shown(high)))
}

/// The settings that differ in some of the rows, each combination once.
fn distinct_sets<'a>(lines: &[&'a Line]) -> Vec<&'a [String]> {
    let mut sets: Vec<&[String]> = Vec::new();
    for line in lines {
        let set = line.published.set.as_slice();
        if !set.is_empty() && !sets.contains(&set) {
            sets.push(set);
        }
    }
    sets
}

fn mark(index: usize) -> String {
    format!("[{}]", index + 1)
}

/// The design of a row, the denominator of a ratio, and the mark of its settings.
fn design(row: &Published, sets: &[&[String]]) -> String {
    let over = match &row.over {
        None => String::new(),
        Some(Reference { set: Some(set), .. }) => {
            let other: Vec<&str> = (set.iter().filter(|set| !row.set.contains(set)).map(String::as_str)).collect();
            format!(" over {}", other.join(" "))
        }
        Some(over) if over.design == row.design => format!(" over {}", number::threads(over.threads)),
        Some(over) => format!(" over {}", over.design),
    };
    let set = sets.iter().position(|set| *set == row.set.as_slice());
    let mark = set.map_or(String::new(), |index| format!(" {}", mark(index)));
    format!("{}{over}{mark}", row.design)
}

/// Worst and median absolute error of predictions on held-out rows.
fn summary(name: &str, predictions: impl Iterator<Item = Option<f64>>, held_out: &[&Line]) -> String {
    let errors = errors(predictions, held_out);
    let any = !errors.is_empty();
    let of_any = |error: f64| match any {
        true => number::percent(error),
        false => UNKNOWN.to_string(),
    };
    let missing = match held_out.len() - errors.len() {
        0 => String::new(),
        missing => format!(" ({} without a prediction)", number::counted(missing, "row")),
    };
    format!(
        "  {name:<14} worst {:>7}, median {:>7}{missing}\n",
        of_any(worst(&errors)),
        of_any(median(errors))
    )
}
