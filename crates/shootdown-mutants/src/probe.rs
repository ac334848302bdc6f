//! Probes: single tests, and races under designs. Each is measured once without any mutation.

use crate::journal::Caught;
use crate::process::{self, Ended};
use crate::tool::{Program, Tool};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

/// A test, or a race under a design.
#[derive(Debug, Clone)]
pub struct Probe {
    /// Its program.
    pub program: Program,
    /// Its name there.
    pub name: String,
    /// Without any mutation.
    pub baseline: Baseline,
}

/// A probe's run without any mutation.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Baseline {
    /// Its duration.
    pub seconds: f64,
    /// Sites that it passes.
    pub passed: u64,
    /// States, of a race.
    pub states: u64,
    /// Mutations that would make a difference in it.
    pub reached: Vec<u32>,
}

/// Sites that may be passed beyond 30 times those of the baseline, before a test is taken to hang.
const SPARE: u64 = 10_000_000;

/// Tests shorter than this, in seconds, run together.
const SHORT: f64 = 0.03;

/// Programs in cargo's list of built artifacts (one JSON document a line).
///
/// # Errors
/// When a line is not in cargo's format.
pub fn programs(cargo_says: &str) -> Result<Vec<Program>, String> {
    let mut found = Vec::new();
    for line in cargo_says.lines().filter(|line| line.starts_with('{')) {
        let value: serde_json::Value =
            serde_json::from_str(line).map_err(|error| format!("cargo's output: {error}"))?;
        let (Some(path), Some(manifest)) = (value["executable"].as_str(), value["manifest_path"].as_str()) else {
            continue;
        };
        let folder = Path::new(manifest)
            .parent()
            .expect("a manifest lies in a folder")
            .to_path_buf();
        let package = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let Some(tool) = Tool::of_package(&package) else {
            continue;
        };
        let name = value["target"]["name"].as_str().unwrap_or_default().to_string();
        let is_test = value["profile"]["test"] == true;
        // For the exploration: the races themselves, not the tests that run all of them.
        if (tool == Tool::Check) == is_test || (tool == Tool::Check && name != "race") {
            continue;
        }
        let bytes = std::fs::read(path).map_err(|error| format!("cannot read {path}: {error}"))?;
        found.push(Program {
            tool,
            path: path.into(),
            folder,
            name,
            fingerprint: crate::fingerprint(&bytes),
        });
    }
    Ok(found)
}

/// Names of the tests or races of a program.
///
/// # Errors
/// When it does not list them.
pub fn names(program: &Program, scratch: &Path) -> Result<Vec<String>, String> {
    let ask = |arguments: &[&str]| {
        let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
        let (ended, text) = process::run(program, &arguments, &[], scratch, Duration::from_secs(60))?;
        match ended {
            Ended::Status(0) => Ok(text),
            _ => Err(format!("{} {arguments:?} failed: {text}", program.path.display())),
        }
    };
    if program.tool == Tool::Check {
        return Ok(ask(&["--list"])?.lines().map(String::from).collect());
    }
    let tests = |text: String| -> Vec<String> {
        text.lines()
            .filter_map(|line| line.strip_suffix(": test"))
            .map(String::from)
            .collect()
    };
    let ignored = tests(ask(&["--list", "--format", "terse", "--ignored"])?);
    let all = tests(ask(&["--list", "--format", "terse"])?);
    Ok(all.into_iter().filter(|name| !ignored.contains(name)).collect())
}

impl Probe {
    /// Its name for people.
    pub fn shown(&self) -> String {
        match self.program.tool {
            Tool::Check => self.name.clone(),
            _ => format!("{}: {}", self.program.name, self.name),
        }
    }

    /// Whether starting a separate program for it would take longer than the probe itself.
    pub fn is_short(&self) -> bool {
        self.program.tool != Tool::Check && self.baseline.seconds < SHORT
    }

    /// Runs it without any mutation.
    ///
    /// # Errors
    /// When it fails.
    pub fn measure(program: &Program, name: &str, scratch: &Path) -> Result<Probe, String> {
        let mut probe = Probe {
            program: program.clone(),
            name: name.into(),
            baseline: Baseline {
                seconds: 0.0,
                passed: 0,
                states: 1_000_000,
                reached: Vec::new(),
            },
        };
        let file = scratch.with_extension("reached");
        let _ = std::fs::remove_file(&file);
        let env = [("SHOOTDOWN_REACHED", file.to_string_lossy().into_owned())];
        let begun = std::time::Instant::now();
        let (ended, text) = process::run(program, &arguments(&[&probe]), &env, scratch, Duration::from_secs(900))?;
        probe.baseline.seconds = begun.elapsed().as_secs_f64();
        if !matches!(ended, Ended::Status(0)) || text.contains("unknown\t") {
            return Err(format!("{} fails without any mutation:\n{text}", probe.shown()));
        }
        let numbers = std::fs::read_to_string(&file).unwrap_or_default();
        let mut numbers = numbers.lines().filter_map(|line| line.parse().ok());
        probe.baseline.passed = numbers.next().unwrap_or(0);
        probe.baseline.reached = numbers.map(|number: u64| number as u32).collect();
        probe.baseline.states = states(&text).unwrap_or(0);
        Ok(probe)
    }
}

