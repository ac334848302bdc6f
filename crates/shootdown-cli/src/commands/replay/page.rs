//! A replay as a page: the tables, and a timeline of every CPU under each design that can be zoomed.
//!
//! A script draws the timeline from numbers in the page; without scripts the tables have the full results.

use shootdown_sim::timeline::{MOST_EVENTS, TimelineEvent, What, shootdowns};

use super::tables::Verdict;
use crate::comparison::report;
use crate::print::number;
use crate::print::page::{self, escape, prose};
use crate::print::style;
use crate::print::table::Grid;

/// A table with its title.
pub type Table = (&'static str, Grid);

/// The content of the page.
pub struct View<'a> {
    pub title: String,
    pub command: &'a str,
    /// The oracle's finding.
    pub verdict: Verdict,
    pub tables: Vec<Table>,
    /// What the recording can tell, and what is missing.
    pub limits: Vec<String>,
    pub notes: Vec<String>,
    /// The events of every CPU, by design.
    pub timelines: Vec<(&'a str, &'a [TimelineEvent])>,
}

/// Most spans of one timeline: more would make browsers slow.
const MOST_SPANS: usize = 20_000;

/// Units of a page's times in a nanosecond: tens of nanoseconds are enough.
const UNIT_NS: f64 = 10.0;

const LIGHT: &str = "--ask:#0068B4;--take:#F0A35E";
const DARK: &str = "--ask:#5CAEF2;--take:#B86E28";
const STYLE: &str = "\
canvas.lanes{width:100%;display:block;touch-action:pan-y;cursor:grab;border:1px solid var(--line);border-radius:6px}
.ask{fill:var(--ask)}.take{fill:var(--take)}
";

