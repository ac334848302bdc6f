//! What the operations do, and what must hold.

use super::*;
use crate::program::{Next, behind, tell};
use crate::{Claim, Protocol, Step};

impl Generations {
    fn op(&self, place: Place<Program>) -> Option<Op> {
        self.ops(place.program).get(usize::from(place.op)).copied()
    }

    /// Pages that requester `cpu` withdraws.
    fn pages(cpu: usize) -> u8 {
        1 << cpu
    }

    fn may_begin(&self, state: &State, cpu: usize, program: Program) -> bool {
        let own = &state.cpus[cpu];
        own.left > 0
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

    /// The space that a program switches to.
    fn goal(program: Program) -> u8 {
        match program {
            Program::SwitchIn => A,
            Program::SwitchOut => B,
            _ => KERNEL,
        }
    }

    /// Rule 2: flushes what `requester` asks for, as far as it was not flushed, after the generation was read.
    fn flush_as_asked(&self, state: &mut State, cpu: usize, requester: usize) {
        let (asked, pages) = (state.cpus[requester].generation, Self::pages(requester));
        let own = &mut state.cpus[cpu];
        let gap_allowed = self.is(Mutant::PartialAcrossGap) && asked > own.seen;
        let next = own.seen + 1 == asked || gap_allowed;
        if next && (own.read == asked || self.not_newest || self.is(Mutant::PartialRecordsCurrent)) {
            own.tlb &= !pages;
            own.seen = if self.not_newest { asked } else { own.read };
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

    /// `Engine::do_as_asked` and `Engine::follow_loaded`: what a handler does that runs `state`.
    fn asked_to(&self, state: u8, elsewhere: Next<Op>) -> Next<Op> {
        match state {
            other if other & SPACE != A => elsewhere,
            lazy if lazy & LAZY != 0 => Next::To(Op::PublishSwitching),
            _ if self.is(Mutant::GenerationReadAfterFlush) => Next::To(Op::FlushWhole),
            _ => Next::To(Op::ReadGeneration),
        }
    }

    /// Carries out an operation; says where the program goes on.
    fn carry_out(&self, state: &mut State, cpu: usize, program: Program, op: Op) -> Next<Op> {
        let (me, bit, early) = (cpu, 1_u8 << cpu, self.is_early());
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
            Op::Send => {
                memory.barrier(me);
                let targets = own.targets;
                for other in (0..CPUS).filter(|other| targets >> other & 1 == 1) {
                    state.cpus[other].asked |= bit;
                }
            }
            Op::ReadGeneration => own.read = memory.load(me, GENERATION),
            Op::FlushHere => {
                if own.state & SPACE == A {
                    self.flush_as_asked(state, me, me);
                }
            }
            Op::Wait => {}
            Op::Complete => state.complete |= Self::pages(me),
            Op::Free => state.freed |= Self::pages(me),
            Op::PublishSwitching => {
                own.state = Self::goal(program) | SWITCHING;
                memory.release(me, STATE + me, own.state);
            }
            Op::Join => match (program, self.is(Mutant::JoinWithoutBarrier)) {
                (Program::SwitchIn, true) => memory.store(me, MEMBER + me, 1),
                (Program::SwitchIn, false) => {
                    memory.update(me, MEMBER + me, |_| 1);
                }
                _ => memory.barrier(me),
            },
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
                memory.barrier(me);
                own.serving = own.asked.trailing_zeros() as u8;
                own.asked &= own.asked - 1;
                if !early {
                    return self.asked_to(own.state, Next::To(Op::Acknowledge));
                }
            }
            Op::FlushAsAsked => {
                let requester = usize::from(own.serving);
                self.flush_as_asked(state, me, requester);
            }
            Op::FlushWhole => own.tlb = 0,
            Op::Record => own.seen = own.read,
            Op::Acknowledge => {
                memory.barrier(me);
                let (requester, running) = (usize::from(own.serving), own.state);
                state.cpus[requester].targets &= !bit;
                if early {
                    return self.asked_to(running, Next::End);
                }
            }
        }
        Next::Following
    }

    /// Whether a CPU may touch user addresses of A.
    fn in_user(own: &Cpu) -> bool {
        own.state == A && own.at.is_none_or(|at| at.program == Program::Flush)
    }
}

impl Protocol for Generations {
    type State = State;
    type Mutant = Mutant;
    const NAME: &str = "generations";
    const MUTANTS: &[(Mutant, Self, Claim)] = MUTANTS;

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
        // Half of rule 2 is no matter of safety: a slot that records its own generation is behind, and will catch up.
        (
            "2 requesters, 1 wanders, newest not asked for",
            Generations {
                not_newest: true,
                ..THREE
            },
        ),
        ("1 requester, 2 wander", Generations { requesters: 1, ..THREE }),
    ];

