//! The table printer of every command: tables that fit the terminal and explain their columns.
//!
//! A command describes its columns, fills a [`Grid`] and lets one [`Tables`] draw all its tables:
//!
//! ```ignore
//! let columns = vec![
//!     Column::words("design", "how TLB entries of other CPUs are invalidated"),
//!     Column::number("loops/s", "loops per second, all threads together"),
//!     Column::number("CPU in flushes", "share of CPU time in invalidation").optional(1),
//! ];
//! let grid = Grid::new(columns, vec![rows]).note("1: this machine has no broadcast");
//! let mut tables = Tables::new();
//! text.push_str(&tables.draw(&grid));
//! output::show(&text)?;
//! ```
//!
//! - **Width.** Headings are broken between words first, then long words of text columns are. Then columns that are
//!   [`optional`](Column::optional) are left out, the highest rank first, and a line names them. A table that still
//!   does not fit is printed as one cell per line. Commands need no code for this.
//! - **Legend.** Each column carries its explanation. `Tables` prints each once: those of the first table where stdout
//!   is a terminal, those of every table with `--legend`. A command only has to use one `Tables` for all its tables.
//! - **Footnotes.** [`Grid::note`] adds a line below the table. Where it concerns single rows, put [`mark`] after a
//!   cell's text and before the note's.
//! - **Headings** are words with their unit ("CPU time per loop", not "cpu/op"); [`broken`] uses up to three lines. A
//!   number's cell carries its own unit where it varies ("1.20 µs").

use std::collections::BTreeSet;

use super::terminal::{self, Legend, Terminal, broken, width};

/// Spaces between columns.
const GAP: usize = 2;
/// Most lines of a heading.
const HEADING_LINES: usize = 3;
/// A text column is not made narrower than this, unless its content is.
const NARROWEST: usize = 14;

/// The type of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Words, aligned left; broken into lines where the terminal is narrow.
    Words,
    /// Numbers, aligned right.
    Number,
}

/// A column: its heading, its type, and its meaning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// Its heading, with the unit.
    pub heading: String,
    /// Its meaning, in a sentence without its full stop; empty if the heading suffices.
    pub about: String,
    /// Its type.
    pub kind: Kind,
    /// Columns of a higher rank are left out first on a narrow terminal; those of rank 0 never are.
    pub rank: u8,
}

impl Column {
    /// A column of words.
    pub fn words(heading: impl Into<String>, about: impl Into<String>) -> Self {
        Self {
            heading: heading.into(),
            about: about.into(),
            kind: Kind::Words,
            rank: 0,
        }
    }

    /// A column of numbers.
    pub fn number(heading: impl Into<String>, about: impl Into<String>) -> Self {
        Self {
            kind: Kind::Number,
            ..Self::words(heading, about)
        }
    }

    /// The column of 90 % intervals.
    pub fn interval() -> Self {
        Self::number(
            "90 % interval",
            "contains the true number with 90 % probability, from assumed ranges and errors on published rows",
        )
    }

    /// May be left out where the terminal is narrow: columns of the highest rank first.
    pub fn optional(self, rank: u8) -> Self {
        Self { rank, ..self }
    }
}

/// A table before it is drawn: its columns, groups of rows, and notes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Grid {
    /// The columns.
    pub columns: Vec<Column>,
    /// Groups of rows, with as many cells as there are columns; a line is drawn between groups.
    pub groups: Vec<Vec<Vec<String>>>,
    /// Lines below the table.
    pub notes: Vec<String>,
}

impl Grid {
    /// A table without notes.
    pub fn new(columns: Vec<Column>, groups: Vec<Vec<Vec<String>>>) -> Self {
        Self {
            columns,
            groups,
            notes: Vec::new(),
        }
    }

    /// With a line below the table.
    #[must_use]
    pub fn note(mut self, line: impl Into<String>) -> Self {
        self.notes.push(line.into());
        self
    }

    /// Whether a column holds words.
    pub fn is_words(&self, column: usize) -> bool {
        self.columns[column].kind == Kind::Words
    }

    /// The table at `columns` columns, without notes and legend; every line ends with a newline.
    pub fn draw(&self, columns: usize) -> String {
        match Layout::new(self, columns) {
            Some(layout) => layout.draw(self),
            None => self.one_cell_per_line(columns),
        }
    }

