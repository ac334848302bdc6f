//! The engine's decisions about tags and about the broadcast threshold, in words.

use schemars::JsonSchema;
use serde::Serialize;
use shootdown::{CONFIRM_STREAK, Demotion, Event};
use shootdown_sim::os::{DecisionLog, Note};

use super::ns;
use crate::print::number::{self, counted};

/// A decision in one word, for programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Kind {
    /// A space requests a system-wide tag.
    Promoting,
    /// The space has its tag.
    Promoted,
    /// No tag was free.
    TagsExhausted,
    /// The space gives its tag back, because it is active on few CPUs.
    DemotingFewerCpus,
    /// The space gives its tag back, because other spaces need one.
    DemotingTagsShort,
    /// The space gives its tag back, because its requests cost less without.
    DemotingByCost,
    /// The space is on per-CPU tags again.
    Demoted,
    /// Freed tags are flushed, and can be allocated again.
    RollOver,
    /// The number of other CPUs at which broadcasts begin has changed.
    ThresholdMoved,
}

/// A decision of the engine about a tag or about the broadcast threshold.
pub(super) struct Decision {
    pub(super) at_ns: u64,
    pub(super) kind: Kind,
    /// CPUs that the space is active on.
    pub(super) active: Option<u32>,
    /// Expected cost of its requests without a system-wide tag and with one, ns.
    pub(super) costs: Option<(u64, u64)>,
    /// In words.
    pub(super) what: String,
}

impl Decision {
    /// The decision in the note, if it is one.
    pub(super) fn of(note: &Note) -> Option<Self> {
        let (kind, active, costs, what) = match note.event {
            Event::Promoting { active, costs: None } => (
                Kind::Promoting,
                Some(active),
                None,
                format!(
                    "a space is active on {} or more: it requests a system-wide tag",
                    counted(active, "CPU")
                ),
            ),
            Event::Promoting {
                active,
                costs: Some((without, with)),
            } => (
                Kind::Promoting,
                Some(active),
                Some((without, with)),
                format!(
                    "a space active on {} requests a system-wide tag: a flush is expected to cost {} without \
                     one, {} with one: beyond the margin of an eighth",
                    counted(active, "CPU"),
                    ns(without),
                    ns(with)
                ),
            ),
            Event::Promoted => (
                Kind::Promoted,
                None,
                None,
                "the space is promoted: its requests are broadcast under its tag".to_string(),
            ),
            Event::TagsExhausted => (
                Kind::TagsExhausted,
                None,
                None,
                "no system-wide tag is free: the space keeps per-CPU tags".to_string(),
            ),
            Event::Demoting { active, reason } => {
                let (kind, costs, what) = match reason {
                    Demotion::Shrunk => (
                        Kind::DemotingFewerCpus,
                        None,
                        format!(
                            "a promoted space is active on {} only: it gives its tag back",
                            counted(active, "CPU")
                        ),
                    ),
                    Demotion::TagsShort => (
                        Kind::DemotingTagsShort,
                        None,
                        format!(
                            "free tags are few, and a promoted space is active on {} only: it gives its tag back",
                            counted(active, "CPU")
                        ),
                    ),
                    Demotion::BroadcastCost { without, with } => (
                        Kind::DemotingByCost,
                        Some((without, with)),
                        format!(
                            "a promoted space active on {} gives its tag back: a request costs {} with it, and is \
                             expected to cost {} without: beyond the margin of an eighth",
                            counted(active, "CPU"),
                            ns(with),
                            ns(without)
                        ),
                    ),
                };
                (kind, Some(active), costs, what)
            }
            Event::Demoted => (
                Kind::Demoted,
                None,
                None,
                "the space is back on per-CPU tags; its tag is flushed on every CPU and free".to_string(),
            ),
            Event::RollOver => (
                Kind::RollOver,
                None,
                None,
                "roll-over: freed tags are flushed on every CPU and can be given out again".to_string(),
            ),
            Event::ThresholdMoved {
                from,
                to,
                targets,
                interrupts_ns,
                broadcast_ns,
            } => (
                Kind::ThresholdMoved,
                None,
                None,
                format!(
                    "the threshold for broadcasting moves from {} to {} other CPUs: \
                     to {targets}, a broadcast is expected to cost {}, interrupts {}: \
                     beyond the margin of a quarter, {CONFIRM_STREAK} times in a row",
                    cpus(from),
                    cpus(to),
                    ns(broadcast_ns),
                    ns(interrupts_ns)
                ),
            ),
            _ => return None,
        };
        Some(Decision {
            at_ns: note.at_ns,
            kind,
            active,
            costs,
            what,
        })
    }
}

