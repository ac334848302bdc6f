//! Held-out rows that are off by more than [`LIMIT`]: why, and the measurement that would settle it. The file of rows
//! says both; a test holds that every such row of the embedded file has them, and no other row.

use super::{Line, errors, shown, worst};
use crate::comparison::summary::relative_error;
use crate::print::number::{self, median};
use crate::published::Explanation;

/// The error above which a row must say why it is off: a goal of this project.
pub(super) const LIMIT: f64 = 0.25;

/// The same, as printed.
const LIMIT_SHOWN: &str = "25 %";

/// Rows that are off for one reason.
pub(super) struct Miss<'a> {
    /// Each with its error.
    rows: Vec<(&'a Line, f64)>,
    /// `None` if the file does not say why.
    why: Option<&'a Explanation>,
}

impl Line {
    /// The error of a prediction that is off by more than the limit.
    pub(super) fn miss(&self) -> Option<f64> {
        let error = relative_error(self.simulated?, self.published.value);
        (!self.published.fitted && error.abs() > LIMIT).then_some(error)
    }

    /// The error of a share of time in percentage points of that time; `None` for other figures.
    pub(super) fn points(&self) -> Option<f64> {
        let share = self.published.metric.is_share();
        share.then_some((self.simulated? - self.published.value) * 100.0)
    }

    /// What the file says of such a row.
    pub(super) fn why(&self) -> Option<&Explanation> {
        self.miss().and(self.published.explanation.as_ref())
    }
}

/// The rows that are off by more than the limit, by reason, in order of appearance.
pub(super) fn of<'a>(lines: impl IntoIterator<Item = &'a Line>) -> Vec<Miss<'a>> {
    let mut misses: Vec<Miss> = Vec::new();
    for line in lines {
        let Some(error) = line.miss() else {
            continue;
        };
        let why = line.why();
        match misses.iter_mut().find(|miss| miss.why == why) {
            Some(miss) => miss.rows.push((line, error)),
            None => misses.push(Miss {
                rows: vec![(line, error)],
                why,
            }),
        }
    }
    misses
}

impl Miss<'_> {
    /// The rows, the cause and the measurement, in a paragraph.
    pub(super) fn sentences(&self) -> String {
        let row = |(line, error): &(&Line, f64)| {
            let row = &line.published;
            let points = line
                .points()
                .map_or(String::new(), |points| format!(", {points:+.1} points"));
            format!(
                "{} on {} at {}, {} published ({}{points})",
                row.design,
                row.machine,
                number::threads(row.threads),
                shown(row.metric, row.value),
                number::signed_percent(*error)
            )
        };
        let rows: Vec<String> = self.rows.iter().map(row).collect();
        let why = match self.why {
            Some(why) => format!("Cause: {} To settle it: {}", why.cause, why.settled_by),
            None => "No cause is given.".to_string(),
        };
        format!("off by more than {LIMIT_SHOWN}: {}. {why}", rows.join("; "))
    }
}

/// The errors on the rows that were not fitted, of all machines, and whether each large one has its cause; nothing
/// without any.
pub(super) fn summary(lines: &[Line]) -> String {
    let held_out: Vec<&Line> = lines.iter().filter(|line| !line.published.fitted).collect();
    let errors = errors(held_out.iter().map(|line| line.simulated), &held_out);
    if errors.is_empty() {
        return String::new();
    }
    let missed: Vec<&Line> = lines.iter().filter(|line| line.miss().is_some()).collect();
    let silent = missed.iter().filter(|line| line.why().is_none()).count();
    let causes = match (missed.len(), silent) {
        (0, _) => String::new(),
        (_, 0) => ", each with its cause below its table".to_string(),
        (_, silent) => format!(", no cause is given for {silent} of them"),
    };
    let of_all = format!(
        "all machines: {} not fitted, absolute error: worst {}, median {}; above {LIMIT_SHOWN}: {}{causes}\n",
        number::counted(errors.len(), "row"),
        number::percent(worst(&errors)),
        number::percent(median(errors)),
        missed.len()
    );
    of_all + &shares_apart(&held_out)
}

/// The errors of the shares of time among `lines`, in percentage points, and those of the other rows without them;
/// nothing without any. A share of two per cent that is missed is off by 100 %, and by two points.
fn shares_apart(lines: &[&Line]) -> String {
    let points: Vec<f64> = lines.iter().filter_map(|line| Some(line.points()?.abs())).collect();
    if points.is_empty() {
        return String::new();
    }
    let others: Vec<&Line> = lines.iter().copied().filter(|line| line.points().is_none()).collect();
    let errors = errors(others.iter().map(|line| line.simulated), &others);
    let of_others = match errors.is_empty() {
        true => String::new(),
        false => format!(
            "  without shares of time: {}, worst {}, median {}\n",
            number::counted(errors.len(), "row"),
            number::percent(worst(&errors)),
            number::percent(median(errors))
        ),
    };
    format!(
        "{of_others}  shares of time, in points of the time: {}, worst {:.1}, median {:.1}\n",
        number::counted(points.len(), "row"),
        worst(&points),
        median(points)
    )
}
