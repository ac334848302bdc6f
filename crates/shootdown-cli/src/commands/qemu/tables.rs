//! The table of `shootdown qemu`, and its notes.

use shootdown_qemu::{Clock, Version};

use super::grid::grid;
use super::reading::Row;
use super::{Plan, TORTURE, instruction_set, operations};
use crate::comparison::kernel_counts::KernelCounts;
use crate::print::number::{self, UNKNOWN};
use crate::print::table::{Column, Grid, Tables};

/// The text.
pub(super) struct Report {
    /// The runs and their target.
    pub head: String,
    /// The numbers.
    pub grid: Grid,
    /// The instructions of a shootdown.
    pub operations: Option<Grid>,
    /// How to read them.
    pub notes: Vec<String>,
    /// Whether the numbers can be trusted.
    pub verdict: Vec<String>,
}

impl Report {
    /// For a terminal.
    pub fn text(&self) -> String {
        let lines: String = self
            .notes
            .iter()
            .chain(&self.verdict)
            .map(|line| format!("{line}\n"))
            .collect();
        let mut tables = Tables::new();
        let grids = [Some(&self.grid), self.operations.as_ref()];
        let drawn: String = grids.into_iter().flatten().map(|grid| tables.draw(grid)).collect();
        format!("{}\n{drawn}{lines}", self.head)
    }
}

/// All of it.
pub(super) fn report(
    plan: &Plan,
    emulator: Version,
    rows: &[Row],
    control: Option<&Row>,
    counted: Option<String>,
) -> Report {
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
    Report {
        head: format!(
            "{} on the bare-metal kernel ({}), {} in QEMU {} ({how}), seed {}",
            plan.workload,
            plan.arch.name(),
            number::counted(plan.machine.cpus, "CPU"),
            emulator,
            plan.seed,
        ),
        grid,
        operations: operations::table(rows),
        notes: notes(plan, rows).into_iter().chain(counted).collect(),
        verdict: verdict(rows, control),
    }
}

fn notes(plan: &Plan, rows: &[Row]) -> Vec<String> {
    let mut notes = Vec::new();
    if matches!(plan.machine.clock, Clock::Counted { .. }) && plan.workload != TORTURE {
        notes.push(
            "instructions: of all CPUs for an operation, of the requester for a flush, of a target for an interrupt; \
             longest stretches without preemption and without interrupts, of their own CPU. \
             Rates are by the guest's clock: emulated CPUs take turns, so they are no machine's"
                .to_owned(),
        );
    }
    let lines = rows.iter().filter_map(|row| row.line.as_ref());
    match lines.map(|line| line.own.broadcast.as_str()).next_back() {
        Some("emulated") => notes.push(
            "broadcast: EMULATED, by interrupts in the handler of invalid opcodes: this processor has no INVLPGB"
                .into(),
        ),
        Some("hardware") => notes.push(format!(
            "broadcast: {} of the processor",
            instruction_set::broadcast(plan.arch)
        )),
        Some("firmware") => notes.push("broadcast: remote fences of OpenSBI, which interrupts each hart".into()),
        _ => {}
    }
    notes
}

fn verdict(rows: &[Row], control: Option<&Row>) -> Vec<String> {
    let mut verdict = Vec::new();
    for row in rows.iter().filter(|row| row.is_bad()) {
        let why = row.problem.as_deref().unwrap_or_default();
        verdict.push(format!(
            "{} on {} failed: {why}",
            row.design,
            number::threads(row.threads as usize)
        ));
    }
    let lines = || rows.iter().filter_map(|row| row.line.as_ref());
    let checked: u64 = lines().map(|line| line.accesses_checked).sum();
    let stale: u64 = lines().map(|line| line.stale).sum();
    let caught = rows.iter().filter(|row| row.is_caught() && row.line.is_none()).count() as u64;
    verdict.push(match checked {
        0 if caught == 0 => "stale translations: this workload looks at none; torture does".to_owned(),
        _ => format!(
            "stale translations: {} in {} checked accesses",
            number::count(stale + caught),
            number::count(checked)
        ),
    });
    if let Some(control) = control {
        verdict.push(match (control.is_caught(), &control.line) {
            (true, Some(seen)) => format!(
                "control: `none` on tlb_flush2 caught: {} of {} accesses stale",
                number::count(seen.stale),
                number::count(seen.accesses_checked)
            ),
            _ => "control: `none` on tlb_flush2 was NOT caught, so a count of 0 means nothing".to_owned(),
        });
    }
    verdict
}

fn workload(rows: &[Row]) -> Grid {
    let columns = vec![
        Column::number(
            "ops/s",
            "operations per second by the guest's clock, all threads together",
        ),
        Column::number("IPIs per op", "shootdown interrupts sent"),
        Column::number("taken per op", "interrupts taken; several requests can share one").optional(6),
        Column::number(
            "broadcasts per op",
            "broadcasts of the engine: INVLPGB, TLBI or remote fences",
        )
        .optional(2),
        Column::number("instr. per op", "instructions of all CPUs for one operation"),
        Column::number("flush, requester", "instructions of the requesting CPU for one flush"),
        Column::number("flush, target", "instructions of a target CPU for one interrupt"),
        Column::number(
            "longest no preempt.",
            "longest stretch without preemption, in instructions of its CPU",
        )
        .optional(3),
        Column::number(
            "longest no interr.",
            "longest stretch without interrupts, in instructions of its CPU",
        )
        .optional(4),
        Column::number(
            "stale",
            "accesses through a translation that should have been invalidated",
        )
        .optional(5),
    ];
    grid(columns, rows, |row| {
        let line = row.line.as_ref()?;
        let per_op = |value: Option<f64>| value.map_or(UNKNOWN.to_owned(), number::per_operation);
        let count = |of: fn(&KernelCounts) -> Option<f64>| {
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
    let columns = vec![
        Column::number("checked accesses", "accesses that the oracle checked"),
        Column::number("interrupts", "shootdown interrupts taken"),
        Column::number("emulation", "interrupts of the emulated broadcast").optional(6),
        Column::number("unmaps", "ranges unmapped").optional(1),
        Column::number("tables freed", "page-table pages freed").optional(2),
        Column::number("forks", "spaces copied").optional(3),
        Column::number("walks", "lockless page-table walks").optional(4),
        Column::number("switches", "switches between spaces").optional(5),
        Column::number("times off", "times that a CPU went offline").optional(7),
        Column::words("verdict", "whether the oracle found a violation"),
    ];
    grid(columns, rows, |row| {
        let line = row.line.as_ref()?;
        let count = |value: Option<u64>| value.map_or(UNKNOWN.to_owned(), number::count);
        let done = |name: &str| count(line.own.done.as_ref().and_then(|done| done.get(name)?.as_u64()));
        Some(vec![
            number::count(line.accesses_checked),
            count(line.own.interrupts),
            count(line.own.emulation_interrupts),
            done("unmaps"),
            done("tables_freed"),
            done("forks"),
            done("walks"),
            done("switches"),
            done("times_off"),
            if row.is_bad() { "violation" } else { "clean" }.to_owned(),
        ])
    })
}
