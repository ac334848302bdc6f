//! Builds of Linux: stock, with the engine compiled for one design, and with the engine that holds every known bug.
//! Each is kept until one of its inputs changes.

use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use super::configs::Config;
use super::sources::{self, Sources, at, make_folder};
use crate::needs::Need;
use crate::{child, workspace};

/// A kernel that can be booted.
#[derive(Debug)]
pub struct Built {
    /// `Linux`, or the design.
    pub name: String,
    /// The image.
    pub kernel: PathBuf,
    /// The version of the sources, and what is in place of `tlb.c`.
    pub origin: String,
}

/// The kernel of that name in that configuration: `Linux`, a design of the engine, or [`super::BUGS`].
///
/// # Errors
/// When something that the build needs is missing, or the build fails.
pub fn kernel(name: &str, config: &Config, end: Instant) -> Result<Built, String> {
    Need::Linux.meet(end)?;
    let debians = sources::debians(end)?;
    let mut hasher = DefaultHasher::new();
    (&debians.version, &config.settings).hash(&mut hasher);
    let (sources, what, out) = if name == super::STOCK {
        (debians, "its own tlb.c", "stock")
    } else {
        let library = library(name, config, end)?;
        sources::changed(&debians, &library)?.hash(&mut hasher);
        (sources::ours(&debians, &library, end)?, "linux/tlb.c", "engine")
    };
    let kept = sources::place()?.join(config.folder("kernels")).join(name);
    let (kernel, key) = (kept.join("bzImage"), kept.join("inputs"));
    let built = Built {
        name: name.into(),
        kernel: kernel.clone(),
        origin: format!("linux-source-6.12 {}, {what}", sources.version),
    };
    let inputs = format!("{:016x}\n", hasher.finish());
    if std::fs::read_to_string(&key).is_ok_and(|before| before == inputs) && kernel.exists() {
        return Ok(built);
    }
    let started = Instant::now();
    let image = make(&sources, &config.folder(out), config, end)?;
    make_folder(&kept)?;
    std::fs::copy(&image, &kernel).map_err(|error| at(&kernel, error))?;
    std::fs::write(&key, inputs).map_err(|error| at(&key, error))?;
    eprintln!("== built {name} in {} s", started.elapsed().as_secs());
    Ok(built)
}

/// The hooks that `linux/tlb.c` defines; and those for a kernel that is preempted.
const HOOKS: &str = "send_ipi send_ipi_to now_ns unloaded stuck";
const PINS: &str = "pin unpin";

/// What reads the number of the CPU: `raw_smp_processor_id()`. `linux/tlb.c` checks the offset.
const CPU: &str = "mov {cpu:e}, dword ptr gs:[rip + pcpu_hot + 12]";

/// The library for kernels in C, as one object: compiled for one design; or for all of them, with every known bug.
fn library(name: &str, config: &Config, end: Instant) -> Result<PathBuf, String> {
    let (folder, hooks) = if config.is_preemptible() {
        ("library-preemptible", format!("{HOOKS} {PINS}"))
    } else {
        ("library", HOOKS.into())
    };
    let out = sources::place()?.join(folder).join(name);
    let object = out.join("shootdown.o");
    let mut command = Command::new("make");
    command.args(["--no-print-directory", "--silent", "--file"]);
    command.arg(workspace::root().join("crates/shootdown-c/link/shootdown.mk"));
    command.args(["SHOOTDOWN_ARCH=x86_64", "CROSS_COMPILE=", "SHOOTDOWN_NO_GOT=1"]);
    let (design, features) = match name {
        super::BUGS => ("", "instructions,adaptive,published"),
        "adaptive" => (name, "instructions,adaptive"),
        _ => (name, "instructions"),
    };
    if name == super::BUGS {
        let patched = workspace::root().join("crates/shootdown-c-patched");
        command.arg(format!("SHOOTDOWN_CRATE={}", patched.display()));
        command.args([
            "SHOOTDOWN_LIBRARY=shootdown_c_patched",
            "SHOOTDOWN_LD=ld -u shootdown_select_bug",
        ]);
    }
    command.arg(format!("SHOOTDOWN_DESIGN={design}"));
    command.arg(format!("SHOOTDOWN_HOOKS={hooks}"));
    command.arg(format!("SHOOTDOWN_CPU_INSTRUCTION={CPU}"));
    command.arg(format!("SHOOTDOWN_FEATURES={features}"));
    command.arg(format!("SHOOTDOWN_OUT={}", out.display())).arg(&object);
    child::run(&mut command, end).map_err(|why| format!("shootdown.mk, {name}: {why}"))?;
    Ok(object)
}

/// Configures and builds; returns the image.
fn make(sources: &Sources, out: &str, config: &Config, end: Instant) -> Result<PathBuf, String> {
    let place = sources::place()?;
    let (folder, settings) = (place.join(out), config.file()?);
    make_folder(&folder)?;
    let path = place.join(format!("{out}.log"));
    let log = File::create(&path).map_err(|error| at(&path, error))?;
    eprintln!("== building {out}: some minutes; see {}", path.display());
    let failed = |why: String| {
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let first = text.lines().find(|line| line.contains("rror"));
        format!(
            "the build failed ({why}): {}; see {}",
            first.unwrap_or(""),
            path.display()
        )
    };
    let command = |target: &str| {
        let mut command = Command::new("make");
        command.arg("-s").arg("-C").arg(&sources.folder);
        command.arg(format!("O={}", folder.display()));
        command.arg(format!("KCONFIG_ALLCONFIG={}", settings.display()));
        command.args([
            "KBUILD_BUILD_TIMESTAMP=2026-01-01",
            "KBUILD_BUILD_USER=xtask",
            "KBUILD_BUILD_HOST=here",
        ]);
        let jobs = std::thread::available_parallelism().map_or(1, usize::from);
        command.arg(format!("-j{jobs}")).arg(target);
        command
    };
    child::logged(&mut command("allnoconfig"), &log, end).map_err(failed)?;
    let chosen = folder.join(".config");
    let chosen = std::fs::read_to_string(&chosen).map_err(|error| at(&chosen, error))?;
    let missing = not_taken(&config.settings, &chosen);
    if !missing.is_empty() {
        return Err(format!(
            "linux/{}: these settings were not taken: {}",
            config.file_name(),
            missing.join(", ")
        ));
    }
    child::logged(&mut command("bzImage"), &log, end).map_err(failed)?;
    Ok(folder.join("arch/x86/boot/bzImage"))
}

/// The settings that the configuration lacks, because another one forbids them.
fn not_taken<'a>(settings: &'a str, chosen: &str) -> Vec<&'a str> {
    let lines: std::collections::BTreeSet<&str> = chosen.lines().collect();
    let requested = settings.lines().filter(|line| line.starts_with("CONFIG_"));
    requested
        .filter(|line| match line.strip_suffix("=n") {
            Some(name) => chosen.contains(&format!("\n{name}=")),
            None => !lines.contains(line),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_dropped_by_kconfig_are_found() {
        let chosen = "# x\nCONFIG_SMP=y\nCONFIG_AIO=y\n# CONFIG_EFI is not set\nCONFIG_NR_CPUS=8\n";
        let settings = "# c\nCONFIG_SMP=y\nCONFIG_EFI=n\nCONFIG_AIO=n\nCONFIG_NR_CPUS=64\nCONFIG_TTY=y\n";
        assert_eq!(
            not_taken(settings, chosen),
            ["CONFIG_AIO=n", "CONFIG_NR_CPUS=64", "CONFIG_TTY=y"]
        );
    }
}
