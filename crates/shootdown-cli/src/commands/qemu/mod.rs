//! `shootdown qemu`: the bare-metal kernel, built and run in QEMU under several designs.
//!
//! Owns the list of runs and their order. `reading` parses a run's output, `tables` and `page` show it; QEMU itself is
//! in `shootdown-qemu`.

mod grid;
mod instruction_set;
mod operations;
mod page;
mod reading;
mod tables;

use std::env;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use schemars::Schema;
use shootdown::Design;
use shootdown_qemu::{Arch, Clock, Emulator, Ended, Image, Machine, NotDone, Run};

use crate::args::{Accel, CompareArgs, QemuArgs};
use crate::comparison::json;
use crate::failure::{BAD_RUN, Failure, SUCCESS};
use crate::print::output;
use crate::print::output::{Destination, Kind};
use crate::print::progress::Progress;
use crate::print::schema;
use operations::Counting;
use reading::Row;

pub use instruction_set::{arch_of, target_of};

/// The workloads that the kernel can run.
const WORKLOADS: [&str; 5] = ["tlb_flush2", "madvise_spin", "mprotect_all", "process_churn", TORTURE];
/// The workload that checks every access.
const TORTURE: &str = "torture";
/// The workload of the control: every operation is checked.
const CONTROL_WORKLOAD: &str = "tlb_flush2";
const CONTROL_DESIGN: &str = "none";
const MOST_CPUS: u64 = 64;
const MEMORY_MIB: u32 = 256;

