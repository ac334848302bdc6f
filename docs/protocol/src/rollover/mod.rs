//! (b) System-wide tags with roll-over: the slow and the fast path of a switch, reserved tags, local flushes, lazy
//! CPUs, and a flush by broadcast or on one CPU.
//!
//! There is one more space than tags, and one more tag than CPUs. Every CPU switches between spaces, in any order; CPU
//! 0 withdraws the page of space 0 meanwhile. A CPU's cache holds, by tag, the spaces of which it may have entries.

mod steps;

use crate::memory::CPUS;
use crate::{Mutated, mutants, program};

/// The epoch (`RollOver::epoch`).
const EPOCH: usize = 0;
/// `RollOver::lock`.
const LOCK: usize = 1;
/// The entry of space 0's page: 1 while valid.
const ENTRY: usize = 2;
/// The CPU set of space 0, by CPU.
const MEMBER: usize = 3;
/// The tag that each CPU runs under (`Running::active`).
const ACTIVE: usize = 6;
/// Each space's epoch and tag (`Space::mode`).
const MODE: usize = 9;

const TAG: u8 = 7;
const ONE_EPOCH: u8 = 8;

/// One operation; other CPUs may run between operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Op {
    /// `Engine::switch_to`, step 2: a full barrier.
    Join,
    /// `Engine::load`: loads the kernel's root, before the next tag is chosen.
    LetGo,
    /// `Engine::rolled_tag`: the space's tag.
    ReadMode,
    /// `Engine::rolled_tag`: is it in the present epoch?
    ReadEpoch,
    /// `Engine::rolled_tag`: has a roll-over cleared the tag of this CPU?
    ReadActive,
    /// `Engine::rolled_tag`: the exchange of the fast path, a full barrier.
    Exchange,
    /// `Engine::rolled_tag_slowly`.
    Lock,
    /// `Engine::rolled_tag_slowly`, `Engine::new_tag`: still valid, reserved, free, or none left.
    Choose,
    /// `Engine::roll_over`: the next epoch; all tags free.
    RollEpoch,
    /// `Engine::roll_over`: reserves the tag that this CPU runs under, and marks the CPU.
    RollCpu(u8),
    /// `Engine::new_tag`, after the roll-over.
    ChooseAgain,
    /// `Engine::rolled_tag_slowly`: the space's new tag; a full barrier.
    PublishMode,
    /// `Engine::rolled_tag_slowly`: flushes everything on this CPU if marked; a full barrier.
    FlushIfMarked,
    /// `Engine::rolled_tag_slowly`.
    StoreActive,
    /// `Engine::rolled_tag_slowly`.
    Unlock,
    /// `Engine::load`, `Engine::leave_lazy_rolled`.
    LoadRoot,
    /// The kernel clears the entry.
    ClearEntry,
    /// `Engine::dispatch`: the increment, a full barrier.
    Increment,
    /// `Engine::dispatch`: the space's tag, for the flush.
    ReadTag,
    /// `Engine::flush_alone`: was another CPU ever in the set?
    LookAlone,
    /// `Engine::flush_tag_here`, if none was: then the flush is complete.
    FlushHere,
    /// `Engine::broadcast_and_sync`.
    Broadcast,
    /// `Token::wait` returns `Flushed`.
    Complete,
}

/// The programs of a CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Program {
    /// Switches to this space.
    Switch(u8),
    /// Enters lazy TLB mode, at once.
    GoLazy,
    /// Leaves lazy TLB mode.
    LeaveLazy,
    /// Withdraws the page of space 0, and flushes.
    Flush,
}

mutants! {
    RollOver;
    /// The fast path uses a store instead of an exchange.
    FastPathStores: C4 in TWO;
    /// The fast path does not compare epochs.
    EpochNotCompared: C4 in TWO;
    /// A roll-over does not reserve the tag of a CPU that runs on it.
    ActiveNotReserved: C4 in TWO;
    /// A second roll-over loses the reservations of the first.
    ReservedForgotten: C1 in TWICE;
    /// A tag that is reserved for two CPUs is renewed for only one.
    RenewedOnce: C1 in TWICE;
    /// A roll-over marks no other CPU for its local flush.
    OthersNotMarked: C4 in TWO;
    /// A marked CPU does not flush (regression 18).
    MarkedNotFlushed: C4 in TWO;
    /// The root stays loaded while the next tag is chosen.
    NotLetGo: C3 in RENEWED;
    /// A lazy CPU's tag is not reserved, and the CPU continues with it (regression 38).
    LazyKeepsOldTag: C1 in TWO;
    /// The lock is not held.
    NoLock: C4 in TWO;
    /// No barrier between publishing a new tag and the root load.
    TagPublishedLate: C1 in TWO;
    /// A flush reads the tag before it clears the entry (regression 46).
    TagReadBeforeClear: C1 in TWO;
    /// The increment of a flush is no barrier for the entry write before it.
    IncrementWithoutBarrier: C1 in TWO;
    /// Departed CPUs leave the set, with entries under the tag.
    LeavesSet: C1 in DEPARTS;
    /// The set is read before the increment.
    LookBeforeIncrement: C1 in ALONE;
    /// The set is joined after the root load (regression 31).
    RootBeforeJoin: C1 in ALONE;
}

