//! The HTML report: one self-contained file, in light and dark.
//!
//! It is written as well-formed XML, so that a test can parse it.

mod growth;
mod intervals;
mod latency;
mod legend;
mod picture;
mod rates;

use shootdown_sim::model::{Parameter, Unit};

use crate::comparison::summary::{Comparison, Row};
use crate::comparison::table;
use crate::comparison::verdict::Verdict;
use crate::print::number::{self, UNKNOWN};
use crate::print::page::{self, capitalized, escape};
use crate::print::plot::{self, Bar, Line};
use crate::print::style;
use crate::print::table::Grid;
use growth::growth;
use latency::latencies;
use rates::{interrupts, invalidation, limit, over_threads, throughput};

pub use legend::{PUBLISHED_MARK, sample, swatch};
pub use picture::picture;

/// The whole page.
pub fn render(comparison: &Comparison) -> String {
    let plan = &comparison.plan;
    let verdict = Verdict::new(comparison);
    let title = format!("{} on {}", plan.workload.name, plan.place());
    let mut body = String::new();
    body.push_str(&format!(
        "<p class=\"soft\">{}. Simulated machine: {}{}. Seed {}, {}.</p>\n",
        page::prose(&capitalized(&plan.workload.description)),
        page::prose(&plan.target.machine.description),
        cpus(comparison),
        plan.settings.seed,
        if plan.settings.runs > 1 {
            format!("medians of {} runs", plan.settings.runs)
        } else {
            "one run each".to_string()
        }
    ));
    body.push_str(&format!("<pre class=\"command\">{}</pre>\n", escape(&plan.command())));
    body.push_str(&headline(&verdict));
    body.push_str(&recording(comparison));
    body.push_str(&growth(comparison, &verdict));
    // The rate of a recording is the same under every design.
    if plan.workload.recording.is_none() {
        body.push_str(&throughput(comparison));
        body.push_str(&limit(comparison));
    }
    body.push_str(&interrupts(comparison));
    body.push_str(&invalidation(comparison));
    body.push_str(&shares(comparison));
    body.push_str(&latencies(comparison));
    body.push_str(&numbers(comparison, &verdict));
    body.push_str(&control(&verdict));
    body.push_str(&parameters(comparison));
    body.push_str(&format!(
        "<p class=\"soft\">{}. Shootdown {}.</p>\n",
        escape(&capitalized(&verdict.cost)),
        env!("CARGO_PKG_VERSION")
    ));
    page::render(&title, "", &body)
}

/// The number of CPUs of the machine at each thread count, if it follows them.
fn cpus(comparison: &Comparison) -> String {
    let plan = &comparison.plan;
    if !plan.follows() {
        return format!(
            "{}{}",
            if plan.target.as_measured { ", " } else { "; changed to " },
            number::counted(plan.target.machine.topology.cpus(), "CPU")
        );
    }
    let mut groups: Vec<(usize, Vec<String>)> = Vec::new();
    for (threads, target) in &plan.followers {
        let cpus = target.machine.topology.cpus();
        match groups.iter_mut().find(|group| group.0 == cpus) {
            Some(group) => group.1.push(threads.to_string()),
            None => groups.push((cpus, vec![threads.to_string()])),
        }
    }
    let groups: Vec<String> = groups
        .iter()
        .map(|(cpus, threads)| {
            let unit = if threads == &["1"] { "thread" } else { "threads" };
            format!("{} at {} {unit}", number::counted(*cpus, "CPU"), threads.join(", "))
        })
        .collect();
    format!("; with {}", groups.join(", "))
}

fn headline(verdict: &Verdict) -> String {
    let class = match (verdict.sound, verdict.unjudged) {
        (false, _) => "verdict bad",
        (true, true) => "verdict unjudged",
        (true, false) => "verdict",
    };
    let mut html = format!(
        "<div class=\"{class}\">\n<p><strong>{}</strong></p>\n",
        page::prose(&capitalized(&verdict.stale))
    );
    html.push_str(&diagnosis(&verdict.stale_diagnosis));
    html.push_str(&diagnosis(&verdict.failed));
    for sentence in verdict.warnings.iter().chain(&verdict.indistinct) {
        html.push_str(&format!("<p>{}</p>\n", page::prose(&capitalized(sentence))));
    }
    for sentence in &verdict.ratios {
        html.push_str(&format!("<p>{}</p>\n", page::prose(sentence)));
    }
    html.push_str("</div>\n");
    html
}

