//! Task numbers are reused: which task a number means.

use crate::{Event, What};
use std::collections::{HashMap, HashSet};

/// A task between two programs that it ran; numbers of ended tasks are used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Incarnation {
    pub(super) task: u32,
    /// Tasks of that number that ended before.
    pub(super) life: u32,
    /// Programs that the task ran before.
    pub(super) program: u32,
}

/// How often the number of each task was used for another one before.
#[derive(Debug, Clone, Default)]
pub(super) struct Lives {
    ended: HashMap<u32, u32>,
    /// Tasks that have left their CPU for the last time.
    dead: HashSet<u32>,
}

impl Lives {
    /// Processes an event; returns the task that begins with it, if any.
    pub(super) fn add(&mut self, event: &Event<'_>) -> Option<u32> {
        if let What::Switch { from, state, .. } = event.what
            && state.starts_with(['X', 'Z', 'x'])
        {
            self.dead.insert(from);
        }
        let new = match event.what {
            What::NewTask { child, .. } => Some(child),
            What::Switch { to, .. } => Some(to).filter(|to| self.dead.contains(to)),
            What::Fork { child } => Some(child).filter(|child| self.dead.contains(child)),
            _ => None,
        }?;
        self.dead.remove(&new);
        *self.ended.entry(new).or_default() += 1;
        Some(new)
    }

    pub(super) fn of(&self, task: u32) -> u32 {
        self.ended.get(&task).copied().unwrap_or(0)
    }
}
