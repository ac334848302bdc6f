//! The `replay` command: a recording of a real program on a simulated machine, under several designs.
//!
//! [`row`] sums up the results, [`tables`] and [`page`] show them.

mod fit;
mod page;
mod row;
mod tables;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use schemars::{JsonSchema, Schema};
use serde::Serialize;
use shootdown_sim::model::Model;
use shootdown_sim::replay::{ReplayResult, ReplaySpec, Scale, replay_recorded, validate};
use shootdown_sim::run::{PARAMETER_PREFIX, Settings};
use shootdown_sim::timeline::TimelineEvent;
use shootdown_trace::victims::Interruptions;
use shootdown_trace::{Coverage, Metadata};

use crate::args::ReplayArgs;
use crate::catalog;
use crate::comparison::ratios::Point;
use crate::failure::{BAD_RUN, Failure, SUCCESS};
use crate::print::json;
use crate::print::number;
use crate::print::output::{self, Destination, Kind};
use crate::print::progress::Progress;
use crate::print::schema;
use crate::print::table::Tables;
use crate::print::victims::{self, Lines};
use crate::runs::plan;
use crate::runs::recording::{Recording, limits};
use crate::runs::target::{Target, quoted};
use fit::{Fit, LINUX, indistinct};
use row::{Prediction, Row};

/// Designs that handle a request as the recorded kernel does. Where program and machine are as recorded, the prediction
/// of the first of them that is selected is shown beside the recording.
const AS_RECORDED: [&str; 2] = ["ipi-trim", "ipi"];

/// Where predicted and recorded differ although the engine handles requests as the kernel does.
const DIFFERENCES: &str = "Inferred, because the recording lacks it: which flushes free page-table pages (forks, \
    new programs and ends of processes are identified by a flush of everything), where a child of vfork gets its \
    own space, the time of a missing switch out of idle, and the spaces that CPUs had loaded before the first line. \
    The kernel's own space takes a tag there, and none here.";

/// A recorded program under several designs, on a simulated machine. Times are virtual.
#[derive(Serialize, JsonSchema)]
struct Document<'a> {
    /// The command line that repeats the replay.
    command: &'a str,
    /// The recording.
    file: String,
    /// The machine, with what `--set` and `--cpus` changed.
    target: String,
    /// How the program was scaled to a larger machine (`--scale`).
    scale: String,
    /// Seed of the run.
    seed: u64,
    /// Length of the recording.
    duration_ns: f64,
    /// CPUs of the recording.
    recorded_cpus: usize,
    /// Counts of the recording.
    recorded: RecordedCounts,
    /// Events that the recording lost: they are missing from every number in this document.
    lost_events: u64,
    /// Facts about the recording other than its events.
    metadata: &'a Metadata,
    /// What the recording can tell, and what is missing.
    coverage: &'a Coverage,
    /// One element for each design.
    designs: &'a [Row],
    /// CPU time lost, relative to that under `ipi`, or under the first design with a loss. Empty if nothing is lost.
    ratios: &'a [Point],
    /// The recorded kernel's handling of the requests, beside the replay's prediction. Empty where program or machine
    /// is not as recorded.
    predictions: &'a [Prediction],
    /// How well the interrupts are predicted on each model with as many CPUs as were recorded. Empty without one.
    fits: &'a [Fit],
    /// The CPUs and threads that the recorded shootdowns interrupted, and the system calls that sent them.
    victims: Lines,
    /// Replays that Ctrl-C kept from ending; absent when all ended.
    #[serde(skip_serializing_if = "json::is_none")]
    missing_runs: usize,
}

/// What `replay --json` prints.
pub fn schema() -> Schema {
    schema::of::<Document>("replay")
}

/// Counts of the recording.
#[derive(Serialize, JsonSchema)]
struct RecordedCounts {
    /// Flushes that the program requested.
    flushes: u64,
    /// Requests queued to other CPUs.
    requests_queued: u64,
    /// Of these, carried out there, with the space loaded.
    flushed_remotely: u64,
    /// Of these, at CPUs that had left the space.
    at_cpus_that_had_left: u64,
    /// Root loads at switches.
    root_loads: u64,
    /// Of these, root loads with a flush.
    root_loads_with_flush: u64,
    /// Switches that the recording lacks and that follow from other events.
    inferred_switches: u64,
    /// Address spaces.
    spaces: u64,
}

