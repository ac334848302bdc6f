//! Whether a recording separates designs: how many of its flushes reach other CPUs, and how far apart the costs are.

use super::summary::{Comparison, Row};
use crate::catalog::{CONTROL_DESIGN, IDEAL_DESIGN};
use crate::print::number;

/// Fewer shootdowns than this do not separate designs. Assumed: the relative error of a count of 30 is 18 %.
pub const FEW: u64 = 30;

/// Designs whose lost shares of CPU time differ by less are not separated. Assumed, 0.0005 to 0.01.
const SMALL_SHARE: f64 = 0.001;

/// A design's result on a recording.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cost {
    /// Flushes that reached other CPUs.
    pub shootdowns: u64,
    /// Share of CPU time in invalidation.
    pub share: f64,
    /// Spread of that share over the runs of this design; 0 for one run.
    pub spread: f64,
}

/// Why these designs cannot be separated, if they cannot.
pub fn indistinct(costs: &[Cost]) -> Option<String> {
    let most = costs.iter().map(|cost| cost.shootdowns).max()?;
    if most < FEW {
        return Some(format!(
            "THIS RECORDING DOES NOT TELL DESIGNS APART: {} reached another CPU; \
             record a longer or busier part of the program",
            if most == 1 {
                "1 flush".to_string()
            } else {
                format!("{} flushes", number::count(most))
            }
        ));
    }
    let shares = || costs.iter().map(|cost| cost.share);
    let difference = shares().fold(f64::MIN, f64::max) - shares().fold(f64::MAX, f64::min);
    let spread = costs.iter().map(|cost| cost.spread).fold(0.0, f64::max);
    if costs.len() < 2 {
        return None;
    }
    if difference < SMALL_SHARE {
        return Some(
            "These designs differ by less than 0.1 % of CPU time on this recording: it gives no reason to prefer one."
                .to_string(),
        );
    }
    (difference <= spread).then(|| {
        format!(
            "These designs differ by {} of CPU time, \
             and runs of one design by {}: the recording does not tell them apart.",
            number::percent(difference),
            number::percent(spread)
        )
    })
}

/// The compared designs: not the limit, not the control, and none that failed.
fn compared(comparison: &Comparison, threads: usize) -> impl Iterator<Item = &Row> {
    let rows = comparison.rows.iter().filter(move |row| row.threads == threads);
    rows.filter(|row| ![CONTROL_DESIGN, IDEAL_DESIGN].contains(&row.design) && row.flush_share.is_finite())
}

/// If a comparison on a recording cannot separate its designs, a sentence for each reason; empty for a workload that is
/// not a recording.
pub fn sentences(comparison: &Comparison) -> Vec<String> {
    if comparison.plan.workload.recording.is_none() {
        return Vec::new();
    }
    let mut reasons: Vec<(String, Vec<String>)> = Vec::new();
    for &threads in &comparison.plan.threads {
        let costs: Vec<Cost> = compared(comparison, threads).map(cost).collect();
        let Some(reason) = indistinct(&costs) else { continue };
        match reasons.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, at)) => at.push(threads.to_string()),
            None => reasons.push((reason, vec![threads.to_string()])),
        }
    }
    let everywhere = |at: &[String]| at.len() == comparison.plan.threads.len();
    let sentences = reasons.into_iter().map(|(reason, at)| match everywhere(&at) {
        true => reason,
        false if at == ["1"] => format!("at 1 thread: {reason}"),
        false => format!("at {} threads: {reason}", at.join(", ")),
    });
    sentences.collect()
}

/// Whether two designs differ in CPU time by more than runs of one do, if there are enough shootdowns.
pub fn differ(one: &Row, other: &Row) -> bool {
    let [one, other] = [one, other].map(cost);
    one.shootdowns.max(other.shootdowns) >= FEW && (one.share - other.share).abs() > one.spread.max(other.spread)
}

fn cost(row: &Row) -> Cost {
    Cost {
        shootdowns: row.shootdown().map_or(0, |latency| latency.count),
        share: row.flush_share,
        spread: row.flush_spread,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn costs(shares: [f64; 2], spread: f64, shootdowns: u64) -> Vec<Cost> {
        let of = |share| Cost {
            shootdowns,
            share,
            spread,
        };
        shares.map(of).to_vec()
    }

    #[test]
    fn indistinguishable_designs_are_reported_with_the_reason() {
        let sentences = |costs: &[Cost]| indistinct(costs).unwrap_or_default();
        assert!(sentences(&costs([0.1, 0.2], 0.0, 29)).contains("29 flushes reached another CPU"));
        assert!(sentences(&costs([0.1, 0.2], 0.0, 1)).contains("1 flush reached"));
        assert!(sentences(&costs([0.1, 0.1005], 0.0, 30)).contains("less than 0.1 % of CPU time"));
        assert!(
            sentences(&costs([0.1, 0.11], 0.02, 30))
                .contains("differ by 1.0% of CPU time, and runs of one design by 2.0%")
        );
        assert_eq!(sentences(&costs([0.1, 0.11], 0.005, 30)), "");
        assert_eq!(
            sentences(&costs([0.1, 0.2], 0.0, 30)[..1]),
            "",
            "one design is compared with none"
        );
    }
}
