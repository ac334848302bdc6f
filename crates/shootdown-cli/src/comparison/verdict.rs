//! The conclusions of a comparison in words: the oracle's verdict, the control, the cost, and the best design at each
//! size.

use crate::catalog::CONTROL_DESIGN;
use crate::comparison::summary::{Comparison, Row, caveat_in_words};
use crate::comparison::{distinct, ratios};
use crate::print::number;

/// Most lines shown of the reason of a failure; that of a hang has one for each CPU.
const REASON_LINES: usize = 6;

/// The conclusions of a comparison.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// Whether the oracle found nothing in the sound designs and no run failed.
    pub sound: bool,
    /// Whether only the unsound design was run, for which nothing can be guaranteed.
    pub unjudged: bool,
    /// The oracle's finding.
    pub stale: String,
    /// The runs that failed, line by line; empty when none did.
    pub failed: Vec<String>,
    /// How the first stale translation came about, line by line.
    pub stale_diagnosis: Vec<String>,
    /// Whether the control was caught, as it must be.
    pub control: Option<String>,
    /// How the control went wrong, line by line.
    pub control_diagnosis: Vec<String>,
    /// Whether that history is printed: the control was not caught, or `--verbose` was given.
    pub tells_control: bool,
    /// Which of the published rows shown the machine model was fitted on.
    pub fitted: Option<String>,
    /// Figures that have too few samples to be compared, a sentence each.
    pub warnings: Vec<String>,
    /// Why a recording does not separate its designs, a sentence for each reason.
    pub indistinct: Vec<String>,
    /// How the cost of an operation grows with CPUs, a sentence for each design.
    pub growth: Vec<String>,
    /// Throughput ratios between designs, a sentence each.
    pub ratios: Vec<String>,
    /// The host time of the runs.
    pub cost: String,
}

impl Verdict {
    /// Draws the conclusions from `comparison`.
    pub fn new(comparison: &Comparison) -> Self {
        let (control, control_diagnosis) = control(comparison);
        Self {
            sound: comparison.stale() == 0 && comparison.failures().is_empty(),
            unjudged: comparison
                .plan
                .designs
                .iter()
                .all(|design| design.name == CONTROL_DESIGN),
            stale: stale(comparison),
            failed: failed(comparison),
            stale_diagnosis: comparison
                .results()
                .find(|(spec, result)| spec.design != CONTROL_DESIGN && result.stale > 0)
                .map(|(_, result)| lines(result.diagnosis.as_deref()))
                .unwrap_or_default(),
            control,
            tells_control: comparison.plan.verbose || !is_caught(comparison),
            control_diagnosis,
            fitted: fitted(comparison),
            warnings: warnings(comparison),
            indistinct: distinct::sentences(comparison),
            growth: growth(comparison),
            ratios: ratios::sentences(comparison),
            cost: cost(comparison),
        }
    }

    /// The conclusions as they are printed, every line ending with a newline.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let mut line = |indent: &str, content: &str| {
            text.push_str(indent);
            text.push_str(content);
            text.push('\n');
        };
        for part in &self.failed {
            line("", part);
        }
        let sentences = self
            .fitted
            .iter()
            .chain(&self.warnings)
            .chain(&self.indistinct)
            .chain(&self.growth)
            .chain(&self.ratios);
        for part in sentences {
            line("", part);
        }
        line("", &self.stale);
        for part in &self.stale_diagnosis {
            line("    ", part);
        }
        if let Some(control) = &self.control {
            line("", control);
        }
        for part in self.control_diagnosis.iter().filter(|_| self.tells_control) {
            line("    ", part);
        }
        line("", &self.cost);
        text
    }
}

fn stale(comparison: &Comparison) -> String {
    let has_row = |name: &&str| comparison.rows.iter().any(|row| row.design == *name);
    let designs: Vec<&str> = comparison
        .plan
        .designs
        .iter()
        .map(|design| design.name)
        .filter(|&name| name != CONTROL_DESIGN)
        .filter(has_row)
        .collect();
    let checked: u64 = comparison
        .results()
        .filter(|(spec, _)| spec.design != CONTROL_DESIGN)
        .map(|(_, result)| result.accesses_checked)
        .sum();
    let found = comparison.stale();
    if designs.is_empty() {
        return format!(
            "stale translations: \
             {}, but only the unsound design `{CONTROL_DESIGN}` was run, so there is nothing to vouch for",
            number::count(comparison.rows.iter().map(|row| row.stale).sum())
        );
    }
    if found == 0 {
        return format!(
            "stale translations: 0 in {} checked accesses ({})",
            number::count(checked),
            designs.join(", ")
        );
    }
    let by_design: Vec<String> = designs
        .iter()
        .map(|&name| {
            (
                name,
                comparison
                    .rows
                    .iter()
                    .filter(|row| row.design == name)
                    .map(|row| row.stale)
                    .sum::<u64>(),
            )
        })
        .filter(|&(_, stale)| stale > 0)
        .map(|(name, stale)| format!("{name}: {}", number::count(stale)))
        .collect();
    format!(
        "STALE TRANSLATIONS: {} in {} checked accesses ({})",
        number::count(found),
        number::count(checked),
        by_design.join(", ")
    )
}

