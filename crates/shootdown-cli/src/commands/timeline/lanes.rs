//! From the record of a run to lanes, one per CPU, with spans and arrows: what both the terminal and the page draw.

use serde::Serialize;
use shootdown_sim::timeline::{Shootdown, TimelineEvent, What};

/// What is drawn is at least so long: the flush of a design whose invalidation is free takes no time.
const LEAST_NS: f64 = 100.0;

/// What a CPU is busy with, in the order in which spans cover each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Runs kernel code only; its space is stale without harm.
    Lazy,
    /// In a flush of its own.
    Flush,
    /// In a flush of its own, with nothing left to do but wait for others.
    Wait,
    /// Waits for the hardware to carry out its broadcasts.
    Sync,
    /// Sends interrupts.
    Send,
    /// Interrupted.
    Handler,
    /// Invalidates its own translations.
    Invalidate,
}

impl Kind {
    /// Every kind, in the order in which they cover each other.
    pub const ALL: [Self; 7] = [
        Self::Lazy,
        Self::Flush,
        Self::Wait,
        Self::Sync,
        Self::Send,
        Self::Handler,
        Self::Invalidate,
    ];

    /// The kind in words.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Lazy => "lazy",
            Self::Flush => "flushing",
            Self::Wait => "waiting for others",
            Self::Sync => "waiting for broadcasts",
            Self::Send => "sending interrupts",
            Self::Handler => "interrupted",
            Self::Invalidate => "invalidating its own TLB",
        }
    }
}

/// A CPU's part in the shootdown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// It flushes.
    Sender,
    /// It was interrupted.
    Target,
    /// It was lazy and was left alone; it catches up before it touches user addresses again.
    Lazy,
    /// It was not asked.
    Other,
}

/// A stretch of time, ns since the flush began.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Span {
    /// What the CPU was busy with.
    pub kind: Kind,
    /// From when.
    pub from: f64,
    /// Until when.
    pub to: f64,
}

/// One CPU.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Lane {
    /// Its number.
    pub cpu: usize,
    /// Its part.
    pub role: Role,
    /// When the interrupt was sent to it, ns since the flush began.
    pub sent: Option<f64>,
    /// When it took the interrupt; `None` when it answered while it waited for others itself.
    pub entered: Option<f64>,
    /// When it had done what was asked.
    pub answered: Option<f64>,
    /// What it was busy with; later spans cover earlier ones.
    pub spans: Vec<Span>,
}

/// One shootdown, ready to be drawn.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct View {
    /// The CPU that flushes.
    pub sender: usize,
    /// How long the flush took, ns.
    pub duration: f64,
    /// What is drawn, ns since the flush began.
    pub window: (f64, f64),
    /// Broadcasts issued.
    pub broadcasts: usize,
    /// The sender, its targets, lazy CPUs, then the rest.
    pub lanes: Vec<Lane>,
}

impl View {
    /// The view of `shootdown`, which is one of those in `events`.
    pub fn new(events: &[TimelineEvent], shootdown: &Shootdown) -> Self {
        let (begin, duration) = (shootdown.begin, shootdown.end - shootdown.begin);
        let breadth = duration.max(LEAST_NS);
        let window = (-0.06 * breadth, 1.1 * breadth);
        let since = events.first().map_or(begin, |event| event.ns) - begin;
        let targets = shootdown.targets();
        let mut cpus: Vec<usize> = events
            .iter()
            .map(|event| event.cpu)
            .chain(targets.iter().copied())
            .collect();
        cpus.sort_unstable();
        cpus.dedup();
        let mut lanes: Vec<Lane> = cpus
            .into_iter()
            .map(|cpu| {
                let own: Vec<(f64, &What)> = events
                    .iter()
                    .filter(|event| event.cpu == cpu)
                    .map(|event| (event.ns - begin, &event.what))
                    .collect();
                let spans = spans(&own, window, since);
                let lazy = spans
                    .iter()
                    .any(|span| span.kind == Kind::Lazy && span.from <= 0.0 && span.to > 0.0);
                let role = match cpu {
                    _ if cpu == shootdown.sender => Role::Sender,
                    _ if targets.binary_search(&cpu).is_ok() => Role::Target,
                    _ if lazy => Role::Lazy,
                    _ => Role::Other,
                };
                let sent = sent(shootdown, events, cpu);
                let (entered, answered) = match sent {
                    Some(sent) => answer(&own, sent, duration),
                    None => (None, None),
                };
                Lane {
                    cpu,
                    role,
                    sent,
                    entered,
                    answered,
                    spans,
                }
            })
            .collect();
        lanes.sort_by_key(|lane| (lane.role, lane.cpu));
        Self {
            sender: shootdown.sender,
            duration,
            window,
            broadcasts: shootdown.broadcasts,
            lanes,
        }
    }

    /// How many CPUs have this part.
    pub fn count(&self, role: Role) -> usize {
        self.lanes.iter().filter(|lane| lane.role == role).count()
    }

