//! The bare-metal kernel on AArch64 and RISC-V, in QEMU: it boots, is deterministic, survives torture, and the oracle
//! catches the control and every known bug that can show there.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use shootdown_known_bugs::Known;
use shootdown_qemu::{Arch, Emulator, Image};

use super::kernel_case::{Case, Expected};
use super::needs::Need;
use super::torture::takes_parallel_harts;
use super::{cases, kernel, presets, stream, torture, workspace};

/// Designs for torture, in this order: those for these instruction sets first.
const TORTURED: [&str; 12] = [
    "ipi",
    "arm-ipi",
    "arm-local-first",
    "arm-broadcast",
    "adaptive",
    "walk-sticky",
    "ipi-trim",
    "never-broadcast",
    "preemptible",
    "walk-precise",
    "broadcast+ipi",
    "ipi-early",
];
/// Steps of each CPU: the number that the test step has time for, and one that shows the bugs of x86-64.
const STEPS: [u32; 2] = [400, 1500];

/// Broadcasts for each small process that runs on one CPU, forked, executed and ended: none, but for a design that
/// broadcasts always.
const CHURN: [(&str, &str); 4] = [
    ("arm-broadcast", "\"broadcasts_per_op\":5.0000"),
    ("arm-local-first", "\"broadcasts_per_op\":0.0000"),
    ("adaptive", "\"broadcasts_per_op\":0.0000"),
    ("arm-ipi", "\"broadcasts_per_op\":0.0000"),
];

/// Known bugs that show here and not on x86-64, each with a design.
const MORE: [(Arch, &str, &str); 2] = [
    // QEMU keeps entries over a load of another root under the same ASID.
    (Arch::Aarch64, "TagReusedWithoutFlush", "ipi"),
    // Of a range with tables one page is named: entries of the others stay, with or without links.
    (Arch::Aarch64, "TablesNamedOnce", "arm-broadcast"),
];

/// Known bugs that show on x86-64 and not here, each with the reason.
const LESS: [(Arch, &str, &str); 2] = [
    (
        Arch::Riscv64,
        "BroadcastCountOffByOne",
        "OpenSBI drops everything where a remote fence names more than one page",
    ),
    (
        Arch::Riscv64,
        "WholeTagOnlyHere",
        "not caught with 8 seeds on two parallel harts; remote fences cannot be run in turns",
    ),
];

/// What is run.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// What the test step has time for.
    Short,
    /// The same with more steps, and then every preset with many seeds and clocks.
    All,
    /// Every preset with many seeds and clocks alone, as a table.
    Presets,
    /// The known bugs alone, as a table.
    Bugs,
}

/// Runs a part on one instruction set.
///
/// # Errors
/// All failures, a line each.
pub fn main(name: &str, part: Part, end: Instant) -> Result<(), String> {
    let arch = Arch::named(name)?;
    if arch == Arch::X86_64 {
        return kernel::run(end);
    }
    Need::Port(arch).meet(end)?;
    let emulator = Emulator::of(arch)?;
    let image = Image::around(&workspace::root().canonicalize().map_err(|error| error.to_string())?)?.of(arch);
    println!("building the kernel for {name}, and once more with its known bugs");
    let never = AtomicBool::new(false);
    let (plain, faulty) = (image.build(&never)?, image.clone().with_faults().build(&never)?);
    if part == Part::Presets {
        return judge(presets::run(arch, &emulator, &plain)?);
    }
    let mut all = bugs(arch, &emulator, part);
    if part != Part::Bugs {
        let mut others = tortures(arch, &emulator, part == Part::All);
        others.append(&mut all);
        all = others;
    }
    let caught = Mutex::new(BTreeMap::new());
    let mut failures = cases::run(&all, |_, case| {
        let result = case.run(if case.faults { &faulty } else { &plain });
        if let Ok(note) = &result {
            caught
                .lock()
                .expect("no panics")
                .insert(case.name.clone(), note.clone());
        }
        result
    })?;
    if part != Part::Bugs {
        failures.extend(stream::check(arch, &emulator, &plain).err());
    }
    if part == Part::All {
        failures.extend(presets::run(arch, &emulator, &plain)?);
    }
    if part != Part::Short {
        print_table(arch, &caught.into_inner().map_err(|_| "a thread panicked")?);
    }
    judge(failures)
}

fn judge(failures: Vec<String>) -> Result<(), String> {
    if failures.is_empty() {
        Ok(())
    } else {
        Err(failures.join("\n"))
    }
}

