//! Known results: one line of JSON for each tried mutation, appended at once, so that a stopped run resumes.

use crate::tool::Tool;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fs::File;
use std::io::Write;
use std::path::Path;

/// The result of a mutation.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Entry {
    /// Its name.
    pub mutant: String,
    /// Fingerprint of the instrumented engine.
    pub engine: u64,
    /// What caught it, if anything.
    pub caught: Option<Caught>,
    /// The programs that did not catch it: their fingerprints.
    pub held: Vec<u64>,
    /// Limit of seconds of probes.
    pub budget: f64,
    /// Probes that were run, and their total time, s.
    pub probes: usize,
    /// Seconds.
    pub seconds: f64,
}

/// What caught a mutation.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Caught {
    /// The tool.
    pub tool: Tool,
    /// The test, or the race and the design.
    pub probe: String,
    /// Number of states or runs until then.
    pub count: String,
    /// The error.
    pub how: String,
    /// Time of that probe, s.
    pub seconds: f64,
}

/// The journal.
pub struct Journal {
    file: File,
    known: HashMap<String, Entry>,
}

impl Journal {
    /// Opens it; of several lines on one mutation the last counts, one that is cut off does not.
    ///
    /// # Errors
    /// When it cannot be read or written.
    pub fn open(path: &Path) -> Result<Self, String> {
        let cannot = |error| format!("cannot open {}: {error}", path.display());
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let entries: Vec<Entry> = text
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect();
        let known: HashMap<_, _> = entries.into_iter().map(|entry| (entry.mutant.clone(), entry)).collect();
        let file = File::options().append(true).create(true).open(path).map_err(cannot)?;
        Ok(Journal { file, known })
    }

    /// The result of that mutation, perhaps with another engine.
    pub fn known(&self, mutant: &str) -> Option<&Entry> {
        self.known.get(mutant)
    }

    /// Adds a result.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn add(&mut self, entry: Entry) -> Result<(), String> {
        let written = self.file.write_all(line(&entry).as_bytes());
        self.known.insert(entry.mutant.clone(), entry);
        written.map_err(|error| format!("cannot write the journal: {error}"))
    }
}

fn line(entry: &Entry) -> String {
    serde_json::to_string(entry).expect("numbers and names") + "\n"
}
