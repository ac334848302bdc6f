//! `cargo xtask linux-baseline`: the programs of `workloads/` on Debian's own kernel, in QEMU.
//!
//! Two boots. In the first the virtual CPUs run in parallel, and rates and interrupts are measured. In the second they
//! take turns by a count of instructions (`-icount`), which makes runs reproducible to the last instruction; several
//! CPUs of RISC-V run in parallel here too. A plugin counts the instructions of a shootdown.
//! docs/src/evidence/linux-baseline.md says what is counted and why.

mod beside;
pub mod boot;
pub mod guest;
pub mod initramfs;
pub mod kernel_package;
mod machine;
pub mod rate;
pub mod report;
pub mod spans;
pub mod table;

use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use shootdown_qemu::{Arch, Emulator, Plugin};

use super::needs::Need;
use super::{child, workloads, workspace};
use boot::{Boot, Counter, Mode};
use guest::Guest;
use initramfs::Planned;
use rate::{Host, Rate};
use report::Report;

/// Time limit of everything; each boot has its own limit.
const BUDGET: Duration = Duration::from_secs(45 * 60);

/// Run the programs of workloads/ on Debian's own kernel in QEMU: rates, interrupts, instructions of a shootdown
#[derive(Debug, Parser)]
#[command(
    name = "cargo xtask linux-baseline",
    after_help = "Examples:\n  \
        cargo xtask linux-baseline                                      everything, a few minutes\n  \
        cargo xtask linux-baseline --only counts                        \
        what does not depend on this machine's speed\n  \
        cargo xtask linux-baseline --workloads madvise_spin --runs 5 --json\n  \
        cargo xtask linux-baseline --arch aarch64 --only counts         on AArch64; riscv64 likewise\n  \
        cargo xtask linux-baseline --arch x86_64,aarch64,riscv64 --only counts --workloads madvise_spin \
        --designs ipi\n  \
        \x20                                                               flushes of all three side by side\n  \
        cargo xtask linux-baseline --kernel linux-image-6.1.0-56-amd64  another kernel than the newest\n\n\
        The kernel package is downloaded and unpacked below target/, not installed. \
        QEMU and the compiler are installed where this is run as root; elsewhere the command that does it is named.\n\
        Exit status: 0; 1 when something failed or a read was stale; 2 on bad usage."
)]
struct Args {
    /// Instruction sets; beside several the flushes of the first are the reference
    #[arg(long, value_name = "x86_64|aarch64|riscv64", value_delimiter = ',', default_value = "x86_64",
        value_parser = Arch::named)]
    arch: Vec<Arch>,
    /// Programs to run [default: all]
    #[arg(long, value_delimiter = ',', value_parser = clap::builder::PossibleValuesParser::new(workloads::ALL))]
    workloads: Vec<String>,
    /// Numbers of threads
    #[arg(long, value_delimiter = ',', default_value = "1,2", value_parser = clap::value_parser!(u32).range(1..=64))]
    threads: Vec<u32>,
    /// Virtual CPUs
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=64))]
    cpus: u32,
    /// Length of each measurement of a rate, seconds
    #[arg(long, default_value_t = 0.5)]
    seconds: f64,
    /// Measurements of each rate; the median is shown
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=99))]
    runs: u32,
    /// Operations of the first thread while instructions are counted
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u64).range(100..=1_000_000))]
    ops: u64,
    /// Kernel package to boot [default: the newest that Debian's lists name]
    #[arg(long)]
    kernel: Option<String>,
    /// Designs of our kernel to put beside it; `ipi-only`, `adaptive-only`, `arm-broadcast-only` and
    /// `arm-local-first-only` are compiled for that design alone; `none` for Linux alone [default:
    /// ipi,ipi-only,broadcast,adaptive,adaptive-only; aarch64:
    /// arm-ipi,arm-broadcast,arm-local-first,adaptive; riscv64: ipi,ipi-only,adaptive]
    #[arg(long, value_delimiter = ',')]
    designs: Option<Vec<String>>,
    /// Only one of the two boots
    #[arg(long)]
    only: Option<Part>,
    /// Time limit of each boot, seconds
    #[arg(long, default_value_t = 600)]
    time_limit: u64,
    /// Print one JSON document instead of tables
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Rates and interrupts, CPUs in parallel
    Rates,
    /// Instructions and interrupts, CPUs in turns, reproducible; several CPUs of RISC-V in parallel
    Counts,
}

