//! `shootdown host`: small workloads on this machine's own kernel, measured.
//!
//! Owns the allowed CPUs of workers, the rows to measure, their table and their JSON. The workloads are in
//! `shootdown-linux`.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use schemars::Schema;
use shootdown_linux::cpus::{self, Machine};
use shootdown_linux::load::Load;
use shootdown_linux::work::{self, Measured, Workload};

use crate::args::{HostArgs, MeasureArgs};
use crate::comparison::json;
use crate::failure::{BAD_RUN, Failure, SUCCESS};
use crate::print::number::{self, UNKNOWN};
use crate::print::output;
use crate::print::progress::Progress;
use crate::print::schema;
use crate::print::table::{Column, Grid, Tables};
use crate::runs::plan;

/// The target's name in JSON, and that of the design that the kernel of this machine has.
const LINUX: &str = "linux";

/// Measures and prints.
///
/// # Errors
/// One line on bad usage, or when a workload cannot run here; Ctrl-C.
pub fn command(args: &HostArgs, stop: &AtomicBool) -> Result<u8, Failure> {
    let place = Place::find()?;
    let settings = Settings::new(&args.measure)?;
    let rows = plan_rows(args, &place)?;
    place.note();
    Place::note_load();
    let all = rows.len();
    let rows = measure(&place, &rows, &settings, stop)?;
    let stale = rows.iter().flat_map(|row| &row.runs).any(|run| run.stale > 0);
    let text = if args.json {
        document(&rows)
    } else {
        words(&place, &rows)
    };
    if rows.len() < all {
        return Err(output::partial(args.json, &text, all - rows.len(), all, "rows"));
    }
    output::print_as(args.json, &text)?;
    Ok(if stale { BAD_RUN } else { SUCCESS })
}

/// This machine, and the CPUs for workers.
pub struct Place {
    /// All of it.
    pub machine: Machine,
    /// CPUs that this process may use, in the order in which workers are placed.
    pub cpus: Vec<usize>,
}

impl Place {
    /// Reads the machine's properties.
    ///
    /// # Errors
    /// When the kernel does not provide them.
    pub fn find() -> Result<Place, Failure> {
        let machine = Machine::read().map_err(Failure::Input)?;
        let allowed = cpus::allowed().map_err(Failure::Input)?;
        let cpus = machine.placement(&allowed);
        if cpus.is_empty() {
            return Err(Failure::Input(
                "none of the CPUs that this process may use is online".into(),
            ));
        }
        Ok(Place { machine, cpus })
    }

    /// Reports on stderr why the figures are not those of the whole machine, quiet.
    pub fn note(&self) {
        let (ours, all) = (self.cpus.len(), self.machine.cpus.len());
        if ours < all {
            output::note(&format!(
                "this process may use {ours} of {all} CPUs (affinity, cpuset): more threads are not measured"
            ));
        }
        if ours == 1 {
            output::note("one CPU: nothing can be shot down on another; only rows with one thread are measured");
        }
        if let Some(quota) = cpus::quota().filter(|&quota| quota < ours as f64) {
            output::note(&format!(
                "the control group allows {quota:.1} CPUs' time: \
                 rows with more threads than that are throttled, and too low"
            ));
        }
    }

    /// Reports on stderr that other programs run meanwhile.
    fn note_load() {
        if let Some(why) = Load::read(Path::new("/proc")).ok().and_then(|load| load.caveat()) {
            output::note(&format!(
                "this machine is busy: {why}: figures are too low, and interrupts per operation wrong; \
                 `sudo chrt -r 1 shootdown ...` keeps others off meanwhile"
            ));
        }
    }
}

/// Duration and number of runs.
pub struct Settings {
    window: Duration,
    runs: usize,
}

