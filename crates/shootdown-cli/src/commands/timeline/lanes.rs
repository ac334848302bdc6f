//! From the record of a run to lanes, one per CPU, with spans, for the terminal and the page.

use schemars::JsonSchema;
use serde::Serialize;
use shootdown_sim::timeline::{Part, Shootdown, TimelineEvent, What, divide};

/// Least length of the drawing: the flush of a design with free invalidation takes no time.
const LEAST_NS: f64 = 100.0;

/// Activity of a CPU, in the order in which spans cover each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Runs kernel code only, in lazy TLB mode.
    Lazy,
    /// In its own flush, which the record does not hold completely.
    Flush,
    /// In its own flush: chooses the targets.
    Choose,
    /// Posts requests at its targets.
    Post,
    /// Bookkeeping of the calls to its targets.
    Prepare,
    /// Issues broadcasts.
    Broadcast,
    /// Does other work while its targets answer.
    Meanwhile,
    /// Has only the wait for its targets left.
    Wait,
    /// Reads answers.
    Collect,
    /// Ends its flush.
    Finish,
    /// Waits for the hardware to carry out its broadcasts.
    Sync,
    /// Sends interrupts.
    Send,
    /// Interrupted.
    Handler,
    /// Invalidates its own translations.
    Invalidate,
    /// Its virtual CPU waits for a CPU of the host.
    Out,
}

impl Kind {
    /// Every kind, in the order in which they cover each other.
    pub const ALL: [Self; 15] = [
        Self::Lazy,
        Self::Flush,
        Self::Choose,
        Self::Post,
        Self::Prepare,
        Self::Broadcast,
        Self::Meanwhile,
        Self::Wait,
        Self::Collect,
        Self::Finish,
        Self::Sync,
        Self::Send,
        Self::Handler,
        Self::Invalidate,
        Self::Out,
    ];

    /// The kind in words.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Lazy => "lazy",
            Self::Flush => "flushing",
            Self::Choose => "choosing targets",
            Self::Post => "posting requests",
            Self::Prepare => "bookkeeping of calls",
            Self::Broadcast => "issuing broadcasts",
            Self::Meanwhile => "other work meanwhile",
            Self::Wait => "waiting for answers",
            Self::Collect => "reading answers",
            Self::Finish => "ending the flush",
            Self::Sync => "waiting for broadcasts",
            Self::Send => "sending interrupts",
            Self::Handler => "interrupted by others",
            Self::Invalidate => "invalidating its own TLB",
            Self::Out => "waiting for a host CPU",
        }
    }

    /// The name of the kind in JSON and in the style sheet.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lazy => "lazy",
            Self::Flush => "flush",
            Self::Choose => "choose",
            Self::Post => "post",
            Self::Prepare => "prepare",
            Self::Broadcast => "broadcast",
            Self::Meanwhile => "meanwhile",
            Self::Wait => "wait",
            Self::Collect => "collect",
            Self::Finish => "finish",
            Self::Sync => "sync",
            Self::Send => "send",
            Self::Handler => "handler",
            Self::Invalidate => "invalidate",
            Self::Out => "out",
        }
    }
}

impl From<Part> for Kind {
    fn from(part: Part) -> Self {
        match part {
            Part::Choose => Self::Choose,
            Part::Post => Self::Post,
            Part::Send => Self::Send,
            Part::Prepare => Self::Prepare,
            Part::Broadcast => Self::Broadcast,
            Part::Sync => Self::Sync,
            Part::Invalidate => Self::Invalidate,
            Part::Meanwhile => Self::Meanwhile,
            Part::Wait => Self::Wait,
            Part::Collect => Self::Collect,
            Part::Interrupted => Self::Handler,
            Part::Finish => Self::Finish,
            Part::Out => Self::Out,
        }
    }
}

/// A CPU's role in the shootdown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// It flushes.
    Sender,
    /// It was a target, by an interrupt of the sender or one already on its way.
    Target,
    /// It was in lazy TLB mode and was skipped; it catches up before it touches user addresses again.
    Lazy,
    /// It was not a target.
    Other,
}

