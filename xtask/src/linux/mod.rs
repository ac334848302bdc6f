//! `cargo xtask linux`: Linux 6.12 with the engine in place of `arch/x86/mm/tlb.c`, beside the same Linux without.
//!
//! `linux/` holds what is put in place. docs/src/evidence/inside-linux.md says what was replaced and what was measured.

mod asleep;
mod bochs;
mod bugs;
mod build;
mod compare;
mod configs;
mod configured;
mod packages;
mod reports;
mod selftests;
mod sources;
mod stress;
mod test;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Parser, Subcommand};
use shootdown_qemu::Arch;

use configs::Config;

use super::linux_baseline::boot::{Boot, Mode};
use super::linux_baseline::guest::Guest;
use super::linux_baseline::initramfs::{GuestFile, Planned};
use super::linux_baseline::report::Report;
use super::{debian, workloads, workspace};

/// The name of the kernel without the engine.
const STOCK: &str = "Linux";

/// The name of the kernel whose engine holds every known bug.
const BUGS: &str = "bugs";

/// Time limit of everything.
const BUDGET: Duration = Duration::from_secs(90 * 60);

/// Time limit of a boot.
const LIMIT: Duration = Duration::from_secs(30 * 60);

/// Commands for guests that run programs that are not ours, and the script that prepares them.
const BUSYBOX: &str = "bin/busybox";
const SETUP: &str = "setup.sh";

/// Their machine: four CPUs in two sockets, each with 1 GiB.
const LARGE: [&str; 12] = [
    "-smp",
    "4,sockets=2",
    "-m",
    "2048",
    "-object",
    "memory-backend-ram,id=near,size=1G",
    "-object",
    "memory-backend-ram,id=far,size=1G",
    "-numa",
    "node,memdev=near,cpus=0-1",
    "-numa",
    "node,memdev=far,cpus=2-3",
];
const LARGE_CPUS: u32 = 4;

/// Programs of `linux/`.
const PROGRAMS: [&str; 8] = [
    "remap", "poke", "compact", "collapse", "hotplug", "switch", "exec", "compile",
];

/// Linux 6.12 with the engine in place of its own TLB code (arch/x86/mm/tlb.c), built from Debian's sources
#[derive(Debug, Parser)]
#[command(
    name = "cargo xtask linux",
    after_help = "The sources are Debian's package linux-source-6.12, downloaded and unpacked below target/linux: \
        4 GB with the builds. A kernel is built anew when its sources, linux/, the library or linux/config change.\n\
        Exit status: 0; 1 when something failed or a read was stale; 2 on bad usage."
)]
struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Build the kernels: Linux as it is, and with the engine compiled for each design
    Build {
        #[command(flatten)]
        designs: Designs,
        /// In a configuration that checks more, or isolates page tables
        #[arg(long, value_parser = configs::NAMES)]
        config: Option<String>,
    },
    /// Boot them with 1, 2, 4 and 8 CPUs and run programs that check what they read; and with invalidation off,
    /// which the programs must notice
    Test {
        #[command(flatten)]
        designs: Designs,
        /// With 1, 2 and 4 CPUs in a configuration that checks more, or isolates page tables; the kernel must report
        /// nothing about itself that Linux does not
        #[arg(long, value_parser = configs::NAMES)]
        config: Option<String>,
        /// Instead: with known bugs of the engine, each of which a program must notice
        #[arg(long)]
        bugs: bool,
        /// Instead: in Bochs, whose processor has PCIDs, without page-table isolation; adaptive by default
        #[arg(long, conflicts_with = "bugs")]
        bochs: bool,
    },
    /// Run the kernel's own tests of mm and x86 (tools/testing/selftests), stock beside the engine
    Selftests(Selftests),
    /// Run Debian's stress-ng with verification, while CPUs go offline and come back
    Stress(Stress),
    /// Measure both: instructions, interrupts, operations per second, interrupts masked, preemption off
    Compare {
        #[command(flatten)]
        designs: Designs,
        /// Only one part
        #[arg(long)]
        only: Option<compare::Part>,
    },
}

/// Designs that can be compiled in.
const DESIGNS: [&str; 4] = ["ipi", "ipi-concurrent", "preemptible", "adaptive"];

/// The designs of the engine, each compiled in.
#[derive(Debug, clap::Args)]
struct Designs {
    /// Designs of the engine; by default ipi and adaptive, with --config adaptive, for compare all
    #[arg(long, value_delimiter = ',', value_parser = DESIGNS)]
    designs: Vec<String>,
}

impl Designs {
    /// Those that were named, or these.
    fn or(&self, default: &[&str]) -> Vec<String> {
        match self.designs.is_empty() {
            true => default.iter().map(ToString::to_string).collect(),
            false => self.designs.clone(),
        }
    }

    /// Those of a command in `config`.
    fn within(&self, config: Option<&str>) -> Vec<String> {
        self.or(if config.is_some() {
            &["adaptive"]
        } else {
            &["ipi", "adaptive"]
        })
    }
}

#[derive(Debug, clap::Args)]
struct Selftests {
    #[command(flatten)]
    designs: Designs,
    /// Only tests whose line contains this, such as "mm/ksm_tests -N"
    #[arg(long, default_value = "", hide_default_value = true)]
    only: String,
    /// So often each
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    times: u32,
}

