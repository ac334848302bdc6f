//! (d) Lockless walks and page-table pages: which CPUs may hold a link to a freed table.
//!
//! CPU 0 unlinks a table, determines which CPUs may be walking, frees the table and links another in its place, twice.
//! Other CPUs walk, with interrupts off, and go offline and come back. How walks are found is one of the modes of
//! `Walkers`. What processors cache of links is in another model (`generations`, tables freed).

mod steps;

use crate::memory::CPUS;
use crate::{Mutated, mutants, program};

/// The link: a table's number, 0 for none.
const LINK: usize = 0;
/// How walks of the space register (`Space::walk_mode`).
const POLICY: usize = 1;
/// Requested grace periods (`Engine::grace`).
const GRACE: usize = 2;
/// Whether each CPU has published a walk (`Walking::published`).
const PUBLISHED: usize = 3;
/// The space's walker set (`Space::walkers`), by CPU.
const WALKER: usize = 6;
/// CPUs in a walk from NMI context (`Engine::nmi_walkers`).
const NMI: usize = 9;
/// The last period that each CPU has seen from outside a walk (`Walking::quiescent`).
const QUIESCENT: usize = 12;
/// Whether each CPU is offline.
const OFF: usize = 15;

const PRECISE: u8 = 1;
const CHANGING: u8 = 2;

/// How freed tables are protected from walks (`Walkers`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Every CPU is interrupted.
    InterruptAll,
    /// A store and a full barrier; an exchange is equivalent.
    Precise,
    /// Registered once.
    Sticky,
    /// Periods in which every CPU has been seen outside a walk.
    GracePeriod,
    /// Registered or published, as the space's policy says, which may change.
    Adaptive,
}

/// One operation; other CPUs may run between operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Op {
    /// The kernel clears the link.
    Unlink,
    /// `Engine::dispatch`, or `Engine::retire_tables`: a full barrier.
    Barrier,
    /// `Engine::walkers_of`: the policy.
    ReadPolicy,
    /// `Engine::walkers_of`: may this CPU be walking?
    Find(u8),
    /// `Engine::request`: queues at every target.
    Send,
    /// `Engine::request`: a target that is offline is not waited for.
    CheckOff(u8),
    /// `Engine::wait_reporting`.
    Wait,
    /// `Engine::flush_tables_later`: a new period; a full barrier.
    NewPeriod,
    /// `Engine::graces_over`: has this CPU been seen?
    Seen(u8),
    /// The kernel frees the table.
    Free,
    /// The kernel links another table.
    Relink,
    /// `Engine::change_walks`: marks the space as changing; a full barrier.
    BeginChange,
    /// `Engine::end_all_walks`: interrupts every online CPU.
    AskAll,
    /// `Engine::change_walks`: the new mode.
    EndChange,
    /// `Engine::walk_registered`: a slot that names the space is enough.
    CheckSlot,
    /// `Engine::walk_registered`: the policy, if there is no registration.
    WalkPolicy,
    /// `Engine::register_walker`: a full barrier.
    Register,
    /// `Engine::walk_published`.
    Publish,
    /// `Engine::walk_published`: between publishing and reading.
    WalkBarrier,
    /// `Engine::walk_from_nmi`: a full barrier.
    EnterNmi,
    /// The walk reads the link.
    ReadLink,
    /// `Walk::drop`: the walk is over.
    EndWalk,
    /// `Engine::quiescent_here`.
    ReadPeriod,
    /// `Engine::quiescent_here`: seen outside a walk.
    PublishPeriod,
    /// `Queue::take`; a full barrier.
    Take,
    /// `Engine::forget_walks`: the slot.
    ForgetSlot,
    /// `Engine::forget_walks`: the bit; a full barrier.
    ForgetBit,
    /// `Request::acknowledge`.
    Acknowledge,
    /// `Engine::cpu_offline`.
    PublishOff,
    /// `Engine::cpu_offline`: a full barrier, before it answers pending requests.
    OffBarrier,
    /// `Engine::cpu_online`: removes its registrations.
    ForgetAll,
    /// `Engine::cpu_online`.
    PublishOn,
    /// `Engine::cpu_online`: a full barrier.
    OnBarrier,
}

