//! A shootdown as a page: one lane per CPU in SVG, arrows from the sender to its targets and back.

use super::lanes::{Kind, Lane, Role, View};
use super::{parts, text};
use crate::print::number;
use crate::print::page::{self, escape};
use crate::print::plot;
use crate::print::style;

/// Width of the drawing.
const WIDTH: f64 = 1100.0;
/// Left edge of time, right of the names.
const LEFT: f64 = 92.0;
/// Space right of time, for half of the last label.
const RIGHT: f64 = 24.0;
/// Height of a lane, and of one where there are many.
const LANE: f64 = 26.0;
const LANE_OF_MANY: f64 = 17.0;
/// Space above the lanes.
const TOP: f64 = 12.0;
const LIGHT: &str = "\
    --edge:#5F7FA6;--lazy:#C9CED6;--flush:#A9C4E6;--choose:#7FA8D9;--post:#4C78B5;--prepare:#94A7C2;\
    --broadcast:#7C62A9;--meanwhile:#DDE3C2;--wait:#E4ECF6;--collect:#5DA3B8;--finish:#B9CBE2;--sync:#C3B4E3;\
    --send:#0B2E5C;--handler:#F0A35E;--invalidate:#C14B45;--out:#6E7B33;--ask:#0068B4;--answer:#008F68";
const DARK: &str = "\
    --edge:#7D9CC2;--lazy:#414955;--flush:#35577F;--choose:#4F7FB8;--post:#7FA8E0;--prepare:#5D6F8A;\
    --broadcast:#A48BD1;--meanwhile:#5A6040;--wait:#243346;--collect:#7CC3D7;--finish:#3B506B;--sync:#5B4A87;\
    --send:#E6F0FF;--handler:#B86E28;--invalidate:#E07770;--out:#A9B768;--ask:#5CAEF2;--answer:#33C79A";
const STYLE: &str = "\
.lazy{fill:var(--lazy)}.flush{fill:var(--flush)}.choose{fill:var(--choose)}.post{fill:var(--post)}\
.prepare{fill:var(--prepare)}.broadcast{fill:var(--broadcast)}.meanwhile{fill:var(--meanwhile)}.wait{fill:var(--wait)}\
.collect{fill:var(--collect)}.finish{fill:var(--finish)}.sync{fill:var(--sync)}.send{fill:var(--send)}\
.handler{fill:var(--handler)}.invalidate{fill:var(--invalidate)}.out{fill:var(--out)}
/* An outline sets pale fills off from the page. */
.lazy,.wait,.meanwhile{stroke:var(--edge);stroke-width:.7}
/* On a telephone the drawing scrolls, at a size at which its labels can be read. */
@media screen and (max-width:40rem){figure>svg{min-width:66rem}}
td.cpus{max-width:24rem;white-space:normal}
.rule{stroke:var(--line);stroke-width:1}.tick{stroke:var(--line);stroke-width:1;stroke-dasharray:2 4}
.ask{stroke:var(--ask);fill:none;stroke-width:1.2}\
.answer{stroke:var(--answer);fill:none;stroke-width:1.2;stroke-dasharray:4 3}
.flight{stroke:var(--ink);fill:none;stroke-width:2}.done{fill:var(--answer);stroke:var(--page);stroke-width:1}
.askhead{fill:var(--ask)}.answerhead{fill:var(--answer)}
svg .label{font-size:13px}svg .small{font-size:12px;fill:var(--soft)}svg .strong{font-weight:600}
";

