//! The HTML report: one file that needs nothing else, in light and dark.
//!
//! It is written as well-formed XML, so that a test can parse it.

use shootdown_sim::run::Latency;

use crate::catalog;
use crate::number;
use crate::plot::{self, Bar, Line};
use crate::style::{self, Tone};
use crate::summary::{Comparison, Row};
use crate::table;
use crate::verdict::Verdict;

/// The whole page.
pub fn render(comparison: &Comparison) -> String {
    let plan = &comparison.plan;
    let verdict = Verdict::new(comparison);
    let title = format!("{} on {}", plan.workload.name, plan.target);
    let mut page = String::new();
    page.push_str("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n");
    page.push_str("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n");
    page.push_str("<meta name=\"color-scheme\" content=\"light dark\"/>\n");
    page.push_str(&format!(
        "<title>{} — Shootdown</title>\n<style>\n{}</style>\n</head>\n<body>\n",
        escape(&title),
        style::sheet()
    ));
    page.push_str(&format!("<h1>{}</h1>\n", escape(&title)));
    page.push_str(&format!(
        "<p class=\"soft\">{}. Simulated machine: {}{}{} CPUs. Seed {}, {}.</p>\n",
        escape(&capitalized(plan.workload.description)),
        escape(&plan.target.machine.description),
        if plan.target.as_measured { ", " } else { "; changed to " },
        plan.target.machine.topology.cpus(),
        plan.settings.seed,
        if plan.settings.runs > 1 {
            format!("medians of {} runs", plan.settings.runs)
        } else {
            "one run each".to_string()
        }
    ));
    page.push_str(&format!("<pre class=\"command\">{}</pre>\n", escape(&plan.command())));
    page.push_str(&headline(&verdict));
    page.push_str(&throughput(comparison));
    page.push_str(&interrupts(comparison));
    page.push_str(&shares(comparison));
    page.push_str(&latencies(comparison));
    page.push_str(&numbers(comparison, &verdict));
    page.push_str(&control(&verdict));
    page.push_str(&parameters(comparison));
    page.push_str(&format!(
        "<p class=\"soft\">{}. Shootdown {}.</p>\n",
        escape(&verdict.cost),
        env!("CARGO_PKG_VERSION")
    ));
    page.push_str("</body>\n</html>\n");
    page
}

fn headline(verdict: &Verdict) -> String {
    let class = if verdict.sound { "verdict" } else { "verdict bad" };
    let mut html = format!(
        "<div class=\"{class}\">\n<p><strong>{}</strong></p>\n",
        escape(&verdict.stale)
    );
    html.push_str(&story(&verdict.stale_story));
    html.push_str(&story(&verdict.failed));
    for sentence in &verdict.ratios {
        html.push_str(&format!("<p>{}</p>\n", escape(sentence)));
    }
    html.push_str("</div>\n");
    html
}

fn throughput(comparison: &Comparison) -> String {
    let plan = &comparison.plan;
    let operation = catalog::operation(plan.workload.name);
    let lines: Vec<Line> = plan
        .designs
        .iter()
        .map(|design| Line {
            hollow: comparison
                .published
                .iter()
                .filter(|row| row.design == design.name)
                .map(|row| (row.threads, row.value))
                .collect(),
            ..line(comparison, design.name, |row| row.ops_per_s)
        })
        .collect();
    let published = lines.iter().any(|line| !line.hollow.is_empty());
    format!(
        "<h2>Throughput</h2>\n{}<figure>{}<figcaption>{}s per second, all threads together, over threads (logarithmic).{}</figcaption></figure>\n",
        design_legend(comparison, published),
        plot::lines((1100, 420), &format!("{operation}s/s"), &lines),
        capitalized(operation),
        if published {
            " Hollow markers are published measurements."
        } else {
            ""
        }
    )
}

