//! Facts about a recording other than its events, and errors in it.

use serde::{Deserialize, Serialize};

/// About a recording. Facts that the source lacks are `None` or empty.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
    /// Events lost by the kernel's buffers, all CPUs together, as far as the source says how many.
    pub lost_events: u64,
    /// The same by CPU, with losses of unknown size.
    #[serde(default)]
    pub losses: Vec<Loss>,
    /// Errors in the text it was imported from.
    pub damage: Damage,
    /// Whether recording ended prematurely (a full disk, a killed recorder).
    pub incomplete: bool,
    /// Whether only one program's tasks were recorded: it lacks what CPUs did meanwhile for other tasks.
    #[serde(default)]
    pub one_program: bool,
}

impl Metadata {
    /// Records that this many events were lost, including those counted before.
    pub fn lost_at_least(&mut self, events: u64) {
        self.lose(None, Some(events.saturating_sub(self.lost_events)));
    }

    /// Counts a loss of `events`, or of an unknown number, on `cpu`.
    pub(crate) fn lose(&mut self, cpu: Option<u32>, events: Option<u64>) {
        if events == Some(0) {
            return;
        }
        self.lost_events = self.lost_events.saturating_add(events.unwrap_or(0));
        let known = self
            .losses
            .iter_mut()
            .find(|loss| loss.cpu == cpu && loss.events.is_some() == events.is_some());
        match known {
            Some(loss) => {
                loss.times += 1;
                loss.events = loss.events.map(|before| before.saturating_add(events.unwrap_or(0)));
            }
            None => self.losses.push(Loss { cpu, events, times: 1 }),
        }
    }
}

/// Events that were lost before they could be recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Loss {
    /// The CPU, if the source names it.
    pub cpu: Option<u32>,
    /// How many, if the source says so.
    pub events: Option<u64>,
    /// How often the source reports a loss.
    pub times: u64,
}

/// Lines that could not be used. Every dropped line is counted here.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Damage {
    /// Lines read.
    pub lines: u64,
    /// Lines that are not an event at all, or break off.
    pub damaged: u64,
    /// Events whose name is not used.
    pub unknown: u64,
    /// Events earlier than one before them.
    pub out_of_order: u64,
    /// Names of the events that are not used, with their counts, the most frequent first.
    #[serde(default)]
    pub unused: Vec<(String, u64)>,
    /// The first of each kind.
    pub first: Vec<FirstDamage>,
}

/// The first line of one kind of damage.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FirstDamage {
    /// Line number, from 1.
    pub line: u64,
    /// The error.
    pub what: String,
}

impl Damage {
    /// Lines that were skipped.
    pub fn skipped(&self) -> u64 {
        self.damaged + self.unknown + self.out_of_order
    }
}