    /// The target that answered last, and when.
    pub fn last(&self) -> Option<(usize, f64)> {
        let answered = self.lanes.iter().filter_map(|lane| Some((lane.cpu, lane.answered?)));
        answered.max_by(|a, b| a.1.total_cmp(&b.1))
    }
}

/// When the interrupt for `cpu` left the sender: they go out one after another.
fn sent(shootdown: &Shootdown, events: &[TimelineEvent], cpu: usize) -> Option<f64> {
    let (start, order, all) = shootdown.sent.iter().find_map(|(at, targets)| {
        let order = targets.iter().position(|&target| target == cpu)?;
        Some((*at, order, targets.len()))
    })?;
    let over = events
        .iter()
        .find(|event| event.cpu == shootdown.sender && event.what == What::SendsEnd && event.ns >= start)
        .map_or(start, |event| event.ns);
    Some(start + (over - start) * (order + 1) as f64 / all as f64 - shootdown.begin)
}

/// When a target took the interrupt, and when it had invalidated.
fn answer(own: &[(f64, &What)], sent: f64, end: f64) -> (Option<f64>, Option<f64>) {
    let after = |from: f64, wanted: fn(&What) -> bool| {
        own.iter()
            .find(|(at, what)| *at >= from && *at <= end && wanted(what))
            .map(|(at, _)| *at)
    };
    let entered = after(sent, |what| *what == What::HandlerEnters);
    let invalidated = |from: f64| after(from, |what| *what == What::InvalidateEnds);
    let Some(taken) = entered else {
        return (None, invalidated(sent));
    };
    // A target that had caught up already has nothing to invalidate and says so from its handler, which may go on after
    // the flush has ended.
    let left = after(taken, |what| *what == What::HandlerLeaves).unwrap_or(end);
    let answered = invalidated(taken).filter(|&at| at <= left).unwrap_or(left);
    (entered, Some(answered))
}