/// The whole page.
pub fn render(title: &str, command: &str, sentences: &[String], view: &View) -> String {
    let kinds = Kind::ALL.into_iter().filter(|kind| {
        view.lanes
            .iter()
            .any(|lane| lane.spans.iter().any(|span| span.kind == *kind))
    });
    let mut legend: String = kinds
        .map(|kind| {
            format!(
                "<li><svg viewBox=\"0 0 14 14\"><rect width=\"14\" height=\"14\" rx=\"3\" class=\"{}\"/></svg>{}</li>",
                kind.name(),
                kind.words()
            )
        })
        .collect();
    let entry = |mark: &str, words: &str| format!("<li><svg viewBox=\"0 0 14 14\">{mark}</svg>{words}</li>");
    if view.count(Role::Target) > 0 && is_many(view) {
        legend.push_str(&entry("<path class=\"flight\" d=\"M0 7H14\"/>", "sent, not taken yet"));
        legend.push_str(&entry("<circle class=\"done\" cx=\"7\" cy=\"7\" r=\"4\"/>", "answer"));
    } else if view.count(Role::Target) > 0 {
        legend.push_str(&entry("<path class=\"ask\" d=\"M0 7H14\"/>", "interrupt"));
        legend.push_str(&entry("<path class=\"answer\" d=\"M0 7H14\"/>", "answer"));
    }
    let sentences: String = sentences
        .iter()
        .map(|line| format!("<p>{}</p>\n", escape(line)))
        .collect();
    let (shown, hidden): (Vec<&Lane>, Vec<&Lane>) = (view.lanes.iter()).partition(|lane| !text::is_hidden(lane, view));
    let body = format!(
        "<pre class=\"command\">{}</pre>\n\
         <div class=\"verdict\">\n\
         {sentences}</div>\n\
         <ul class=\"legend\">{legend}</ul>\n\
         <figure>{}<figcaption>Virtual time since the flush began, on the simulated machine: \
         the requester, its targets in the order of their answers, CPUs that were skipped in lazy TLB mode{}. \
         Activities in progress when the record began are drawn from there.</figcaption></figure>\n\
         {}{}{}<p class=\"soft\">Shootdown {}.</p>\n",
        escape(command),
        drawing(view, &shown),
        if hidden.is_empty() { ", and the others" } else { "" },
        time_table(view),
        answers(view),
        the_others(view, &hidden),
        env!("CARGO_PKG_VERSION"),
    );
    page::render(title, &format!("{}{STYLE}", style::schemes(LIGHT, DARK)), &body)
}

/// Whether there are so many lanes that arrows across them would hide everything.
fn is_many(view: &View) -> bool {
    view.count(Role::Target) >= AXIS_ABOVE
}

/// The requester's time by activity.
fn time_table(view: &View) -> String {
    let [what, heads @ ..] = parts::HEADINGS;
    let heads: String = heads.iter().map(|head| format!("<th>{head}</th>")).collect();
    let rows: String = parts::rows(view)
        .iter()
        .map(|[what, cells @ ..]| {
            let cells: String = cells.iter().map(|cell| format!("<td>{}</td>", escape(cell))).collect();
            format!("<tr><td class=\"word\">{}</td>{cells}</tr>\n", escape(what))
        })
        .collect();
    format!(
        "<h2>Where the time went</h2>\n\
         <div class=\"wide\"><table>\n\
         <thead><tr><th class=\"word\">{what}</th>{heads}</tr></thead>\n\
         <tbody>{rows}</tbody>\n\
         </table></div>\n"
    )
}

/// CPUs without a part, in a collapsed section.
fn the_others(view: &View, lanes: &[&Lane]) -> String {
    if lanes.is_empty() {
        return String::new();
    }
    format!(
        "<details><summary>{}</summary>\n<figure>{}</figure></details>\n",
        text::others(lanes.iter().copied(), view),
        drawing(view, lanes)
    )
}

/// When a request was posted at each CPU, when it was interrupted and answered; CPUs with equal entries share a row.
fn answers(view: &View) -> String {
    // A CPU that was neither a target nor lazy has no entry, unless a broadcast reached it.
    let (silent, shown): (Vec<&Lane>, Vec<&Lane>) = view
        .lanes
        .iter()
        .partition(|lane| lane.role == Role::Other && view.broadcasts == 0);
    let others = match silent.len() {
        0 => String::new(),
        1 => "<p class=\"soft\">One other CPU ran and was not a target.</p>\n".to_string(),
        count => format!("<p class=\"soft\">{count} other CPUs ran and were not targets.</p>\n"),
    };
    let mut rows: Vec<(Vec<usize>, [Option<f64>; 4], String)> = Vec::new();
    for lane in shown {
        let times = [lane.posted, lane.sent, lane.entered, lane.answered];
        let words = text::describe(lane, view);
        match rows.iter_mut().find(|row| row.1 == times && row.2 == words) {
            Some(row) => row.0.push(lane.cpu),
            None => rows.push((vec![lane.cpu], times, words)),
        }
    }
    let columns = ["posted", "sent", "taken", "answered"].into_iter().enumerate();
    let columns: Vec<(usize, &str)> = columns
        .filter(|(column, _)| rows.iter().any(|row| row.1[*column].is_some()))
        .collect();
    let header: String = columns.iter().map(|(_, title)| format!("<th>{title}</th>")).collect();
    let rows: String = rows
        .iter()
        .map(|(cpus, times, words)| {
            let time = |column: usize| times[column].map_or(number::UNKNOWN.to_string(), number::time);
            let times: String = columns
                .iter()
                .map(|&(column, _)| format!("<td>{}</td>", time(column)))
                .collect();
            format!(
                "<tr><td class=\"word cpus\">{}</td>{times}<td class=\"word\">{}</td></tr>\n",
                ranges(cpus),
                escape(words)
            )
        })
        .collect();
    format!(
        "<h2>Answers</h2>\n\
         <div class=\"wide\"><table>\n\
         <thead><tr><th class=\"word\">CPU</th>{header}<th class=\"word\">what it did</th></tr></thead>\n\
         <tbody>{rows}</tbody>\n\
         </table></div>\n\
         {others}"
    )
}