/// What a recording can and cannot tell, if the workload is one.
fn recording(comparison: &Comparison) -> String {
    let Some(recording) = &comparison.plan.workload.recording else {
        return String::new();
    };
    let notes = recording.notes().into_iter();
    let lines: String = notes.map(|line| format!("<li>{}</li>\n", page::prose(&line))).collect();
    format!("<h2>What the recording can tell</h2>\n<ul class=\"soft\">\n{lines}</ul>\n")
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

/// A table, with its notes.
pub fn grid(grid: &Grid) -> String {
    let class = |index: usize| if grid.is_words(index) { " class=\"word\"" } else { "" };
    let row = |tag: &str, cells: &[String]| {
        let cells: String = cells
            .iter()
            .enumerate()
            .map(|(index, text)| format!("<{tag}{}>{}</{tag}>", class(index), escape(text)))
            .collect();
        format!("<tr>{cells}</tr>\n")
    };
    let headings: Vec<String> = grid.columns.iter().map(|column| column.heading.clone()).collect();
    let mut html = format!("<div class=\"wide\"><table>\n<thead>{}</thead>\n", row("th", &headings));
    for group in &grid.groups {
        let rows: String = group.iter().map(|cells| row("td", cells)).collect();
        html.push_str(&format!("<tbody>{rows}</tbody>\n"));
    }
    html.push_str("</table></div>\n");
    for note in &grid.notes {
        html.push_str(&format!("<p class=\"soft\">{}</p>\n", escape(note)));
    }
    html
}

/// The meaning of a table's columns.
pub fn columns(grid: &Grid) -> String {
    let explained = grid.columns.iter().filter(|column| !column.about.is_empty());
    let lines: String = explained
        .map(|column| {
            format!(
                "<li><strong>{}</strong>: {}</li>\n",
                escape(&column.heading),
                page::prose(&column.about)
            )
        })
        .collect();
    format!("<details><summary>Columns</summary><ul class=\"soft\">\n{lines}</ul></details>\n")
}

fn numbers(comparison: &Comparison, verdict: &Verdict) -> String {
    let table = table::comparison(comparison);
    let mut html = format!("<h2>Numbers</h2>\n{}{}", grid(&table), columns(&table));
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
        "<h2>Control</h2>\n\
         <p>A zero counts only if the oracle can say otherwise: \
         the same machine without any invalidation must be caught.</p>\n\
         <p><strong>{}</strong></p>\n\
         {}",
        page::prose(&capitalized(line)),
        diagnosis(&verdict.control_diagnosis)
    )
}

fn parameters(comparison: &Comparison) -> String {
    let parameters = comparison.plan.target.machine.parameters();
    let count = parameters.len();
    let rows: String = parameters
        .map(|parameter| {
            format!(
                "<tr><td class=\"word\"><code>{}</code></td><td>{}</td>\
                 <td class=\"word\">{}</td><td class=\"word prose\">{}</td></tr>\n",
                escape(parameter.path),
                parameter.value,
                unit(parameter),
                page::prose(&parameter.provenance.to_string())
            )
        })
        .collect();
    format!(
        "<h2>Machine model</h2>\n\
         <details><summary>{} parameters of {}, each with its source</summary>\n\
         <div class=\"wide\"><table>\n\
         <thead><tr><th class=\"word\">parameter</th><th>value</th>\
         <th class=\"word\">unit</th><th class=\"word\">source</th></tr></thead>\n\
         <tbody>{rows}</tbody>\n\
         </table></div></details>\n",
        number::count(count as u64),
        escape(&comparison.plan.target.machine.name)
    )
}

