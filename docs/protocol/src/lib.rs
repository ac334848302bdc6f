//! Models of the coherence protocols, small enough for exhaustive exploration.
//!
//! | model | protocol | engine |
//! | --- | --- | --- |
//! | [`generations`] | per-CPU tags: generations, switches, requests, freed tables | `flush/`, `cpu/`, `transport/` |
//! | [`rollover`] | system-wide tags that roll over | `tags/rollover.rs`, `cpu/switch.rs`, `flush/rolled.rs` |
//! | [`promotion`] | from slots to a system-wide tag and back | `tags/`, `cpu/switch.rs` |
//! | [`walks`] | lockless walks and freed tables | `walk/` |
//!
//! A model is not the engine but an argument for it, in which every step can be read. `shootdown-check` explores the
//! engine itself, with more detail and smaller bounds. Each step here names the engine function that it represents.
//!
//! A protocol consists of *programs*: lists of operations between which other CPUs may run. A mutant drops or moves an
//! operation, a barrier or a check. [`explore`] visits every state. The sound protocol breaks no claim (C1 to C7), and
//! each mutant breaks one. `cargo run --release -p protocol` prints the table.

/// The examples of the book, compiled and run as documentation tests.
#[cfg(doctest)]
mod book {
    #[doc = include_str!("../../src/embedding/hotplug.md")]
    mod hotplug {}
    #[doc = include_str!("../../src/embedding/hypervisors.md")]
    mod hypervisors {}
    #[doc = include_str!("../../src/embedding/locks.md")]
    mod locks {}
    #[doc = include_str!("../../src/embedding/roots.md")]
    mod roots {}
}

pub mod generations;
pub mod memory;
pub mod program;
pub mod promotion;
pub mod report;
pub mod rollover;
pub mod walks;

use program::{Cpu, Next, State};
use stateright::{Checker, HasDiscoveries, Model, Property};
use std::fmt::Debug;
use std::hash::Hash;
use std::time::{Duration, Instant};

/// Names of the models.
pub const MODELS: &[&str] = &["generations", "rollover", "promotion", "walks"];

/// The claims of the contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Claim {
    /// No translation is used that was withdrawn before a completed flush.
    C1,
    /// No frame is freed while a translation of it can be used.
    C2,
    /// No page-table page is freed while a processor or a lockless walk may read it.
    C3,
    /// A tag gets a new owner only when no CPU can hold entries under it.
    C4,
    /// Every waiting CPU is eventually answered.
    C5,
}

impl Claim {
    /// All claims that a model can break. C6 (in any doubt, flush more) and C7 (a wait is never abandoned) are not
    /// properties of a state. Breaking them breaks C1 or C3, and both have mutants here.
    pub const ALL: [Claim; 5] = [Claim::C1, Claim::C2, Claim::C3, Claim::C4, Claim::C5];
}

/// A possible step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// This CPU carries out the next operation of its program.
    Run(u8),
    /// This CPU begins one of the programs open to it.
    Begin(u8, u8),
    /// This CPU takes its interrupt.
    Interrupt(u8),
    /// The store at this place in the CPU's buffer becomes visible.
    Drain(u8, u8),
}

impl Step {
    /// The CPU that takes the step.
    pub fn cpu(self) -> usize {
        match self {
            Step::Run(cpu) | Step::Begin(cpu, _) | Step::Interrupt(cpu) | Step::Drain(cpu, _) => usize::from(cpu),
        }
    }
}

/// A protocol with optional mutants. The macro `mutants` implements this.
pub trait Mutated: Copy + Debug + Send + Sync + 'static {
    /// Operations that can be left out, weakened or moved.
    type Mutant: Copy + Debug + PartialEq + 'static;
    /// Each mutant, the bounds in which it shows, and the claim that it breaks.
    const MUTANTS: &[(Self::Mutant, Self, Claim)];
    /// The same with a mutant.
    fn with(self, mutant: Self::Mutant) -> Self;
    /// Whether this mutant is active.
    fn is(&self, mutant: Self::Mutant) -> bool;
}

/// Requirements on a part of a state.
pub trait Part: Copy + Debug + PartialEq + Hash + Send + Sync + 'static {}
impl<T: Copy + Debug + PartialEq + Hash + Send + Sync + 'static> Part for T {}

/// The state of a protocol.
pub type StateOf<P> = State<<P as Protocol>::Program, <P as Protocol>::Own, <P as Protocol>::Shared>;
/// A CPU of a protocol.
pub type CpuOf<P> = Cpu<<P as Protocol>::Program, <P as Protocol>::Own>;

/// A protocol with its bounds: CPUs, programs, repetitions. [`program`] runs it.
pub trait Protocol: Mutated {
    /// Its name.
    const NAME: &str;
    /// Bounds that are explored exhaustively, by name.
    const SOUND: &[(&str, Self)];

    /// The programs of a CPU.
    type Program: Part;
    /// An operation of a program.
    type Op: Copy + Debug + PartialEq + 'static;
    /// The protocol's own state of a CPU.
    type Own: Part;
    /// Shared state other than CPUs and memory.
    type Shared: Part;

    /// Programs that a CPU may begin on its own, by the number in [`Step::Begin`].
    const PROGRAMS: &[Self::Program];
    /// The program that answers a request; `None` if there are no requests.
    const SERVE: Option<Self::Program>;