/// Rising numbers, neighbours as a range: `1, 4–7`.
fn ranges(numbers: &[usize]) -> String {
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for &number in numbers {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => ranges.push((number, number)),
        }
    }
    let written = ranges.iter().map(|&(first, last)| match last - first {
        0 => first.to_string(),
        1 => format!("{first}, {last}"),
        _ => format!("{first}–{last}"),
    });
    written.collect::<Vec<_>>().join(", ")
}

/// Number of lanes from which the axis is repeated above them: the one below is out of sight.
const AXIS_ABOVE: usize = 16;

fn drawing(view: &View, lanes: &[&Lane]) -> String {
    let (from, to) = view.window;
    let x = |time: f64| LEFT + (time.clamp(from, to) - from) / (to - from) * (WIDTH - LEFT - RIGHT);
    let above = lanes.len() >= AXIS_ABOVE;
    let height = if above { LANE_OF_MANY } else { LANE };
    let top = if above { TOP + 18.0 } else { TOP };
    let bottom = top + height * lanes.len() as f64;
    let middle = |index: usize| top + height * (index as f64 + 0.5);
    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH} {}\" role=\"img\" aria-label=\"Lanes of CPUs over time\">\n\
         <defs><marker id=\"ask\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" \
         markerWidth=\"7\" markerHeight=\"7\" orient=\"auto\"><path class=\"askhead\" d=\"M0 0L8 4L0 8Z\"/></marker>\
         <marker id=\"answer\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"7\" \
         markerHeight=\"7\" orient=\"auto\"><path class=\"answerhead\" d=\"M0 0L8 4L0 8Z\"/></marker></defs>\n",
        bottom + 34.0
    );
    for time in plot::ticks(to) {
        svg.push_str(&format!("<path class=\"tick\" d=\"M{:.1} {top}V{bottom}\"/>", x(time)));
        let label = number::short_time(time);
        let mut write = |y: f64| {
            svg.push_str(&format!(
                "<text class=\"small\" x=\"{:.1}\" y=\"{y}\" text-anchor=\"middle\">{label}</text>\n",
                x(time)
            ));
        };
        write(bottom + 18.0);
        if above {
            write(top - 8.0);
        }
    }
    for (index, lane) in lanes.iter().enumerate() {
        let y = middle(index);
        let weight = if lane.role == Role::Sender {
            "label strong"
        } else {
            "label"
        };
        svg.push_str(&format!(
            "<text class=\"{weight}\" x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">CPU \
             {}</text><path class=\"rule\" d=\"M{LEFT} {y:.1}H{}\"/>\n",
            LEFT - 10.0,
            y + 4.5,
            lane.cpu,
            WIDTH - RIGHT
        ));
        for span in &lane.spans {
            let half = height * if span.kind == Kind::Lazy { 0.3 } else { 0.36 };
            svg.push_str(&format!(
                "<rect class=\"{}\" x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{}\" rx=\"2\"><title>CPU {}: \
                 {}, {} from {}</title></rect>\n",
                span.kind.name(),
                x(span.from),
                y - half,
                (x(span.to) - x(span.from)).max(1.5),
                2.0 * half,
                lane.cpu,
                span.kind.words(),
                number::time(span.to - span.from),
                number::time(span.from)
            ));
        }
    }
    for (index, lane) in lanes.iter().enumerate() {
        if is_many(view) {
            flight(lane, middle(index), &x, &mut svg);
        } else {
            arrows(lane, middle(0), middle(index), &x, &mut svg);
        }
    }
    svg.push_str("</svg>");
    svg
}

