//! A replay as tables, for the terminal and for the page.

use shootdown_trace::program::Recorded;

use super::row::{Prediction, Row, Tail};
use crate::print::number::{self, UNKNOWN};
use crate::print::table::Grid;
use crate::runs::catalog::CONTROL_DESIGN;

/// What the oracle found.
pub struct Verdict {
    /// A sentence.
    pub words: String,
    /// How it looks on a page.
    pub class: &'static str,
}

/// The oracle's finding, of each design's stale translations and checked accesses.
pub fn verdict(found: &[(&str, u64, u64)]) -> Verdict {
    let stale: Vec<_> = found.iter().filter(|(_, stale, _)| *stale > 0).collect();
    let checked = number::count(found.iter().map(|(.., checked)| checked).sum());
    let class = match stale.iter().any(|(design, ..)| *design != CONTROL_DESIGN) {
        true => "verdict bad",
        // Where only the unsound design was replayed nothing can be vouched for.
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

/// What the columns of [`costs`] are.
pub const COSTS: &str = "Shootdowns: flushes that reached other CPUs. Change: of the interrupts, against the recording. Requesters, \
    interrupted: CPU time that is lost by those who ask and wait, and by those who are interrupted; of CPU time: both, as a share of the \
    time of all CPUs that the program uses. Longer: how much longer than recorded the program takes.";

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

/// What the columns of [`tails`] are.
pub const TAILS: &str = "Shootdown: from the call of a flush that reaches others to its proof. Interrupt takes: what one interrupt takes \
    from what it interrupts. For nothing: requests at CPUs that ran another space, kernel code or nothing.";

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

/// What the columns of [`hits`] are.
pub const HITS: &str = "Its own threads: CPUs that ran the space concerned. Bystanders: CPUs that ran another space, or kernel code; p99 and \
    longest are of what one interrupt took from these. Who waited too: CPUs that waited for a request of their own, so that the time was \
    lost already. Idle: CPUs that had nothing to do.";

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