    /// A block of lines for each row. An empty cell of the first column repeats the one above.
    fn one_cell_per_line(&self, columns: usize) -> String {
        let mut text = String::new();
        for group in &self.groups {
            let mut first = "";
            for row in group {
                text.push_str(&rule(columns));
                for (index, (column, cell)) in self.columns.iter().zip(row).enumerate() {
                    let repeated = index == 0 && cell.is_empty();
                    let cell = if repeated { first } else { cell.as_str() };
                    if index == 0 {
                        first = cell;
                    }
                    if cell.is_empty() {
                        continue;
                    }
                    for line in broken(&format!("{}: {cell}", column.heading), columns, GAP) {
                        text.push_str(line.trim_end());
                        text.push('\n');
                    }
                }
            }
        }
        text + &rule(columns)
    }
}

/// The mark of footnote `index`, from 0: `¹` and so on.
pub fn mark(index: usize) -> String {
    const DIGITS: [char; 10] = ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'];
    let digits = (index + 1).to_string();
    digits.bytes().map(|digit| DIGITS[usize::from(digit - b'0')]).collect()
}

/// Draws all tables of one command, and explains each column once.
#[derive(Debug)]
pub struct Tables {
    terminal: Terminal,
    drawn: usize,
    explained: BTreeSet<(String, String)>,
}

impl Tables {
    /// For this process's terminal.
    pub fn new() -> Self {
        Self::on(terminal::get())
    }

    /// For a terminal.
    pub fn on(terminal: Terminal) -> Self {
        Self {
            terminal,
            drawn: 0,
            explained: BTreeSet::new(),
        }
    }

    /// A table with its notes, and its legend if it is due; every line ends with a newline.
    pub fn draw(&mut self, grid: &Grid) -> String {
        let mut text = grid.draw(self.terminal.columns);
        for note in &grid.notes {
            text.push_str(&terminal::fit(note, self.terminal));
            text.push('\n');
        }
        let due = match self.terminal.legend {
            Legend::Never => false,
            Legend::First => self.drawn == 0,
            Legend::Always => true,
        };
        self.drawn += 1;
        if due {
            text.push_str(&self.legend(grid));
        }
        text
    }

    /// A line for each column that was not explained yet.
    fn legend(&mut self, grid: &Grid) -> String {
        let mut text = String::new();
        for column in grid.columns.iter().filter(|column| !column.about.is_empty()) {
            if self.explained.insert((column.heading.clone(), column.about.clone())) {
                text.push_str(&terminal::fit(
                    &format!("  {}: {}\n", column.heading, column.about),
                    self.terminal,
                ));
            }
        }
        if text.is_empty() {
            text
        } else {
            format!("Columns\n{text}")
        }
    }
}

/// The layout of a table: which columns, how wide, how far apart.
struct Layout {
    shown: Vec<usize>,
    widths: Vec<usize>,
    gap: usize,
    columns: usize,
}

impl Layout {
    /// The layout that shows most of `grid`; `None` if not even the required columns fit.
    fn new(grid: &Grid, columns: usize) -> Option<Self> {
        let mut shown: Vec<usize> = (0..grid.columns.len()).collect();
        loop {
            if let Some((widths, gap)) = widths(grid, &shown, columns) {
                return Some(Self {
                    shown,
                    widths,
                    gap,
                    columns,
                });
            }
            let rank = |&&column: &&usize| grid.columns[column].rank;
            let least = *shown.iter().rev().max_by_key(rank)?;
            if grid.columns[least].rank == 0 {
                return None;
            }
            shown.retain(|&column| column != least);
        }
    }

    fn draw(&self, grid: &Grid) -> String {
        let headings: Vec<String> = self
            .shown
            .iter()
            .map(|&column| grid.columns[column].heading.clone())
            .collect();
        let of = |row: &[String]| -> Vec<String> {
            self.shown
                .iter()
                .map(|&column| row.get(column).cloned().unwrap_or_default())
                .collect()
        };
        let all = self.widths.iter().sum::<usize>() + self.gap * self.widths.len();
        let rule = rule(all.min(self.columns));
        let mut text = self.row(grid, &headings, true);
        let grouped = grid.groups.iter().any(|group| group.len() > 1);
        for (index, group) in grid.groups.iter().enumerate() {
            if index == 0 || grouped {
                text.push_str(&rule);
            }
            for row in group {
                text.push_str(&self.row(grid, &of(row), false));
            }
        }
        text.push_str(&rule);
        let missing = (0..grid.columns.len()).filter(|column| !self.shown.contains(column));
        let missing: Vec<&str> = missing.map(|column| grid.columns[column].heading.as_str()).collect();
        if !missing.is_empty() {
            let line = format!("not shown at {} columns: {}", self.columns, missing.join(", "));
            for line in broken(&line, self.columns, 4) {
                text.push_str(&line);
                text.push('\n');
            }
        }
        text
    }

