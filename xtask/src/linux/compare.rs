//! `cargo xtask linux compare`: the same kernel with its own `tlb.c` and with the engine: instructions, interrupts and
//! rates.

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use clap::ValueEnum;
use shootdown_qemu::{Emulator, Plugin};

use super::asleep::{self, Interrupts};
use super::{Config, Guest, Mode, Planned, Report, STOCK, guest, packages, planned, programs};
use crate::linux_baseline::boot::{Boot, Counter};
use crate::linux_baseline::initramfs::GuestFile;
use crate::linux_baseline::rate::{self, Host};
use crate::linux_baseline::spans::{self, Count, Span};
use crate::linux_baseline::table::{
    COUNT_TITLES, COUNTS_LEGEND, SPAN_TITLES, count_cells, draw, number, of_threads, per_operation, rates, ratio,
    span_cells,
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

/// Rates: seconds of each run, and how often all are run.
const SECONDS: f64 = 0.5;
const ROUNDS: usize = 5;

/// The configuration of kernels that may preempt themselves.
const PREEMPT: &str = "preempt";

const SECTIONS_LEGEND: &str = "with waiting: in how many of these times a CPU waited for another; waiting, and\n\
                               shootdown interrupts that came in between, are not in the instructions\n";

/// Stands for a missing figure.
const NONE: &str = "–";

/// The goals of this project, as shares of what Linux takes: of `ipi` and of other designs at the requester and at the
/// target, and of a flush with no other CPU.
const GOALS: [(f64, f64); 2] = [(0.6, 0.6), (0.8, 0.6)];
const GOAL_ALONE: f64 = 0.9;
const GOAL_SWITCH: f64 = 1.0;

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// Instructions and interrupts, CPUs in turns
    Counts,
    /// Operations per second, CPUs in parallel
    Rates,
    /// Instructions with preemption off, of kernels that may preempt themselves
    Preemption,
}

/// What the boots have in common.
struct Bench<'a> {
    designs: &'a [String],
    programs: PathBuf,
    files: Vec<GuestFile>,
    end: Instant,
}

/// Prints the tables; of one part if it is named.
///
/// # Errors
/// When a boot fails or a read is stale.
pub fn run(designs: &[String], only: Option<Part>, end: Instant) -> Result<(), String> {
    let bench = Bench {
        designs,
        programs: programs(end)?,
        files: compiler(end)?,
        end,
    };
    let qemu = Emulator::find()?.version;
    let folder = workspace::built().join("linux-baseline");
    let plugin = Plugin::build(&workspace::root(), qemu, &folder, &AtomicBool::new(false))?;
    println!("QEMU {qemu}, {CPUS} virtual CPUs");
    let wants = |part| only.is_none_or(|only| only == part);
    if wants(Part::Counts) {
        print!("{}", counted(&bench, &plugin)?);
    }
    if wants(Part::Rates) {
        print!("{}", bench.rates()?);
    }
    if wants(Part::Preemption) {
        print!("{}", bench.unpreemptible(&plugin)?);
    }
    Ok(())
}

impl Bench<'_> {
    /// The kernels, built.
    fn guests(&self, config: Option<&str>) -> Result<Vec<Guest>, String> {
        let config = Config::read(config)?;
        let names = std::iter::once(STOCK).chain(self.designs.iter().map(String::as_str));
        names.map(|name| guest(name, &config, self.end)).collect()
    }

    fn boot(&self, guest: &Guest, plan: &[Planned], mode: Mode) -> Result<Report, String> {
        let boot = Boot {
            guest,
            programs: &self.programs,
            plan,
            cpus: CPUS,
            mode,
            may_fail: false,
            words: "",
            files: &self.files,
            machine: &[],
        };
        super::run_boot(&boot, super::LIMIT, self.end)
    }

    /// The counts of each kernel in the configuration, program by program.
    fn counts(&self, config: Option<&str>, plan: &[Planned], plugin: &Plugin) -> Result<Vec<Vec<Count>>, String> {
        let each = |guest: &Guest| {
            let found = self.boot(guest, &[], Mode::Turns(None))?;
            println!("  {}: {} ({})", guest.name, found.kernel, guest.origin);
            let mut spans = guest.spans(&found.symbols, self.end)?;
            spans.extend(spans::further(&found.symbols)?);
            let spans = &spans;
            let report = self.boot(guest, plan, Mode::Turns(Some(Counter { plugin, spans })))?;
            spans::counts(&guest.name, &report, plugin)
        };
        self.guests(config)?.iter().map(each).collect()
    }

    /// Interrupts of programs whose threads sleep, on each kernel.
    fn asleep(&self) -> Result<Vec<Interrupts>, String> {
        let plan = asleep::plan();
        let each = |guest: &Guest| {
            let report = self.boot(guest, &plan, Mode::Turns(None))?;
            Ok(asleep::of(&guest.name, &report))
        };
        let all: Result<Vec<_>, String> = self.guests(None)?.iter().map(each).collect();
        Ok(all?.concat())
    }

    /// Operations per second: one kernel after the other in each round, so that changes of the host's load affect all.
    fn rates(&self) -> Result<String, String> {
        let (guests, host) = (self.guests(None)?, Host::now());
        let plan = RUNS.map(|(name, threads, _)| Planned {
            workload: name.into(),
            threads,
            arguments: format!("{threads} --seconds {SECONDS}"),
        });
        let mut reports: Vec<Vec<Report>> = guests.iter().map(|_| Vec::new()).collect();
        for round in 1..=ROUNDS {
            for (guest, reports) in guests.iter().zip(&mut reports) {
                eprintln!("== rates, {}, round {round} of {ROUNDS}", guest.name);
                reports.push(self.boot(guest, &plan, Mode::Parallel)?);
            }
        }
        Ok(rates(&rate::of(&guests, &reports, &plan), &host, CPUS))
    }

    fn unpreemptible(&self, plugin: &Plugin) -> Result<String, String> {
        let plan = RUNS.map(|(name, threads, ops)| planned(name, threads, ops));
        println!("\nPreemptible kernels, CPUs in turns");
        let counts = self.counts(Some(PREEMPT), &plan, plugin)?.concat();
        let without = |count: &&Count| count.unpreemptible.is_none();
        if let Some(count) = counts.iter().find(without) {
            return Err(format!(
                "{}: no section with preemption off was counted in {}; linux/config.{PREEMPT} must set \
                 CONFIG_KALLSYMS_ALL",
                count.kernel, count.workload
            ));
        }
        Ok(format!(
            "\nPreemption off: instructions while preempt_count is not zero, one run each\n{}",
            sections(&counts, |count| count.unpreemptible.as_ref())
        ))
    }
}

