//! The tools that try mutations, and their programs.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::PathBuf;

/// The tool of a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tool {
    /// The engine's own tests.
    Engine,
    /// Exhaustive exploration of races.
    Check,
    /// Tests of the simulated machine, with its oracle.
    Sim,
    /// Models under loom.
    Loom,
}

impl Tool {
    /// All of them.
    pub const ALL: [Tool; 4] = [Tool::Engine, Tool::Check, Tool::Sim, Tool::Loom];

    /// The package whose tests they are.
    pub fn of_package(package: &str) -> Option<Tool> {
        match package {
            "shootdown" => Some(Tool::Engine),
            "shootdown-check" => Some(Tool::Check),
            "shootdown-sim" => Some(Tool::Sim),
            "shootdown-loom" => Some(Tool::Loom),
            _ => None,
        }
    }
}

impl fmt::Display for Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Tool::Engine => "engine",
            Tool::Check => "check",
            Tool::Sim => "sim",
            Tool::Loom => "loom",
        })
    }
}

/// A program that contains probes.
#[derive(Debug, Clone)]
pub struct Program {
    /// Its tool.
    pub tool: Tool,
    /// Its path.
    pub path: PathBuf,
    /// The folder of its package, where it runs.
    pub folder: PathBuf,
    /// The name of the test or the example.
    pub name: String,
    /// Changes when the program does.
    pub fingerprint: u64,
}
