//! The HTML report: one file that needs nothing else, in light and dark.
//!
//! It is written as well-formed XML, so that a test can parse it.

use shootdown_sim::run::Latency;

use crate::bars;
use crate::catalog;
use crate::number;
use crate::page::{self, capitalized, escape};
use crate::plot::{self, Bar, Line};
use crate::style::{self, Tone};
use crate::summary::{Comparison, Row};
use crate::table;
use crate::verdict::Verdict;

/// The whole page.
pub fn render(comparison: &Comparison) -> String {
    let plan = &comparison.plan;
    let verdict = Verdict::new(comparison);
    let title = format!("{} on {}", plan.workload.name, plan.place());
    let mut body = String::new();
    body.push_str(&format!(
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
    body.push_str(&format!("<pre class=\"command\">{}</pre>\n", escape(&plan.command())));
    body.push_str(&headline(&verdict));
    body.push_str(&growth(comparison, &verdict));
    body.push_str(&throughput(comparison));
    body.push_str(&limit(comparison));
    body.push_str(&interrupts(comparison));
    body.push_str(&invalidation(comparison));
    body.push_str(&shares(comparison));
    body.push_str(&latencies(comparison));
    body.push_str(&numbers(comparison, &verdict));
    body.push_str(&control(&verdict));
    body.push_str(&parameters(comparison));
    body.push_str(&format!(
        "<p class=\"soft\">{}. Shootdown {}.</p>\n",
        escape(&verdict.cost),
        env!("CARGO_PKG_VERSION")
    ));
    page::render(&title, "", &body)
}

fn headline(verdict: &Verdict) -> String {
    let class = if verdict.sound { "verdict" } else { "verdict bad" };
    let mut html = format!(
        "<div class=\"{class}\">\n<p><strong>{}</strong></p>\n",
        escape(&verdict.stale)
    );
    html.push_str(&story(&verdict.stale_story));
    html.push_str(&story(&verdict.failed));
    for sentence in verdict.doubts.iter().chain(&verdict.ratios) {
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
            ranges: uncertain(comparison, design.name)
                .map(|(row, half)| (row.threads, row.ops_per_s * (1.0 - half), row.ops_per_s * (1.0 + half)))
                .collect(),
            ..line(comparison, design.name, |row| row.ops_per_s)
        })
        .collect();
    let published = lines.iter().any(|line| !line.hollow.is_empty());
    format!(
        "<h2>Throughput</h2>\n{}<figure>{}<figcaption>{}s per second, all threads together.{}</figcaption></figure>\n",
        design_legend(comparison, published),
        over_threads(comparison, (1100, 420), &lines, number::rate, |size, lines| {
            plot::lines(size, &format!("{operation}s/s"), lines)
        }),
        capitalized(operation),
        if published {
            " Hollow markers are published measurements."
        } else {
            ""
        }
    )
}

/// The rows of a design whose confidence interval is wide enough to be seen, and half its width as a share of the rate.
fn uncertain<'a>(comparison: &'a Comparison, design: &str) -> impl Iterator<Item = (&'a Row, f64)> {
    let rows = by_threads(comparison, design).into_iter().filter(|row| row.is_uncertain());
    rows.filter_map(|row| Some((row, row.half_width?)))
}

/// What an operation costs over CPUs, where each thread count has a machine of its size.
fn growth(comparison: &Comparison, verdict: &Verdict) -> String {
    if !comparison.plan.follows() {
        return String::new();
    }
    let operation = catalog::operation(comparison.plan.workload.name);
    let lines = |value: fn(&Row) -> f64, ranges: bool| -> Vec<Line> {
        let designs = comparison.plan.designs.iter();
        designs
            .map(|design| Line {
                ranges: uncertain(comparison, design.name)
                    .filter(|_| ranges)
                    .map(|(row, half)| {
                        // A rate of nothing is within the widest intervals: as far as the plot goes.
                        let at = |rate: f64| value(row) / rate.max(1e-3);
                        (row.threads, at(1.0 + half), at(1.0 - half))
                    })
                    .collect(),
                ..line(comparison, design.name, value)
            })
            .collect()
    };
    let figure = |title: &str, unit: &str, lines: &[Line], decade| {
        let plot = plot::log_log((1100, 420), ("CPUs, each with a thread", unit), lines, decade);
        format!("<figure><h3>{title}</h3>{plot}</figure>\n")
    };
    let sentences: String = verdict
        .growth
        .iter()
        .map(|sentence| format!("<li>{}</li>\n", escape(sentence)))
        .collect();
    format!(
        "<h2>Growth with CPUs</h2>\n{}{}{}<ul>\n{sentences}</ul>\n<p class=\"soft\">Both axes are logarithmic: a straight line is a \
         power of the number of CPUs. Thick strokes are 95 % confidence intervals.</p>\n",
        design_legend(comparison, false),
        figure(
            &format!("CPU time per {operation}, waiting included"),
            "",
            &lines(Row::cpu_ns_per_op, true),
            plot::decade_of_time
        ),
        figure(
            &format!("Interrupts taken per {operation}"),
            &format!("per {operation}"),
            &lines(|row| row.interrupts_per_op, false),
            plot::decade_of_count
        )
    )
}

