//! `shootdown import`: trace text of a real kernel becomes one Parquet file, and a summary of its content.

mod warnings;

pub(crate) use warnings::losses;

use std::io::{self, BufReader};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use indicatif::{ProgressBar, ProgressStyle};
use schemars::{JsonSchema, Schema};
use serde::Serialize;
use shootdown_trace::victims::{VictimCounter, Victims};
use shootdown_trace::{Coverage, Event, Metadata, Reason, Summary, Survey, columns, text};

use crate::args::ImportArgs;
use crate::failure::{Failure, SUCCESS, unread};
use crate::print::json;
use crate::print::number;
use crate::print::output::{self, Destination, Kind};
use crate::print::schema;
use crate::print::table::{Column, Grid, Tables};
use crate::print::victims;
use crate::runs::recording::limits;
use crate::runs::recording::open::{is_stdin, open};
use crate::runs::recording::packed::{self, unpacked};

/// Processes shown in the summary.
const TOP: usize = 8;

/// Events between two checks for Ctrl-C.
const LOOK_EVERY: u64 = 4096;

/// The content of a recording, for programs.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Document<'a> {
    /// The recording that was read; `(recorded)` of `record`.
    file: String,
    /// The Parquet file that was written.
    output: String,
    /// Events in it.
    events: u64,
    /// From the first event to the last.
    duration_ns: f64,
    /// CPUs that events name.
    cpus_seen: u32,
    /// Task switches.
    switches: u64,
    /// Shootdown requests queued to another CPU.
    shootdowns: u64,
    /// Flushes of TLB entries by the kernel's number for their reason: task switch, remote shootdown, local shootdown,
    /// local flush of an address space, request sent to other CPUs, request at a CPU that had left the space.
    flushes_by_reason: [u64; 6],
    /// Facts about the recording other than its events.
    metadata: &'a Metadata,
    /// The processes with the most shootdowns, at most eight.
    processes: Vec<ProcessLine<'a>>,
}

/// One process of a recording.
#[derive(Serialize, JsonSchema)]
struct ProcessLine<'a> {
    /// Its number.
    process: u32,
    /// Its name in the recording.
    name: &'a str,
    /// Requests that its threads queued to other CPUs.
    shootdowns: u64,
    /// Flushes of TLB entries while it ran, on all CPUs.
    flushes: u64,
}

/// Imports a recording.
///
/// # Errors
/// One line when the file cannot be read, is not a recording, or the output cannot be written; Ctrl-C.
pub fn command(args: &ImportArgs, stop: &AtomicBool) -> Result<u8, Failure> {
    let place = if is_stdin(&args.file) {
        "stdin".to_string()
    } else {
        args.file.display().to_string()
    };
    let path = match &args.output {
        Some(path) => path.clone(),
        None if is_stdin(&args.file) => {
            return Err(Failure::Input(
                "import -: say where to write, for example -o trace.parquet".into(),
            ));
        }
        None => default_output(&args.file),
    };
    let destination = Destination::apart_from("-o", &path, Kind::Recording, &[&args.file])?;
    if path.extension().is_none_or(|ending| ending != "parquet") {
        output::note(&format!(
            "-o {}: is written as Parquet, regardless of its name",
            path.display()
        ));
    }
    let fail = |error: io::Error| Failure::Input(format!("{place}: {}", unread(&error)));
    let (input, bytes) = open(&args.file).map_err(fail)?;
    let bar = bar(bytes);
    let input = unpacked(BufReader::with_capacity(1 << 16, bar.wrap_read(input))).map_err(fail)?;
    let (mut summary, mut counter) = (Summary::default(), VictimCounter::default());
    let (mut read, mut survey) = (None, Survey::default());
    let written = destination.write_by(stop, |file| {
        let broken = |error: columns::Error| destination.unwritten(&error.to_string());
        let mut writer = columns::Writer::new(file).map_err(broken)?;
        let mut unwritten = None;
        let metadata = text::read(input, |event| {
            if summary.events.is_multiple_of(LOOK_EVERY) && stop.load(Ordering::Relaxed) {
                return Err("interrupted".into());
            }
            summary.add(event);
            survey.add(event);
            counter.add(event);
            // A full disk loses the file, not the summary.
            if unwritten.is_none() {
                unwritten = writer.add(event).err().map(broken);
            }
            Ok(())
        });
        let metadata = match metadata {
            _ if stop.load(Ordering::Relaxed) => return Err(Failure::Interrupted),
            Ok(metadata) => metadata,
            Err(text::Error::Sink(line)) => return Err(Failure::Input(format!("{}: {line}", destination.shown()))),
            Err(error @ text::Error::NothingUsable(_)) => return Err(Failure::Unusable(format!("{place}: {error}"))),
            Err(error) => return Err(Failure::Input(format!("{place}: {error}"))),
        };
        let metadata = read.insert(metadata);
        match unwritten {
            Some(failure) => Err(failure),
            None => writer.finish(metadata).map(drop).map_err(broken),
        }
    });
    bar.finish_and_clear();
    let Some(metadata) = read else {
        return written.map(|()| SUCCESS);
    };
    let (coverage, resolver) = survey.finish(&metadata);
    summary.identify(&resolver);
    let imported = Found {
        metadata,
        summary,
        coverage,
        victims: counter.finish(&resolver),
    };
    print_summary(args, &place, &destination, &imported, written)
}