/// The programs of a CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Program {
    /// Unlinks a table, and frees it.
    Free,
    /// Changes how walks register.
    Change,
    /// Walks.
    Walk,
    /// Walks, from NMI context.
    NmiWalk,
    /// Reports that it is in no walk.
    Quiescent,
    /// Goes offline.
    GoOff,
    /// Comes online.
    ComeOn,
    /// Answers a request.
    Serve,
}

mutants! {
    Walks;
    /// A walk publishes itself without a barrier (regression 9).
    PublishedWithoutBarrier: C3 in PRECISELY;
    /// A walk registers by a plain store.
    RegisteredWithoutBarrier: C3 in STICKY;
    /// The freeing CPU passes no barrier (regression 9).
    UnlinkedWithoutBarrier: C3 in PRECISELY;
    /// The freeing CPU looks for walkers before it unlinks.
    FoundBeforeUnlink: C3 in STICKY;
    /// No CPU is interrupted (regressions 7 and 36).
    NoWalkerInterrupted: C3 in STICKY;
    /// The freeing CPU gives up its wait (regression 24, C7).
    GivesUp: C3 in ALL;
    /// A walk leaves interrupts on.
    Interruptible: C3 in STICKY;
    /// The handler clears the bit and keeps the slot.
    SlotKept: C3 in STICKY;
    /// A walk in NMI context does not join its set.
    NmiNotEntered: C3 in STICKY;
    /// A change of policy interrupts no CPU.
    ChangedWithoutRound: C3 in ADAPTIVE;
    /// A freeing CPU honours only the old mode, until the change is complete.
    ChangingIgnored: C3 in CHANGED_MEANWHILE;
    /// A CPU that comes online keeps its registrations.
    OnlineKeepsRegistration: C3 in ADAPTIVE;
    /// Going offline passes no barrier before it answers pending requests.
    OffWithoutBarrier: C5 in LEAVES;
    /// Going offline does not answer pending requests.
    OffAnswersNothing: C5 in LEAVES;
    /// An offline CPU is waited for (regression 44).
    OffWaitedFor: C5 in LEAVES;
    /// A period begins before the unlinking is visible.
    PeriodWithoutBarrier: C3 in GRACE_PERIODS;
    /// A period counts as over one period too early.
    PeriodTooShort: C3 in GRACE_PERIODS;
    /// A CPU is seen quiescent in the middle of a walk.
    QuiescentInWalk: C3 in GRACE_PERIODS;
}

/// Walks and frees.
#[derive(Debug, Clone, Copy)]
pub struct Walks {
    /// CPUs.
    pub cpus: usize,
    /// How walks are found.
    pub mode: Mode,
    /// Tables that CPU 0 frees.
    pub frees: u8,
    /// Changes of policy, and the CPU that may begin them: CPU 0, or a CPU that does nothing else.
    pub changes: u8,
    /// See `changes`.
    pub changer: usize,
    /// Walks, one of them from NMI context, and reports of quiescence, of each other CPU.
    pub walks: u8,
    /// How often each other CPU may go offline.
    pub offs: u8,
    /// Whether it comes back.
    pub returns: bool,
    /// The mutant, if any.
    pub mutant: Option<Mutant>,
}

const PRECISELY: Walks = Walks {
    cpus: 3,
    mode: Mode::Precise,
    frees: 2,
    changes: 0,
    changer: 0,
    walks: 2,
    offs: 0,
    returns: true,
    mutant: None,
};
const ALL: Walks = Walks {
    mode: Mode::InterruptAll,
    ..PRECISELY
};
const STICKY: Walks = Walks {
    mode: Mode::Sticky,
    ..PRECISELY
};
const COMES_AND_GOES: Walks = Walks {
    cpus: 2,
    offs: 1,
    ..STICKY
};
const LEAVES: Walks = Walks {
    returns: false,
    ..COMES_AND_GOES
};
const GRACE_PERIODS: Walks = Walks {
    cpus: 2,
    mode: Mode::GracePeriod,
    walks: 4,
    ..PRECISELY
};
const ADAPTIVE: Walks = Walks {
    cpus: 2,
    mode: Mode::Adaptive,
    changes: 1,
    walks: 3,
    offs: 1,
    ..PRECISELY
};