fn interrupts(comparison: &Comparison) -> String {
    let operation = catalog::operation(comparison.plan.workload.name);
    let panel = |title: &str, value: fn(&Row) -> f64| {
        let lines: Vec<Line> = comparison
            .plan
            .designs
            .iter()
            .map(|design| line(comparison, design.name, value))
            .collect();
        format!(
            "<figure><h3>{title}</h3>{}</figure>\n",
            plot::lines((540, 280), &format!("per {operation}"), &lines)
        )
    };
    format!(
        "<h2>Interrupts per {operation}</h2>\n{}<div class=\"pair\">\n{}{}</div>\n<p class=\"soft\">Several requests can share one interrupt, so fewer may be taken than were asked for.</p>\n",
        design_legend(comparison, false),
        panel("Sent", |row| row.ipis_per_op),
        panel("Taken", |row| row.interrupts_per_op)
    )
}

fn shares(comparison: &Comparison) -> String {
    let mut categories: Vec<&str> = Vec::new();
    for (name, _) in comparison.rows.iter().flat_map(|row| &row.time_shares) {
        if !categories.contains(name) {
            categories.push(name);
        }
    }
    if categories.is_empty() {
        return String::new();
    }
    let tone = |name: &str| style::share(categories.iter().position(|known| *known == name).unwrap_or(0), name);
    let legend = categories
        .iter()
        .map(|name| swatch(tone(name), name))
        .collect::<String>();
    let mut html = format!("<h2>Where CPU time goes</h2>\n<ul class=\"legend\">{legend}</ul>\n<div class=\"pair\">\n");
    for design in &comparison.plan.designs {
        let bars: Vec<Bar> = by_threads(comparison, design.name)
            .into_iter()
            .map(|row| {
                (
                    row.threads.to_string(),
                    row.time_shares
                        .iter()
                        .map(|(name, share)| (tone(name), *share))
                        .collect(),
                )
            })
            .collect();
        html.push_str(&format!(
            "<figure><h3>{}</h3>{}</figure>\n",
            escape(design.name),
            plot::stacked((540, 260), "threads", &bars)
        ));
    }
    html.push_str("</div>\n");
    html
}

/// One section per kind of latency that was recorded; nothing when none was.
fn latencies(comparison: &Comparison) -> String {
    let mut kinds: Vec<&str> = Vec::new();
    for latency in comparison.rows.iter().flat_map(|row| &row.latencies) {
        if !kinds.contains(&latency.name) {
            kinds.push(latency.name);
        }
    }
    kinds.iter().map(|kind| latency(comparison, kind)).collect()
}

fn latency(comparison: &Comparison, kind: &str) -> String {
    fn of<'a>(row: &'a Row, kind: &str) -> Option<&'a Latency> {
        row.latencies.iter().find(|latency| latency.name == kind)
    }
    let designs = || comparison.plan.designs.iter().map(|design| design.name);
    let tail: Vec<Line> = designs()
        .map(|design| {
            let value = |row: &Row| of(row, kind).map_or(f64::NAN, |latency| latency.p99_ns / 1e3);
            line(comparison, design, value)
        })
        .collect();
    // The distribution where it is widest: at the most threads.
    let most = comparison.plan.threads.iter().copied().max().unwrap_or(1);
    let curves: Vec<(Tone, Vec<(f64, f64)>)> = designs()
        .filter_map(|design| Some((design, of(comparison.row(design, most)?, kind)?)))
        .map(|(design, latency)| (style::design(design), above(latency)))
        .collect();
    let mut rows = String::new();
    for &threads in &comparison.plan.threads {
        let found = designs().filter_map(|design| Some((design, of(comparison.row(design, threads)?, kind)?)));
        let cells: String = found
            .enumerate()
            .map(|(index, (design, latency))| {
                format!(
                    "<tr><td>{}</td><td class=\"word\">{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>\n",
                    if index == 0 { threads.to_string() } else { String::new() },
                    escape(design),
                    number::count(latency.count),
                    number::time(latency.p50_ns),
                    number::time(latency.p99_ns),
                    number::time(latency.max_ns)
                )
            })
            .collect();
        if !cells.is_empty() {
            rows.push_str(&format!("<tbody>{cells}</tbody>\n"));
        }
    }
    format!(
        "<h2>Latency: {}</h2>\n{}<div class=\"pair\">\n<figure><h3>99th percentile</h3>{}</figure>\n<figure><h3>How many are longer, at {most} threads</h3>{}</figure>\n</div>\n<details><summary>Median, 99th percentile and longest</summary>\n<div class=\"wide\"><table>\n<thead><tr><th>threads</th><th class=\"word\">design</th><th>count</th><th>median</th><th>99%</th><th>longest</th></tr></thead>\n{rows}</table></div></details>\n",
        escape(kind),
        design_legend(comparison, false),
        plot::lines((540, 280), "µs", &tail),
        plot::tails((540, 280), &curves)
    )
}

