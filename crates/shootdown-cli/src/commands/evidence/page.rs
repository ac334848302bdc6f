//! The page of `evidence`: the published tables with a bar for every error, plots of curves, the fitted numbers, and
//! the rows that were not run. It shows the findings of [`crate::commands::evidence`] and computes only positions.

use super::findings::Findings;
use super::plots::plots;
use super::text::{ERROR, grid};
use super::{Line, distinct, errors, misses, shown, worst};
use crate::catalog;
use crate::commands::evidence::shape::{self, Statement};
use crate::comparison::summary::relative_error;
use crate::print::number::{self, UNKNOWN, median};
use crate::print::page::{self, escape};
use crate::print::style;
use crate::print::table::Grid;
use crate::published::{Metric, Published};
use crate::runs::plan::Settings;

/// The error at which a bar ends; longer ones end in a point.
const FULL: f64 = 0.5;

const STYLE: &str = "\
table.published th,table.published td{padding-left:.4rem;padding-right:.4rem}
.error{width:6.5rem;height:.9rem;vertical-align:middle}
.error .zero{stroke:var(--soft);stroke-width:1}
.error .bar{fill:var(--bar);stroke:var(--bar);stroke-width:1.5}
.error .hollow{fill:none}
.error .baseline{fill:none;stroke:var(--soft);stroke-width:1.5}
th.source{font-size:.875rem}
td.source{white-space:normal;min-width:11rem;font-size:.8rem;line-height:1.3;color:var(--soft)}
/* On a telephone the table scrolls anyway, and rows are not to be as high as what was measured is long. */
@media screen and (max-width:40rem){td.source{min-width:20rem}}
.met{color:var(--good);font-weight:600}.missed{color:var(--bad);font-weight:600}
.legend .error{width:2.4rem;margin-right:.4rem;vertical-align:-2px}
";

/// The whole page.
pub fn render(findings: &Findings) -> String {
    let settings = findings.settings;
    let mut body = format!(
        "<p class=\"soft\">Published measurements beside simulated ones. Seed {}, {}.</p>\n\
         <pre class=\"command\">{}</pre>\n",
        settings.seed,
        if settings.runs > 1 {
            format!("medians of {} runs", settings.runs)
        } else {
            "one run each".to_string()
        },
        escape(findings.command)
    );
    body.push_str(&format!(
        "<div class=\"verdict{}\">\n{}</div>\n",
        if findings.sound { "" } else { " bad" },
        findings
            .verdict
            .lines()
            .map(|line| format!("<p><strong>{}</strong></p>\n", escape(&page::capitalized(line))))
            .collect::<String>()
    ));
    body.push_str(&held_out(findings));
    if let Some(found) = &findings.statements {
        body.push_str(&statements(found.as_deref()));
    }
    body.push_str(&legend());
    for table in distinct(findings.lines, |line| &line.published.table) {
        body.push_str(&section(findings, table));
    }
    body.push_str(&not_run(findings.left));
    body.push_str(&format!(
        "<p class=\"soft\">Shootdown {}.</p>\n",
        env!("CARGO_PKG_VERSION")
    ));
    let colours = style::schemes("--bar:#0068B4;", "--bar:#5CAEF2;");
    page::render("Evidence", &format!("{colours}{STYLE}"), &body)
}

