//! Colours of the report, and the style sheet that gives each a light and a dark form.
//!
//! Plots are drawn once, in the light colours. The style sheet then overrides each colour by its value (an attribute
//! selector per colour), so that the same SVG follows the reader's colour scheme. No two entries may therefore share a
//! light colour.

use plotters::style::RGBColor;

use crate::catalog;

/// A colour in both schemes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tone {
    /// As drawn, and as shown on a light page.
    pub light: RGBColor,
    /// As shown on a dark page.
    pub dark: RGBColor,
}

const fn tone(light: u32, dark: u32) -> Tone {
    Tone {
        light: rgb(light),
        dark: rgb(dark),
    }
}

const fn rgb(hex: u32) -> RGBColor {
    RGBColor((hex >> 16) as u8, (hex >> 8) as u8, hex as u8)
}

/// Grid lines.
pub const GRID: Tone = tone(0xE3E6EB, 0x2C323B);
/// Axes.
pub const AXIS: Tone = tone(0x9AA1AC, 0x5D6673);

/// Designs by name; colour-blind readers can distinguish the hues too.
const DESIGNS: &[(&str, Tone)] = &[
    ("ideal", tone(0x8A919C, 0x8F98A5)),
    ("ipi", tone(0xD55E00, 0xF28C46)),
    ("broadcast", tone(0x0068B4, 0x5CAEF2)),
    ("adaptive", tone(0x008F68, 0x33C79A)),
    ("none", tone(0xA3206E, 0xEC79BB)),
];

/// Designs without a colour of their own, in the order of the simulator's list.
const FURTHER: &[Tone] = &[
    tone(0x6A4FC1, 0xA48FF0),
    tone(0xB8860B, 0xE3B341),
    tone(0x2E8BA8, 0x63C5E3),
    tone(0x8C4A2F, 0xCF8A6C),
    tone(0x5B7F1E, 0xA5CC5A),
    tone(0xD1477A, 0xF58BB0),
    tone(0x3B6E8F, 0x7FB2D3),
    tone(0x9C6B00, 0xD9A93F),
    tone(0x7A3E9D, 0xBD85DE),
    tone(0x1F7A7A, 0x5CC2C2),
    tone(0xA33B3B, 0xE58484),
    tone(0x47702F, 0x8FBF72),
    tone(0x5A5FB0, 0x9DA2EA),
    tone(0xB35C8C, 0xE39CC2),
    tone(0x6B5B3E, 0xB8A57F),
    tone(0x2F5D50, 0x7AB3A3),
    tone(0xC06B1A, 0xEBA15F),
    tone(0x505A66, 0x95A1AF),
];

/// Shares of time, in order of appearance.
const SHARES: &[Tone] = &[
    tone(0x4C78B5, 0x6F9BD8),
    tone(0x5DA3B8, 0x7CC3D7),
    tone(0xE8A33A, 0xE9B25C),
    tone(0x94704F, 0xBD9875),
    tone(0xC14B45, 0xE07770),
    tone(0xC982AB, 0xDDA0C2),
    tone(0x7C62A9, 0xA48BD1),
    tone(0x4F9D76, 0x6FC197),
    tone(0x6E7B33, 0xA9B768),
    tone(0x3D4F63, 0x8095AC),
];
/// Idle time.
const IDLE: Tone = tone(0xC9CED6, 0x414955);

/// The colour of a design.
pub fn design(name: &str) -> Tone {
    let own = |name: &str| DESIGNS.iter().find(|(known, _)| *known == name).map(|(_, tone)| *tone);
    own(name).unwrap_or_else(|| {
        let others = catalog::designs().filter(|entry| own(entry.name).is_none());
        let index = others.take_while(|entry| entry.name != name).count();
        FURTHER[index % FURTHER.len()]
    })
}

/// The design of a colour.
pub fn name(tone: Tone) -> Option<&'static str> {
    catalog::designs()
        .map(|entry| entry.name)
        .find(|name| design(name) == tone)
}

/// The dash pattern of a design's line: designs of one family share it, so that many can be distinguished.
fn dashes(name: &str) -> Option<&'static str> {
    if name.starts_with("walk-") {
        Some("9 4")
    } else if name.starts_with("arm-") || ["never-broadcast", "broadcast+ipi"].contains(&name) {
        Some("3 3")
    } else {
        None
    }
}

/// The colour of the `index`-th share of time.
pub fn share(index: usize, name: &str) -> Tone {
    if name == "idle" {
        IDLE
    } else {
        SHARES[index % SHARES.len()]
    }
}

/// `#RRGGBB`, as plotters writes it.
pub fn hex(color: RGBColor) -> String {
    format!("#{:02X}{:02X}{:02X}", color.0, color.1, color.2)
}

fn tones() -> impl Iterator<Item = Tone> {
    [GRID, AXIS, IDLE]
        .into_iter()
        .chain(DESIGNS.iter().map(|(_, tone)| *tone))
        .chain(FURTHER.iter().chain(SHARES).copied())
}

/// The whole style sheet.
pub fn sheet() -> String {
    let (mut light, mut dark, mut rules) = (LIGHT.to_string(), DARK.to_string(), String::new());
    for (index, tone) in tones().enumerate() {
        light.push_str(&format!("--c{index}:{};", hex(tone.light)));
        dark.push_str(&format!("--c{index}:{};", hex(tone.dark)));
        let drawn = hex(tone.light);
        rules.push_str(&format!(
            "[fill=\"{drawn}\"]{{fill:var(--c{index})}}[stroke=\"{drawn}\"]{{stroke:var(--c{index})}}\n"
        ));
    }
    for (name, dashes) in catalog::designs().filter_map(|entry| Some((entry.name, dashes(entry.name)?))) {
        let drawn = hex(design(name).light);
        rules.push_str(&format!("polyline[stroke=\"{drawn}\"]{{stroke-dasharray:{dashes}}}\n"));
    }
    format!("{}{rules}{PAGE}", schemes(&light, &dark))
}