/// All results.
#[derive(Debug, Serialize)]
struct Findings {
    qemu: String,
    arch: &'static str,
    kernels: Vec<String>,
    cpus: u32,
    #[serde(flatten)]
    host: Host,
    rates: Vec<Rate>,
    counts: Vec<spans::Count>,
    /// Whether the CPUs ran in parallel while instructions were counted.
    counted_in_parallel: bool,
}

/// Runs the command with the words after its name.
pub fn main(words: &[&str]) -> ExitCode {
    let named = std::iter::once("cargo xtask linux-baseline").chain(words.iter().copied());
    let args = match Args::try_parse_from(named) {
        Ok(args) => args,
        Err(message) => {
            // Help is not an error.
            let _ = message.print();
            return ExitCode::from(message.exit_code() as u8);
        }
    };
    if !(args.seconds >= 0.05 && args.seconds <= 3600.0) {
        eprintln!("xtask: --seconds {}: expected 0.05 to 3600", args.seconds);
        return ExitCode::from(2);
    }
    if args.kernel.is_some() && args.arch.len() > 1 {
        eprintln!("xtask: --kernel names a package of one instruction set: give one --arch");
        return ExitCode::from(2);
    }
    let all: Result<Vec<Findings>, String> = args.arch.iter().map(|&arch| run(&args, arch)).collect();
    let text = all.and_then(|all| match (args.json, all.as_slice()) {
        (true, [one]) => serde_json::to_string_pretty(one).map_err(|error| error.to_string()),
        (true, all) => serde_json::to_string_pretty(all).map_err(|error| error.to_string()),
        (false, all) => {
            let each: Vec<String> = all.iter().map(table::text).collect();
            Ok(each.join("\n") + &beside::text(all))
        }
    });
    match text {
        Ok(text) => {
            println!("{}", text.trim_end());
            ExitCode::SUCCESS
        }
        Err(why) => failed(&why),
    }
}

fn failed(why: &str) -> ExitCode {
    eprintln!("xtask: {why}");
    ExitCode::FAILURE
}

