//! Effects of the operations, and the invariants.

use super::*;
use crate::memory::Memory;
use crate::program::Next;
use crate::{Claim, Protocol};

impl RollOver {
    /// Tags, one bit each: one more than CPUs.
    fn tags(&self) -> u8 {
        ((1 << (self.cpus + 1)) - 1) << 1
    }

    /// `TagPool::allocate`: the lowest free tag.
    fn allocate(&self, used: &mut u8) -> Option<u8> {
        let free = self.tags() & !*used;
        (free != 0).then(|| {
            *used |= free & free.wrapping_neg();
            free.trailing_zeros() as u8
        })
    }

    /// Still valid, reserved, or free; otherwise a roll-over follows.
    fn choose(&self, state: &mut State, me: usize) -> Next<Op> {
        let State { memory, cpus, shared } = state;
        let own = &mut cpus[me];
        let epoch = memory.load(me, EPOCH);
        let old = memory.load(me, MODE + usize::from(own.goal));
        own.word = old;
        if old / ONE_EPOCH == epoch {
            return Next::To(Op::FlushIfMarked);
        }
        let renewed = (epoch * ONE_EPOCH) | (old & TAG);
        let most = if self.is(Mutant::RenewedOnce) { 1 } else { CPUS };
        let mut reserved = false;
        for other in cpus
            .iter_mut()
            .filter(|other| old != 0 && other.reserved == old)
            .take(most)
        {
            (other.reserved, reserved) = (renewed, true);
        }
        let word = match reserved {
            true => Some(renewed),
            false => self.allocate(&mut shared.used).map(|tag| (epoch * ONE_EPOCH) | tag),
        };
        let Some(word) = word else { return Next::Following };
        cpus[me].word = word;
        Next::To(Op::PublishMode)
    }

    /// Reserves the tag that CPU `other` runs under, and marks that CPU.
    fn roll_cpu(&self, state: &mut State, me: usize, other: usize) {
        if other >= self.cpus {
            return;
        }
        let mut kept = state.memory.update(me, ACTIVE + other, |_| 0);
        let of = &mut state.cpus[other];
        if kept == 0 && !self.is(Mutant::ReservedForgotten) {
            kept = of.reserved;
        }
        if self.is(Mutant::LazyKeepsOldTag) && of.lazy {
            kept = 0;
        }
        if kept != 0 && !self.is(Mutant::ActiveNotReserved) {
            state.shared.used |= 1 << (kept & TAG);
        }
        of.reserved = kept;
        of.marked = other == me || !self.is(Mutant::OthersNotMarked);
    }
}

impl Protocol for RollOver {
    const NAME: &str = "rollover";

    type Program = Program;
    type Op = Op;
    type Own = Own;
    type Shared = Shared;
    const PROGRAMS: &[Program] = &[
        Program::Switch(0),
        Program::Switch(1),
        Program::Switch(2),
        Program::Switch(3),
        Program::Switch(4),
        Program::GoLazy,
        Program::LeaveLazy,
        Program::Flush,
    ];
    const SERVE: Option<Program> = None;

    const SOUND: &[(&str, Self)] = &[
        ("2 CPUs, 3 tags, 4 spaces", TWO),
        ("the same, one CPU wanders more", MORE),
        ("the same, tables freed", TABLES),
        ("both in one space, rolled over twice", TWICE),
        ("the same, local flushes first", ALONE),
        ("both in one space, tables freed", RENEWED),
        ("both in one space, local flushes first", DEPARTS),
        // The exchange, or the lock, that follows the join is the barrier that rule 3 requires.
        (
            "local flushes first, a plain join",
            RollOver {
                plain_join: true,
                ..ALONE
            },
        ),
    ];

