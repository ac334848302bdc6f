//! The `compare` command: runs a plan and its control, prints the table and the verdict, writes the report.

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use schemars::Schema;

use crate::args::{CompareArgs, RunArgs};
use crate::catalog;
use crate::commands::qemu;
use crate::comparison::json;
use crate::comparison::report;
use crate::comparison::summary::Comparison;
use crate::comparison::table;
use crate::comparison::verdict::Verdict;
use crate::failure::{BAD_RUN, Failure, SUCCESS};
use crate::print::output::{self, Destination, Kind};
use crate::print::schema;
use crate::print::table::Tables;
use crate::runs::plan::Plan;
use crate::runs::queue::{self, Runner};
use crate::runs::recording::workload;

/// The default comparison: the default workload under every design, with a report.
///
/// # Errors
/// As [`command`].
pub fn flagship(runner: &dyn Runner, stop: &AtomicBool) -> Result<u8, Failure> {
    let args = CompareArgs {
        workload: catalog::FLAGSHIP_WORKLOAD.to_string(),
        on: catalog::FLAGSHIP_MACHINE.to_string(),
        designs: catalog::FLAGSHIP_DESIGNS.split(',').map(str::to_string).collect(),
        cpus: None,
        cpus_follow_threads: false,
        vm: None,
        set: Vec::new(),
        threads: None,
        runs: 1,
        run: RunArgs {
            seed: 1,
            jobs: None,
            virtual_ms: None,
        },
        lru_drain: false,
        metric: None,
        verbose: false,
        latencies: false,
        json: false,
        html: None,
        svg: None,
    };
    // As the default of `compare`, plus half of the CPUs, where the real machine was measured.
    let threads = [1, 2, 4, 8, 16, 32, 36, 64, 72].to_vec();
    let args = CompareArgs {
        threads: Some(threads),
        ..args
    };
    let plan = Plan::new(&args, stop)?;
    let destination = Destination::default_report()?;
    let written = Written {
        destination: &destination,
        render: report::render,
    };
    compare(plan, Shown::Table, Some(written), runner, stop)
}

/// A file to write, and its content.
#[derive(Debug, Clone, Copy)]
struct Written<'a> {
    destination: &'a Destination,
    render: fn(&Comparison) -> String,
}

/// The output on stdout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shown {
    Table,
    TableAndLatencies,
    Json,
}

/// Runs `compare` and returns the exit status: that of a bad run when a translation was stale or a run failed.
///
/// # Errors
/// Bad input (found before anything runs), an unwritable output, Ctrl-C.
pub fn command(args: &CompareArgs, runner: &dyn Runner, stop: &AtomicBool) -> Result<u8, Failure> {
    if let Some(arch) = qemu::arch_of(&args.on) {
        return qemu::compare(args, arch, stop);
    }
    let plan = Plan::new(args, stop)?;
    let recording = args.workload.strip_prefix(workload::PREFIX).unwrap_or_default();
    let inputs = [Path::new(&args.on), Path::new(recording)];
    let destination = match (&args.html, &args.svg) {
        (Some(path), _) => Some(Destination::apart_from("--html", path, Kind::Page, &inputs)?),
        (None, Some(path)) => Some(Destination::apart_from("--svg", path, Kind::Picture, &inputs)?),
        (None, None) => None,
    };
    let written = destination.as_ref().map(|destination| Written {
        destination,
        render: if args.svg.is_some() {
            report::picture
        } else {
            report::render
        },
    });
    let shown = match (args.json, args.latencies) {
        (true, _) => Shown::Json,
        (false, true) => Shown::TableAndLatencies,
        (false, false) => Shown::Table,
    };
    compare(plan, shown, written, runner, stop)
}

fn compare(
    plan: Plan,
    shown: Shown,
    written: Option<Written>,
    runner: &dyn Runner,
    stop: &AtomicBool,
) -> Result<u8, Failure> {
    let start = Instant::now();
    let recording = plan.workload.recording.clone();
    let replaying = recording.as_deref().map(|recording| recording.runner(runner));
    let runner = match &replaying {
        Some(replaying) => replaying,
        None => runner,
    };
    let as_json = shown == Shown::Json;
    // Programs that read JSON requested these runs only; for people the control shows that the oracle works.
    let with_control = !as_json || written.is_some();
    let mut specs = plan.specs();
    specs.extend(with_control.then(|| plan.control()));
    let mut outcomes = queue::run_all(runner, &specs, plan.settings.jobs, stop)?.outcomes;
    let control = if with_control {
        specs.pop().zip(outcomes.pop().flatten())
    } else {
        None
    };
    let comparison = Comparison::new(plan, outcomes, control, start.elapsed().as_secs_f64());
    if comparison.rows.is_empty() {
        return Err(Failure::Interrupted);
    }

    let text = if as_json {
        json::render(&comparison)
    } else {
        let mut text = title(&comparison);
        let mut tables = Tables::new();
        text.push_str(&tables.draw(&table::comparison(&comparison)));
        if shown == Shown::TableAndLatencies {
            text.push_str(&table::latencies(&comparison, &mut tables));
        }
        text.push_str(&Verdict::new(&comparison).text());
        text
    };
    if comparison.missing > 0 {
        let all = comparison.missing + comparison.runs.len();
        return Err(output::partial(as_json, &text, comparison.missing, all, "runs"));
    }
    let label = (!as_json).then_some("report");
    let destination = written.as_ref().map(|written| written.destination);
    let content = || {
        written
            .as_ref()
            .map_or(String::new(), |written| (written.render)(&comparison))
    };
    output::results(&text, destination, label, content, stop)?;
    Ok(if comparison.stale() > 0 || !comparison.failures().is_empty() {
        BAD_RUN
    } else {
        SUCCESS
    })
}

