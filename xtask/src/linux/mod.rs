//! `cargo xtask linux`: Linux 6.12 with the engine in place of `arch/x86/mm/tlb.c`, beside the same Linux without.
//!
//! `linux/` holds what is put in place. docs/src/evidence/inside-linux.md says what was replaced and what was measured.

mod build;
mod compare;
mod sources;
mod test;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Parser, Subcommand};
use shootdown_qemu::Arch;

use super::linux_baseline::boot::{Boot, Mode};
use super::linux_baseline::guest::Guest;
use super::linux_baseline::initramfs::Planned;
use super::linux_baseline::report::Report;
use super::{debian, workloads};

/// The name of the kernel without the engine.
const STOCK: &str = "Linux";

/// Time limit of everything.
const BUDGET: Duration = Duration::from_secs(90 * 60);

/// Time limit of a boot.
const LIMIT: Duration = Duration::from_secs(15 * 60);

/// Programs of `linux/`.
const PROGRAMS: [&str; 4] = ["remap", "compact", "collapse", "hotplug"];

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
    Build(Designs),
    /// Boot them with 1, 2 and 4 CPUs and run programs that check what they read; and with invalidation switched off,
    /// which the programs must notice
    Test(Designs),
    /// Count instructions and interrupts of both
    Compare(Designs),
}

/// The designs of the engine, each compiled in.
#[derive(Debug, clap::Args)]
struct Designs {
    /// Designs of the engine
    #[arg(long, value_delimiter = ',', default_value = "ipi,adaptive", value_parser = ["ipi", "adaptive"])]
    designs: Vec<String>,
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
    let end = Instant::now() + BUDGET;
    let outcome = match &args.what {
        What::Build(Designs { designs }) => build_all(designs, end),
        What::Test(Designs { designs }) => test::run(designs, end),
        What::Compare(Designs { designs }) => compare::run(designs, end),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("xtask: {why}");
            ExitCode::FAILURE
        }
    }
}

fn build_all(designs: &[String], end: Instant) -> Result<(), String> {
    for name in std::iter::once(STOCK).chain(designs.iter().map(String::as_str)) {
        let built = build::kernel(name, end)?;
        println!("{name}: {} ({})", built.kernel.display(), built.origin);
    }
    println!("{}", sources::extent(&sources::debians(end)?)?);
    Ok(())
}

/// A kernel as a guest, built if necessary.
fn guest(name: &str, end: Instant) -> Result<Guest, String> {
    let built = build::kernel(name, end)?;
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
    };
    boot.run(end.min(Instant::now() + LIMIT), |_, _| {}).map_err(|why| {
        format!(
            "{}, {}{}{words}: {why}",
            guest.name,
            number_of_cpus(cpus),
            if words.is_empty() { "" } else { ", " }
        )
    })
}
