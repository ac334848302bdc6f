//! `shootdown record`: the kernel's TLB events on this machine while a command runs, as one Parquet file.
//!
//! Owns the order of steps: instance, command, end, removal, summary. The instance is in `shootdown-linux`; its output
//! goes through the text reader of `shootdown-trace` into the columnar file as it arrives ([`stream`]).

mod remedy;
mod reserve;
mod stream;
mod watch;

use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use schemars::{JsonSchema, Schema};
use serde::Serialize;
use shootdown_linux::tracefs::{Error, Instance, Tracefs};
use shootdown_linux::{cpus, launch};
use shootdown_trace::Metadata;

use crate::args::RecordArgs;
use crate::commands::import;
use crate::failure::{BAD_RUN, Failure, INTERRUPTED, SUCCESS};
use crate::print::json;
use crate::print::number;
use crate::print::output::{self, Destination, Kind};
use crate::print::schema;
use crate::runs::target::quoted;
use stream::{Closing, Live, Recorded};
use watch::{End, Target};

/// Largest buffer of one CPU, MiB.
const MOST_BUFFER_MIB: u64 = 4096;

/// The recording's summary.
#[derive(Serialize, JsonSchema)]
struct Document<'a> {
    #[serde(flatten)]
    recording: import::Document<'a>,
    /// From the start of the command to its end. Null without a command, and where recording ended before it.
    command_time_ns: Option<f64>,
}

/// What `record --json` prints.
pub fn schema() -> Schema {
    schema::of::<Document>("record")
}

/// Records.
///
/// # Errors
/// One line when tracing is not possible, with the command that makes it possible; when the command cannot be started;
/// when the file cannot be written at all. After any of them no trace instance of this program is left in the kernel.
pub fn command(args: &RecordArgs, stop: &AtomicBool) -> Result<u8, Failure> {
    check(args)?;
    let destination = Destination::new("-o", &args.output, Kind::Recording)?;
    launch::survive_large_files();
    stream::has_room(&destination)?;
    let fail = |error: Error| Failure::Input(remedy::of(&error));
    let tracefs = match &args.tracefs {
        Some(root) => Tracefs::at(root),
        None => Tracefs::find().map_err(fail)?,
    };
    for name in tracefs.remove_leftovers() {
        output::note(&format!("removed trace instance {name}: its recorder was killed"));
    }
    let mut instance = tracefs.create(args.buffer_mib * 1024).map_err(fail)?;
    let events = instance.enable(args.faults).map_err(fail)?;
    let about = Metadata {
        command: described(args),
        kernel: trimmed("/proc/sys/kernel/osrelease"),
        // All online CPUs, not only those that this process may run on.
        cpus: cpus::Machine::read().ok().map(|machine| machine.cpus.len() as u32),
        clock: Some("mono".into()),
        events: events.iter().map(ToString::to_string).collect(),
        one_program: !records_all_processes(args),
        ..Metadata::default()
    };
    let (recorded, end) = record(args, &instance, &destination, about, stop)?;
    instance.remove().map_err(fail)?;
    print_summary(args, &destination, &recorded, &end)?;
    if let Some(why) = recorded.failure {
        return Err(why);
    }
    hand_over(destination.path());
    if !args.json {
        output::print(&format!("recording: {}\n", destination.shown()))?;
    }
    Ok(match end {
        End::Interrupted => INTERRUPTED,
        End::Reader => BAD_RUN,
        _ => SUCCESS,
    })
}

fn check(args: &RecordArgs) -> Result<(), Failure> {
    if !(1..=MOST_BUFFER_MIB).contains(&args.buffer_mib) {
        return Err(Failure::Input(format!(
            "--buffer-mib {}: expected 1 to {MOST_BUFFER_MIB} MiB for each CPU",
            args.buffer_mib
        )));
    }
    match args.seconds {
        Some(seconds) if !(seconds > 0.0 && seconds <= 1e6) => Err(Failure::Input(format!(
            "--seconds {}: expected seconds above 0, for example 10",
            number::written(seconds)
        ))),
        _ => Ok(()),
    }
}

