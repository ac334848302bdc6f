//! What is known about a recording besides its events, and what was wrong with it.

use serde::{Deserialize, Serialize};

/// About a recording. What the source did not say is `None` or empty.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Metadata {
    /// The command that was recorded.
    pub command: Option<String>,
    /// Release of the kernel.
    pub kernel: Option<String>,
    /// CPUs of the machine.
    pub cpus: Option<u32>,
    /// Name of the clock.
    pub clock: Option<String>,
    /// Names of the events that were switched on.
    pub events: Vec<String>,
    /// Events lost by the kernel's buffers, all CPUs together.
    pub lost_events: u64,
    /// What was wrong with the text it was imported from.
    pub damage: Damage,
    /// Whether recording ended before its time (a full disk, a killed recorder).
    pub incomplete: bool,
    /// Whether only one program's tasks were recorded: what CPUs did meanwhile that ran others is not in it.
    #[serde(default)]
    pub one_program: bool,
}

/// Lines that could not be used. Nothing is dropped without being counted here.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Damage {
    /// Lines read.
    pub lines: u64,
    /// Lines that are not an event at all, or break off.
    pub damaged: u64,
    /// Events whose name is not one that we use.
    pub unknown: u64,
    /// Events earlier than one before them.
    pub out_of_order: u64,
    /// The first of each kind.
    pub first: Vec<FirstDamage>,
}

/// The first line of one kind of damage.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FirstDamage {
    /// Line number, from 1.
    pub line: u64,
    /// What is wrong.
    pub what: String,
}

impl Damage {
    /// Lines that were skipped.
    pub fn skipped(&self) -> u64 {
        self.damaged + self.unknown + self.out_of_order
    }
}