/// The unit of a parameter; counts and shares have none.
fn unit(parameter: &Parameter) -> &str {
    match parameter.unit {
        Unit::Value if parameter.path.ends_with("ghz") => "GHz",
        Unit::Value => UNKNOWN,
        timed => timed.key(),
    }
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

fn diagnosis(lines: &[String]) -> String {
    if lines.is_empty() {
        String::new()
    } else {
        format!("<pre>{}</pre>\n", escape(&lines.join("\n")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runs::fake;
    use crate::runs::target::Target;

    fn page() -> String {
        render(&fake::comparison(fake::plan(
            &["ideal", "ipi", "broadcast", "adaptive"],
            &[1, 4, 16, 72],
        )))
    }

    #[test]
    fn page_is_well_formed() {
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
            2 + 2 + 1 + 4 + 2 * 3,
            "throughput, its ratio to the limit, two of interrupts, \
             invalidation, one per design, two per kind of latency"
        );
    }

    #[test]
    fn page_names_its_command_and_results() {
        let page = page();
        for expected in [
            "shootdown compare tlb_flush2 --on milan-72 \
             --designs ideal,ipi,broadcast,adaptive --threads 1,4,16,72 --seed 1",
            "Stale translations: 0 in",
            "Control: <code>none</code> on tlb_shared caught after 17 accesses",
            "CPU 1 reads page 7 &lt;stale&gt;",
            "broadcast vs ipi:",
            "Hollow markers are published measurements",
            "parameters of milan-72",
        ] {
            assert!(page.contains(expected), "missing: {expected}");
        }
    }

    #[test]
    fn latencies_are_shown_only_if_recorded() {
        assert!(page().contains("<h2>Latency: interrupt disturbance</h2>"));
        let mut comparison = fake::comparison(fake::plan(&["ipi"], &[1, 4]));
        comparison.rows.iter_mut().for_each(|row| row.latencies.clear());
        assert!(!render(&comparison).contains("Latency"));
    }

    #[test]
    fn growth_is_plotted_only_if_cpus_follow_threads() {
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
            "ipi: a loop costs 4.05 µs of CPU time and 0 interrupts at 1 CPU",
            "--cpus-follow-threads",
        ] {
            assert!(page.contains(expected), "missing: {expected}\n{page}");
        }
    }

    #[test]
    fn imprecise_rate_is_in_parentheses_with_its_reason() {
        let plan = fake::plan(&["ipi", "broadcast"], &[16]);
        let mut outcomes: Vec<_> = plan.specs().iter().map(|spec| Ok(fake::result(spec))).collect();
        let doubtful = outcomes[0].as_mut().unwrap();
        (doubtful.half_width, doubtful.ops) = (Some(0.9), 53);
        let page = render(&Comparison::new(plan, outcomes, None, 1.0));
        page::checked(&page);
        for expected in [
            "In parentheses, too few samples to be meaningful: ipi at 16 threads, too wide an interval (53 loops)",
            "<td>±90%</td>",
        ] {
            assert!(page.contains(expected), "missing: {expected}\n{page}");
        }
        assert!(!page.contains("broadcast vs ipi"), "nothing is compared with it");
    }

    #[test]
    fn one_thread_count_draws_bars_with_the_published_value() {
        let page = render(&fake::comparison(fake::plan(&["ipi", "broadcast"], &[16])));
        page::checked(&page);
        assert!(page.contains("aria-label=\"Bars\""), "{page}");
        let hollow = page.matches("r=\"6\" fill=\"none\"").count();
        assert_eq!(hollow, 2, "both are published at 16 threads");
        assert!(!page.contains("Of the limit"), "nothing to compare with");
        assert_eq!(
            page.matches("aria-label=\"Bars\"").count(),
            4 + 3,
            "all but distributions and shares"
        );
    }

    #[test]
    fn plot_shows_published_points_only_within_the_run_threads() {
        let hollow = |threads: &[usize]| {
            let page = render(&fake::comparison(fake::plan(&["ipi"], threads)));
            page.matches("(published)</title>").count()
        };
        // Published at 1, 4, 16, 36 and 72.
        assert_eq!((hollow(&[1, 72]), hollow(&[4, 16]), hollow(&[2, 3])), (5, 2, 0));
    }

    #[test]
    fn control_alone_gives_no_good_verdict() {
        let class = |designs: &[&'static str]| {
            let page = render(&fake::comparison(fake::plan(designs, &[4])));
            let document = page::checked(&page);
            let mut classes = document.descendants().filter_map(|node| node.attribute("class"));
            classes.find(|class| class.starts_with("verdict")).map(str::to_string)
        };
        assert_eq!(class(&["none"]).as_deref(), Some("verdict unjudged"));
        assert_eq!(class(&["none", "ipi"]).as_deref(), Some("verdict"));
    }

    #[test]
    fn page_lists_cpus_of_machines_that_follow_threads() {
        let mut plan = fake::plan(&["ipi"], &[1, 8, 100]);
        plan.followers = plan
            .threads
            .iter()
            .map(|&count| (count, Target::new("milan-72", Some(count as u64), &[]).unwrap()))
            .collect();
        assert_eq!(
            cpus(&fake::comparison(plan)),
            "; with 72 CPUs at 1, 8 threads, 144 CPUs at 100 threads"
        );
        assert_eq!(cpus(&fake::comparison(fake::plan(&["ipi"], &[1]))), ", 72 CPUs");
    }

    #[test]
    fn ratio_above_1_is_explained() {
        let mut comparison = fake::comparison(fake::plan(&["ideal", "ipi"], &[1, 4]));
        assert!(!render(&comparison).contains("More than 1"));
        comparison.rows[1].of_ideal = Some(1.2);
        assert!(render(&comparison).contains("More than 1"));
    }

    #[test]
    fn parameters_without_a_unit_have_a_dash() {
        let page = page();
        assert!(
            page.contains("ghz</code></td>") && page.contains("<td class=\"word\">GHz</td>"),
            "{page}"
        );
        assert!(!page.contains("<td class=\"word\">value</td>"));
    }
}
