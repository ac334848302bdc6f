//! Effects of the operations, and the invariants.

use super::*;
use crate::memory::Memory;
use crate::program::{Next, next_op};
use crate::{Claim, Mutated, Protocol};

impl Generations {
    /// Pages that requester `cpu` withdraws.
    fn pages(cpu: usize) -> u8 {
        1 << cpu
    }

    /// The space that a program switches to.
    fn goal(program: Program) -> u8 {
        match program {
            Program::SwitchIn => A,
            Program::SwitchOut => B,
            _ => KERNEL,
        }
    }

    /// Rule 2: flushes what `requester` requests, unless flushed already, after the generation was read.
    fn flush_as_requested(&self, state: &mut State, cpu: usize, requester: usize) {
        let (requested, pages) = (state.cpus[requester].generation, Self::pages(requester));
        let own = &mut state.cpus[cpu];
        let gap_allowed = self.is(Mutant::PartialAcrossGap) && requested > own.seen;
        let next = own.seen + 1 == requested || gap_allowed;
        if next && (own.read == requested || self.not_newest || self.is(Mutant::PartialRecordsCurrent)) {
            own.tlb &= !pages;
            own.seen = if self.not_newest { requested } else { own.read };
        } else {
            Self::catch_up(own);
        }
    }

    fn catch_up(own: &mut Cpu) {
        if own.seen != own.read {
            own.tlb = 0;
            own.seen = own.read;
        }
    }

    pub(super) fn is_early(&self) -> bool {
        self.early || self.is(Mutant::EarlyDespiteTables)
    }

    /// `Engine::execute` and `Engine::sync_loaded_space`: the next operation of a handler on a CPU in `state`.
    fn asked_to(&self, state: u8, elsewhere: Next<Op>) -> Next<Op> {
        match state {
            other if other & SPACE != A => elsewhere,
            lazy if lazy & LAZY != 0 => Next::To(Op::PublishSwitching),
            _ if self.is(Mutant::GenerationReadAfterFlush) => Next::To(Op::FlushWhole),
            _ => Next::To(Op::ReadGeneration),
        }
    }

    /// Whether a CPU may access user addresses of A.
    fn in_user(own: &Cpu) -> bool {
        own.state == A && own.at.is_none_or(|at| at.program == Program::Flush)
    }
}

impl Protocol for Generations {
    const NAME: &str = "generations";

    type Program = Program;
    type Op = Op;
    type Own = Own;
    type Shared = Shared;
    const PROGRAMS: &[Program] = &[
        Program::Flush,
        Program::SwitchIn,
        Program::SwitchOut,
        Program::GoLazy,
        Program::LeaveLazy,
    ];
    const SERVE: Option<Program> = Some(Program::Serve);

    const SOUND: &[(&str, Self)] = &[
        ("1 requester, 1 wanders", SMALL),
        ("the same, one slot", ONE_SLOT),
        ("the same, tables freed", TABLES),
        ("the same, requester elsewhere", AWAY),
        (
            "the same, one slot, requester elsewhere",
            Generations { slots: 1, ..AWAY },
        ),
        ("the same, early acknowledgement", Generations { early: true, ..SMALL }),
        ("2 requesters", TWO),
        ("2 requesters, 1 wanders", THREE),
        (
            "2 requesters, 1 wanders, tables freed",
            Generations { tables: true, ..THREE },
        ),
        (
            "2 requesters, 1 wanders, early acknowledgement",
            Generations { early: true, ..THREE },
        ),
        (
            "2 requesters, 1 wanders, interrupts on",
            Generations { open: true, ..THREE },
        ),
        // Half of rule 2 is not needed for safety: a slot that records its own generation is behind, and will catch up.
        (
            "2 requesters, 1 wanders, newest not asked for",
            Generations {
                not_newest: true,
                ..THREE
            },
        ),
        ("1 requester, 2 wander", Generations { requesters: 1, ..THREE }),
    ];

