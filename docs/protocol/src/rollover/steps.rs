//! What the operations do, and what must hold.

use super::*;
use crate::program::{Next, behind, tell};
use crate::{Claim, Protocol, Step};

impl RollOver {
    /// Tags, bit by bit: one more than CPUs.
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

    /// Carries out an operation; says where the program goes on.
    fn carry_out(&self, state: &mut State, cpu: usize, op: Op) -> Next<Op> {
        let me = cpu;
        let State { memory, cpus, used, .. } = state;
        let own = &mut cpus[me];
        let goal = MODE + usize::from(own.goal);
        match op {
            Op::Join if own.goal != 0 => memory.barrier(me),
            Op::Join if self.plain_join => memory.store(me, MEMBER + me, 1),
            Op::Join => {
                memory.update(me, MEMBER + me, |_| 1);
            }
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
            Op::Choose => {
                let epoch = memory.load(me, EPOCH);
                let old = memory.load(me, goal);
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
                    false => self.allocate(used).map(|tag| (epoch * ONE_EPOCH) | tag),
                };
                let Some(word) = word else { return Next::Following };
                cpus[me].word = word;
                return Next::To(Op::PublishMode);
            }
            Op::RollEpoch => {
                let epoch = memory.load(me, EPOCH);
                memory.release(me, EPOCH, epoch + 1);
                *used = 0;
            }
            Op::RollCpu(other) => {
                let other = usize::from(other);
                if other >= self.cpus {
                    return Next::Following;
                }
                let mut kept = memory.update(me, ACTIVE + other, |_| 0);
                let of = &mut cpus[other];
                if kept == 0 && !self.is(Mutant::ReservedForgotten) {
                    kept = of.reserved;
                }
                if self.is(Mutant::LazyKeepsOldTag) && of.lazy {
                    kept = 0;
                }
                if kept != 0 && !self.is(Mutant::ActiveNotReserved) {
                    *used |= 1 << (kept & TAG);
                }
                of.reserved = kept;
                of.marked = other == me || !self.is(Mutant::OthersNotMarked);
            }
            Op::ChooseAgain => {
                let epoch = memory.load(me, EPOCH);
                // Tags outnumber the CPUs, so there is one.
                let tag = self.allocate(used);
                state.short |= tag.is_none();
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
            Op::LookAlone | Op::LookAgain => {
                let others = (0..CPUS).any(|other| other != me && memory.load(me, MEMBER + other) != 0);
                let again = op == Op::LookAgain && !self.look_once;
                if op == Op::LookAlone && others {
                    // What is done here alone would not suffice.
                    own.active = 1;
                } else if op == Op::LookAgain && own.active == 0 && !(again && others) {
                    return Next::To(Op::Complete);
                }
            }
            Op::FlushHere => {
                own.tlb[usize::from(own.word & TAG)] &= !1;
                memory.barrier(me);
                if own.active == 0 && self.is(Mutant::LookBeforeIncrement) {
                    return Next::To(Op::Complete);
                }
            }
            Op::Broadcast => {
                let tag = usize::from(own.word & TAG);
                cpus.iter_mut().for_each(|other| other.tlb[tag] &= !1);
            }
            Op::Complete => state.complete = true,
        }
        Next::Following
    }
}

impl Protocol for RollOver {
    type State = State;
    type Mutant = Mutant;
    const NAME: &str = "rollover";
    const MUTANTS: &[(Mutant, Self, Claim)] = MUTANTS;

    const SOUND: &[(&str, Self)] = &[
        ("2 CPUs, 3 tags, 4 spaces", TWO),
        ("the same, one CPU wanders more", MORE),
        ("the same, tables freed", TABLES),
        ("both in one space, rolled over twice", TWICE),
        ("the same, local flushes first", ALONE),
        ("both in one space, tables freed", RENEWED),
        ("both in one space, local flushes first", DEPARTS),
        // The exchange, or the lock, that follows the join is the barrier that rule 3 asks for.
        (
            "local flushes first, a plain join",
            RollOver {
                plain_join: true,
                ..ALONE
            },
        ),
        // The first look alone is enough (rule 3); the second is more than needed.
        (
            "the same, looking once",
            RollOver {
                look_once: true,
                ..ALONE
            },
        ),
    ];

    fn with(self, mutant: Mutant) -> Self {
        RollOver {
            mutant: Some(mutant),
            ..self
        }
    }

