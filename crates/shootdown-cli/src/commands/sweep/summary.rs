//! The results of a sweep in short tables: the rates, if they are few, the best design at each size, and how that
//! changes from one end of a range to the other.
//!
//! Computed from the results alone, so that a merge prints the same as the whole sweep. A median has a 90 % interval
//! where its runs have one.

mod tables;

use std::collections::BTreeMap;

use tables::{bare_ratio, best, common, rates};

use super::results::{ERROR, Results, Value};
use crate::catalog::{CONTROL_DESIGN, IDEAL_DESIGN, JUDGED_DESIGN};
use crate::comparison::interval::{self, Interval, Place as Simulated};
use crate::print::number::{self, UNKNOWN, median};
use crate::print::table::{Column, Grid, Tables};
use shootdown_sim::model::Model;

/// Most points whose rates are shown one by one.
const MOST_SHOWN: usize = 30;

/// The columns of a point's workload and machine, in the results.
const SIZE: [&str; 4] = ["workload", "machine", "cpus", "threads"];

/// The place of one comparison between designs: everything except design and seed.
type Place = Vec<String>;

/// The conclusions of a sweep.
#[derive(Debug)]
pub struct Summary {
    /// Stale translations in sound designs.
    pub stale: u64,
    /// Accesses checked in sound designs.
    pub checked: u64,
    /// Rows of failed runs: the point and the first line of the reason.
    pub failed: Vec<(u64, String)>,
    /// What is the same at every point.
    common: String,
    rates: Option<Grid>,
    best: Option<Grid>,
    ends: Option<Grid>,
    ahead: Option<String>,
}

/// Designs at one place: the throughput of each, and other facts about the place.
struct Cell {
    size: Vec<String>,
    values: Vec<Option<f64>>,
    rates: BTreeMap<usize, Vec<f64>>,
    /// The 90 % interval of each rate, if it has one.
    intervals: BTreeMap<usize, Interval>,
}

/// A varied column.
struct Parameter<'a> {
    name: &'a str,
    /// Its values if they are words, in the order of appearance; a value is the index of its word.
    words: Vec<&'a str>,
}

impl<'a> Parameter<'a> {
    fn new(name: &'a str, cells: impl Iterator<Item = &'a Value>) -> Self {
        let mut words = Vec::new();
        for cell in cells {
            if let Value::Text(word) = cell
                && !words.contains(&word.as_str())
            {
                words.push(word.as_str());
            }
        }
        Self { name, words }
    }

    fn value(&self, cell: &Value) -> Option<f64> {
        match cell {
            Value::Text(word) => self
                .words
                .iter()
                .position(|known| known == word)
                .map(|place| place as f64),
            number => number.number(),
        }
    }

    fn shown(&self, value: f64) -> String {
        let word = self.words.get(value as usize);
        word.map_or_else(|| number::written(value), ToString::to_string)
    }
}

impl Cell {
    /// A design's throughput.
    fn rate(&self, design: usize) -> Option<f64> {
        let rates = self.rates.get(&design)?;
        Some(median(rates.iter().copied()))
    }

    /// The best design but this one, with its throughput.
    fn best_other(&self, design: usize) -> Option<(usize, f64)> {
        let others = self.rates.keys().filter(|&&other| other != design);
        let rates = others.filter_map(|&other| Some((other, self.rate(other)?)));
        rates.max_by(|a, b| a.1.total_cmp(&b.1))
    }

    /// A design's throughput over the best of the others.
    fn ratio(&self, design: usize) -> Option<f64> {
        let (_, best) = self.best_other(design)?;
        Some(self.rate(design)? / best).filter(|ratio| ratio.is_finite() && *ratio > 0.0)
    }

