//! Legends of plots: the meaning of a colour, a dash or a marker.

use crate::comparison::summary::Comparison;
use crate::print::page::escape;
use crate::print::style::{self, Tone};

pub(super) fn design_legend(comparison: &Comparison, published: bool) -> String {
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
pub const PUBLISHED_MARK: &str = "<li><svg viewBox=\"0 0 14 14\"><circle cx=\"7\" cy=\"7\" \
    r=\"5\" fill=\"none\" stroke=\"currentColor\" stroke-width=\"2\"/></svg>published</li>";

/// A legend's entry for a line: its colour and dashes.
pub fn sample(tone: Tone, name: &str) -> String {
    format!(
        "<li><svg class=\"line\" viewBox=\"0 0 28 14\">\
         <polyline points=\"0,7 28,7\" fill=\"none\" stroke=\"{}\" stroke-width=\"4\"/></svg>{}</li>",
        style::hex(tone.light),
        escape(name)
    )
}

/// A legend's entry: a colour and its meaning.
pub fn swatch(tone: Tone, name: &str) -> String {
    format!(
        "<li><svg viewBox=\"0 0 14 14\"><rect width=\"14\" height=\"14\" rx=\"3\" fill=\"{}\"/></svg>{}</li>",
        style::hex(tone.light),
        escape(name)
    )
}