    /// Each CPU runs a space, one more space has the last tag, and one has none.
    fn start(&self) -> State {
        let mut state = State {
            memory: Memory::default(),
            cpus: [Cpu::default(); CPUS],
            shared: Shared {
                used: self.tags(),
                short: false,
                complete: false,
            },
        };
        state.memory.set(EPOCH, 1);
        state.memory.set(ENTRY, 1);
        for space in 0..=self.cpus {
            state.memory.set(MODE + space, ONE_EPOCH | (space as u8 + 1));
        }
        for cpu in 0..self.cpus {
            let own = &mut state.cpus[cpu];
            let space = if self.together { 0 } else { cpu };
            (own.root, own.tag) = (space as u8 + 1, space as u8 + 1);
            own.tlb[space + 1] = 1 << space;
            (own.left, own.flushes) = (self.migrates[cpu], u8::from(cpu == 0));
            state.memory.set(ACTIVE + cpu, ONE_EPOCH | own.tag);
            state.memory.set(MEMBER + cpu, u8::from(space == 0));
        }
        state
    }

    fn cpus(&self) -> usize {
        self.cpus
    }

    fn ops(&self, program: Program) -> &'static [Op] {
        self.programs(program)
    }

    fn may_begin(&self, state: &State, cpu: usize, program: Program) -> bool {
        let own = &state.cpus[cpu];
        own.at.is_none()
            && match program {
                Program::Flush => own.flushes > 0,
                _ if own.left == 0 => false,
                // There is one more space than tags, and one more tag than CPUs.
                Program::Switch(space) => usize::from(space) < self.cpus + 2 && space + 1 != own.root,
                Program::GoLazy => !own.lazy,
                Program::LeaveLazy => own.lazy,
            }
    }

    fn begin(&self, cpu: &mut Cpu, program: Program) {
        match program {
            Program::Flush => cpu.flushes -= 1,
            _ => cpu.left -= 1,
        }
        match program {
            Program::Switch(space) => cpu.goal = space,
            Program::GoLazy => cpu.lazy = true,
            Program::LeaveLazy if self.is(Mutant::LazyKeepsOldTag) => cpu.lazy = false,
            Program::LeaveLazy => cpu.goal = cpu.root - 1,
            Program::Flush => {}
        }
    }

    fn carry_out(&self, state: &mut State, cpu: usize, _: Program, op: Op) -> Next<Op> {
        let me = cpu;
        let State { memory, cpus, shared } = state;
        let own = &mut cpus[me];
        let goal = MODE + usize::from(own.goal);
        match op {
            Op::Join if own.goal != 0 => memory.barrier(me),
            Op::Join => memory.enter(me, MEMBER + me, self.plain_join),
            Op::LetGo => {
                if self.is(Mutant::LeavesSet) && own.root == 1 {
                    memory.update(me, MEMBER + me, |_| 0);
                }
                (own.root, own.tag) = (0, 0);
            }
            Op::ReadMode => own.word = memory.load(me, goal),
            Op::ReadEpoch => {
                let valid = own.word / ONE_EPOCH == memory.load(me, EPOCH);
                if own.word == 0 || !valid && !self.is(Mutant::EpochNotCompared) {
                    return Next::To(Op::Lock);
                }
            }
            Op::ReadActive => {
                own.active = memory.load(me, ACTIVE + me);
                if own.active == 0 && !self.is(Mutant::EpochNotCompared) {
                    return Next::To(Op::Lock);
                }
            }
            Op::Exchange => {
                if self.is(Mutant::FastPathStores) {
                    memory.store(me, ACTIVE + me, own.word);
                    return Next::To(Op::LoadRoot);
                }
                let (expected, word) = (own.active, own.word);
                let found = memory.update(me, ACTIVE + me, |old| if old == expected { word } else { old });
                return Next::To(if found == expected { Op::LoadRoot } else { Op::Lock });
            }
            Op::Lock => {
                memory.update(me, LOCK, |_| 1);
            }
            Op::Choose => return self.choose(state, me),
            Op::RollEpoch => {
                let epoch = memory.load(me, EPOCH);
                memory.release(me, EPOCH, epoch + 1);
                shared.used = 0;
            }
            Op::RollCpu(other) => self.roll_cpu(state, me, usize::from(other)),
            Op::ChooseAgain => {
                let epoch = memory.load(me, EPOCH);
                // Tags outnumber the CPUs, so there is one.
                let tag = self.allocate(&mut shared.used);
                shared.short |= tag.is_none();
                cpus[me].word = (epoch * ONE_EPOCH) | tag.unwrap_or_default();
            }
            Op::PublishMode if self.is(Mutant::TagPublishedLate) => memory.store(me, goal, own.word),
            Op::PublishMode => {
                let word = own.word;
                memory.update(me, goal, |_| word);
            }
            Op::FlushIfMarked => {
                if !self.is(Mutant::TagPublishedLate) {
                    memory.barrier(me);
                }
                if std::mem::take(&mut own.marked) && !self.is(Mutant::MarkedNotFlushed) {
                    own.tlb = [0; 5];
                }
            }
            Op::StoreActive => memory.store(me, ACTIVE + me, own.word),
            Op::Unlock => memory.release(me, LOCK, 0),
            Op::LoadRoot => (own.root, own.tag) = (own.goal + 1, own.word & TAG),
            Op::ClearEntry => memory.store(me, ENTRY, 0),
            Op::Increment => {
                if !self.is(Mutant::IncrementWithoutBarrier) {
                    memory.barrier(me);
                }
            }
            Op::ReadTag => own.word = memory.load(me, MODE),
            Op::LookAlone => {
                let others = (0..CPUS).any(|other| other != me && memory.load(me, MEMBER + other) != 0);
                own.active = u8::from(others);
            }
            Op::FlushHere if own.active == 0 => {
                let tag = usize::from(own.word & TAG);
                own.tlb[tag] &= !1;
                return Next::To(Op::Complete);
            }
            // The local flush alone would not be enough.
            Op::FlushHere => {}
            Op::Broadcast => {
                let tag = usize::from(own.word & TAG);
                cpus.iter_mut().for_each(|other| other.tlb[tag] &= !1);
            }
            Op::Complete => shared.complete = true,
        }
        Next::Following
    }

    fn waits(&self, state: &State, cpu: usize, op: Op) -> bool {
        op == Op::Lock && state.memory.load(cpu, LOCK) != 0 && !self.is(Mutant::NoLock)
    }

    fn is_open(&self, _: &Cpu) -> bool {
        false
    }

    fn ended(&self, cpu: &mut Cpu, program: Program) {
        (cpu.word, cpu.active, cpu.goal) = (0, 0, 0);
        cpu.lazy &= program == Program::Flush;
    }

    fn fill(&self, state: &mut State) {
        let valid = state.memory.visible(ENTRY);
        for own in state.cpus.iter_mut().filter(|own| own.root != 0) {
            let (root, tag) = (own.root, usize::from(own.tag));
            own.tlb[tag] |= if root == 1 { valid } else { 1 << (root - 1) };
        }
    }

    fn is_over(&self, state: &State) -> bool {
        state.cpus.iter().all(|own| own.at.is_none() && own.flushes == 0)
    }

    fn broken(&self, state: &State) -> Option<Claim> {
        if state.shared.short {
            return Some(Claim::C4);
        }
        for own in state.cpus[..self.cpus].iter().filter(|own| own.root != 0) {
            let cached = own.tlb[usize::from(own.tag)];
            if cached & !(1 << (own.root - 1)) != 0 {
                return Some(Claim::C4);
            }
            let in_user = !own.lazy && own.at.is_none_or(|at| at.program == Program::Flush);
            if state.shared.complete && own.root == 1 && cached & 1 != 0 {
                // A processor walks any loaded root; a program uses only what it may.
                match self.tables {
                    true => return Some(Claim::C3),
                    false if in_user => return Some(Claim::C1),
                    false => {}
                }
            }
        }
        None
    }
}