/// A stretch of time, ns since the flush began.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Span {
    /// The activity.
    pub kind: Kind,
    /// Start.
    #[serde(rename = "from_ns")]
    pub from: f64,
    /// End.
    #[serde(rename = "to_ns")]
    pub to: f64,
}

/// One CPU.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Lane {
    /// Its number.
    pub cpu: usize,
    /// Its role.
    pub role: Role,
    /// When the request was posted at it, ns since the flush began.
    #[serde(rename = "posted_ns")]
    pub posted: Option<f64>,
    /// When the interrupt was sent to it; `None` also when another's was already on its way.
    #[serde(rename = "sent_ns")]
    pub sent: Option<f64>,
    /// When it took the interrupt; `None` when it served the request during its own wait.
    #[serde(rename = "entered_ns")]
    pub entered: Option<f64>,
    /// When it had answered.
    #[serde(rename = "answered_ns")]
    pub answered: Option<f64>,
    /// Its activities; later spans cover earlier ones.
    pub spans: Vec<Span>,
}

/// Duration of one part of the sender's flush.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Spent {
    /// The part.
    pub kind: Kind,
    /// Its duration, ns.
    #[serde(rename = "time_ns")]
    pub time: f64,
    /// Of that, time waiting for cache lines, ns.
    #[serde(rename = "lines_ns")]
    pub lines: f64,
}

/// One shootdown, ready to draw.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct View {
    /// The CPU that flushes.
    pub sender: usize,
    /// How long the flush took, ns.
    #[serde(rename = "duration_ns")]
    pub duration: f64,
    /// Its parts, in order; they add up to the duration.
    pub parts: Vec<Spent>,
    /// The drawn window, ns since the flush began.
    #[serde(rename = "window_ns")]
    pub window: (f64, f64),
    /// Broadcasts issued.
    pub broadcasts: usize,
    /// The sender, its targets in the order of their answers, lazy CPUs, then the rest.
    pub lanes: Vec<Lane>,
}

impl View {
    /// The view of `shootdown`, one of `flushes`, which are in `events`.
    pub fn new(events: &[TimelineEvent], flushes: &[Shootdown], shootdown: &Shootdown) -> Self {
        let (begin, duration) = (shootdown.begin, shootdown.end - shootdown.begin);
        let breadth = duration.max(LEAST_NS);
        let window = (-0.06 * breadth, 1.1 * breadth);
        let record = Record::new(events, begin, window);
        let divided: Vec<Divided> = (flushes.iter())
            .filter(|flush| flush.end - begin >= window.0 && flush.begin - begin <= window.1)
            .map(|flush| record.divided(flush))
            .collect();
        let mut lanes: Vec<Lane> = (0..record.own.len())
            .filter(|&cpu| !record.own[cpu].is_empty() || shootdown.targets().contains(&cpu))
            .map(|cpu| record.lane(cpu, shootdown, &divided))
            .collect();
        lanes.sort_by(|a, b| {
            let answered = |lane: &Lane| lane.answered.unwrap_or(0.0);
            (a.role.cmp(&b.role)).then(answered(a).total_cmp(&answered(b)).then(a.cpu.cmp(&b.cpu)))
        });
        let own = |flush: &&Divided| (flush.cpu, flush.begin) == (shootdown.sender, shootdown.begin);
        Self {
            sender: shootdown.sender,
            duration,
            parts: divided.iter().find(own).map(spent).unwrap_or_default(),
            window,
            broadcasts: shootdown.broadcasts,
            lanes,
        }
    }

    /// Number of CPUs with this role.
    pub fn count(&self, role: Role) -> usize {
        self.lanes.iter().filter(|lane| lane.role == role).count()
    }

    /// The target that answered last, and when.
    pub fn last(&self) -> Option<(usize, f64)> {
        let answered = self.lanes.iter().filter_map(|lane| Some((lane.cpu, lane.answered?)));
        answered.max_by(|a, b| a.1.total_cmp(&b.1))
    }
}

