//! Tables for terminals: one row per thread count and design, grouped by thread count, 100 columns wide, or 110 with
//! several runs.

use comfy_table::{Cell, CellAlignment, Table, presets};

use crate::print::number::{self, UNKNOWN};
use crate::runs::summary::{Comparison, Row, p99};

/// A table as text, before it is drawn: a header, and groups of rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grid {
    /// Column titles.
    pub header: Vec<String>,
    /// Groups of rows; a line is drawn between groups.
    pub groups: Vec<Vec<Vec<String>>>,
    /// How many columns, from the left, hold words (the others hold numbers and are aligned right).
    pub words: usize,
}

/// The table of a comparison.
pub fn comparison(comparison: &Comparison) -> Grid {
    let operation = comparison.plan.workload.operation();
    let several = comparison.plan.settings.runs > 1;
    let any_published = comparison.rows.iter().any(|row| row.published.is_some());
    let any_ideal = comparison.rows.iter().any(|row| row.of_ideal.is_some());

    let any_uncertain = comparison.rows.iter().any(Row::is_uncertain);
    let follows = comparison.plan.follows();

    let mut header = vec!["threads".to_string(), "design".to_string(), format!("{operation}s/s")];
    if any_uncertain {
        header.push("95%".to_string());
    }
    if follows {
        header.push(format!("CPU/{operation}"));
    }
    if several {
        header.push("spread".to_string());
    }
    if any_published {
        header.extend(["published".to_string(), "error".to_string()]);
    }
    if any_ideal {
        header.push("of ideal".to_string());
    }
    header.extend([
        format!("IPIs/{operation}"),
        format!("taken/{operation}"),
        "flush CPU".to_string(),
        "stale".to_string(),
    ]);

    let mut groups = Vec::new();
    for &threads in &comparison.plan.threads {
        let mut group = Vec::new();
        for row in comparison.rows.iter().filter(|row| row.threads == threads) {
            let all_failed = row.failed as u64 >= comparison.plan.settings.runs;
            let mut cells = vec![
                if group.is_empty() {
                    threads.to_string()
                } else {
                    String::new()
                },
                row.design.to_string(),
                if all_failed {
                    "failed".to_string()
                } else {
                    doubtful(row, number::rate(row.ops_per_s))
                },
            ];
            if any_uncertain {
                let half = row.half_width.map(|half| format!("±{:.0}%", half * 100.0));
                cells.push(half.unwrap_or(UNKNOWN.to_string()));
            }
            if follows {
                cells.push(doubtful(row, number::time(row.cpu_ns_per_op())));
            }
            if several {
                cells.push(number::percent(row.spread));
            }
            if any_published {
                cells.push(row.published.map_or(UNKNOWN.to_string(), number::rate));
                cells.push(row.error().map_or(UNKNOWN.to_string(), number::signed_percent));
            }
            if any_ideal {
                cells.push(row.of_ideal.map_or(UNKNOWN.to_string(), number::ratio));
            }
            cells.extend([
                number::per_operation(row.ipis_per_op),
                number::per_operation(row.interrupts_per_op),
                number::percent(row.flush_share),
                if all_failed {
                    UNKNOWN.to_string()
                } else {
                    number::count(row.stale)
                },
            ]);
            group.push(cells);
        }
        groups.push(group);
    }
    Grid {
        header,
        groups,
        words: 2,
    }
}

/// A figure as it is written: in brackets where it rests on too little.
fn doubtful(row: &Row, figure: String) -> String {
    match row.doubt {
        Some(_) => format!("({figure})"),
        None => figure,
    }
}

/// One table for each kind of latency that was recorded, under its name; nothing when none was.
pub fn latencies(comparison: &Comparison) -> String {
    let mut kinds: Vec<&str> = Vec::new();
    for latency in comparison.rows.iter().flat_map(|row| &row.latencies) {
        if !kinds.contains(&latency.name) {
            kinds.push(latency.name);
        }
    }
    let header = ["threads", "design", "count", "median", "99%", "longest"];
    let mut text = String::new();
    for kind in kinds {
        let mut groups: Vec<Vec<Vec<String>>> = Vec::new();
        for &threads in &comparison.plan.threads {
            let rows = comparison.rows.iter().filter(|row| row.threads == threads);
            let found = rows.filter_map(|row| Some((row, row.latencies.iter().find(|latency| latency.name == kind)?)));
            let group: Vec<Vec<String>> = found
                .map(|(row, latency)| {
                    vec![
                        threads.to_string(),
                        row.design.to_string(),
                        number::count(latency.count),
                        number::time(latency.p50_ns),
                        number::time(p99(latency)),
                        number::time(latency.max_ns),
                    ]
                })
                .collect();
            if !group.is_empty() {
                groups.push(group);
            }
        }
        let grid = Grid {
            header: header.map(str::to_string).to_vec(),
            groups,
            words: 2,
        };
        text.push_str(&format!("\nlatency: {kind}\n{}", grid.draw()));
    }
    text
}

