//! The output device of text for people: its number of columns, and which tables explain their columns.
//!
//! `main` reads the terminal once ([`install`]). All text for people goes through [`fit`], by way of
//! [`output::show`](super::output::show), so no line is longer than the terminal, unless a single word is. Documents
//! for programs (`--json`, CSV) go through [`output::print`](super::output::print), which changes nothing.

use std::io::{IsTerminal, stdout};
use std::sync::OnceLock;

use unicode_width::UnicodeWidthStr;

/// Columns where the number is unknown: a pipe, a file.
const USUAL: usize = 80;
/// A terminal that reports fewer columns is treated as having this many.
const FEWEST: usize = 30;
/// Widest prose on any terminal: longer lines are hard to read.
const PROSE: usize = 100;
/// Extra indentation of a sentence's further lines.
const HANGING: usize = 4;

/// Which tables explain their columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Legend {
    /// None.
    Never,
    /// The first table of a command.
    First,
    /// Every table, each column once.
    Always,
}

/// Destination of text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terminal {
    /// Columns of a line.
    pub columns: usize,
    /// Which tables explain their columns.
    pub legend: Legend,
}

impl Default for Terminal {
    fn default() -> Self {
        Self {
            columns: USUAL,
            legend: Legend::Never,
        }
    }
}

static TERMINAL: OnceLock<Terminal> = OnceLock::new();

/// Sets the terminal of this process; only the first call has an effect.
pub fn install(terminal: Terminal) {
    let _ = TERMINAL.set(terminal);
}

/// The terminal of this process: 80 columns and no legend until one is installed, as in tests.
pub fn get() -> Terminal {
    TERMINAL.get().copied().unwrap_or_default()
}

impl Terminal {
    /// The terminal of stdout. `COLUMNS` overrides its width. `legend` asks for the legend of every table; without it a
    /// terminal gets that of the first table, and a pipe or file none.
    pub fn of_stdout(legend: bool) -> Self {
        let requested = std::env::var("COLUMNS").ok().and_then(|text| text.trim().parse().ok());
        let is_terminal = stdout().is_terminal();
        let own = || terminal_size::terminal_size_of(stdout()).map(|(width, _)| usize::from(width.0));
        let columns = requested.filter(|&columns| columns > 0).or_else(own).unwrap_or(USUAL);
        let legend = match (legend, is_terminal) {
            (true, _) => Legend::Always,
            (false, true) => Legend::First,
            (false, false) => Legend::Never,
        };
        Self {
            columns: columns.max(FEWEST),
            legend,
        }
    }

    /// Columns of prose.
    pub fn prose(self) -> usize {
        self.columns.min(PROSE)
    }
}

/// Columns of a text.
pub fn width(text: &str) -> usize {
    text.width()
}

/// Breaks the lines of `text` that are longer than the terminal between words. Shorter ones, tables for example, stay
/// as they are. Further lines are indented more than the first.
pub fn fit(text: &str, terminal: Terminal) -> String {
    let mut fitted = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let (content, end) = match line.strip_suffix('\n') {
            Some(content) => (content, "\n"),
            None => (line, ""),
        };
        // Manually aligned text, such as a diagram, may use the whole terminal.
        if width(content) <= terminal.columns {
            fitted.push_str(content);
        } else {
            let indent = content.len() - content.trim_start_matches(' ').len();
            let hanging = (indent + HANGING).min(terminal.columns / 2);
            fitted.push_str(&broken(content, terminal.prose(), hanging).join("\n"));
        }
        fitted.push_str(end);
    }
    fitted
}

/// Text broken between words into lines of at most `columns`, all but the first indented by `indent`. A word that is
/// longer has a line of its own. Spaces between the words of a line stay as they are.
pub fn broken(text: &str, columns: usize, indent: usize) -> Vec<String> {
    let (mut lines, mut line, mut has_word) = (Vec::new(), String::new(), false);
    let mut rest = text.trim_end();
    while !rest.is_empty() {
        let start = rest.len() - rest.trim_start_matches(' ').len();
        let end = rest[start..].find(' ').map_or(rest.len(), |at| start + at);
        let (word, after) = rest.split_at(end);
        if has_word && width(&line) + width(word) > columns {
            lines.push(std::mem::replace(&mut line, " ".repeat(indent)));
            line.push_str(word.trim_start_matches(' '));
        } else {
            line.push_str(word);
        }
        (has_word, rest) = (true, after);
    }
    lines.push(line);
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(columns: usize) -> Terminal {
        Terminal {
            columns,
            legend: Legend::Never,
        }
    }

    #[test]
    fn long_lines_wrap_between_words() {
        let text = "  first: one two three four five six\nshort\n\n";
        let fitted = fit(text, at(20));
        assert_eq!(fitted, "  first: one two\n      three four\n      five six\nshort\n\n");
        assert_eq!(fit(text, at(80)), text);
    }

    #[test]
    fn overlong_word_is_not_broken() {
        let path = "/a/very/long/path/without/a/space/to/break/at";
        assert_eq!(
            fit(&format!("page: {path} here"), at(20)),
            format!("page:\n    {path}\n    here")
        );
    }

    #[test]
    fn prose_has_a_maximum_width() {
        let fitted = fit(&"word ".repeat(60), at(200));
        assert!(
            fitted.lines().all(|line| width(line) <= PROSE) && fitted.lines().count() == 4,
            "{fitted}"
        );
    }
}
