//! `cargo xtask programs`: the programs of `workloads/` on the kernel in `kernel/`, in QEMU, CPUs in turns.
//!
//! - Each ends successfully, with correct reads; a second run is the same to the last instruction.
//! - Threads that wait for the address-space lock sleep, so that their CPUs are not interrupted.
//! - Threads that change the same pages at the same time lose nothing.
//! - Without any invalidation a program sees stale pages.
//! - A program that misbehaves is ended, or gets an error for a missing call, and the kernel continues.

use std::path::Path;
use std::time::{Duration, Instant};

use shootdown_qemu::Arch;

use super::linux_baseline::boot::{Boot, Mode};
use super::linux_baseline::guest::Guest;
use super::linux_baseline::initramfs::Planned;
use super::linux_baseline::report::{Ended, Ran, Report};
use super::needs::Need;
use super::workloads;

/// Time limit of each boot.
const LIMIT: Duration = Duration::from_secs(240);

/// Virtual CPUs.
const CPUS: u32 = 3;

/// Operations of each thread in the run whose interrupts are counted: some unmaps of each thread's region.
const LOCKED_OPS: u32 = 2000;

/// Programs that misbehave, or that stress a limit: how each ends, and its message.
const MISBEHAVIOUR: [(&str, i32, &str); 13] = [
    ("misbehave good", 7, "good"),
    ("misbehave timed", 7, "timed"),
    ("misbehave read", 139, "signal 11"),
    ("misbehave read-kernel", 139, "signal 11"),
    ("misbehave write-code", 139, "signal 11"),
    ("misbehave run-data", 139, "signal 11"),
    ("misbehave halt", 139, "signal 11"),
    ("misbehave broadcast", 132, "signal 4"),
    ("misbehave nested-task", 7, "nested-task"),
    ("misbehave threads", 7, "threads"),
    (ASTRAY, 125, "begins outside user addresses"),
    ("misbehave lacking", 125, "lacks system call 41 (socket)"),
    // The kernel still runs.
    ("misbehave good", 7, "good"),
];

/// `misbehave` with another entry point, which is not a valid address.
const ASTRAY: &str = "astray";

/// Operations of `together` that run at the same time: each ends with 7 when no store is lost, no page stale and no
/// waiter forgotten.
const TOGETHER: [&str; 3] = ["copies", "drops", "waiters"];

/// A design that keeps page tables for a grace period, which sleeping CPUs do not end: `misbehave tables` must not
/// exhaust memory.
const KEEPS_TABLES: &str = "walk-grace";

/// With windows between a change and its flush that are open for some turns of the other CPUs.
const WINDOWS: &str = "linger=4";

/// A design that interrupts idle CPUs too, so its interrupts do not show how waiters wait.
const INTERRUPTS_IDLE: &str = "arm-ipi";

/// The program whose pages are pinned.
const PINS: &str = "gup";

/// The design without invalidation.
const CONTROL: &str = "none";

/// The program that must detect it, and its threads: one thread sees what another CPU has dropped. On RISC-V PAUSE
/// does not end QEMU's turn, so that no other CPU reads the page while it is mapped; there the CPU's own pages are
/// looked at.
fn notices(arch: Arch) -> (&'static str, u32) {
    match arch {
        Arch::Riscv64 => ("tlb_flush1", 1),
        _ => ("drop_shared", 2),
    }
}