fn arguments(probes: &[&Probe]) -> Vec<String> {
    let names = probes.iter().map(|probe| probe.name.clone());
    let before = match probes[0].program.tool {
        Tool::Check => vec![(probes[0].baseline.states * 4 + 10_000).to_string()],
        _ => ["--exact", "--test-threads=1"].map(String::from).to_vec(),
    };
    before.into_iter().chain(names).collect()
}

/// Runs probes of one program, one or several [short](Probe::is_short) ones, with the mutation of that number, until
/// one fails.
///
/// # Errors
/// When it cannot be run.
pub fn run_all(probes: &[&Probe], number: u32, scratch: &Path) -> Result<Option<Caught>, String> {
    let program = &probes[0].program;
    let seconds: f64 = probes.iter().map(|probe| probe.baseline.seconds).sum();
    let passed: u64 = probes.iter().map(|probe| probe.baseline.passed).sum();
    let mut env = vec![("SHOOTDOWN_MUTANT", number.to_string())];
    if program.tool != Tool::Check {
        env.push(("SHOOTDOWN_LIMIT", (passed * 30 + SPARE).to_string()));
    }
    let arguments = arguments(probes);
    let mut most = Duration::from_secs_f64(20.0 + 20.0 * seconds);
    let begun = std::time::Instant::now();
    let (ended, text) = loop {
        let (ended, text) = process::run(program, &arguments, &env, scratch, most)?;
        // On a busy machine a timeout is inconclusive: measure the time without the mutation again.
        let begun = std::time::Instant::now();
        if ended != Ended::Late
            || process::run(program, &arguments, &[], scratch, most)?.0 != Ended::Late && begun.elapsed() * 10 < most
        {
            break (ended, text);
        }
        most *= 2;
    };
    let how = match ended {
        Ended::Status(0) => return Ok(None),
        Ended::Status(97) => "does not end".into(),
        Ended::Late => "does not end (stopped)".into(),
        Ended::Signal(signal) => format!("crashes (signal {signal})"),
        Ended::Status(_) => complaint(&text),
    };
    let failed = probes.iter().find(|probe| has_failed(&text, &probe.name));
    let probe = failed.unwrap_or(&probes[0]);
    let count = match program.tool {
        Tool::Check => match states(&text) {
            Some(0) | None => text.split('\t').nth(3).unwrap_or_default().to_string(),
            Some(states) => format!("{states} states"),
        },
        _ => "1 test".into(),
    };
    Ok(Some(Caught {
        tool: program.tool,
        probe: probe.shown(),
        count,
        how,
        seconds: begun.elapsed().as_secs_f64(),
    }))
}

/// Whether that test was begun and did not end well.
fn has_failed(text: &str, name: &str) -> bool {
    let begun = format!("test {name} ... ");
    text.split_once(&begun)
        .is_some_and(|(_, after)| !after.starts_with("ok"))
}

/// The number of states in a line of `race`.
fn states(text: &str) -> Option<u64> {
    text.split('\t')
        .find_map(|word| word.strip_suffix(" states")?.parse().ok())
}

/// The message of a failing test or race.
fn complaint(text: &str) -> String {
    if let Some(broken) = text
        .lines()
        .find_map(|line| line.strip_prefix("caught\t")?.split('\t').nth(3))
    {
        return crate::mutant::shortened(broken);
    }
    let mut lines = text.lines().skip_while(|line| !line.contains("panicked at "));
    let place = lines.next().unwrap_or_default();
    let message = lines.next().unwrap_or(place);
    crate::mutant::shortened(if message.trim().is_empty() { place } else { message })
}

/// Measured baselines, by program and name, kept from run to run.
#[derive(Default, Serialize, Deserialize)]
pub struct Baselines(HashMap<String, Baseline>);

impl Baselines {
    /// Those kept in `file`; none when there is no such file.
    pub fn read(file: &Path) -> Self {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        serde_json::from_str(&text).unwrap_or_default()
    }

    /// Keeps them.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write(&self, file: &Path) -> Result<(), String> {
        let text = serde_json::to_string(self).expect("numbers and names");
        crate::write_whole(file, text.as_bytes())
    }

    /// The probe of that name, measured when it was not yet.
    ///
    /// # Errors
    /// When it fails without any mutation.
    pub fn probe(&mut self, program: &Program, name: &str, scratch: &Path) -> Result<Probe, String> {
        let key = format!("{:016x} {name}", program.fingerprint);
        if let Some(baseline) = self.0.get(&key) {
            return Ok(Probe {
                program: program.clone(),
                name: name.into(),
                baseline: baseline.clone(),
            });
        }
        let probe = Probe::measure(program, name, scratch)?;
        self.0.insert(key, probe.baseline.clone());
        Ok(probe)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failure_reason_is_extracted_from_races_and_tests() {
        let race = "held\tflush/ipi\t9 states\t1 runs\ncaught\tlazy/ipi\t120 states\t40 runs\tC1 broken: CPU 1\n";
        assert_eq!(complaint(race), "C1 broken: CPU 1");
        let test = "running 1 test\nthread 'main' panicked at tests/a.rs:1:2:\nleft is not right\nnote: x";
        assert_eq!(complaint(test), "left is not right");
        let several = "test a::b ... ok\ntest a::c ... FAILED\n";
        assert!(has_failed(several, "a::c") && !has_failed(several, "a::b") && !has_failed(several, "a"));
    }
}
