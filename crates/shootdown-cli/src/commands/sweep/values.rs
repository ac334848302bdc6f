//! The values of one swept parameter: plain values, lists and ranges, as `200`, `1,2,4` or `200..4000:log:8`.
//!
//! Owns the grammar. Independent of machines, except that some of their numbers state a range.

use crate::print::number::written;

/// Most values of one range.
const MOST_POINTS: usize = 10_000;
/// The form of a range, for error messages.
const FORM: &str = "LOW..HIGH[:log|:lin][:N], for example 200..4000:log:8";

/// A range with the points to take from it, both ends included.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Span {
    /// Lowest value.
    pub low: f64,
    /// Highest value.
    pub high: f64,
    /// Whether points lie at equal ratios rather than equal differences.
    pub log: bool,
    /// How many points.
    pub points: usize,
}

impl Span {
    /// Checks the ends against each other and against the spacing.
    fn checked(self) -> Result<Self, String> {
        let Self { low, high, log, points } = self;
        if !(low.is_finite() && high.is_finite() && low < high) {
            return Err(format!(
                "{}..{}: expected a range that rises, {FORM}",
                written(low),
                written(high)
            ));
        }
        if log && low <= 0.0 {
            return Err(format!(
                "{}..{}: a logarithmic range starts above 0; start it higher or use :lin",
                written(low),
                written(high)
            ));
        }
        if !(2..=MOST_POINTS).contains(&points) {
            return Err(format!(
                "{}..{}: expected 2 to {MOST_POINTS} points (--points or :N), found {points}",
                written(low),
                written(high)
            ));
        }
        Ok(self)
    }

    /// The value at `fraction` (0 to 1) of the way, rounded to six digits except at the ends.
    pub fn at(&self, fraction: f64) -> f64 {
        if fraction <= 0.0 {
            return self.low;
        }
        if fraction >= 1.0 {
            return self.high;
        }
        let value = if self.log {
            self.low * (self.high / self.low).powf(fraction)
        } else {
            self.low + (self.high - self.low) * fraction
        };
        format!("{value:.5e}").parse().unwrap_or(value)
    }

    fn values(&self) -> impl Iterator<Item = f64> + '_ {
        let last = (self.points - 1) as f64;
        (0..self.points).map(move |index| self.at(index as f64 / last))
    }
}

/// One item of a list.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Item {
    /// One value.
    Value(f64),
    /// A range.
    Span(Span),
    /// The word `range`: the range that the machine model states for the parameter.
    Stated {
        /// Equal ratios rather than equal differences.
        log: bool,
        /// How many points.
        points: usize,
    },
}

/// Reads a list; `points` is the number of points of a range without one.
///
/// # Errors
/// The wrong item and the expected form.
pub fn parse(text: &str, points: usize) -> Result<Vec<Item>, String> {
    text.split(',').map(|item| parse_item(item.trim(), points)).collect()
}

fn parse_item(text: &str, points: usize) -> Result<Item, String> {
    let mut parts = text.split(':');
    let body = parts.next().unwrap_or_default().trim();
    let (mut log, mut points, mut options) = (false, points, 0);
    for option in parts.map(str::trim) {
        options += 1;
        match option {
            "log" => log = true,
            "lin" => log = false,
            number => {
                points = number
                    .parse()
                    .map_err(|_| format!("{text}: expected log, lin or a number of points after `:`, as in {FORM}"))?;
            }
        }
    }
    if body == "range" {
        return Ok(Item::Stated { log, points });
    }
    if let Some((low, high)) = body.split_once("..") {
        let (low, high) = (number(low, text)?, number(high, text)?);
        return Span { low, high, log, points }.checked().map(Item::Span);
    }
    if options > 0 {
        return Err(format!("{text}: only a range has points, as in {FORM}"));
    }
    number(body, text).map(Item::Value)
}

fn number(text: &str, item: &str) -> Result<f64, String> {
    match text.trim() {
        "true" => Ok(1.0),
        "false" => Ok(0.0),
        text => text
            .parse::<f64>()
            .ok()
            .filter(|value| value.is_finite())
            .ok_or_else(|| {
                let item = item.escape_debug();
                format!("`{item}`: expected a number, true, false, range, or {FORM}")
            }),
    }
}