impl Grid {
    /// Draws the table; every line ends with a newline.
    pub fn draw(&self) -> String {
        let cell = |index: usize, text: &str| {
            let number =
                index >= self.words || (index == 0 && ["threads", "frees/s asked"].contains(&self.header[0].as_str()));
            Cell::new(text).set_alignment(if number {
                CellAlignment::Right
            } else {
                CellAlignment::Left
            })
        };
        let cells = |row: &[String]| {
            row.iter()
                .enumerate()
                .map(|(index, text)| cell(index, text))
                .collect::<Vec<_>>()
        };
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        table.set_header(cells(&self.header));
        for row in self.groups.iter().flatten() {
            table.add_row(cells(row));
        }

        // Cells hold no line breaks and the width is free, so each row is one line; a rule goes between groups, not
        // between rows.
        let grouped = self.groups.iter().any(|group| group.len() > 1);
        let mut lines = table.lines();
        let header = lines.next().unwrap_or_default();
        let rule = "─".repeat(header.chars().count());
        let mut text = String::new();
        let mut line = |content: &str| {
            text.push_str(content.trim_end());
            text.push('\n');
        };
        line(&header);
        for (index, group) in self.groups.iter().enumerate() {
            if index == 0 || grouped {
                line(&rule);
            }
            lines.by_ref().take(group.len()).for_each(|row| line(&row));
        }
        line(&rule);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runs::fake;

    #[test]
    fn the_widest_table_fits_the_terminal() {
        for runs in [1, 3] {
            let mut plan = fake::plan(&["ideal", "ipi", "broadcast", "adaptive", "none"], &[1, 4, 16, 72]);
            plan.settings.runs = runs;
            let text = comparison(&fake::comparison(plan)).draw();
            let width = text.lines().map(|line| line.chars().count()).max().unwrap();
            assert!(width <= if runs == 1 { 100 } else { 110 }, "{width} columns:\n{text}");
        }
    }

    #[test]
    fn each_thread_count_is_one_group_between_rules() {
        let text = comparison(&fake::comparison(fake::plan(&["ipi", "broadcast"], &[1, 16]))).draw();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 2 + 2 + 1 + 2 + 1, "{text}");
        assert!(lines[0].contains("loops/s") && lines[0].contains("published") && lines[0].contains("flush CPU"));
        assert!(lines[2].contains("ipi") && lines[2].contains("315k"));
        assert!(lines[4].starts_with("──"), "{text}");
        assert!(lines[6].contains("broadcast") && lines[6].contains("1368k"), "{text}");
    }

    #[test]
    fn a_cell_without_a_single_result_says_failed_and_claims_no_zero() {
        let mut comparison = fake::comparison(fake::plan(&["ideal", "ipi"], &[4]));
        let outcomes = vec![comparison.runs.remove(0).1, Err("hangs".to_string())];
        let grid = super::comparison(&Comparison::new(comparison.plan, outcomes, None, 1.0));
        assert_eq!(
            grid.groups[0][1],
            ["", "ipi", "failed", "644k", "–", "–", "–", "–", "–", "–"]
        );
    }

    #[test]
    fn each_kind_of_latency_is_a_table_and_none_is_no_table() {
        let mut comparison = fake::comparison(fake::plan(&["ipi", "broadcast"], &[1, 16]));
        let text = latencies(&comparison);
        assert_eq!(text.matches("latency: ").count(), 2, "{text}");
        assert!(text.contains("latency: interrupt disturbance"), "{text}");
        assert_eq!(text.matches("broadcast").count(), 2 * 2, "{text}");
        comparison.rows.iter_mut().for_each(|row| row.latencies.clear());
        assert_eq!(latencies(&comparison), "");
    }

    #[test]
    fn columns_without_a_single_value_are_left_out() {
        let grid = comparison(&fake::comparison(fake::plan(&["adaptive"], &[2])));
        assert_eq!(
            grid.header,
            [
                "threads",
                "design",
                "loops/s",
                "IPIs/loop",
                "taken/loop",
                "flush CPU",
                "stale"
            ]
        );
    }
}
