//! Horizontal bars, one per design, in place of lines when there is only one thread count.

use crate::print::page::escape;
use crate::print::style::{self, Tone};

/// One bar.
#[derive(Debug, Clone)]
pub struct Bar<'a> {
    /// Its label.
    pub name: &'a str,
    /// Its colour.
    pub tone: Tone,
    /// Its length; a value that is not a number is not drawn.
    pub value: f64,
    /// The value as printed beside it.
    pub shown: String,
    /// A published value, as a hollow marker.
    pub published: Option<f64>,
}

const WIDTH: f64 = 540.0;
const NAMES: f64 = 150.0;
const VALUES: f64 = 80.0;
const ROW: f64 = 26.0;

/// Bars from 0 up, in the order given. For any number of bars, the names stay readable and each bar is fully visible.
pub fn draw(bars: &[Bar]) -> String {
    let values = bars.iter().flat_map(|bar| [Some(bar.value), bar.published]).flatten();
    let most = values.filter(|value| value.is_finite()).fold(0.0, f64::max);
    let scale = if most > 0.0 {
        (WIDTH - NAMES - VALUES) / most
    } else {
        0.0
    };
    let mut svg = format!(
        "<svg class=\"bars\" viewBox=\"0 0 {WIDTH} {}\" role=\"img\" aria-label=\"Bars\">\n",
        ROW * bars.len() as f64
    );
    for (index, bar) in bars.iter().enumerate() {
        let middle = ROW * (index as f64 + 0.5);
        let length = if bar.value.is_finite() {
            bar.value.max(0.0) * scale
        } else {
            0.0
        };
        let color = style::hex(bar.tone.light);
        svg.push_str(&format!(
            "<text x=\"{}\" y=\"{1:.1}\" text-anchor=\"end\" font-size=\"14\">{2}</text>\
             <rect x=\"{NAMES}\" y=\"{3:.1}\" width=\"{length:.1}\" height=\"16\" fill=\"{color}\"/>\
             <text x=\"{4:.1}\" y=\"{1:.1}\" font-size=\"14\">{5}</text>\n",
            NAMES - 10.0,
            middle + 5.0,
            escape(bar.name),
            middle - 8.0,
            NAMES + length.max(bar.published.unwrap_or(0.0) * scale) + 12.0,
            escape(&bar.shown)
        ));
        if let Some(published) = bar.published {
            svg.push_str(&format!(
                "<circle cx=\"{:.1}\" cy=\"{middle:.1}\" r=\"6\" fill=\"none\" \
                 stroke=\"currentColor\" stroke-width=\"2\"/>\n",
                NAMES + published * scale
            ));
        }
    }
    svg + "</svg>"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longest_bar_leaves_room_and_invalid_values_draw_nothing() {
        let bar = |name, value| Bar {
            name,
            tone: style::design("ipi"),
            value,
            shown: "x".to_string(),
            published: None,
        };
        let svg = draw(&[bar("a<b", 2.0), bar("b", 1.0), bar("c", f64::NAN)]);
        let document = roxmltree::Document::parse(&svg).unwrap();
        let widths: Vec<_> = document
            .descendants()
            .filter_map(|node| node.has_tag_name("rect").then(|| node.attribute("width")).flatten())
            .collect();
        assert_eq!(widths, ["310.0", "155.0", "0.0"]);
        roxmltree::Document::parse(&draw(&[])).unwrap();
        assert!(!draw(&[bar("zero", 0.0)]).contains("NaN"));
    }
}
