//! The HTML report of `shootdown qemu`: the table, and plots over threads.

use super::reading::{Line, Row};
use super::tables::Report;
use super::{Plan, TORTURE};
use crate::comparison::report;
use crate::print::bars;
use crate::print::number;
use crate::print::page::{self, escape};
use crate::print::plot;
use crate::print::style;

/// The whole page.
pub(super) fn render(plan: &Plan, report: &Report, rows: &[Row]) -> String {
    let mut body = format!("<p class=\"soft\">{}.</p>\n", escape(&report.head));
    body.push_str(&format!("<pre class=\"command\">{}</pre>\n", escape(&plan.command())));
    let class = if rows.iter().any(Row::is_bad) {
        "verdict bad"
    } else {
        "verdict"
    };
    body.push_str(&format!("<div class=\"{class}\">\n"));
    for line in &report.verdict {
        // Others begin with the name of a design.
        let begins = ["stale translations", "control"]
            .iter()
            .any(|word| line.starts_with(word));
        let line = if begins { page::capitalized(line) } else { line.clone() };
        body.push_str(&format!("<p>{}</p>\n", page::prose(&line)));
    }
    body.push_str("</div>\n");
    if plan.workload != TORTURE {
        body.push_str(&plots(plan, rows));
    }
    body.push_str(&format!("<h2>Numbers</h2>\n{}", report::grid(&report.grid)));
    if let Some(grid) = &report.operations {
        body.push_str(&format!(
            "<h2>Instructions of a shootdown, per operation</h2>\n{}",
            report::grid(grid)
        ));
    }
    for line in &report.notes {
        body.push_str(&format!("<p class=\"soft\">{}</p>\n", page::prose(line)));
    }
    body.push_str(&format!(
        "<p class=\"soft\">Shootdown {}.</p>\n",
        env!("CARGO_PKG_VERSION")
    ));
    page::render(&format!("{} on the bare-metal kernel", plan.workload), "", &body)
}

fn plots(plan: &Plan, rows: &[Row]) -> String {
    let legend: String = plan
        .designs
        .iter()
        .map(|name| report::sample(style::design(name), name))
        .collect();
    let plot = |title: &str, unit: &str, value: fn(&Line) -> Option<f64>, shown: fn(f64) -> String| {
        let values = |design: &str| -> Vec<(usize, f64)> {
            let own = rows.iter().filter(|row| row.design == design);
            own.filter_map(|row| Some((row.threads as usize, row.line.as_ref().and_then(value)?)))
                .collect()
        };
        if plan.designs.iter().all(|name| values(name).is_empty()) {
            return String::new();
        }
        let drawn = if plan.threads.len() == 1 {
            let bars = plan.designs.iter().map(|name| {
                let value = values(name).first().map_or(f64::NAN, |&(_, value)| value);
                bars::Bar {
                    name,
                    tone: style::design(name),
                    value,
                    shown: shown(value),
                    published: None,
                }
            });
            bars::draw(&bars.collect::<Vec<_>>())
        } else {
            let lines = plan.designs.iter().map(|name| plot::Line {
                tone: style::design(name),
                points: values(name),
                hollow: Vec::new(),
                ranges: Vec::new(),
            });
            plot::lines((540, 280), unit, &lines.collect::<Vec<_>>())
        };
        format!("<figure><h3>{title}</h3>{drawn}</figure>\n")
    };
    let instructions = |value: f64| number::count(value.max(0.0).round() as u64);
    let figures = [
        plot(
            "Operations per second, by the guest's clock",
            "ops/s",
            |line| line.ops_per_s,
            number::rate,
        ),
        plot(
            "Shootdown interrupts taken per operation",
            "per op",
            |line| line.interrupts_per_op,
            number::per_operation,
        ),
        plot(
            "Instructions of a requester for a flush",
            "instructions",
            |line| line.own.requester_instructions,
            instructions,
        ),
        plot(
            "Instructions of a target for an interrupt",
            "instructions",
            |line| line.own.target_instructions,
            instructions,
        ),
    ];
    format!(
        "<ul class=\"legend\">{legend}</ul>\n<div class=\"pair\">\n{}</div>\n",
        figures.concat()
    )
}

#[cfg(test)]
mod tests {
    use super::super::tables;
    use super::*;
    use crate::args::{Cli, Command};
    use clap::Parser;
    use shootdown_qemu::{Arch, Ended, Run, Version};

    const LINE: &str = concat!(
        r#"{"ops":10,"ops_per_s":5.0,"ipis_per_op":1.5,"interrupts_per_op":1.5,"stale":0,"accesses_checked":10,"#,
        r#""broadcast":"emulated","broadcasts_per_op":0.5,"requester_instructions":500.0,"target_instructions":null}"#,
    );

    fn page(threads: &str, ended: Ended) -> String {
        let words = ["shootdown", "qemu", "--designs", "ipi,broadcast", "--threads", threads];
        let Some(Command::Qemu(args)) = Cli::try_parse_from(words).expect("the grammar allows it").command else {
            panic!("not qemu")
        };
        let plan = Plan::new(&args).unwrap_or_else(|_| panic!("a right plan"));
        let run = || Run {
            ended,
            lines: vec![LINE.into()],
            errors: String::new(),
            seconds: 0.5,
        };
        let rows: Vec<Row> = plan
            .threads
            .iter()
            .flat_map(|&threads| plan.designs.iter().map(move |design| (threads, design)))
            .map(|(threads, design)| Row::new(Arch::X86_64, &plan.workload, design, threads, 1, run()))
            .collect();
        let report = tables::report(&plan, Version(7, 2), &rows, None, None);
        render(&plan, &report, &rows)
    }

    #[test]
    fn tables_fit_the_page() {
        for workload in ["tlb_flush2", "torture"] {
            let words = [
                "shootdown",
                "qemu",
                "--workload",
                workload,
                "--designs",
                "ipi,broadcast",
            ];
            let Some(Command::Qemu(args)) = Cli::try_parse_from(words).expect("the grammar allows it").command else {
                panic!("not qemu")
            };
            let plan = Plan::new(&args).unwrap_or_else(|_| panic!("a right plan"));
            let run = || Run {
                ended: Ended::Success,
                lines: vec![LINE.into()],
                errors: String::new(),
                seconds: 0.5,
            };
            let rows = ["ipi", "broadcast"].map(|design| Row::new(Arch::X86_64, workload, design, 4, 1, run()));
            let table = tables::report(&plan, Version(7, 2), &rows, None, None).grid;
            for columns in [60, 80, 120] {
                let text = table.draw(columns);
                let widest = text.lines().map(crate::print::terminal::width).max();
                assert!(
                    text.contains("broadcast") && widest <= Some(columns),
                    "{columns}:\n{text}"
                );
            }
        }
    }

    #[test]
    fn page_is_well_formed_and_names_its_command() {
        for threads in ["2", "1,2,4"] {
            let page = page(threads, Ended::Success);
            let document = page::checked(&page);
            let figures = document
                .descendants()
                .filter(|node| node.has_tag_name("figure"))
                .count();
            assert_eq!(figures, 3, "what no run has is not plotted");
            for expected in [
                "shootdown qemu --workload tlb_flush2",
                "Stale translations: 0 in",
                "EMULATED",
            ] {
                assert!(page.contains(expected), "missing: {expected}");
            }
        }
    }

    #[test]
    fn failed_run_makes_the_verdict_bad() {
        assert!(!page("2", Ended::Success).contains("verdict bad"));
        assert!(page("2", Ended::Failure).contains("verdict bad"));
    }
}
