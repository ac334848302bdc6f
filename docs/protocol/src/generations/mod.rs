//! (a) Generations: per-CPU tags, switches, lazy CPUs, requests by interrupt, freed tables.
//!
//! One space, *A*, has two pages. Requesters withdraw one page each. Other CPUs switch between *A* and another space
//! *B*, and enter and leave lazy TLB mode, in any order. A CPU's cache holds everything that its walker may have filled
//! since the last invalidation, from memory as walkers see it.

mod steps;

use crate::memory::CPUS;
use crate::{mutants, program};

/// The space's generation (`Space::generation`).
const GENERATION: usize = 0;
/// Its entries, by page: 1 while valid.
const ENTRY: usize = 1;
/// Its CPU set (`Space::cpus`), by CPU.
const MEMBER: usize = 3;
/// The published state of each CPU (`PerCpu::state`): a space, and flags.
const STATE: usize = 6;

const KERNEL: u8 = 0;
const A: u8 = 1;
const B: u8 = 2;
const SPACE: u8 = 3;
const LAZY: u8 = 4;
const SWITCHING: u8 = 8;

/// One operation; other CPUs may run between operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Op {
    /// The kernel clears an entry, or unlinks a table: a plain store.
    ClearEntry,
    /// `Engine::dispatch`: increments the generation; a full barrier.
    Increment,
    /// `Engine::targets`: is this CPU in the set?
    Member(u8),
    /// `Engine::targets`: what does it run? Is it a target?
    Look(u8),
    /// `Engine::request`: queues the request at every target and interrupts it.
    Send,
    /// `flush_next`, `catch_up`, `load_slot`: reads the generation.
    ReadGeneration,
    /// `Engine::flush_here`: the requester's local flush.
    FlushHere,
    /// `Engine::wait_reporting`, serving requests aimed at itself.
    Wait,
    /// `Token::wait` returns `Flushed`.
    Complete,
    /// The kernel frees the frame, or the table.
    Free,
    /// `Engine::switch_to`, step 1; when a lazy CPU unloads the space, `Engine::unload`.
    PublishSwitching,
    /// `Engine::switch_to`, step 2: joins the set of the space that it switches to; a full barrier.
    Join,
    /// `Engine::load_slot`: loads the root and, if the slot is behind, flushes everything under its tag in the same
    /// step.
    LoadRoot,
    /// Mutant 42: the tag is flushed first; then the root is loaded with entries kept.
    FlushSlot,
    /// See [`FlushSlot`](Op::FlushSlot).
    LoadRootKeeping,
    /// `Engine::switch_to`, step 4; `Engine::unload`.
    PublishLoaded,
    /// `Engine::depart`.
    LeaveSet,
    /// `Engine::enter_lazy`.
    PublishLazy,
    /// `Engine::leave_lazy_here`.
    PublishNotLazy,
    /// `Engine::leave_lazy_here`: between publishing and reading.
    Barrier,
    /// `Engine::catch_up`, to the generation that was read.
    CatchUp,
    /// `Queue::take`: a full barrier; then the request is carried out for the loaded space (`Engine::execute`).
    Take,
    /// `Engine::flush_next`: rule 2; otherwise `Engine::catch_up`.
    FlushAsAsked,
    /// `Request::acknowledge`.
    Acknowledge,
    /// Mutant of rule 6: flushes first, and records a generation that it reads afterwards.
    FlushWhole,
    /// See [`FlushWhole`](Op::FlushWhole).
    Record,
}

/// The programs of a CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Program {
    /// Withdraws a page, and flushes.
    Flush,
    /// Switches to A.
    SwitchIn,
    /// Switches to B.
    SwitchOut,
    /// Enters lazy TLB mode.
    GoLazy,
    /// Leaves lazy TLB mode.
    LeaveLazy,
    /// Answers a request.
    Serve,
}