    /// The 90 % interval of that ratio, as factors on it; `None` where a rate has none.
    fn ratio_interval(&self, designs: &[String], design: usize) -> Option<Interval> {
        let (other, _) = self.best_other(design)?;
        if !self.intervals.contains_key(&design) || !self.intervals.contains_key(&other) {
            return None;
        }
        let Ok(model) = Model::find(&self.size[1]) else {
            return Some(interval::of_kind(interval::Figure::Ratio));
        };
        let place = |design: usize| Simulated {
            machine: &model,
            workload: &self.size[0],
            design: &designs[design],
            threads: self.size[3].parse().unwrap_or(1),
            lru_drain: false,
        };
        interval::of_ratio(place(design), place(other))
    }
}

/// The 90 % interval of the rate of a row, if it has one.
fn interval_of(rate: f64, low: Option<f64>, high: Option<f64>) -> Option<Interval> {
    Some(Interval {
        low: low? / rate,
        high: high? / rate,
    })
}

/// The ends of an interval around `number`, as printed.
fn ends_of(number: f64, interval: Option<Interval>, shown: fn(f64) -> String) -> String {
    interval.map_or(UNKNOWN.to_string(), |interval| {
        let [low, high] = interval.around(number).map(shown);
        format!("[{low}, {high}]")
    })
}

impl Summary {
    /// Draws the conclusions.
    pub fn new(results: &Results) -> Self {
        let column = |name: &str| results.column(name);
        let text = |row: &[Value], name: &str| match column(name).map(|index| &row[index]) {
            Some(Value::Text(text)) => text.clone(),
            Some(Value::Count(count)) => count.to_string(),
            _ => String::new(),
        };
        let number = |row: &[Value], name: &str| column(name).and_then(|index| row[index].number());
        let parameters: Vec<Parameter> = results
            .columns
            .iter()
            .enumerate()
            .filter(|(_, name)| name.contains('.'))
            .map(|(index, name)| Parameter::new(name, results.rows.iter().map(|row| &row[index])))
            .collect();

        let (mut stale, mut checked, mut failed) = (0, 0, Vec::new());
        let mut designs: Vec<String> = Vec::new();
        let mut places: BTreeMap<Place, usize> = BTreeMap::new();
        let mut cells: Vec<Cell> = Vec::new();
        for row in &results.rows {
            let design = text(row, "design");
            if let Some(Value::Text(reason)) = column(ERROR).map(|index| &row[index]) {
                let point = number(row, super::results::POINT).unwrap_or(0.0) as u64;
                failed.push((point, reason.lines().next().unwrap_or_default().to_string()));
            }
            if design == CONTROL_DESIGN {
                continue;
            }
            stale += number(row, "stale").unwrap_or(0.0) as u64;
            checked += number(row, "accesses_checked").unwrap_or(0.0) as u64;
            let Some(rate) = number(row, "ops_per_s").filter(|_| design != IDEAL_DESIGN) else {
                continue;
            };
            let index = designs.iter().position(|known| *known == design).unwrap_or_else(|| {
                designs.push(design);
                designs.len() - 1
            });
            let size: Vec<String> = SIZE.map(|name| text(row, name)).to_vec();
            let values: Vec<Option<f64>> = parameters
                .iter()
                .map(|parameter| column(parameter.name).and_then(|index| parameter.value(&row[index])))
                .collect();
            let place = size
                .iter()
                .cloned()
                .chain(values.iter().map(|value| format!("{value:?}")))
                .collect();
            let at = *places.entry(place).or_insert_with(|| {
                cells.push(Cell {
                    size,
                    values,
                    rates: BTreeMap::new(),
                    intervals: BTreeMap::new(),
                });
                cells.len() - 1
            });
            cells[at].rates.entry(index).or_default().push(rate);
            let ends = ["interval_90_low", "interval_90_high"].map(|name| number(row, name));
            if let Some(interval) = interval_of(rate, ends[0], ends[1]) {
                cells[at].intervals.insert(index, interval);
            }
        }
        let several = designs.len() > 1;
        Self {
            stale,
            checked,
            failed,
            common: common(&cells),
            rates: (1..=MOST_SHOWN)
                .contains(&cells.len())
                .then(|| rates(&designs, &parameters, &cells)),
            best: several.then(|| best(&designs, &cells)),
            ends: (several && !parameters.is_empty()).then(|| ends(&designs, &parameters, &cells)),
            ahead: ahead(&designs, &parameters, &cells),
        }
    }

