//! The `sweep` command: runs every combination of the given values, and resumes after an interruption.
//!
//! [`values`] is the grammar, [`space`] the points, made of [`machine`] and [`combine`], [`journal`] the finished runs,
//! [`results`] columns and files, [`merge`] the merging of shards, [`summary`] the output at the end.

mod combine;
mod journal;
mod json;
mod machine;
mod merge;
mod results;
mod space;
mod summary;
mod values;

pub use json::schema;

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;

use crate::args::{Shard, SweepArgs};
use crate::comparison::interval;
use crate::failure::{BAD_RUN, Failure, SUCCESS};
use crate::print::number;
use crate::print::output::{self, Destination, Kind};
use crate::runs::queue::{self, Outcome, Runner};
use journal::{Finished, Identity, Journal};
use results::{Format, Results, Value};
use shootdown_sim::run::RunSpec;
use space::{Point, Space};
use summary::Summary;

/// Most notes about settings without effect.
const MOST_NOTES: usize = 5;

/// An output file for results.
struct Output {
    destination: Destination,
    format: Format,
}

impl Output {
    fn new(path: &Path) -> Result<Self, Failure> {
        let format = Format::of(path).map_err(|error| Failure::Input(format!("-o {error}")))?;
        Ok(Self {
            destination: Destination::new("-o", path, Kind::Sweep)?,
            format,
        })
    }
}

/// Runs a sweep, or merges shards, and returns the exit status: that of a bad run when a translation was stale or a run
/// failed.
///
/// # Errors
/// Bad input (found before anything runs), files that cannot be read or written, Ctrl-C.
pub fn command(args: &SweepArgs, runner: &dyn Runner, stop: &AtomicBool) -> Result<u8, Failure> {
    let output = args.output.as_deref().map(Output::new).transpose()?;
    if !args.merge.is_empty() {
        let merged = merge::merge(&args.merge).map_err(Failure::Input)?;
        return finish(&merged, output.as_ref(), args.json, stop);
    }
    let space = Space::new(args)?;
    let shard = args.shard.unwrap_or(Shard { index: 1, of: 1 });
    let identity = Identity {
        sweep: format!("{:016x}", space.hash),
        points: space.points.len(),
        shard: format!("{}/{}", shard.index, shard.of),
        command: std::env::args().collect::<Vec<_>>().join(" "),
    };
    let share = space.share(shard);
    if space.left_out > 0 {
        output::note(&format!(
            "left out, with more threads than their machine has CPUs: {}",
            number::counted(space.left_out, "run")
        ));
    }

    let without_effect = space.without_effect();
    without_effect
        .iter()
        .take(MOST_NOTES)
        .for_each(|line| output::note(line));
    if without_effect.len() > MOST_NOTES {
        output::note(&format!(
            "{} more settings change nothing",
            without_effect.len() - MOST_NOTES
        ));
    }

    let (journal, mut finished) = match &output {
        Some(output) => match complete(output.destination.path(), &identity, &share)? {
            Some(finished) => (None, finished),
            None => {
                let path = Journal::beside(output.destination.path());
                let (journal, finished) = Journal::open(&path, &identity).map_err(Failure::Input)?;
                (Some(journal), finished)
            }
        },
        None => (None, Finished::new()),
    };
    let before = finished.len();
    let left: Vec<usize> = share
        .iter()
        .copied()
        .filter(|point| !finished.contains_key(point))
        .collect();
    let threads: Vec<usize> = left.iter().map(|&point| space.points[point].threads).collect();
    let state = Mutex::new((journal, &mut finished));
    let done = |index: usize, outcome: Outcome| {
        let point = left[index];
        let cells = row(space.spec(&space.points[point]).ok().as_ref(), &outcome);
        let mut state = state.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        // Runs continue without a journal: their results are printed in any case.
        if let Some(Err(why)) = state.0.as_mut().map(|journal| journal.append(point, &cells)) {
            state.0 = None;
            output::note(&format!(
                "{why}; runs continue, but are not kept if this sweep is interrupted"
            ));
        }
        state.1.insert(point, cells);
        Ok(())
    };
    let spec = |index: usize| space.spec(&space.points[left[index]]);
    let outcome = queue::run_each(runner, &threads, &spec, space.settings.jobs, stop, &done);
    let (journal, _) = state.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    let suspended = |done: usize| match &output {
        Some(output) => Failure::Suspended(format!(
            "{done} of {} finished, in {}; repeat the command to resume",
            number::counted(share.len(), "run"),
            Journal::beside(output.destination.path()).display()
        )),
        None => Failure::Suspended("runs abandoned; with -o FILE a sweep can be resumed".to_string()),
    };
    let missing = match outcome {
        Err(Failure::Interrupted) if finished.is_empty() => return Err(suspended(0)),
        Err(Failure::Interrupted) => share.len() - finished.len(),
        other => other.map(|()| 0)?,
    };
    if missing == 0 {
        output::note(&format!(
            "{}: {} now, {} before",
            number::counted(share.len(), "run"),
            number::count(left.len() as u64),
            number::count(before as u64)
        ));
    }

    let rows = share.iter().filter_map(|&point| {
        let mut cells = key(&space, &identity, point);
        cells.extend(finished.get(&point)?.iter().cloned());
        Some(cells)
    });
    let results = Results::gather(rows.collect());
    if missing > 0 {
        print_partial(&results, missing, args.json)?;
        return Err(suspended(finished.len()));
    }
    if output.is_none() && !args.json {
        output::note("without -o FILE or --json no single run is shown or kept");
    }
    let status = finish(&results, output.as_ref(), args.json, stop).map_err(|failure| match failure {
        Failure::Interrupted => suspended(finished.len()),
        failure => failure,
    })?;
    if let Some(journal) = journal {
        journal.remove();
    }
    Ok(status)
}

