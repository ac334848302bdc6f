//! `cargo xtask linux compare`: instructions and interrupts, the same kernel with its own `tlb.c` and with the engine.

use std::sync::atomic::AtomicBool;
use std::time::Instant;

use shootdown_qemu::{Emulator, Plugin};

use super::{Config, Mode, Planned, STOCK, boot, guest, packages, planned, programs};
use crate::linux_baseline::boot::{Boot, Counter};
use crate::linux_baseline::initramfs::GuestFile;
use crate::linux_baseline::spans::{self, Count, Span};
use crate::linux_baseline::table::{
    COUNT_TITLES, COUNTS_LEGEND, SPAN_TITLES, count_cells, draw, number, per_operation, ratio, span_cells,
};
use crate::workspace;

/// Virtual CPUs.
const CPUS: u32 = 2;

/// The programs, with threads or processes, and operations of the first one.
const RUNS: [(&str, u32, u64); 13] = [
    ("madvise_spin", 2, OPS),
    ("madvise_spin", 1, OPS),
    ("tlb_flush1", 2, OPS),
    ("tlb_flush2", 2, OPS),
    ("tlb_flush3", 2, OPS),
    ("mprotect_all", 2, OPS),
    ("gup", 2, OPS),
    ("page_fault", 2, OPS),
    ("mmap", 2, OPS),
    (SWITCH, 2, OPS),
    ("process_churn", 2, 200),
    ("exec", 2, 200),
    ("compile", 2, 100),
];
const OPS: u64 = 2000;

/// Two processes on one CPU, which yield it to each other.
const SWITCH: &str = "switch";

/// Each program runs so often in a boot. The rows are medians of instructions and means of interrupts: now and then the
/// other CPU works for the kernel during a run, and rare interrupts are in few of them.
const TIMES: usize = 3;

/// Programs whose threads sleep for a lock run so often: which CPU is idle while another flushes differs from run to
/// run, and so does the number of interrupts.
const TIMES_ASLEEP: usize = 12;

/// Runs of the program `name` in a boot.
fn times(name: &str) -> usize {
    if name.starts_with("tlb_flush") {
        TIMES_ASLEEP
    } else {
        TIMES
    }
}

/// Stands for a missing figure.
const NONE: &str = "–";

/// The goals of this project, as shares of what Linux takes: of `ipi` and of other designs at the requester and at the
/// target, and of a flush with no other CPU.
const GOALS: [(f64, f64); 2] = [(0.6, 0.6), (0.8, 0.6)];
const GOAL_ALONE: f64 = 0.9;
const GOAL_SWITCH: f64 = 1.0;

