//! A replay as tables, for the terminal and for the page.

use shootdown_sim::model::Model;
use shootdown_trace::program::Recorded;

use super::row::{Prediction, Row, Tail};
use crate::catalog::{self, CONTROL_DESIGN};
use crate::comparison::interval::Place;
use crate::comparison::ratios::Point;
use crate::print::number::{self, UNKNOWN};
use crate::print::table::{Column, Grid};

/// The oracle's finding.
pub struct Verdict {
    /// A sentence.
    pub words: String,
    /// Its style on a page.
    pub class: &'static str,
}

/// The oracle's finding, of each design's stale translations and checked accesses.
pub fn verdict(found: &[(&str, u64, u64)]) -> Verdict {
    let stale: Vec<_> = found.iter().filter(|(_, stale, _)| *stale > 0).collect();
    let checked = number::count(found.iter().map(|(.., checked)| checked).sum());
    let class = match stale.iter().any(|(design, ..)| *design != CONTROL_DESIGN) {
        true => "verdict bad",
        // If only the unsound design was replayed, nothing can be guaranteed.
        false if found.iter().all(|(design, ..)| *design == CONTROL_DESIGN) => "verdict unjudged",
        false => "verdict",
    };
    let designs: Vec<String> = stale
        .iter()
        .map(|(design, stale, _)| format!("{} under {design}", number::count(*stale)))
        .collect();
    let words = if designs.is_empty() {
        format!("0 stale translations in {checked} checked accesses.")
    } else {
        let words = "Stale translations";
        let words = if class == "verdict bad" {
            words.to_uppercase()
        } else {
            words.to_string()
        };
        format!("{words}: {}, in {checked} checked accesses.", designs.join(", "))
    };
    Verdict { words, class }
}

/// A number that lost events make a lower bound.
fn at_least(text: String, lost: u64) -> String {
    if lost > 0 { format!("≥ {text}") } else { text }
}

fn tail(tail: Option<Tail>) -> [String; 3] {
    tail.map_or([UNKNOWN; 3].map(str::to_string), |tail| {
        [tail.p50_ns, tail.p99_ns, tail.max_ns].map(number::time)
    })
}

/// The label of the recording's row, whose counts are multiplied like the program.
fn recorded_times(times: u64) -> String {
    if times == 1 {
        "(recorded)".to_string()
    } else {
        format!("(recorded × {times})")
    }
}

/// Counts and lost time, the recording in the first row.
pub fn costs(rows: &[Row], recorded: &Recorded, times: u64, lost: u64) -> Grid {
    let count = |value: u64| at_least(number::count(value), lost);
    let known = [
        recorded_times(times),
        count(recorded.requests * times),
        UNKNOWN.to_string(),
        count(recorded.queued * times),
        UNKNOWN.to_string(),
        UNKNOWN.to_string(),
        UNKNOWN.to_string(),
        UNKNOWN.to_string(),
        UNKNOWN.to_string(),
    ];
    let rows = rows.iter().map(|row| {
        vec![
            row.design.clone(),
            count(row.flushes),
            count(row.shootdowns),
            count(row.interrupts_sent),
            row.interrupts_change
                .map_or(UNKNOWN.to_string(), number::signed_percent),
            at_least(number::time(row.requester_time_ns), lost),
            at_least(number::time(row.victim_time_ns), lost),
            number::percent(row.lost_share),
            number::percent(row.slowdown),
        ]
    });
    let columns = vec![
        Column::words(
            "design",
            "how other CPUs are made to drop translations; (recorded) is what the recording holds",
        ),
        Column::number("flushes", "flushes that the program requested"),
        Column::number("shootdowns", "flushes that reached other CPUs").optional(2),
        Column::number("interrupts", "interrupts sent for them, one for each target CPU"),
        Column::number("change", "of the interrupts, against the recording"),
        Column::number(
            "requester CPU time",
            "CPU time of requesters in invalidation, waiting included",
        ),
        Column::number(
            "target CPU time",
            "CPU time that interrupts took from the CPUs that they hit",
        ),
        Column::number(
            "of CPU time",
            "both, as a share of the time of all CPUs that the program uses",
        )
        .optional(1),
        Column::number("slowdown", "how much longer than recorded the program takes"),
    ];
    Grid::new(columns, vec![vec![known.to_vec()], rows.collect()])
}

/// CPU time lost under each design, relative to that under `ipi`, or under the first design with a loss.
pub fn ratios(rows: &[Row], machine: &Model) -> Vec<Point> {
    let lost = |row: &Row| row.requester_time_ns + row.victim_time_ns;
    let some = |row: &&Row| lost(row) > 0.0;
    let Some(base) = rows.iter().find(|row| row.design == "ipi").or(rows.iter().find(some)) else {
        return Vec::new();
    };
    let place = |row| (lost(row), place(row, machine));
    let others = rows.iter().filter(|row| row.design != base.design);
    others
        .filter_map(|row| Point::of_flushes(place(row), place(base)))
        .collect()
}

/// The place of a row in the table of intervals.
fn place<'a>(row: &'a Row, machine: &'a Model) -> Place<'a> {
    Place {
        machine,
        workload: catalog::FLAGSHIP_WORKLOAD,
        design: &row.design,
        threads: machine.topology.cpus(),
        lru_drain: false,
    }
}