/// One design's replay.
struct Done {
    result: ReplayResult,
    events: Vec<TimelineEvent>,
}

/// Replays a recording; the exit status is that of a bad run when a translation was stale.
///
/// # Errors
/// Bad input, a recording that cannot be read, an unwritable output, Ctrl-C.
pub fn command(args: &ReplayArgs, stop: &AtomicBool) -> Result<u8, Failure> {
    let target = Target::of(&args.machine)?;
    if let Some((path, _)) = target.set.iter().find(|(path, _)| path.starts_with(PARAMETER_PREFIX)) {
        return Err(Failure::Input(format!(
            "--set {path}: a recording has no parameters; only numbers of the machine model and settings of the design \
             (design.NAME) can be replaced"
        )));
    }
    let inputs = [args.file.as_path(), Path::new(&args.machine.on)];
    let destination = args
        .html
        .as_deref()
        .map(|path| Destination::apart_from("--html", path, Kind::Page, &inputs))
        .transpose()?;
    let recording = Recording::open(&args.file, || stop.load(Ordering::Relaxed))?;
    let specs: Vec<ReplaySpec> = args
        .designs
        .iter()
        .map(|design| ReplaySpec {
            machine: Arc::clone(&target.machine),
            design: design.trim().to_string(),
            settings: target.parameters.design().clone(),
            seed: args.seed,
            scale: args.scale,
            recorded_cpus: recording.cpus(),
        })
        .collect();
    for spec in &specs {
        validate(spec).map_err(Failure::Input)?;
    }
    let models = limits::models_of(recording.cpus())?;
    let mut all = specs.clone();
    all.extend(models.iter().map(|model| as_linux(model, &recording, args)));
    let mut done = run(&all, &recording, args, specs.len(), destination.is_some(), stop)?;
    let missing = done.iter().filter(|done| done.is_none()).count();
    let ended = |specs: &[ReplaySpec], done: Vec<Option<Done>>| -> Vec<(ReplaySpec, Done)> {
        let pairs = specs.iter().cloned().zip(done);
        pairs.filter_map(|(spec, done)| Some((spec, done?))).collect()
    };
    let fits = fits(&ended(&all[specs.len()..], done.split_off(specs.len())), &recording);
    let (specs, done): (Vec<ReplaySpec>, Vec<Done>) = ended(&specs, done).into_iter().unzip();
    if specs.is_empty() {
        return Err(Failure::Interrupted);
    }
    let lost = recording.metadata.lost_events;
    let times = args.scale.times();
    let rows: Vec<Row> = specs
        .iter()
        .zip(&done)
        .map(|(spec, done)| Row::new(&spec.design, &done.result, &recording.recorded, times, lost))
        .collect();
    let as_recorded = args.scale == Scale::Copies(1)
        && target.machine.topology.cpus() == recording.cpus()
        && target.parameters.design().is_empty();
    let predicting = AS_RECORDED
        .iter()
        .filter(|_| as_recorded)
        .find_map(|name| specs.iter().position(|spec| spec.design == *name));
    let predictions = predicting.map_or(Vec::new(), |index| {
        row::predictions(&done[index].result, &recording.recorded, recording.metadata.one_program)
    });
    let mut limits = target.without_effect(specs.iter().map(|spec| spec.design.as_str()));
    limits.extend(limits::lines(&recording, &models));
    limits.extend(fits.iter().map(Fit::words));
    limits.extend(indistinct(&rows));
    let mut hits: Vec<(&str, &Interruptions)> = Vec::new();
    if as_recorded {
        hits.push(("(recorded)", &recording.victims.interruptions));
    }
    hits.extend(
        specs
            .iter()
            .zip(&done)
            .map(|(spec, done)| (spec.design.as_str(), &done.result.victims)),
    );
    let tables = tables(&recording, &rows, &predictions, times, &hits);
    let command = command_line(args, &target);
    let found: Vec<_> = rows
        .iter()
        .map(|row| (row.design.as_str(), row.stale, row.accesses_checked))
        .collect();
    let page = || {
        let view = page::View {
            title: title(args, &target),
            command: &command,
            verdict: tables::verdict(&found),
            tables: tables.clone(),
            limits: limits.clone(),
            notes: notes(&recording, !predictions.is_empty()),
            timelines: specs
                .iter()
                .zip(&done)
                .map(|(spec, done)| (spec.design.as_str(), done.events.as_slice()))
                .collect(),
        };
        page::render(&view)
    };
    let ratios = tables::ratios(&rows, &target.machine);
    let recorded = &recording.recorded;
    let text = if args.json {
        json::pretty(&Document {
            command: &command,
            file: args.file.display().to_string(),
            target: target.to_string(),
            scale: args.scale.to_string(),
            seed: args.seed,
            duration_ns: recorded.seconds() * 1e9,
            recorded_cpus: recording.cpus(),
            recorded: RecordedCounts {
                flushes: recorded.requests,
                requests_queued: recorded.queued,
                flushed_remotely: recorded.remote,
                at_cpus_that_had_left: recorded.elsewhere,
                root_loads: recorded.kept + recorded.flushed,
                root_loads_with_flush: recorded.flushed,
                inferred_switches: recorded.inferred_switches,
                spaces: recorded.spaces,
            },
            lost_events: lost,
            metadata: &recording.metadata,
            coverage: &recording.coverage,
            designs: &rows,
            ratios: &ratios,
            predictions: &predictions,
            fits: &fits,
            victims: victims::lines(&recording.victims),
            missing_runs: missing,
        })
    } else {
        let mut text = format!("{}\n{}\n", title(args, &target), limits::damage(&recording.metadata));
        for line in &limits {
            text.push_str(&format!("{line}\n"));
        }
        text.push('\n');
        let mut drawn = Tables::new();
        for (title, grid) in &tables {
            text.push_str(&format!("{title}\n{}\n", drawn.draw(grid)));
        }
        text.pop();
        let verdict = tables::verdict(&found).words;
        let apart = indistinct(&rows).is_none();
        let ratios = tables::ratio_sentence(&ratios).filter(|_| apart);
        for note in ratios
            .iter()
            .chain(&notes(&recording, !predictions.is_empty()))
            .chain([&verdict])
        {
            text.push_str(note);
            text.push('\n');
        }
        text
    };
    if missing > 0 {
        return Err(output::partial(args.json, &text, missing, all.len(), "replays"));
    }
    let label = (!args.json).then_some("page");
    output::results(&text, destination.as_ref(), label, page, stop)?;
    let unsound = rows
        .iter()
        .any(|row| row.design != catalog::CONTROL_DESIGN && row.stale > 0);
    Ok(if unsound { BAD_RUN } else { SUCCESS })
}

