//! The output of `explain` is consistent: each decision follows from the costs in its own sentence.

use std::process::Command;

/// The paragraphs that `explain` prints, each in one line.
fn explained(machine: &str, threads: usize) -> Vec<String> {
    let words = format!("explain tlb_flush2 --on {machine} --threads {threads} --virtual-ms 2 --decisions 60");
    let output = Command::new(env!("CARGO_BIN_EXE_shootdown"))
        .args(words.split(' '))
        .env("COLUMNS", "80")
        .output()
        .unwrap();
    assert_eq!(
        output.status.code(),
        Some(0),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let mut paragraphs: Vec<String> = Vec::new();
    for line in String::from_utf8(output.stdout).unwrap().lines() {
        match (line.strip_prefix("    "), paragraphs.last_mut()) {
            (Some(rest), Some(last)) => *last += &format!(" {rest}"),
            _ => paragraphs.push(line.to_string()),
        }
    }
    paragraphs
}

/// The number or time in ns between `before` and the end of the number.
fn after(text: &str, before: &str) -> f64 {
    let (_, rest) = text
        .split_once(before)
        .unwrap_or_else(|| panic!("`{before}` in: {text}"));
    let mut words = rest.split([' ', ',', ';', ':', '.']).take(4);
    let whole = words.next().unwrap();
    let digits = rest.split([' ', ',', ';', ':']).next().unwrap();
    let unit = rest[digits.len()..]
        .trim_start()
        .split([' ', ',', ';', ':', '.'])
        .next();
    let value: f64 = digits
        .trim_end_matches('.')
        .parse()
        .unwrap_or_else(|_| panic!("{whole} in: {text}"));
    value
        * match unit {
            Some("µs") => 1e3,
            Some("ms") => 1e6,
            _ => 1.0,
        }
}

/// Whether `one` exceeds `other` by more than the margin, within three digits.
fn exceeds(one: f64, other: f64, margin: f64) -> bool {
    one * 1.006 > other * (1.0 + margin) - 1.0
}

fn threshold_follows(sentence: &str) {
    let costs = &sentence[sentence.find("To ").unwrap()..];
    let (broadcast, interrupts) = (after(costs, "broadcast "), after(costs, "interrupts "));
    let (reason, _) = costs.split_once("; ").unwrap().1.split_once('.').unwrap();
    let (more, less) = match reason.starts_with("interrupts cost less") {
        true => (broadcast, interrupts),
        false => (interrupts, broadcast),
    };
    let follows = if reason.contains("not by more than a quarter") {
        exceeds(more, less, 0.0) && exceeds(less * 1.25, more, 0.0)
    } else if reason.contains("by more than a quarter") && !reason.contains("and also for") {
        exceeds(more, less, 0.25)
    } else {
        exceeds(more, less, 0.0)
    };
    assert!(follows, "{broadcast} and {interrupts}: {sentence}");
}

/// The kind of decision in the line, after a check of its numbers.
fn decision(line: &str) -> &'static str {
    if line.contains("requests a system-wide tag") {
        let (without, with) = (after(line, "expected to cost "), after(line, "without one, "));
        assert!(exceeds(without, with, 0.125), "{line}");
        "promoting"
    } else if line.contains("is promoted") {
        "promoted"
    } else if line.contains("gives its tag back: a request costs ") {
        let (with, without) = (after(line, "a request costs "), after(line, "expected to cost "));
        assert!(exceeds(with, without, 0.125), "{line}");
        "demoting"
    } else if line.contains("back on per-CPU tags") {
        "demoted"
    } else if line.contains("gives its tag back") {
        "demoting"
    } else {
        assert!(line.contains("the threshold for broadcasting moves"), "{line}");
        let (broadcast, interrupts) = (after(line, "expected to cost "), after(line, "interrupts "));
        let (from, to) = line.split_once("moves from ").unwrap().1.split_once(" to ").unwrap();
        let to = to.split(' ').next().unwrap();
        let number = |text: &str| text.parse::<u64>().unwrap_or(u64::MAX); // "none"
        let up = number(from) < number(to);
        let (more, less) = if up {
            (broadcast, interrupts)
        } else {
            (interrupts, broadcast)
        };
        assert!(exceeds(more, less, 0.25), "{line}");
        "threshold"
    }
}

#[test]
fn each_decision_follows_from_the_numbers_in_its_sentence() {
    let mut promoted = 0;
    for (machine, threads) in [
        ("milan-72", 12),
        ("milan-72", 16),
        ("milan-72", 32),
        ("generic-riscv-64", 16),
        ("generic-riscv-64", 64),
        ("ampere-32", 16),
    ] {
        let paragraphs = explained(machine, threads);
        let sentence = paragraphs.iter().find(|line| line.starts_with("Threshold: "));
        threshold_follows(sentence.unwrap_or_else(|| panic!("{paragraphs:?}")));
        let mut has_tag = false;
        for line in paragraphs.iter().filter(|line| line.starts_with("at ")) {
            match decision(line) {
                "promoted" => has_tag = true,
                "demoted" => has_tag = false,
                kind => assert!(!has_tag || kind != "threshold", "changes nothing: {line}"),
            }
            promoted += usize::from(has_tag);
        }
    }
    assert!(promoted > 0, "no run decides anything");
}
