//! The outcomes of the tests, kernels side by side.

use super::list::LEFT_OUT;
use super::outcome::{Outcome, Verdict};
use crate::linux_baseline::table::draw;

/// Most letters of a reason.
const REASON: usize = 50;

/// The outcomes of a kernel, by its name.
type Kernel = (String, Vec<Outcome>);

/// One row for each test, and the reasons below.
pub fn text(all: &[Kernel]) -> String {
    let mut header = vec!["test"];
    header.extend(all.iter().map(|(name, _)| name.as_str()));
    let count = all.first().map_or(0, |(_, outcomes)| outcomes.len());
    let row = |index: usize| {
        let (folder, name) = all[0].1[index].test.split_once('/').unwrap_or_default();
        [folder, name]
            .map(String::from)
            .into_iter()
            .chain(all.iter().map(|(_, outcomes)| cell(&outcomes[index])))
            .collect()
    };
    let mut text = draw(&header, 1, (0..count).map(row).collect());
    text += "in brackets: parts that passed, of those that did not skip\n\nNot passed, and why:\n";
    for (name, outcomes) in all {
        for outcome in outcomes.iter().filter(|outcome| !outcome.why.is_empty()) {
            let why: String = outcome.why.chars().take(REASON).collect();
            text += &format!("  {name}, {}: {why}\n", outcome.test);
        }
    }
    text += "\nNot run:\n";
    for (test, why) in LEFT_OUT {
        text += &format!("  {test}: {why}\n");
    }
    text += "\n";
    for (name, outcomes) in all {
        let count = |verdict| outcomes.iter().filter(|outcome| outcome.verdict == verdict).count();
        text += &format!(
            "{name}: {} tests passed, {} skipped, {} failed, {} took too long\n",
            count(Verdict::Passed),
            count(Verdict::Skipped),
            count(Verdict::Failed),
            count(Verdict::TooLong)
        );
    }
    text
}

fn cell(outcome: &Outcome) -> String {
    let word = match outcome.verdict {
        Verdict::Passed => "passed",
        Verdict::Skipped => "skipped",
        Verdict::Failed => "failed",
        Verdict::TooLong => "too long",
    };
    let (passed, failed) = (outcome.count(Verdict::Passed), outcome.count(Verdict::Failed));
    match passed + failed {
        0 => word.into(),
        all => format!("{word} ({passed}/{all})"),
    }
}

/// # Errors
/// What fails on a kernel with the engine and passes on the first one, which is stock: tests and parts of tests.
pub fn verdict(all: &[Kernel]) -> Result<(), String> {
    let Some(((_, stock), engines)) = all.split_first() else {
        return Ok(());
    };
    let mut worse = Vec::new();
    for (name, outcomes) in engines {
        for (theirs, ours) in stock.iter().zip(outcomes) {
            if theirs.verdict == Verdict::Passed && ours.verdict != Verdict::Passed {
                worse.push(format!("{name}: {}: {}", ours.test, ours.why));
            }
            let broken = ours.parts.iter().filter(|(part, verdict)| {
                **verdict == Verdict::Failed && theirs.parts.get(*part) == Some(&Verdict::Passed)
            });
            worse.extend(broken.map(|(part, _)| format!("{name}: {}: {part}", ours.test)));
        }
    }
    if worse.is_empty() {
        println!("with the engine no test fails that passes without");
        return Ok(());
    }
    Err(format!(
        "with the engine these fail, and pass without:\n  {}",
        worse.join("\n  ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linux_baseline::report::Ended;

    fn kernel(name: &str, status: i32, said: &str) -> Kernel {
        let ended = Ended {
            status,
            output: said.into(),
        };
        (name.into(), vec![Outcome::of("mm/cow", &ended)])
    }

    #[test]
    fn verdict_is_an_error_only_where_the_engine_fails_and_stock_passes() {
        let against = |stock: Kernel, ours: Kernel| verdict(&[stock, ours]);
        let failed = "ok 1 a\nnot ok 2 b";
        assert_eq!(against(kernel("Linux", 1, failed), kernel("ipi", 1, failed)), Ok(()));
        let why = against(kernel("Linux", 0, "ok 1 a\nok 2 b"), kernel("ipi", 1, failed)).unwrap_err();
        assert!(
            why.contains("ipi: mm/cow: not ok 2 b") && why.contains("ipi: mm/cow: b"),
            "{why}"
        );
        // A part may fail although the test fails on both.
        assert!(against(kernel("Linux", 1, "not ok 1 a\nok 2 b"), kernel("ipi", 1, failed)).is_err());
        assert!(against(kernel("Linux", 0, ""), kernel("ipi", 4, "")).is_err());
    }

    #[test]
    fn the_table_has_a_column_for_each_kernel_and_names_what_is_not_run() {
        let text = text(&[kernel("Linux", 0, "ok 1 a"), kernel("ipi", 1, "not ok 1 a")]);
        assert!(text.contains("passed (1/1)") && text.contains("failed (0/1)"), "{text}");
        assert!(
            text.contains("ipi, mm/cow: not ok 1 a") && text.contains("x86/*_32"),
            "{text}"
        );
    }
}