    fn with(self, mutant: Mutant) -> Self {
        Generations {
            mutant: Some(mutant),
            ..self
        }
    }

    fn start(&self) -> State {
        let mut state = State {
            memory: Memory::default(),
            cpus: [Cpu::default(); CPUS],
            complete: 0,
            freed: 0,
        };
        state.memory.set(GENERATION, 1);
        (0..2).for_each(|page| state.memory.set(ENTRY + page, 1));
        for cpu in 0..self.cpus {
            let requester = cpu < self.requesters;
            let away = requester && self.away;
            let own = &mut state.cpus[cpu];
            own.left = if requester { 1 } else { self.wanders };
            (own.root, own.state) = if away { (B, B) } else { (A, A) };
            // Who is away has run A before, in a slot that is still its own.
            (own.seen, own.tlb) = if away && self.slots == 1 { (0, 0) } else { (1, 3) };
            state.memory.set(STATE + cpu, own.state);
            state.memory.set(MEMBER + cpu, u8::from(!away));
        }
        state
    }

    fn steps(&self, state: &State, steps: &mut Vec<Step>) {
        for (cpu, own) in state.cpus.iter().enumerate().take(self.cpus) {
            let id = cpu as u8;
            let waits = own.at.and_then(|at| self.op(at)) == Some(Op::Wait);
            match own.at {
                None => steps.extend((0..).zip(PROGRAMS).filter_map(|(number, program)| {
                    self.may_begin(state, cpu, program).then_some(Step::Begin(id, number))
                })),
                Some(_) if waits && own.targets != 0 => {}
                Some(_) => steps.push(Step::Run(id)),
            }
            let serves = match own.at {
                None => true,
                Some(_) if waits => !self.is(Mutant::NoSelfService),
                Some(at) => self.open && at.program == Program::Flush && self.op(at) != Some(Op::FlushHere),
            };
            if own.asked != 0 && serves {
                steps.push(Step::Interrupt(id));
            }
            steps.extend(state.memory.drainable(cpu).map(|index| Step::Drain(id, index as u8)));
        }
    }

    fn take(&self, state: &mut State, step: Step) {
        match step {
            Step::Begin(cpu, number) => {
                let own = &mut state.cpus[usize::from(cpu)];
                own.left -= 1;
                let program = PROGRAMS[usize::from(number)];
                own.at = Some(Place::first(program));
            }
            Step::Interrupt(cpu) => {
                let own = &mut state.cpus[usize::from(cpu)];
                own.outer = own.at;
                own.at = Some(Place::first(Program::Serve));
            }
            Step::Drain(cpu, index) => state.memory.drain(usize::from(cpu), usize::from(index)),
            Step::Run(cpu) => {
                let cpu = usize::from(cpu);
                let place = state.cpus[cpu].at.expect("it runs a program");
                let ops = self.ops(place.program);
                let next = self.carry_out(state, cpu, place.program, ops[usize::from(place.op)]);
                let next = behind(ops, place, next);
                let own = &mut state.cpus[cpu];
                if next.is_some() {
                    own.at = next;
                } else {
                    // What it has read is of no matter any more.
                    (own.at, own.read, own.serving) = (own.outer.take(), 0, 0);
                }
            }
        }
        // Walkers fill what they can reach.
        let reach = state.memory.visible(ENTRY) | state.memory.visible(ENTRY + 1) << 1;
        for own in state.cpus.iter_mut().filter(|own| own.root == A) {
            own.tlb |= reach;
        }
    }

    fn tell(&self, state: &State, step: Step) -> String {
        let begins = |number| format!("{:?}", PROGRAMS[usize::from(number)]);
        let at = state.cpus[step.cpu()].at;
        tell(step, begins, at.map(|at| self.ops(at.program)[usize::from(at.op)]))
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
            if own.root == A && self.tables && own.tlb & state.freed != 0 {
                return Some(Claim::C3);
            }
            if own.root == A && Self::in_user(own) && !self.tables {
                if own.tlb & state.freed & !state.complete != 0 {
                    return Some(Claim::C2);
                }
                if own.tlb & state.complete != 0 {
                    return Some(Claim::C1);
                }
            }
        }
        None
    }
}
