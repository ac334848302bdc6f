//! The results as tables.

use comfy_table::{Cell, CellAlignment, Table, presets};

use super::Findings;
use super::rate::{Host, Rate};
use super::spans::{Count, Span};

/// Stands for a missing figure.
const NONE: &str = "–";
/// What the last tables count: with two threads or more, and with one.
const SHOOTDOWN: &str = "shootdown";
const LOCAL: &str = "flush without another CPU";
/// The reference of the comparison.
const LINUX: &str = "Linux";

/// Columns of [`count_cells`] after the first two.
pub const COUNT_TITLES: [&str; 5] = [
    "instructions\nper op",
    "of\nLinux",
    "interrupts\nper op",
    "requester",
    "target",
];
/// What the columns of [`count_cells`] mean.
pub const COUNTS_LEGEND: &str = "requester: instructions of a flush on its initiator\n\
                                 target: instructions of the interrupt that it causes; medians, without waiting\n";

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
        text += &rates(&findings.rates, &findings.host, *cpus);
    }
    if !findings.counts.is_empty() {
        text += match findings.counted_in_parallel {
            true => {
                "\nCPUs in parallel, since OpenSBI waits for another CPU without ending QEMU's turn:\n\
                 counts vary a little, and on a busy host they include ticks\n"
            }
            false => "\nCPUs in turns, by a count of instructions, which depends little on the host\n",
        };
        let titles = [&["kernel", "ops"], &COUNT_TITLES[..]].concat();
        let rows = findings.counts.iter().map(|count| count_row(count, &findings.counts));
        text += &draw(&titles, 1, rows.collect());
        text += COUNTS_LEGEND;
        text += &operations(&findings.counts);
        for title in [SHOOTDOWN, LOCAL] {
            text += &gate(title, &findings.counts);
        }
    }
    text
}

/// Operations per second with `cpus` virtual CPUs in parallel.
pub fn rates(rates: &[Rate], host: &Host, cpus: u32) -> String {
    let runs = rates.iter().map(|rate| rate.runs).max().unwrap_or(1);
    let titles = ["kernel", "ops/s", "least", "most", "of\nLinux", "interrupts\nper op"];
    let rows = rates.iter().map(|rate| rate_row(rate, rates)).collect();
    let mut text = format!("\nCPUs in parallel: median of {runs} runs\n{}", draw(&titles, 1, rows));
    if let Some(load) = host.load
        && load + f64::from(cpus) > host.cpus as f64 + 0.5
    {
        text += &format!(
            "The host was busy ({load:.1} of its {} CPUs before this began): these rates\n\
             are far too low, most so where CPUs wait for each other.\n",
            host.cpus
        );
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
        let first = [of_threads(&count.workload, count.threads), count.kernel.clone()];
        first.into_iter().chain(each).chain(firmware).collect()
    };
    // Shorter, so that a table of every preset on RISC-V fits 80 columns.
    let title = |name: &&String| name.replace("firmware", "in_SBI").replace('_', "\n");
    let broken: Vec<String> = names.iter().map(title).collect();
    let each = broken.iter().map(String::as_str);
    let titles: Vec<&str> = ["kernel"]
        .into_iter()
        .chain(each)
        .chain(firmware.then_some("machine\nmode"))
        .collect();
    let legend = if firmware {
        "machine mode: instructions of OpenSBI, which the other counts exclude\n"
    } else {
        ""
    };
    format!(
        "\nExecuted for an operation, on all CPUs, as QEMU's plugin counts them\n{}{legend}",
        draw(&titles, 1, counts.iter().map(row).collect())
    )
}

/// The instructions of a shootdown, or of a flush without another CPU, and the goal for this kernel.
fn gate(title: &str, counts: &[Count]) -> String {
    let shootdown = |count: &&Count| {
        let counted = count.requester.is_some() || count.barriers.is_some();
        count.workload == "madvise_spin" && (count.threads == 1) == (title == LOCAL) && counted
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
        let mut cells = vec![of_threads(&count.kernel, count.threads), side.into()];
        cells.extend(span_cells(span));
        cells.push(reference.map_or(NONE.into(), |reference| {
            ratio(span.median as f64, reference.median as f64)
        }));
        cells.push(verdict.into());
        Some(cells)
    };
    let titles = [&SPAN_TITLES[..], &["of\nLinux", "at most\nhalf"]].concat();
    let spans: Vec<Vec<String>> = rows.iter().flat_map(|count| sides(count, &row)).flatten().collect();
    format!(
        "\nInstructions of a {title} (madvise_spin)\n{}{}{}",
        draw(&titles, 1, spans),
        if rows.iter().any(|count| count.barriers.is_some()) {
            "barriers: from the DSB before a broadcast TLBI to the one after it; Linux's\n\
             flush has no function on Arm\n"
        } else {
            ""
        },
        excluded(&rows)
    )
}

/// The rows of a count's spans, by name.
fn sides<T>(count: &Count, row: &impl Fn(&Count, &str, fn(&Count) -> Option<&Span>) -> T) -> [T; 3] {
    [
        row(count, "requester", |count| count.requester.as_ref()),
        row(count, "barriers", |count| count.barriers.as_ref()),
        row(count, "target", |count| count.target.as_ref()),
    ]
}