const CHANGED_MEANWHILE: Walks = Walks {
    cpus: 3,
    changer: 2,
    walks: 2,
    offs: 0,
    ..ADAPTIVE
};

/// The state of a CPU.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Own {
    /// The table to which it holds a link.
    holds: u8,
    /// Whether a slot names the space (`Walking::mark_registered`).
    slot: bool,
    off: bool,
    policy: u8,
    period: u8,
    frees: u8,
    changes: u8,
    walks: u8,
    nmi: u8,
    offs: u8,
}

/// Freed tables, one bit each.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Shared {
    freed: u8,
}

type Cpu = program::Cpu<Program, Own>;
type State = program::State<Program, Own, Shared>;

impl Walks {
    /// The programs, with the operations that mutants move.
    #[rustfmt::skip]
    fn programs(&self, program: Program) -> &'static [Op] {
        use Op::*;
        match program {
            Program::Free if self.mode == Mode::GracePeriod => {
                &[Unlink, NewPeriod, Seen(0), Seen(1), Seen(2), Free, Relink]
            }
            Program::Free => match self.mutant {
                Some(Mutant::NoWalkerInterrupted) => &[Unlink, Barrier, Free, Relink],
                Some(Mutant::GivesUp) => {
                    &[Unlink, Barrier, ReadPolicy, Find(0), Find(1), Find(2), Send, Free, Relink]
                }
                Some(Mutant::UnlinkedWithoutBarrier) => &[
                    Unlink, ReadPolicy, Find(0), Find(1), Find(2), Send, CheckOff(0), CheckOff(1), CheckOff(2), Wait,
                    Free, Relink,
                ],
                Some(Mutant::FoundBeforeUnlink) => &[
                    ReadPolicy, Find(0), Find(1), Find(2), Unlink, Barrier, Send, CheckOff(0), CheckOff(1),
                    CheckOff(2), Wait, Free, Relink,
                ],
                _ => &[
                    Unlink, Barrier, ReadPolicy, Find(0), Find(1), Find(2), Send, CheckOff(0), CheckOff(1),
                    CheckOff(2), Wait, Free, Relink,
                ],
            },
            Program::Change => match self.mutant {
                Some(Mutant::ChangedWithoutRound) => &[BeginChange, EndChange],
                _ => &[BeginChange, AskAll, CheckOff(0), CheckOff(1), CheckOff(2), Wait, EndChange],
            },
            Program::Walk => match self.mode {
                Mode::InterruptAll | Mode::GracePeriod => &[ReadLink, EndWalk],
                Mode::Precise if self.is(Mutant::PublishedWithoutBarrier) => &[Publish, ReadLink, EndWalk],
                Mode::Precise => &[Publish, WalkBarrier, ReadLink, EndWalk],
                Mode::Sticky => &[CheckSlot, Register, ReadLink, EndWalk],
                Mode::Adaptive => &[CheckSlot, WalkPolicy, Register, Publish, WalkBarrier, ReadLink, EndWalk],
            },
            Program::NmiWalk => &[EnterNmi, ReadLink, EndWalk],
            Program::Quiescent => &[ReadPeriod, PublishPeriod],
            Program::GoOff => match self.mutant {
                Some(Mutant::OffWithoutBarrier) => &[PublishOff, Take, ForgetSlot, ForgetBit, Acknowledge],
                Some(Mutant::OffAnswersNothing) => &[PublishOff, OffBarrier],
                _ => &[PublishOff, OffBarrier, Take, ForgetSlot, ForgetBit, Acknowledge],
            },
            Program::ComeOn if self.is(Mutant::OnlineKeepsRegistration) => &[PublishOn, OnBarrier],
            Program::ComeOn => &[ForgetAll, PublishOn, OnBarrier],
            Program::Serve => &[Take, ForgetSlot, ForgetBit, Acknowledge],
        }
    }
}