/// The checked options.
struct Plan {
    arch: Arch,
    workload: String,
    designs: Vec<String>,
    threads: Vec<u64>,
    seed: u64,
    steps: u64,
    jitter: u64,
    machine: Machine,
    most: Duration,
    shown: Shown,
    report: Option<Destination>,
    iso: Option<Destination>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Shown {
    Table,
    Json,
}

/// Runs the kernel with these options and prints the results.
///
/// # Errors
/// One line on bad usage, when QEMU or the kernel's target is missing, when the kernel cannot be built; Ctrl-C.
pub fn command(args: &QemuArgs, stop: &AtomicBool) -> Result<u8, Failure> {
    let plan = Plan::new(args)?;
    match &plan.iso {
        Some(destination) => write_image(&plan, args.threads.as_deref(), destination, stop),
        None => run(&plan, stop),
    }
}

/// `--iso`: the kernel as an image for a real machine.
fn write_image(plan: &Plan, threads: Option<&[u64]>, to: &Destination, stop: &AtomicBool) -> Result<u8, Failure> {
    // Checked before the kernel is built, which takes a minute.
    shootdown_qemu::can_write_iso().map_err(Failure::Input)?;
    let image = Image::around(&here()?).map_err(Failure::Input)?;
    let kernel = image.build(stop)?;
    let words = plan.words_on_image(threads);
    shootdown_qemu::write_iso(&kernel, &words, to.path(), stop)?;
    output::show(&format!(
        "{}: an image that boots by BIOS and by UEFI, from a disc or written to a stick (it overwrites the stick).\n\
         It runs `{words}` and prints the table on the screen and on the first serial port (115200 baud).\n",
        to.shown()
    ))?;
    Ok(SUCCESS)
}

impl From<NotDone> for Failure {
    fn from(what: NotDone) -> Failure {
        match what {
            NotDone::Stopped => Failure::Interrupted,
            NotDone::Failed(why) => Failure::Input(why),
        }
    }
}

fn here() -> Result<PathBuf, Failure> {
    env::current_dir().map_err(|error| Failure::Input(format!("the current folder: {error}")))
}

/// `compare ... --on qemu-x86_64`, or on another instruction set.
///
/// # Errors
/// As [`command`]; one line when an option applies to simulated machines only.
pub fn compare(args: &CompareArgs, arch: Arch, stop: &AtomicBool) -> Result<u8, Failure> {
    let simulated_only = [
        ("--set", !args.set.is_empty()),
        ("--cpus-follow-threads", args.cpus_follow_threads),
        ("--lru-drain", args.lru_drain),
        ("--latencies", args.latencies),
        ("--runs", args.runs != 1),
        ("--virtual-ms", args.run.virtual_ms.is_some()),
        ("--svg", args.svg.is_some()),
    ];
    if let Some((option, _)) = simulated_only.into_iter().find(|&(_, given)| given) {
        return Err(Failure::Input(format!(
            "{option} is for simulated machines, not for --on {}; leave it out",
            args.on
        )));
    }
    let most = args.threads.iter().flatten().copied().max();
    // `ideal` is not a design that a machine can have.
    let designs = args.designs.iter().filter(|name| *name != crate::catalog::IDEAL_DESIGN);
    command(
        &QemuArgs {
            arch,
            workload: args.workload.clone(),
            designs: Some(designs.cloned().collect()),
            cpus: args.cpus.or(most).unwrap_or(4),
            threads: args.threads.clone(),
            accel: Accel::Tcg,
            icount: "0".into(),
            seed: args.run.seed,
            steps: 2000,
            jitter: 3000,
            seconds: 120,
            json: args.json,
            html: args.html.clone(),
            iso: None,
        },
        stop,
    )
}

impl Plan {
    fn new(args: &QemuArgs) -> Result<Plan, Failure> {
        let refuse = |line: String| Err(Failure::Input(line));
        if !WORKLOADS.contains(&args.workload.as_str()) {
            let known = WORKLOADS.join(", ");
            let name = args.workload.escape_debug();
            return refuse(format!("workload `{name}` is not one of the kernel's; use {known}"));
        }
        let designs = instruction_set::designs(args);
        if let Some(unknown) = designs.iter().find(|name| Design::preset(name.trim()).is_none()) {
            let name = unknown.escape_debug();
            return refuse(format!(
                "no design `{name}`; see `shootdown list` (`ideal` is simulated only)"
            ));
        }
        if !(1..=MOST_CPUS).contains(&args.cpus) {
            return refuse(format!("--cpus {}: expected 1 to {MOST_CPUS} CPUs", args.cpus));
        }
        let threads = args.threads.clone().unwrap_or(vec![args.cpus]);
        // The number of CPUs of a real machine is read there.
        let most = if args.iso.is_some() { MOST_CPUS } else { args.cpus };
        if let Some(count) = threads.iter().find(|&&count| count == 0 || count > most) {
            return refuse(format!("--threads {count}: expected 1 to {most}, one thread a CPU"));
        }
        let clock = match (args.accel, args.icount.as_str()) {
            (Accel::Kvm, _) => Clock::Hardware,
            (Accel::Tcg, "off") => Clock::Translated,
            (Accel::Tcg, text) => match text.parse() {
                Ok(shift @ 0..=10) => Clock::Counted { shift },
                _ => return refuse(format!("--icount {}: expected 0 to 10, or off", text.escape_debug())),
            },
        };
        instruction_set::check(args, clock, &designs)?;
        if args.iso.is_some() && args.workload == TORTURE {
            return refuse(format!("--iso prints a table of rates: {TORTURE} has none"));
        }
        let destination = |option, path: &Option<PathBuf>, kind| {
            let path = path.as_deref();
            path.map(|path| Destination::new(option, path, kind)).transpose()
        };
        Ok(Plan {
            arch: args.arch,
            report: destination("--html", &args.html, Kind::Page)?,
            iso: destination("--iso", &args.iso, Kind::Image)?,
            workload: args.workload.clone(),
            designs,
            threads,
            seed: args.seed,
            steps: args.steps,
            jitter: args.jitter,
            machine: Machine {
                cpus: args.cpus as usize,
                clock,
                memory_mib: MEMORY_MIB,
            },
            most: Duration::from_secs(args.seconds.max(1)),
            shown: if args.json { Shown::Json } else { Shown::Table },
        })
    }

    /// The command that repeats this.
    fn command(&self) -> String {
        let list = |counts: &[u64]| counts.iter().map(u64::to_string).collect::<Vec<_>>().join(",");
        let mut command = format!(
            "shootdown qemu{} --workload {} --designs {} --cpus {} --threads {} --seed {}",
            instruction_set::option(self.arch),
            self.workload,
            self.designs.join(","),
            self.machine.cpus,
            list(&self.threads),
            self.seed
        );
        match self.machine.clock {
            Clock::Counted { shift: 0 } => {}
            Clock::Counted { shift } => command.push_str(&format!(" --icount {shift}")),
            Clock::Translated => command.push_str(" --icount off"),
            Clock::Hardware => command.push_str(" --accel kvm"),
        }
        if self.workload == TORTURE {
            command.push_str(&format!(" --steps {} --jitter {}", self.steps, self.jitter));
        }
        command
    }

