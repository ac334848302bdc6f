//! Events of the engine, in C's form.

use crate::hooks::{shootdown_event, shootdown_event_kind};
use shootdown::{Answer, Event};
use shootdown_event_kind::*;

impl From<Event> for shootdown_event {
    fn from(event: Event) -> Self {
        let bare = |kind| shootdown_event {
            kind,
            targets: 0,
            count: 0,
            before: 0,
            after: 0,
        };
        let counted = |kind, count| shootdown_event { count, ..bare(kind) };
        let targeted = |kind, targets| shootdown_event { targets, ..bare(kind) };
        match event {
            Event::LocalOnly => bare(SHOOTDOWN_EVENT_LOCAL_ONLY),
            Event::Interrupted { sent, targets } => shootdown_event {
                targets,
                ..counted(SHOOTDOWN_EVENT_INTERRUPTED, sent)
            },
            Event::Broadcast { instructions } => counted(SHOOTDOWN_EVENT_BROADCAST, instructions),
            Event::Deferred { frames } => counted(SHOOTDOWN_EVENT_DEFERRED, frames),
            Event::Answered(answer) => bare(match answer {
                Answer::Flushed => SHOOTDOWN_EVENT_ANSWERED_FLUSHED,
                Answer::Current => SHOOTDOWN_EVENT_ANSWERED_CURRENT,
                Answer::Unloaded => SHOOTDOWN_EVENT_ANSWERED_UNLOADED,
                Answer::Elsewhere => SHOOTDOWN_EVENT_ANSWERED_ELSEWHERE,
            }),
            Event::CaughtUpPartly => bare(SHOOTDOWN_EVENT_CAUGHT_UP_PARTLY),
            Event::CaughtUpWhole => bare(SHOOTDOWN_EVENT_CAUGHT_UP_WHOLE),
            Event::Promoted => bare(SHOOTDOWN_EVENT_PROMOTED),
            Event::TagsExhausted => bare(SHOOTDOWN_EVENT_TAGS_EXHAUSTED),
            Event::RollOver => bare(SHOOTDOWN_EVENT_ROLL_OVER),
            Event::Promoting { active, .. } => targeted(SHOOTDOWN_EVENT_PROMOTING, active),
            Event::Demoting { active, .. } => targeted(SHOOTDOWN_EVENT_DEMOTING, active),
            Event::Demoted => bare(SHOOTDOWN_EVENT_DEMOTED),
            Event::WalksChanged => bare(SHOOTDOWN_EVENT_WALKS_CHANGED),
            Event::Calibrated(_) => bare(SHOOTDOWN_EVENT_CALIBRATED),
            Event::Chose { targets, .. } => targeted(SHOOTDOWN_EVENT_CHOSE, targets),
            Event::Measured {
                targets,
                expected_ns,
                took_ns,
                ..
            } => shootdown_event {
                before: expected_ns,
                after: took_ns,
                ..targeted(SHOOTDOWN_EVENT_MEASURED, targets)
            },
            Event::ThresholdMoved { from, to, .. } => shootdown_event {
                before: from,
                after: to,
                ..bare(SHOOTDOWN_EVENT_THRESHOLD_MOVED)
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_conversion_keeps_kind_and_counts() {
        let event = shootdown_event::from(Event::Interrupted { sent: 2, targets: 3 });
        assert_eq!(
            (event.kind, event.count, event.targets),
            (SHOOTDOWN_EVENT_INTERRUPTED, 2, 3)
        );
        let event = shootdown_event::from(Event::Answered(Answer::Unloaded));
        assert_eq!((event.kind, event.count), (SHOOTDOWN_EVENT_ANSWERED_UNLOADED, 0));
    }
}
