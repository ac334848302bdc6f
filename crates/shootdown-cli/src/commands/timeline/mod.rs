//! The `timeline` command: one shootdown across CPUs: sender, CPUs in lazy TLB mode, and the time of each answer.
//!
//! [`lanes`] makes lanes from the simulator's record, [`text`] and [`page`] draw them.

mod lanes;
mod page;
mod parts;
mod text;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use schemars::{JsonSchema, Schema};
use serde::Serialize;
use shootdown_sim::run::{RunSpec, validate};
use shootdown_sim::timeline::{self, Shootdown};

use crate::args::TimelineArgs;
use crate::failure::{BAD_RUN, Failure, SUCCESS};
use crate::print::json;
use crate::print::number;
use crate::print::output::{self, Destination, Kind};
use crate::print::schema;
use crate::print::table::Tables;
use crate::print::terminal;
use crate::runs::one::one_run;
use crate::runs::target::Target;
use lanes::{Role, View};

/// Default virtual milliseconds recorded: some flushes of each thread.
const WINDOW_MS: f64 = 0.5;
/// Default number of threads.
const THREADS: usize = 8;

/// One shootdown across CPUs. Times are virtual; moments are since the flush began.
#[derive(Serialize, JsonSchema)]
struct Document<'a> {
    /// The command line that repeats this.
    command: &'a str,
    /// Name of the workload.
    workload: &'a str,
    /// The machine, with what `--set` and `--cpus` changed.
    target: String,
    /// Name of the design.
    design: &'a str,
    /// Number of threads.
    threads: usize,
    /// Seed of the run.
    seed: u64,
    /// Flushes like it in the record.
    flushes_recorded: usize,
    /// Which of them this is, from 1.
    nth: usize,
    #[serde(flatten)]
    view: &'a View,
}

/// What `timeline --json` prints.
pub fn schema() -> Schema {
    schema::of::<Document>("timeline")
}

/// Records a short run and shows one of its shootdowns; the exit status is that of a bad run when a translation was
/// stale.
///
/// # Errors
/// Bad input, no such shootdown in the record, an unwritable output, Ctrl-C.
pub fn command(args: &TimelineArgs, stop: &AtomicBool) -> Result<u8, Failure> {
    let target = Target::of(&args.place.machine)?;
    let spec = RunSpec {
        workload: args.place.workload.trim().to_string(),
        machine: Arc::clone(&target.machine),
        design: args.design.trim().to_string(),
        threads: target.threads(args.threads, THREADS),
        seed: args.seed,
        virtual_ms: Some(args.virtual_ms.unwrap_or(WINDOW_MS)),
        lru_drain: false,
        parameters: target.parameters.clone(),
    };
    validate(&spec).map_err(Failure::Input)?;
    let inputs = [Path::new(&args.place.machine.on)];
    let destination = args
        .html
        .as_deref()
        .map(|path| Destination::apart_from("--html", path, Kind::Page, &inputs))
        .transpose()?;

    let recorded = one_run(stop, "drawn", |progress| timeline::trace(&spec, progress))?;
    let (result, events) =
        recorded.map_err(|error| Failure::Input(error.lines().next().unwrap_or_default().to_string()))?;
    let flushes = timeline::shootdowns(&events);
    let shown = candidates(&flushes);
    let nth = usize::try_from(args.nth).unwrap_or(usize::MAX);
    let Some(shootdown) = nth.checked_sub(1).and_then(|index| shown.get(index)) else {
        return Err(Failure::Input(match shown.len() {
            0 => format!(
                "{} under {}: nothing was flushed on another CPU; \
                 record longer (--virtual-ms) or look at another workload",
                spec.workload, spec.design
            ),
            found => format!(
                "--nth {}: the record has {found} such flushes; expected 1 to {found}, or record longer (--virtual-ms)",
                args.nth
            ),
        }));
    };
    let view = View::new(&events, &flushes, shootdown);

    let command = command_line(&spec, &target, nth);
    let title = format!("One shootdown: {} under {} on {target}", spec.workload, spec.design);
    let mut sentences = sentences(&view);
    sentences.push(format!(
        "The {} of {} flushes like it in {} ms after the warm-up; {} stale translations in {} checked accesses.",
        ordinal(nth),
        number::count(shown.len() as u64),
        spec.virtual_ms.unwrap_or(WINDOW_MS),
        number::count(result.stale),
        number::count(result.accesses_checked)
    ));
    let text = if args.json {
        json::pretty(&Document {
            command: &command,
            workload: &spec.workload,
            target: target.to_string(),
            design: &spec.design,
            threads: spec.threads,
            seed: spec.seed,
            flushes_recorded: flushes.len(),
            nth,
            view: &view,
        })
    } else {
        let columns = terminal::get().columns;
        let mut text = format!(
            "{title}, {} thread{}, seed {}\n\n{}\n",
            spec.threads,
            if spec.threads == 1 { "" } else { "s" },
            spec.seed,
            text::draw(&view, columns)
        );
        for sentence in &sentences {
            text.push_str(&text::wrapped(sentence, columns));
        }
        text.push('\n');
        text.push_str(&Tables::new().draw(&parts::table(&view)));
        text
    };
    let page = || page::render(&title, &command, &sentences, &view);
    let label = (!args.json).then_some("page");
    output::results(&text, destination.as_ref(), label, page, stop)?;
    let unsound = spec.design != crate::catalog::CONTROL_DESIGN && result.stale > 0;
    Ok(if unsound { BAD_RUN } else { SUCCESS })
}

