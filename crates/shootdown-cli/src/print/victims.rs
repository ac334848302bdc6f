//! Tables of the CPUs and threads that shootdowns interrupt, and of the system calls that sent them.

use schemars::JsonSchema;
use serde::Serialize;
use shootdown_trace::victims::{By, Group, Interruptions, Key, Victims};
use std::collections::BTreeMap;

use super::number;
use super::table::{Column, Grid};

/// Default number of rows shown.
pub const TOP: usize = 8;

/// The tables, each with its title.
pub const TABLES: [(By, &str); 3] = [
    (By::Cpu, "Interrupts by CPU that is interrupted"),
    (By::Thread, "Interrupts by thread that is interrupted"),
    (By::Call, "Interrupts by system call that sent them"),
];

/// One group, for programs.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Line {
    /// The CPU, thread or system call.
    pub of: String,
    /// Interrupts at it; of a system call, interrupts that it sent.
    pub interrupts: u64,
    /// Of these, interrupts that reached a CPU after it had left the address space.
    pub spurious: u64,
    /// The thread that sends most of them.
    pub top_sender: String,
    /// How many it sends.
    pub top_sender_interrupts: u64,
}

/// All three tables, for programs.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Lines {
    /// By the CPU that is interrupted, the most first.
    pub cpus: Vec<Line>,
    /// By the thread that is interrupted; `(idle)` is a CPU that ran none.
    pub threads: Vec<Line>,
    /// By the memory system call that sent the request, inferred from its time and pages.
    pub calls: Vec<Line>,
}

/// The tables of a recording, for programs.
pub fn lines(victims: &Victims) -> Lines {
    let of = |by| {
        let groups = victims.interruptions.grouped(by);
        let lines = groups.iter().map(|group| Line {
            of: label(victims, group.key),
            interrupts: group.count.interrupts,
            spurious: group.count.spurious,
            top_sender: victims.thread(Some(group.top_sender)),
            top_sender_interrupts: group.top_sender_interrupts,
        });
        lines.collect()
    };
    Lines {
        cpus: of(By::Cpu),
        threads: of(By::Thread),
        calls: of(By::Call),
    }
}

fn label(victims: &Victims, key: Key) -> String {
    match key {
        Key::Cpu(cpu) => format!("CPU {cpu}"),
        Key::Thread(thread) => victims.thread(thread),
        Key::Call(_) if victims.calls == 0 => "(calls not recorded)".to_string(),
        Key::Call(cause) => cause.to_string(),
    }
}

fn first_column(by: By) -> Column {
    match by {
        By::Cpu => Column::words("CPU", "the CPU that is interrupted"),
        By::Thread => Column::words(
            "thread",
            "the thread that is interrupted: its name and number; (idle) is a CPU that ran none",
        ),
        By::Call => Column::words(
            "system call",
            "the memory system call that sent the request, inferred from its time and pages; \
             the others are of page faults, fork, exec and exit",
        ),
    }
}

/// A recording's interrupts in one grouping: the `most` groups with the most of them.
pub fn recorded(victims: &Victims, by: By, most: usize) -> Grid {
    let groups = victims.interruptions.grouped(by);
    let total = victims.interruptions.total().max(1) as f64;
    let row = |group: &Group| {
        let share = group.top_sender_interrupts as f64 / group.count.interrupts.max(1) as f64;
        vec![
            label(victims, group.key),
            number::count(group.count.interrupts),
            number::percent(group.count.interrupts as f64 / total),
            number::count(group.count.spurious),
            format!(
                "{} ({})",
                victims.thread(Some(group.top_sender)),
                number::percent(share)
            ),
        ]
    };
    let columns = vec![
        first_column(by),
        Column::number("interrupts", "requests queued to other CPUs, one for each target"),
        Column::number("share", "of all of them"),
        Column::number(
            "spurious",
            "requests that reached a CPU after it had left the address space",
        ),
        Column::words(
            "most are sent by",
            "the thread that sends most of the interrupts of this row, and its share of them",
        ),
    ];
    let rows = groups.iter().take(most).map(row).collect();
    rest(Grid::new(columns, vec![rows]), groups.len(), most)
}

/// The interrupts of several replays beside each other, and those of the recording where it can be compared.
pub fn replayed(victims: &Victims, designs: &[(&str, &Interruptions)], by: By, most: usize) -> Grid {
    let mut rows: BTreeMap<Key, Vec<u64>> = BTreeMap::new();
    for (index, (_, found)) in designs.iter().enumerate() {
        for group in found.grouped(by) {
            rows.entry(group.key).or_insert_with(|| vec![0; designs.len()])[index] += group.count.interrupts;
        }
    }
    let mut rows: Vec<_> = rows.into_iter().collect();
    rows.sort_by_key(|(_, counts)| std::cmp::Reverse(counts.iter().sum::<u64>()));
    let all = rows.len();
    let of = |key| match key {
        Key::Thread(None) => "(kernel)".to_string(),
        key => label(victims, key),
    };
    let rows = rows.into_iter().take(most).map(|(key, counts)| {
        let mut cells = vec![of(key)];
        cells.extend(counts.into_iter().map(number::count));
        cells
    });
    let mut columns = vec![first_column(by)];
    columns.extend(
        designs
            .iter()
            .map(|(name, _)| Column::number(*name, "interrupts sent under this design")),
    );
    rest(Grid::new(columns, vec![rows.collect()]), all, most)
}

fn rest(grid: Grid, all: usize, most: usize) -> Grid {
    match all.saturating_sub(most) {
        0 => grid,
        1 => grid.note("and 1 other row"),
        more => grid.note(format!("and {} other rows", number::count(more as u64))),
    }
}
