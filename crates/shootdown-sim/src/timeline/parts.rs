//! The parts of one flush, from the record of the flushing CPU: contiguous pieces from its beginning to its end.
//!
//! Owns the order in which activities cover each other. Every moment belongs to one part, so that the parts add up to
//! the whole.

use super::{TimelineEvent, What};

/// Activity of a CPU in its own flush.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// Counts the request and reads which CPUs have the space loaded.
    Choose,
    /// Posts the request at each target: their cache lines move.
    Post,
    /// Sends interrupts.
    Send,
    /// Bookkeeping of the cross-CPU calls, for each target.
    Prepare,
    /// Issues broadcasts.
    Broadcast,
    /// Waits for the hardware to carry out its broadcasts.
    Sync,
    /// Invalidates its own TLB; during the wait also on requests of other CPUs.
    Invalidate,
    /// Work that is no part of the flush, while the targets answer.
    Meanwhile,
    /// Waits for the last answer.
    Wait,
    /// Reads answers that have all arrived: their cache lines move.
    Collect,
    /// Serves interrupts.
    Interrupted,
    /// Waits for a CPU of the host.
    Out,
    /// The rest of the flush after its invalidation, without targets to wait for.
    Finish,
}

/// A stretch of a flush.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Piece {
    /// The activity.
    pub part: Part,
    /// Its start, virtual ns since the run began.
    pub from: f64,
    /// Its end.
    pub to: f64,
    /// Time in it in which the CPU waited for cache lines, ns; 0 in handlers, which are not examined.
    pub lines: f64,
}

/// State of a CPU in its flush.
struct State {
    /// Its activity when no other covers it.
    base: Part,
    /// Number of open activities that cover it.
    out: bool,
    handlers: u32,
    meanwhile: bool,
    invalidates: bool,
    sends: bool,
    syncs: bool,
    prepares: bool,
}

impl State {
    fn part(&self) -> Part {
        match self {
            _ if self.out => Part::Out,
            _ if self.handlers > 0 => Part::Interrupted,
            _ if self.meanwhile => Part::Meanwhile,
            _ if self.invalidates => Part::Invalidate,
            _ if self.sends => Part::Send,
            _ if self.syncs => Part::Sync,
            _ if self.prepares => Part::Prepare,
            _ => self.base,
        }
    }

    fn see(&mut self, what: &What) {
        match what {
            What::OutBegins => self.out = true,
            What::OutEnds => self.out = false,
            What::HandlerEnters => self.handlers += 1,
            What::HandlerLeaves => self.handlers = self.handlers.saturating_sub(1),
            _ if self.handlers > 0 => {}
            What::MeanwhileBegins => self.meanwhile = true,
            What::MeanwhileEnds => self.meanwhile = false,
            What::InvalidateBegins => self.invalidates = true,
            What::InvalidateEnds => {
                self.invalidates = false;
                self.finish();
            }
            What::Sends(_) => self.sends = true,
            What::SendsEnd => self.sends = false,
            What::SyncBegins => self.syncs = true,
            What::SyncEnds => {
                self.syncs = false;
                self.finish();
            }
            What::Prepares => self.prepares = true,
            What::Prepared => (self.prepares, self.base) = (false, Part::Wait),
            What::Posts(_) if self.base != Part::Wait => self.base = Part::Post,
            What::Broadcasts => self.base = Part::Broadcast,
            _ => {}
        }
    }

    /// Its own part is done: without targets, only the rest remains.
    fn finish(&mut self) {
        if matches!(self.base, Part::Choose | Part::Broadcast) {
            self.base = Part::Finish;
        }
    }
}

/// The pieces of the flush of `cpu` that lasted from `begin` to `end`, in order: the first begins at `begin`, each at
/// the end of the one before, the last ends at `end`. `last_answer` is when its last target had answered, if it had
/// any.
pub fn divide(events: &[TimelineEvent], cpu: usize, begin: f64, end: f64, last_answer: Option<f64>) -> Vec<Piece> {
    let mut state = State {
        base: Part::Choose,
        out: false,
        handlers: 0,
        meanwhile: false,
        invalidates: false,
        sends: false,
        syncs: false,
        prepares: false,
    };
    let mut pieces = Pieces {
        found: Vec::new(),
        at: begin,
    };
    let mut waits = false;
    let first = events.partition_point(|event| event.ns < begin);
    for event in events[first..].iter().take_while(|event| event.ns <= end) {
        if event.cpu != cpu {
            continue;
        }
        pieces.until(event.ns, state.part(), waits, last_answer);
        match event.what {
            What::LineWaitBegins => waits = true,
            What::LineWaitEnds => waits = false,
            _ => state.see(&event.what),
        }
    }
    pieces.until(end, state.part(), waits, last_answer);
    pieces.settled()
}

struct Pieces {
    found: Vec<Piece>,
    at: f64,
}

impl Pieces {
    /// From the end of the last piece until `to` the CPU did `part`; after the last answer it no longer waits.
    fn until(&mut self, to: f64, part: Part, waits: bool, last_answer: Option<f64>) {
        match last_answer {
            Some(answer) if part == Part::Wait && answer <= self.at => self.add(to, Part::Collect, waits),
            Some(answer) if part == Part::Wait && answer < to => {
                self.add(answer, Part::Wait, waits);
                self.add(to, Part::Collect, waits);
            }
            _ => self.add(to, part, waits),
        }
    }

    /// The pieces, where a flush that posts after its own invalidation does not end in between.
    fn settled(mut self) -> Vec<Piece> {
        let last_post = self.found.iter().rposition(|piece| piece.part == Part::Post);
        for piece in &mut self.found[..last_post.unwrap_or(0)] {
            if piece.part == Part::Finish {
                piece.part = Part::Post;
            }
        }
        self.found
    }

    fn add(&mut self, to: f64, part: Part, waits: bool) {
        let from = std::mem::replace(&mut self.at, to);
        if to <= from {
            return;
        }
        let lines = if waits && !matches!(part, Part::Interrupted | Part::Out) {
            to - from
        } else {
            0.0
        };
        match self.found.last_mut() {
            Some(last) if last.part == part => (last.to, last.lines) = (to, last.lines + lines),
            _ => self.found.push(Piece { part, from, to, lines }),
        }
    }
}