/// In a target's own lane: from the request to its taking, and a dot where it answers.
fn flight(lane: &Lane, y: f64, x: &dyn Fn(f64) -> f64, svg: &mut String) {
    let (Some(posted), Some(taken)) = (lane.sent.or(lane.posted), lane.entered.or(lane.answered)) else {
        return;
    };
    svg.push_str(&format!(
        "<path class=\"flight\" d=\"M{:.1} {y:.1}H{:.1}\"/>\n",
        x(posted),
        x(taken)
    ));
    if let Some(answered) = lane.answered {
        svg.push_str(&format!(
            "<circle class=\"done\" cx=\"{:.1}\" cy=\"{y:.1}\" r=\"4\"/>\n",
            x(answered)
        ));
    }
}

/// From the sender's lane, the first, to a target's, and back.
fn arrows(lane: &Lane, sender: f64, own: f64, x: &dyn Fn(f64) -> f64, svg: &mut String) {
    let (Some(sent), Some(arrived)) = (lane.sent.or(lane.posted), lane.entered.or(lane.answered)) else {
        return;
    };
    svg.push_str(&format!(
        "<path class=\"ask\" marker-end=\"url(#ask)\" d=\"M{:.1} {:.1}L{:.1} {:.1}\"/>\n",
        x(sent),
        sender + 6.0,
        x(arrived),
        own - 6.0
    ));
    if let Some(answered) = lane.answered {
        svg.push_str(&format!(
            "<path class=\"answer\" marker-end=\"url(#answer)\" d=\"M{0:.1} {1:.1}L{2:.1} {3:.1}\"/>\n",
            x(answered),
            own - 6.0,
            x(answered) + 14.0,
            sender + 9.0
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::super::lanes;
    use super::*;

    #[test]
    fn page_has_a_lane_per_cpu_and_an_arrow_per_target() {
        let page = render(
            "a <b> on m",
            "shootdown timeline w",
            &["one & two".to_string()],
            &lanes::tests::view(),
        );
        let document = page::checked(&page);
        let count = |class: &str| {
            document
                .descendants()
                .filter(|node| node.attribute("class") == Some(class))
                .count()
        };
        assert_eq!(count("rule"), 5);
        // One each in the legend.
        assert_eq!((count("ask"), count("answer")), (2 + 1, 2 + 1));
        assert_eq!(count("wait"), 1 + 1);
        for time in ["0 ns", "200 ns", "1 µs"] {
            assert_eq!(
                page.matches(&format!(">{time}</text>")).count(),
                1,
                "{time}: an axis below"
            );
        }
    }

    #[test]
    fn identical_cpus_share_a_row_and_empty_columns_are_omitted() {
        let mut view = lanes::tests::view();
        assert!(answers(&view).contains("<th>posted</th><th>sent</th><th>taken</th><th>answered</th>"));
        view.broadcasts = 1;
        for lane in &mut view.lanes {
            (lane.posted, lane.sent) = (None, None);
            (lane.entered, lane.answered) = (None, None);
            if lane.role == Role::Target {
                lane.role = Role::Other;
            }
        }
        let html = answers(&view);
        assert!(
            html.contains("<th class=\"word\">CPU</th><th class=\"word\">what it did</th>"),
            "{html}"
        );
        assert!(
            html.contains("<td class=\"word cpus\">1, 2, 4</td><td class=\"word\">reached by broadcast</td>"),
            "{html}"
        );
        assert_eq!(ranges(&[1, 2, 3, 4, 7, 9, 10]), "1–4, 7, 9, 10");
    }

    #[test]
    fn many_lanes_have_a_second_axis_and_valid_widths() {
        let mut view = lanes::tests::view();
        let lane = view.lanes[4].clone();
        view.lanes.extend((5..20).map(|cpu| Lane { cpu, ..lane.clone() }));
        (view.duration, view.window) = (0.0, (-6.0, 110.0));
        let svg = drawing(&view, &view.lanes.iter().collect::<Vec<_>>());
        assert_eq!(svg.matches(">100 ns</text>").count(), 2, "{svg}");
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }
}
