//! Programs: lists of operations that others may come between, and where a CPU is in one.

use crate::Step;
use std::fmt::Debug;

/// Where a CPU is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Place<P> {
    /// In this program.
    pub program: P,
    /// Before this operation of it.
    pub op: u8,
}

impl<P> Place<P> {
    /// Before the first operation.
    pub fn first(program: P) -> Self {
        Place { program, op: 0 }
    }
}

/// Where a program goes on behind an operation.
#[derive(Debug, Clone, Copy)]
pub enum Next<O> {
    /// With the operation that follows.
    Following,
    /// With this one.
    To(O),
    /// Nowhere: it is over.
    End,
}

/// The place behind the operation at `place`; `None` when the program is over.
///
/// # Panics
/// When the operation to go on with is not in the program.
pub fn behind<P: Copy, O: PartialEq>(ops: &[O], place: Place<P>, next: Next<O>) -> Option<Place<P>> {
    let index = match next {
        Next::Following => usize::from(place.op) + 1,
        Next::To(op) => ops
            .iter()
            .position(|other| *other == op)
            .expect("an operation of the program"),
        Next::End => ops.len(),
    };
    (index < ops.len()).then_some(Place {
        op: index as u8,
        ..place
    })
}

/// A step in a few words: `begins` names a program by its number, `op` is the operation that the step's CPU is before.
pub fn tell(step: Step, begins: impl Fn(u8) -> String, op: Option<impl Debug>) -> String {
    match (step, op) {
        (Step::Begin(cpu, number), _) => format!("CPU {cpu} begins {}", begins(number)),
        (Step::Run(cpu), Some(op)) => format!("CPU {cpu}: {op:?}"),
        (Step::Run(cpu), None) => format!("CPU {cpu} goes on"),
        (Step::Interrupt(cpu), _) => format!("CPU {cpu} takes its interrupt"),
        (Step::Drain(cpu, index), _) => format!("CPU {cpu}: the store at {index} of its buffer becomes visible"),
    }
}