/// The items with `range` replaced by the range that `stated` gives, low and high.
///
/// # Errors
/// When there is none, or it does not suit the spacing.
pub fn resolved(items: &[Item], stated: Option<(f64, f64)>) -> Result<Vec<Item>, String> {
    let resolve = |item: &Item| match *item {
        Item::Stated { log, points } => match stated {
            Some((low, high)) if low < high => Span { low, high, log, points }.checked().map(Item::Span),
            _ => Err(format!("the machine model states no range for it; give one, {FORM}")),
        },
        item => Ok(item),
    };
    items.iter().map(resolve).collect()
}

/// Every value of resolved items, each once, in the order given.
pub fn listed(items: &[Item]) -> Vec<f64> {
    let mut values: Vec<f64> = Vec::new();
    let mut add = |value: f64| {
        if !values.contains(&value) {
            values.push(value);
        }
    };
    for item in items {
        match item {
            Item::Value(value) => add(*value),
            Item::Span(span) => span.values().for_each(&mut add),
            Item::Stated { .. } => {}
        }
    }
    values
}

/// The value at `fraction` (0 to 1, 1 excluded) of resolved items: along a lone range, else one of the list.
pub fn sampled(items: &[Item], fraction: f64) -> f64 {
    if let [Item::Span(span)] = items {
        return span.at(fraction);
    }
    let values = listed(items);
    values[((fraction * values.len() as f64) as usize).min(values.len() - 1)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(text: &str) -> Vec<f64> {
        listed(&parse(text, 5).unwrap())
    }

    #[test]
    fn ranges_include_both_ends_and_lists_keep_their_order() {
        assert_eq!(values("3"), [3.0]);
        assert_eq!(values("4,1, 4,2"), [4.0, 1.0, 2.0]);
        assert_eq!(values("0..1"), [0.0, 0.25, 0.5, 0.75, 1.0]);
        assert_eq!(values("1..100:log:3"), [1.0, 10.0, 100.0]);
        assert_eq!(values("1..100:3:log"), [1.0, 10.0, 100.0]);
        assert_eq!(values("true,false"), [1.0, 0.0]);
        assert_eq!(values("7,1..2:2"), [7.0, 1.0, 2.0]);
        assert_eq!(values("200..4000:log:4"), [200.0, 542.884, 1473.61, 4000.0]);
    }

    #[test]
    fn bad_value_is_named_with_the_expected_form() {
        for (text, expected) in [
            ("4000..200", "4000..200: expected a range that rises"),
            ("1..1", "expected a range that rises"),
            ("0..5:log", "a logarithmic range starts above 0"),
            ("1..5:1", "expected 2 to 10000 points"),
            ("1..5:sqrt", "expected log, lin or a number of points"),
            ("5:log", "only a range has points"),
            ("1,,2", "``: expected a number"),
            ("much", "`much`: expected a number"),
            ("1..inf", "expected a number"),
        ] {
            let message = parse(text, 5).unwrap_err();
            assert!(message.contains(expected), "{text}: {message}");
        }
    }

    #[test]
    fn range_keyword_is_replaced_by_the_stated_range() {
        let items = parse("range:log:2", 5).unwrap();
        assert_eq!(listed(&resolved(&items, Some((10.0, 60.0))).unwrap()), [10.0, 60.0]);
        assert!(resolved(&items, None).unwrap_err().contains("states no range"));
        assert!(resolved(&items, Some((0.0, 60.0))).unwrap_err().contains(":lin"));
    }

    #[test]
    fn samples_lie_along_the_range_or_in_the_list() {
        assert_eq!(sampled(&parse("0..10", 5).unwrap(), 0.33), 3.3);
        assert_eq!(sampled(&parse("1..100:log", 5).unwrap(), 0.5), 10.0);
        assert_eq!(sampled(&parse("4,8", 5).unwrap(), 0.49), 4.0);
        assert_eq!(sampled(&parse("4,8", 5).unwrap(), 0.99), 8.0);
    }
}
