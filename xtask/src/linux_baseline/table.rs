//! The results as tables.

use comfy_table::{Cell, CellAlignment, Table, presets};

use super::spans::{Count, Span};
use super::{Findings, Rate};

/// Stands for a missing figure.
const NONE: &str = "–";
/// The reference of the comparison.
const LINUX: &str = "Linux";

/// What the columns of [`count_cells`] mean.
pub const COUNTS_LEGEND: &str = "requester: instructions of a flush on the CPU that asks for it, target: \
                                 of the interrupt that it causes; medians, without waiting\n";

/// All tables; every line ends with a newline.
pub(super) fn text(findings: &Findings) -> String {
    let Findings {
        qemu,
        arch,
        kernels,
        cpus,
        ..
    } = findings;
    let mut text = format!("QEMU {qemu}, {arch}, {cpus} virtual CPUs\n");
    for kernel in kernels {
        text += &format!("  {kernel}\n");
    }
    if !findings.rates.is_empty() {
        let runs = findings.rates.iter().map(|rate| rate.runs).max().unwrap_or(1);
        text += &format!("\nCPUs in parallel: median of {runs} runs\n");
        let header = [
            "workload",
            "threads",
            "kernel",
            "ops/s",
            "least",
            "most",
            "of Linux",
            "interrupts/op",
        ];
        text += &draw(
            &header,
            3,
            findings
                .rates
                .iter()
                .map(|rate| rate_row(rate, &findings.rates))
                .collect(),
        );
        if let Some(load) = findings.host_load {
            let host = findings.host_cpus;
            if load + f64::from(*cpus) > host as f64 + 0.5 {
                text += &format!(
                    "The host was busy ({load:.1} of its {host} CPUs before this began): \
                     these rates are far too low, most so where CPUs wait for each other.\n"
                );
            }
        }
    }
    if !findings.counts.is_empty() {
        text += "\nCPUs in turns, by a count of instructions, which depends little on the host\n";
        let header = [
            "workload",
            "threads",
            "kernel",
            "ops",
            "instructions/op",
            "of Linux",
            "interrupts/op",
            "requester",
            "target",
        ];
        text += &draw(
            &header,
            3,
            findings
                .counts
                .iter()
                .map(|count| count_row(count, &findings.counts))
                .collect(),
        );
        text += COUNTS_LEGEND;
        text += &operations(&findings.counts);
        text += &gate(&findings.counts);
    }
    text
}

/// How often each instruction of a shootdown was executed, by the plugin.
fn operations(counts: &[Count]) -> String {
    let names: Vec<&String> = counts
        .first()
        .map_or(Vec::new(), |count| count.operations.keys().collect());
    let firmware = counts.iter().any(|count| count.firmware_per_op > 0.0);
    let row = |count: &Count| {
        let each = names
            .iter()
            .map(|name| per_operation(count.operations.get(*name).copied().unwrap_or(0.0)));
        let firmware = firmware.then(|| number(count.firmware_per_op));
        let first = [count.workload.clone(), count.threads.to_string(), count.kernel.clone()];
        first.into_iter().chain(each).chain(firmware).collect()
    };
    let titles = names
        .iter()
        .map(|name| name.as_str())
        .chain(firmware.then_some("machine mode"));
    let header: Vec<&str> = ["workload", "threads", "kernel"].into_iter().chain(titles).collect();
    let legend = if firmware {
        "machine mode: instructions of OpenSBI for an operation, which the other counts do not have\n"
    } else {
        ""
    };
    format!(
        "\nExecuted for an operation, on all CPUs, as QEMU's plugin counts them\n{}{legend}",
        draw(&header, 3, counts.iter().map(row).collect())
    )
}