/// The share of a distribution above each bucket's upper edge; the last is where its longest lies.
fn above(latency: &Latency) -> Vec<(f64, f64)> {
    let all = latency.buckets.iter().map(|bucket| bucket.1).sum::<u64>().max(1) as f64;
    let mut left = all;
    let mut curve = Vec::new();
    for &(edge, count) in &latency.buckets {
        left -= count as f64;
        if left > 0.0 && edge.is_finite() {
            curve.push((edge, left / all));
        }
    }
    if latency.max_ns > 0.0 {
        let last = curve.last().map_or(1.0, |point: &(f64, f64)| point.1);
        curve.push((latency.max_ns, last.min(1.0 / all)));
    }
    curve
}

fn numbers(comparison: &Comparison, verdict: &Verdict) -> String {
    let grid = table::comparison(comparison);
    let class = |index: usize| if index == 1 { " class=\"word\"" } else { "" };
    let row = |tag: &str, cells: &[String]| {
        let cells: String = cells
            .iter()
            .enumerate()
            .map(|(index, text)| format!("<{tag}{}>{}</{tag}>", class(index), escape(text)))
            .collect();
        format!("<tr>{cells}</tr>\n")
    };
    let mut html = format!(
        "<h2>Numbers</h2>\n<div class=\"wide\"><table>\n<thead>{}</thead>\n",
        row("th", &grid.header)
    );
    for group in &grid.groups {
        let rows: String = group.iter().map(|cells| row("td", cells)).collect();
        html.push_str(&format!("<tbody>{rows}</tbody>\n"));
    }
    html.push_str("</table></div>\n");
    if let Some(fitted) = &verdict.fitted {
        html.push_str(&format!("<p class=\"soft\">{}.</p>\n", escape(&capitalized(fitted))));
    }
    html
}

fn control(verdict: &Verdict) -> String {
    let Some(line) = &verdict.control else {
        return String::new();
    };
    format!(
        "<h2>Control</h2>\n<p>A zero counts only if the oracle can say otherwise: the same machine without any invalidation must be caught.</p>\n<p><strong>{}</strong></p>\n{}",
        escape(line),
        story(&verdict.control_story)
    )
}

fn parameters(comparison: &Comparison) -> String {
    let parameters = comparison.plan.target.machine.parameters();
    let count = parameters.len();
    let rows: String = parameters
        .map(|parameter| {
            format!(
                "<tr><td class=\"word\"><code>{}</code></td><td>{}</td><td class=\"word\">{}</td><td class=\"word prose\">{}</td></tr>\n",
                escape(parameter.path),
                parameter.value,
                escape(parameter.unit.key()),
                escape(&parameter.provenance.to_string())
            )
        })
        .collect();
    format!(
        "<h2>Machine model</h2>\n<details><summary>{} parameters of {}, each with its source</summary>\n<div class=\"wide\"><table>\n<thead><tr><th class=\"word\">parameter</th><th>value</th><th class=\"word\">unit</th><th class=\"word\">source</th></tr></thead>\n<tbody>{rows}</tbody>\n</table></div></details>\n",
        number::count(count as u64),
        escape(&comparison.plan.target.machine.name)
    )
}

/// The rows of a design by rising thread count.
fn by_threads<'a>(comparison: &'a Comparison, design: &str) -> Vec<&'a Row> {
    let mut rows: Vec<&Row> = comparison.rows.iter().filter(|row| row.design == design).collect();
    rows.sort_by_key(|row| row.threads);
    rows
}

fn line(comparison: &Comparison, design: &str, value: impl Fn(&Row) -> f64) -> Line {
    let points = by_threads(comparison, design)
        .into_iter()
        .map(|row| (row.threads, value(row)))
        .collect();
    Line {
        tone: style::design(design),
        points,
        hollow: Vec::new(),
    }
}

