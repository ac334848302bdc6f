//! The page of `explain`: the same words, a table of the methods, and a plot.

use shootdown_sim::os::DecisionLog;

use super::{share, times};
use crate::catalog;
use crate::comparison::report;
use crate::print::number;
use crate::print::page::{self, capitalized, escape, prose};
use crate::print::plot;
use crate::print::style::{self, Tone};
use crate::print::table::{Column, Grid};

/// The colour of each of [`DecisionLog::WAYS`]: that of the design that uses only this method.
fn tone(way: usize) -> Tone {
    style::design([catalog::IDEAL_DESIGN, "ipi", "broadcast"][way])
}

/// The whole page.
pub(super) fn render(title: &str, command: &str, decision_log: &DecisionLog, paragraphs: &[String]) -> String {
    let ways = 0..DecisionLog::WAYS.len();
    let shares = |of: &dyn Fn(usize) -> f64| -> Vec<f64> {
        let all: f64 = ways.clone().map(of).sum();
        ways.clone().map(|way| share(of(way), all)).collect()
    };
    let of_requests = shares(&|way| decision_log.requests[way].count as f64);
    let of_time = shares(&|way| decision_log.requests[way].total_ns);
    let bar = |name: &str, shares: &[f64]| {
        let toned = shares.iter().enumerate().map(|(way, share)| (tone(way), *share));
        (name.to_string(), toned.collect::<Vec<_>>())
    };
    let bars = [bar("requests", &of_requests), bar("time of requesters", &of_time)];
    let legend: String = ways
        .clone()
        .map(|way| report::swatch(tone(way), DecisionLog::WAYS[way].1))
        .collect();
    let rows = ways.clone().map(|way| {
        let requests = &decision_log.requests[way];
        let mut cells = vec![
            DecisionLog::WAYS[way].1.to_string(),
            number::count(requests.count),
            number::percent(of_requests[way]),
            number::percent(of_time[way]),
        ];
        cells.extend(times(requests));
        cells
    });
    let mut columns = vec![Column::words("way", "how flushes were carried out")];
    let numbers = ["requests", "share", "of their time", "mean", "p50", "p99"];
    columns.extend(numbers.map(|heading| Column::number(heading, "")));
    let table = Grid::new(columns, vec![rows.collect()]);
    let words: String = paragraphs
        .iter()
        .map(|paragraph| format!("<p>{}</p>\n", prose(&capitalized(paragraph))))
        .collect();
    let body = format!(
        "<pre class=\"command\">{}</pre>\n<h2>Which way requests went</h2>\n<ul class=\"legend\">\n{legend}</ul>\n\
         <figure class=\"small\">{}</figure>\n{}<h2>Why</h2>\n{words}<p class=\"soft\">Shootdown {}.</p>\n",
        escape(command),
        plot::stacked((540, 280), "", &bars),
        report::grid(&table),
        env!("CARGO_PKG_VERSION"),
    );
    page::render(title, "", &body)
}