/// The instructions of a shootdown, and the goal for this kernel.
fn gate(counts: &[Count]) -> String {
    let shootdown = |count: &&Count| {
        let counted = count.requester.is_some() || count.barriers.is_some();
        count.workload == "madvise_spin" && count.threads > 1 && counted
    };
    let rows: Vec<&Count> = counts.iter().filter(shootdown).collect();
    if rows.is_empty() {
        return String::new();
    }
    let linux = rows.iter().find(|count| count.kernel == LINUX);
    let row = |count: &Count, side: &str, of: fn(&Count) -> Option<&Span>| -> Option<Vec<String>> {
        let (span, reference) = (of(count)?, linux.and_then(|linux| of(linux)));
        let verdict = match (count.kernel.as_str(), reference) {
            (LINUX, _) | (_, None) => NONE,
            (_, Some(reference)) if span.median * 2 <= reference.median => "met",
            _ => "missed",
        };
        let mut cells = vec![count.threads.to_string(), count.kernel.clone(), side.into()];
        cells.extend(span_cells(span));
        cells.push(format!("{:.1}", span.waiting));
        cells.push(format!("{:.1}", span.firmware));
        cells.push(reference.map_or(NONE.into(), |reference| {
            ratio(span.median as f64, reference.median as f64)
        }));
        cells.push(verdict.into());
        Some(cells)
    };
    let sides = rows.iter().flat_map(|count| {
        let requester = row(count, "requester", |count| count.requester.as_ref());
        let barriers = row(count, "barriers", |count| count.barriers.as_ref());
        [requester, barriers, row(count, "target", |count| count.target.as_ref())]
    });
    let header = [
        "threads",
        "kernel",
        "side",
        "CPU",
        "times",
        "median",
        "least",
        "most",
        "mean",
        "waiting",
        "machine mode",
        "of Linux",
        "at most half",
    ];
    format!(
        "\nInstructions of a shootdown (madvise_spin)\n{}{}",
        draw(&header, 3, sides.flatten().collect()),
        if rows.iter().any(|count| count.barriers.is_some()) {
            "barriers: from the DSB before a broadcast TLBI to the one \
             behind it; Linux's flush has no function on Arm\n"
        } else {
            ""
        }
    )
}

/// The CPU of a span, its times, and its median, least, most and mean instructions.
pub fn span_cells(span: &Span) -> [String; 6] {
    let whole = [u64::from(span.cpu), span.times, span.median, span.least, span.most];
    let [cpu, times, median, least, most] = whole.map(|value| value.to_string());
    [cpu, times, median, least, most, format!("{:.1}", span.mean)]
}

fn rate_row(rate: &Rate, all: &[Rate]) -> Vec<String> {
    let linux = all
        .iter()
        .find(|other| other.kernel == LINUX && other.workload == rate.workload && other.threads == rate.threads);
    vec![
        rate.workload.clone(),
        rate.threads.to_string(),
        rate.kernel.clone(),
        number(rate.ops_per_s),
        number(rate.ops_per_s_least),
        number(rate.ops_per_s_most),
        linux.map_or(NONE.into(), |linux| ratio(rate.ops_per_s, linux.ops_per_s)),
        per_operation(rate.interrupts_per_op),
    ]
}

fn count_row(count: &Count, all: &[Count]) -> Vec<String> {
    let linux = all
        .iter()
        .find(|other| other.kernel == LINUX && other.workload == count.workload && other.threads == count.threads);
    let mut cells = count_cells(count, linux).to_vec();
    // Behind workload, threads and kernel.
    cells.insert(3, number(count.ops as f64));
    cells
}

/// Workload, threads, kernel, instructions for an operation and as a multiple of the reference's, interrupts, medians
/// of requester and target.
pub fn count_cells(count: &Count, reference: Option<&Count>) -> [String; 8] {
    let median = |span: &Option<Span>| span.as_ref().map_or(NONE.into(), |span| number(span.median as f64));
    [
        count.workload.clone(),
        count.threads.to_string(),
        count.kernel.clone(),
        number(count.instructions_per_op),
        reference.map_or(NONE.into(), |reference| {
            ratio(count.instructions_per_op, reference.instructions_per_op)
        }),
        per_operation(count.interrupts_per_op),
        median(&count.requester),
        median(&count.target),
    ]
}