impl Settings {
    /// Checks the arguments.
    ///
    /// # Errors
    /// One line naming the option and its range.
    pub fn new(args: &MeasureArgs) -> Result<Settings, Failure> {
        if !(0.05..=3600.0).contains(&args.seconds) {
            return Err(Failure::Input(format!(
                "--seconds {}: expected 0.05 to 3600 seconds for each run",
                number::written(args.seconds)
            )));
        }
        if !(1..=plan::MOST_RUNS).contains(&args.runs) {
            return Err(Failure::Input(format!(
                "--runs {}: expected 1 to {} runs",
                args.runs,
                plan::MOST_RUNS
            )));
        }
        Ok(Settings {
            window: Duration::from_secs_f64(args.seconds),
            runs: args.runs as usize,
        })
    }
}

/// A workload with a number of threads, measured several times.
#[derive(Debug, Clone)]
pub struct Row {
    /// Workload.
    pub workload: Workload,
    /// Workers, each on a CPU of its own.
    pub threads: usize,
    /// The runs.
    pub runs: Vec<Measured>,
}

impl Row {
    /// Median of the rates.
    pub fn ops_per_s(&self) -> f64 {
        self.median(Measured::ops_per_s)
    }

    /// Median of interrupts per operation, where the kernel counts them.
    pub fn interrupts_per_op(&self) -> Option<f64> {
        let known = self.runs.iter().all(|run| run.interrupts.shootdowns.is_some());
        known.then(|| self.median(|run| per_op(run).unwrap_or(0.0)))
    }

    /// Median of the idle time of a CPU per sleep, ns.
    pub fn idle_ns(&self) -> Option<f64> {
        let idle: Vec<_> = self.runs.iter().filter_map(|run| run.idle_ns).collect();
        (!idle.is_empty()).then(|| number::median(idle))
    }

    fn median(&self, of: impl Fn(&Measured) -> f64) -> f64 {
        number::median(self.runs.iter().map(of))
    }
}

fn per_op(run: &Measured) -> Option<f64> {
    Some(run.interrupts.shootdowns? as f64 / run.ops.max(1) as f64)
}

fn plan_rows(args: &HostArgs, place: &Place) -> Result<Vec<(Workload, usize)>, Failure> {
    let most = place.cpus.len();
    let threads = match &args.threads {
        None => plan::default_threads(1, most),
        Some(counts) => {
            let wrong = counts.iter().find(|&&count| count == 0 || count > most as u64);
            if let Some(count) = wrong {
                return Err(Failure::Input(format!(
                    "--threads {count}: this process may use {most} CPUs; give 1 to {most}, one thread a CPU"
                )));
            }
            let counts: BTreeSet<_> = counts.iter().map(|&count| count as usize).collect();
            counts.into_iter().collect()
        }
    };
    let workloads = match args.workloads.is_empty() {
        true => Workload::ALL.to_vec(),
        false => args
            .workloads
            .iter()
            .map(|name| named(name))
            .collect::<Result<_, _>>()?,
    };
    let rows = workloads
        .iter()
        .flat_map(|&workload| threads.iter().map(move |&threads| (workload, threads)));
    Ok(rows.collect())
}

fn named(name: &str) -> Result<Workload, Failure> {
    let found = Workload::ALL
        .into_iter()
        .find(|workload| workload.name() == name.trim());
    found.ok_or_else(|| {
        let known = Workload::ALL.map(Workload::name).join(", ");
        Failure::Input(format!(
            "workload `{}` cannot be measured; use {known}",
            name.escape_debug()
        ))
    })
}

/// Measures each row as often as `settings` says. After Ctrl-C, returns the rows that are complete.
///
/// # Errors
/// One line when a workload cannot run; Ctrl-C before a row is complete.
pub fn measure(
    place: &Place,
    rows: &[(Workload, usize)],
    settings: &Settings,
    stop: &AtomicBool,
) -> Result<Vec<Row>, Failure> {
    let progress = Progress::new("runs", vec![1.0; rows.len() * settings.runs]);
    let (mut measured, mut done) = (Vec::new(), 0);
    'rows: for &(workload, threads) in rows {
        let mut row = Row {
            workload,
            threads,
            runs: Vec::new(),
        };
        for _ in 0..settings.runs {
            let run = work::measure(workload, &place.cpus[..threads], settings.window, stop);
            let run = run.map_err(|error| {
                Failure::Input(format!(
                    "{} with {} cannot run here: {error}",
                    workload.name(),
                    number::threads(threads)
                ))
            })?;
            match run {
                Some(run) => row.runs.push(run),
                None if measured.is_empty() => return Err(Failure::Interrupted),
                None => break 'rows,
            }
            progress.finish(done);
            done += 1;
        }
        measured.push(row);
    }
    Ok(measured)
}