/// Prints the results of an interrupted sweep so far.
fn print_partial(results: &Results, missing: usize, as_json: bool) -> Result<(), Failure> {
    if as_json {
        return output::print(&json::render(results, missing));
    }
    let all = missing + results.rows.len();
    let text = Summary::new(results).text();
    match output::partial(false, &text, missing, all, "runs") {
        Failure::Suspended(_) => Ok(()),
        failure => Err(failure),
    }
}

/// Prints JSON or the summary, writes the file.
fn finish(results: &Results, output: Option<&Output>, as_json: bool, stop: &AtomicBool) -> Result<u8, Failure> {
    let summary = Summary::new(results);
    let text = if as_json {
        json::render(results, 0)
    } else {
        summary.text()
    };
    let encoded = || output.map_or(Vec::new(), |output| results.encode(output.format));
    let label = (!as_json).then_some("results");
    output::results(&text, output.map(|output| &output.destination), label, encoded, stop)?;
    Ok(if summary.stale > 0 || !summary.failed.is_empty() {
        BAD_RUN
    } else {
        SUCCESS
    })
}

/// The runs in an output file that already holds all of this shard; `None` when there is no file yet.
fn complete(path: &Path, identity: &Identity, share: &[usize]) -> Result<Option<Finished>, Failure> {
    if !path.exists() || output::may_overwrite() {
        return Ok(None);
    }
    let refuse = |why: &str| {
        Failure::Input(format!(
            "-o {}: {why}; choose another name, or add --force to overwrite it",
            path.display()
        ))
    };
    let part = merge::part(path).map_err(|_| refuse("exists and holds no results of a sweep"))?;
    let points: Vec<usize> = part.rows.iter().map(|(point, _)| *point).collect();
    if part.sweep != identity.sweep || part.points != identity.points || points != share {
        return Err(refuse("holds the results of another sweep or shard"));
    }
    let keys = |name: &str| [results::SWEEP, results::POINT, results::POINTS].contains(&name);
    let mut finished = Finished::new();
    for (point, cells) in part.rows {
        // From `ops` on, and the reason of a failure, columns are results.
        let from = cells.iter().position(|(name, _)| name == "ops").unwrap_or(cells.len());
        let mut cells: Vec<_> = cells
            .into_iter()
            .enumerate()
            .filter(|(index, (name, value))| {
                !keys(name)
                    && (*index >= from || name == results::ERROR)
                    && (name != results::ERROR || *value != Value::Null)
            })
            .map(|(_, cell)| cell)
            .collect();
        if cells.iter().any(|(name, _)| name == results::ERROR) {
            cells.retain(|(name, _)| name == results::ERROR);
        }
        finished.insert(point, cells);
    }
    Ok(Some(finished))
}