/// One as a multiple of the other.
pub fn ratio(value: f64, of: f64) -> String {
    format!("{:.2}x", value / of)
}

/// Rows under a header, the first `words` columns words, the others numbers. Equal cells of the first two columns are
/// not repeated; a line is drawn where the first changes.
pub fn draw(header: &[&str], words: usize, rows: Vec<Vec<String>>) -> String {
    let cells = |row: Vec<String>| -> Vec<Cell> {
        let alignment = |index| {
            if index < words {
                CellAlignment::Left
            } else {
                CellAlignment::Right
            }
        };
        let cells = row.into_iter().enumerate();
        cells
            .map(|(index, text)| Cell::new(text).set_alignment(alignment(index)))
            .collect()
    };
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(cells(header.iter().map(|title| title.to_string()).collect()));
    let mut begins = Vec::new();
    for (index, row) in rows.iter().enumerate() {
        let above = index.checked_sub(1).map(|above| &rows[above]);
        let same = |columns: usize| above.is_some_and(|above| above[..columns] == row[..columns]);
        begins.push(!same(1));
        let mut shown = row.clone();
        for columns in 1..=2 {
            if same(columns) {
                shown[columns - 1].clear();
            }
        }
        table.add_row(cells(shown));
    }
    let mut lines = table.lines().map(|line| line.trim_end().to_string());
    let header = lines.next().unwrap_or_default();
    let rule = "─".repeat(header.chars().count());
    let mut text = format!("{header}\n");
    for (line, begins) in lines.zip(begins) {
        if begins {
            text += &format!("{rule}\n");
        }
        text += &format!("{line}\n");
    }
    text + &rule + "\n"
}

/// A count or a rate, in groups of three digits.
pub fn number(value: f64) -> String {
    let digits = format!("{value:.0}");
    let groups: Vec<&str> = digits
        .as_bytes()
        .rchunks(3)
        .rev()
        .filter_map(|group| std::str::from_utf8(group).ok())
        .collect();
    groups.join(",")
}

/// Two decimals; `0` only for exactly zero.
pub fn per_operation(value: f64) -> String {
    match value {
        0.0 => "0".into(),
        _ if value < 0.005 => "<0.01".into(),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_and_small_rates_are_not_0() {
        assert_eq!(
            [number(0.0), number(999.6), number(1_234_567.0)],
            ["0", "1,000", "1,234,567"]
        );
        assert_eq!(
            [per_operation(0.0), per_operation(0.001), per_operation(0.99)],
            ["0", "<0.01", "0.99"]
        );
    }

    #[test]
    fn gate_is_half_of_the_linux_count() {
        let span = |median| Span {
            times: 9,
            cpu: 1,
            median,
            least: median,
            most: median,
            mean: median as f64,
            waiting: 0.0,
            firmware: 0.0,
        };
        let count = |kernel: &str, requester, target| Count {
            kernel: kernel.into(),
            workload: "madvise_spin".into(),
            threads: 2,
            ops: 9,
            instructions_per_op: 1.0,
            firmware_per_op: 0.0,
            operations: [("dsb".to_string(), 2.0)].into(),
            interrupts_per_op: 1.0,
            requester: Some(span(requester)),
            barriers: None,
            target: Some(span(target)),
        };
        let text = gate(&[count("Linux", 685, 419), count("ipi", 342, 210)]);
        let verdicts: Vec<&str> = text.lines().filter_map(|line| line.split(' ').next_back()).collect();
        assert_eq!(verdicts[4..8], ["–", "–", "met", "missed"], "{text}");
        let alone = gate(&[count("ipi", 1, 1)]);
        assert!(
            !alone.contains("met") && !alone.contains("missed"),
            "nothing to compare with: {alone}"
        );
        assert_eq!(gate(&[]), "");
    }
}
