//! A replay as tables, for the terminal and for the page.

use shootdown_trace::program::Recorded;

use super::row::{Prediction, Row, Tail};
use crate::number::{self, UNKNOWN};
use crate::table::Grid;

fn header(names: &[&str]) -> Vec<String> {
    names.iter().map(ToString::to_string).collect()
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

fn milliseconds(ms: f64) -> String {
    number::time(ms * 1e6)
}

/// What the row of the recording is called, whose counts are multiplied as the program is.
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
            at_least(milliseconds(row.requester_ms), lost),
            at_least(milliseconds(row.victim_ms), lost),
            number::percent(row.lost_share),
            number::percent(row.longer),
        ]
    });
    Grid {
        header: header(&[
            "design",
            "flushes",
            "shootdowns",
            "interrupts",
            "change",
            "requesters",
            "interrupted",
            "of CPU time",
            "longer",
        ]),
        groups: vec![vec![known.to_vec()], rows.collect()],
        words: 1,
    }
}

/// Tails, and who was disturbed for nothing.
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
    Grid {
        header: header(&[
            "design",
            "shootdown p50",
            "p99",
            "longest",
            "interrupt takes p50",
            "p99",
            "longest",
            "for nothing",
        ]),
        groups: vec![vec![known], rows.collect()],
        words: 1,
    }
}

/// Whom interrupts hit, and what they cost it.
pub fn hits(rows: &[Row]) -> Grid {
    let rows = rows.iter().map(|row| {
        let hit = &row.hit;
        let mut cells = vec![row.design.clone()];
        for hits in [hit.concerned, hit.bystanders] {
            cells.push(number::count(hits.interrupts));
            cells.push(milliseconds(hits.ms));
        }
        let [_, p99, longest] = tail(row.bystander_disturbance);
        cells.extend([p99, longest]);
        cells.push(number::count(hit.waiters.interrupts));
        cells.push(number::count(hit.idle.interrupts));
        cells
    });
    Grid {
        header: header(&[
            "interrupts hit",
            "its own threads",
            "lost",
            "bystanders",
            "lost",
            "p99",
            "longest",
            "who waited too",
            "idle",
        ]),
        groups: vec![rows.collect()],
        words: 1,
    }
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
    Grid {
        header: header(&["what Linux did with the requests", "recorded", "predicted", "error"]),
        groups: vec![rows.collect()],
        words: 1,
    }
}