/// Duration of each kind of piece, in the order in which they first occur.
fn spent(flush: &Divided) -> Vec<Spent> {
    let mut parts: Vec<Spent> = Vec::new();
    for (span, lines) in &flush.pieces {
        let time = span.to - span.from;
        match parts.iter_mut().find(|part| part.kind == span.kind) {
            Some(part) => (part.time, part.lines) = (part.time + time, part.lines + lines),
            None => parts.push(Spent {
                kind: span.kind,
                time,
                lines: *lines,
            }),
        }
    }
    parts
}

/// A flush and its pieces, each with the time in which its CPU waited for cache lines.
struct Divided {
    cpu: usize,
    begin: f64,
    pieces: Vec<(Span, f64)>,
}

/// The record, by CPU, times since the flush began.
struct Record<'a> {
    events: &'a [TimelineEvent],
    own: Vec<Vec<(f64, &'a What)>>,
    begin: f64,
    /// When the record begins.
    since: f64,
    window: (f64, f64),
}

impl<'a> Record<'a> {
    fn new(events: &'a [TimelineEvent], begin: f64, window: (f64, f64)) -> Self {
        let cpus = events.iter().map(|event| event.cpu + 1).max().unwrap_or(0);
        let mut own = vec![Vec::new(); cpus];
        for event in events {
            own[event.cpu].push((event.ns - begin, &event.what));
        }
        Record {
            events,
            own,
            begin,
            since: events.first().map_or(begin, |event| event.ns) - begin,
            window,
        }
    }

    /// When the interrupt for `cpu` left the sender of `flush`: interrupts are sent one after another.
    fn sent(&self, flush: &Shootdown, cpu: usize) -> Option<f64> {
        let (start, order, all) = flush.sent.iter().find_map(|(at, targets)| {
            let order = targets.iter().position(|&target| target == cpu)?;
            Some((*at - self.begin, order, targets.len()))
        })?;
        let own = &self.own[flush.sender];
        let over = own[own.partition_point(|(at, _)| *at < start)..]
            .iter()
            .find(|(_, what)| **what == What::SendsEnd)
            .map_or(start, |(at, _)| *at);
        Some(start + (over - start) * (order + 1) as f64 / all as f64)
    }

    fn posted(&self, flush: &Shootdown, cpu: usize) -> Option<f64> {
        let posted = flush.posted.iter().find(|(_, posted)| *posted == cpu);
        posted.map(|(at, _)| at - self.begin)
    }

    /// When `cpu` took the interrupt for `flush` and when it answered, if it was a target. If the interrupt was
    /// another's, it may have been taken right after the request was posted.
    fn answer(&self, flush: &Shootdown, cpu: usize) -> (Option<f64>, Option<f64>) {
        match self.sent(flush, cpu).or_else(|| self.posted(flush, cpu)) {
            Some(since) => answer(&self.own[cpu], since, flush.end - self.begin),
            None => (None, None),
        }
    }

    fn divided(&self, flush: &Shootdown) -> Divided {
        let mut targets = flush.targets();
        targets.extend(flush.posted.iter().map(|(_, cpu)| cpu));
        let answers = targets.iter().filter_map(|&cpu| self.answer(flush, cpu).1);
        let last = answers.max_by(f64::total_cmp).map(|last| last + self.begin);
        let pieces = divide(self.events, flush.sender, flush.begin, flush.end, last);
        let piece = |piece: &shootdown_sim::timeline::Piece| {
            let span = Span {
                kind: Kind::from(piece.part),
                from: piece.from - self.begin,
                to: piece.to - self.begin,
            };
            (span, piece.lines)
        };
        Divided {
            cpu: flush.sender,
            begin: flush.begin,
            pieces: pieces.iter().map(piece).collect(),
        }
    }

