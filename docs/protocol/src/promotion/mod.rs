//! (c) Promotion of a space from per-CPU slots to a system-wide tag, demotion back to slots, and flushes meanwhile.
//!
//! One space, *A*, has four pages, which requesters withdraw one by one. Between two flushes a requester may begin a
//! promotion or a demotion. Other CPUs switch to another space and back, and enter and leave lazy TLB mode. A CPU has a
//! slot for A and may have entries under the tag. Each cache holds everything that the walker may have filled.

mod steps;

use crate::memory::CPUS;
use crate::{mutants, program};

/// The space's generation.
const GENERATION: usize = 0;
/// The space's mode (`Space::mode`): one of the modes below, and the era above it.
const MODE: usize = 1;
/// Its entries, by page: 1 while valid.
const ENTRY: usize = 2;
const PAGES: usize = 4;
const ALL_PAGES: u8 = (1 << PAGES) - 1;
/// Its CPU set, by CPU.
const MEMBER: usize = ENTRY + PAGES;
/// The published state of each CPU.
const STATE: usize = MEMBER + CPUS;

const PER_CPU: u8 = 0;
const TRANSITION: u8 = 1;
const SYSTEM: u8 = 2;
const DEMOTING: u8 = 3;
const KIND: u8 = 3;
const ONE_ERA: u8 = 4;

const KERNEL: u8 = 0;
const A: u8 = 1;
const B: u8 = 2;
const SPACE: u8 = 3;
const LAZY: u8 = 4;
const SWITCHING: u8 = 8;
const ON_TAG: u8 = 16;

/// One operation; other CPUs may run between operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Op {
    /// The kernel clears an entry.
    ClearEntry,
    /// `Engine::is_uncounted`: whether the space seems to be promoted.
    Glance,
    /// `Engine::publish_under_tag`: the barrier in place of the increment.
    Publish,
    /// `Engine::publish_under_tag`: the mode, after that barrier.
    DispatchUnderTag,
    /// `Engine::publish_and_count`: increments the generation; a full barrier.
    Increment,
    /// `Engine::dispatch`: the mode, after the increment.
    Dispatch,
    /// `Engine::switch_to`, `Engine::sync_loaded_space`: the mode that this CPU follows.
    ReadMode,
    /// `Engine::load_slot`, `Engine::catch_up`.
    ReadGeneration,
    /// `Engine::load_slot`, `Engine::catch_up`, `Engine::adopt_system_tag`: slot or tag, as the mode says.
    Bring,
    /// `Engine::switch_to`, step 4; `Engine::adopt_system_tag`; `Engine::leave_system_tag`.
    PublishLoaded,
    /// `Engine::broadcast_and_sync`: issued.
    Broadcast,
    /// `Engine::broadcast_and_sync`: complete everywhere.
    Sync,
    /// `Engine::stragglers`: which CPUs are on the wrong kind of tag? Waits for CPUs that are switching.
    Scan(u8),
    /// `Engine::flush_in_transition`, `Engine::finish_demotion`: the exchange, if there is none.
    Settle,
    /// `Engine::finish_demotion`: everything under the tag.
    BroadcastTag,
    /// `Engine::finish_demotion`: complete everywhere.
    SyncTag,
    /// `TagPool::free_clean`.
    FreeTag,
    /// `Engine::targets`.
    Look(u8),
    /// `Engine::request`.
    Send,
    /// `Engine::wait_reporting`.
    Wait,
    /// `Token::wait` returns `Flushed`.
    Complete,
    /// `TagPool::allocate`, in `Engine::promote`.
    Allocate,
    /// `Engine::consider_demotion`: the generation for every flush under the tag; a full barrier.
    CountDemotion,
    /// `Engine::promote`, `Engine::consider_demotion`: the exchange that publishes the change.
    Exchange,
    /// `Engine::switch_to`, step 1.
    PublishSwitching,
    /// `Engine::switch_to`, step 2; a full barrier.
    Join,
    /// The root of B, or the kernel's.
    LoadOther,
    /// `Engine::switch_to`, step 4; `Engine::unload`.
    PublishOther,
    /// `Engine::depart`: leaves the set, unless the space is promoted.
    Depart,
    /// `Engine::enter_lazy`.
    PublishLazy,
    /// `Engine::leave_lazy_here`.
    PublishNotLazy,
    /// `Engine::leave_lazy_here`.
    Barrier,
    /// `Queue::take`.
    Take,
    /// `Request::acknowledge`.
    Acknowledge,
}