/// Worst and median errors by machine, on the held-out rows, beside the interpolation's.
fn held_out(findings: &Findings) -> String {
    let mut rows = String::new();
    for machine in distinct(findings.lines, |line| &line.published.machine) {
        let of_machine = findings.lines.iter().filter(|line| line.published.machine == machine);
        let (fitted, held): (Vec<&Line>, Vec<&Line>) = of_machine.partition(|line| line.published.fitted);
        let cells = |errors: Vec<f64>| {
            if errors.is_empty() {
                return format!("<td>0</td><td>{UNKNOWN}</td><td>{UNKNOWN}</td>");
            }
            let worst = worst(&errors);
            format!(
                "<td>{}</td><td>{}</td><td>{}</td>",
                errors.len(),
                number::percent(median(errors)),
                number::percent(worst)
            )
        };
        rows.push_str(&format!(
            "<tr><td class=\"word\">{}</td><td>{}</td>{}{}</tr>\n",
            escape(machine),
            fitted.len(),
            cells(errors(held.iter().map(|line| line.simulated), &held)),
            cells(errors(held.iter().map(|line| line.interpolated), &held))
        ));
    }
    format!(
        "<h2>Errors on held-out rows</h2>\n\
         <div class=\"wide\"><table>\n\
         <thead><tr><th></th><th></th><th colspan=\"3\">model</th><th colspan=\"3\">interpolation</th></tr>\n\
         <tr><th class=\"word\">machine</th><th>fitted rows</th><th>rows</th>\
         <th>median</th><th>worst</th><th>rows</th><th>median</th><th>worst</th></tr></thead>\n\
         <tbody>{rows}</tbody>\n\
         </table></div>\n\
         <p class=\"soft\">Absolute errors. The interpolation is what a model must beat: \
         log(rate) linear in log(threads) through each design's fitted rows, constant through one.</p>\n"
    )
}

fn statements(statements: Option<&[Statement]>) -> String {
    let Some(statements) = statements else {
        return "<h2>Shape of E1 and E2</h2>\n<p class=\"missed\">Not judged: a run of its curves failed.</p>\n"
            .to_string();
    };
    let rows: String = statements
        .iter()
        .map(|Statement { found, expected, met }| {
            let (class, word) = if *met { ("met", "met") } else { ("missed", "MISSED") };
            format!(
                "<tr><td class=\"word prose\">{}</td><td class=\"word\">{}</td>\
                 <td class=\"word\"><span class=\"{class}\">{word}</span></td></tr>\n",
                escape(found),
                escape(expected)
            )
        })
        .collect();
    format!(
        "<h2>Shape of E1 and E2</h2>\n\
         <div class=\"wide\"><table>\n\
         <thead><tr><th class=\"word\">found</th><th class=\"word\">expected</th><th></th></tr></thead>\n\
         <tbody>{rows}</tbody>\n\
         </table></div>\n\
         <p class=\"soft\">{}.</p>\n",
        escape(&page::capitalized(shape::CAVEAT))
    )
}

fn legend() -> String {
    let sample =
        |inner: &str, words: &str| format!("<li><svg class=\"error\" viewBox=\"0 0 38 14\">{inner}</svg>{words}</li>");
    format!(
        "<h2>Tables</h2>\n\
         <ul class=\"legend\">{}{}{}</ul>\n\
         <p class=\"soft\">Bars go from {} to {}; a longer one ends in a point.</p>\n",
        sample(
            "<path class=\"bar\" d=\"M2 3H36V11H2Z\"/>",
            "error of the simulation, predicted"
        ),
        sample("<path class=\"bar hollow\" d=\"M2 3H36V11H2Z\"/>", "fitted"),
        sample(
            "<circle class=\"baseline\" cx=\"19\" cy=\"7\" r=\"4\"/>",
            "error of the interpolation"
        ),
        number::signed_percent(-FULL),
        number::signed_percent(FULL)
    )
}