/// The ratio to the limit over threads, where `ideal` is among the designs.
fn limit(comparison: &Comparison) -> String {
    if comparison.rows.iter().all(|row| row.of_ideal.is_none()) {
        return String::new();
    }
    let designs = comparison.plan.designs.iter();
    let lines: Vec<Line> = designs
        .map(|design| line(comparison, design.name, |row| row.of_ideal.unwrap_or(f64::NAN)))
        .collect();
    format!(
        "<h2>Of the limit</h2>\n{}<figure>{}<figcaption>Throughput over that of <code>{}</code>, whose invalidation is perfect and free.</figcaption></figure>\n",
        design_legend(comparison, false),
        over_threads(comparison, (1100, 300), &lines, number::ratio, |size, lines| {
            plot::lines(size, "of the limit", lines)
        }),
        catalog::IDEAL_DESIGN
    )
}

/// Lines over threads, or bars where there is only one thread count. The lines are in the order of the designs.
fn over_threads(
    comparison: &Comparison,
    size: (u32, u32),
    lines: &[Line],
    shown: fn(f64) -> String,
    plot: impl Fn((u32, u32), &[Line]) -> String,
) -> String {
    let &[threads] = &*comparison.plan.threads else {
        return plot(size, lines);
    };
    let at = |points: &[(usize, f64)]| points.iter().find(|point| point.0 == threads).map(|point| point.1);
    let of_designs = comparison.plan.designs.iter().zip(lines);
    let drawn: Vec<bars::Bar> = of_designs
        .map(|(design, line)| {
            let value = at(&line.points).unwrap_or(f64::NAN);
            bars::Bar {
                name: design.name,
                tone: line.tone,
                value,
                shown: shown(value),
                published: at(&line.hollow),
            }
        })
        .collect();
    bars::draw(f64::from(size.0), &drawn)
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
            over_threads(comparison, (540, 280), &lines, number::per_operation, |size, lines| {
                plot::lines(size, &format!("per {operation}"), lines)
            })
        )
    };
    format!(
        "<h2>Interrupts per {operation}</h2>\n{}<div class=\"pair\">\n{}{}</div>\n<p class=\"soft\">Several requests can share one interrupt, so fewer may be taken than were asked for.</p>\n",
        design_legend(comparison, false),
        panel("Sent", |row| row.ipis_per_op),
        panel("Taken", |row| row.interrupts_per_op)
    )
}

fn invalidation(comparison: &Comparison) -> String {
    let lines: Vec<Line> = comparison
        .plan
        .designs
        .iter()
        .map(|design| line(comparison, design.name, |row| row.flush_share * 100.0))
        .collect();
    format!(
        "<h2>CPU time in invalidation</h2>\n{}<figure>{}<figcaption>Of all CPU time, requesters and interrupted CPUs together, over threads (logarithmic).</figcaption></figure>\n",
        design_legend(comparison, false),
        plot::lines((1100, 320), "%", &lines)
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

/// A distribution is drawn from so many samples on.
const FEWEST: u64 = 20;

fn latency(comparison: &Comparison, kind: &str) -> String {
    fn of<'a>(row: &'a Row, kind: &str) -> Option<&'a Latency> {
        row.latencies.iter().find(|latency| latency.name == kind)
    }
    let designs = || comparison.plan.designs.iter().map(|design| design.name);
    let tail: Vec<Line> = designs()
        .map(|design| {
            let value = |row: &Row| of(row, kind).map_or(f64::NAN, |latency| latency.p99_ns);
            line(comparison, design, value)
        })
        .collect();
    // The distribution where it is widest: at the most threads.
    let most = comparison.plan.threads.iter().copied().max().unwrap_or(1);
    let curves: Vec<(Tone, Vec<(f64, f64)>)> = designs()
        .filter_map(|design| Some((design, of(comparison.row(design, most)?, kind)?)))
        .map(|(design, latency)| (style::design(design), above(latency)))
        .collect();
    let counts = designs().filter_map(|design| Some(of(comparison.row(design, most)?, kind)?.count));
    let distribution = match counts.max().unwrap_or(0) {
        count if count >= FEWEST => plot::tails((540, 280), &curves),
        count => format!("<p class=\"soft\">Too few samples for a distribution: {count}.</p>"),
    };
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
        "<h2>Latency: {}</h2>\n{}<div class=\"pair\">\n<figure><h3>99th percentile</h3>{}</figure>\n<figure><h3>How many are longer, at {most} threads</h3>{distribution}</figure>\n</div>\n<details><summary>Median, 99th percentile and longest</summary>\n<div class=\"wide\"><table>\n<thead><tr><th>threads</th><th class=\"word\">design</th><th>count</th><th>median</th><th>99%</th><th>longest</th></tr></thead>\n{rows}</table></div></details>\n",
        escape(kind),
        design_legend(comparison, false),
        over_threads(comparison, (540, 280), &tail, number::time, plot::times),
    )
}