/// The programs of a CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Program {
    /// Withdraws a page, and flushes.
    Flush,
    /// `Engine::promote`, or the exchange of `Engine::consider_demotion`, whose scan the next flush does.
    Change,
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
    Promotion;
    /// The increment is no barrier for the entry write before it.
    IncrementWithoutBarrier: C1 in OTHERWISE;
    /// The mode is read before the increment.
    ModeBeforeIncrement: C1 in OTHERWISE;
    /// A flush under a tag passes no barrier.
    NoBarrierUnderTag: C1 in SYSTEM_WIDE;
    /// A flush under a tag reads the mode before its barrier.
    ModeBeforeBarrierUnderTag: C1 in WITHDRAWN;
    /// A demotion does not increment the generation.
    DemotionNotCounted: C1 in DEMOTED;
    /// A demotion increments the generation after its exchange.
    DemotionCountedLate: C1 in DEMOTED;
    /// A flush in transition only broadcasts.
    TransitionOnlyBroadcasts: C1 in PROMOTED;
    /// A flush in transition only interrupts.
    TransitionOnlyInterrupts: C1 in PROMOTED;
    /// The transition ends although a CPU runs on a slot.
    TransitionEndsEarly: C1 in TOGETHER;
    /// A switching CPU is not waited for.
    SwitchingNotWaitedOut: C1 in PROMOTED;
    /// A switch reads the mode before it joins.
    ModeBeforeJoin: C1 in PROMOTED;
    /// A switch reads the generation before the mode.
    GenerationBeforeMode: C1 in DEMOTED;
    /// Joining is a plain store.
    JoinWithoutBarrier: C1 in PROMOTED;
    /// A flush in demotion only broadcasts.
    DemotionOnlyBroadcasts: C1 in DEMOTED;
    /// The tag is given up although a CPU has it loaded.
    DemotionEndsEarly: C4 in DEMOTED;
    /// The tag is freed before it is invalidated everywhere.
    FreedBeforeInvalidation: C4 in DEMOTED;
    /// The invalidation is not waited for.
    FreedBeforeSync: C4 in DEMOTED;
    /// The mode has no era: an exchange of an earlier demotion succeeds in a later one.
    NoEra: C4 in AGAIN;
}

/// Slots and a tag.
#[derive(Debug, Clone, Copy)]
pub struct Promotion {
    /// CPUs.
    pub cpus: usize,
    /// Flushes of each CPU, at most four together.
    pub flushes: [u8; CPUS],
    /// Promotions and demotions that each CPU may begin.
    pub changes: [u8; CPUS],
    /// Switches and changes of lazy TLB mode that each CPU may begin.
    pub migrates: [u8; CPUS],
    /// The initial mode.
    pub mode: u8,
    /// Whether a flush in demotion does not broadcast.
    pub only_interrupts: bool,
    /// The mutant, if any.
    pub mutant: Option<Mutant>,
}

const PROMOTED: Promotion = Promotion {
    cpus: 2,
    flushes: [2, 0, 0],
    changes: [1, 0, 0],
    migrates: [0, 3, 0],
    mode: PER_CPU,
    only_interrupts: false,
    mutant: None,
};
const SYSTEM_WIDE: Promotion = Promotion {
    changes: [0; CPUS],
    mode: SYSTEM,
    ..PROMOTED
};
const DEMOTED: Promotion = Promotion {
    mode: SYSTEM,
    ..PROMOTED
};
/// Promoted by another CPU than the one that flushes.
const OTHERWISE: Promotion = Promotion {
    flushes: [1, 0, 0],
    changes: [0, 1, 0],
    ..PROMOTED
};
/// Demoted by another CPU than the one that flushes.
const WITHDRAWN: Promotion = Promotion {
    mode: SYSTEM,
    ..OTHERWISE
};
/// Two requesters end one transition.
const TOGETHER: Promotion = Promotion {
    flushes: [1, 1, 0],
    changes: [0; CPUS],
    migrates: [0, 1, 0],
    mode: TRANSITION,
    ..PROMOTED
};
/// To a tag and back.
const ROUND: Promotion = Promotion {
    flushes: [3, 0, 0],
    changes: [2, 0, 0],
    ..PROMOTED
};
/// Two requesters end one demotion, and one of them a second.
const AGAIN: Promotion = Promotion {
    flushes: [3, 1, 0],
    changes: [2, 0, 0],
    migrates: [0; CPUS],
    mode: DEMOTING,
    ..PROMOTED
};