fn words(place: &Place, rows: &[Row]) -> String {
    let columns = vec![
        Column::words("workload", "the workload; `shootdown list` describes each"),
        Column::number("threads", "threads of the workload, each on a CPU of its own"),
        Column::number(
            "ops/s",
            "operations per second, all threads together; the median of the runs",
        ),
        Column::number("time per op", "time that one operation takes its thread"),
        Column::number(
            "interrupts per op",
            "TLB interrupts that this machine counted, per operation",
        ),
        Column::number("spread", "how far the run farthest from the median is from it"),
    ];
    let mut groups: Vec<Vec<Vec<String>>> = Vec::new();
    let mut last = None;
    for row in rows {
        let rate = row.ops_per_s();
        let rates: Vec<_> = row.runs.iter().map(Measured::ops_per_s).collect();
        let spread = rates
            .iter()
            .fold(0.0_f64, |worst, one| worst.max((one / rate - 1.0).abs()));
        let first = last.replace(row.workload) != Some(row.workload);
        if first {
            groups.push(Vec::new());
        }
        let cells = vec![
            if first {
                row.workload.name().to_owned()
            } else {
                String::new()
            },
            row.threads.to_string(),
            number::rate(rate),
            // Of one worker; `madvise_spin` has only one active worker.
            number::time(workers(row) as f64 * 1e9 / rate),
            row.interrupts_per_op().map_or(UNKNOWN.into(), number::per_operation),
            match rates.len() {
                0 | 1 => UNKNOWN.to_string(),
                _ => format!("±{}", number::percent(spread)),
            },
        ];
        groups.last_mut().expect("begun above").push(cells);
    }
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut text = format!(
        "Linux {} on {}, measured\n",
        release.trim(),
        number::counted(place.machine.cpus.len(), "CPU")
    );
    text.push_str(&Tables::new().draw(&Grid::new(columns, groups)));
    if rows.iter().all(|row| row.interrupts_per_op().is_none()) {
        text.push_str("this kernel counts no TLB interrupts: its processor broadcasts invalidations (as Arm does)\n");
    } else {
        text.push_str("interrupts: the TLB line of /proc/interrupts, which counts those of other programs too\n");
    }
    let sum = |of: fn(&Measured) -> u64| rows.iter().flat_map(|row| &row.runs).map(of).sum::<u64>();
    text.push_str(&format!(
        "old contents read from dropped pages: {} in {} checked reads\n",
        number::count(sum(|run| run.stale)),
        number::count(sum(|run| run.checked))
    ));
    text
}

/// Workers whose operations are counted.
fn workers(row: &Row) -> usize {
    match row.workload {
        Workload::MadviseSpin => 1,
        _ => row.threads,
    }
}

/// One element per run, `seed` being the number of the run from 1.
fn document(rows: &[Row]) -> String {
    let run = |row: &Row, index: usize, run: &Measured| json::Run {
        workload: row.workload.name(),
        target: LINUX.into(),
        design: LINUX,
        threads: row.threads,
        seed: index as u64 + 1,
        ops_per_s: Some(run.ops_per_s()),
        interrupts_per_op: per_op(run),
        stale: (run.checked > 0).then_some(run.stale),
        accesses_checked: (run.checked > 0).then_some(run.checked),
        host_time_ns: Some(run.seconds * 1e9),
        ..json::Run::default()
    };
    let runs = rows.iter().flat_map(|row| {
        row.runs
            .iter()
            .enumerate()
            .map(move |(index, one)| run(row, index, one))
    });
    json::document(runs.collect())
}

/// What `host --json` prints.
pub fn schema() -> Schema {
    schema::of::<json::Document>("host")
}