    /// The kernel's command line on an image: every design, on all CPUs of the machine unless numbers were given.
    fn words_on_image(&self, threads: Option<&[u64]>) -> String {
        let threads = threads.unwrap_or(&[0]).iter().map(u64::to_string).collect::<Vec<_>>();
        format!(
            "workload={} table=1 design={} threads={} seed={}",
            self.workload,
            self.designs.join(","),
            threads.join(","),
            self.seed
        )
    }

    /// The kernel's command line.
    fn words(&self, workload: &str, design: &str, threads: u64) -> String {
        let mut words = format!(
            "workload={workload} design={design} threads={threads} seed={}",
            self.seed
        );
        if workload == TORTURE {
            words.push_str(&format!(" steps={} jitter={}", self.steps, self.jitter));
        }
        if self.machine.clock == Clock::Hardware {
            // The processor's own features, without substitutes.
            words.push_str(" emulate=0");
        }
        words
    }
}

/// Builds the kernel, with a message meanwhile.
fn built(image: &Image, stop: &AtomicBool) -> Result<PathBuf, Failure> {
    let spinner = ProgressBar::new_spinner();
    if let Ok(style) = ProgressStyle::with_template("{spinner} building the kernel {elapsed_precise}") {
        spinner.set_style(style);
    }
    spinner.enable_steady_tick(Duration::from_millis(250));
    let path = image.build(stop);
    spinner.finish_and_clear();
    Ok(path?)
}

/// Every run that ended before Ctrl-C, and the control if it is needed and ended.
fn all_runs(
    plan: &Plan,
    emulator: &Emulator,
    path: &Path,
    counting: &Counting,
    count: usize,
    with_control: bool,
    stop: &AtomicBool,
) -> Result<(Vec<Row>, Option<Row>), Failure> {
    let progress = Progress::new("runs", vec![1.0; count]);
    let one = |index: usize, workload: &str, design: &str, threads: u64| -> Result<Option<Row>, Failure> {
        let words = plan.words(workload, design, threads);
        let run = plan.machine.run(emulator, path, &words, plan.most, stop);
        let run = run.map_err(Failure::Input)?;
        progress.finish(index);
        if let Some(failure) = aborted(&plan.machine, &run) {
            return Err(failure);
        }
        Ok(match run.ended {
            Ended::Stopped => None,
            _ => {
                let row = Row::new(plan.arch, workload, design, threads, plan.seed, run);
                Some(row.with_operations(counting.take()))
            }
        })
    };
    let (mut rows, mut control) = (Vec::new(), None);
    let planned = plan
        .threads
        .iter()
        .flat_map(|&threads| plan.designs.iter().map(move |design| (threads, design)));
    for (index, (threads, design)) in planned.enumerate() {
        match one(index, &plan.workload, design, threads)? {
            Some(row) => rows.push(row),
            None if rows.is_empty() => return Err(Failure::Interrupted),
            None => break,
        }
    }
    if with_control && rows.len() + 1 == count {
        // A stale translation needs another CPU, or the same one: this workload reads the pages that it has dropped
        // itself.
        control = one(rows.len(), CONTROL_WORKLOAD, CONTROL_DESIGN, 1)?;
    }
    Ok((rows, control))
}

fn run(plan: &Plan, stop: &AtomicBool) -> Result<u8, Failure> {
    let emulator = Emulator::of(plan.arch).map_err(Failure::Input)?;
    if plan.machine.clock == Clock::Hardware {
        let open = std::fs::File::options().read(true).write(true).open("/dev/kvm");
        open.map_err(|error| Failure::Input(format!("/dev/kvm cannot be used ({error}): leave out --accel kvm")))?;
    }
    let image = Image::around(&here()?).map_err(Failure::Input)?.of(plan.arch);
    let with_control = plan.shown == Shown::Table || plan.report.is_some();
    let count = plan.designs.len() * plan.threads.len() + usize::from(with_control);
    let path: PathBuf = built(&image, stop)?;
    let counting = Counting::set_up(plan, &image, &emulator, stop)?;
    let emulator = counting.emulator(emulator);
    let (rows, control) = all_runs(plan, &emulator, &path, &counting, count, with_control, stop)?;
    let missing = count - rows.len() - usize::from(control.is_some());
    let bad = rows.iter().any(Row::is_bad) || control.as_ref().is_some_and(|control| !control.is_caught());
    let report = tables::report(plan, emulator.version, &rows, control.as_ref(), counting.note());
    let text = match plan.shown {
        Shown::Json => json::document(rows.iter().map(Row::json).collect()),
        Shown::Table => report.text(),
    };
    if missing > 0 {
        return Err(output::partial(
            plan.shown == Shown::Json,
            &text,
            missing,
            count,
            "runs",
        ));
    }
    let label = (plan.shown == Shown::Table).then_some("report");
    let page = || page::render(plan, &report, &rows);
    output::results(&text, plan.report.as_ref(), label, page, stop)?;
    Ok(if bad { BAD_RUN } else { SUCCESS })
}

/// Why QEMU itself failed with hardware virtualization, and the remedy.
fn aborted(machine: &Machine, run: &Run) -> Option<Failure> {
    let Ended::Otherwise(status) = run.ended else {
        return None;
    };
    // A guest that resets itself ends with status 0.
    if machine.clock != Clock::Hardware || status == Some(0) {
        return None;
    }
    let report = run.errors.trim().lines().next_back().unwrap_or("it does not say why");
    Some(Failure::Unusable(format!(
        "--accel kvm: QEMU gave up: {report}; the KVM of this host cannot run the kernel \
         (as inside some virtual machines): leave out --accel kvm, which emulates the processor and counts instructions"
    )))
}

/// What `qemu --json` prints.
pub fn schema() -> Schema {
    schema::of::<json::Document>("qemu")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn qemu_abort_under_kvm_names_the_remedy() {
        let run = |ended| Run {
            ended,
            lines: Vec::new(),
            errors: "warning: x\nqemu-system-x86_64: kvm_buf_set_msrs: Assertion failed.\n".into(),
            seconds: 0.1,
        };
        let machine = |clock| Machine {
            cpus: 2,
            clock,
            memory_mib: 256,
        };
        // Aborted by a signal, and ended with an error.
        for status in [None, Some(1)] {
            let failure = aborted(&machine(Clock::Hardware), &run(Ended::Otherwise(status))).unwrap();
            let report = failure.to_string();
            assert!(
                report.contains("Assertion failed") && report.contains("leave out --accel kvm"),
                "{report}"
            );
            assert_eq!((failure.status(), report.lines().count()), (1, 1));
        }
        assert_eq!(
            aborted(&machine(Clock::Hardware), &run(Ended::Otherwise(Some(0)))),
            None
        );
        assert_eq!(aborted(&machine(Clock::Hardware), &run(Ended::Violation)), None);
        assert_eq!(aborted(&machine(Clock::Translated), &run(Ended::Otherwise(None))), None);
    }

    use crate::args::{Cli, Command};
    use clap::Parser;

    fn plan(words: &[&str]) -> Result<Plan, Failure> {
        let cli = Cli::try_parse_from(["shootdown", "qemu"].iter().chain(words)).expect("the grammar allows it");
        let Some(Command::Qemu(args)) = cli.command else {
            panic!("not qemu")
        };
        Plan::new(&args)
    }

    #[test]
    fn bad_arguments_are_refused_before_the_build() {
        for (words, expected) in [
            (
                ["--workload", "tlb_flush9"],
                "tlb_flush2, madvise_spin, mprotect_all, process_churn, torture",
            ),
            (["--designs", "ideal"], "see `shootdown list`"),
            (["--cpus", "65"], "expected 1 to 64"),
            (["--threads", "5"], "expected 1 to 4"),
            (["--icount", "11"], "expected 0 to 10, or off"),
        ] {
            let error = plan(&words).err().expect("a mistake").to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn image_has_every_design_and_detects_its_cpus() {
        let plan = plan(&["--iso", "shootdown.iso", "--designs", "ipi,adaptive"]).expect("right");
        assert_eq!(
            plan.words_on_image(None),
            "workload=tlb_flush2 table=1 design=ipi,adaptive threads=0 seed=1"
        );
        assert!(plan.words_on_image(Some(&[1, 64])).contains("threads=1,64 "));
    }

    #[test]
    fn kernel_gets_the_requested_arguments() {
        let plan = plan(&["--workload", "torture", "--seed", "9", "--steps", "50"]).expect("right");
        assert_eq!(
            plan.words("torture", "ipi", 4),
            "workload=torture design=ipi threads=4 seed=9 steps=50 jitter=3000"
        );
        assert_eq!(plan.threads, [4]);
    }
}