mutants! {
    Generations;
    /// The increment is no barrier for the entry write before it.
    IncrementWithoutBarrier: C1 in SMALL;
    /// Set and states are read before the increment.
    TargetsBeforeIncrement: C1 in SMALL;
    /// A switching CPU is not a target (regression 1).
    SwitchingSkipped: C1 in SMALL;
    /// Joining is a plain store (regression 2).
    JoinWithoutBarrier: C1 in SMALL;
    /// The root is loaded before the join (regression 31).
    RootBeforeJoin: C1 in SMALL;
    /// The generation is read before the join.
    GenerationBeforeJoin: C1 in SMALL;
    /// The set is left before the new root is loaded (regression 23).
    LeaveBeforeRoot: C3 in TABLES;
    /// No barrier between leaving lazy TLB mode and reading the generation (rule 4).
    LazyExitWithoutBarrier: C1 in SMALL;
    /// Leaving lazy TLB mode does not read the generation.
    LazyExitWithoutCatchUp: C1 in SMALL;
    /// A CPU that enters lazy TLB mode leaves the set (regression 40).
    LazyLeavesSet: C1 in SMALL;
    /// Lazy CPUs are skipped although a table is freed (regression 35).
    LazySkippedDespiteTables: C3 in TABLES;
    /// The handler reads the generation after its flush (rule 6).
    GenerationReadAfterFlush: C1 in THREE;
    /// A partial flush although requests in between were missed (rule 2, C6).
    PartialAcrossGap: C1 in THREE;
    /// A partial flush records the current generation, not its own (rule 2, C6).
    PartialRecordsCurrent: C1 in THREE;
    /// The requester does not flush itself.
    NoLocalFlush: C1 in SMALL;
    /// The requester flushes nothing if the space is not current there (regression 13).
    SkippedWhenNotCurrent: C1 in AWAY;
    /// The waiter gives up (regression 24, C7).
    GivesUp: C1 in SMALL;
    /// The frame is freed before the wait (regression 16).
    FreedBeforeWait: C2 in SMALL;
    /// A waiting CPU does not serve requests (regressions 10, 11).
    NoSelfService: C5 in TWO;
    /// A slot gets a new owner without a flush (regression 18).
    SlotReusedWithoutFlush: C4 in ONE_SLOT;
    /// The tag is flushed before the root load, not with it (regression 42).
    FlushBeforeRoot: C4 in ONE_SLOT;
    /// A target acknowledges before it invalidates although a table is freed.
    EarlyDespiteTables: C3 in TABLES;
}

/// Flushes by generations. CPUs below `requesters` flush; only the others run the other programs.
#[derive(Debug, Clone, Copy)]
pub struct Generations {
    /// CPUs.
    pub cpus: usize,
    /// Number of CPUs that withdraw a page each.
    pub requesters: usize,
    /// Programs that each other CPU may begin.
    pub migrates: u8,
    /// Tag slots of a CPU, 1 or 2.
    pub slots: u8,
    /// Whether links to tables are withdrawn, and the tables freed.
    pub tables: bool,
    /// Whether requesters run space B.
    pub away: bool,
    /// Whether targets answer at the entry of their handler (`transport/early_ack.rs`).
    pub early: bool,
    /// Whether requesters have interrupts on, except for their local flush; otherwise they serve only while they wait.
    pub open: bool,
    /// Whether a partial flush may be of a request other than the newest (rule 2 forbids it; see `SOUND`).
    pub not_newest: bool,
    /// The mutant, if any.
    pub mutant: Option<Mutant>,
}

/// One requester and one other CPU.
const SMALL: Generations = Generations {
    cpus: 2,
    requesters: 1,
    migrates: 3,
    slots: 2,
    tables: false,
    away: false,
    early: false,
    open: false,
    not_newest: false,
    mutant: None,
};
const ONE_SLOT: Generations = Generations { slots: 1, ..SMALL };
const TABLES: Generations = Generations { tables: true, ..SMALL };
const AWAY: Generations = Generations { away: true, ..SMALL };
const TWO: Generations = Generations { requesters: 2, ..SMALL };
const THREE: Generations = Generations {
    cpus: 3,
    migrates: 2,
    ..TWO
};

