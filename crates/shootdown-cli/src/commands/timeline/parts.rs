//! What the sender spent its time on, as a table whose rows add up.

use super::lanes::View;

/// A unit that all rows are printed in: its name, its length in ns, and digits after the point.
fn unit(duration: f64) -> (&'static str, f64, usize) {
    match duration {
        _ if duration < 9_995.0 => ("ns", 1.0, 0),
        _ if duration < 9_995_000.0 => ("µs", 1e3, 2),
        _ => ("ms", 1e6, 2),
    }
}

/// `values` as whole multiples of `step` that add up to what their sum is rounded to: those with the largest remainders
/// are rounded up.
fn apportioned(values: &[f64], step: f64) -> Vec<u64> {
    let exact: Vec<f64> = values.iter().map(|value| (value / step).max(0.0)).collect();
    let mut whole: Vec<u64> = exact.iter().map(|value| value.floor() as u64).collect();
    let all = exact.iter().sum::<f64>().round() as u64;
    let left = all.saturating_sub(whole.iter().sum());
    let mut order: Vec<usize> = (0..exact.len()).collect();
    let remainder = |index: usize| exact[index].fract();
    order.sort_by(|&a, &b| remainder(b).total_cmp(&remainder(a)).then(a.cmp(&b)));
    (order.into_iter().take(left as usize)).for_each(|index| whole[index] += 1);
    whole
}

/// One row of the table: what, time, share, time spent on cache lines; the last row is the sum.
pub fn rows(view: &View) -> Vec<[String; 4]> {
    let (name, length, digits) = unit(view.duration);
    let step = length / 10_f64.powi(digits as i32);
    let times: Vec<f64> = view.parts.iter().map(|part| part.time).collect();
    let whole = apportioned(&times, step);
    let tenths = apportioned(&times, (view.duration / 1000.0).max(f64::MIN_POSITIVE));
    let written = |steps: u64| format!("{:.digits$} {name}", steps as f64 * step / length);
    let share = |tenths: u64| format!("{:.1}%", tenths as f64 / 10.0);
    let mut rows: Vec<[String; 4]> = view
        .parts
        .iter()
        .zip(whole.iter().zip(&tenths))
        .map(|(part, (&steps, &tenths))| {
            let lines = (part.lines / step).round() as u64;
            let lines = if lines == 0 { String::new() } else { written(lines) };
            [part.kind.words().to_string(), written(steps), share(tenths), lines]
        })
        .collect();
    let lines: f64 = view.parts.iter().map(|part| part.lines).sum();
    rows.push([
        "in all".to_string(),
        written(whole.iter().sum()),
        share(tenths.iter().sum()),
        written((lines / step).round() as u64),
    ]);
    rows
}

/// The headings of [`rows`].
pub const HEADINGS: [&str; 4] = ["the requester's time", "time", "share", "of it, cache lines move"];

/// The table for the terminal.
pub fn table(view: &View) -> String {
    let line = |[what, time, share, lines]: [&str; 4]| {
        let line = format!("  {what:<26}{time:>11}{share:>9}{lines:>26}");
        line.trim_end().to_string() + "\n"
    };
    let mut text = line(HEADINGS);
    for row in rows(view) {
        text.push_str(&line(row.each_ref().map(String::as_str)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::lanes::tests;
    use super::*;

    #[test]
    fn rounded_parts_add_up_to_the_rounded_whole() {
        assert_eq!(apportioned(&[0.4, 0.4, 0.4], 1.0), [1, 0, 0]);
        assert_eq!(apportioned(&[1.5, 2.5, 0.0], 1.0), [2, 2, 0]);
        assert_eq!(apportioned(&[], 1.0), [0; 0]);
    }

    #[test]
    fn every_part_is_a_row_and_the_last_is_the_whole() {
        let text = table(&tests::view());
        let rows: Vec<&str> = text.lines().skip(1).collect();
        assert!(
            rows[0].contains("choosing targets") && rows[0].contains("100 ns"),
            "{text}"
        );
        assert!(rows.last().unwrap().contains("1000 ns   100.0%"), "{text}");
        let sum: u64 = rows[..rows.len() - 1]
            .iter()
            .map(|row| row[28..].split_whitespace().next().unwrap().parse::<u64>().unwrap())
            .sum();
        assert_eq!(sum, 1000, "{text}");
    }
}