    /// The tables and the oracle's verdict as they are printed.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let mut tables = Tables::new();
        if let Some(grid) = &self.rates {
            text.push_str(&format!(
                "Operations per second at each point (medians of the seeds){}\n",
                self.common
            ));
            text.push_str(&tables.draw(grid));
        }
        if let Some(grid) = &self.best {
            if self.rates.is_some() {
                text.push('\n');
            }
            text.push_str(&format!(
                "Each design over the best of the others (medians), and at how many points it is best{}\n",
                self.common
            ));
            text.push_str(&tables.draw(grid));
        }
        if let Some(grid) = self.ends.as_ref().filter(|grid| !grid.groups.is_empty()) {
            text.push_str("\nThe same at both ends of each range: median, and least in parentheses\n");
            text.push_str(&tables.draw(grid));
        }
        text.extend(self.ahead.iter().map(String::as_str));
        for (point, reason) in self.failed.iter().take(5) {
            text.push_str(&format!("FAILED RUN: point {point}: {reason}\n"));
        }
        if self.failed.len() > 5 {
            text.push_str(&format!(
                "FAILED RUNS: {} in all; column `{ERROR}` has each\n",
                self.failed.len()
            ));
        }
        let checked = number::count(self.checked);
        text.push_str(&match self.stale {
            _ if self.checked == 0 => {
                "stale translations: no run that was to have none checked an access\n".to_string()
            }
            0 => format!("stale translations: 0 in {checked} checked accesses\n"),
            stale => format!(
                "STALE TRANSLATIONS: {} in {checked} checked accesses; column `diagnosis` tells how\n",
                number::count(stale)
            ),
        });
        text
    }
}

/// The least and the greatest value of a parameter, if it was varied.
fn range(cells: &[Cell], parameter: usize) -> Option<(f64, f64)> {
    let values = || cells.iter().filter_map(|cell| cell.values[parameter]);
    let (low, high) = (
        values().fold(f64::INFINITY, f64::min),
        values().fold(f64::NEG_INFINITY, f64::max),
    );
    (low < high).then_some((low, high))
}

/// Whether `adaptive` is ahead of every other design wherever a parameter is at an end of its range, in a line.
fn ahead(designs: &[String], parameters: &[Parameter], cells: &[Cell]) -> Option<String> {
    let judged = designs.iter().position(|design| design == JUDGED_DESIGN)?;
    let sharing = |index: usize, value: f64| cells.iter().filter(|cell| cell.values[index] == Some(value)).count();
    // Each point once. Where one parameter is varied at a time, the others stay at values that may be ends of theirs:
    // the varied parameter is the one whose value the fewest points share.
    let at_range_end = |cell: &Cell| {
        let at_ends = (0..parameters.len()).filter_map(|index| {
            let (low, high) = range(cells, index)?;
            let value = cell.values[index].filter(|&value| value == low || value == high)?;
            Some((index, value))
        });
        at_ends.min_by_key(|&(index, value)| sharing(index, value))
    };
    let ends: Vec<_> = cells
        .iter()
        .filter_map(|cell| {
            let (index, value) = at_range_end(cell)?;
            Some((cell.ratio(judged)?, &parameters[index], value, cell))
        })
        .collect();
    let below_best = ends.iter().filter(|(ratio, ..)| *ratio < 1.0).count();
    let (ratio, parameter, value, cell) = ends.iter().min_by(|a, b| a.0.total_cmp(&b.0))?;
    let verdict = if below_best == 0 { "met   " } else { "MISSED" };
    let [workload, machine, _, threads] = &cell.size[..] else {
        return None;
    };
    let interval = match cell.ratio_interval(designs, judged) {
        Some(interval) => format!(" {}", ends_of(*ratio, Some(interval), bare_ratio)),
        None => String::new(),
    };
    Some(format!(
        "{verdict} {JUDGED_DESIGN} ahead of every other design at both ends of every range \
         (1.000 of the best or more): behind at {below_best} of {}; least {ratio:.3}{interval} of the best, \
         {workload} on {machine} at {} with {} = {}
",
        ends.len(),
        number::counted(threads.parse::<u64>().unwrap_or_default(), "thread"),
        parameter.name,
        parameter.shown(*value),
    ))
}