/// The state of a CPU.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Own {
    /// The loaded root.
    root: u8,
    /// The state that it has published last.
    state: u8,
    /// The generation that the slot of A records; 0 if another space has the slot.
    seen: u8,
    /// Pages of A that may be cached under the slot's tag, one bit each.
    tlb: u8,
    /// The generation of its request.
    generation: u8,
    /// The generation that it has read.
    read: u8,
    /// Number of programs that it may still begin.
    left: u8,
}

/// Pages, one bit each.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Shared {
    complete: u8,
    freed: u8,
}

type Cpu = program::Cpu<Program, Own>;
type State = program::State<Program, Own, Shared>;

impl Generations {
    /// The programs, with the operations that mutants move.
    #[rustfmt::skip]
    fn programs(&self, program: Program) -> &'static [Op] {
        use Op::*;
        match program {
            Program::Flush => match self.mutant {
                Some(Mutant::TargetsBeforeIncrement) => &[
                    ClearEntry, Member(0), Look(0), Member(1), Look(1), Member(2), Look(2), Increment, Send,
                    ReadGeneration, FlushHere, Wait, Complete, Free,
                ],
                Some(Mutant::FreedBeforeWait) => &[
                    ClearEntry, Increment, Member(0), Look(0), Member(1), Look(1), Member(2), Look(2), Send,
                    ReadGeneration, FlushHere, Free, Wait, Complete,
                ],
                Some(Mutant::NoLocalFlush) => &[
                    ClearEntry, Increment, Member(0), Look(0), Member(1), Look(1), Member(2), Look(2), Send, Wait,
                    Complete, Free,
                ],
                Some(Mutant::GivesUp) => &[
                    ClearEntry, Increment, Member(0), Look(0), Member(1), Look(1), Member(2), Look(2), Send,
                    ReadGeneration, FlushHere, Complete, Free,
                ],
                _ => &[
                    ClearEntry, Increment, Member(0), Look(0), Member(1), Look(1), Member(2), Look(2), Send,
                    ReadGeneration, FlushHere, Wait, Complete, Free,
                ],
            },
            Program::SwitchIn => match self.mutant {
                Some(Mutant::RootBeforeJoin) => &[PublishSwitching, ReadGeneration, LoadRoot, Join, PublishLoaded],
                Some(Mutant::GenerationBeforeJoin) => {
                    &[PublishSwitching, ReadGeneration, Join, LoadRoot, PublishLoaded]
                }
                _ => &[PublishSwitching, Join, ReadGeneration, LoadRoot, PublishLoaded],
            },
            Program::SwitchOut => match self.mutant {
                Some(Mutant::LeaveBeforeRoot) => &[PublishSwitching, LeaveSet, Join, LoadRoot, PublishLoaded],
                Some(Mutant::FlushBeforeRoot) => {
                    &[PublishSwitching, Join, FlushSlot, LoadRootKeeping, PublishLoaded, LeaveSet]
                }
                _ => &[PublishSwitching, Join, LoadRoot, PublishLoaded, LeaveSet],
            },
            Program::GoLazy => match self.mutant {
                Some(Mutant::LazyLeavesSet) => &[PublishLazy, LeaveSet],
                _ => &[PublishLazy],
            },
            Program::LeaveLazy => match self.mutant {
                Some(Mutant::LazyExitWithoutBarrier) => &[PublishNotLazy, ReadGeneration, CatchUp],
                Some(Mutant::LazyExitWithoutCatchUp) => &[PublishNotLazy, Barrier],
                _ => &[PublishNotLazy, Barrier, ReadGeneration, CatchUp],
            },
            Program::Serve if self.is_early() => &[
                Take, Acknowledge, PublishSwitching, LoadRoot, PublishLoaded, LeaveSet, ReadGeneration, FlushAsAsked,
            ],
            Program::Serve => match self.mutant {
                Some(Mutant::GenerationReadAfterFlush) => &[
                    Take, PublishSwitching, LoadRoot, PublishLoaded, LeaveSet, FlushWhole, ReadGeneration, Record,
                    Acknowledge,
                ],
                _ => &[
                    Take, PublishSwitching, LoadRoot, PublishLoaded, LeaveSet, ReadGeneration, FlushAsAsked,
                    Acknowledge,
                ],
            },
        }
    }
}