/// The cells that identify the run of a row.
fn key(space: &Space, identity: &Identity, index: usize) -> Vec<(String, Value)> {
    let point: &Point = &space.points[index];
    let text = |name: &str, text: &str| (name.to_string(), Value::Text(text.to_string()));
    let count = |name: &str, count: usize| (name.to_string(), Value::Count(count as u64));
    let mut cells = vec![
        text(results::SWEEP, &identity.sweep),
        count(results::POINT, index),
        count(results::POINTS, identity.points),
        text("workload", point.workload),
        text("machine", space.machine(point)),
        text("design", point.design),
        count("cpus", point.cpus),
        count("threads", point.threads),
        ("seed".to_string(), Value::Count(point.seed)),
    ];
    for path in &space.parameters {
        cells.push((path.clone(), space.cell(point, path)));
    }
    cells
}

/// The result cells.
fn row(spec: Option<&RunSpec>, outcome: &Outcome) -> Vec<(String, Value)> {
    match outcome {
        Ok(result) => results::cells(result, spec.and_then(|spec| interval::of_run(spec, result))),
        Err(reason) => vec![(results::ERROR.to_string(), Value::Text(reason.clone()))],
    }
}

/// The arguments of a command line, without `shootdown sweep`.
#[cfg(test)]
fn args(line: &str) -> SweepArgs {
    use clap::Parser;
    let words = ["shootdown", "sweep"].into_iter().chain(line.split_whitespace());
    match crate::args::Cli::try_parse_from(words).unwrap().command {
        Some(crate::args::Command::Sweep(args)) => args,
        other => panic!("not a sweep: {other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runs::fake::Fake;
    use std::sync::atomic::{AtomicUsize, Ordering};

    const SWEEP: &str =
        "tlb_flush2 --designs ipi,adaptive --threads 2,16 --set costs.ipi_send=200..4000:log --points 3";

    fn run(line: &str, runner: &Fake) -> Result<u8, Failure> {
        command(&args(line), runner, &AtomicBool::new(false))
    }

    fn files(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn interrupted_sweep_resumes_without_repeating_runs() {
        let folder = tempfile::tempdir().unwrap();
        let line = format!("{SWEEP} --jobs 1 -o {}", folder.path().join("s.csv").display());
        let (stop, started) = (AtomicBool::new(false), AtomicUsize::new(0));
        let fake = Fake {
            on_progress: Some(Box::new(|| {
                // The sixth run is in progress at Ctrl-C.
                stop.store(started.fetch_add(1, Ordering::Relaxed) >= 5, Ordering::Relaxed);
            })),
            ..Fake::default()
        };
        let failure = command(&args(&line), &fake, &stop).unwrap_err();
        assert_eq!(failure.status(), 130);
        assert!(failure.to_string().contains("5 of 12 runs finished, in "), "{failure}");
        assert_eq!(files(folder.path()), ["s.csv.journal"]);
        assert_eq!(fake.finished.lock().unwrap().len(), 5);

        // The end of the last line is lost, as when the machine dies: only that run is made again.
        let journal = folder.path().join("s.csv.journal");
        let bytes = std::fs::read(&journal).unwrap();
        std::fs::write(&journal, &bytes[..bytes.len() - 9]).unwrap();
        let again = Fake::default();
        assert_eq!(run(&line, &again), Ok(SUCCESS));
        assert_eq!(again.started.lock().unwrap().len(), 12 - 4);
        assert_eq!(files(folder.path()), ["s.csv"]);

        // Complete: nothing is run, and the file stays as it is.
        let resumed = std::fs::read(folder.path().join("s.csv")).unwrap();
        let idle = Fake::default();
        assert_eq!(run(&line, &idle), Ok(SUCCESS));
        assert!(idle.started.lock().unwrap().is_empty());
        assert_eq!(std::fs::read(folder.path().join("s.csv")).unwrap(), resumed);

        // A single run gives the same, with any number of host threads.
        let whole = folder.path().join("whole.csv");
        assert_eq!(
            run(&format!("{SWEEP} -o {}", whole.display()), &Fake::default()),
            Ok(SUCCESS)
        );
        assert_eq!(std::fs::read(whole).unwrap(), resumed);
    }

    #[test]
    fn shards_merge_only_if_complete() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).display().to_string();
        for (shard, name) in [("1/3", "a.csv"), ("2/3", "b.parquet"), ("3/3", "c.csv")] {
            assert_eq!(
                run(&format!("{SWEEP} --shard {shard} -o {}", path(name)), &Fake::default()),
                Ok(SUCCESS)
            );
        }
        run(&format!("{SWEEP} -o {}", path("whole.csv")), &Fake::default()).unwrap();
        let merge = |files: &[&str]| {
            let files: Vec<String> = files.iter().map(|name| path(name)).collect();
            run(
                &format!("--merge {} -o {}", files.join(" "), path("all.csv")),
                &Fake::default(),
            )
        };
        assert!(
            merge(&["a.csv", "c.csv"])
                .unwrap_err()
                .to_string()
                .contains("add the missing shards")
        );
        assert!(!folder.path().join("all.csv").exists());
        assert_eq!(merge(&["c.csv", "b.parquet", "a.csv"]), Ok(SUCCESS));
        assert_eq!(
            std::fs::read(path("all.csv")).unwrap(),
            std::fs::read(path("whole.csv")).unwrap()
        );
    }

    #[test]
    fn csv_and_parquet_hold_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let read = |name: &str| {
            let path = folder.path().join(name);
            run(
                &format!("{SWEEP} --runs 2 -o {}", path.display()),
                &Fake {
                    fail_at: Some(16),
                    ..Fake::default()
                },
            )
            .unwrap();
            Results::read(&path, Format::of(&path).unwrap()).unwrap()
        };
        let (csv, parquet) = (read("s.csv"), read("s.parquet"));
        assert_eq!(csv, parquet);
        assert_eq!(csv.rows.len(), 24);
    }

    #[test]
    fn results_of_another_sweep_are_not_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s.csv");
        let line = format!("{SWEEP} -o {}", path.display());
        run(&line, &Fake::default()).unwrap();
        for other in ["--seed 2", "--shard 1/2"] {
            let message = run(&format!("{line} {other}"), &Fake::default())
                .unwrap_err()
                .to_string();
            assert!(
                message.contains("holds the results of another sweep or shard; choose another name"),
                "{message}"
            );
        }
        std::fs::write(&path, "mine").unwrap();
        assert!(
            run(&line, &Fake::default())
                .unwrap_err()
                .to_string()
                .contains("exists and is no table of a sweep")
        );
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "mine");
    }

    #[test]
    fn failed_and_stale_runs_set_the_exit_status_and_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let line = format!("{SWEEP} -o {}", folder.path().join("s.csv").display());
        let fake = Fake {
            fail_at: Some(16),
            ..Fake::default()
        };
        assert_eq!(run(&line, &fake), Ok(BAD_RUN));
        let idle = Fake::default();
        assert_eq!(run(&line, &idle), Ok(BAD_RUN));
        assert!(idle.started.lock().unwrap().is_empty(), "a failure is a result too");
        let stale = Fake {
            stale_in: Some("ipi"),
            ..Fake::default()
        };
        assert_eq!(run(SWEEP, &stale), Ok(BAD_RUN));
    }
}