/// Replays each on the requested number of host threads, the first `shown` of them with a timeline if there is one;
/// none of those that Ctrl-C ended.
fn run(
    specs: &[ReplaySpec],
    recording: &Recording,
    args: &ReplayArgs,
    shown: usize,
    with_timeline: bool,
    stop: &AtomicBool,
) -> Result<Vec<Option<Done>>, Failure> {
    let jobs = plan::host_threads(args.jobs)?.min(specs.len());
    let progress = Arc::new(Progress::new("replays", vec![1.0; specs.len()]));
    let all = recording.recorded.events.max(1) as f64;
    let next = AtomicUsize::new(0);
    let results: Vec<Mutex<Option<Result<Done, String>>>> = specs.iter().map(|_| Mutex::new(None)).collect();
    thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(spec) = specs.get(index) else { break };
                    let mut go_on = || !stop.load(Ordering::Relaxed);
                    let (overall, read) = (Arc::clone(&progress), AtomicU64::new(0));
                    // Relaxed: a number for people.
                    let steps = recording.steps(move |events| {
                        let before = read.fetch_add(events, Ordering::Relaxed);
                        overall.update(index, (before + events) as f64 / all);
                    });
                    let with_timeline = with_timeline && index < shown;
                    let done = replay_recorded(spec, steps, with_timeline, &mut go_on)
                        .map(|(result, events)| Done { result, events });
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                    progress.finish(index);
                    if let Ok(mut slot) = results[index].lock() {
                        *slot = Some(done);
                    }
                }
            });
        }
    });
    drop(progress);
    let ended = |slot: Mutex<Option<Result<Done, String>>>| slot.into_inner().unwrap_or_else(PoisonError::into_inner);
    let results = results
        .into_iter()
        .map(|slot| ended(slot).transpose().map_err(Failure::Input));
    results.collect()
}