    fn lane(&self, cpu: usize, shootdown: &Shootdown, divided: &[Divided]) -> Lane {
        let own = divided.iter().filter(|flush| flush.cpu == cpu);
        let pieces = own.flat_map(|flush| flush.pieces.iter().map(|(span, _)| span.clone()));
        let spans = spans(&self.own[cpu], pieces, self.window, self.since);
        let lazy = |span: &Span| span.kind == Kind::Lazy && span.from <= 0.0 && span.to > 0.0;
        let (posted, sent) = (self.posted(shootdown, cpu), self.sent(shootdown, cpu));
        let role = match cpu {
            _ if cpu == shootdown.sender => Role::Sender,
            _ if posted.or(sent).is_some() => Role::Target,
            _ if spans.iter().any(lazy) => Role::Lazy,
            _ => Role::Other,
        };
        let (entered, answered) = self.answer(shootdown, cpu);
        Lane {
            cpu,
            role,
            posted,
            sent,
            entered,
            answered,
            spans,
        }
    }
}

/// When a target took the interrupt, and when it had invalidated.
fn answer(own: &[(f64, &What)], sent: f64, end: f64) -> (Option<f64>, Option<f64>) {
    let after = |from: f64, matches: fn(&What) -> bool| {
        own[own.partition_point(|(at, _)| *at < from)..]
            .iter()
            .take_while(|(at, _)| *at <= end)
            .find(|(_, what)| matches(what))
            .map(|(at, _)| *at)
    };
    let entered = after(sent, |what| *what == What::HandlerEnters);
    let invalidated = |from: f64| after(from, |what| *what == What::InvalidateEnds);
    let Some(taken) = entered else {
        return (None, invalidated(sent));
    };
    // A target that had already caught up has nothing to invalidate and says so from its handler, which may continue
    // after the flush has ended.
    let left = after(taken, |what| *what == What::HandlerLeaves).unwrap_or(end);
    let answered = invalidated(taken).filter(|&at| at <= left).unwrap_or(left);
    (entered, Some(answered))
}

/// Whether a span of this kind opens or closes.
fn edge(what: &What) -> Option<(Kind, bool)> {
    Some(match what {
        What::FlushBegins => (Kind::Flush, true),
        What::FlushEnds => (Kind::Flush, false),
        What::HandlerEnters => (Kind::Handler, true),
        What::HandlerLeaves => (Kind::Handler, false),
        What::InvalidateBegins => (Kind::Invalidate, true),
        What::InvalidateEnds => (Kind::Invalidate, false),
        What::OutBegins => (Kind::Out, true),
        What::OutEnds => (Kind::Out, false),
        What::LazyEnters => (Kind::Lazy, true),
        What::LazyLeaves => (Kind::Lazy, false),
        _ => return None,
    })
}

/// The spans of one CPU that reach into `window`: `pieces` of its own flushes, and its other activities. A span that
/// ends without a beginning was in progress when the record began, at `since`, and is drawn from there. This does not
/// apply to lazy TLB mode, which is known from the start.
fn spans(own: &[(f64, &What)], pieces: impl Iterator<Item = Span>, window: (f64, f64), since: f64) -> Vec<Span> {
    let mut spans: Vec<Span> = pieces.filter(|piece| piece.kind != Kind::Handler).collect();
    let divided = |from: f64, to: f64, pieces: &[Span]| pieces.iter().any(|piece| piece.from >= from && piece.to <= to);
    let whole = spans.clone();
    let mut open: Vec<(Kind, f64)> = Vec::new();
    for &(at, what) in own {
        match edge(what) {
            Some((kind, true)) => open.push((kind, at)),
            Some((kind, false)) => {
                let begun = match open.iter().rposition(|(opened, _)| *opened == kind) {
                    Some(index) => Some(open.remove(index).1),
                    None => (kind != Kind::Lazy).then_some(since),
                };
                let begun = begun.filter(|&from| kind != Kind::Flush || !divided(from, at, &whole));
                spans.extend(begun.map(|from| Span { kind, from, to: at }));
            }
            None => {}
        }
    }
    spans.extend(open.into_iter().map(|(kind, from)| Span {
        kind,
        from,
        to: f64::INFINITY,
    }));
    spans.retain(|span| span.to >= window.0 && span.from <= window.1);
    for span in &mut spans {
        (span.from, span.to) = (span.from.max(window.0), span.to.min(window.1));
    }
    spans.sort_by(|a, b| a.kind.cmp(&b.kind).then(a.from.total_cmp(&b.from)));
    spans.dedup();
    spans
}

#[cfg(test)]
pub(super) mod tests;