fn section(findings: &Findings, table: &str) -> String {
    let of_table = |lines: &'_ [Line]| -> Vec<Line> {
        let own = lines.iter().filter(|line| line.published.table == table);
        own.cloned().collect()
    };
    let (lines, beside) = (of_table(findings.lines), of_table(findings.beside));
    let grid = grid(&lines.iter().collect::<Vec<_>>());
    let mut html = format!(
        "<h3 class=\"table\">{}. {} on {}</h3>\n",
        escape(table),
        escape(&distinct(&lines, |line| &line.published.workload).join(", ")),
        escape(&distinct(&lines, |line| &line.published.machine).join(" and "))
    );
    if let Some(sentence) = measured(&lines, findings.settings) {
        html.push_str(&format!("<p class=\"soft\">{sentence}.</p>\n"));
    }
    html.push_str(&plots(findings, table));
    html.push_str(&drawn(&grid, &lines));
    html.extend(
        grid.notes
            .iter()
            .map(|mark| format!("<p class=\"soft\">{}</p>\n", escape(mark.trim()))),
    );
    html.extend(beside.iter().map(|line| {
        let row = &line.published;
        format!(
            "<p class=\"soft\">Not published: {} at {}, {}: {}.</p>\n",
            escape(&row.workload),
            number::threads(row.threads),
            escape(&row.design),
            line.simulated
                .map_or("failed".to_string(), |number| escape(&shown(row.metric, number)))
        )
    }));
    html.extend(misses::of(&lines).iter().map(|miss| {
        let sentences = page::prose(&page::capitalized(&miss.sentences()));
        format!("<p class=\"soft\">{sentences}</p>\n")
    }));
    let notes = findings.notes.iter().filter(|note| note.table == table);
    html.extend(notes.map(|note| format!("<p class=\"soft\">{}</p>\n", page::prose(note.text.trim()))));
    html
}

/// What the rates of a table are of, and what its simulated numbers are, where that needs an explanation.
fn measured(lines: &[Line], settings: &Settings) -> Option<String> {
    let rate = lines.iter().find(|line| line.published.metric == Metric::OpsPerS);
    let unit = rate.map(|line| {
        let operation = catalog::operation(&line.published.workload);
        format!("rates are {operation}s per second, all threads together")
    });
    let medians = (settings.runs > 1).then(|| format!("simulated numbers are medians of {} runs", settings.runs));
    let sentence: Vec<String> = unit.into_iter().chain(medians).collect();
    (!sentence.is_empty()).then(|| page::capitalized(&sentence.join("; ")))
}

/// The terminal's table, with a bar beside the error of the simulation, and the measured quantity; its rows are
/// `lines`.
fn drawn(grid: &Grid, lines: &[Line]) -> String {
    let headings: Vec<String> = grid.columns.iter().map(|column| column.heading.clone()).collect();
    let error = headings.iter().position(|heading| heading == ERROR);
    let row = |tag: &str, cells: &[String], bar: &str, source: &str| {
        let mut html = String::new();
        for (index, cell) in cells.iter().enumerate() {
            let class = if grid.is_words(index) { " class=\"word\"" } else { "" };
            html.push_str(&format!("<{tag}{class}>{}</{tag}>", escape(cell)));
            if error == Some(index) {
                html.push_str(&format!("<{tag} class=\"bar\">{bar}</{tag}>"));
            }
        }
        format!("<tr>{html}<{tag} class=\"word source\">{source}</{tag}></tr>\n")
    };
    let mut html = format!(
        "<div class=\"wide\"><table class=\"published\">\n<thead>{}</thead>\n",
        row("th", &headings, "", "what was measured")
    );
    let mut lines = lines.iter();
    for group in &grid.groups {
        let rows = group.iter().zip(lines.by_ref()).map(|(cells, line)| {
            let of = |number: Option<f64>| number.map(|number| relative_error(number, line.published.value));
            let bar = bar(of(line.simulated), of(line.interpolated), line.published.fitted);
            row("td", cells, &bar, &escape(&line.published.source))
        });
        html.push_str(&format!("<tbody>{}</tbody>\n", rows.collect::<String>()));
    }
    html + "</table></div>\n"
}

/// Zero in the middle; a fitted row's bar is hollow.
fn bar(error: Option<f64>, interpolated: Option<f64>, fitted: bool) -> String {
    const HALF: f64 = 66.0;
    let at = |error: f64| 70.0 + (error / FULL).clamp(-1.0, 1.0) * HALF;
    let mut svg = String::from("<svg class=\"error\" viewBox=\"0 0 140 14\"><path class=\"zero\" d=\"M70 0V14\"/>");
    if let Some(error) = error.filter(|error| error.is_finite()) {
        let hollow = if fitted { " hollow" } else { "" };
        let end = at(error);
        let point = if error.abs() > FULL { 3.5 * error.signum() } else { 0.0 };
        svg.push_str(&format!(
            "<path class=\"bar{hollow}\" d=\"M70 3H{0:.1}L{1:.1} 7L{0:.1} 11H70Z\"/>",
            end - point,
            end + if point == 0.0 { 0.0 } else { point / 3.5 }
        ));
    }
    if let Some(error) = interpolated.filter(|error| error.is_finite() && !fitted) {
        svg.push_str(&format!(
            "<circle class=\"baseline\" cx=\"{:.1}\" cy=\"7\" r=\"3.5\"/>",
            at(error)
        ));
    }
    svg + "</svg>"
}