fn run(args: &Args, arch: Arch) -> Result<Findings, String> {
    let end = Instant::now() + BUDGET;
    Need::Programs(arch).meet(end)?;
    let programs = workloads::build(arch, end)?;
    let qemu = Emulator::of(arch)?.version;
    let ours = designs(args, arch).into_iter().filter(|design| *design != "none");
    let mut guests = vec![Guest::linux(arch, args.kernel.as_deref(), end)?];
    guests.extend(Guest::ours(arch, &ours.collect::<Vec<_>>(), end)?);
    let host = Host::now();

    let names: Vec<&str> = match args.workloads.as_slice() {
        // This kernel pins pages only where flushes interrupt, which broadcasts of the processor do not.
        [] if arch != Arch::X86_64 => workloads::ALL.into_iter().filter(|name| *name != "gup").collect(),
        [] => workloads::ALL.to_vec(),
        some => some.iter().map(String::as_str).collect(),
    };
    let once = |amount: &str| -> Vec<Planned> {
        let each = names
            .iter()
            .flat_map(|name| args.threads.iter().map(move |threads| (name, threads)));
        each.map(|(name, &threads)| Planned {
            workload: name.to_string(),
            threads,
            arguments: format!("{threads} {amount}"),
        })
        .collect()
    };
    let boot = |label: &str, guest: &Guest, plan: &[Planned], mode: Mode| {
        let label = format!("{label}, {}", guest.name);
        let end = end.min(Instant::now() + Duration::from_secs(args.time_limit));
        let bar = progress(&label, plan.len());
        let boot = Boot {
            guest,
            programs: &programs,
            plan,
            cpus: args.cpus,
            mode,
            may_fail: false,
            words: "",
            files: &[],
            machine: &[],
        };
        let report = boot.run(end, |done, next| {
            bar.set_position(done as u64);
            bar.set_message(next.to_string());
        });
        bar.finish_and_clear();
        report.map_err(|why| format!("{label}: {why}"))
    };

    let mut reports: Vec<Vec<Report>> = guests.iter().map(|_| Vec::new()).collect();
    if args.only != Some(Part::Counts) {
        let plan = once(&format!("--seconds {}", args.seconds));
        // One kernel after the other in each round, so that changes of the host's load affect all of them.
        for round in 1..=args.runs {
            for (guest, reports) in guests.iter().zip(&mut reports) {
                let label = format!("rates, round {round} of {}", args.runs);
                reports.push(boot(&label, guest, &plan, Mode::Parallel)?);
            }
        }
    }
    let rates = rate::of(&guests, &reports, &once(""));
    // Linux, and some designs, call OpenSBI, which waits for the other hart without ending QEMU's turn of a tenth of a
    // second.
    let counted_in_parallel = arch == Arch::Riscv64 && args.cpus > 1;
    let mut counts = Vec::new();
    if args.only != Some(Part::Rates) {
        let plan = once(&format!("--ops {}", args.ops));
        let folder = workspace::built().join("linux-baseline");
        let plugin = Plugin::build(&workspace::root(), qemu, &folder, &AtomicBool::new(false))?;
        for (guest, reports) in guests.iter().zip(&mut reports) {
            if reports.is_empty() && guest.reports_symbols() {
                reports.push(boot("symbols", guest, &[], Mode::Parallel)?);
            }
            let symbols = reports.first().map(|report| report.symbols.clone()).unwrap_or_default();
            let spans = guest.spans(&symbols, end)?;
            let counting = Counter {
                plugin: &plugin,
                spans: &spans,
            };
            let mode = match counted_in_parallel {
                true => Mode::ParallelCounted(counting),
                false => Mode::Turns(Some(counting)),
            };
            let report = boot("instructions", guest, &plan, mode)?;
            counts.extend(spans::counts(&guest.name, &report, &plugin)?);
            reports.push(report);
        }
    }
    // The kernels side by side.
    let row = |count: &spans::Count| {
        let is = |planned: &Planned| planned.workload == count.workload && planned.threads == count.threads;
        once("").iter().position(is)
    };
    counts.sort_by_key(row);
    let kernel = |(guest, reports): (&Guest, &Vec<Report>)| {
        let name = reports.first().map_or("", |report| &report.kernel);
        format!("{name} ({})", guest.origin)
    };
    Ok(Findings {
        qemu: qemu.to_string(),
        arch: arch.name(),
        kernels: guests.iter().zip(&reports).map(kernel).collect(),
        cpus: args.cpus,
        host,
        rates,
        counts,
        counted_in_parallel,
    })
}

/// The designs: those given, or the default ones.
fn designs(args: &Args, arch: Arch) -> Vec<String> {
    let default: &[&str] = match arch {
        Arch::X86_64 => &["ipi", "ipi-only", "broadcast", "adaptive", "adaptive-only"],
        Arch::Aarch64 => &["arm-ipi", "arm-broadcast", "arm-local-first", "adaptive"],
        Arch::Riscv64 => &["ipi", "ipi-only", "adaptive"],
    };
    let default = || default.iter().map(ToString::to_string).collect();
    args.designs.clone().unwrap_or_else(default)
}

/// A bar on a terminal, a line elsewhere.
fn progress(label: &str, runs: usize) -> ProgressBar {
    let bar = ProgressBar::new(runs.max(1) as u64);
    if let Ok(style) = ProgressStyle::with_template("{prefix} {bar:30.cyan/dim} {pos}/{len} {msg}  {elapsed} elapsed") {
        bar.set_style(style);
    }
    bar.set_prefix(label.to_string());
    bar.set_message("booting");
    bar.enable_steady_tick(Duration::from_millis(200));
    if bar.is_hidden() {
        eprintln!("== {label}: QEMU, {runs} runs");
    }
    bar
}
