//! The findings as tables.

use comfy_table::{Cell, CellAlignment, Table, presets};

use super::spans::{Count, Span};
use super::{Findings, Rate};

/// What stands where there is no figure.
const NONE: &str = "–";

/// All of it; every line ends with a newline.
pub fn text(findings: &Findings) -> String {
    let Findings {
        qemu,
        package,
        linux,
        cpus,
        ..
    } = findings;
    let mut text =
        format!("Linux {linux} ({package})\nQEMU {qemu}, {cpus} virtual CPUs, mitigations off, small pages\n");
    if !findings.rates.is_empty() {
        let runs = findings.rates.iter().map(|rate| rate.runs).max().unwrap_or(1);
        text += &format!("\nCPUs in parallel: median of {runs} runs\n");
        text += &draw(
            &[
                "workload",
                "threads",
                "ops/s",
                "least",
                "most",
                "interrupts/op",
                "ours",
                "ours/Linux",
            ],
            findings.rates.iter().map(rate_row),
        );
        if let Some(load) = findings.host_load {
            let (load_shown, host) = (format!("{load:.1}"), findings.host_cpus);
            if load + f64::from(*cpus) > host as f64 + 0.5 {
                text += &format!(
                    "The host was busy ({load_shown} of its {host} CPUs before this began): rates with {cpus} threads are far \
                     too low.\n"
                );
            }
        }
    }
    if !findings.counts.is_empty() {
        text += "\nCPUs in turns, by a count of instructions: the same in every run on every host\n";
        text += &draw(
            &[
                "workload",
                "threads",
                "ops",
                "instructions/op",
                "interrupts/op",
                "flushes",
                "requester",
                "interrupts",
                "target",
            ],
            findings.counts.iter().map(count_row),
        );
        text += "requester: instructions of a flush on the CPU that asks for it, target: of the interrupt that it causes; \
                 medians, without waiting\n";
        text += &gate(&findings.counts);
    }
    text + &format!("No ratios ours/Linux: {}\n", findings.ours_missing)
}

/// What a shootdown takes here, and so what ours may take.
fn gate(counts: &[Count]) -> String {
    let spins = |count: &&Count| count.workload == "madvise_spin" && count.threads > 1;
    let Some((requester, target)) = counts
        .iter()
        .find(spins)
        .and_then(|count| Some((count.requester.as_ref()?, count.target.as_ref()?)))
    else {
        return String::new();
    };
    let one = |name: &str, span: &Span| {
        let Span {
            cpu,
            median,
            least,
            most,
            mean,
            waiting,
            ..
        } = span;
        let half = median / 2;
        format!(
            "  {name:<9}  CPU {cpu}: median {median}, {least} to {most}, mean {mean:.1}, and {waiting:.1} waiting; ours at \
             most {half}\n"
        )
    };
    format!(
        "\nInstructions of a shootdown (madvise_spin)\n{}{}",
        one("requester", requester),
        one("target", target)
    )
}

fn rate_row(rate: &Rate) -> Vec<String> {
    vec![
        rate.workload.clone(),
        rate.threads.to_string(),
        number(rate.ops_per_s),
        number(rate.ops_per_s_least),
        number(rate.ops_per_s_most),
        per_operation(rate.interrupts_per_op),
        NONE.into(),
        NONE.into(),
    ]
}

fn count_row(count: &Count) -> Vec<String> {
    let times = |span: &Option<Span>| span.as_ref().map_or(NONE.into(), |span| number(span.times as f64));
    let median = |span: &Option<Span>| span.as_ref().map_or(NONE.into(), |span| number(span.median as f64));
    vec![
        count.workload.clone(),
        count.threads.to_string(),
        number(count.ops as f64),
        number(count.instructions_per_op),
        per_operation(count.interrupts_per_op),
        times(&count.requester),
        median(&count.requester),
        times(&count.target),
        median(&count.target),
    ]
}

/// Rows under a header, the first column words, the others numbers.
fn draw(header: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    let cells = |row: Vec<String>| -> Vec<Cell> {
        let alignment = |index| match index {
            0 => CellAlignment::Left,
            _ => CellAlignment::Right,
        };
        let cells = row.into_iter().enumerate();
        cells
            .map(|(index, text)| Cell::new(text).set_alignment(alignment(index)))
            .collect()
    };
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(cells(header.iter().map(|title| title.to_string()).collect()));
    for row in rows {
        table.add_row(cells(row));
    }
    let mut lines: Vec<String> = table.lines().map(|line| line.trim_end().to_string()).collect();
    let rule = "─".repeat(lines.first().map_or(0, |header| header.chars().count()));
    lines.insert(1, rule.clone());
    lines.push(rule);
    lines.join("\n") + "\n"
}

/// A count or a rate, in groups of three digits.
fn number(value: f64) -> String {
    let digits = format!("{value:.0}");
    let groups: Vec<&str> = digits
        .as_bytes()
        .rchunks(3)
        .rev()
        .filter_map(|group| std::str::from_utf8(group).ok())
        .collect();
    groups.join(",")
}

/// Two decimals; `0` only when there is none at all.
fn per_operation(value: f64) -> String {
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
    fn numbers_have_groups_and_nothing_is_only_nothing() {
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
    fn the_gate_is_half_of_what_a_shootdown_takes() {
        let span = |median| Span {
            times: 9,
            cpu: 1,
            median,
            least: median,
            most: median,
            mean: median as f64,
            waiting: 0.0,
        };
        let count = Count {
            workload: "madvise_spin".into(),
            threads: 2,
            ops: 9,
            instructions_per_op: 1.0,
            interrupts_per_op: 1.0,
            requester: Some(span(685)),
            target: Some(span(419)),
        };
        let text = gate(&[count]);
        assert!(
            text.contains("ours at most 342") && text.contains("ours at most 209"),
            "{text}"
        );
        assert_eq!(gate(&[]), "");
    }
}
