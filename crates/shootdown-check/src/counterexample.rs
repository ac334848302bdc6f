//! A counterexample as readable text, and as a file that can be replayed.

use crate::architecture::Architecture;
use crate::machine::{Line, Step};
use crate::report::Counterexample;
use crate::violation::Violation;
use std::fmt::Write as _;

/// First line of a file.
const HEAD: &str = "shootdown check 2";

/// A counterexample with its race, design and memory model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recorded {
    /// Name of the race.
    pub race: String,
    /// Name of the design.
    pub design: String,
    /// The memory model.
    pub memory: Architecture,
    /// The steps.
    pub steps: Vec<Step>,
}

impl Recorded {
    /// The file: a head, the race, the design, the memory, then a line for each step.
    pub fn to_text(&self) -> String {
        let mut text = format!(
            "{HEAD}\nrace {}\ndesign {}\nmemory {}\n",
            self.race, self.design, self.memory
        );
        for step in &self.steps {
            // Writing to a string never fails.
            let _ = match step {
                Step::Run(cpu) => writeln!(text, "run {cpu}"),
                Step::Interrupt(cpu) => writeln!(text, "interrupt {cpu}"),
                Step::Drain(cpu, place) => writeln!(text, "drain {cpu} {place}"),
                Step::Old(cpu, back) => writeln!(text, "old {cpu} {back}"),
            };
        }
        text
    }

    /// Reads a file.
    ///
    /// # Errors
    /// One line: the number of the wrong line, and what is expected there.
    pub fn from_text(text: &str) -> Result<Self, String> {
        let mut lines = text.lines().zip(1..);
        let mut line = |what: &str| lines.next().map(|(line, _)| line).ok_or(format!("ends before {what}"));
        if line("its first line")? != HEAD {
            return Err(format!("line 1: expected `{HEAD}`: this is not a counterexample"));
        }
        let named = |line: &str, name: &str, number| {
            line.strip_prefix(name)
                .map(|rest| rest.trim().to_string())
                .ok_or(format!("line {number}: expected `{name} NAME`"))
        };
        let race = named(line("the race")?, "race", 2)?;
        let design = named(line("the design")?, "design", 3)?;
        let memory = named(line("the memory")?, "memory", 4)?;
        let memory = Architecture::named(&memory).ok_or("line 4: expected `memory x86`, `arm` or `riscv`")?;
        let steps = lines
            .filter(|(line, _)| !line.trim().is_empty())
            .map(|(line, number)| {
                step(line).ok_or(format!(
                    "line {number}: expected `run CPU`, `interrupt CPU`, \
                     `drain CPU PLACE` or `old CPU BACK`, found `{line}`"
                ))
            })
            .collect::<Result<_, _>>()?;
        Ok(Recorded {
            race,
            design,
            memory,
            steps,
        })
    }
}

fn step(line: &str) -> Option<Step> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let number = |word: &str| word.parse().ok();
    match words[..] {
        ["run", cpu] => Some(Step::Run(number(cpu)?)),
        ["interrupt", cpu] => Some(Step::Interrupt(number(cpu)?)),
        ["drain", cpu, place] => Some(Step::Drain(number(cpu)?, number(place)?)),
        ["old", cpu, back] => Some(Step::Old(number(cpu)?, number(back)?)),
        _ => None,
    }
}

/// The run with a column for each CPU, then the rule that was broken. With `details`, includes every memory access.
pub fn story(lines: &[Line], violation: Option<&Violation>, details: bool) -> String {
    let mut text = String::new();
    for line in lines.iter().filter(|line| details || !line.detail) {
        let indent = " ".repeat(4 * line.cpu);
        let _ = writeln!(text, "{indent}CPU {} {}", line.cpu, line.text);
    }
    if let Some(violation) = violation {
        let _ = writeln!(text, "{violation}");
    }
    text
}

impl Counterexample {
    /// As a file.
    pub fn recorded(&self, race: &str, design: &str, memory: Architecture) -> Recorded {
        Recorded {
            race: race.to_string(),
            design: design.to_string(),
            memory,
            steps: self.steps.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorded() -> Recorded {
        Recorded {
            race: "flush".into(),
            design: "ipi".into(),
            memory: Architecture::Arm,
            steps: vec![Step::Run(0), Step::Drain(1, 2), Step::Old(0, 1), Step::Interrupt(1)],
        }
    }

    #[test]
    fn written_counterexample_reads_back() {
        assert_eq!(Recorded::from_text(&recorded().to_text()), Ok(recorded()));
    }

    #[test]
    fn damaged_counterexample_is_refused_with_its_line() {
        let refused = |text: &str| Recorded::from_text(text).unwrap_err();
        assert!(refused("").contains("ends before its first line"));
        assert!(refused("something\n").starts_with("line 1: expected"));
        assert!(refused(&recorded().to_text().replace("race", "rice")).starts_with("line 2: expected `race NAME`"));
        assert!(
            refused(&recorded().to_text().replace("drain 1 2", "drain 1")).starts_with("line 6: expected `run CPU`")
        );
        assert!(refused(&recorded().to_text().replace("run 0", "run 999")).starts_with("line 5:"));
        assert!(refused(&recorded().to_text().replace("memory arm", "memory warm")).starts_with("line 4: expected"));
    }
}