/// Runs them all under each of these designs.
///
/// # Errors
/// The first error.
pub fn run(arch: Arch, designs: &[&str], end: Instant) -> Result<(), String> {
    Need::Programs(arch).meet(end)?;
    let programs = workloads::build(arch, end)?;
    let designs = match (designs, arch) {
        ([], Arch::X86_64) => &["ipi", "broadcast", "adaptive"][..],
        ([], Arch::Aarch64) => &["ipi", "arm-broadcast", "adaptive"],
        // Remote fences do not end QEMU's turn.
        ([], Arch::Riscv64) => &["ipi"],
        _ => designs,
    };
    let planned = |workload: &str, threads: u32, arguments: String| Planned {
        workload: workload.into(),
        threads,
        arguments,
    };
    // This kernel pins pages only where flushes interrupt, which broadcasts of the processor do not.
    let pins = |design: &str| arch == Arch::X86_64 || design.ends_with("ipi");
    let each = workloads::ALL
        .iter()
        .flat_map(|name| [1, 2, CPUS + 1].map(|threads| (*name, threads)));
    let mut all: Vec<Planned> = each
        .map(|(name, threads)| planned(name, threads, format!("{threads} --ops 200")))
        .collect();
    all.push(planned("tlb_flush2", 2, format!("2 --ops {LOCKED_OPS}")));
    make_astray(&programs).map_err(|error| format!("{ASTRAY}: {error}"))?;
    let bad: Vec<Planned> = MISBEHAVIOUR
        .iter()
        .map(|(line, ..)| {
            let (program, arguments) = line.split_once(' ').unwrap_or((line, ""));
            planned(program, 1, arguments.to_string())
        })
        .collect();
    let together: Vec<Planned> = TOGETHER.map(|what| planned("together", 3, what.to_string())).into();
    let designs: Vec<String> = designs.iter().map(|design| design.to_string()).collect();
    let boot_with = |words: &str, guest: &Guest, plan: &[Planned], may_fail: bool| -> Result<Report, String> {
        let boot = Boot {
            guest,
            programs: &programs,
            plan,
            cpus: CPUS,
            mode: Mode::Turns(None),
            may_fail,
            words,
            files: &[],
            machine: &[],
        };
        boot.run(end.min(Instant::now() + LIMIT), |_, _| {})
            .map_err(|why| format!("{}: {why}", guest.name))
    };
    let boot = |guest: &Guest, plan: &[Planned], may_fail| boot_with("", guest, plan, may_fail);
    for guest in Guest::ours(arch, &designs, end)? {
        let mut good = all.clone();
        good.retain(|run| run.workload != PINS || pins(&guest.name));
        let (first, second) = (boot(&guest, &good, false)?, boot(&guest, &good, false)?);
        if first.ran != second.ran {
            return Err(format!("{}: two runs differ", guest.name));
        }
        let locked = first.ran.last().ok_or("nothing ran")?;
        // On RISC-V a turn ends by a timer, after some ten operations.
        if guest.name != INTERRUPTS_IDLE && arch != Arch::Riscv64 {
            waiters_sleep(locked).map_err(|why| format!("{}: {why}", guest.name))?;
        }
        judge(arch, &boot(&guest, &bad, true)?.ended).map_err(|why| format!("{}: {why}", guest.name))?;
        judge_together(&boot_with(WINDOWS, &guest, &together, true)?.ended)
            .map_err(|why| format!("{}, {WINDOWS}: {why}", guest.name))?;
        println!(
            "{}: {} runs of {} programs, twice the same; \
             {} misbehaved and were ended; {} did the same at the same time",
            guest.name,
            good.len(),
            workloads::ALL.len() - usize::from(!pins(&guest.name)),
            MISBEHAVIOUR.iter().filter(|(_, status, _)| *status != 7).count(),
            TOGETHER.len()
        );
    }
    for guest in Guest::ours(arch, &[KEEPS_TABLES.to_string()], end)? {
        let ended = boot(&guest, &[planned("misbehave", 1, "tables".into())], true)?.ended;
        match ended.as_slice() {
            [Ended { status: 7, .. }] => println!("{KEEPS_TABLES}: page tables come back"),
            other => return Err(format!("{KEEPS_TABLES}: page tables do not come back: {other:?}")),
        }
    }
    let (program, threads) = notices(arch);
    for guest in Guest::ours(arch, &[CONTROL.to_string()], end)? {
        match boot(
            &guest,
            &[planned(program, threads, format!("{threads} --ops 200"))],
            true,
        ) {
            Err(why) if why.contains("reads were stale") => {
                println!("{CONTROL}: caught, {program} read stale pages")
            }
            Err(why) => return Err(why),
            Ok(_) => {
                return Err(format!(
                    "{CONTROL}: {program} saw no stale page: it would see none elsewhere"
                ));
            }
        }
    }
    Ok(())
}

/// Writes [`ASTRAY`] beside the programs.
fn make_astray(programs: &Path) -> std::io::Result<()> {
    // Offset of an ELF file's entry address.
    const ENTRY_POINT: std::ops::Range<usize> = 24..32;
    let mut program = std::fs::read(programs.join("misbehave"))?;
    program[ENTRY_POINT].copy_from_slice(&(1_u64 << 63).to_le_bytes());
    std::fs::write(programs.join(ASTRAY), program)
}

/// Two CPUs that take turns interrupt each other at every flush, until one must wait for the lock. If that one spins,
/// this continues. If it sleeps, its CPU is idle, and the other is alone until a timer fires, some hundred operations
/// later.
fn waiters_sleep(ran: &Ran) -> Result<(), String> {
    if ran.shootdown_interrupts * 2 < ran.ops_with_warm_up {
        return Ok(());
    }
    Err(format!(
        "{} interrupts for {} operations of {}: waiters for the address-space lock must sleep",
        ran.shootdown_interrupts, ran.ops_with_warm_up, ran.workload
    ))
}

fn judge(arch: Arch, ended: &[Ended]) -> Result<(), String> {
    for ((what, status, output), ended) in MISBEHAVIOUR.iter().zip(ended) {
        let (status, output) = match *what {
            // Undefined there; a general protection fault on x86-64.
            "misbehave halt" if arch != Arch::X86_64 => (&132, &"signal 4"),
            _ => (status, output),
        };
        if ended.status != *status || !ended.output.contains(output) {
            return Err(format!(
                "{what}: status {} and {:?}, expected {status} and {output:?}",
                ended.status, ended.output
            ));
        }
    }
    Ok(())
}

fn judge_together(ended: &[Ended]) -> Result<(), String> {
    match TOGETHER.iter().zip(ended).find(|(_, ended)| ended.status != 7) {
        None => Ok(()),
        Some((what, Ended { status, output })) => Err(format!("together {what}: status {status} and {output:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unpunished_misbehaviour_is_an_error() {
        let mut ended: Vec<Ended> = MISBEHAVIOUR
            .iter()
            .map(|(_, status, output)| Ended {
                status: *status,
                output: output.to_string(),
            })
            .collect();
        assert_eq!(judge(Arch::X86_64, &ended), Ok(()));
        assert!(judge(Arch::Aarch64, &ended).is_err_and(|why| why.contains("misbehave halt")));
        ended[2].status = 0;
        assert!(judge(Arch::X86_64, &ended).is_err_and(|why| why.contains("misbehave read: status 0")));
    }
}
