//! Trace text: the trace file of tracefs, `perf script`, `trace-cmd report`.
//!
//! Owns reading line by line, and the count of unusable lines. One line is in `line.rs`, the fields of each event in
//! `fields.rs`, headers and losses in `header.rs`; `kind.rs` names what is no trace text, and the command that makes it
//! one. Damaged and unknown lines are counted and skipped.

mod clock;
mod fault;
mod fields;
mod header;
mod kind;
mod line;

use crate::{Damage, Event, FirstDamage, Metadata, What};
use clock::{Clock, When};
use fault::{Fault, Lack};
pub use kind::{Kind, NEEDED_EVENTS};
use line::Parts;
use std::collections::HashMap;
use std::io::{self, BufRead, Read};

/// Longest line that is parsed, in bytes. The rest of a longer one is skipped.
const LINE_BYTES: usize = 1 << 16;

/// Names of unused events that are kept; further ones are counted together.
const UNUSED_NAMES: usize = 64;

/// Name under which further unused events are counted.
const OTHERS: &str = "(others)";

/// Events below which no share of them is judged.
const FEW_EVENTS: u64 = 32;

/// Why a text could not be read at all.
#[derive(Debug)]
pub enum Error {
    /// Reading failed.
    Io(io::Error),
    /// It is another kind of file, or printed without a required field.
    NotARecording(Kind),
    /// It is trace text without any used event. The names of its events, with their counts.
    NothingUsable(Vec<(String, u64)>),
    /// The receiver of the events failed.
    Sink(String),
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Error::Io(error) => write!(f, "{error}"),
            Error::NotARecording(kind) => write!(f, "{kind}"),
            Error::NothingUsable(found) => {
                f.write_str("no event that can be used; found ")?;
                for (index, (name, count)) in found.iter().take(8).enumerate() {
                    write!(f, "{}{name} ({count})", if index > 0 { ", " } else { "" })?;
                }
                if found.len() > 8 {
                    write!(f, " and {} other kinds", found.len() - 8)?;
                }
                write!(f, "; needed are {NEEDED_EVENTS}: record those")
            }
            Error::Sink(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for Error {}

/// Reads a text and passes each event to `sink`; returns the recording's metadata. Memory: one line, and the task of
/// each CPU.
///
/// # Errors
/// When reading or the sink fails, the text is not a recording, or has no event that is used.
pub fn read(mut text: impl BufRead, mut sink: impl FnMut(&Event<'_>) -> Result<(), String>) -> Result<Metadata, Error> {
    if let Some(kind) = kind::of_bytes(text.fill_buf().map_err(Error::Io)?) {
        return Err(Error::NotARecording(kind));
    }
    let mut state = Reading::default();
    let mut line = Vec::new();
    loop {
        line.clear();
        match read_line(&mut text, &mut line) {
            Ok(0) => break,
            Ok(_) => state.damage.lines += 1,
            // A compressed file that was cut off: the part before counts.
            Err(error) if state.events > 0 && breaks_off(&error) => {
                state.damage.lines += 1;
                count(&mut state.damage, Fault::Damaged("the packed file breaks off here"));
                state.metadata.incomplete = true;
                break;
            }
            Err(error) => return Err(Error::Io(error)),
        }
        // The kernel cuts names at 15 bytes, possibly in the middle of a letter.
        state.line(&String::from_utf8_lossy(&line), &mut sink)?;
    }
    state.finish()
}

/// Reads to the end of the line, keeps at most [`LINE_BYTES`] of it, and returns how many bytes it has.
fn read_line(text: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<usize> {
    let mut read = text.by_ref().take(LINE_BYTES as u64).read_until(b'\n', line)?;
    while read >= LINE_BYTES && !line.ends_with(b"\n") {
        let rest = text.fill_buf()?;
        let (used, ended) = match rest.iter().position(|&byte| byte == b'\n') {
            Some(at) => (at + 1, true),
            None => (rest.len(), rest.is_empty()),
        };
        read += used;
        text.consume(used);
        if ended {
            line.push(b'\n');
        }
    }
    Ok(read)
}

/// State of the reader.
#[derive(Debug, Default)]
struct Reading {
    metadata: Metadata,
    damage: Damage,
    /// Events handed out.
    events: u64,
    clock: Clock,
    /// The task that each CPU runs, as far as switches tell.
    running: HashMap<u32, u32>,
    unused: HashMap<String, u64>,
    /// Lines that would be events with all fields: by the missing one.
    lacks: HashMap<Lack, u64>,
    /// The kind of the text by its lines, if that is not readable.
    kind: Option<Kind>,
    /// Whether it is a page of systrace, and whether the part with the trace has begun.
    page: Option<bool>,
}

impl Reading {
    fn line(&mut self, line: &str, sink: &mut impl FnMut(&Event<'_>) -> Result<(), String>) -> Result<(), Error> {
        let whole = line.ends_with('\n');
        let text = line.trim_end().trim_end_matches("\\n\\");
        if text.is_empty() || self.outside_of_trace(text) {
            return Ok(());
        }
        if self.events == 0 {
            self.kind = self.kind.or_else(|| kind::of_line(text, self.damage.lines));
        }
        let parsed = match Parts::of(text) {
            Ok(parts) if header::perf_loss(&parts, &mut self.metadata) => return Ok(()),
            Err(_) if header::read(text, &mut self.metadata) => return Ok(()),
            parsed => parsed,
        };
        // The last line of a truncated recording may still look valid.
        if !whole {
            count(&mut self.damage, Fault::Damaged("the last line breaks off"));
            return Ok(());
        }
        let event = parsed.and_then(|parts| {
            let running = self.running.get(&parts.cpu).copied();
            let event = parts.event(running);
            if event == Err(Fault::Unknown) {
                self.unused(parts.event);
            }
            event
        });
        match event {
            Ok(mut event) => {
                event.time_ns = match self.clock.order(event.time_ns) {
                    When::OutOfOrder => {
                        count(&mut self.damage, Fault::OutOfOrder);
                        return Ok(());
                    }
                    When::At(time_ns) => time_ns,
                    When::Restarted(time_ns) => {
                        self.restarts();
                        time_ns
                    }
                };
                self.events += 1;
                let event = self.follow(event);
                sink(&event).map_err(Error::Sink)?;
            }
            Err(fault) => {
                if let Fault::Lacks(lack) = fault {
                    *self.lacks.entry(lack).or_default() += 1;
                }
                count(&mut self.damage, fault);
            }
        }
        Ok(())
    }

    /// The clock has restarted: reported once.
    fn restarts(&mut self) {
        const WHAT: &str = "the clock restarts; later lines are read as a continuation";
        let first = &mut self.damage.first;
        if first.iter().all(|damage| damage.what != WHAT) {
            first.push(FirstDamage {
                line: self.damage.lines,
                what: WHAT.to_owned(),
            });
        }
    }

    /// Tracks the running task of each CPU; a switch names its own tasks.
    fn follow<'t>(&mut self, event: Event<'t>) -> Event<'t> {
        let mut event = event;
        if let What::Switch { from, to, .. } = event.what {
            self.running.insert(event.cpu, to);
            if event.task == Event::UNKNOWN_TASK {
                event.task = from;
            }
        }
        event
    }

    /// Whether a line of a page of systrace is outside of the part with the trace.
    fn outside_of_trace(&mut self, text: &str) -> bool {
        if self.page.is_none() {
            let start = text.trim_start();
            let begins = |with: &str| {
                start
                    .get(..with.len())
                    .is_some_and(|word| word.eq_ignore_ascii_case(with))
            };
            if self.events > 0 || !(begins("<!doctype html") || begins("<html")) {
                return false;
            }
            self.page = Some(false);
        }
        let begins = text.contains("class=\"trace-data\"") || text.contains("linuxPerfData = \"");
        if begins || text.starts_with("# tracer:") {
            self.page = Some(true);
            return begins;
        }
        if text.contains("</script>") {
            self.page = Some(false);
        }
        self.page == Some(false)
    }

    fn unused(&mut self, event: &str) {
        let name = match event.split_once(" <-") {
            Some(_) => "(function calls)",
            None => event.split([' ', '(']).next().unwrap_or(event),
        };
        let name: String = name.chars().take(40).collect();
        let known = self.unused.contains_key(&name) || self.unused.len() < UNUSED_NAMES;
        *self.unused.entry(if known { name } else { OTHERS.into() }).or_default() += 1;
    }

    fn finish(self) -> Result<Metadata, Error> {
        let Reading {
            mut metadata,
            mut damage,
            ..
        } = self;
        let lacking = self.lacks.iter().max_by_key(|(_, count)| **count);
        damage.unused = self.unused.into_iter().collect();
        damage.unused.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        if let Some((lack, &count)) = lacking
            && count > self.events
        {
            return Err(Error::NotARecording(self.kind.unwrap_or(Kind::of_lack(*lack))));
        }
        if damage.out_of_order > FEW_EVENTS && damage.out_of_order > self.events / 4 {
            return Err(Error::NotARecording(Kind::Unordered));
        }
        if self.events == 0 {
            return Err(match (self.kind, damage.unused.is_empty()) {
                (None, false) => Error::NothingUsable(damage.unused),
                (kind, _) => Error::NotARecording(kind.unwrap_or(Kind::Other)),
            });
        }
        metadata.damage = damage;
        Ok(metadata)
    }
}

/// Whether an error means truncated or garbled data, and not a failing device.
fn breaks_off(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidData, InvalidInput, UnexpectedEof};
    matches!(error.kind(), InvalidData | InvalidInput | UnexpectedEof)
}

/// Counts the error of the line just read.
fn count(damage: &mut Damage, fault: Fault) {
    let (number, what) = match fault {
        Fault::Damaged(what) => (&mut damage.damaged, what),
        Fault::Lacks(lack) => (&mut damage.damaged, lack.what()),
        Fault::Unknown => (&mut damage.unknown, "an event that is not used"),
        Fault::OutOfOrder => (&mut damage.out_of_order, "earlier than the line before"),
    };
    *number += 1;
    if *number == 1 {
        damage.first.push(FirstDamage {
            line: damage.lines,
            what: what.to_owned(),
        });
    }
}

#[cfg(test)]
mod forms;
#[cfg(test)]
mod tests;