#[derive(Debug, clap::Args)]
struct Stress {
    /// Designs of the engine
    #[arg(long, value_delimiter = ',', default_value = "adaptive", value_parser = DESIGNS)]
    designs: Vec<String>,
    /// Minutes of all stressors together, for each kernel
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=600))]
    minutes: u32,
    /// Run them on Linux as it is too
    #[arg(long)]
    stock: bool,
}

/// Runs the command with the words after its name.
pub fn main(words: &[&str]) -> ExitCode {
    let named = std::iter::once("cargo xtask linux").chain(words.iter().copied());
    let args = match Args::try_parse_from(named) {
        Ok(args) => args,
        Err(message) => {
            // Help is not an error.
            let _ = message.print();
            return ExitCode::from(message.exit_code() as u8);
        }
    };
    let budget = match &args.what {
        // For each kernel.
        What::Stress(stress) => Duration::from_secs(60 * u64::from(stress.minutes)) * (stress.designs.len() as u32 + 1),
        _ => Duration::ZERO,
    };
    let end = Instant::now() + BUDGET + budget;
    let outcome = match &args.what {
        What::Build { designs, config } => build_all(&designs.within(config.as_deref()), config.as_deref(), end),
        What::Test { bugs: true, config, .. } => bugs::run(config.as_deref(), end),
        What::Test {
            designs,
            bochs: true,
            config,
            ..
        } => bochs::run(&designs.or(&["adaptive"]), config.as_deref(), end),
        What::Test { designs, config, .. } => {
            let chosen = designs.within(config.as_deref());
            match config {
                Some(config) => configured::run(&chosen, config, end),
                None => test::run(&chosen, end),
            }
        }
        What::Compare { designs, only } => compare::run(&designs.or(&DESIGNS), *only, end),
        What::Selftests(tests) => selftests::run(&tests.designs.within(None), &tests.only, tests.times as usize, end),
        What::Stress(stress) => stress::run(&stress.designs, stress.minutes, stress.stock, end),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("xtask: {why}");
            ExitCode::FAILURE
        }
    }
}

fn build_all(designs: &[String], config: Option<&str>, end: Instant) -> Result<(), String> {
    let config = Config::read(config)?;
    for name in std::iter::once(STOCK).chain(designs.iter().map(String::as_str)) {
        let built = build::kernel(name, &config, end)?;
        println!("{name}: {} ({})", built.kernel.display(), built.origin);
    }
    println!("{}", sources::extent(&sources::debians(end)?)?);
    Ok(())
}

/// A kernel as a guest, built if necessary.
fn guest(name: &str, config: &Config, end: Instant) -> Result<Guest, String> {
    let built = build::kernel(name, config, end)?;
    Ok(Guest::built(built.kernel, &built.name, &built.origin))
}

/// The folder of the programs, built.
fn programs(end: Instant) -> Result<PathBuf, String> {
    debian::programs(&[(shootdown_qemu::BINARY, shootdown_qemu::PACKAGE)], end)?;
    let folder = workloads::build(Arch::X86_64, end)?;
    workloads::build_others(Arch::X86_64, "linux", &PROGRAMS, &folder, end)?;
    Ok(folder)
}

/// A run of a program.
fn planned(name: &str, threads: u32, ops: u64) -> Planned {
    Planned {
        workload: name.into(),
        threads,
        arguments: format!("{threads} --ops {ops}"),
    }
}

/// A run of a command of busybox.
fn busybox(words: &str) -> Planned {
    Planned {
        workload: BUSYBOX.into(),
        threads: 1,
        arguments: words.into(),
    }
}

/// Busybox, and the script that prepares a guest for programs that are not ours.
fn guest_files(end: Instant) -> Result<Vec<GuestFile>, String> {
    let busybox = packages::unpacked("busybox-static", end)?.join(BUSYBOX);
    Ok(vec![
        GuestFile {
            path: BUSYBOX.into(),
            from: busybox,
        },
        GuestFile {
            path: SETUP.into(),
            from: workspace::root().join("linux").join(SETUP),
        },
    ])
}

fn number_of_cpus(cpus: u32) -> String {
    match cpus {
        1 => "1 CPU".into(),
        _ => format!("{cpus} CPUs"),
    }
}

/// Boots a kernel and runs the plan.
fn boot(
    guest: &Guest,
    programs: &std::path::Path,
    plan: &[Planned],
    cpus: u32,
    mode: Mode,
    words: &str,
    end: Instant,
) -> Result<Report, String> {
    let boot = Boot {
        guest,
        programs,
        plan,
        cpus,
        mode,
        may_fail: false,
        words,
        files: &[],
        machine: &[],
    };
    run_boot(&boot, LIMIT, end)
}

/// Boots; says in an error which kernel it was, and how it was started.
fn run_boot(boot: &Boot, limit: Duration, end: Instant) -> Result<Report, String> {
    let words = boot.words;
    let mut known = None;
    let progress = |done: usize, next: &str| {
        // Only runs that take long, of programs that are not ours.
        if boot.may_fail && known.replace(done) != Some(done) {
            eprintln!("   {}: {done} of {}, next: {next}", boot.guest.name, boot.plan.len());
        }
    };
    boot.run(end.min(Instant::now() + limit), progress).map_err(|why| {
        format!(
            "{}, {}{}{words}: {why}",
            boot.guest.name,
            number_of_cpus(boot.cpus),
            if words.is_empty() { "" } else { ", " }
        )
    })
}
