//! Models of the protocols that keep translations coherent, small enough to be explored whole.
//!
//! | model | protocol | engine |
//! | --- | --- | --- |
//! | [`generations`] | per-CPU tags: generations, switches, lazy CPUs, requests, freed tables | `flush/mod.rs`, `flush/targets.rs`, `cpu/switch.rs`, `transport/handler.rs`, `cpu/catch_up.rs` |
//! | [`rollover`] | system-wide tags that roll over | `tags/rollover.rs`, `cpu/switch.rs`, `flush/local_first.rs` |
//! | [`promotion`] | from slots to a system-wide tag and back | `tags/promotion.rs`, `tags/demotion.rs`, `cpu/switch.rs` |
//! | [`walks`] | lockless walks and freed tables | `walk/` |
//!
//! A model is not the engine: it is the argument for it, in which every step can be read. `shootdown-check` explores
//! the engine itself, with more detail and smaller bounds. Each step here names the function of the engine that it
//! stands for.
//!
//! A protocol is written as *programs*, lists of operations that others may come between. A mutant drops or moves an
//! operation, a barrier or a check. [`explore`] visits every state; the sound protocol breaks no claim (C1 to C7), each
//! mutant does. `cargo run --release -p protocol` prints the table.

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
    /// No translation is used that was withdrawn before a flush that is complete.
    C1,
    /// No frame is freed while a translation of it can be used.
    C2,
    /// No table page is freed while a processor or a lockless walk may read it.
    C3,
    /// A tag changes hands only when no CPU can hold entries under it.
    C4,
    /// Whoever waits is answered in the end.
    C5,
}

impl Claim {
    /// All that a model can break. C6 (on any doubt, more) and C7 (a wait is never given up) are no states: breaking
    /// them breaks C1 or C3, and mutants of both are among the others.
    pub const ALL: [Claim; 5] = [Claim::C1, Claim::C2, Claim::C3, Claim::C4, Claim::C5];
}

/// Something that can happen next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// This CPU carries out the next operation of its program.
    Run(u8),
    /// This CPU begins one of the programs open to it.
    Begin(u8, u8),
    /// This CPU takes its interrupt.
    Interrupt(u8),
    /// The store at this place of the CPU's buffer becomes visible.
    Drain(u8, u8),
}

impl Step {
    /// Whose step it is.
    pub fn cpu(self) -> usize {
        match self {
            Step::Run(cpu) | Step::Begin(cpu, _) | Step::Interrupt(cpu) | Step::Drain(cpu, _) => usize::from(cpu),
        }
    }
}

/// A protocol that can be had with something wrong. The macro `mutants` writes this.
pub trait Mutated: Copy + Debug + Send + Sync + 'static {
    /// What can be left out, weakened or moved.
    type Mutant: Copy + Debug + PartialEq + 'static;
    /// Each mutant, the bounds in which it shows, and the claim that it breaks.
    const MUTANTS: &[(Self::Mutant, Self, Claim)];
    /// The same with a mutant.
    fn with(self, mutant: Self::Mutant) -> Self;
    /// Whether this is wrong.
    fn is(&self, mutant: Self::Mutant) -> bool;
}

/// What a part of a state has to be.
pub trait Part: Copy + Debug + PartialEq + Hash + Send + Sync + 'static {}
impl<T: Copy + Debug + PartialEq + Hash + Send + Sync + 'static> Part for T {}

/// The state of a protocol.
pub type StateOf<P> = State<<P as Protocol>::Program, <P as Protocol>::Own, <P as Protocol>::Shared>;
/// A CPU of a protocol.
pub type CpuOf<P> = Cpu<<P as Protocol>::Program, <P as Protocol>::Own>;

/// A protocol with its bounds: CPUs, programs, how often. [`program`] runs it.
pub trait Protocol: Mutated {
    /// Its name.
    const NAME: &str;
    /// What is explored whole, by name.
    const SOUND: &[(&str, Self)];

    /// What a CPU can be at.
    type Program: Part;
    /// An operation of a program.
    type Op: Copy + Debug + PartialEq + 'static;
    /// What a CPU has beyond what every CPU has.
    type Own: Part;
    /// What there is apart from CPUs and memory.
    type Shared: Part;

    /// Programs that a CPU may begin on its own, by the number in [`Step::Begin`].
    const PROGRAMS: &[Self::Program];
    /// The program that answers a request; `None` where there are none.
    const SERVE: Option<Self::Program>;

    /// How many CPUs there are.
    fn cpus(&self) -> usize;
    /// Where it begins.
    fn start(&self) -> StateOf<Self>;
    /// A program's operations.
    fn ops(&self, program: Self::Program) -> &'static [Self::Op];
    /// Whether a CPU may begin this one of [`PROGRAMS`](Self::PROGRAMS) now.
    fn may_begin(&self, state: &StateOf<Self>, cpu: usize, program: Self::Program) -> bool;
    /// A CPU begins a program: what that costs it.
    fn begin(&self, cpu: &mut CpuOf<Self>, program: Self::Program);
    /// Carries out an operation; says where the program goes on.
    fn carry_out(&self, state: &mut StateOf<Self>, cpu: usize, program: Self::Program, op: Self::Op) -> Next<Self::Op>;
    /// Whether a CPU has to wait before this operation.
    fn waits(&self, state: &StateOf<Self>, cpu: usize, op: Self::Op) -> bool;
    /// Whether a CPU takes interrupts.
    fn is_open(&self, cpu: &CpuOf<Self>) -> bool;
    /// A CPU has ended a program, and is back at what it was at before: what it has read on the way is of no matter any
    /// more.
    fn ended(&self, cpu: &mut CpuOf<Self>, program: Self::Program);
    /// Walkers fill what they can reach, after each step.
    fn fill(&self, state: &mut StateOf<Self>);
    /// Whether nobody waits for anything any more.
    fn is_over(&self, state: &StateOf<Self>) -> bool;
    /// The claim that is broken, if one is. C5 is not looked for here: it is broken where nothing can happen although
    /// it is not [over](Self::is_over).
    fn broken(&self, state: &StateOf<Self>) -> Option<Claim>;
}

/// Declares a model's `Mutant`s, each with the claim that it breaks and the bounds in which that shows: none can be
/// forgotten.
macro_rules! mutants {
    ($protocol:ty; $($(#[$doc:meta])* $name:ident: $claim:ident in $bounds:expr;)*) => {
        /// What is left out, weakened or moved.
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

/// A protocol as the model checker takes it.
struct Checked<P>(P);

/// A state and what is broken in it.
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

/// What an exploration found.
#[derive(Debug, Clone)]
pub struct Explored {
    /// Different states.
    pub states: usize,
    /// Steps of the longest of the shortest ways to a state.
    pub depth: usize,
    /// The claim that was broken first, breadth first, and how.
    pub broken: Option<(Claim, Vec<Step>)>,
    /// How long it took.
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
