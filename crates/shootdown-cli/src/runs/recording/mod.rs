//! The source of a replay's steps: a recording on disk, read once for its content, and once more for each design.
//!
//! A reader is a separate host thread, at most a few thousand steps ahead of its consumer.

use std::cell::Cell;
pub mod limits;
pub mod open;
pub mod packed;
pub mod workload;

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;

use shootdown_trace::program::{Program, Recorded, Step};
use shootdown_trace::victims::{VictimCounter, Victims};
use shootdown_trace::{Coverage, Event, Metadata, Resolver, Survey, columns, text};

use crate::failure::{Failure, unread};
use crate::print::progress::Progress;

/// Steps per batch, and batches that may wait.
const BATCH_STEPS: usize = 1024;
const BATCHES: usize = 4;

/// Events between two progress reports.
const TOLD_EVERY: u64 = 4096;

/// A recording that can be read repeatedly.
#[derive(Debug, Clone)]
pub struct Recording {
    path: PathBuf,
    packed_columns: bool,
    /// Completes its events.
    resolver: Resolver,
    /// Its known facts.
    pub metadata: Metadata,
    /// Counts of the recorded kernel.
    pub recorded: Recorded,
    /// What it can tell, and what is missing.
    pub coverage: Coverage,
    /// The CPUs and threads that the recorded shootdowns interrupted.
    pub victims: Victims,
}

/// Counts taken while a recording is read.
#[derive(Default)]
struct Pass {
    program: Program,
    counter: VictimCounter,
    events: u64,
}

impl Pass {
    fn add(&mut self, event: &Event<'_>) {
        self.events += 1;
        self.counter.add(event);
        self.program.add(event, &mut |_| {});
    }
}

impl Recording {
    /// Opens it and reads it through, polling `stop`; true ends it.
    ///
    /// # Errors
    /// One line with the file, when it cannot be read, is not a recording, or lacks data that a replay needs; Ctrl-C.
    pub fn open(path: &Path, stop: impl Fn() -> bool) -> Result<Self, Failure> {
        if open::is_stdin(path) {
            return Err(Failure::Input(
                "replay -: a recording is read more than once; `shootdown import - -o trace.parquet` keeps it".into(),
            ));
        }
        let fail = |error: String| Failure::Input(format!("{}: {error}", path.display()));
        let (file, _) = open::open(path).map_err(|error| fail(unread(&error)))?;
        let begins = |mut text: Box<dyn BufRead>| text.fill_buf().map(|bytes| bytes.starts_with(b"PAR1"));
        let packed_columns = begins(Box::new(BufReader::new(file))).map_err(|error| fail(unread(&error)))?;
        let fail = |error: String| match stop() {
            true => Failure::Interrupted,
            false => fail(error),
        };
        let mut survey = Survey::default();
        let mut pass = Pass::default();
        let progress = Progress::new("passes over the recording", vec![1.0]);
        let read = for_each(path, packed_columns, Some(&progress), |event| {
            survey.add(event);
            pass.add(event);
            !(pass.events.is_multiple_of(4096) && stop())
        });
        drop(progress);
        let metadata = read.map_err(fail)?;
        let (coverage, resolver) = survey.finish(&metadata);
        if stop() {
            return Err(Failure::Interrupted);
        }
        if let Some(reason) = coverage.refusal() {
            return Err(fail(reason));
        }
        if !resolver.is_idle() {
            // Facts from the whole recording were not known when its events were read.
            pass = Pass::default();
            let mut resolver = resolver.clone();
            let progress = Progress::new("second passes over the recording", vec![1.0]);
            for_each(path, packed_columns, Some(&progress), |event| {
                pass.add(&resolver.resolve(event));
                !(pass.events.is_multiple_of(4096) && stop())
            })
            .map_err(fail)?;
            if stop() {
                return Err(Failure::Interrupted);
            }
        }
        Ok(Recording {
            path: path.to_path_buf(),
            packed_columns,
            victims: pass.counter.finish(&resolver),
            resolver,
            coverage,
            metadata,
            recorded: pass.program.finish(&mut |_| {}),
        })
    }

