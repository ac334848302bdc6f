//! `cargo xtask linux compare`: instructions and interrupts, the same kernel with its own `tlb.c` and with the engine.

use std::sync::atomic::AtomicBool;
use std::time::Instant;

use shootdown_qemu::{Emulator, Plugin};

use super::{Mode, STOCK, boot, guest, planned, programs};
use crate::linux_baseline::boot::Counter;
use crate::linux_baseline::spans::{self, Count, Span};
use crate::linux_baseline::table::{COUNT_TITLES, COUNTS_LEGEND, SPAN_TITLES, count_cells, draw, ratio, span_cells};
use crate::workspace;

/// Virtual CPUs.
const CPUS: u32 = 2;

/// The programs, with threads.
const RUNS: [(&str, u32); 9] = [
    ("madvise_spin", 2),
    ("madvise_spin", 1),
    ("tlb_flush1", 2),
    ("tlb_flush2", 2),
    ("tlb_flush3", 2),
    ("mprotect_all", 2),
    ("gup", 2),
    ("page_fault", 2),
    ("mmap", 2),
];

/// Operations of the first thread.
const OPS: u64 = 2000;

/// Stands for a missing figure.
const NONE: &str = "–";

/// The goals of this project, as shares of what Linux takes: of `ipi` and of other designs at the requester and at the
/// target, and of a flush with no other CPU.
const GOALS: [(f64, f64); 2] = [(0.6, 0.6), (0.8, 0.6)];
const GOAL_ALONE: f64 = 0.9;

/// Prints the tables.
///
/// # Errors
/// When a boot fails or a read is stale.
pub fn run(designs: &[String], end: Instant) -> Result<(), String> {
    let programs = programs(end)?;
    let qemu = Emulator::find()?.version;
    let folder = workspace::built().join("linux-baseline");
    let plugin = Plugin::build(&workspace::root(), qemu, &folder, &AtomicBool::new(false))?;
    let plan = RUNS.map(|(name, threads)| planned(name, threads, OPS));
    let mut counts = Vec::new();
    println!("QEMU {qemu}, {CPUS} virtual CPUs in turns, by a count of instructions");
    for name in std::iter::once(STOCK).chain(designs.iter().map(String::as_str)) {
        let guest = guest(name, end)?;
        let found = boot(&guest, &programs, &[], CPUS, Mode::Turns(None), "", end)?;
        println!("  {name}: {} ({})", found.kernel, guest.origin);
        let spans = guest.spans(&found.symbols, end)?;
        let mode = Mode::Turns(Some(Counter {
            plugin: &plugin,
            spans: &spans,
        }));
        let report = boot(&guest, &programs, &plan, CPUS, mode, "", end)?;
        counts.extend(spans::counts(name, &report, &plugin)?);
    }
    print!("\n{}", operations(&counts));
    print!(
        "\nInstructions of a shootdown (madvise_spin, 2 threads)\n{}",
        shootdowns(&counts)
    );
    print!(
        "\nInstructions of a flush with no other CPU (madvise_spin, 1 thread)\n{}",
        alone(&counts)
    );
    Ok(())
}

/// One row for each program and kernel.
fn operations(counts: &[Count]) -> String {
    let of = |run: &(&str, u32)| {
        let all: Vec<&Count> = counts.iter().filter(|count| is(count, *run)).collect();
        all.iter()
            .map(|count| count_cells(count, Some(all[0])).to_vec())
            .collect::<Vec<_>>()
    };
    let titles = [&["kernel"], &COUNT_TITLES[..]].concat();
    draw(&titles, 1, RUNS.iter().flat_map(of).collect()) + COUNTS_LEGEND
}

fn is(count: &Count, (workload, threads): (&str, u32)) -> bool {
    count.workload == workload && count.threads == threads
}

fn shootdowns(counts: &[Count]) -> String {
    let all: Vec<&Count> = counts.iter().filter(|count| is(count, RUNS[0])).collect();
    let row = |count: &Count, side: &str, of: fn(&Count) -> Option<&Span>, most: f64| {
        let (span, stock) = (of(count)?, of(all[0])?);
        Some(span_row(count, side, span, stock, most))
    };
    let rows = all.iter().flat_map(|count| {
        let (requester, target) = GOALS[usize::from(count.kernel != "ipi")];
        [
            row(count, "requester", |count| count.requester.as_ref(), requester),
            row(count, "target", |count| count.target.as_ref(), target),
        ]
    });
    let rows: Vec<Vec<String>> = rows.flatten().collect();
    draw_spans(rows)
}

fn alone(counts: &[Count]) -> String {
    let all: Vec<&Count> = counts.iter().filter(|count| is(count, RUNS[1])).collect();
    let rows = all.iter().filter_map(|count| {
        let (span, stock) = (count.requester.as_ref()?, all[0].requester.as_ref()?);
        Some(span_row(count, "requester", span, stock, GOAL_ALONE))
    });
    draw_spans(rows.collect())
}

fn draw_spans(rows: Vec<Vec<String>>) -> String {
    draw(&[&SPAN_TITLES[..], &["of\nLinux", "goal"]].concat(), 1, rows)
}

fn span_row(count: &Count, side: &str, span: &Span, stock: &Span, most: f64) -> Vec<String> {
    let share = span.median as f64 / stock.median as f64;
    let verdict = match count.kernel.as_str() {
        STOCK => NONE.into(),
        _ if share <= most => format!("{most}: met"),
        _ => format!("{most}: missed"),
    };
    let mut cells = vec![count.kernel.clone(), side.into()];
    cells.extend(span_cells(span));
    cells.push(ratio(span.median as f64, stock.median as f64));
    cells.push(verdict);
    cells
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ipi_has_a_stricter_goal_than_other_designs() {
        let text = shootdowns(&[
            Count::example(STOCK, 1000, 100),
            Count::example("ipi", 700, 60),
            Count::example("adaptive", 700, 61),
        ]);
        let verdicts: Vec<&str> = text.lines().filter_map(|line| line.split(' ').next_back()).collect();
        let verdicts: Vec<_> = verdicts
            .into_iter()
            .filter(|word| ["met", "missed"].contains(word))
            .collect();
        assert_eq!(verdicts, ["missed", "met", "met", "missed"], "{text}");
    }
}
