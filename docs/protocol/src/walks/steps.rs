//! What the operations do, and what must hold.

use super::*;
use crate::program::{Next, behind, tell};
use crate::{Claim, Protocol, Step};

impl Walks {
    fn carry_out(&self, state: &mut State, cpu: usize, program: Program, op: Op) -> Next<Op> {
        let me = cpu;
        let memory = &mut state.memory;
        let own = &mut state.cpus[me];
        match op {
            Op::Unlink => memory.store(me, LINK, 0),
            Op::Barrier | Op::WalkBarrier | Op::OnBarrier | Op::OffBarrier => memory.barrier(me),
            Op::ReadPolicy => own.policy = memory.load(me, POLICY),
            Op::Find(other) => {
                let (of, policy) = (usize::from(other), own.policy);
                let changing = policy & CHANGING != 0 && !self.is(Mutant::ChangingIgnored);
                let (published, registered) = match self.mode {
                    Mode::InterruptAll | Mode::GracePeriod => (false, false),
                    Mode::Precise => (true, false),
                    Mode::Sticky => (false, true),
                    Mode::Adaptive => (policy & PRECISE != 0 || changing, policy & PRECISE == 0 || changing),
                };
                // One load after the other; that they are one step here leaves out nothing: each is looked at once.
                let found = self.mode == Mode::InterruptAll
                    || published && memory.load(me, PUBLISHED + of) != 0
                    || registered && memory.load(me, WALKER + of) != 0
                    || memory.load(me, NMI + of) != 0;
                let off = memory.load(me, OFF + of) != 0 && !self.is(Mutant::OffWaitedFor);
                own.targets |= u8::from(of != me && of < self.cpus && found && !off) << other;
            }
            Op::Send | Op::AskAll => {
                memory.barrier(me);
                if op == Op::AskAll {
                    own.slot = false;
                    let online = (0..self.cpus).filter(|&other| other != me && memory.load(me, OFF + other) == 0);
                    own.targets = online.map(|other| 1 << other).sum();
                    memory.update(me, WALKER + me, |_| 0);
                }
                let targets = own.targets;
                for other in (0..CPUS).filter(|other| targets >> other & 1 == 1) {
                    state.cpus[other].asked |= 1 << me;
                }
            }
            Op::CheckOff(other) => {
                let of = usize::from(other);
                let off = memory.load(me, OFF + of) != 0 && !self.is(Mutant::OffWaitedFor);
                // Taken back, unless the target has taken it; then it answers (`Queue::cancel`).
                if off && own.targets >> other & 1 == 1 && state.cpus[of].asked >> me & 1 == 1 {
                    state.cpus[of].asked &= !(1 << me);
                    state.cpus[me].targets &= !(1 << other);
                }
            }
            Op::Wait => {}
            Op::NewPeriod => {
                own.period = 1 + match self.is(Mutant::PeriodWithoutBarrier) {
                    true => memory.update_relaxed(me, GRACE, |old| old + 1),
                    false => memory.update(me, GRACE, |old| old + 1),
                };
            }
            Op::Seen(_) => {}
            Op::Free => {
                let table = Self::table(own.frees + 1, self.frees);
                own.targets = 0;
                state.freed |= 1 << table;
            }
            Op::Relink => {
                let table = Self::table(own.frees, self.frees);
                memory.release(me, LINK, table);
            }
            Op::BeginChange => {
                let to = PRECISE | CHANGING;
                memory.update(me, POLICY, |_| to);
            }
            Op::EndChange => memory.release(me, POLICY, PRECISE),
            Op::CheckSlot => {
                if own.slot {
                    return Next::To(Op::ReadLink);
                }
            }
            Op::WalkPolicy => {
                if memory.load(me, POLICY) & PRECISE != 0 {
                    return Next::To(Op::Publish);
                }
            }
            Op::Register => {
                if self.is(Mutant::RegisteredWithoutBarrier) {
                    memory.store(me, WALKER + me, 1);
                } else {
                    memory.update(me, WALKER + me, |_| 1);
                }
                own.slot = true;
                return Next::To(Op::ReadLink);
            }
            Op::Publish => memory.store(me, PUBLISHED + me, 1),
            Op::EnterNmi => {
                if !self.is(Mutant::NmiNotEntered) {
                    memory.update(me, NMI + me, |_| 1);
                }
            }
            Op::ReadLink => own.holds = memory.load(me, LINK),
            Op::EndWalk => {
                own.holds = 0;
                if program == Program::NmiWalk {
                    memory.update(me, NMI + me, |_| 0);
                } else if memory.load(me, PUBLISHED + me) != 0 {
                    memory.release(me, PUBLISHED + me, 0);
                }
            }
            Op::ReadPeriod => own.period = memory.load(me, GRACE),
            Op::PublishPeriod => memory.release(me, QUIESCENT + me, own.period),
            Op::Take => {
                // Whether there is anything is looked at first, by a plain load (`Queue::has_ready`).
                if own.asked == 0 {
                    return Next::End;
                }
                memory.barrier(me);
                own.serving = own.asked.trailing_zeros() as u8;
                own.asked &= own.asked - 1;
                if !matches!(self.mode, Mode::Sticky | Mode::Adaptive) {
                    return Next::To(Op::Acknowledge);
                }
            }
            Op::ForgetSlot => own.slot = self.is(Mutant::SlotKept) && own.slot,
            Op::ForgetBit => {
                memory.update(me, WALKER + me, |_| 0);
            }
            Op::Acknowledge => {
                memory.barrier(me);
                let requester = usize::from(own.serving);
                state.cpus[requester].targets &= !(1 << me);
            }
            Op::PublishOff => {
                own.off = true;
                memory.release(me, OFF + me, 1);
            }
            Op::ForgetAll => {
                own.slot = false;
                memory.store(me, PUBLISHED + me, 0);
            }
            Op::PublishOn => {
                own.off = false;
                memory.release(me, OFF + me, 0);
            }
        }
        Next::Following
    }

