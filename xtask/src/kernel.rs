//! The bare-metal kernel in QEMU: boots, is deterministic, survives torture; the control and every known bug that can
//! show there are caught; the image for real machines boots.

use std::sync::atomic::AtomicBool;
use std::time::Instant;

use shootdown_qemu::{Arch, Emulator, Image};

use super::kernel_case::{CPUS, Case, Expected};
use super::{cases, iso, stream, torture, workspace};

/// Designs that are tortured, in turn.
pub const TORTURED: [&str; 10] = [
    "ipi",
    "adaptive",
    "broadcast",
    "walk-sticky",
    "ipi-trim",
    "walk-precise",
    "preemptible",
    "arm-broadcast",
    "ipi-early",
    "arm-ipi",
];
/// Runs under torture: each clock shift, each design, another seed and another jitter every time.
const TORTURES: u8 = 22;
/// Runs everything.
///
/// # Errors
/// Every failure, a line each.
pub fn run(end: Instant) -> Result<(), String> {
    let emulator = Emulator::find()?;
    let image = Image::around(&workspace::root().canonicalize().map_err(|error| error.to_string())?)?;
    println!("building the kernel, and once more with its known bugs");
    let never = AtomicBool::new(false);
    let (plain, faulty) = (image.build(&never)?, image.clone().with_faults().build(&never)?);
    let all = all(&emulator);
    let mut failures = cases::run(&all, |_, case| {
        let path = if case.faults { &faulty } else { &plain };
        case.run(path)
    })?;
    failures.extend(stream::check(Arch::X86_64, &emulator, &plain).err());
    if let Err(why) = iso::check(&emulator, &plain, end) {
        failures.push(why);
    }
    if failures.is_empty() {
        Ok(())
    } else {
        Err(failures.join("\n"))
    }
}

fn all(emulator: &Emulator) -> Vec<Case> {
    let case = |name, command_line| Case::new(name, emulator, command_line);
    let mut cases = vec![Case {
        cpus: 64,
        ..case("boot, 64 CPUs, an NMI each".into(), "workload=hello".into())
    }];
    cases.push(case(
        "each invalidation, by its effect".into(),
        "workload=operands design=broadcast".into(),
    ));
    for workload in ["tlb_flush2", "madvise_spin", "mprotect_all", "process_churn"] {
        for design in ["ipi", "broadcast", "adaptive"] {
            let command_line = format!("workload={workload} design={design}");
            cases.push(case(format!("{workload}, {design}"), command_line));
        }
    }
    for number in 0..TORTURES {
        let design = TORTURED[usize::from(number) % TORTURED.len()];
        cases.push(torture::case(Arch::X86_64, emulator, design, number, CPUS, 1500));
    }
    cases.push(Case {
        cpus: 16,
        shift: 2,
        ..case(
            "torture, adaptive, 16 CPUs".into(),
            "workload=torture design=adaptive jitter=2000 steps=300".into(),
        )
    });
    for command_line in [
        "workload=torture design=adaptive jitter=1000",
        "workload=tlb_flush2 design=adaptive",
    ] {
        cases.push(Case {
            expected: Expected::Twice,
            ..case(format!("twice: {command_line}"), command_line.to_owned())
        });
    }
    let caught = |name, command_line| case(name, command_line).caught();
    cases.push(caught("control: none".into(), "workload=torture design=none".into()));
    for (fault, design) in visible_faults() {
        let command_line = format!("workload=torture design={design} fault={fault} steps=4000");
        cases.push(caught(format!("fault {fault}, {design}"), command_line));
    }
    cases
}

/// Known bugs that can show in QEMU, each with a design, by the manifest.
pub fn visible_faults() -> Vec<(&'static str, &'static str)> {
    let known = shootdown_known_bugs::ALL.iter();
    let visible: Vec<_> = known.filter_map(|known| Some((known.name, known.qemu?))).collect();
    println!(
        "{} known bugs, {} of them can show in QEMU",
        shootdown_known_bugs::ALL.len(),
        visible.len()
    );
    visible
}