/// Rules that set variables for each scheme: the system's, until the reader chooses the other (`data-theme` of the
/// root). Printed pages are light.
pub fn schemes(light: &str, dark: &str) -> String {
    format!(
        ":root{{{light}}}\n@media screen and (prefers-color-scheme:dark){{:root:not([data-theme=light]){{{dark}}}}}\n\
         @media screen{{:root[data-theme=dark]{{{dark}}}}}\n"
    )
}

/// The page's own colours.
const LIGHT: &str = "\
    color-scheme:light dark;--page:#FFFFFF;--ink:#1B1F24;--soft:#5B6470;--card:#F6F7F9;--line:#DFE3E8;--good:#1A7F4B;\
    --bad:#B3261E;--shade:#00000038;";
const DARK: &str = "\
    --page:#14171C;--ink:#E4E8EE;--soft:#9BA5B2;--card:#1C2027;--line:#303742;--good:#4CC38A;--bad:#FF8A80;\
    --shade:#FFFFFF40;";

/// All other rules.
const PAGE: &str = "\
:root[data-theme=light]{color-scheme:light}
:root[data-theme=dark]{color-scheme:dark}
.theme{float:right;margin:.2rem 0 0 1rem;padding:.2rem .6rem;border:1px solid var(--line);border-radius:6px;\
background:var(--card);color:var(--soft);font:.8rem system-ui,sans-serif;cursor:pointer}
@media print{.theme{display:none}figure,.wide{background:none}figure,tr,pre{break-inside:avoid}\
h2,h3{break-after:avoid}.wide{overflow:visible}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:72rem;padding:2rem 1.25rem 4rem;background:var(--page);color:var(--ink);\
font:16px/1.5 system-ui,sans-serif}
h1{font-size:1.7rem;line-height:1.2;margin:0 0 .25rem}
h2{font-size:1.15rem;margin:2.5rem 0 .5rem}
h3{font-size:.95rem;margin:0 0 .25rem;font-weight:600}
h3.table{margin-top:2rem}
p{margin:.4rem 0;max-width:60rem}
.soft,figcaption{color:var(--soft);font-size:.875rem}
pre{background:var(--card);border:1px solid var(--line);border-radius:6px;padding:.7rem .9rem;overflow-x:auto;\
font:13px/1.5 ui-monospace,monospace;margin:.6rem 0}
.command{white-space:pre-wrap;overflow-wrap:anywhere}
.verdict{border-left:4px solid var(--good);background:var(--card);border-radius:0 6px 6px 0;padding:.6rem .9rem;\
margin:1rem 0}
.verdict.bad{border-color:var(--bad)}
.verdict.unjudged{border-color:var(--soft)}
.legend{display:flex;flex-wrap:wrap;gap:.2rem 1.1rem;margin:.4rem 0;padding:0;list-style:none;font-size:.875rem}
.legend li{white-space:nowrap}
.legend svg.line{width:28px}
polyline:hover{stroke-width:5}
.legend svg{width:14px;height:14px;vertical-align:-2px;margin-right:.4rem}
figure{margin:0}
figcaption{margin:.35rem 0 .9rem}
figure,.wide{overflow-x:auto}
/* A shade at each edge beyond which there is more; where there is not, a strip that scrolls along hides it. */
figure,.wide{\
background:linear-gradient(to right,var(--page) 40%,transparent) left/2.5rem 100% repeat-y local,\
linear-gradient(to left,var(--page) 40%,transparent) right/2.5rem 100% repeat-y local,linear-gradient(to right,\
var(--shade),transparent) left/.9rem 100% repeat-y scroll,linear-gradient(to left,var(--shade),\
transparent) right/.9rem 100% repeat-y scroll}
figure.small{max-width:34rem}
figure.small>svg{min-width:0}
figure>svg{display:block;width:100%;height:auto}
figure>svg.bars{max-width:40rem}
/* On a telephone a plot keeps a size at which its labels can be read, and scrolls. */
@media screen and (max-width:40rem){figure>svg{min-width:44rem}.pair figure>svg{min-width:24rem}\
figure>svg.bars,.pair figure>svg.bars{min-width:0}body{padding:1.25rem .9rem 3rem}h1{font-size:1.4rem}}
svg text{fill:var(--ink);font-family:system-ui,sans-serif}
.pair{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(26rem,100%),1fr));gap:1.25rem}
table{border-collapse:collapse;font-size:.875rem;font-variant-numeric:tabular-nums;white-space:nowrap}
th,td{padding:.22rem .75rem;text-align:right}
th{color:var(--soft);font-weight:600;border-bottom:1px solid var(--line)}
th.word,td.word{text-align:left}
tbody tr:first-child td{border-top:1px solid var(--line)}
summary{cursor:pointer;font-weight:600}
td.prose{min-width:18rem;white-space:normal}
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tones_have_distinct_colours() {
        let mut drawn: Vec<String> = tones().map(|tone| hex(tone.light)).collect();
        let all = drawn.len();
        drawn.sort();
        drawn.dedup();
        assert_eq!(drawn.len(), all);
    }

    #[test]
    fn designs_have_distinct_colours() {
        let mut drawn: Vec<String> = catalog::designs().map(|entry| hex(design(entry.name).light)).collect();
        let all = drawn.len();
        drawn.sort();
        drawn.dedup();
        assert_eq!(drawn.len(), all);
    }

    #[test]
    fn style_sheet_loads_nothing_external() {
        assert!(!sheet().contains("url(") && !sheet().contains("@import"));
    }
}