    /// The table that is linked while `left` of `frees` are to come.
    fn table(left: u8, frees: u8) -> u8 {
        frees - left + 1
    }

    fn may_begin(&self, state: &State, cpu: usize, program: Program) -> bool {
        let own = &state.cpus[cpu];
        let grace = self.mode == Mode::GracePeriod;
        match program {
            Program::Free => own.frees > 0,
            Program::Change => own.changes > 0,
            Program::ComeOn => own.off && self.returns,
            Program::Serve => false,
            _ if own.off => false,
            Program::Walk => own.walks > 0,
            Program::NmiWalk => own.nmi > 0 && !grace,
            Program::Quiescent => own.walks > 0 && grace,
            Program::GoOff => own.offs > 0,
        }
    }

    fn waits(&self, state: &State, cpu: usize) -> bool {
        let own = &state.cpus[cpu];
        match own.at.map(|at| self.ops(at.program)[usize::from(at.op)]) {
            Some(Op::Wait) => own.targets != 0,
            Some(Op::Seen(other)) => {
                let of = usize::from(other);
                let needed = own.period - u8::from(self.is(Mutant::PeriodTooShort));
                let seen = state.memory.load(cpu, QUIESCENT + of);
                of != cpu && of < self.cpus && seen < needed && state.memory.load(cpu, OFF + of) == 0
            }
            _ => false,
        }
    }
}

impl Protocol for Walks {
    type State = State;
    type Mutant = Mutant;
    const NAME: &str = "walks";
    const MUTANTS: &[(Mutant, Self, Claim)] = MUTANTS;

    const SOUND: &[(&str, Self)] = &[
        ("2 walkers, published", PRECISELY),
        ("2 walkers, registered", STICKY),
        ("2 walkers, everybody interrupted", ALL),
        ("1 walker, grace periods", GRACE_PERIODS),
        ("1 walker, registered, goes off", COMES_AND_GOES),
        ("1 walker, registered, goes off for good", LEAVES),
        (
            "1 walker, published, goes off",
            Walks {
                mode: Mode::Precise,
                ..COMES_AND_GOES
            },
        ),
        ("1 walker, policy changes, goes off", ADAPTIVE),
        ("1 walker, policy changed meanwhile", CHANGED_MEANWHILE),
        (
            "2 walkers, policy changes",
            Walks {
                cpus: 3,
                walks: 1,
                offs: 0,
                ..ADAPTIVE
            },
        ),
    ];