/// The content found in a recording.
struct Found {
    metadata: Metadata,
    summary: Summary,
    coverage: Coverage,
    victims: Victims,
}

/// Prints the content, and whether it was written.
fn print_summary(
    args: &ImportArgs,
    place: &str,
    destination: &Destination,
    imported: &Found,
    written: Result<(), Failure>,
) -> Result<u8, Failure> {
    let Found {
        metadata,
        summary,
        coverage,
        victims: found,
    } = imported;
    if args.json {
        let imported = Imported {
            coverage,
            document: document(place, destination, metadata, summary),
            victims: victims::lines(found),
        };
        output::print(&json::pretty(&imported))?;
        return written.map(|()| SUCCESS);
    }
    let mut tables = Tables::new();
    let mut text = losses(metadata) + &warnings::lines(metadata, coverage);
    text.push_str(&match args.victims {
        Some(_) => limits::damage(metadata),
        None => words(place, metadata, summary),
    });
    let most = if args.victims.is_some() {
        usize::MAX
    } else {
        victims::TOP
    };
    for (by, title) in victims::TABLES {
        let is_shown = args.victims.is_none_or(|requested| requested.by() == by);
        if is_shown && found.interruptions.total() > 0 {
            let grid = victims::recorded(found, by, most);
            text.push_str(&format!("{title}\n{}", tables.draw(&grid)));
        }
    }
    if found.interruptions.total() == 0 {
        text.push_str("no CPU was interrupted for a shootdown in this recording\n");
    }
    output::show(&text)?;
    written?;
    output::show(&format!("recording: {}\n", destination.shown()))?;
    Ok(SUCCESS)
}

/// The content of a recording, and the CPUs and threads that its shootdowns interrupt.
#[derive(Serialize, JsonSchema)]
struct Imported<'a> {
    /// What the recording can tell, and what is missing.
    coverage: &'a Coverage,
    #[serde(flatten)]
    document: Document<'a>,
    /// The CPUs and threads that the shootdowns interrupt, and the system calls that send them.
    victims: victims::Lines,
}

/// What `import --json` prints.
pub fn schema() -> Schema {
    schema::of::<Imported>("import")
}

/// `a/trace.txt.gz` becomes `a/trace.parquet`.
fn default_output(file: &Path) -> PathBuf {
    let packed = |ending: &std::ffi::OsStr| packed::ENDINGS.iter().any(|known| ending == *known);
    let plain = if file.extension().is_some_and(packed) {
        file.with_extension("")
    } else {
        file.to_path_buf()
    };
    plain.with_extension("parquet")
}