/// The candidate flushes: those that interrupt two CPUs or more; without any, those that reach other CPUs; else all.
fn candidates(flushes: &[Shootdown]) -> Vec<Shootdown> {
    let filters: [fn(&Shootdown) -> bool; 3] = [
        |flush| flush.targets().len() >= 2,
        |flush| !flush.sent.is_empty() || flush.broadcasts > 0,
        |_| true,
    ];
    filters
        .iter()
        .map(|filter| {
            flushes
                .iter()
                .filter(|flush| filter(flush))
                .cloned()
                .collect::<Vec<_>>()
        })
        .find(|found| !found.is_empty())
        .unwrap_or_default()
}

fn sentences(view: &View) -> Vec<String> {
    let mut parts = Vec::new();
    let targets = view.count(Role::Target);
    let sent = view.lanes.iter().filter(|lane| lane.sent.is_some()).count();
    if targets > 0 {
        let cpus = number::counted(targets, "CPU");
        parts.push(match sent {
            1 if targets == 1 => format!("sends an interrupt to {cpus}"),
            _ if sent == targets => format!("sends interrupts to {cpus}"),
            0 => format!("posts requests at {cpus}, to which IPIs of other CPUs are already on their way"),
            _ => {
                format!(
                    "posts requests at {cpus} and sends IPIs to {sent} of them \
                    (IPIs of other CPUs are already on their way to the rest)"
                )
            }
        });
    }
    if view.broadcasts > 0 {
        parts.push(format!("issues {}", number::counted(view.broadcasts, "broadcast")));
    }
    let lazy = view.count(Role::Lazy);
    if lazy > 0 {
        parts.push(format!("skips {} in lazy TLB mode", number::counted(lazy, "CPU")));
    }
    let (sender, done) = (view.sender, number::time(view.duration));
    let mut sentences = vec![if targets == 0 && view.broadcasts == 0 {
        parts.insert(0, "flush concerns no other CPU".to_string());
        format!("CPU {sender}'s {}, and is done after {done}.", parts.join(", "))
    } else {
        format!("CPU {sender} {}, and is done after {done}.", parts.join(", "))
    }];
    if let Some((cpu, at)) = view.last() {
        sentences.push(format!("The last to answer is CPU {cpu}, after {}.", number::time(at)));
    }
    sentences
}

fn ordinal(n: usize) -> String {
    let suffix = match (n % 10, n % 100) {
        (_, 11..=13) => "th",
        (1, _) => "st",
        (2, _) => "nd",
        (3, _) => "rd",
        _ => "th",
    };
    format!("{n}{suffix}")
}

fn command_line(spec: &RunSpec, target: &Target, nth: usize) -> String {
    format!(
        "shootdown timeline {} --on {} --design {} --threads {} --seed {} --virtual-ms {} --nth {nth}",
        spec.workload,
        target.options(),
        spec.design,
        spec.threads,
        spec.seed,
        number::written(spec.virtual_ms.unwrap_or(WINDOW_MS))
    )
}