/// Prints the tables.
///
/// # Errors
/// When a boot fails or a read is stale.
pub fn run(designs: &[String], end: Instant) -> Result<(), String> {
    let programs = programs(end)?;
    let qemu = Emulator::find()?.version;
    let folder = workspace::built().join("linux-baseline");
    let plugin = Plugin::build(&workspace::root(), qemu, &folder, &AtomicBool::new(false))?;
    let round = |number: usize| RUNS.into_iter().filter(move |(name, ..)| number < times(name));
    let plan: Vec<Planned> = (0..TIMES_ASLEEP)
        .flat_map(round)
        .map(|(name, threads, ops)| planned(name, threads, ops))
        .collect();
    let files = compiler(end)?;
    let mut counts = Vec::new();
    println!("QEMU {qemu}, {CPUS} virtual CPUs in turns, by a count of instructions");
    for name in std::iter::once(STOCK).chain(designs.iter().map(String::as_str)) {
        let guest = guest(name, &Config::read(None)?, end)?;
        let found = boot(&guest, &programs, &[], CPUS, Mode::Turns(None), "", end)?;
        println!("  {name}: {} ({})", found.kernel, guest.origin);
        let mut spans = guest.spans(&found.symbols, end)?;
        spans.extend(spans::further(&found.symbols)?);
        let mode = Mode::Turns(Some(Counter {
            plugin: &plugin,
            spans: &spans,
        }));
        let report = super::run_boot(
            &Boot {
                guest: &guest,
                programs: &programs,
                plan: &plan,
                cpus: CPUS,
                mode,
                may_fail: false,
                words: "",
                files: &files,
                machine: &[],
            },
            super::LIMIT,
            end,
        )?;
        counts.extend(summed_up(spans::counts(name, &report, &plugin)?));
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
    print!(
        "\nInstructions of a switch between two address spaces ({SWITCH}, 2 processes on one CPU)\n{}",
        switches(&counts)
    );
    print!(
        "\nInterrupts masked: instructions from CLI to the next STI, IRET or SYSRET, one run each\n{}",
        masked(&counts)
    );
    Ok(())
}

/// One row for each program and kernel.
fn operations(counts: &[Count]) -> String {
    let of = |run: &(&str, u32, u64)| {
        let all: Vec<&Count> = counts.iter().filter(|count| is(count, *run)).collect();
        all.iter()
            .map(|count| count_cells(count, Some(all[0])).to_vec())
            .collect::<Vec<_>>()
    };
    let titles = [&["kernel"], &COUNT_TITLES[..]].concat();
    let means =
        format!("{TIMES} runs each, {TIMES_ASLEEP} of tlb_flush1, 2, 3: median instructions, mean interrupts\n");
    draw(&titles, 1, RUNS.iter().flat_map(of).collect()) + &means + COUNTS_LEGEND
}

/// The compiler of the program `compile`, and what it compiles.
fn compiler(end: Instant) -> Result<Vec<GuestFile>, String> {
    let mut files = packages::program("tcc", "usr/bin/tcc", end)?;
    files.push(GuestFile {
        path: "usr/src/compiled.c".into(),
        from: workspace::root().join("linux/compiled.c"),
    });
    Ok(files)
}

/// One count for each run of [`RUNS`] of those that were repeated. The spans are those of the first.
fn summed_up(all: Vec<Count>) -> Vec<Count> {
    let (first, others) = all.split_at(RUNS.len().min(all.len()));
    let mean = |count: &Count| {
        let same = others
            .iter()
            .filter(|other| other.workload == count.workload && other.threads == count.threads);
        let same: Vec<&Count> = same.chain([count]).collect();
        let mut instructions: Vec<f64> = same.iter().map(|count| count.instructions_per_op).collect();
        instructions.sort_by(f64::total_cmp);
        let mean = |part: fn(&Count) -> f64| same.iter().map(|count| part(count)).sum::<f64>() / same.len() as f64;
        Count {
            instructions_per_op: instructions[instructions.len() / 2],
            interrupts_per_op: mean(|count| count.interrupts_per_op),
            ..count.clone()
        }
    };
    first.iter().map(mean).collect()
}

fn is(count: &Count, (workload, threads, _): (&str, u32, u64)) -> bool {
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

fn switches(counts: &[Count]) -> String {
    let all: Vec<&Count> = counts.iter().filter(|count| count.workload == SWITCH).collect();
    let rows = all.iter().filter_map(|count| {
        let (span, stock) = (count.switch.as_ref()?, all[0].switch.as_ref()?);
        Some(span_row(count, "switch", span, stock, GOAL_SWITCH))
    });
    draw_spans(rows.collect())
}

/// One row for each program and kernel: sections with interrupts masked.
fn masked(counts: &[Count]) -> String {
    let row = |count: &Count| {
        let span = count.masked.as_ref()?;
        let mut cells = vec![format!("{}, {}", count.workload, count.threads), count.kernel.clone()];
        cells.push(per_operation(span.times as f64 / count.ops as f64));
        cells.extend([span.median, span.most].map(|count| number(count as f64)));
        cells.push(number(span.mean * span.times as f64 / count.ops as f64));
        Some(cells)
    };
    let titles = ["kernel", "times/op", "median", "most", "instructions/op"];
    let of = |run: &(&str, u32, u64)| {
        counts
            .iter()
            .filter(|count| is(count, *run))
            .filter_map(row)
            .collect::<Vec<_>>()
    };
    draw(&titles, 1, RUNS.iter().flat_map(of).collect())
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