/// Ratios in a sentence.
pub fn ratio_sentence(points: &[Point]) -> Option<String> {
    let over = &points.first()?.over;
    let each: Vec<String> = points
        .iter()
        .map(|point| format!("{} {}", point.design, point.shown()))
        .collect();
    Some(format!(
        "CPU time lost, as a ratio to {over}: {} (in brackets: 90 % interval)",
        each.join(", ")
    ))
}

/// Tails of latencies, and interrupts at CPUs that did not run the space.
pub fn tails(rows: &[Row], recorded: &Recorded) -> Grid {
    let quantile = |share| {
        let found = recorded.queued_to_flushed.quantile(share);
        found.map_or(UNKNOWN.to_string(), |ns| number::time(ns as f64))
    };
    let known = vec![
        "(recorded) *".to_string(),
        quantile(0.5),
        quantile(0.99),
        quantile(1.0),
        UNKNOWN.to_string(),
        UNKNOWN.to_string(),
        UNKNOWN.to_string(),
        number::count(recorded.elsewhere),
    ];
    let rows = rows.iter().map(|row| {
        let mut cells = vec![row.design.clone()];
        cells.extend(tail(row.shootdown_latency));
        cells.extend(tail(row.disturbance));
        cells.push(number::count(row.bystanders_interrupted));
        cells
    });
    let columns = vec![
        Column::words(
            "design",
            "how other CPUs are made to drop translations; (recorded) is what the recording holds",
        ),
        Column::number(
            "shootdown p50",
            "median time from the call of a flush that reaches other CPUs to its end",
        ),
        Column::number("shootdown p99", "99th percentile of the same"),
        Column::number("shootdown longest", "the longest").optional(1),
        Column::number(
            "interrupt p50",
            "median time that one interrupt takes from what it interrupts",
        ),
        Column::number("interrupt p99", "99th percentile of the same"),
        Column::number("interrupt longest", "the longest").optional(2),
        Column::number(
            "spurious",
            "interrupts at CPUs that ran another space, kernel code or nothing",
        ),
    ];
    Grid::new(columns, vec![vec![known], rows.collect()])
}

/// CPUs that interrupts hit, and their cost there.
pub fn hits(rows: &[Row]) -> Grid {
    let rows = rows.iter().map(|row| {
        let hit = &row.hit;
        let mut cells = vec![row.design.clone()];
        for hits in [hit.concerned, hit.bystanders] {
            cells.push(number::count(hits.interrupts));
            cells.push(number::time(hits.time_ns));
        }
        let [_, p99, longest] = tail(row.bystander_disturbance);
        cells.extend([p99, longest]);
        cells.push(number::count(hit.waiters.interrupts));
        cells.push(number::count(hit.idle.interrupts));
        cells
    });
    let columns = vec![
        Column::words("design", "how other CPUs are made to drop translations"),
        Column::number("own threads", "interrupts at CPUs that ran the space concerned"),
        Column::number("own threads lost", "CPU time that these took").optional(1),
        Column::number(
            "bystanders",
            "interrupts at CPUs that ran another space, or kernel code",
        ),
        Column::number("bystanders lost", "CPU time that these took"),
        Column::number("bystander p99", "99th percentile of what one of these took").optional(3),
        Column::number("bystander longest", "the most that one of these took").optional(2),
        Column::number(
            "already waiting",
            "interrupts at CPUs that waited for a request of their own: they lose nothing",
        ),
        Column::number("idle", "interrupts at idle CPUs: they are only woken"),
    ];
    Grid::new(columns, vec![rows.collect()])
}

/// Predicted beside recorded.
pub fn predictions(lines: &[Prediction]) -> Grid {
    let rows = lines.iter().map(|line| {
        vec![
            line.what.to_string(),
            number::count(line.recorded),
            number::count(line.predicted),
            line.error.map_or(UNKNOWN.to_string(), number::signed_percent),
        ]
    });
    let columns = vec![
        Column::words(
            "what Linux did with the requests",
            "what is predicted from the recording, and counted in it",
        ),
        Column::number("recorded", "how many the recording holds"),
        Column::number("predicted", "how many the simulation of Linux's own design makes"),
        Column::number("error", "predicted against recorded"),
    ];
    Grid::new(columns, vec![rows.collect()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_verdict_names_the_designs_with_stale_translations() {
        let found = |designs: &[(&str, u64)]| {
            let found: Vec<_> = designs.iter().map(|&(design, stale)| (design, stale, 1000)).collect();
            let verdict = verdict(&found);
            (verdict.class, verdict.words)
        };
        assert_eq!(
            found(&[("ipi", 0), ("adaptive", 0)]),
            ("verdict", "0 stale translations in 2,000 checked accesses.".to_string())
        );
        assert_eq!(
            found(&[("ipi", 3), ("adaptive", 0), ("none", 5)]),
            (
                "verdict bad",
                "STALE TRANSLATIONS: 3 under ipi, 5 under none, in 3,000 checked accesses.".to_string()
            )
        );
        assert_eq!(
            found(&[("none", 5)]),
            (
                "verdict unjudged",
                "Stale translations: 5 under none, in 1,000 checked accesses.".to_string()
            )
        );
    }
}
