//! The table of `shootdown qemu`, and what must be said with it.

use shootdown_qemu::{Clock, Emulator};

use super::reading::{Own, Row};
use super::{Plan, TORTURE};
use crate::number::{self, UNKNOWN};
use crate::table::Grid;

/// The whole output.
pub(super) fn table(plan: &Plan, emulator: &Emulator, rows: &[Row], control: Option<&Row>) -> String {
    let grid = if plan.workload == TORTURE {
        torture(rows)
    } else {
        workload(rows)
    };
    let how = match plan.machine.clock {
        Clock::Counted { shift } => format!("tcg, one CPU after the other, {} ns an instruction", 1_u32 << shift),
        Clock::Translated => "tcg, a host thread for each CPU".to_owned(),
        Clock::Hardware => "kvm".to_owned(),
    };
    let mut text = format!(
        "{} on the bare-metal kernel, {} CPUs in QEMU {} ({how}), seed {}\n{}",
        plan.workload,
        plan.machine.cpus,
        emulator.version,
        plan.seed,
        grid.draw()
    );
    let mut line = |words: &str| {
        text.push_str(words);
        text.push('\n');
    };
    if matches!(plan.machine.clock, Clock::Counted { .. }) && plan.workload != TORTURE {
        line("instructions: of all CPUs for an operation, of the requester for a flush, of a target for an interrupt;");
        line(
            "  longest stretches without preemption and without interrupts, of their own CPU. Rates are by the guest's clock:",
        );
        line("  emulated CPUs take turns, so they are no machine's");
    }
    let mut broadcasts = rows
        .iter()
        .filter_map(|row| row.line.as_ref())
        .map(|line| line.own.broadcast.as_str());
    match broadcasts.next_back() {
        Some("emulated") => {
            line("broadcast: EMULATED, by interrupts in the handler of invalid opcodes: this processor has no INVLPGB")
        }
        Some("hardware") => line("broadcast: INVLPGB and TLBSYNC of the processor"),
        _ => {}
    }
    for row in rows.iter().filter(|row| row.is_bad()) {
        let why = row.problem.as_deref().unwrap_or_default();
        line(&format!("{} on {} threads failed: {why}", row.design, row.threads));
    }
    let checked: u64 = rows
        .iter()
        .filter_map(|row| row.line.as_ref())
        .map(|line| line.accesses_checked)
        .sum();
    let stale: u64 = rows
        .iter()
        .filter_map(|row| row.line.as_ref())
        .map(|line| line.stale)
        .sum();
    let caught = rows.iter().filter(|row| row.is_caught() && row.line.is_none()).count() as u64;
    match checked {
        0 if caught == 0 => line("stale translations: this workload looks at none; torture does"),
        _ => line(&format!(
            "stale translations: {} in {} checked accesses",
            number::count(stale + caught),
            number::count(checked)
        )),
    }
    if let Some(control) = control {
        match (control.is_caught(), &control.line) {
            (true, Some(seen)) => line(&format!(
                "control: `none` on tlb_flush2 caught: {} of {} accesses stale",
                number::count(seen.stale),
                number::count(seen.accesses_checked)
            )),
            _ => line("control: `none` on tlb_flush2 was NOT caught, so a count of 0 means nothing"),
        }
    }
    text
}

fn workload(rows: &[Row]) -> Grid {
    let header = [
        "threads",
        "design",
        "ops/s",
        "IPIs/op",
        "taken/op",
        "INVLPGBs/op",
        "instr/op",
        "requester",
        "target",
        "no preempt.",
        "no interr.",
        "stale",
    ];
    grid(&header, rows, |row| {
        let line = row.line.as_ref()?;
        let per_op = |value: Option<f64>| value.map_or(UNKNOWN.to_owned(), number::per_operation);
        let count = |of: fn(&Own) -> Option<f64>| {
            of(&line.own).map_or(UNKNOWN.to_owned(), |value| number::count(value.round() as u64))
        };
        Some(vec![
            line.ops_per_s.map_or(UNKNOWN.to_owned(), number::rate),
            per_op(line.ipis_per_op),
            per_op(line.interrupts_per_op),
            per_op(line.own.broadcasts_per_op),
            count(|own| own.instructions_per_op),
            count(|own| own.requester_instructions),
            count(|own| own.target_instructions),
            count(|own| own.preemption_off_instructions),
            count(|own| own.interrupts_off_instructions),
            match line.accesses_checked {
                0 => UNKNOWN.to_owned(),
                _ => number::count(line.stale),
            },
        ])
    })
}

fn torture(rows: &[Row]) -> Grid {
    let header = [
        "threads",
        "design",
        "checked",
        "interrupts",
        "emulation",
        "unmaps",
        "tables freed",
        "walks",
        "switches",
        "times off",
        "verdict",
    ];
    grid(&header, rows, |row| {
        let line = row.line.as_ref()?;
        let count = |value: Option<u64>| value.map_or(UNKNOWN.to_owned(), number::count);
        let done = |name: &str| count(line.own.done.as_ref().and_then(|done| done.get(name)?.as_u64()));
        Some(vec![
            number::count(line.accesses_checked),
            count(line.own.interrupts),
            count(line.own.emulation_interrupts),
            done("unmaps"),
            done("tables_freed"),
            done("walks"),
            done("switches"),
            done("times_off"),
            if row.is_bad() { "violation" } else { "clean" }.to_owned(),
        ])
    })
}

/// A row that failed says so, and claims nothing.
fn grid(header: &[&str], rows: &[Row], cells: impl Fn(&Row) -> Option<Vec<String>>) -> Grid {
    let mut groups: Vec<Vec<Vec<String>>> = Vec::new();
    let mut last = None;
    for row in rows {
        let first = last.replace(row.threads) != Some(row.threads);
        if first {
            groups.push(Vec::new());
        }
        let threads = if first { row.threads.to_string() } else { String::new() };
        let mut all = vec![threads, row.design.clone()];
        all.extend(cells(row).unwrap_or_else(|| {
            let mut failed = vec!["failed".to_owned()];
            failed.resize(header.len() - 2, UNKNOWN.to_owned());
            failed
        }));
        groups.last_mut().expect("begun above").push(all);
    }
    Grid {
        header: header.iter().map(ToString::to_string).collect(),
        groups,
        words: 2,
    }
}