    fn start(&self) -> State {
        let mut state = State {
            memory: Memory::default(),
            cpus: [Cpu::default(); CPUS],
            shared: Shared::default(),
        };
        state.memory.set(GENERATION, 1);
        (0..2).for_each(|page| state.memory.set(ENTRY + page, 1));
        for cpu in 0..self.cpus {
            let requester = cpu < self.requesters;
            let away = requester && self.away;
            let own = &mut state.cpus[cpu];
            own.left = if requester { 1 } else { self.migrates };
            (own.root, own.state) = if away { (B, B) } else { (A, A) };
            // A requester that runs B has run A before, in a slot that A still owns.
            (own.seen, own.tlb) = if away && self.slots == 1 { (0, 0) } else { (1, 3) };
            state.memory.set(STATE + cpu, own.state);
            state.memory.set(MEMBER + cpu, u8::from(!away));
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
            && own.left > 0
            && match program {
                Program::Flush => cpu < self.requesters,
                _ if cpu < self.requesters => false,
                Program::SwitchIn => own.state & SPACE != A,
                Program::SwitchOut => own.state & SPACE == A,
                Program::GoLazy => own.state == A,
                Program::LeaveLazy => own.state == A | LAZY,
                Program::Serve => false,
            }
    }

    fn begin(&self, cpu: &mut Cpu, _: Program) {
        cpu.left -= 1;
    }

    fn carry_out(&self, state: &mut State, cpu: usize, program: Program, op: Op) -> Next<Op> {
        let (me, early) = (cpu, self.is_early());
        let memory = &mut state.memory;
        let own = &mut state.cpus[cpu];
        match op {
            Op::ClearEntry => memory.store(me, ENTRY + me, 0),
            Op::Increment => {
                own.generation = 1 + match self.is(Mutant::IncrementWithoutBarrier) {
                    true => memory.update_relaxed(me, GENERATION, |old| old + 1),
                    false => memory.update(me, GENERATION, |old| old + 1),
                };
                if self.is(Mutant::SkippedWhenNotCurrent) && own.state & SPACE != A {
                    own.targets = 0;
                    return Next::To(Op::Complete);
                }
            }
            Op::Member(other) => {
                let other = usize::from(other);
                let skip = other == me || memory.load(me, MEMBER + other) == 0;
                if skip {
                    return Next::To(match other {
                        2 if self.is(Mutant::TargetsBeforeIncrement) => Op::Increment,
                        2 => Op::Send,
                        other => Op::Member(other as u8 + 1),
                    });
                }
            }
            Op::Look(other) => {
                let seen = memory.load(me, STATE + usize::from(other));
                let keep_lazy = self.tables && !self.is(Mutant::LazySkippedDespiteTables);
                let concerned = match seen {
                    switching if switching & SWITCHING != 0 => !self.is(Mutant::SwitchingSkipped),
                    elsewhere if elsewhere & SPACE != A => false,
                    lazy => keep_lazy || lazy & LAZY == 0,
                };
                own.targets |= u8::from(concerned) << other;
            }
            Op::Send => state.send(me),
            Op::ReadGeneration => own.read = memory.load(me, GENERATION),
            Op::FlushHere => {
                if own.state & SPACE == A {
                    self.flush_as_requested(state, me, me);
                }
            }
            Op::Wait => {}
            Op::Complete => state.shared.complete |= Self::pages(me),
            Op::Free => state.shared.freed |= Self::pages(me),
            Op::PublishSwitching => {
                own.state = Self::goal(program) | SWITCHING;
                memory.release(me, STATE + me, own.state);
            }
            Op::Join if program == Program::SwitchIn => {
                memory.enter(me, MEMBER + me, self.is(Mutant::JoinWithoutBarrier));
            }
            Op::Join => memory.barrier(me),
            Op::FlushSlot => own.tlb = 0,
            Op::LoadRoot | Op::LoadRootKeeping => {
                own.root = Self::goal(program);
                let keeps = op == Op::LoadRootKeeping || self.is(Mutant::SlotReusedWithoutFlush);
                if own.root == A {
                    Self::catch_up(own);
                } else if own.root == B && self.slots == 1 {
                    own.seen = 0;
                    own.tlb = if keeps { own.tlb } else { 0 };
                }
            }
            Op::PublishLoaded => {
                own.state = Self::goal(program);
                memory.release(me, STATE + me, own.state);
            }
            Op::LeaveSet => {
                memory.update(me, MEMBER + me, |_| 0);
                if program == Program::Serve {
                    return if early { Next::End } else { Next::To(Op::Acknowledge) };
                }
            }
            Op::PublishLazy => {
                own.state |= LAZY;
                memory.release(me, STATE + me, own.state);
            }
            Op::PublishNotLazy => {
                own.state &= !LAZY;
                memory.release(me, STATE + me, own.state);
            }
            Op::Barrier => memory.barrier(me),
            Op::CatchUp => Self::catch_up(own),
            Op::Take => {
                state.take_request(me);
                if !early {
                    return self.asked_to(state.cpus[me].state, Next::To(Op::Acknowledge));
                }
            }
            Op::FlushAsAsked => {
                let requester = usize::from(own.serving);
                self.flush_as_requested(state, me, requester);
            }
            Op::FlushWhole => own.tlb = 0,
            Op::Record => own.seen = own.read,
            Op::Acknowledge => {
                state.acknowledge(me);
                if early {
                    return self.asked_to(state.cpus[me].state, Next::End);
                }
            }
        }
        Next::Following
    }

    fn waits(&self, state: &State, cpu: usize, op: Op) -> bool {
        op == Op::Wait && state.cpus[cpu].targets != 0
    }

    fn is_open(&self, cpu: &Cpu) -> bool {
        match (cpu.at, next_op(self, cpu)) {
            (None, _) => true,
            (_, Some(Op::Wait)) => !self.is(Mutant::NoSelfService),
            (Some(at), op) => self.open && at.program == Program::Flush && op != Some(Op::FlushHere),
        }
    }

    fn ended(&self, cpu: &mut Cpu, _: Program) {
        (cpu.read, cpu.serving) = (0, 0);
    }

    fn fill(&self, state: &mut State) {
        let reach = state.memory.visible(ENTRY) | state.memory.visible(ENTRY + 1) << 1;
        for own in state.cpus.iter_mut().filter(|own| own.root == A) {
            own.tlb |= reach;
        }
    }

    fn is_over(&self, state: &State) -> bool {
        let cpus = &state.cpus[..self.cpus];
        cpus.iter().all(|own| own.at.is_none()) && cpus[..self.requesters].iter().all(|own| own.left == 0)
    }

    fn broken(&self, state: &State) -> Option<Claim> {
        for own in &state.cpus[..self.cpus] {
            if own.root == B && self.slots == 1 && own.tlb != 0 {
                return Some(Claim::C4);
            }
            if own.root == A && self.tables && own.tlb & state.shared.freed != 0 {
                return Some(Claim::C3);
            }
            if own.root == A && Self::in_user(own) && !self.tables {
                if own.tlb & state.shared.freed & !state.shared.complete != 0 {
                    return Some(Claim::C2);
                }
                if own.tlb & state.shared.complete != 0 {
                    return Some(Claim::C1);
                }
            }
        }
        None
    }
}