/// The instructions within the spans that [`gate`] excludes, if there are any.
fn excluded(counts: &[&Count]) -> String {
    let row = |count: &Count, side: &str, of: fn(&Count) -> Option<&Span>| {
        let span = of(count)?;
        let means = [span.waiting, span.firmware].map(|mean| format!("{mean:.1}"));
        let row = [of_threads(&count.kernel, count.threads), side.into()]
            .into_iter()
            .chain(means);
        (span.waiting + span.firmware > 0.0).then(|| row.collect())
    };
    let rows: Vec<Vec<String>> = counts.iter().flat_map(|count| sides(count, &row)).flatten().collect();
    match rows.is_empty() {
        true => "excluded: nothing; no CPU waited in these spans, or was in machine mode\n".into(),
        false => format!(
            "\nExcluded above: mean instructions of waiting and of machine mode\n{}",
            draw(&["side", "waiting", "machine\nmode"], 1, rows)
        ),
    }
}

/// Columns of [`span_cells`], and the one before them.
pub const SPAN_TITLES: [&str; 7] = ["side", "CPU", "times", "median", "least", "most", "mean"];

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
        of_threads(&rate.workload, rate.threads),
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
    // After the group and the kernel.
    cells.insert(2, number(count.ops as f64));
    cells
}

/// A group's name: a program or a kernel, with its threads.
pub fn of_threads(name: &str, threads: u32) -> String {
    format!("{name}, {threads} thread{}", if threads == 1 { "" } else { "s" })
}

/// The group, the kernel, instructions for an operation and as a multiple of the reference's, interrupts, medians of
/// requester and target.
pub fn count_cells(count: &Count, reference: Option<&Count>) -> [String; 7] {
    let median = |span: &Option<Span>| span.as_ref().map_or(NONE.into(), |span| number(span.median as f64));
    [
        of_threads(&count.workload, count.threads),
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

/// Rows in groups: the first cell of a row names its group, and has a line of its own where it changes. The `titles`
/// are of the other cells, of which the first `words` are words, the others numbers.
pub fn draw(titles: &[&str], words: usize, rows: Vec<Vec<String>>) -> String {
    let cell = |(index, text): (usize, String)| {
        let alignment = match index < words {
            true => CellAlignment::Left,
            false => CellAlignment::Right,
        };
        Cell::new(text).set_alignment(alignment)
    };
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    // A title of one line stands in the last one.
    let height = titles.iter().map(|title| title.lines().count()).max().unwrap_or(1);
    let lowered = titles
        .iter()
        .map(|title| "\n".repeat(height - title.lines().count()) + title);
    table.set_header(lowered.enumerate().map(cell));
    let mut groups = Vec::new();
    for row in rows {
        let mut cells = row.into_iter();
        groups.push(cells.next().unwrap_or_default());
        table.add_row(cells.enumerate().map(cell));
    }
    let lines: Vec<String> = table.lines().map(|line| line.trim_end().to_string()).collect();
    let rule = "─".repeat(lines.iter().map(|line| line.chars().count()).max().unwrap_or(0)) + "\n";
    let (head, body) = lines.split_at(height);
    let mut text: String = head.iter().map(|line| format!("{line}\n")).collect();
    for (index, (line, group)) in body.iter().zip(&groups).enumerate() {
        if index == 0 || *group != groups[index - 1] {
            text += &format!("{rule}{group}\n");
        }
        text += &format!("{line}\n");
    }
    text + &rule
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
        let text = gate(
            SHOOTDOWN,
            &[Count::example("Linux", 685, 419), Count::example("ipi", 342, 210)],
        );
        let verdicts: Vec<&str> = text.lines().filter_map(|line| line.split(' ').next_back()).collect();
        let verdicts: Vec<&str> = verdicts
            .into_iter()
            .filter(|word| ["–", "met", "missed"].contains(word))
            .collect();
        assert_eq!(verdicts, ["–", "–", "met", "missed"], "{text}");
        let alone = gate(SHOOTDOWN, &[Count::example("ipi", 1, 1)]);
        assert!(
            !alone.contains("met") && !alone.contains("missed"),
            "nothing to compare with: {alone}"
        );
        assert_eq!(gate(SHOOTDOWN, &[]), "");
        let one = Count {
            threads: 1,
            ..Count::example("Linux", 200, 0)
        };
        let local = gate(LOCAL, &[Count::example("Linux", 685, 419), one]);
        assert!(local.contains("200") && !local.contains("685"), "{local}");
    }

    #[test]
    fn tables_fit_80_columns() {
        let names = ["tlbi_local", "tlbi_broadcast", "dsb", "isb", "sgi", "root_load"];
        let mut widest = Count::example("arm-local-first", 12_345, 1234);
        widest.ops = 123_456;
        widest.instructions_per_op = 123_456.0;
        widest.operations = names.map(|name| (name.to_string(), 123.45)).into();
        widest.requester.iter_mut().for_each(|span| span.waiting = 1234.5);
        let counts = [Count::example("Linux", 12_345, 1234), widest];
        let titles = [&["kernel", "ops"], &COUNT_TITLES[..]].concat();
        let rows = counts.iter().map(|count| count_row(count, &counts));
        let text = draw(&titles, 1, rows.collect()) + COUNTS_LEGEND + &operations(&counts) + &gate(SHOOTDOWN, &counts);
        let wide: Vec<&str> = text.lines().filter(|line| line.chars().count() > 80).collect();
        assert!(wide.is_empty() && text.contains("1234.5"), "{text}");
    }
}
