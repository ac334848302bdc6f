//! Trace text: the trace file of tracefs, `perf script`, `trace-cmd report`.
//!
//! Owns reading line by line, headers, and the count of what cannot be used; [`line`](self) by line the rest is in
//! `line.rs`, and the fields of each event in `fields.rs`. Damaged and unknown lines are counted and skipped.

mod fields;
mod line;

use crate::{Damage, Event, FirstDamage, Metadata};
use line::{Fault, Parts};
use std::io::{self, BufRead};

/// Lines at the beginning among which an event must be found for the text to be a recording.
const PROBE_LINES: u64 = 1000;

/// Why a text could not be read at all.
#[derive(Debug)]
pub enum Error {
    /// Reading failed.
    Io(io::Error),
    /// There is no event in the first thousand lines.
    NotARecording,
    /// The receiver of the events failed.
    Sink(String),
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Error::Io(error) => write!(f, "{error}"),
            Error::NotARecording => f.write_str(
                "not a recording: no line like `task-1234 [000] .... 12.345678: sched_switch: ...`; give the text of a trace file, of `perf script`, or of `trace-cmd report`",
            ),
            Error::Sink(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for Error {}

/// Reads a text and hands each event to `sink`; returns what is known about the recording. Memory: one line.
///
/// # Errors
/// When reading or the sink fails, or the text is not a recording.
pub fn read(mut text: impl BufRead, mut sink: impl FnMut(&Event<'_>) -> Result<(), String>) -> Result<Metadata, Error> {
    let mut metadata = Metadata::default();
    let mut damage = Damage::default();
    let mut line = Vec::new();
    let (mut events, mut latest) = (0_u64, 0_u64);
    loop {
        line.clear();
        match text.read_until(b'\n', &mut line) {
            Ok(0) => break,
            Ok(_) => damage.lines += 1,
            // A packed file that was cut off: what came before counts.
            Err(error) if events > 0 && breaks_off(&error) => {
                damage.lines += 1;
                count(&mut damage, Fault::Damaged("the packed file breaks off here"));
                metadata.incomplete = true;
                break;
            }
            Err(error) => return Err(Error::Io(error)),
        }
        if events == 0 && damage.lines > PROBE_LINES {
            return Err(Error::NotARecording);
        }
        let whole = line.ends_with(b"\n");
        let Ok(text) = std::str::from_utf8(&line) else {
            count(&mut damage, Fault::Damaged("not UTF-8"));
            continue;
        };
        let text = text.trim_end();
        if text.is_empty() {
            continue;
        }
        if let Some(header) = text.strip_prefix('#') {
            read_header(header, &mut metadata);
            continue;
        }
        if let Some(cpus) = text.strip_prefix("cpus=") {
            // What `trace-cmd report` begins with.
            metadata.cpus = cpus.parse().ok();
            continue;
        }
        if let Some(lost) = lost_events(text) {
            metadata.lost_events += lost;
            continue;
        }
        let parsed = Parts::of(text).and_then(|parts| parts.event());
        match parsed {
            // The last line of a recording that was cut off may still look right.
            _ if !whole => count(&mut damage, Fault::Damaged("the last line breaks off")),
            Ok(event) if event.time_ns < latest => count(&mut damage, Fault::OutOfOrder),
            Ok(event) => {
                latest = event.time_ns;
                events += 1;
                sink(&event).map_err(Error::Sink)?;
            }
            Err(fault) => {
                // An unknown event is an event all the same: this is a recording.
                events += u64::from(matches!(fault, Fault::Unknown));
                count(&mut damage, fault);
            }
        }
    }
    if events == 0 {
        return Err(Error::NotARecording);
    }
    metadata.damage = damage;
    Ok(metadata)
}

/// Whether a reader says so of data that are cut off or garbled, and not of a device that fails.
fn breaks_off(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidData, InvalidInput, UnexpectedEof};
    matches!(error.kind(), InvalidData | InvalidInput | UnexpectedEof)
}

/// Counts what is wrong with the line just read.
fn count(damage: &mut Damage, fault: Fault) {
    let (number, what) = match fault {
        Fault::Damaged(what) => (&mut damage.damaged, what),
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

/// `CPU:1 [LOST 123 EVENTS]` as tracefs prints it, `CPU:1 [123 EVENTS DROPPED]` as trace-cmd does.
fn lost_events(text: &str) -> Option<u64> {
    let inside = text.trim_start().strip_prefix("CPU:")?.split_once('[')?.1;
    let number = inside
        .strip_prefix("LOST ")
        .or(Some(inside))?
        .split_ascii_whitespace()
        .next()?;
    number.trim_end_matches(']').parse().ok()
}

/// Comment lines: those that our recordings begin with, and those of the kernel's own header.
fn read_header(header: &str, metadata: &mut Metadata) {
    let header = header.trim();
    if let Some(command) = header.strip_prefix("cmd: ") {
        metadata.command = Some(command.to_owned());
    } else if let Some(rest) = header.strip_prefix("kernel: ") {
        let mut words = rest.split_ascii_whitespace();
        metadata.kernel = words.next().map(str::to_owned);
        while let Some(word) = words.next() {
            match word {
                "cpus:" => metadata.cpus = words.next().and_then(|number| number.parse().ok()),
                "clock:" => metadata.clock = words.next().map(str::to_owned),
                _ => {}
            }
        }
    } else if let Some(events) = header.strip_prefix("events: ") {
        metadata.events = events.split_ascii_whitespace().map(str::to_owned).collect();
    } else if header.starts_with("cpu")
        && let Some((_, rest)) = header.split_once("overrun: ")
    {
        // `# cpu0 entries: 4313 overrun: 0 commit overrun: 0 dropped events: 0`
        let numbers = rest
            .split_ascii_whitespace()
            .filter_map(|word| word.parse::<u64>().ok());
        metadata.lost_events += numbers.sum::<u64>();
    } else if let Some((_, cpus)) = header.split_once("#P:") {
        metadata.cpus = metadata.cpus.or_else(|| cpus.trim().parse().ok());
    }
}

#[cfg(test)]
mod tests;