fn title(comparison: &Comparison) -> String {
    let plan = &comparison.plan;
    let runs = if plan.settings.runs > 1 {
        format!(", medians of {} runs", plan.settings.runs)
    } else {
        String::new()
    };
    let drain = if plan.lru_drain { ", LRU drain" } else { "" };
    let mut title = format!(
        "{} on {} (simulated), seed {}{runs}{drain}\n",
        plan.workload.name,
        plan.place(),
        plan.settings.seed
    );
    let designs = plan.designs.iter().map(|design| design.name);
    for line in plan.target.without_effect(designs) {
        title.push_str(&line);
        title.push('\n');
    }
    if let Some(recording) = &plan.workload.recording {
        for line in recording.notes() {
            title.push_str(&line);
            title.push('\n');
        }
    }
    title
}

/// What `compare --json` prints.
pub fn schema() -> Schema {
    schema::of::<json::Document>("compare")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runs::fake::{self, Fake};
    use std::sync::atomic::Ordering;

    fn page(destination: &Destination) -> Written<'_> {
        Written {
            destination,
            render: report::render,
        }
    }

    #[test]
    fn a_comparison_writes_its_report_and_reports_success() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("r.html");
        let destination = Destination::new("--html", &path, Kind::Page).unwrap();
        let plan = fake::plan(&["ideal", "ipi"], &[1, 4]);
        let status = compare(
            plan,
            Shown::Table,
            Some(page(&destination)),
            &Fake::default(),
            &AtomicBool::new(false),
        );
        assert_eq!(status, Ok(SUCCESS));
        assert!(std::fs::read_to_string(path).unwrap().ends_with("</html>\n"));
    }

    #[test]
    fn stale_translation_fails_the_command_except_under_the_control() {
        let status = |stale_in| {
            let runner = Fake {
                stale_in,
                ..Fake::default()
            };
            compare(
                fake::plan(&["ipi", "none"], &[2]),
                Shown::Json,
                None,
                &runner,
                &AtomicBool::new(false),
            )
        };
        assert_eq!(status(Some("ipi")), Ok(BAD_RUN));
        assert_eq!(status(Some("none")), Ok(SUCCESS));
    }

    #[test]
    fn failed_run_fails_the_command_and_keeps_the_report() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("r.html");
        let destination = Destination::new("--html", &path, Kind::Page).unwrap();
        let runner = Fake {
            fail_at: Some(16),
            ..Fake::default()
        };
        let plan = fake::plan(&["ideal", "ipi"], &[1, 16]);
        let status = compare(
            plan,
            Shown::Table,
            Some(page(&destination)),
            &runner,
            &AtomicBool::new(false),
        );
        assert_eq!(status, Ok(BAD_RUN));
        let page = std::fs::read_to_string(path).unwrap();
        assert!(
            page.contains("FAILED RUNS: 2 of 5") && page.contains("<td>315k</td>"),
            "{page}"
        );
    }

    #[test]
    fn interrupted_comparison_prints_complete_and_missing_rows() {
        let plan = fake::plan(&["ipi", "broadcast"], &[1, 4, 16]);
        let outcomes = plan.specs().into_iter().enumerate();
        // Of 16 threads both designs, of 4 one.
        let ended = outcomes.map(|(index, spec)| (index >= 3).then(|| queue::Outcome::Ok(fake::result(&spec))));
        let comparison = Comparison::new(plan.clone(), ended, None, 1.0);
        let designs: Vec<_> = comparison.rows.iter().map(|row| (row.threads, row.design)).collect();
        assert_eq!(designs, [(4, "broadcast"), (16, "ipi"), (16, "broadcast")]);
        let text = Tables::new().draw(&table::comparison(&comparison)) + &Verdict::new(&comparison).text();
        assert!(
            text.contains("broadcast vs ipi: ") && text.contains("at 16 threads\n"),
            "{text}"
        );
        let value: serde_json::Value = serde_json::from_str(&json::render(&comparison)).unwrap();
        assert_eq!(
            (&value["missing_runs"], value["runs"].as_array().unwrap().len()),
            (&3.into(), 3)
        );
        // All of them: the same status as otherwise, and a word about the file.
        let (stop, started) = (AtomicBool::new(false), std::sync::atomic::AtomicUsize::new(0));
        let runner = Fake {
            on_progress: Some(Box::new(|| {
                stop.store(started.fetch_add(1, Ordering::Relaxed) >= 3, Ordering::Relaxed);
            })),
            ..Fake::default()
        };
        let failure = compare(plan, Shown::Json, None, &runner, &stop).unwrap_err();
        assert_eq!(failure.status(), 130);
        assert_eq!(
            failure.to_string(),
            "interrupted: 3 of 6 runs did not end and are missing above; no file is written"
        );
    }

    #[test]
    fn an_interrupted_comparison_writes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let destination = Destination::new("--html", &folder.path().join("r.html"), Kind::Page).unwrap();
        let stop = AtomicBool::new(false);
        let runner = Fake {
            on_progress: Some(Box::new(|| stop.store(true, Ordering::Relaxed))),
            ..Fake::default()
        };
        let outcome = compare(
            fake::plan(&["ipi"], &[1, 4]),
            Shown::Table,
            Some(page(&destination)),
            &runner,
            &stop,
        );
        assert_eq!(outcome.unwrap_err().status(), 130);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
