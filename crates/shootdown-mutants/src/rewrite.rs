//! Sites in a source file and their replacements in the instrumented copy; the rest stays unchanged.

use std::ops::Range;

/// A piece of a replacement.
#[derive(Debug, Clone)]
pub enum Part {
    /// This text.
    Text(String),
    /// The original text, instrumented.
    Inner(Range<usize>),
    /// The original text, unchanged.
    Plain(Range<usize>),
}

/// A site, in bytes, and its replacement.
#[derive(Debug, Clone)]
pub struct Site {
    /// Where.
    pub range: Range<usize>,
    /// The replacement.
    pub parts: Vec<Part>,
}

/// The source with every site replaced. Sites are nested or disjoint; of two in the same place the first is the outer.
pub fn rewrite(source: &str, mut sites: Vec<Site>) -> String {
    sites.sort_by_key(|site| (site.range.start, std::cmp::Reverse(site.range.end)));
    render(source, 0..source.len(), &sites)
}

/// `sites` begins with those that may lie in `range`.
fn render(source: &str, range: Range<usize>, mut sites: &[Site]) -> String {
    let mut text = String::new();
    let mut at = range.start;
    while let [site, further @ ..] = sites {
        sites = further;
        if site.range.start >= range.end {
            break;
        }
        if site.range.start < at || site.range.end > range.end {
            continue;
        }
        text.push_str(&source[at..site.range.start]);
        for part in &site.parts {
            match part {
                Part::Text(words) => text.push_str(words),
                Part::Inner(inner) => text.push_str(&render(source, inner.clone(), further)),
                Part::Plain(plain) => text.push_str(&source[plain.clone()]),
            }
        }
        at = site.range.end;
        // Sites inside were rendered with it.
        let within = further.iter().take_while(|next| next.range.end <= at).count();
        sites = &further[within..];
    }
    text.push_str(&source[at..range.end]);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn around(range: Range<usize>, before: &str, after: &str) -> Site {
        let parts = vec![
            Part::Text(before.into()),
            Part::Inner(range.clone()),
            Part::Text(after.into()),
        ];
        Site { range, parts }
    }

    #[test]
    fn sites_nest_and_the_first_at_one_place_is_the_outer() {
        let sites = vec![
            around(4..5, "<", ">"),
            around(0..5, "[", "]"),
            around(0..5, "(", ")"),
            around(6..7, "{", "}"),
        ];
        assert_eq!(rewrite("a + b; c", sites), "[(a + <b>)];{ }c");
    }

    #[test]
    fn site_may_move_a_part() {
        let first = Site {
            range: 0..2,
            parts: vec![Part::Plain(3..5), Part::Text(" ".into()), Part::Inner(0..2)],
        };
        assert_eq!(rewrite("a; b;", vec![first, around(3..4, "<", ">")]), "b; a; <b>;");
    }
}