/// Draws every timeline; the wheel zooms at the pointer, dragging moves, a double click shows everything; the keys + -
/// arrows and 0 do the same. Written without characters that markup would need escaped.
const SCRIPT: &str = r#"<script>
(function () {
  function colour(name) { return getComputedStyle(document.documentElement).getPropertyValue(name); }
  function words(units) {
    var ns = units * 10;
    if (ns === 0) { return '0'; }
    if (ns >= 1e6) { return parseFloat((ns / 1e6).toFixed(3)) + ' ms'; }
    return parseFloat((ns / 1e3).toFixed(2)) + ' µs';
  }
  // Paper is light. Before what draws, so that it draws in these colours.
  var root = document.documentElement, theme;
  window.addEventListener('beforeprint', function () { theme = root.dataset.theme; root.dataset.theme = 'light'; });
  window.addEventListener('afterprint', function () {
    if (theme) { root.dataset.theme = theme; } else { delete root.dataset.theme; }
  });
  document.querySelectorAll('canvas.lanes').forEach(function (canvas) {
    var all = JSON.parse(canvas.querySelector('span').textContent), spans = all.spans, lanes = all.lanes;
    var from = 0, to = all.end, caption = canvas.parentNode.querySelector('.window'), held = null;
    function draw() {
      var scale = window.devicePixelRatio || 1, width = canvas.clientWidth, height = 14 * lanes.length + 22;
      canvas.style.height = height + 'px';
      canvas.width = width * scale; canvas.height = height * scale;
      var pen = canvas.getContext('2d');
      pen.scale(scale, scale);
      pen.font = '11px system-ui, sans-serif';
      var left = 52, per = (width - left) / (to - from);
      lanes.forEach(function (cpu, index) {
        pen.fillStyle = colour('--soft'); pen.fillText('CPU ' + cpu, 2, 14 * index + 12);
        pen.fillStyle = colour('--line'); pen.fillRect(left, 14 * index + 8, width - left, 1);
      });
      var kinds = [colour('--ask'), colour('--take')];
      for (var i = 0; spans.length > i; i += 4) {
        var start = spans[i + 1], end = start + spans[i + 2];
        if (from > end || start > to) { continue; }
        var x = Math.max(left, left + (start - from) * per);
        pen.fillStyle = kinds[spans[i + 3]];
        pen.fillRect(x, 14 * spans[i] + 3, Math.max(1, left + (end - from) * per - x), 10);
      }
      pen.fillStyle = colour('--soft');
      var step = Math.pow(10, Math.floor(Math.log10((to - from) / 4)));
      while ((to - from) / step > 8) { step = (to - from) / step > 16 ? step * 5 : step * 2; }
      for (var at = Math.ceil(from / step) * step; to >= at; at += step) {
        var place = left + (at - from) * per, label = words(at);
        pen.fillRect(place, height - 20, 1, 5);
        if (width > place + pen.measureText(label).width) { pen.fillText(label, place + 3, height - 5); }
      }
      caption.textContent = words(to - from);
    }
    function show(a, b) {
      var length = Math.min(Math.max(b - a, 20), all.end);
      from = Math.min(Math.max(a, 0), all.end - length); to = from + length; draw();
    }
    function zoom(by, at) { show(at - (at - from) * by, at + (to - at) * by); }
    function time(x) { return from + (x - 52) / (canvas.clientWidth - 52) * (to - from); }
    canvas.addEventListener('wheel', function (event) {
      // Where everything is shown already the page scrolls on.
      if (event.deltaY > 0) { if (to - from >= all.end) { return; } }
      event.preventDefault(); zoom(event.deltaY > 0 ? 1.25 : 0.8, time(event.offsetX));
    }, { passive: false });
    canvas.addEventListener('pointerdown', function (event) {
      held = time(event.offsetX); canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener('pointermove', function (event) {
      if (held === null) { return; }
      var by = held - time(event.offsetX); show(from + by, to + by);
    });
    canvas.addEventListener('pointerup', function () { held = null; });
    canvas.addEventListener('pointercancel', function () { held = null; });
    canvas.addEventListener('dblclick', function () { show(0, all.end); });
    canvas.addEventListener('keydown', function (event) {
      var middle = (from + to) / 2, step = (to - from) / 5;
      if (event.key === '+') { zoom(0.5, middle); }
      if (event.key === '-') { zoom(2, middle); }
      if (event.key === '0') { show(0, all.end); }
      if (event.key === 'ArrowLeft') { show(from - step, to - step); }
      if (event.key === 'ArrowRight') { show(from + step, to + step); }
    });
    window.addEventListener('resize', draw);
    window.addEventListener('beforeprint', draw);
    window.addEventListener('afterprint', draw);
    new MutationObserver(draw).observe(document.documentElement, { attributes: true });
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', draw);
    draw();
  });
})();
</script>
"#;

/// The whole page.
pub fn render(view: &View<'_>) -> String {
    let mut body = format!(
        "<pre class=\"command\">{}</pre>\n<div class=\"{}\"><p><strong>{}</strong></p></div>\n",
        escape(view.command),
        view.verdict.class,
        escape(&view.verdict.words)
    );
    body.push_str("<h2>What the recording can tell</h2>\n");
    for line in &view.limits {
        body.push_str(&format!("<p>{}</p>\n", escape(&page::capitalized(line))));
    }
    for (title, grid) in &view.tables {
        body.push_str(&format!(
            "<h2>{title}</h2>\n{}{}",
            report::grid(grid),
            report::columns(grid)
        ));
    }
    body.push_str("<h2>Notes</h2>\n");
    for note in &view.notes {
        body.push_str(&format!("<p class=\"soft\">{}</p>\n", prose(&page::capitalized(note))));
    }
    body.push_str(
        "<h2>Timeline</h2>\n\
         <p class=\"soft\">The wheel zooms, dragging moves, \
         a double click shows everything; with the keyboard: + − arrows 0.</p>\n\
         <ul class=\"legend\"><li><svg viewBox=\"0 0 14 14\"><rect width=\"14\" height=\"14\" \
         rx=\"3\" class=\"ask\"/></svg>sends requests, and waits</li><li><svg viewBox=\"0 0 14 14\">\
         <rect width=\"14\" height=\"14\" rx=\"3\" class=\"take\"/></svg>is interrupted</li></ul>\n",
    );
    let drawn: Vec<Vec<Span>> = view.timelines.iter().map(|(_, events)| spans(events)).collect();
    let window = window(&view.timelines, &drawn);
    for ((design, _), spans) in view.timelines.iter().zip(drawn) {
        body.push_str(&timeline(design, spans, window));
    }
    body.push_str(SCRIPT);
    body.push_str(&format!(
        "<p class=\"soft\">Shootdown {}.</p>\n",
        env!("CARGO_PKG_VERSION")
    ));
    page::render(&view.title, &format!("{}{STYLE}", style::schemes(LIGHT, DARK)), &body)
}

/// A CPU, begin and end in ns, and whether it requests (0) or is interrupted (1).
type Span = (usize, f64, f64, u8);

/// A design's timeline, in order of time.
fn spans(events: &[TimelineEvent]) -> Vec<Span> {
    let mut spans: Vec<Span> = shootdowns(events)
        .iter()
        .filter(|flush| !flush.sent.is_empty() || flush.broadcasts > 0)
        .map(|flush| (flush.sender, flush.begin, flush.end, 0))
        .collect();
    let mut entered = std::collections::HashMap::new();
    for event in events {
        match event.what {
            What::HandlerEnters => drop(entered.insert(event.cpu, event.ns)),
            What::HandlerLeaves => {
                if let Some(begin) = entered.remove(&event.cpu) {
                    spans.push((event.cpu, begin, event.ns, 1));
                }
            }
            _ => {}
        }
    }
    spans.sort_by(|a, b| a.1.total_cmp(&b.1));
    spans
}

/// The window that all timelines show, from 0: its end, ns, and whether it is shorter than the replays. It ends where
/// the design with the most spans has as many as a page can draw.
fn window(timelines: &[(&str, &[TimelineEvent])], drawn: &[Vec<Span>]) -> (f64, bool) {
    let full = timelines.iter().filter(|(_, events)| events.len() >= MOST_EVENTS);
    let kept = full.filter_map(|(_, events)| events.last().map(|event| event.ns));
    let cut = drawn
        .iter()
        .filter_map(|spans| spans.get(MOST_SPANS).map(|span| span.1));
    let cut = kept.chain(cut).min_by(f64::total_cmp);
    let ends = timelines
        .iter()
        .filter_map(|(_, events)| events.last().map(|event| event.ns));
    let end = ends.fold(1.0, f64::max);
    (cut.unwrap_or(end), cut.is_some())
}

/// One design's timeline up to `end` ns, as numbers for the script.
fn timeline(design: &str, mut spans: Vec<Span>, (end, is_cut): (f64, bool)) -> String {
    spans.retain(|span| span.1 <= end);
    spans.truncate(MOST_SPANS);
    let mut lanes: Vec<usize> = spans.iter().map(|span| span.0).collect();
    lanes.sort_unstable();
    lanes.dedup();
    if lanes.is_empty() {
        return format!(
            "<h3>{}</h3>\n<p>No CPU sent a request, and none was interrupted.</p>\n",
            escape(design)
        );
    }
    let units = |ns: f64| (ns / UNIT_NS).round() as u64;
    let numbers: Vec<String> = spans
        .iter()
        .map(|&(cpu, begin, end, kind)| {
            let lane = lanes.binary_search(&cpu).unwrap_or(0);
            format!("{lane},{},{},{kind}", units(begin), units(end - begin).max(1))
        })
        .collect();
    let lanes: Vec<String> = lanes.iter().map(ToString::to_string).collect();
    let cut = match is_cut {
        true => format!(
            " Every design is shown up to {}, the limit of a page.",
            number::time(end)
        ),
        false => String::new(),
    };
    format!(
        "<h3>{0}</h3>\n\
         <figure><canvas class=\"lanes\" tabindex=\"0\" role=\"img\" aria-label=\"CPUs over time under {0}\">\
         <span>{{\"end\":{1},\"lanes\":[{2}],\"spans\":[{3}]}}</span></canvas><figcaption>Shown: \
         <span class=\"window\">everything</span>.{cut}</figcaption></figure>\n",
        escape(design),
        units(end).max(20),
        lanes.join(","),
        numbers.join(",")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One design with few spans and one with more than a page draws: both end together.
    #[test]
    fn every_design_shows_the_same_window() {
        let of = |count: usize, apart: f64| -> Vec<TimelineEvent> {
            (0..count)
                .flat_map(|k| {
                    let ns = k as f64 * apart;
                    let event = move |ns, what| TimelineEvent { cpu: 1, ns, what };
                    [event(ns, What::HandlerEnters), event(ns + 1.0, What::HandlerLeaves)]
                })
                .collect()
        };
        let (many, few) = (of(MOST_SPANS + 5, 10.0), of(3, 150_000.0));
        let timelines = [("a", many.as_slice()), ("b", few.as_slice())];
        let drawn: Vec<_> = timelines.iter().map(|(_, events)| spans(events)).collect();
        assert_eq!(window(&timelines, &drawn), (200_000.0, true));
        let html = timeline("b", drawn[1].clone(), (200_000.0, true));
        assert!(html.contains("\"end\":20000") && html.contains("up to 200"), "{html}");
        assert_eq!(html.matches("0,15000,1,1").count(), 1, "{html}");
        assert_eq!(window(&timelines[1..], &drawn[1..]), (300_001.0, false));
    }

    #[test]
    fn timeline_has_a_lane_for_every_involved_cpu() {
        let event = |cpu, ns, what| TimelineEvent { cpu, ns, what };
        let events = [
            event(0, 100.0, What::FlushBegins),
            event(0, 200.0, What::Sends(vec![3])),
            event(3, 900.0, What::HandlerEnters),
            event(3, 1500.0, What::HandlerLeaves),
            event(0, 2000.0, What::FlushEnds),
            event(1, 2100.0, What::FlushBegins),
            event(1, 2200.0, What::FlushEnds),
        ];
        let html = timeline("a <b>", spans(&events), (2200.0, false));
        assert!(html.contains("\"lanes\":[0,3]"), "{html}");
        assert!(html.contains("\"spans\":[0,10,190,0,1,90,60,1]"), "{html}");
        assert!(html.contains("<h3>a &lt;b&gt;</h3>"), "{html}");
        // The switch is the one script that every page has; this page's is the other.
        let script = SCRIPT.to_string();
        assert!(
            !script.contains('&') && script.matches('<').count() == 2,
            "the script needs no escaping"
        );
        page::checked(&page::render("t", STYLE, &html));
    }
}