/// Promotions, demotions and threshold moves, with their reasons: `most` of them one by one, the rest are counted. If
/// there are more, threshold moves are left out. A threshold move while a space has a tag, which is broadcast in any
/// case, is only counted.
pub(super) fn decisions(decision_log: &DecisionLog, most: usize) -> Vec<String> {
    let (mut shown, mut promoted, mut idle) = (Vec::new(), 0_u32, Vec::new());
    for note in &decision_log.notes {
        match note.event {
            Event::Promoted => promoted += 1,
            Event::Demoted => promoted = promoted.saturating_sub(1),
            Event::ThresholdMoved { to, .. } if promoted > 0 => {
                idle.push(to);
                continue;
            }
            _ => {}
        }
        shown.extend(Decision::of(note));
    }
    let mut lines = listed(decision_log, &shown, most);
    if let Some((least, greatest)) = idle.iter().min().zip(idle.iter().max()) {
        let span = match least == greatest {
            true => cpus(*least).to_string(),
            false => format!("between {} and {}", cpus(*least), cpus(*greatest)),
        };
        lines.push(format!(
            "While a space had a system-wide tag, which is always broadcast, \
             the threshold moved {} (to {span} other CPUs).",
            number::times(idle.len() as u64),
        ));
    }
    lines
}

/// The decisions with an effect, `most` of them one by one.
fn listed(decision_log: &DecisionLog, shown: &[Decision], most: usize) -> Vec<String> {
    if shown.is_empty() {
        return vec!["No space was promoted or demoted, and the threshold did not move.".to_string()];
    }
    let (all, many) = (shown.len(), shown.len() > most);
    let kept = shown
        .iter()
        .filter(|decision| !(many && decision.kind == Kind::ThresholdMoved));
    let mut lines: Vec<String> = kept
        .take(most)
        .map(|decision| format!("at {:.1} µs: {}.", decision.at_ns as f64 / 1e3, decision.what))
        .collect();
    let more = all - lines.len();
    if more > 0 {
        lines.push(format!(
            "...and {more} more such decisions: --decisions {all} prints all."
        ));
    }
    if decision_log.decisions_dropped > 0 {
        lines.push(format!(
            "...and {} later ones, which were not kept.",
            decision_log.decisions_dropped
        ));
    }
    lines
}

fn cpus(from: u64) -> String {
    if from == u64::MAX {
        "none".to_string()
    } else {
        from.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_decision_list_keeps_those_about_tags() {
        let moved = |at_ns| Note {
            at_ns,
            event: Event::ThresholdMoved {
                from: 3,
                to: 4,
                targets: 3,
                interrupts_ns: 1000,
                broadcast_ns: 1300,
            },
        };
        let mut decision_log = DecisionLog::default();
        decision_log.notes = (0..7).map(moved).collect();
        let promoted = Note {
            at_ns: 9000,
            event: Event::Promoted,
        };
        decision_log.notes.push(promoted);
        let few = decisions(&decision_log, 8);
        assert_eq!(few.len(), 8);
        assert!(
            few[0].contains(
                "moves from 3 to 4 other CPUs: to 3, a broadcast is expected to cost 1.30 µs, interrupts 1.00 µs:"
            ),
            "{few:?}"
        );
        decision_log.notes.push(moved(10_000));
        let folded = decisions(&decision_log, 8);
        assert_eq!(folded.len(), 9);
        assert!(
            folded[8].contains("the threshold moved once (to 4 other CPUs)"),
            "{folded:?}"
        );
        decision_log.notes.pop();
        decision_log.notes.insert(0, moved(0));
        let many = decisions(&decision_log, 8);
        assert_eq!(many.len(), 2);
        assert!(many[0].starts_with("at 9.0 µs: the space is promoted"), "{many:?}");
        assert_eq!(many[1], "...and 8 more such decisions: --decisions 9 prints all.");
        decision_log.decisions_dropped = 2;
        assert_eq!(
            decisions(&decision_log, 8)[2],
            "...and 2 later ones, which were not kept."
        );
        assert_eq!(decisions(&decision_log, 9).len(), 10);
    }
}
