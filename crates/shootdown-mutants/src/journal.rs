//! What is known already: one line of JSON for each mutation that was tried, appended as it becomes known, so that a
//! run that was stopped goes on where it was.

use crate::tool::Tool;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fs::File;
use std::io::Write;
use std::path::Path;

/// What became of a mutation.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Entry {
    /// Its name.
    pub mutant: String,
    /// Of the instrumented engine.
    pub engine: u64,
    /// Who caught it; nobody.
    pub caught: Option<Caught>,
    /// What else said nothing: fingerprints of programs.
    pub held: Vec<u64>,
    /// Most seconds of probes that were to be asked.
    pub budget: f64,
    /// Probes that were asked, and how long all took, s.
    pub asked: usize,
    /// Seconds.
    pub seconds: f64,
}

/// Who caught it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Caught {
    /// The tool.
    pub tool: Tool,
    /// The test, or the race and the design.
    pub probe: String,
    /// After how many states or runs.
    pub count: String,
    /// What was wrong.
    pub how: String,
    /// How long that probe took, s.
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

    /// What is known of that mutation, perhaps with another engine.
    pub fn known(&self, mutant: &str) -> Option<&Entry> {
        self.known.get(mutant)
    }

    /// Adds what became of one.
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