/// Records into the file until the end, for any reason; then switches the instance off.
fn record(
    args: &RecordArgs,
    instance: &Instance,
    destination: &Destination,
    about: Metadata,
    stop: &AtomicBool,
) -> Result<(Recorded, End), Failure> {
    let fail = |error: Error| Failure::Input(remedy::of(&error));
    let pipe = instance.pipe().map_err(fail)?;
    let ended = pipe.ended();
    let (live, closing) = (Live::default(), OnceLock::new());
    let target = begin(args, instance)?;
    thread::scope(|scope| {
        let reader = scope.spawn(|| {
            // The file is kept after Ctrl-C too: its writer does not see that flag.
            let never = AtomicBool::new(false);
            let mut recorded = None;
            let written = destination.write_by(&never, |file| {
                let kept = recorded.insert(stream::keep(pipe, file, about, &live, &closing)?);
                kept.unwritten
                    .take()
                    .map_or(Ok(()), |why| Err(destination.unwritten(&why)))
            });
            match recorded {
                Some(recorded) => Ok(Recorded {
                    failure: written.err(),
                    ..recorded
                }),
                None => Err(written.expect_err("without what was recorded there is a reason")),
            }
        });
        let end = watch::until_end(target, args.seconds, stop, &live, || reader.is_finished());
        let off = instance.record(false);
        let _ = closing.set(Closing {
            lost: instance.lost(),
            incomplete: end.early(),
        });
        // Release. Pairs with the acquire of the pipe, which then reads the rest and ends.
        ended.store(true, Ordering::Release);
        reader.thread().unpark();
        let recorded = reader.join().expect("the reader does not panic")?;
        off.map_err(fail)?;
        Ok((recorded, end))
    })
}

/// Selects the recorded processes, switches the instance on, and starts the command if there is one.
fn begin(args: &RecordArgs, instance: &Instance) -> Result<Target, Failure> {
    let fail = |error: Error| Failure::Input(remedy::of(&error));
    let mut follow = None;
    if records_all_processes(args) {
        // Older kernels have no such filter: then the recorder is in the recording as well.
        let _ = instance.leave_out_ourselves();
    } else {
        follow = Some(instance.follow().map_err(fail)?);
    }
    if let Some(pid) = args.pid {
        let tasks = launch::tasks_of(pid).map_err(|error| {
            let error = match error.kind() {
                ErrorKind::NotFound => "there is no such process".to_owned(),
                _ => error.to_string(),
            };
            Failure::Input(format!(
                "--pid {pid}: {error}; give the number of a process, as `ps` shows it"
            ))
        })?;
        if let Some(follow) = &follow {
            launch::add(follow, &tasks).map_err(|error| Failure::Input(format!("--pid {pid}: {error}")))?;
        }
        instance.record(true).map_err(fail)?;
        return Ok(Target::Process(pid));
    }
    instance.record(true).map_err(fail)?;
    let Some(program) = args.command.first() else {
        return Ok(Target::System);
    };
    let child = launch::launch(&args.command, follow)
        .map_err(|error| Failure::Input(format!("{program}: cannot be started: {error}")))?;
    Ok(Target::command(child))
}

/// Whether every process of the system is recorded.
fn records_all_processes(args: &RecordArgs) -> bool {
    args.system || (args.command.is_empty() && args.pid.is_none())
}

/// The recorded processes, as the recording names them.
fn described(args: &RecordArgs) -> Option<String> {
    if let Some(pid) = args.pid {
        let name = trimmed(&format!("/proc/{pid}/comm")).unwrap_or_default();
        return Some(format!("process {pid} {name}").trim_end().to_owned());
    }
    let words: Vec<_> = args.command.iter().map(|word| quoted(word)).collect();
    (!words.is_empty()).then(|| words.join(" "))
}

fn trimmed(path: &str) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

/// Under sudo the file belongs to the calling user. If that fails it stays root's, which is not an error.
fn hand_over(path: &Path) {
    let id = |name| std::env::var(name).ok()?.parse().ok();
    if let (Some(user), Some(group)) = (id("SUDO_UID"), id("SUDO_GID")) {
        let _ = std::os::unix::fs::chown(path, Some(user), Some(group));
    }
}

fn print_summary(args: &RecordArgs, destination: &Destination, recorded: &Recorded, end: &End) -> Result<(), Failure> {
    let Recorded { metadata, summary, .. } = recorded;
    if let Some(reason) = &recorded.no_room {
        output::note(&format!(
            "{}: {reason}; the recording is whole up to there and marked incomplete ({} came later); free some space, \
             or choose another place with -o",
            destination.shown(),
            number::counted(recorded.discarded, "event")
        ));
    }
    if let Some(line) = end.line() {
        output::note(&line);
    }
    let took = end.command_seconds();
    let text = if args.json {
        json::pretty(&Document {
            recording: import::document("(recorded)", destination, metadata, summary),
            command_time_ns: took.map(|seconds| seconds * 1e9),
        })
    } else {
        let mut text = import::losses(metadata) + &import::words("recorded", metadata, summary);
        if let Some(took) = took {
            text.push_str(&format!("the command took {took:.3} s\n"));
        }
        text
    };
    output::print_as(args.json, &text)
}
