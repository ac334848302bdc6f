//! Parked tasks, and the task that each CPU runs. `tasks` exchanges them.

use super::cpu::Task;
use corosensei::Yielder;
use std::cell::{Cell, RefCell};

/// A task that no CPU runs.
pub(super) struct Parked {
    pub(super) task: Option<Task>,
    pub(super) yielder: *const Yielder<(), ()>,
    pub(super) category: u8,
    pub(super) daemon: bool,
    /// When it was parked, ticks: it does not continue before.
    pub(super) at: u64,
}

impl Parked {
    pub(super) const NOTHING: Parked = Parked {
        task: None,
        yielder: std::ptr::null(),
        category: 0,
        daemon: false,
        at: 0,
    };
}

/// The tasks of a machine, by number: first those that CPUs started with, by CPU number, then the added ones.
#[derive(Default)]
pub(crate) struct Tasks {
    pub(super) parked: RefCell<Vec<Parked>>,
    /// The task of each CPU.
    pub(super) running: RefCell<Vec<usize>>,
    /// The task that replaces the one that has just given up its turn.
    pub(super) next: Cell<usize>,
}