/// The spans of one CPU that reach into `window`. What ends without having begun was under way when the record began,
/// at `since`, and is drawn from there; of such a flush it is not known whom it had asked, so none of it counts as
/// waiting unless it asks in the record. Who is lazy is known from the start, so lazy CPUs are no such case.
fn spans(own: &[(f64, &What)], window: (f64, f64), since: f64) -> Vec<Span> {
    let mut spans: Vec<Span> = Vec::new();
    let mut open: Vec<(Kind, f64)> = Vec::new();
    // Since when the CPU's own flush has had nothing to do, once it has asked others.
    let (mut asked, mut idle_since) = (false, 0.0);
    let mut add = |kind: Kind, from: f64, to: f64| {
        if to >= window.0 && from <= window.1 {
            spans.push(Span {
                kind,
                from: from.max(window.0),
                to: to.min(window.1),
            });
        }
    };
    for &(at, what) in own {
        let opens = match what {
            What::FlushBegins => Some(Kind::Flush),
            What::Sends(_) => Some(Kind::Send),
            What::HandlerEnters => Some(Kind::Handler),
            What::InvalidateBegins => Some(Kind::Invalidate),
            What::SyncBegins => Some(Kind::Sync),
            What::LazyEnters => Some(Kind::Lazy),
            _ => None,
        };
        let closes = match what {
            What::FlushEnds => Some(Kind::Flush),
            What::SendsEnd => Some(Kind::Send),
            What::HandlerLeaves => Some(Kind::Handler),
            What::InvalidateEnds => Some(Kind::Invalidate),
            What::SyncEnds => Some(Kind::Sync),
            What::LazyLeaves => Some(Kind::Lazy),
            _ => None,
        };
        if let Some(kind) = opens {
            open.push((kind, at));
            if kind == Kind::Flush {
                asked = false;
            }
        }
        if *what == What::Prepared {
            idle_since = at;
        }
        if let Some(kind) = closes {
            let in_handler = open.iter().any(|(kind, _)| *kind == Kind::Handler);
            match open.iter().rposition(|(opened, _)| *opened == kind) {
                Some(index) => add(kind, open.remove(index).1, at),
                None if kind != Kind::Lazy => add(kind, since, at),
                None => {}
            }
            match kind {
                Kind::Send => (asked, idle_since) = (true, at),
                Kind::Invalidate if !in_handler => idle_since = at,
                Kind::Flush if asked => add(Kind::Wait, idle_since, at),
                _ => {}
            }
        }
    }
    for (kind, from) in open {
        add(kind, from, f64::INFINITY);
    }
    spans.sort_by(|a, b| a.kind.cmp(&b.kind).then(a.from.total_cmp(&b.from)));
    spans
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use shootdown_sim::timeline::shootdowns;

    /// CPU 0 interrupts 1 and 2 while 3 is lazy and 4 runs.
    pub fn record() -> Vec<TimelineEvent> {
        [
            (3, 0.0, What::LazyEnters),
            (4, 10.0, What::LoadsRoot { keep: true }),
            (0, 1000.0, What::FlushBegins),
            (0, 1100.0, What::Sends(vec![1, 2])),
            (0, 1200.0, What::SendsEnd),
            (0, 1200.0, What::InvalidateBegins),
            (0, 1300.0, What::InvalidateEnds),
            (1, 1500.0, What::HandlerEnters),
            (1, 1600.0, What::InvalidateBegins),
            (1, 1700.0, What::InvalidateEnds),
            (1, 1800.0, What::HandlerLeaves),
            (2, 1900.0, What::InvalidateBegins),
            (2, 1950.0, What::InvalidateEnds),
            (0, 2000.0, What::FlushEnds),
        ]
        .into_iter()
        .map(|(cpu, ns, what)| TimelineEvent { cpu, ns, what })
        .collect()
    }

    pub fn view() -> View {
        let events = record();
        View::new(&events, &shootdowns(&events)[0])
    }

    #[test]
    fn every_cpu_has_its_part_and_targets_their_times() {
        let view = view();
        assert_eq!((view.sender, view.duration), (0, 1000.0));
        let brief: Vec<_> = view
            .lanes
            .iter()
            .map(|lane| (lane.cpu, lane.role, lane.sent, lane.entered, lane.answered))
            .collect();
        assert_eq!(
            brief,
            [
                (0, Role::Sender, None, None, None),
                (1, Role::Target, Some(150.0), Some(500.0), Some(700.0)),
                (2, Role::Target, Some(200.0), None, Some(950.0)),
                (3, Role::Lazy, None, None, None),
                (4, Role::Other, None, None, None),
            ]
        );
        assert_eq!(view.last(), Some((2, 950.0)));
    }

    #[test]
    fn a_target_with_nothing_to_invalidate_answers_in_its_first_handler() {
        let own = [
            (300.0, &What::HandlerEnters),
            (400.0, &What::HandlerLeaves),
            (600.0, &What::HandlerEnters),
            (700.0, &What::InvalidateEnds),
            (800.0, &What::HandlerLeaves),
        ];
        assert_eq!(answer(&own, 200.0, 1000.0), (Some(300.0), Some(400.0)));
        assert_eq!(answer(&own, 500.0, 1000.0), (Some(600.0), Some(700.0)));
        assert_eq!(answer(&own[..3], 500.0, 1000.0), (Some(600.0), Some(1000.0)));
        assert_eq!(answer(&[], 500.0, 1000.0), (None, None));
    }

    #[test]
    fn spans_are_cut_to_the_window_and_waiting_begins_when_nothing_is_left_to_do() {
        let view = view();
        let of = |cpu: usize| view.lanes.iter().find(|lane| lane.cpu == cpu).unwrap().spans.clone();
        let span = |kind, from, to| Span { kind, from, to };
        assert_eq!(
            of(0),
            [
                span(Kind::Flush, 0.0, 1000.0),
                span(Kind::Wait, 300.0, 1000.0),
                span(Kind::Send, 100.0, 200.0),
                span(Kind::Invalidate, 200.0, 300.0),
            ]
        );
        assert_eq!(of(3), [span(Kind::Lazy, view.window.0, view.window.1)]);
        assert!(of(4).is_empty());
    }

    #[test]
    fn what_was_under_way_when_the_record_began_is_there_from_the_beginning() {
        let own = [
            (-80.0, &What::HandlerLeaves),
            (10.0, &What::InvalidateBegins),
            (20.0, &What::InvalidateEnds),
            (300.0, &What::FlushEnds),
            (400.0, &What::LazyLeaves),
        ];
        let span = |kind, from, to| Span { kind, from, to };
        assert_eq!(
            spans(&own, (-60.0, 1100.0), -100.0),
            [span(Kind::Flush, -60.0, 300.0), span(Kind::Invalidate, 10.0, 20.0)],
            "the handler was over before the window"
        );
        let asks = [(50.0, &What::SendsEnd), (300.0, &What::FlushEnds)];
        assert_eq!(
            spans(&asks, (-60.0, 1100.0), -40.0),
            [
                span(Kind::Flush, -40.0, 300.0),
                span(Kind::Wait, 50.0, 300.0),
                span(Kind::Send, -40.0, 50.0),
            ]
        );
    }

    #[test]
    fn a_flush_that_takes_no_time_has_a_window_to_be_drawn_in() {
        let event = |ns, what| TimelineEvent { cpu: 4, ns, what };
        let events = [event(500.0, What::FlushBegins), event(500.0, What::FlushEnds)];
        let view = View::new(&events, &shootdowns(&events)[0]);
        assert_eq!(view.duration, 0.0);
        assert!(view.window.0 < 0.0 && view.window.1 >= 100.0, "{:?}", view.window);
        assert_eq!(
            view.lanes[0].spans,
            [Span {
                kind: Kind::Flush,
                from: 0.0,
                to: 0.0
            }]
        );
    }
}