/// The design under which a known bug shows on `arch`, or the reason why none does.
fn shows(arch: Arch, known: &Known) -> Result<&'static str, String> {
    let more = MORE.iter().find(|(on, name, _)| *on == arch && *name == known.name);
    if let Some((_, _, design)) = more {
        return Ok(design);
    }
    let less = LESS.iter().find(|(on, name, _)| *on == arch && *name == known.name);
    if let Some((_, _, why)) = less {
        return Err((*why).to_owned());
    }
    known.qemu.ok_or_else(|| {
        let why = known.not_in_qemu.unwrap_or("not tried");
        // QEMU's TLB has no tags here either: it drops everything when the ASID changes.
        match why.strip_prefix("no tags: ") {
            Some(_) => "a load of a root under another ASID drops everything in QEMU's TLB".to_owned(),
            None => why.to_owned(),
        }
    })
}

/// The name of the case of a known bug.
fn case_of(name: &str, design: &str) -> String {
    format!("fault {name}, {design}")
}

/// Prints the known bugs as a table of the book, with the results by the names of their cases.
fn print_table(arch: Arch, results: &BTreeMap<String, String>) {
    println!(
        "\n| on {} | shows under | result, or why it is hidden |\n| --- | --- | --- |",
        arch.name()
    );
    for known in shootdown_known_bugs::ALL {
        match shows(arch, known) {
            Ok(design) => {
                let result = results.get(&case_of(known.name, design));
                let result = result.map_or("not caught", String::as_str);
                println!("| `{}` | `{design}` | {result} |", known.name);
            }
            Err(why) => println!("| `{}` | – | {why} |", known.name),
        }
    }
}

fn tortures(arch: Arch, emulator: &Emulator, whole: bool) -> Vec<Case> {
    let case = |name, command_line| Case::new(name, emulator, command_line);
    let mut cases = boots(arch, emulator, &case);
    let steps = STEPS[usize::from(whole)];
    let mut add =
        |design: &str, seed: u8, cpus: usize| cases.push(torture::case(arch, emulator, design, seed, cpus, steps));
    for (seed, design) in (0..).zip(TORTURED) {
        add(design, seed, 4);
    }
    add("adaptive", 3, 8);
    add("arm-local-first", 4, 1);
    let design = if arch == Arch::Riscv64 { "arm-ipi" } else { "adaptive" };
    cases.push(Case {
        expected: Expected::Twice,
        ..case(
            format!("twice: torture, {design}"),
            format!("workload=torture design={design} jitter=1000 steps={steps}"),
        )
    });
    cases
}

/// The control, and the known bugs that show.
fn bugs(arch: Arch, emulator: &Emulator, part: Part) -> Vec<Case> {
    let case = |name, command_line| Case::new(name, emulator, command_line);
    let mut cases = Vec::new();
    let caught = |name, command_line| case(name, command_line).caught();
    cases.push(caught("control: none".into(), "workload=torture design=none".into()));
    if arch == Arch::Aarch64 {
        // A mistake of a kernel, which this one makes when asked.
        cases.push(caught(
            "mistake AcknowledgedLate, arm-ipi".into(),
            "workload=torture design=arm-ipi fault=AcknowledgedLate steps=4000".into(),
        ));
    }
    for known in shootdown_known_bugs::ALL {
        if let Ok(design) = shows(arch, known) {
            // Remote fences with instructions counted are slow: see `torture::FENCED`.
            if takes_parallel_harts(arch, design) && part == Part::Short {
                continue;
            }
            let command_line = format!("workload=torture design={design} fault={} steps=4000", known.name);
            cases.push(caught(case_of(known.name, design), command_line));
        }
    }
    cases
}

