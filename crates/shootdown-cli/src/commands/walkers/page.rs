//! The cost of lockless walks, as a page.

use super::{DESIGNS, Findings, Row, interrupts_per_s};
use crate::catalog;
use crate::comparison::report;
use crate::print::page::{self, capitalized, escape, prose};
use crate::print::plot::{self, Line};
use crate::print::style;

/// The whole page.
pub(super) fn render(findings: &Findings) -> String {
    let class = if findings.sound() { "verdict" } else { "verdict bad" };
    let body = format!(
        "<p class=\"soft\">{}. {}.</p>\n\
         <pre class=\"command\">{}</pre>\n\
         <div class=\"{class}\"><p><strong>{}</strong></p>{}</div>\n\
         {}<h2>Break-even</h2>\n\
         {}<p class=\"soft\">In pins per second; differences of 0.1% and less count as none.</p>\n\
         <h2>Numbers</h2>\n\
         {}<p class=\"soft\">Shootdown {}.</p>\n",
        escape(&findings.title()),
        prose(&capitalized(catalog::workload("gup").map_or("", |gup| gup.description))),
        escape(&findings.command),
        escape(&capitalized(&findings.verdict())),
        items(&findings.failures()),
        plots(findings),
        items(&findings.break_evens()),
        report::grid(&findings.grid()),
        env!("CARGO_PKG_VERSION"),
    );
    page::render("What lockless walks pay", "", &body)
}

fn items(sentences: &[String]) -> String {
    let item = |sentence: &String| format!("<li>{}</li>\n", escape(sentence));
    let items: String = sentences.iter().map(item).collect();
    if items.is_empty() {
        items
    } else {
        format!("<ul>\n{items}</ul>\n")
    }
}

/// Both plots over the rate of frees, where there are rates to draw a line through.
fn plots(findings: &Findings) -> String {
    // A logarithmic axis has no place for zero frees: the table has that row.
    let rows: Vec<&Row> = findings.rows.iter().filter(|row| row.frees > 0).collect();
    if rows.len() < 2 {
        return "<p class=\"soft\">Plots take two rates of frees above 0, or more.</p>\n".to_string();
    }
    let lines = |value: &dyn Fn(&Row, usize) -> f64| -> Vec<Line> {
        let line = |(index, design): (usize, &&str)| Line {
            tone: style::design(design),
            points: rows.iter().map(|row| (row.frees as usize, value(row, index))).collect(),
            hollow: Vec::new(),
            ranges: Vec::new(),
        };
        DESIGNS.iter().enumerate().map(line).collect()
    };
    let legend: String = DESIGNS
        .iter()
        .map(|design| report::sample(style::design(design), design))
        .collect();
    let figure = |title: &str, plot: String, caption: &str| {
        format!(
            "<h2>{title}</h2>\n\
             <ul class=\"legend\">{legend}</ul>\n\
             <figure>{plot}<figcaption>{caption}</figcaption></figure>\n"
        )
    };
    const FREES: &str = "page-table pages to be freed per second";
    let lost = lines(&|row, design| 100.0 * (1.0 - row.pins(design) / row.best()));
    let interrupts = lines(&|row, design| row.of(design).map_or(f64::NAN, interrupts_per_s));
    let any = interrupts
        .iter()
        .flat_map(|line| &line.points)
        .any(|point| point.1 > 0.0);
    let mut html = figure(
        "Pins lost",
        plot::over((FREES, "% below the best design"), (1100, 360), &lost),
        "No frees at all have no place on the logarithmic axis: the table below has them.",
    );
    if any {
        html.push_str(&figure(
            "Interrupts",
            plot::log_log((1100, 360), (FREES, "interrupts/s"), &interrupts, plot::decade_of_count),
            "Both axes are logarithmic: a design that caused no interrupts has no line.",
        ));
    } else {
        html.push_str("<h2>Interrupts</h2>\n<p>No design caused any.</p>\n");
    }
    html
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_has_both_plots_if_rates_exist() {
        let mut findings = super::super::tests::findings();
        let figures = |findings: &Findings| {
            let page = render(findings);
            let document = page::checked(&page);
            let figures = document.descendants().filter(|node| node.has_tag_name("figure"));
            figures.count()
        };
        assert_eq!(figures(&findings), 2);
        findings.rows.truncate(2);
        assert_eq!(figures(&findings), 0, "a single rate above 0");
        assert!(render(&findings).contains("Plots take two rates"));
    }
}