/// The state of a CPU.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Own {
    /// The word that it has read, kept while it serves from a wait.
    word: u8,
    read: u8,
    root: u8,
    state: u8,
    /// Whether A's tag is loaded, not the slot's.
    on_tag: bool,
    /// The generation that the slot records.
    seen: u8,
    /// Pages that may be cached under the slot.
    slot: u8,
    /// Pages that may be cached under A's tag.
    tag: u8,
    /// By issuer: pages under A's tag that a broadcast in progress will remove.
    doomed: [u8; CPUS],
    stragglers: u8,
    flushes: u8,
    changes: u8,
    left: u8,
}

/// Shared state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Shared {
    /// Whether the tag is free.
    tag_free: bool,
    /// Pages whose flush is complete, one bit each.
    complete: u8,
}

type Cpu = program::Cpu<Program, Own>;
type State = program::State<Program, Own, Shared>;

impl Promotion {
    /// The programs, with the operations that mutants move.
    #[rustfmt::skip]
    fn programs(&self, program: Program) -> &'static [Op] {
        use Op::*;
        match program {
            Program::Flush => match self.mutant {
                Some(Mutant::ModeBeforeIncrement) => &[
                    ClearEntry, Glance, Publish, DispatchUnderTag,
                    Dispatch, Increment, ReadMode, ReadGeneration, Bring, PublishLoaded,
                    Broadcast, Sync, Scan(0), Scan(1), Scan(2), Settle, BroadcastTag, SyncTag, FreeTag, Look(0),
                    Look(1), Look(2), Send, Wait, Complete,
                ],
                Some(Mutant::FreedBeforeInvalidation) => &[
                    ClearEntry, Glance, Publish, DispatchUnderTag,
                    Increment, Dispatch, ReadMode, ReadGeneration, Bring, PublishLoaded,
                    Broadcast, Sync, Scan(0), Scan(1), Scan(2), Settle, FreeTag, BroadcastTag, SyncTag, Look(0),
                    Look(1), Look(2), Send, Wait, Complete,
                ],
                Some(Mutant::FreedBeforeSync) => &[
                    ClearEntry, Glance, Publish, DispatchUnderTag,
                    Increment, Dispatch, ReadMode, ReadGeneration, Bring, PublishLoaded,
                    Broadcast, Sync, Scan(0), Scan(1), Scan(2), Settle, BroadcastTag, FreeTag, SyncTag, Look(0),
                    Look(1), Look(2), Send, Wait, Complete,
                ],
                _ => &[
                    ClearEntry, Glance, Publish, DispatchUnderTag,
                    Increment, Dispatch, ReadMode, ReadGeneration, Bring, PublishLoaded,
                    Broadcast, Sync, Scan(0), Scan(1), Scan(2), Settle, BroadcastTag, SyncTag, FreeTag, Look(0),
                    Look(1), Look(2), Send, Wait, Complete,
                ],
            },
            Program::Change => match self.mutant {
                Some(Mutant::DemotionCountedLate) => &[Dispatch, Allocate, Exchange, CountDemotion],
                _ => &[Dispatch, Allocate, CountDemotion, Exchange],
            },
            Program::SwitchIn => match self.mutant {
                Some(Mutant::ModeBeforeJoin) => {
                    &[PublishSwitching, ReadMode, Join, ReadGeneration, Bring, PublishLoaded]
                }
                Some(Mutant::GenerationBeforeMode) => {
                    &[PublishSwitching, Join, ReadGeneration, ReadMode, Bring, PublishLoaded]
                }
                _ => &[PublishSwitching, Join, ReadMode, ReadGeneration, Bring, PublishLoaded],
            },
            Program::SwitchOut => &[PublishSwitching, Join, LoadOther, PublishOther, Depart],
            Program::GoLazy => &[PublishLazy],
            Program::LeaveLazy => &[
                PublishNotLazy, Barrier, ReadMode, ReadGeneration, Bring, PublishLoaded,
            ],
            Program::Serve => &[
                Take, PublishSwitching, LoadOther, PublishOther, Depart, ReadMode, ReadGeneration, Bring,
                PublishLoaded, Acknowledge,
            ],
        }
    }
}