/// The boot methods, and the workloads.
fn boots(arch: Arch, emulator: &Emulator, case: &dyn Fn(String, String) -> Case) -> Vec<Case> {
    let hello = |name: &str, cpus, emulator: Emulator| Case {
        cpus,
        emulator,
        ..case(format!("boot, {name}"), "workload=hello".into())
    };
    let mut cases = vec![hello("8 CPUs", 8, emulator.clone())];
    let mut refused = vec![
        ("errata=none", "there are never-broadcast, interrupt-too, repeat"),
        ("design=fastest", "no such design"),
    ];
    if arch == Arch::Aarch64 {
        refused.push(("asid_bits=9", "8 or 16 bits"));
    }
    cases.extend(refused.into_iter().map(|(word, why)| Case {
        expected: Expected::Refused(why),
        ..case(format!("bad input, {word}"), word.into())
    }));
    cases.push(Case {
        // See `torture::FENCED`.
        at_once: arch == Arch::Riscv64,
        expected: Expected::Says(match arch {
            // Entries outlive a root load under the same ASID that does not flush them: a reuse would show.
            Arch::Aarch64 => "\"kept_over_a_root_load_without_flush\":true",
            _ => "\"kept_over_a_root_load_without_flush\":false",
        }),
        ..case("each invalidation, by its effect".into(), "workload=operands".into())
    });
    cases.extend(match arch {
        Arch::Aarch64 => processors(emulator, case),
        _ => harts(emulator, case),
    });
    for (workload, design) in [
        ("tlb_flush2", "arm-ipi"),
        ("madvise_spin", "arm-broadcast"),
        ("mprotect_all", "arm-local-first"),
    ] {
        if takes_parallel_harts(arch, design) {
            continue;
        }
        let command_line = format!("workload={workload} design={design} ms=2");
        cases.push(case(format!("{workload}, {design}"), command_line));
    }
    for (design, broadcasts) in CHURN {
        if arch == Arch::Riscv64 && matches!(design, "arm-broadcast" | "adaptive") {
            continue;
        }
        cases.push(Case {
            shift: 4,
            expected: Expected::Says(broadcasts),
            ..case(
                format!("process_churn, {design}"),
                format!("workload=process_churn design={design}"),
            )
        });
    }
    cases
}

/// Arm's processors: widths of ASIDs, range operations, errata by MIDR; and the kernel entered at EL2.
fn processors(emulator: &Emulator, case: &dyn Fn(String, String) -> Case) -> Vec<Case> {
    let torture = |name: String, emulator: Emulator, words: &str| Case {
        emulator,
        ..case(name, format!("workload=torture steps=300 jitter=700 {words}"))
    };
    let churn = |processor, broadcasts| Case {
        emulator: emulator.clone().with_processor(processor),
        shift: 4,
        expected: Expected::Says(broadcasts),
        ..case(
            format!("process_churn, arm-broadcast, {processor}"),
            "workload=process_churn design=arm-broadcast".into(),
        )
    };
    let mut cases = vec![
        Case {
            emulator: emulator.clone().with_board(",virtualization=on"),
            ..case("boot, entered at EL2".into(), "workload=hello".into())
        },
        torture(
            "torture, adaptive, entered at EL2".into(),
            emulator.clone().with_board(",virtualization=on"),
            "design=adaptive",
        ),
        Case {
            emulator: emulator.clone().with_board(",gic-version=2"),
            expected: Expected::Refused("no interrupt controller compatible with arm,gic-v3"),
            ..case("bad input, a GICv2".into(), "workload=hello".into())
        },
        // Without range operations, and twice that where the MIDR demands repetition.
        churn("cortex-a57", "\"broadcasts_per_op\":11.0000"),
        churn("cortex-a76", "\"broadcasts_per_op\":22.0000"),
    ];
    for name in ["cortex-a53", "cortex-a57", "cortex-a76"] {
        let emulator = emulator.clone().with_processor(name);
        cases.push(torture(
            format!("torture, arm-broadcast, {name}"),
            emulator.clone(),
            "design=arm-broadcast",
        ));
        cases.push(Case {
            emulator,
            expected: Expected::Says("\"kept_over_a_root_load_without_flush\":true"),
            ..case(
                format!("each invalidation, {name}"),
                "workload=operands asid_bits=8".into(),
            )
        });
    }
    let few = ["8 tags=240-255", "16 tags=250-265"];
    cases.extend(few.map(|bits| {
        torture(
            format!("torture, arm-broadcast, asid_bits={bits}"),
            emulator.clone(),
            &format!("design=arm-broadcast asid_bits={bits}"),
        )
    }));
    let errata = ["repeat", "interrupt-too", "never-broadcast", "repeat,interrupt-too"];
    cases.extend(errata.map(|errata| {
        torture(
            format!("torture, arm-broadcast, errata={errata}"),
            emulator.clone(),
            &format!("design=arm-broadcast errata={errata}"),
        )
    }));
    cases
}

