//! Prints the scoreboard.

use super::Document;
use super::cell::LeftOut;
use crate::print::number;
use crate::print::table::{Column, Grid, Tables};

/// Default number of rows shown.
const WORST: usize = 25;

/// The cells, the worst first and limited unless `--all` is given, then the requirements and their results.
pub(super) fn text(document: &Document, all: bool) -> String {
    let cells = &document.cells;
    let shown = if all { cells.len() } else { WORST.min(cells.len()) };
    let rows = cells[..shown].iter().map(|cell| {
        let share = |value: Option<f64>| value.map_or(number::UNKNOWN.to_string(), |value| format!("{value:.3}"));
        vec![
            cell.place.machine.clone(),
            cell.place.workload(),
            if cell.place.broadcast { "yes" } else { "no" }.to_string(),
            cell.best.clone(),
            cell.place.threads.to_string(),
            number::rate(cell.best_ops_per_s),
            number::rate(cell.adaptive),
            share(Some(cell.of_best)),
            share(cell.noise),
            share(cell.of_ideal),
            share(cell.of_ipi),
        ]
    });
    let columns = vec![
        Column::words("machine", "the machine model"),
        Column::words("workload", "the workload, and its parameters where they are set"),
        Column::words("broadcast", "whether the machine invalidates by broadcast in this cell").optional(3),
        Column::words("best preset", "the preset with the highest rate"),
        Column::number("threads", "simulated threads"),
        Column::number("best ops/s", "operations per second of the best preset").optional(2),
        Column::number("adaptive ops/s", "operations per second of `adaptive`").optional(1),
        Column::number("of best", "rate of `adaptive` over that of the best preset"),
        Column::number("+/-", "half the width of the 95 % confidence interval of that ratio"),
        Column::number(
            "of ideal",
            "rate of `adaptive` over that of invalidation that costs nothing",
        )
        .optional(4),
        Column::number("of ipi", "rate of `adaptive` over that of `ipi`").optional(5),
    ];
    let grid = Grid::new(columns, vec![rows.collect()]);
    let mut text = format!(
        "adaptive beside the best preset, operations per second: the worst {shown} of {}\n{}",
        number::counted(cells.len(), "cell"),
        Tables::new().draw(&grid)
    );
    if document.missing_runs > 0 {
        text.push_str(&format!(
            "INTERRUPTED: {} did not end; cells that need them are missing, or were not measured again\n",
            number::counted(document.missing_runs, "run")
        ));
    }
    for requirement in &document.requirements {
        let verdict = if requirement.met { "met   " } else { "MISSED" };
        text.push_str(&format!("{verdict} {}: {}\n", requirement.what, requirement.found));
    }
    for line in document.below_limit.iter().chain(&left_out(&document.left_out)) {
        text.push_str(&format!("       {line}\n"));
    }
    for failure in &document.failed {
        text.push_str(&format!("FAILED: {failure}\n"));
    }
    text.push_str(&if document.stale > 0 {
        format!(
            "STALE TRANSLATIONS: {}; the rates above mean nothing\n",
            number::count(document.stale)
        )
    } else {
        "stale translations: 0\n".to_string()
    });
    text
}

/// A line for each reason, with the count and the first place.
fn left_out(left_out: &[LeftOut]) -> Vec<String> {
    let mut reasons: Vec<(&LeftOut, usize)> = Vec::new();
    for left in left_out {
        match reasons.iter_mut().find(|(first, _)| first.reason == left.reason) {
            Some((_, count)) => *count += 1,
            None => reasons.push((left, 1)),
        }
    }
    let line = |(first, count): (&LeftOut, usize)| {
        let design = first
            .design
            .as_ref()
            .map_or(String::new(), |design| format!("{design}, "));
        let place = format!("{design}{}", first.place);
        match count {
            1 => format!("left out: {place}: {}", first.reason),
            _ => format!("left out, {count} times: {place} and so on: {}", first.reason),
        }
    };
    reasons.into_iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::scoreboard::location::Place;
    use crate::commands::scoreboard::requirements::{requirements, tests::cell};

    fn document() -> Document {
        let cells = vec![cell("one", 1, true, 4, 0.5)];
        Document {
            requirements: requirements(&cells),
            below_limit: Vec::new(),
            left_out: Vec::new(),
            stale: 0,
            failed: Vec::new(),
            cells,
            missing_runs: 0,
        }
    }

    #[test]
    fn only_requirements_with_a_verdict_are_printed() {
        let text = text(&document(), false);
        assert!(
            text.contains("MISSED at least 0.98 of the best preset everywhere"),
            "{text}"
        );
        assert!(!text.contains("1.5 times ipi"), "{text}");
    }

    #[test]
    fn left_out_cells_are_printed_by_reason() {
        let left = |threads: usize, design: Option<&str>, reason: &str| LeftOut {
            place: Place {
                machine: "one".to_string(),
                broadcast: threads > 2,
                workload: "gup".to_string(),
                threads,
                set: Vec::new(),
                lru_drain: false,
            },
            design: design.map(str::to_string),
            reason: reason.to_string(),
        };
        let document = Document {
            left_out: vec![
                left(1, None, "two threads at least"),
                left(2, Some("arm-ipi"), "too few tags"),
                left(4, Some("arm-ipi"), "too few tags"),
            ],
            ..document()
        };
        let text = text(&document, false);
        for line in [
            "left out: gup on one without broadcast at 1 thread: two threads at least",
            "left out, 2 times: arm-ipi, gup on one without broadcast at 2 threads and so on: too few tags",
        ] {
            assert!(text.contains(line), "{text}");
        }
    }
}