/// Tags that roll over.
#[derive(Debug, Clone, Copy)]
pub struct RollOver {
    /// Number of CPUs. There is one tag more.
    pub cpus: usize,
    /// Programs that each CPU may begin, not counting the flush of CPU 0.
    pub migrates: [u8; CPUS],
    /// Whether all CPUs begin in space 0, not each in its own.
    pub together: bool,
    /// Whether the link to a table is withdrawn, and the table freed.
    pub tables: bool,
    /// Whether a flush stays on its CPU if no other was ever in the set (`flush/rolled.rs`).
    pub local_first: bool,
    /// Whether joining is a plain store.
    pub plain_join: bool,
    /// The mutant, if any.
    pub mutant: Option<Mutant>,
}

const TWO: RollOver = RollOver {
    cpus: 2,
    migrates: [2, 2, 0],
    together: false,
    tables: false,
    local_first: false,
    plain_join: false,
    mutant: None,
};
const MORE: RollOver = RollOver {
    migrates: [4, 1, 0],
    ..TWO
};
/// One CPU rolls over twice while another stays in the space.
const TWICE: RollOver = RollOver {
    migrates: [5, 0, 0],
    together: true,
    ..TWO
};
const TABLES: RollOver = RollOver { tables: true, ..TWO };
/// One CPU moves the space to another tag while the other leaves it.
const RENEWED: RollOver = RollOver {
    migrates: [3, 1, 0],
    together: true,
    ..TABLES
};
/// A CPU leaves the space and returns.
const DEPARTS: RollOver = RollOver {
    migrates: [0, 2, 0],
    together: true,
    ..ALONE
};
const ALONE: RollOver = RollOver {
    local_first: true,
    ..TWO
};

/// The state of a CPU.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Own {
    /// The space that is switched to.
    goal: u8,
    /// The space whose root is loaded, from 1; 0 for the kernel's.
    root: u8,
    tag: u8,
    lazy: bool,
    /// By tag: spaces whose entries may be cached, one bit each.
    tlb: [u8; 5],
    /// The space's mode word that was read or created.
    word: u8,
    /// The value read from `active`.
    active: u8,
    /// `Running::reserved`, under the lock.
    reserved: u8,
    /// `Running::flush_pending`, under the lock.
    marked: bool,
    left: u8,
    flushes: u8,
}

/// Shared state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Shared {
    /// Tags in use, under the lock.
    used: u8,
    /// Whether a roll-over left no tag.
    short: bool,
    complete: bool,
}

type Cpu = program::Cpu<Program, Own>;
type State = program::State<Program, Own, Shared>;

impl RollOver {
    /// The programs, with the operations that mutants move.
    #[rustfmt::skip]
    fn programs(&self, program: Program) -> &'static [Op] {
        use Op::*;
        match program {
            Program::GoLazy => &[],
            Program::Switch(_) => match self.mutant {
                Some(Mutant::NotLetGo) => &[
                    Join, ReadMode, ReadEpoch, ReadActive, Exchange, Lock, Choose, RollEpoch, RollCpu(0), RollCpu(1),
                    RollCpu(2), ChooseAgain, PublishMode, FlushIfMarked, StoreActive, Unlock, LoadRoot,
                ],
                Some(Mutant::RootBeforeJoin) => &[
                    LetGo, ReadMode, ReadEpoch, ReadActive, Exchange, Lock, Choose, RollEpoch, RollCpu(0), RollCpu(1),
                    RollCpu(2), ChooseAgain, PublishMode, FlushIfMarked, StoreActive, Unlock, LoadRoot, Join,
                ],
                _ => &[
                    Join, LetGo, ReadMode, ReadEpoch, ReadActive, Exchange, Lock, Choose, RollEpoch, RollCpu(0),
                    RollCpu(1), RollCpu(2), ChooseAgain, PublishMode, FlushIfMarked, StoreActive, Unlock, LoadRoot,
                ],
            },
            Program::LeaveLazy if self.is(Mutant::LazyKeepsOldTag) => &[],
            Program::LeaveLazy => &[
                ReadMode, ReadEpoch, ReadActive, Exchange, Lock, Choose, RollEpoch, RollCpu(0), RollCpu(1), RollCpu(2),
                ChooseAgain, PublishMode, FlushIfMarked, StoreActive, Unlock, LoadRoot,
            ],
            Program::Flush if self.local_first => match self.mutant {
                Some(Mutant::LookBeforeIncrement) => &[
                    ClearEntry, LookAlone, Increment, ReadTag, FlushHere, Broadcast, Complete,
                ],
                _ => &[
                    ClearEntry, Increment, ReadTag, LookAlone, FlushHere, Broadcast, Complete,
                ],
            },
            Program::Flush => match self.mutant {
                Some(Mutant::TagReadBeforeClear) => &[ReadTag, ClearEntry, Increment, Broadcast, Complete],
                _ => &[ClearEntry, Increment, ReadTag, Broadcast, Complete],
            },
        }
    }
}
