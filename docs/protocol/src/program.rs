//! Programs: lists of operations between which other CPUs may run. CPUs run them over one memory and send each other
//! interrupts. Also computes the possible steps of a protocol in this form.

use crate::memory::{CPUS, Memory};
use crate::{CpuOf, Protocol, StateOf, Step};
use std::fmt::Debug;
use std::ops::{Deref, DerefMut};

/// The position of a CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Place<P> {
    /// The program.
    pub program: P,
    /// The next operation.
    pub op: u8,
}

/// Where a program continues after an operation.
#[derive(Debug, Clone, Copy)]
pub enum Next<O> {
    /// With the next operation.
    Following,
    /// With this operation.
    To(O),
    /// The program ends.
    End,
}

/// One CPU: the state that every protocol has, and its `own`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Cpu<P, O> {
    /// Its position.
    pub at: Option<Place<P>>,
    /// The position that an interrupt interrupted.
    pub outer: Option<Place<P>>,
    /// Requesters with a pending request, one bit each.
    pub pending: u8,
    /// The requester that is being served.
    pub serving: u8,
    /// Targets, one bit each, while they are being chosen; then those that have not answered.
    pub targets: u8,
    /// The protocol's own state of a CPU.
    pub own: O,
}

impl<P, O: Default> Default for Cpu<P, O> {
    fn default() -> Self {
        Cpu {
            at: None,
            outer: None,
            pending: 0,
            serving: 0,
            targets: 0,
            own: O::default(),
        }
    }
}

impl<P, O> Deref for Cpu<P, O> {
    type Target = O;
    fn deref(&self) -> &O {
        &self.own
    }
}

impl<P, O> DerefMut for Cpu<P, O> {
    fn deref_mut(&mut self) -> &mut O {
        &mut self.own
    }
}

/// A complete state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct State<P, O, S> {
    /// Words, and buffered stores.
    pub memory: Memory,
    /// The CPUs.
    pub cpus: [Cpu<P, O>; CPUS],
    /// The protocol's own shared state.
    pub shared: S,
}

impl<P, O, S> State<P, O, S> {
    /// `Engine::request`: a full barrier; then every target of `cpu` has a request.
    pub fn send(&mut self, cpu: usize) {
        self.memory.barrier(cpu);
        let targets = self.cpus[cpu].targets;
        for (_, other) in (0..)
            .zip(&mut self.cpus)
            .filter(|(number, _)| targets >> number & 1 == 1)
        {
            other.pending |= 1 << cpu;
        }
    }

    /// `Queue::take`: a full barrier; then `cpu` serves one requester.
    pub fn take_request(&mut self, cpu: usize) {
        self.memory.barrier(cpu);
        let cpu = &mut self.cpus[cpu];
        cpu.serving = cpu.pending.trailing_zeros() as u8;
        cpu.pending &= cpu.pending - 1;
    }

    /// `Request::acknowledge`: a full barrier; then the requester that `cpu` serves no longer waits for it.
    pub fn acknowledge(&mut self, cpu: usize) {
        self.memory.barrier(cpu);
        let requester = usize::from(self.cpus[cpu].serving);
        self.cpus[requester].targets &= !(1 << cpu);
    }
}

/// The next operation of a CPU.
pub fn next_op<P: Protocol>(protocol: &P, cpu: &CpuOf<P>) -> Option<P::Op> {
    cpu.at.map(|at| protocol.ops(at.program)[usize::from(at.op)])
}

/// The possible steps.
pub fn steps<P: Protocol>(protocol: &P, state: &StateOf<P>, steps: &mut Vec<Step>) {
    for (number, cpu) in state.cpus.iter().enumerate().take(protocol.cpus()) {
        let id = number as u8;
        let may_begin = |&(_, &program): &(u8, &P::Program)| protocol.may_begin(state, number, program);
        steps.extend(
            (0..)
                .zip(P::PROGRAMS)
                .filter(may_begin)
                .map(|(program, _)| Step::Begin(id, program)),
        );
        if next_op(protocol, cpu).is_some_and(|op| !protocol.waits(state, number, op)) {
            steps.push(Step::Run(id));
        }
        if cpu.pending != 0 && protocol.is_open(cpu) {
            steps.push(Step::Interrupt(id));
        }
        steps.extend(state.memory.drainable(number).map(|index| Step::Drain(id, index as u8)));
    }
}

/// Takes one of [`steps`].
pub fn take<P: Protocol>(protocol: &P, state: &mut StateOf<P>, step: Step) {
    let number = step.cpu();
    let cpu = &mut state.cpus[number];
    let enter = |cpu: &mut CpuOf<P>, program| {
        if !protocol.ops(program).is_empty() {
            (cpu.outer, cpu.at) = (cpu.at, Some(Place { program, op: 0 }));
        }
    };
    match step {
        Step::Begin(_, program) => {
            let program = P::PROGRAMS[usize::from(program)];
            protocol.begin(cpu, program);
            enter(cpu, program);
        }
        Step::Interrupt(_) => enter(cpu, P::SERVE.expect("a program that can be interrupted has a handler")),
        Step::Drain(_, index) => state.memory.drain(number, usize::from(index)),
        Step::Run(_) => {
            let place = cpu.at.expect("it runs a program");
            let ops = protocol.ops(place.program);
            let next = protocol.carry_out(state, number, place.program, ops[usize::from(place.op)]);
            let cpu = &mut state.cpus[number];
            cpu.at = successor(ops, place, next);
            if cpu.at.is_none() {
                cpu.at = cpu.outer.take();
                protocol.ended(cpu, place.program);
            }
        }
    }
    protocol.fill(state);
}

/// The place after the operation at `place`; `None` if the program ends.
///
/// # Panics
/// If the operation to continue with is not in the program.
fn successor<P: Copy, O: PartialEq>(ops: &[O], place: Place<P>, next: Next<O>) -> Option<Place<P>> {
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

/// A step in a few words.
pub fn describe<P: Protocol>(protocol: &P, state: &StateOf<P>, step: Step) -> String {
    match (step, next_op(protocol, &state.cpus[step.cpu()])) {
        (Step::Begin(cpu, program), _) => format!("CPU {cpu} begins {:?}", P::PROGRAMS[usize::from(program)]),
        (Step::Run(cpu), Some(op)) => format!("CPU {cpu}: {op:?}"),
        (Step::Run(cpu), None) => format!("CPU {cpu} goes on"),
        (Step::Interrupt(cpu), _) => format!("CPU {cpu} takes its interrupt"),
        (Step::Drain(cpu, index), _) => format!("CPU {cpu}: the store at {index} of its buffer becomes visible"),
    }
}