fn not_run(left: &[Published]) -> String {
    if left.is_empty() {
        return String::new();
    }
    let rows: String = left
        .iter()
        .map(|row| {
            format!(
                "<tr><td class=\"word\">{}</td><td class=\"word\">{}</td><td class=\"word\">{}</td>\
                 <td class=\"word\">{}</td><td>{}</td><td>{}</td><td class=\"word prose\">{}</td></tr>\n",
                escape(&row.table),
                escape(&row.workload),
                escape(&row.machine),
                escape(&row.design),
                row.threads,
                escape(&shown(row.metric, row.value)),
                page::prose(&row.not_run().unwrap_or_default())
            )
        })
        .collect();
    format!(
        "<h2>Not run</h2>\n\
         <div class=\"wide\"><table>\n\
         <thead><tr><th class=\"word\">table</th><th class=\"word\">workload</th><th class=\"word\">machine</th>\
         <th class=\"word\">design</th><th>threads</th><th>published</th><th class=\"word\">why</th></tr></thead>\n\
         <tbody>{rows}</tbody>\n\
         </table></div>\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::published::{self, Tables};

    fn lines() -> (Vec<Line>, Vec<Published>) {
        let (rows, mut left): (Vec<_>, Vec<_>) = published::rows().into_iter().partition(|row| row.not_run().is_none());
        left.push(Published {
            table: "E<99>".to_string(),
            workload: "nothing".to_string(),
            ..rows[0].clone()
        });
        let lines = rows.into_iter().map(|published| Line {
            simulated: Some(published.value * 1.1),
            interval: None,
            interpolated: Some(published.value * 3.0),
            published,
        });
        (lines.collect(), left)
    }

    /// What a page of `lines` shows, and beside them `walk-sticky` in E5.
    fn beside() -> Vec<Line> {
        let beside = Tables::embedded().beside.into_iter();
        beside
            .filter(|row| row.design == "walk-sticky")
            .map(|published| Line {
                published,
                simulated: Some(1.5),
                interval: None,
                interpolated: None,
            })
            .collect()
    }

    fn page_of(lines: &[Line], left: &[Published], statements: Option<Option<Vec<Statement>>>) -> String {
        render(&Findings {
            lines,
            beside: &beside(),
            notes: &Tables::embedded().notes,
            left,
            settings: &Settings {
                seed: 1,
                runs: 3,
                jobs: 1,
                virtual_ms: None,
            },
            curves: vec![("ipi", vec![(2, 4e5), (32, 7e5)])],
            command: "shootdown evidence --runs 3 --seed 1",
            statements,
            verdict: "stale translations: 0 in 5 checked accesses\n",
            sound: true,
        })
    }

    #[test]
    fn page_has_a_bar_per_row_and_hollow_ones_for_fitted_rows() {
        let (lines, left) = lines();
        let page = page_of(&lines, &left, Some(Some(Vec::new())));
        let document = page::checked(&page);
        let of_class = |class: &str| {
            let nodes = document.descendants();
            nodes.filter(|node| node.attribute("class") == Some(class)).count()
        };
        let fitted = lines.iter().filter(|line| line.published.fitted).count();
        let tables = distinct(&lines, |line| &line.published.table);
        // One each in the legend.
        assert_eq!(of_class("bar hollow"), fitted + 1);
        // A cell per row and heading has the class as well.
        assert_eq!(of_class("bar"), lines.len() - fitted + 1 + lines.len() + tables.len());
        assert_eq!(
            of_class("word source"),
            lines.len() + tables.len(),
            "and a heading each"
        );
        for table in tables {
            assert!(page.contains(&format!("<h3 class=\"table\">{table}. ")), "{table}");
        }
        assert!(page.contains("E&lt;99&gt;") && page.contains("there is no workload <code>nothing</code>"));
        assert!(page.contains("shootdown evidence --runs 3 --seed 1"), "the command");
    }

    #[test]
    fn page_and_terminal_show_the_same_table() {
        let (lines, left) = lines();
        let page = page_of(&lines, &left, Some(Some(Vec::new())));
        for expected in [
            "E1. tlb_flush2 on milan-72</h3>",
            "Rates are loops per second, all threads together; simulated numbers are medians of 3 runs.",
            "<th class=\"word\">workload</th><th class=\"word\">design</th>",
            "preemptible over ipi-per-cpu",
            "over 8 threads",
            "<p class=\"soft\">[1]: ",
            "<td>fitted</td>",
            "Not published: gup at ",
            ", walk-sticky: 1.500 s.</p>",
            "its numbers are that program's",
        ] {
            assert!(page.contains(expected), "missing: {expected}");
        }
        assert!(!page.contains('`'), "marks of code are no text");
    }

    #[test]
    fn rows_far_off_have_their_cause_below_their_table() {
        let (mut lines, left) = lines();
        let far = lines
            .iter()
            .position(|line| line.published.explanation.is_some())
            .expect("a row that says why");
        let cause = page::prose(&lines[far].published.explanation.clone().unwrap().cause);
        assert!(!page_of(&lines, &left, None).contains(&cause), "of a row that is met");
        lines[far].simulated = Some(lines[far].published.value * 2.0);
        let page = page_of(&lines, &left, None);
        page::checked(&page);
        assert!(
            page.contains(&cause) && page.contains("<p class=\"soft\">Off by more than 25 %: "),
            "{page}"
        );
    }

    #[test]
    fn published_points_lie_on_the_curves_of_e1() {
        let (lines, left) = lines();
        let svg = plots(
            &Findings {
                lines: &lines,
                beside: &[],
                notes: &[],
                left: &left,
                settings: &Settings {
                    seed: 1,
                    runs: 1,
                    jobs: 1,
                    virtual_ms: None,
                },
                command: "shootdown evidence",
                curves: vec![("ipi", vec![(2, 4e5), (32, 7e5)])],
                statements: None,
                verdict: "",
                sound: true,
            },
            "E1",
        );
        let hollow = svg.matches("r=\"6\"").count();
        let of_e1 = lines.iter().filter(|line| {
            let row = &line.published;
            row.machine == "milan-72" && row.workload == "tlb_flush2" && !row.lru_drain && row.metric == Metric::OpsPerS
        });
        let of_e1 = of_e1.count();
        assert_eq!(hollow, of_e1, "E1 and the rows of E2 that fit in");
        assert_eq!(svg.matches("r=\"3\"").count(), of_e1 + 2, "and the curve's own");
    }

    #[test]
    fn failed_rows_and_curves_are_marked_failed() {
        let (mut lines, left) = lines();
        lines[0].simulated = None;
        lines[1].simulated = Some(f64::NAN);
        let page = page_of(&lines, &left, Some(None));
        page::checked(&page);
        assert!(page.contains("<td>failed</td>") && page.contains("Not judged"));
        let of_own_rows = page_of(&lines, &left, None);
        page::checked(&of_own_rows);
        assert!(!of_own_rows.contains("Shape of E1") && !of_own_rows.contains("Not judged"));
    }

    #[test]
    fn long_error_bars_end_in_an_arrow_within_the_plot() {
        assert!(bar(Some(3.5), None, false).contains("M70 3H132.5L137.0 7L132.5 11H70Z"));
        assert!(bar(Some(-0.25), None, false).contains("M70 3H37.0L37.0 7L37.0 11H70Z"));
        assert!(!bar(None, None, true).contains("class=\"bar"));
    }
}