    fn with(self, mutant: Mutant) -> Self {
        Walks {
            mutant: Some(mutant),
            ..self
        }
    }

    fn start(&self) -> State {
        let mut state = State {
            memory: Memory::default(),
            cpus: [Cpu::default(); CPUS],
            freed: 0,
        };
        state.memory.set(LINK, 1);
        state.cpus[0].frees = self.frees;
        state.cpus[self.changer].changes = self.changes;
        let walkers = if self.changer == 0 { self.cpus } else { self.changer };
        for own in &mut state.cpus[1..walkers] {
            (own.walks, own.nmi, own.offs) = (self.walks, 1, self.offs);
        }
        state
    }

    fn steps(&self, state: &State, steps: &mut Vec<Step>) {
        for (cpu, own) in state.cpus.iter().enumerate().take(self.cpus) {
            let id = cpu as u8;
            match own.at {
                None => steps.extend((0..).zip(PROGRAMS).filter_map(|(number, program)| {
                    self.may_begin(state, cpu, program).then_some(Step::Begin(id, number))
                })),
                Some(_) if !self.waits(state, cpu) => steps.push(Step::Run(id)),
                Some(_) => {}
            }
            // Walks have interrupts off, and so has whoever goes off; who is off takes none.
            let open = match own.at.map(|at| at.program) {
                None => !own.off,
                Some(Program::Free | Program::Change) => own.outer.is_none(),
                Some(Program::Walk) => self.is(Mutant::Interruptible) && own.outer.is_none(),
                Some(_) => false,
            };
            if own.asked != 0 && open {
                steps.push(Step::Interrupt(id));
            }
            let seen_in_walk = self.is(Mutant::QuiescentInWalk) && own.holds != 0 && own.outer.is_none();
            if seen_in_walk && state.memory.load(cpu, QUIESCENT + cpu) < state.memory.load(cpu, GRACE) {
                steps.push(Step::Begin(id, 4));
            }
            steps.extend(state.memory.drainable(cpu).map(|index| Step::Drain(id, index as u8)));
        }
    }

    fn take(&self, state: &mut State, step: Step) {
        match step {
            Step::Begin(cpu, number) => {
                let own = &mut state.cpus[usize::from(cpu)];
                let program = PROGRAMS[usize::from(number)];
                match program {
                    Program::Free => own.frees -= 1,
                    Program::Change => own.changes -= 1,
                    Program::NmiWalk => own.nmi -= 1,
                    Program::GoOff => own.offs -= 1,
                    Program::Walk => own.walks -= 1,
                    Program::Quiescent if own.at.is_none() => own.walks -= 1,
                    _ => {}
                }
                own.outer = own.at;
                own.at = Some(Place::first(program));
            }
            Step::Interrupt(cpu) => {
                let own = &mut state.cpus[usize::from(cpu)];
                own.outer = own.at;
                let program = Program::Serve;
                own.at = Some(Place::first(program));
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
                    own.at = own.outer.take();
                    if own.at.is_some() {
                        return;
                    }
                    // What it has read is of no matter any more.
                    (own.policy, own.period, own.serving) = (0, 0, 0);
                }
            }
        }
    }

    fn tell(&self, state: &State, step: Step) -> String {
        let begins = |number| format!("{:?}", PROGRAMS[usize::from(number)]);
        let at = state.cpus[step.cpu()].at;
        tell(step, begins, at.map(|at| self.ops(at.program)[usize::from(at.op)]))
    }

    fn is_over(&self, state: &State) -> bool {
        let own = &state.cpus[0];
        let freed_or_waits_for_a_report = self.mode == Mode::GracePeriod || own.at.is_none() && own.frees == 0;
        freed_or_waits_for_a_report && state.cpus[1..].iter().all(|own| own.at.is_none())
    }

    fn broken(&self, state: &State) -> Option<Claim> {
        let reads_freed = |own: &Cpu| own.holds != 0 && state.freed >> own.holds & 1 == 1;
        state.cpus.iter().any(reads_freed).then_some(Claim::C3)
    }
}