    /// CPUs of the machine that was recorded.
    pub fn cpus(&self) -> usize {
        self.metadata.cpus.unwrap_or(0).max(self.recorded.cpus).max(1) as usize
    }

    /// Its steps, read while they are consumed; `read` is called with events now and then.
    pub fn steps(&self, read: impl Fn(u64) + Send + 'static) -> impl Iterator<Item = Step> + 'static {
        let (sender, receiver) = sync_channel::<Vec<Step>>(BATCHES);
        let (path, packed_columns) = (self.path.clone(), self.packed_columns);
        let mut resolver = self.resolver.clone();
        thread::spawn(move || {
            let mut program = Program::default();
            let mut batch = Vec::with_capacity(BATCH_STEPS);
            // The file was read through before; if it has changed since, its readable part is replayed.
            let mut events = 0_u64;
            let _ = for_each(&path, packed_columns, None, |event| {
                events += 1;
                program.add(&resolver.resolve(event), &mut |step| batch.push(step));
                if batch.len() < BATCH_STEPS {
                    return true;
                }
                read(std::mem::take(&mut events));
                sender
                    .send(std::mem::replace(&mut batch, Vec::with_capacity(BATCH_STEPS)))
                    .is_ok()
            });
            program.finish(&mut |step| batch.push(step));
            let _ = sender.send(batch);
        });
        Steps {
            receiver,
            batch: Vec::new().into_iter(),
        }
    }
}

struct Steps {
    receiver: Receiver<Vec<Step>>,
    batch: std::vec::IntoIter<Step>,
}

impl Iterator for Steps {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        loop {
            if let Some(step) = self.batch.next() {
                return Some(step);
            }
            self.batch = self.receiver.recv().ok()?.into_iter();
        }
    }
}

/// Passes each event to `sink` until it returns false, and reports the progress occasionally.
fn for_each(
    path: &Path,
    packed_columns: bool,
    progress: Option<&Progress>,
    mut sink: impl FnMut(&Event<'_>) -> bool,
) -> Result<Metadata, String> {
    let mut events = 0_u64;
    let mut report = |fraction: &dyn Fn(u64) -> f64| {
        events += 1;
        if let Some(progress) = progress.filter(|_| events.is_multiple_of(TOLD_EVERY)) {
            progress.update(0, fraction(events));
        }
    };
    if packed_columns {
        let file = File::open(path).map_err(|error| error.to_string())?;
        let reader = columns::Reader::open(file).map_err(|error| error.to_string())?;
        let all = reader.events().max(1) as f64;
        let sink = |event: &Event<'_>| {
            report(&|events| events as f64 / all);
            sink(event)
        };
        reader.for_each(sink).map_err(|error| error.to_string())?;
        return Ok(reader.metadata().clone());
    }
    let (file, length) = open::open(path).map_err(|error| error.to_string())?;
    let read = Rc::new(Cell::new(0_u64));
    let file = Counted {
        file,
        read: Rc::clone(&read),
    };
    let text = packed::unpacked(BufReader::with_capacity(1 << 16, file)).map_err(|error| unread(&error))?;
    let ended = |event: &Event<'_>| {
        report(&|_| length.map_or(0.0, |length| read.get() as f64 / length.max(1) as f64));
        if sink(event) { Ok(()) } else { Err("ended".to_string()) }
    };
    text::read(text, ended).map_err(|error| error.to_string())
}

/// Counts the bytes that are read.
struct Counted {
    file: Box<dyn Read>,
    read: Rc<Cell<u64>>,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let bytes = self.file.read(buffer)?;
        self.read.set(self.read.get() + bytes as u64);
        Ok(bytes)
    }
}
