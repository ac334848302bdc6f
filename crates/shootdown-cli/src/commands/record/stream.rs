//! From the kernel's text into the columnar file, event by event, until the pipe is at its end.

use std::fs::File;
use std::io::{BufReader, Read};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use shootdown_trace::columns::{self, GROUP_ROWS};
use shootdown_trace::{Metadata, Summary, text};

use super::reserve::Reserve;
use crate::failure::Failure;
use crate::print::output::Destination;

/// Progress seen by the watcher while events arrive. Relaxed throughout: numbers for people, and a flag that is polled.
#[derive(Debug, Default)]
pub(super) struct Live {
    pub(super) events: AtomicU64,
    pub(super) shootdowns: AtomicU64,
    /// The disk is full: no further events are kept.
    pub(super) full: AtomicBool,
}

/// Facts known when recording has been switched off, before the file is finished.
#[derive(Debug)]
pub(super) struct Closing {
    /// Events that the kernel lost.
    pub(super) lost: u64,
    /// Whether it ended before its time.
    pub(super) incomplete: bool,
}

/// The result of a recording.
#[derive(Debug)]
pub(super) struct Recorded {
    pub(super) metadata: Metadata,
    pub(super) summary: Summary,
    /// Why some events were not kept.
    pub(super) no_room: Option<String>,
    /// Number of events after that.
    pub(super) discarded: u64,
    /// Why the file cannot be finished.
    pub(super) unwritten: Option<String>,
    /// The message that it was not written.
    pub(super) failure: Option<Failure>,
}

/// Writes the events of `pipe` into `file`, with the metadata of `about` and finally of `closing`.
///
/// # Errors
/// When reading fails. A full disk is not a failure; a file that cannot be written is reported in the result, which
/// then counts the events read.
pub(super) fn keep(
    pipe: impl Read,
    file: &mut File,
    about: Metadata,
    live: &Live,
    closing: &OnceLock<Closing>,
) -> Result<Recorded, Failure> {
    let broken = |error: &dyn std::fmt::Display| Failure::Input(format!("recording: {error}"));
    let mut reserve = Reserve::new(file).map_err(|error| broken(&error))?;
    reserve.take().map_err(|error| broken(&error))?;
    let mut writer = columns::Writer::new(&mut *file).map_err(|error| broken(&error))?;
    let (mut summary, mut no_room, mut discarded) = (Summary::default(), None, 0);
    let mut unwritten: Option<String> = None;
    let read = text::read(BufReader::with_capacity(1 << 16, pipe), |event| {
        // The event that completes a group makes the writer write it.
        if no_room.is_none() && (summary.events + 1).is_multiple_of(GROUP_ROWS as u64) {
            no_room = reserve.take().err().map(|error| error.to_string());
            live.full.store(no_room.is_some(), Ordering::Relaxed);
        }
        if no_room.is_some() {
            discarded += 1;
            return Ok(());
        }
        summary.add(event);
        live.events.store(summary.events, Ordering::Relaxed);
        live.shootdowns.store(summary.shootdowns, Ordering::Relaxed);
        if unwritten.is_none() {
            unwritten = writer.add(event).err().map(|error| error.to_string());
            live.full.fetch_or(unwritten.is_some(), Ordering::Relaxed);
        }
        Ok(())
    });
    let found = match read {
        Ok(found) => found,
        // No event: still a valid recording.
        Err(text::Error::NotARecording(_) | text::Error::NothingUsable(_)) if summary.events == 0 => {
            Metadata::default()
        }
        Err(error) => return Err(broken(&error)),
    };
    let closing = closing.get();
    // Both count the same losses; the pipe sees only those between two events that it read.
    let mut found = found;
    found.lost_at_least(closing.map_or(0, |closing| closing.lost));
    let metadata = Metadata {
        lost_events: found.lost_events,
        losses: found.losses,
        damage: found.damage,
        incomplete: no_room.is_some() || closing.is_none_or(|closing| closing.incomplete),
        ..about
    };
    let finish = || {
        writer.finish(&metadata).map_err(|error| error.to_string())?;
        reserve.give_back().map_err(|error| error.to_string())
    };
    let unwritten = unwritten.or_else(|| finish().err());
    Ok(Recorded {
        metadata,
        summary,
        no_room,
        discarded,
        unwritten,
        failure: None,
    })
}

/// Checks that there is space to begin with, before anything is recorded.
///
/// # Errors
/// One line with the place and the remedy.
pub(super) fn has_room(destination: &Destination) -> Result<(), Failure> {
    destination.try_out(|file| Reserve::new(file)?.take()).map_err(|error| {
        Failure::Input(format!(
            "-o {}: no room for 16 MiB to begin with ({error}); free some space, or choose another place",
            destination.shown()
        ))
    })
}