/// The tables of instructions and interrupts.
fn counted(bench: &Bench, plugin: &Plugin) -> Result<String, String> {
    let round = RUNS.map(|(name, threads, ops)| planned(name, threads, ops));
    let plan: Vec<Planned> = (0..TIMES).flat_map(|_| round.clone()).collect();
    println!("\nCPUs in turns, by a count of instructions");
    let counts = bench.counts(None, &plan, plugin)?.into_iter();
    let mut counts: Vec<Count> = counts.flat_map(summed_up).collect();
    let asleep = bench.asleep()?;
    for count in &mut counts {
        let same = |found: &&Interrupts| found.is(&count.kernel, &count.workload);
        if let Some(found) = asleep.iter().find(same) {
            count.interrupts_per_op = found.mean;
        }
    }
    Ok([
        format!("\n{}", operations(&counts)),
        format!("\n{}", asleep::table(&asleep)),
        format!(
            "\nInstructions of a shootdown (madvise_spin, 2 threads)\n{}",
            shootdowns(&counts)
        ),
        format!(
            "\nInstructions of a flush with no other CPU (madvise_spin, 1 thread)\n{}",
            alone(&counts)
        ),
        format!(
            "\nInstructions of a switch of address spaces ({SWITCH}, 2 processes on one CPU)\n{}",
            switches(&counts)
        ),
        format!(
            "\nInterrupts masked: instructions from CLI to STI, IRET or SYSRET, one run each\n{}",
            sections(&counts, |count| count.masked.as_ref())
        ),
    ]
    .concat())
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
    let means = format!("{TIMES} runs each: median instructions, mean interrupts; tlb_flush1, 2, 3: see below\n");
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

/// One row for each program and kernel: sections with interrupts masked, or with preemption off.
fn sections(counts: &[Count], of: fn(&Count) -> Option<&Span>) -> String {
    let row = |count: &Count| {
        let span = of(count)?;
        let per_op = |amount: f64| amount / count.ops as f64;
        let mut cells = vec![of_threads(&count.workload, count.threads), count.kernel.clone()];
        cells.push(per_operation(per_op(span.times as f64)));
        cells.push(per_operation(per_op(span.waits as f64)));
        cells.extend([span.median, span.most].map(|count| number(count as f64)));
        cells.push(number(per_op(span.mean * span.times as f64)));
        Some(cells)
    };
    let titles = [
        "kernel",
        "times/op",
        "with waiting",
        "median",
        "most",
        "instructions/op",
    ];
    let of = |run: &(&str, u32, u64)| {
        let same = counts.iter().filter(|count| is(count, *run));
        same.filter_map(row).collect::<Vec<_>>()
    };
    draw(&titles, 1, RUNS.iter().flat_map(of).collect()) + SECTIONS_LEGEND
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

    #[test]
    fn sections_are_counted_for_an_operation() {
        let mut count = Count::example("ipi", 1, 1);
        count.unpreemptible = Some(Span {
            times: 6000,
            waits: 1000,
            mean: 50.0,
            most: 9_999,
            ..count.requester.clone().unwrap()
        });
        let text = sections(&[Count::example(STOCK, 1, 1), count], |count| {
            count.unpreemptible.as_ref()
        });
        let row: Vec<&str> = text
            .lines()
            .find(|line| line.contains("ipi"))
            .unwrap()
            .split_whitespace()
            .collect();
        assert_eq!(row, ["ipi", "3.00", "0.50", "1", "9,999", "150"], "{text}");
        assert!(
            !text.contains(STOCK) && text.lines().all(|line| line.chars().count() <= 80),
            "{text}"
        );
    }
}
