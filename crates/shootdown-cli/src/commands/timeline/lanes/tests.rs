//! Tests of the lanes, and the record that the drawings are tested with.

use super::*;
use shootdown_sim::timeline::shootdowns;

/// CPU 0 interrupts 1 and 2 while 3 is lazy and 4 runs.
pub fn record() -> Vec<TimelineEvent> {
    [
        (3, 0.0, What::LazyEnters),
        (4, 10.0, What::LoadsRoot { keep: true }),
        (0, 1000.0, What::FlushBegins),
        (0, 1010.0, What::LineWaitBegins),
        (0, 1040.0, What::LineWaitEnds),
        (0, 1100.0, What::Posts(1)),
        (0, 1100.0, What::Posts(2)),
        (0, 1100.0, What::Sends(vec![1, 2])),
        (0, 1200.0, What::SendsEnd),
        (0, 1200.0, What::InvalidateBegins),
        (0, 1300.0, What::InvalidateEnds),
        (0, 1300.0, What::Prepares),
        (0, 1310.0, What::Prepared),
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
    view_of(&events)
}

fn view_of(events: &[TimelineEvent]) -> View {
    let flushes = shootdowns(events);
    View::new(events, &flushes, &flushes[0])
}

#[test]
fn lanes_have_roles_and_target_times() {
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
fn target_without_invalidation_answers_in_its_first_handler() {
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
fn spans_are_clipped_and_waiting_starts_after_the_last_work() {
    let view = view();
    let of = |cpu: usize| view.lanes.iter().find(|lane| lane.cpu == cpu).unwrap().spans.clone();
    let span = |kind, from, to| Span { kind, from, to };
    assert_eq!(
        of(0),
        [
            span(Kind::Choose, 0.0, 100.0),
            span(Kind::Prepare, 300.0, 310.0),
            span(Kind::Wait, 310.0, 950.0),
            span(Kind::Collect, 950.0, 1000.0),
            span(Kind::Send, 100.0, 200.0),
            span(Kind::Invalidate, 200.0, 300.0),
        ]
    );
    assert_eq!(of(3), [span(Kind::Lazy, view.window.0, view.window.1)]);
    assert!(of(4).is_empty());
}

#[test]
fn span_begun_before_the_record_starts_at_its_beginning() {
    let own = [
        (-80.0, &What::HandlerLeaves),
        (10.0, &What::InvalidateBegins),
        (20.0, &What::InvalidateEnds),
        (300.0, &What::FlushEnds),
        (400.0, &What::LazyLeaves),
    ];
    let span = |kind, from, to| Span { kind, from, to };
    assert_eq!(
        spans(&own, std::iter::empty(), (-60.0, 1100.0), -100.0),
        [span(Kind::Flush, -60.0, 300.0), span(Kind::Invalidate, 10.0, 20.0)],
        "the handler was over before the window"
    );
}

#[test]
fn zero_length_flush_has_a_drawable_window() {
    let event = |ns, what| TimelineEvent { cpu: 4, ns, what };
    let events = [event(500.0, What::FlushBegins), event(500.0, What::FlushEnds)];
    let view = view_of(&events);
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

#[test]
fn parts_of_a_flush_sum_to_its_duration() {
    let view = view();
    let of = |kind: Kind| {
        view.parts
            .iter()
            .find(|part| part.kind == kind)
            .map(|part| (part.time, part.lines))
    };
    assert_eq!(of(Kind::Choose), Some((100.0, 30.0)));
    assert_eq!(of(Kind::Wait), Some((640.0, 0.0)));
    assert_eq!(view.parts.iter().map(|part| part.time).sum::<f64>(), view.duration);
}

#[test]
fn cpu_with_an_ipi_in_flight_is_a_target() {
    let mut events = record();
    let asks = |cpu| TimelineEvent {
        cpu: 0,
        ns: 1100.0,
        what: What::Posts(cpu),
    };
    events.insert(6, asks(4));
    let view = view_of(&events);
    let lane = view.lanes.iter().find(|lane| lane.cpu == 4).unwrap();
    assert_eq!((lane.role, lane.posted, lane.sent), (Role::Target, Some(100.0), None));
}
