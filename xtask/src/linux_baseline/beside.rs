//! The instructions of a flush on several instruction sets, side by side: one table under those of each.

use super::spans::Span;
use super::table::{draw, number, ratio};
use super::{Findings, spans::Count};

/// The program whose flushes are compared: one page each.
const WORKLOAD: &str = "madvise_spin";

/// The table; nothing for one instruction set. The first is the reference.
pub(super) fn text(all: &[Findings]) -> String {
    let [first, _, ..] = all else { return String::new() };
    let rows: Vec<Vec<String>> = all.iter().flat_map(|findings| rows(findings, first)).collect();
    let titles = ["instruction set", "median", "beside"];
    format!(
        "\nInstructions of a flush ({WORKLOAD}), beside those on {}\n{}one thread: no other CPU\n",
        first.arch,
        draw(&titles, 1, sorted(rows))
    )
}

/// By group; instruction sets stay in their order.
fn sorted(mut rows: Vec<Vec<String>>) -> Vec<Vec<String>> {
    rows.sort_by(|one, other| one[0].cmp(&other[0]));
    rows
}

fn rows(findings: &Findings, reference: &Findings) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    for count in findings.counts.iter().filter(|count| count.workload == WORKLOAD) {
        for (side, of) in sides() {
            let Some(span) = of(count) else { continue };
            let same = |other: &&Count| {
                (other.kernel.as_str(), other.threads) == (&count.kernel, count.threads) && other.workload == WORKLOAD
            };
            let beside = reference.counts.iter().find(same).and_then(of);
            rows.push(vec![
                format!("{}, threads: {}, {side}", count.kernel, count.threads),
                findings.arch.into(),
                number(span.median as f64),
                beside.map_or("–".into(), |beside| ratio(span.median as f64, beside.median as f64)),
            ]);
        }
    }
    rows
}

type Side = (&'static str, fn(&Count) -> Option<&Span>);

fn sides() -> [Side; 3] {
    [
        ("requester", |count| count.requester.as_ref()),
        ("barriers", |count| count.barriers.as_ref()),
        ("target", |count| count.target.as_ref()),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::rate::Host;
    use super::*;

    fn findings(arch: &'static str, median: u64) -> Findings {
        let count = Count {
            workload: WORKLOAD.into(),
            threads: 1,
            ..Count::example("ipi", median, median)
        };
        Findings {
            qemu: String::new(),
            arch,
            kernels: Vec::new(),
            cpus: 2,
            host: Host { load: None, cpus: 1 },
            rates: Vec::new(),
            counts: vec![count],
            counted_in_parallel: false,
        }
    }

    #[test]
    fn each_instruction_set_is_a_multiple_of_the_first_and_one_alone_has_no_table() {
        let table = text(&[findings("x86_64", 100), findings("aarch64", 130)]);
        assert!(table.contains("1.00x") && table.contains("1.30x"), "{table}");
        assert_eq!(text(&[findings("x86_64", 100)]), "");
    }
}