/// The share of a distribution above each bucket's upper edge; the last is where its longest lies.
fn above(latency: &Latency) -> Vec<(f64, f64)> {
    let all = latency.buckets.iter().map(|bucket| bucket.1).sum::<u64>().max(1) as f64;
    let mut left = all;
    // Each edge is the square root of two times the one before (see the simulator's distributions).
    let first = latency
        .buckets
        .first()
        .filter(|bucket| bucket.0.is_finite() && bucket.0 > 0.0);
    let mut curve: Vec<(f64, f64)> = first.map(|bucket| (bucket.0 / 2_f64.sqrt(), 1.0)).into_iter().collect();
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
        ranges: Vec::new(),
    }
}

fn design_legend(comparison: &Comparison, published: bool) -> String {
    let mut items: String = comparison
        .plan
        .designs
        .iter()
        .map(|design| sample(style::design(design.name), design.name))
        .collect();
    if published {
        items.push_str(PUBLISHED_MARK);
    }
    format!("<ul class=\"legend\">{items}</ul>\n")
}

/// The legend's entry for published points.
pub const PUBLISHED_MARK: &str = "<li><svg viewBox=\"0 0 14 14\"><circle cx=\"7\" cy=\"7\" r=\"5\" fill=\"none\" stroke=\"currentColor\" stroke-width=\"2\"/></svg>published</li>";

/// A legend's entry of a line: its colour, and how it is dashed.
pub fn sample(tone: Tone, name: &str) -> String {
    format!(
        "<li><svg class=\"line\" viewBox=\"0 0 28 14\"><polyline points=\"0,7 28,7\" fill=\"none\" stroke=\"{}\" stroke-width=\"4\"/></svg>{}</li>",
        style::hex(tone.light),
        escape(name)
    )
}

/// A legend's entry: a colour and what it stands for.
pub fn swatch(tone: Tone, name: &str) -> String {
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
        let page = page();
        let document = page::checked(&page);
        let count = |name: &str| {
            document
                .descendants()
                .filter(|node| node.tag_name().name() == name)
                .count()
        };
        assert!(count("polyline") >= 16, "four designs in four plots");
        assert_eq!(
            count("figure"),
            2 + 2 + 1 + 4 + 2 * 2,
            "throughput, its ratio to the limit, two of interrupts, invalidation, one per design, two per kind of latency"
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
    fn growth_is_plotted_where_machines_follow_threads_and_only_there() {
        assert!(!page().contains("Growth with CPUs"));
        let mut plan = fake::plan(&["ipi", "broadcast"], &[1, 16, 72]);
        plan.followers = plan.threads.iter().map(|&count| (count, plan.target.clone())).collect();
        let comparison = fake::comparison(plan);
        let page = render(&comparison);
        page::checked(&page);
        for expected in [
            "<h2>Growth with CPUs</h2>",
            "CPU time per loop, waiting included",
            "Interrupts taken per loop",
            "ipi: a loop costs 4.03 µs of CPU time and 0 interrupts at 1 threads",
            "--cpus-follow-threads",
        ] {
            assert!(page.contains(expected), "missing: {expected}\n{page}");
        }
    }

    #[test]
    fn a_figure_that_is_no_measurement_stands_in_brackets_with_its_reason() {
        let plan = fake::plan(&["ipi", "broadcast"], &[16]);
        let mut outcomes: Vec<_> = plan.specs().iter().map(|spec| Ok(fake::result(spec))).collect();
        let doubtful = outcomes[0].as_mut().unwrap();
        (doubtful.half_width, doubtful.ops) = (Some(0.9), 53);
        let page = render(&Comparison::new(plan, outcomes, None, 1.0));
        page::checked(&page);
        for expected in [
            "in brackets, no measurement: ipi at 16 threads, too wide an interval (53 loops)",
            "<td>±90%</td>",
        ] {
            assert!(page.contains(expected), "missing: {expected}\n{page}");
        }
        assert!(!page.contains("broadcast vs ipi"), "nothing is compared with it");
    }

    #[test]
    fn one_thread_count_gives_bars_with_the_published_value() {
        let page = render(&fake::comparison(fake::plan(&["ipi", "broadcast"], &[16])));
        page::checked(&page);
        assert!(page.contains("aria-label=\"Bars\""), "{page}");
        let hollow = page.matches("r=\"6\" fill=\"none\"").count();
        assert_eq!(hollow, 2, "both are published at 16 threads");
        assert!(!page.contains("Of the limit"), "nothing to compare with");
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
        let expected = [
            (10.0 / 2_f64.sqrt(), 1.0),
            (10.0, 0.4),
            (20.0, 0.1),
            (40.0, 0.01),
            (70.0, 0.01),
        ];
        assert_eq!(above(&latency), expected);
    }
}