/// The recording as Linux on a model, for a comparison of prediction and recording.
fn as_linux(model: &Model, recording: &Recording, args: &ReplayArgs) -> ReplaySpec {
    ReplaySpec {
        settings: Settings::default(),
        machine: Arc::new(model.clone()),
        design: LINUX.to_string(),
        seed: args.seed,
        scale: Scale::Copies(1),
        recorded_cpus: recording.cpus(),
    }
}

/// Prediction and recording, for each replay of [`as_linux`].
fn fits(replays: &[(ReplaySpec, Done)], recording: &Recording) -> Vec<Fit> {
    let fit = |(spec, done): &(ReplaySpec, Done)| {
        let found = row::predictions(&done.result, &recording.recorded, true);
        Fit::new(&spec.machine.name, &found[0], recording.recorded.unseen)
    };
    replays.iter().map(fit).collect()
}

fn title(args: &ReplayArgs, target: &Target) -> String {
    let file = args
        .file
        .file_name()
        .unwrap_or(args.file.as_os_str())
        .display()
        .to_string();
    format!("Replay of {file} on {target}, scale {}", args.scale)
}

/// The results, with a title for each table.
fn tables(
    recording: &Recording,
    rows: &[Row],
    predictions: &[Prediction],
    times: u64,
    hits: &[(&str, &Interruptions)],
) -> Vec<page::Table> {
    let (recorded, lost) = (&recording.recorded, recording.metadata.lost_events);
    let mut tables = vec![
        (
            "Interrupts, and CPU time lost",
            tables::costs(rows, recorded, times, lost),
        ),
        ("Latency and disturbance", tables::tails(rows, recorded)),
        ("CPUs that interrupts hit", tables::hits(rows)),
    ];
    if hits.iter().any(|(_, found)| found.total() > 0) {
        for (by, title) in victims::TABLES {
            tables.push((title, victims::replayed(&recording.victims, hits, by, victims::TOP)));
        }
    }
    if !predictions.is_empty() {
        tables.push(("Predicted beside recorded", tables::predictions(predictions)));
    }
    tables
}

/// Notes on the numbers.
fn notes(recording: &Recording, predicts: bool) -> Vec<String> {
    let recorded = &recording.recorded;
    let mut notes = vec![
        "(recorded) *: from the queuing of a request to its flush on the other CPU, which is a part of the shootdown."
            .to_string(),
        format!(
            "{:.3} s, {}; switches inferred because the recording lacks them: {}; \
             requests for spaces that it does not name: {}.",
            recorded.seconds(),
            number::counted(recorded.spaces, "space"),
            number::count(recorded.inferred_switches),
            number::count(recorded.foreign)
        ),
    ];
    if predicts {
        notes.push(DIFFERENCES.to_string());
    }
    if predicts && recording.metadata.one_program {
        notes.push(
            "Only one program was recorded: the handling of requests, \
             and switches, on CPUs that ran other programs are not in the recording. `record --system` has it."
                .to_string(),
        );
    }
    if recording.metadata.lost_events > 0 {
        notes.push(format!(
            "The recording lost {}: every number above is a lower bound.",
            number::counted(recording.metadata.lost_events, "event")
        ));
    }
    if recording.metadata.incomplete {
        notes.push("The recording ended before its time.".to_string());
    }
    notes
}

fn command_line(args: &ReplayArgs, target: &Target) -> String {
    format!(
        "shootdown replay {} --on {} --designs {} --scale {} --seed {}",
        quoted(&args.file.display().to_string()),
        target.options(),
        args.designs.join(","),
        args.scale,
        args.seed
    )
}