    /// Number of CPUs.
    fn cpus(&self) -> usize;
    /// The initial state.
    fn start(&self) -> StateOf<Self>;
    /// A program's operations.
    fn ops(&self, program: Self::Program) -> &'static [Self::Op];
    /// Whether a CPU may begin this one of [`PROGRAMS`](Self::PROGRAMS) now.
    fn may_begin(&self, state: &StateOf<Self>, cpu: usize, program: Self::Program) -> bool;
    /// Updates a CPU's budget when it begins a program.
    fn begin(&self, cpu: &mut CpuOf<Self>, program: Self::Program);
    /// Carries out an operation. Returns where the program continues.
    fn carry_out(&self, state: &mut StateOf<Self>, cpu: usize, program: Self::Program, op: Self::Op) -> Next<Self::Op>;
    /// Whether a CPU has to wait before this operation.
    fn waits(&self, state: &StateOf<Self>, cpu: usize, op: Self::Op) -> bool;
    /// Whether a CPU takes interrupts.
    fn is_open(&self, cpu: &CpuOf<Self>) -> bool;
    /// A CPU has ended a program, and continues with the previous one. Values read on the way no longer matter.
    fn ended(&self, cpu: &mut CpuOf<Self>, program: Self::Program);
    /// Walkers fill everything that they can reach, after each step.
    fn fill(&self, state: &mut StateOf<Self>);
    /// Whether no CPU waits for anything any more.
    fn is_over(&self, state: &StateOf<Self>) -> bool;
    /// The broken claim, if any. C5 is not checked here: it is broken if no step is possible although the protocol is
    /// not [over](Self::is_over).
    fn broken(&self, state: &StateOf<Self>) -> Option<Claim>;
}

/// Declares a model's `Mutant`s, each with the claim that it breaks and the bounds in which that shows, so none can be
/// omitted.
macro_rules! mutants {
    ($protocol:ty; $($(#[$doc:meta])* $name:ident: $claim:ident in $bounds:expr;)*) => {
        /// The operation that is left out, weakened or moved.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Mutant {
            $($(#[$doc])* $name,)*
        }

        impl $crate::Mutated for $protocol {
            type Mutant = Mutant;
            const MUTANTS: &[(Mutant, Self, $crate::Claim)] =
                &[$((Mutant::$name, $bounds, $crate::Claim::$claim),)*];

            fn with(self, mutant: Mutant) -> Self {
                Self { mutant: Some(mutant), ..self }
            }

            fn is(&self, mutant: Mutant) -> bool {
                self.mutant == Some(mutant)
            }
        }
    };
}
pub(crate) use mutants;

/// A protocol as input of the model checker.
struct Checked<P>(P);

/// A state and the claim that is broken in it.
#[derive(Debug, Clone, PartialEq, Hash)]
struct Judged<S> {
    state: S,
    broken: Option<Claim>,
}

impl<P: Protocol> Checked<P> {
    fn judge(&self, state: StateOf<P>) -> Judged<StateOf<P>> {
        let broken = self.0.broken(&state).or_else(|| {
            let mut steps = Vec::new();
            if !self.0.is_over(&state) {
                program::steps(&self.0, &state, &mut steps);
            }
            (steps.is_empty() && !self.0.is_over(&state)).then_some(Claim::C5)
        });
        Judged { state, broken }
    }
}

impl<P: Protocol> Model for Checked<P> {
    type State = Judged<StateOf<P>>;
    type Action = Step;

    fn init_states(&self) -> Vec<Self::State> {
        vec![self.judge(self.0.start())]
    }

    fn actions(&self, judged: &Self::State, actions: &mut Vec<Step>) {
        if judged.broken.is_none() {
            program::steps(&self.0, &judged.state, actions);
        }
    }

    fn next_state(&self, judged: &Self::State, step: Step) -> Option<Self::State> {
        let mut state = judged.state;
        program::take(&self.0, &mut state, step);
        Some(self.judge(state))
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("C1", |_, judged: &Self::State| judged.broken != Some(Claim::C1)),
            Property::always("C2", |_, judged: &Self::State| judged.broken != Some(Claim::C2)),
            Property::always("C3", |_, judged: &Self::State| judged.broken != Some(Claim::C3)),
            Property::always("C4", |_, judged: &Self::State| judged.broken != Some(Claim::C4)),
            Property::always("C5", |_, judged: &Self::State| judged.broken != Some(Claim::C5)),
        ]
    }
}

/// The result of an exploration.
#[derive(Debug, Clone)]
pub struct Explored {
    /// Number of different states.
    pub states: usize,
    /// Length of the longest of the shortest paths to a state.
    pub depth: usize,
    /// The first broken claim, breadth first, and the steps to it.
    pub broken: Option<(Claim, Vec<Step>)>,
    /// Duration of the exploration.
    pub took: Duration,
}

/// Visits every state, breadth first, on one thread, until a claim is broken.
pub fn explore<P: Protocol>(protocol: P) -> Explored {
    let begun = Instant::now();
    let checker = Checked(protocol).checker();
    let checked = checker.finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    let found = checked.discoveries().into_iter();
    let broken = found
        .filter_map(|(name, path)| {
            let claim = Claim::ALL.into_iter().find(|claim| format!("{claim:?}") == name)?;
            Some((claim, path.into_actions()))
        })
        .min_by_key(|(claim, steps)| (steps.len(), *claim));
    Explored {
        states: checked.unique_state_count(),
        depth: checked.max_depth(),
        broken,
        took: begun.elapsed(),
    }
}
