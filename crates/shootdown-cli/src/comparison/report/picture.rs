//! The throughput plot (for a recording, that of CPU time in invalidation) as an SVG file with title and legend, for a
//! document.

use super::rates::{invalidation_lines, throughput_lines};
use crate::comparison::summary::Comparison;
use crate::print::page::escape;
use crate::print::plot;
use crate::print::style;

/// Width, and height of the plot below the legend.
const SIZE: (u32, u32) = (900, 400);
/// Height of title and legend.
const HEAD: u32 = 64;
/// Approximate width of a letter of the legend; fonts differ.
const LETTER: usize = 9;

/// The whole file. It has a light background of its own.
pub fn picture(comparison: &Comparison) -> String {
    let plan = &comparison.plan;
    // The rate of a recording is the same under every design.
    let (lines, what, unit) = if plan.workload.recording.is_some() {
        let what = "CPU time in invalidation, %".to_string();
        (invalidation_lines(comparison), what, "%".to_string())
    } else {
        let operation = plan.workload.operation();
        let lines = throughput_lines(comparison);
        (lines, format!("{operation}s per second"), format!("{operation}s/s"))
    };
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" \
         font-family=\"sans-serif\" font-size=\"16\">\n<rect width=\"{0}\" height=\"{1}\" fill=\"#FFFFFF\"/>\n\
         <text x=\"16\" y=\"24\" font-weight=\"bold\">{2}</text>\n",
        SIZE.0,
        SIZE.1 + HEAD,
        escape(&format!(
            "{} on {} (simulated), {what}",
            plan.workload.name,
            plan.place()
        )),
    );
    let mut left = 16;
    for design in &plan.designs {
        svg += &format!(
            "<line x1=\"{left}\" y1=\"46\" x2=\"{}\" y2=\"46\" stroke=\"{}\" stroke-width=\"4\"/>\
             <text x=\"{}\" y=\"52\">{}</text>\n",
            left + 28,
            style::hex(style::design(design.name).light),
            left + 34,
            escape(design.name)
        );
        left += 34 + LETTER * design.name.len() + 24;
    }
    if lines.iter().any(|line| !line.hollow.is_empty()) {
        svg += &format!(
            "<circle cx=\"{}\" cy=\"46\" r=\"5\" fill=\"none\" stroke=\"#000000\" stroke-width=\"2\"/>\
             <text x=\"{}\" y=\"52\">published</text>\n",
            left + 6,
            left + 18
        );
    }
    let plot = plot::lines(SIZE, &unit, &lines);
    let plot = plot.replacen("<svg ", &format!("<svg y=\"{HEAD}\" "), 1);
    svg + &plot + "</svg>\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runs::fake;

    #[test]
    fn svg_is_well_formed_and_names_every_design() {
        let designs = ["ideal", "ipi", "broadcast", "adaptive"];
        let svg = picture(&fake::comparison(fake::plan(&designs, &[1, 4, 16, 72])));
        let document = roxmltree::Document::parse(&svg).expect("well-formed");
        let texts: Vec<&str> = document
            .descendants()
            .filter_map(|node| node.text())
            .map(str::trim)
            .collect();
        for expected in designs.iter().chain(&["published", "threads"]) {
            assert!(texts.contains(expected), "missing: {expected}\n{svg}");
        }
        let heading = texts
            .iter()
            .any(|text| text.starts_with("tlb_flush2 on milan-72 (simulated), loops per"));
        assert!(heading, "{texts:?}");
        assert!(
            document
                .descendants()
                .filter(|node| node.has_tag_name("polyline"))
                .count()
                >= designs.len()
        );
    }

    #[test]
    fn svg_draws_one_thread_count_without_published_rows() {
        let svg = picture(&fake::comparison(fake::plan(&["none"], &[2])));
        roxmltree::Document::parse(&svg).expect("well-formed");
        assert!(!svg.contains("published</text>"), "{svg}");
    }
}