fn bar(bytes: Option<u64>) -> ProgressBar {
    let (bar, template) = match bytes {
        Some(bytes) => (
            ProgressBar::new(bytes),
            "{bar:10.cyan/dim} {bytes} of {total_bytes}, {eta} left",
        ),
        None => (ProgressBar::new_spinner(), "{spinner} {bytes} read, {elapsed}"),
    };
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar
}

/// The content of a recording, for programs.
pub(crate) fn document<'a>(
    place: &str,
    destination: &Destination,
    metadata: &'a Metadata,
    summary: &'a Summary,
) -> Document<'a> {
    Document {
        file: place.to_string(),
        output: destination.shown(),
        events: summary.events,
        duration_ns: summary.seconds() * 1e9,
        cpus_seen: summary.cpus,
        switches: summary.switches,
        shootdowns: summary.shootdowns,
        flushes_by_reason: summary.flushes,
        metadata,
        processes: summary
            .processes()
            .into_iter()
            .take(TOP)
            .map(|process| ProcessLine {
                process: process.process,
                name: &process.name,
                shootdowns: process.shootdowns,
                flushes: process.flushes,
            })
            .collect(),
    }
}

/// The content of a recording, for people.
pub(crate) fn words(place: &str, metadata: &Metadata, summary: &Summary) -> String {
    let seconds = summary.seconds();
    let per_second = |count: u64| {
        if seconds > 0.0 {
            format!("{} per second", number::rate(count as f64 / seconds))
        } else {
            "–".to_string()
        }
    };
    let known = |what: &Option<String>| what.clone().unwrap_or_else(|| "not said".into());
    let mut text = format!(
        "{place}: {} in {seconds:.3} s on {}; command: {}; kernel: {}\n",
        number::counted(summary.events, "event"),
        number::counted(metadata.cpus.unwrap_or(summary.cpus), "CPU"),
        known(&metadata.command),
        known(&metadata.kernel),
    );
    text.push_str(&limits::damage(metadata));
    let row = |what: String, count: u64| vec![what, number::count(count), per_second(count)];
    let mut counts = vec![
        row("task switches".into(), summary.switches),
        row("shootdown requests queued to another CPU".into(), summary.shootdowns),
        row("interrupts for function calls".into(), summary.call_interrupts),
        row("memory system calls".into(), summary.calls),
    ];
    for reason in Reason::ALL.into_iter().filter(|&reason| reason != Reason::Sent) {
        counts.push(row(
            format!("flush: {}", reason.name()),
            summary.flushes[reason as usize],
        ));
    }
    let mut tables = Tables::new();
    let columns = vec![
        Column::words(
            "event",
            "what the recording holds; a flush is named by the kernel's reason for it",
        ),
        Column::number("count", "how many, on all CPUs"),
        Column::number("rate", "the same per second of the recording"),
    ];
    text.push_str(&tables.draw(&Grid::new(columns, vec![counts])));
    let processes = summary.processes();
    let rows = processes.iter().take(TOP).map(|process| {
        vec![
            match process.process {
                Event::UNKNOWN_TASK => "(not recorded)".to_string(),
                known => known.to_string(),
            },
            process.name.clone(),
            number::count(process.shootdowns),
            number::count(process.flushes),
        ]
    });
    let columns = vec![
        Column::words("process", "process number"),
        Column::words("name", "its name in the recording"),
        Column::number("shootdowns requested", "requests that its threads queued to other CPUs"),
        Column::number("flushes", "flushes of TLB entries while it ran, on all CPUs"),
    ];
    text.push_str(&tables.draw(&Grid::new(columns, vec![rows.collect()])));
    if processes.len() > TOP {
        let others = processes.len() - TOP;
        let noun = if others == 1 { "process" } else { "processes" };
        text.push_str(&format!("and {others} other {noun}\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_output_is_beside_the_recording() {
        assert_eq!(default_output(Path::new("a/b.txt.gz")), Path::new("a/b.parquet"));
        assert_eq!(default_output(Path::new("trace")), Path::new("trace.parquet"));
    }
}