/// RISC-V's harts: without ASIDs and with few, with Svinval and without Sstc.
fn harts(emulator: &Emulator, case: &dyn Fn(String, String) -> Case) -> Vec<Case> {
    let svinval = emulator.clone().with_processor("rv64,svinval=on");
    let without_sstc = emulator.clone().with_processor("rv64,sstc=off");
    let mut cases = vec![
        Case {
            emulator: svinval.clone(),
            expected: Expected::Says("svinval: true"),
            ..case("boot, Svinval".into(), "workload=hello".into())
        },
        Case {
            emulator: without_sstc.clone(),
            ..case("boot, without Sstc".into(), "workload=hello".into())
        },
        Case {
            expected: Expected::Says("mode: Sv48"),
            ..case("boot, Sv48".into(), "workload=hello paging=sv48".into())
        },
        Case {
            expected: Expected::Says("tags: none"),
            ..case("boot, without ASIDs".into(), "workload=hello asid_bits=0".into())
        },
    ];
    // Harts stop while others are in remote fences: OpenSBI would wait for one that it asked and that then stopped.
    cases.push(Case {
        at_once: true,
        ..case(
            "torture, arm-broadcast, 4 harts at once".into(),
            "workload=torture steps=300 jitter=20000 design=arm-broadcast".into(),
        )
    });
    for (name, emulator, words) in [
        ("Svinval", &svinval, ""),
        ("without Sstc", &without_sstc, ""),
        ("Sv48", emulator, "paging=sv48"),
        ("without ASIDs", emulator, "asid_bits=0"),
        ("ASIDs of 8 bits", emulator, "asid_bits=8 tags=240-255"),
    ] {
        for design in ["ipi", "arm-ipi"] {
            cases.push(Case {
                emulator: emulator.clone(),
                ..case(
                    format!("torture, {design}, {name}"),
                    format!("workload=torture steps=300 jitter=700 design={design} {words}"),
                )
            });
        }
        cases.push(Case {
            emulator: emulator.clone(),
            at_once: true,
            cpus: 2,
            ..case(
                format!("torture, arm-broadcast, {name}, 2 harts at once"),
                format!("workload=torture steps=300 jitter=20000 design=arm-broadcast {words}"),
            )
        });
    }
    cases
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_known_bug_shows_on_each_port_or_has_a_reason() {
        for arch in [Arch::Aarch64, Arch::Riscv64] {
            for known in shootdown_known_bugs::ALL {
                match shows(arch, known) {
                    Ok(design) => assert!(!design.is_empty()),
                    Err(why) => assert_ne!(why, "not tried", "{}", known.name),
                }
            }
        }
        let names: Vec<_> = shootdown_known_bugs::ALL.iter().map(|known| known.name).collect();
        assert!(MORE.iter().chain(&LESS).all(|(_, name, _)| names.contains(name)));
    }

    #[test]
    fn unknown_instruction_set_is_refused_with_the_known_ones() {
        let error = main("m68k", Part::Short, Instant::now()).expect_err("no such port");
        assert!(error.contains("aarch64") && error.contains("riscv64"), "{error}");
    }

    #[test]
    fn book_lists_every_known_bug_as_it_shows_and_every_preset_without_stale_reads() {
        let page = workspace::root().join("docs/src/verification/instruction-sets.md");
        let page = std::fs::read_to_string(page).expect("the book has the page");
        for arch in [Arch::Aarch64, Arch::Riscv64] {
            let rows = |title: &str| {
                let all = page.split(&format!("| on {} | {title} ", arch.name())).nth(1);
                let table = all.expect("a table").split("\n\n").next().unwrap_or_default();
                table.lines().skip(2).map(str::to_owned).collect::<Vec<_>>()
            };
            let (bugs, presets) = (rows("shows"), rows("runs"));
            assert_eq!(bugs.len(), shootdown_known_bugs::ALL.len(), "{}", arch.name());
            for (known, row) in shootdown_known_bugs::ALL.iter().zip(&bugs) {
                let begins = match shows(arch, known) {
                    Ok(design) => format!("| `{}` | `{design}` | caught ", known.name),
                    Err(why) => format!("| `{}` | – | {why} |", known.name),
                };
                assert!(row.starts_with(&begins), "{row}: expected {begins}");
            }
            let tortured = shootdown::Design::PRESETS.iter().filter(|(name, ..)| *name != "none");
            for ((name, ..), row) in tortured.zip(&presets) {
                let cells: Vec<&str> = row.split('|').map(str::trim).collect();
                assert_eq!((cells[1], cells[4]), (format!("`{name}`").as_str(), "0"), "{row}");
                assert!(cells[2].parse::<u32>().is_ok_and(|runs| runs >= 20), "{row}");
            }
        }
    }
}