    /// Each CPU runs a space, one more space has the last tag, and one has none.
    fn start(&self) -> State {
        let mut state = State {
            memory: Memory::default(),
            cpus: [Cpu::default(); CPUS],
            used: self.tags(),
            short: false,
            complete: false,
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
            (own.left, own.flushes) = (self.wanders[cpu], u8::from(cpu == 0));
            state.memory.set(ACTIVE + cpu, ONE_EPOCH | own.tag);
            state.memory.set(MEMBER + cpu, u8::from(space == 0));
        }
        state
    }

    fn steps(&self, state: &State, steps: &mut Vec<Step>) {
        for (cpu, own) in state.cpus.iter().enumerate().take(self.cpus) {
            let id = cpu as u8;
            match own.at {
                Some(at) => {
                    let waits = self.ops(at.program)[usize::from(at.op)] == Op::Lock;
                    if !waits || state.memory.load(cpu, LOCK) == 0 || self.is(Mutant::NoLock) {
                        steps.push(Step::Run(id));
                    }
                }
                None => {
                    let spaces = 0..self.cpus as u8 + 2;
                    let lazy = if own.lazy { LEAVE_LAZY } else { GO_LAZY };
                    if own.left > 0 {
                        let others = spaces.filter(|&space| space + 1 != own.root);
                        steps.extend(others.chain([lazy]).map(|number| Step::Begin(id, number)));
                    }
                    if own.flushes > 0 {
                        steps.push(Step::Begin(id, FLUSH));
                    }
                }
            }
            steps.extend(state.memory.drainable(cpu).map(|index| Step::Drain(id, index as u8)));
        }
    }

    fn take(&self, state: &mut State, step: Step) {
        match step {
            Step::Begin(cpu, number) => {
                let own = &mut state.cpus[usize::from(cpu)];
                *(if number == FLUSH {
                    &mut own.flushes
                } else {
                    &mut own.left
                }) -= 1;
                match number {
                    GO_LAZY => own.lazy = true,
                    LEAVE_LAZY if self.is(Mutant::LazyKeepsOldTag) => own.lazy = false,
                    LEAVE_LAZY => (own.at, own.goal) = (Some(Place::first(Program::LeaveLazy)), own.root - 1),
                    FLUSH => own.at = Some(Place::first(Program::Flush)),
                    space => (own.at, own.goal) = (Some(Place::first(Program::Switch)), space),
                }
            }
            Step::Drain(cpu, index) => state.memory.drain(usize::from(cpu), usize::from(index)),
            Step::Run(cpu) | Step::Interrupt(cpu) => {
                let cpu = usize::from(cpu);
                let place = state.cpus[cpu].at.expect("it runs a program");
                let ops = self.ops(place.program);
                let next = self.carry_out(state, cpu, ops[usize::from(place.op)]);
                let own = &mut state.cpus[cpu];
                own.at = behind(ops, place, next);
                if own.at.is_none() {
                    // What it has read is of no matter any more.
                    (own.word, own.active, own.goal) = (0, 0, 0);
                    own.lazy &= place.program == Program::Flush;
                }
            }
        }
        // Walkers fill what they can reach.
        let valid = state.memory.visible(ENTRY);
        for own in state.cpus.iter_mut().filter(|own| own.root != 0) {
            own.tlb[usize::from(own.tag)] |= if own.root == 1 { valid } else { 1 << (own.root - 1) };
        }
    }

    fn tell(&self, state: &State, step: Step) -> String {
        let begins = |number| match number {
            FLUSH => "Flush".into(),
            GO_LAZY => "to be lazy".into(),
            LEAVE_LAZY => "LeaveLazy".into(),
            space => format!("Switch to space {space}"),
        };
        let at = state.cpus[step.cpu()].at;
        tell(step, begins, at.map(|at| self.ops(at.program)[usize::from(at.op)]))
    }

    fn is_over(&self, state: &State) -> bool {
        state.cpus.iter().all(|own| own.at.is_none() && own.flushes == 0)
    }

    fn broken(&self, state: &State) -> Option<Claim> {
        if state.short {
            return Some(Claim::C4);
        }
        for own in state.cpus[..self.cpus].iter().filter(|own| own.root != 0) {
            let cached = own.tlb[usize::from(own.tag)];
            if cached & !(1 << (own.root - 1)) != 0 {
                return Some(Claim::C4);
            }
            let in_user = !own.lazy && own.at.is_none_or(|at| at.program == Program::Flush);
            if state.complete && own.root == 1 && cached & 1 != 0 {
                // A processor walks whatever its root is, a program uses only what it may.
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