    /// One row, in as many lines as its cells need; headings stand at the bottom of theirs.
    fn row(&self, grid: &Grid, cells: &[String], at_bottom: bool) -> String {
        let lines: Vec<Vec<String>> = cells
            .iter()
            .zip(&self.widths)
            .map(|(cell, &columns)| broken(cell, columns, 0))
            .collect();
        let most = lines.iter().map(Vec::len).max().unwrap_or(1);
        let lead = if self.gap > 1 { " " } else { "" };
        let mut text = String::new();
        for line in 0..most {
            let cells = lines
                .iter()
                .zip(&self.widths)
                .zip(&self.shown)
                .map(|((lines, &columns), &column)| {
                    let at = if at_bottom {
                        (line + lines.len()).checked_sub(most)
                    } else {
                        Some(line)
                    };
                    let part = at.and_then(|at| lines.get(at)).map_or("", String::as_str);
                    padded(part, columns, grid.columns[column].kind)
                });
            let drawn = cells.collect::<Vec<_>>().join(&" ".repeat(self.gap));
            text.push_str(format!("{lead}{drawn}").trim_end());
            text.push('\n');
        }
        text
    }
}

/// The widths of the columns `shown` and the gap between them, if they fit: with headings in one line, in several, with
/// less space, or with texts in several lines.
fn widths(grid: &Grid, shown: &[usize], columns: usize) -> Option<(Vec<usize>, usize)> {
    // A gap of 1 has no space before the first column.
    let available = |gap: usize| (columns + usize::from(gap == 1)).checked_sub(gap * shown.len());
    for (lines, gap) in (1..=HEADING_LINES)
        .map(|lines| (lines, GAP))
        .chain([(HEADING_LINES, 1)])
    {
        let own = |&column: &usize| cells_width(grid, column).max(heading_width(&grid.columns[column].heading, lines));
        let widths: Vec<usize> = shown.iter().map(own).collect();
        if widths.iter().sum::<usize>() <= available(gap)? {
            return Some((widths, gap));
        }
        if gap > 1 && lines < HEADING_LINES {
            continue;
        }
        let floors: Vec<usize> = shown
            .iter()
            .zip(&widths)
            .map(|(&column, &own)| floor(grid, column, own))
            .collect();
        if let Some(narrowed) = narrowed(widths, &floors, available(gap)?) {
            return Some((narrowed, gap));
        }
    }
    None
}

/// Makes the widest columns narrower, one by one, until all fit.
fn narrowed(mut widths: Vec<usize>, floors: &[usize], available: usize) -> Option<Vec<usize>> {
    while widths.iter().sum::<usize>() > available {
        let can = (0..widths.len()).filter(|&index| widths[index] > floors[index]);
        let widest = can.max_by_key(|&index| widths[index])?;
        widths[widest] -= 1;
    }
    Some(widths)
}

/// The least width of a column of width `own`: numbers stay whole, and so does every word.
fn floor(grid: &Grid, column: usize, own: usize) -> usize {
    if !grid.is_words(column) {
        return own;
    }
    let words = cells(grid, column)
        .flat_map(|cell| cell.split(' '))
        .map(width)
        .max()
        .unwrap_or(0);
    let heading = heading_width(&grid.columns[column].heading, HEADING_LINES);
    words.max(heading).max(NARROWEST).min(own)
}

fn cells(grid: &Grid, column: usize) -> impl Iterator<Item = &str> {
    let rows = grid.groups.iter().flatten();
    rows.filter_map(move |row| row.get(column)).map(String::as_str)
}

fn cells_width(grid: &Grid, column: usize) -> usize {
    cells(grid, column).map(width).max().unwrap_or(0)
}

/// The least width at which a heading takes at most `lines` lines.
fn heading_width(heading: &str, lines: usize) -> usize {
    let longest = heading.split(' ').map(width).max().unwrap_or(0);
    (longest..width(heading))
        .find(|&columns| broken(heading, columns, 0).len() <= lines)
        .unwrap_or(width(heading))
}

fn padded(text: &str, columns: usize, kind: Kind) -> String {
    let space = " ".repeat(columns.saturating_sub(width(text)));
    match kind {
        Kind::Words => format!("{text}{space}"),
        Kind::Number => format!("{space}{text}"),
    }
}

fn rule(columns: usize) -> String {
    "─".repeat(columns) + "\n"
}

#[cfg(test)]
mod tests;