fn design_legend(comparison: &Comparison, published: bool) -> String {
    let mut items: String = comparison
        .plan
        .designs
        .iter()
        .map(|design| swatch(style::design(design.name), design.name))
        .collect();
    if published {
        items.push_str("<li><svg viewBox=\"0 0 14 14\"><circle cx=\"7\" cy=\"7\" r=\"5\" fill=\"none\" stroke=\"currentColor\" stroke-width=\"2\"/></svg>published</li>");
    }
    format!("<ul class=\"legend\">{items}</ul>\n")
}

fn swatch(tone: Tone, name: &str) -> String {
    format!(
        "<li><svg viewBox=\"0 0 14 14\"><rect width=\"14\" height=\"14\" rx=\"3\" fill=\"{}\"/></svg>{}</li>",
        style::hex(tone.light),
        escape(name)
    )
}

fn story(lines: &[String]) -> String {
    if lines.is_empty() {
        String::new()
    } else {
        format!("<pre>{}</pre>\n", escape(&lines.join("\n")))
    }
}

fn capitalized(word: &str) -> String {
    let mut letters = word.chars();
    letters
        .next()
        .map(|first| first.to_uppercase().chain(letters).collect())
        .unwrap_or_default()
}

/// Text as it stands in HTML, in elements and in quoted attributes. Control characters, which XML cannot hold, are dropped.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\n' | '\t' => escaped.push(c),
            _ if c.is_control() => {}
            _ => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake;

    fn page() -> String {
        render(&fake::comparison(fake::plan(
            &["ideal", "ipi", "broadcast", "adaptive"],
            &[1, 4, 16, 72],
        )))
    }

    #[test]
    fn the_page_is_well_formed() {
        let options = roxmltree::ParsingOptions {
            allow_dtd: true,
            ..Default::default()
        };
        let page = page();
        let document = roxmltree::Document::parse_with_options(&page, options).unwrap();
        let count = |name: &str| {
            document
                .descendants()
                .filter(|node| node.tag_name().name() == name)
                .count()
        };
        assert!(count("polyline") >= 12, "four designs in three plots");
        assert_eq!(
            count("figure"),
            1 + 2 + 4 + 2 * 2,
            "throughput, two of interrupts, one per design, two per kind of latency"
        );
    }

    #[test]
    fn the_page_says_how_to_repeat_it_and_what_was_found() {
        let page = page();
        for expected in [
            "shootdown compare tlb_flush2 --on milan-72 --designs ideal,ipi,broadcast,adaptive --threads 1,4,16,72 --seed 1",
            "stale translations: 0 in",
            "control: `none` on tlb_shared caught after 17 accesses",
            "CPU 1 reads page 7 &lt;stale&gt;",
            "broadcast vs ipi:",
            "Hollow markers are published measurements",
            "parameters of milan-72",
        ] {
            assert!(page.contains(expected), "missing: {expected}");
        }
    }

    #[test]
    fn latencies_are_shown_where_they_were_recorded_and_only_there() {
        assert!(page().contains("<h2>Latency: interrupt disturbance</h2>"));
        let mut comparison = fake::comparison(fake::plan(&["ipi"], &[1, 4]));
        comparison.rows.iter_mut().for_each(|row| row.latencies.clear());
        assert!(!render(&comparison).contains("Latency"));
    }

    #[test]
    fn the_share_above_falls_to_the_longest() {
        let latency = Latency {
            name: "flush",
            count: 100,
            p50_ns: 10.0,
            p99_ns: 40.0,
            max_ns: 70.0,
            buckets: vec![(10.0, 60), (20.0, 30), (40.0, 9), (80.0, 1)],
        };
        assert_eq!(above(&latency), [(10.0, 0.4), (20.0, 0.1), (40.0, 0.01), (70.0, 0.01)]);
    }

    #[test]
    fn the_page_needs_nothing_from_elsewhere() {
        let page = page().replace("http://www.w3.org/2000/svg", "");
        for forbidden in ["http://", "https://", "<script", "<link", "src=", "url("] {
            assert!(!page.contains(forbidden), "{forbidden}");
        }
    }

    #[test]
    fn text_from_outside_cannot_become_markup() {
        assert_eq!(
            escape("<a href=\"x\">&\u{1b}[1m"),
            "&lt;a href=&quot;x&quot;&gt;&amp;[1m"
        );
    }
}