/// The parameters that are not at their usual values in a cell.
fn strange(cell: &Cell, usual: &[Option<f64>]) -> impl Iterator<Item = usize> {
    (0..usual.len()).filter(|&index| cell.values[index] != usual[index])
}

/// The most frequent value of each parameter, if no cell differs from it in more than one: one was varied at a time.
fn usual_values(parameters: usize, cells: &[Cell]) -> Option<Vec<Option<f64>>> {
    let usual: Vec<_> = (0..parameters)
        .map(|index| {
            let mut sharing = BTreeMap::<Option<u64>, usize>::new();
            for cell in cells {
                *sharing.entry(cell.values[index].map(f64::to_bits)).or_default() += 1;
            }
            let most = sharing.into_iter().max_by_key(|&(_, cells)| cells);
            most.and_then(|(value, _)| value).map(f64::from_bits)
        })
        .collect();
    cells
        .iter()
        .all(|cell| strange(cell, &usual).count() <= 1)
        .then_some(usual)
}

fn ends(designs: &[String], parameters: &[Parameter], cells: &[Cell]) -> Grid {
    let mut columns = vec![
        Column::words("parameter", "the parameter at an end of its range"),
        Column::number("value", "the value there"),
    ];
    let over = |design: &String| {
        let about = "rate over that of the best other design: median of the points, and the least in parentheses";
        Column::number(design.clone(), about)
    };
    columns.extend(designs.iter().map(over));
    let mut groups = Vec::new();
    let usual = usual_values(parameters.len(), cells);
    for (index, parameter) in parameters.iter().enumerate() {
        let Some((low, high)) = range(cells, index) else {
            continue;
        };
        // If the default is itself an end, that end is not where the others vary.
        let counts = |cell: &Cell| {
            usual
                .as_ref()
                .is_none_or(|usual| strange(cell, usual).all(|other| other == index))
        };
        let at = |end: f64, first: bool| {
            let here: Vec<&Cell> = cells
                .iter()
                .filter(|cell| cell.values[index] == Some(end) && counts(cell))
                .collect();
            let mut row = vec![
                if first {
                    parameter.name.to_string()
                } else {
                    String::new()
                },
                parameter.shown(end),
            ];
            row.extend((0..designs.len()).map(|design| {
                let ratios: Vec<f64> = here.iter().filter_map(|cell| cell.ratio(design)).collect();
                let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
                if ratios.is_empty() {
                    UNKNOWN.to_string()
                } else {
                    format!("{} ({least:.2})", number::ratio(median(ratios)))
                }
            }));
            row
        };
        groups.push(vec![at(low, true), at(high, false)]);
    }
    let grid = Grid::new(columns, groups);
    match widest_ratio_interval(designs, cells) {
        Some(Interval { low, high }) => grid.note(format!(
            "90 % interval of each ratio: at most from {low:.2} to {high:.2} times that"
        )),
        None => grid,
    }
}

/// The least lower end and the greatest upper end of the intervals of all ratios, as factors.
fn widest_ratio_interval(designs: &[String], cells: &[Cell]) -> Option<Interval> {
    let of_cell = |cell| (0..designs.len()).filter_map(move |design| Cell::ratio_interval(cell, designs, design));
    let all = cells.iter().flat_map(of_cell);
    all.reduce(|one, other| Interval {
        low: one.low.min(other.low),
        high: one.high.max(other.high),
    })
}

#[cfg(test)]
mod tests;