/// A line with the count, then each failure: which run, and why in at most [`REASON_LINES`] lines.
fn failed(comparison: &Comparison) -> Vec<String> {
    let failures = comparison.failures();
    let mut lines = Vec::new();
    if !failures.is_empty() {
        lines.push(format!(
            "FAILED RUNS: {} of {}",
            failures.len(),
            comparison.runs.len() + usize::from(comparison.control.is_some())
        ));
    }
    for (spec, reason) in failures {
        let name = format!(
            "{} under {} at {}, seed {}",
            spec.workload,
            spec.design,
            number::threads(spec.threads),
            spec.seed
        );
        let mut reasons = reason.lines();
        lines.push(format!("    {name}: {}", reasons.next().unwrap_or("no reason given")));
        lines.extend(
            reasons
                .by_ref()
                .take(REASON_LINES - 1)
                .map(|line| format!("    {line}")),
        );
        let more = reasons.count();
        if more > 0 {
            lines.push(format!(
                "      and {more} more {} (--json has all)",
                if more == 1 { "line" } else { "lines" }
            ));
        }
    }
    lines
}

/// Whether the control, if there was one, had a stale translation.
fn is_caught(comparison: &Comparison) -> bool {
    let Some((_, Ok(result))) = &comparison.control else {
        return true;
    };
    result.stale > 0 && result.caught_after.is_some()
}

fn control(comparison: &Comparison) -> (Option<String>, Vec<String>) {
    // A failed control is listed with the other failures.
    let Some((spec, Ok(result))) = &comparison.control else {
        return (None, Vec::new());
    };
    let line = match result.caught_after {
        Some(accesses) if result.stale > 0 => {
            format!(
                "control: `{}` on {} caught after {} accesses",
                spec.design,
                spec.workload,
                number::count(accesses)
            )
        }
        _ => format!(
            "CONTROL NOT CAUGHT: `{}` on {} went through {} checked accesses unseen; \
             do not trust the line above, run longer (--virtual-ms)",
            spec.design,
            spec.workload,
            number::count(result.accesses_checked)
        ),
    };
    (Some(line), lines(result.diagnosis.as_deref()))
}

/// The published rows beside the table that are not predictions.
fn fitted(comparison: &Comparison) -> Option<String> {
    if comparison.rows.iter().all(|row| row.published.is_none()) {
        return None;
    }
    let rows: Vec<String> = comparison
        .published
        .iter()
        .filter(|row| row.fitted)
        .map(|row| format!("{} at {}", row.design, row.threads))
        .collect();
    Some(if rows.is_empty() {
        "published: none of these rows was used for fitting".to_string()
    } else {
        format!(
            "published: used for fitting: {}; the others are predictions",
            rows.join(", ")
        )
    })
}

/// A sentence for each figure in parentheses.
fn warnings(comparison: &Comparison) -> Vec<String> {
    let operation = comparison.plan.workload.operation();
    let rows = comparison.rows.iter().filter_map(|row| Some((row, row.caveat?)));
    rows.map(|(row, caveat)| {
        format!(
            "in parentheses, too few samples to be meaningful: {} at {}, {} ({})",
            row.design,
            number::threads(row.threads),
            caveat_in_words(caveat),
            number::counted(row.ops, operation)
        )
    })
    .collect()
}

/// The cost of one operation at the fewest and the most CPUs, and the exponent of its growth at the end.
fn growth(comparison: &Comparison) -> Vec<String> {
    if !comparison.plan.follows() {
        return Vec::new();
    }
    let operation = comparison.plan.workload.operation();
    let designs = comparison.plan.designs.iter().map(|design| design.name);
    designs
        .filter_map(|design| {
            let measured = |row: &&Row| row.design == design && row.caveat.is_none() && row.ops_per_s > 0.0;
            let mut rows: Vec<&Row> = comparison.rows.iter().filter(measured).collect();
            rows.sort_by_key(|row| row.threads);
            let (first, last) = (*rows.first()?, *rows.last()?);
            // The last eightfold step in CPUs, or as much of it as there is.
            let from = rows
                .iter()
                .rev()
                .find(|row| row.threads * 8 <= last.threads)
                .unwrap_or(&first);
            let power =
                (last.cpu_ns_per_op() / from.cpu_ns_per_op()).ln() / (last.threads as f64 / from.threads as f64).ln();
            let grows = if power.is_finite() {
                format!(", as CPUs^{power:.2} from {} on", from.threads)
            } else {
                String::new()
            };
            let cost = |row: &Row| {
                let (time, interrupts) = (row.cpu_ns_per_op(), row.interrupts_per_op);
                (number::time(time), number::per_operation(interrupts), row.threads)
            };
            let (time, interrupts, at) = cost(first);
            let unit = if at == 1 { "CPU" } else { "CPUs" };
            let start =
                format!("{design}: a {operation} costs {time} of CPU time and {interrupts} interrupts at {at} {unit}");
            let (time, interrupts, at) = cost(last);
            Some(if last.threads > first.threads {
                format!("{start}, {time} and {interrupts} at {at}{grows}")
            } else {
                start
            })
        })
        .collect()
}

fn cost(comparison: &Comparison) -> String {
    let runs = comparison.runs.iter().chain(&comparison.control);
    let events: u64 = runs
        .filter_map(|(_, outcome)| outcome.as_ref().ok())
        .map(|result| result.events)
        .sum();
    let jobs = comparison.plan.settings.jobs;
    format!(
        "host: {} events in {:.1} s, {} events per second, on {}",
        number::short_count(events as f64),
        comparison.wall_seconds,
        number::short_count(events as f64 / comparison.wall_seconds.max(1e-9)),
        number::counted(jobs, "host thread")
    )
}

fn lines(diagnosis: Option<&str>) -> Vec<String> {
    diagnosis
        .unwrap_or_default()
        .lines()
        .map(|line| line.trim_end().to_string())
        .filter(|line| !line.is_empty())
        .collect()
}

#[cfg(test)]
mod tests;
