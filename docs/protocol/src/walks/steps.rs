//! Effects of the operations, and the invariants.

use super::*;
use crate::memory::Memory;
use crate::program::Next;
use crate::{Claim, Protocol};

impl Walks {
    /// Whether CPU `other` may be walking: then it is a target.
    fn find(&self, state: &mut State, me: usize, other: u8) {
        let memory = &state.memory;
        let own = &mut state.cpus[me];
        let (of, policy) = (usize::from(other), own.policy);
        let changing = policy & CHANGING != 0 && !self.is(Mutant::ChangingIgnored);
        let (published, registered) = match self.mode {
            Mode::InterruptAll | Mode::GracePeriod => (false, false),
            Mode::Precise => (true, false),
            Mode::Sticky => (false, true),
            Mode::Adaptive => (policy & PRECISE != 0 || changing, policy & PRECISE == 0 || changing),
        };
        // In the engine these are several loads. One step loses nothing, because each word is read once.
        let found = self.mode == Mode::InterruptAll
            || published && memory.load(me, PUBLISHED + of) != 0
            || registered && memory.load(me, WALKER + of) != 0
            || memory.load(me, NMI + of) != 0;
        let off = memory.load(me, OFF + of) != 0 && !self.is(Mutant::OffWaitedFor);
        own.targets |= u8::from(of != me && of < self.cpus && found && !off) << other;
    }

    /// The table that is linked while `left` of `frees` frees remain.
    fn table(left: u8, frees: u8) -> u8 {
        frees - left + 1
    }
}

impl Protocol for Walks {
    const NAME: &str = "walks";

    type Program = Program;
    type Op = Op;
    type Own = Own;
    type Shared = Shared;
    const PROGRAMS: &[Program] = &[
        Program::Free,
        Program::Change,
        Program::Walk,
        Program::NmiWalk,
        Program::Quiescent,
        Program::GoOff,
        Program::ComeOn,
    ];
    const SERVE: Option<Program> = Some(Program::Serve);

    const SOUND: &[(&str, Self)] = &[
        ("2 walkers, published", PRECISELY),
        ("2 walkers, registered", STICKY),
        ("2 walkers, all CPUs interrupted", ALL),
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

    fn start(&self) -> State {
        let mut state = State {
            memory: Memory::default(),
            cpus: [Cpu::default(); CPUS],
            shared: Shared::default(),
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

    fn cpus(&self) -> usize {
        self.cpus
    }

    fn ops(&self, program: Program) -> &'static [Op] {
        self.programs(program)
    }

    fn may_begin(&self, state: &State, cpu: usize, program: Program) -> bool {
        let own = &state.cpus[cpu];
        let grace = self.mode == Mode::GracePeriod;
        // The mutant reports from within a walk.
        let reports = self.is(Mutant::QuiescentInWalk) && own.holds != 0 && own.outer.is_none();
        if program == Program::Quiescent && reports {
            return state.memory.load(cpu, QUIESCENT + cpu) < state.memory.load(cpu, GRACE);
        }
        match program {
            _ if own.at.is_some() => false,
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

    fn begin(&self, cpu: &mut Cpu, program: Program) {
        match program {
            Program::Free => cpu.frees -= 1,
            Program::Change => cpu.changes -= 1,
            Program::NmiWalk => cpu.nmi -= 1,
            Program::GoOff => cpu.offs -= 1,
            Program::Walk => cpu.walks -= 1,
            Program::Quiescent if cpu.at.is_none() => cpu.walks -= 1,
            _ => {}
        }
    }

    fn carry_out(&self, state: &mut State, cpu: usize, program: Program, op: Op) -> Next<Op> {
        let me = cpu;
        let memory = &mut state.memory;
        let own = &mut state.cpus[me];
        match op {
            Op::Unlink => memory.store(me, LINK, 0),
            Op::Barrier | Op::WalkBarrier | Op::OnBarrier | Op::OffBarrier => memory.barrier(me),
            Op::ReadPolicy => own.policy = memory.load(me, POLICY),
            Op::Find(other) => self.find(state, me, other),
            Op::Send => state.send(me),
            Op::AskAll => {
                memory.barrier(me);
                own.slot = false;
                let online = (0..self.cpus).filter(|&other| other != me && memory.load(me, OFF + other) == 0);
                own.targets = online.map(|other| 1 << other).sum();
                memory.update(me, WALKER + me, |_| 0);
                state.send(me);
            }
            Op::CheckOff(other) => {
                let of = usize::from(other);
                let off = memory.load(me, OFF + of) != 0 && !self.is(Mutant::OffWaitedFor);
                // Taken back, unless the target has taken it; then the target answers (`Queue::cancel`).
                if off && own.targets >> other & 1 == 1 && state.cpus[of].pending >> me & 1 == 1 {
                    state.cpus[of].pending &= !(1 << me);
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
                state.shared.freed |= 1 << table;
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
                memory.enter(me, WALKER + me, self.is(Mutant::RegisteredWithoutBarrier));
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
                // A plain load first checks whether there is anything (`Queue::has_ready`).
                if own.pending == 0 {
                    return Next::End;
                }
                state.take_request(me);
                if !matches!(self.mode, Mode::Sticky | Mode::Adaptive) {
                    return Next::To(Op::Acknowledge);
                }
            }
            Op::ForgetSlot => own.slot = self.is(Mutant::SlotKept) && own.slot,
            Op::ForgetBit => {
                memory.update(me, WALKER + me, |_| 0);
            }
            Op::Acknowledge => state.acknowledge(me),
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

    fn waits(&self, state: &State, cpu: usize, op: Op) -> bool {
        let own = &state.cpus[cpu];
        match op {
            Op::Wait => own.targets != 0,
            Op::Seen(other) => {
                let of = usize::from(other);
                let needed = own.period - u8::from(self.is(Mutant::PeriodTooShort));
                let seen = state.memory.load(cpu, QUIESCENT + of);
                of != cpu && of < self.cpus && seen < needed && state.memory.load(cpu, OFF + of) == 0
            }
            _ => false,
        }
    }

    /// Interrupts are off during a walk and while a CPU goes offline. An offline CPU takes none.
    fn is_open(&self, cpu: &Cpu) -> bool {
        match cpu.at.map(|at| at.program) {
            None => !cpu.off,
            Some(Program::Free | Program::Change) => cpu.outer.is_none(),
            Some(Program::Walk) => self.is(Mutant::Interruptible) && cpu.outer.is_none(),
            Some(_) => false,
        }
    }

    fn ended(&self, cpu: &mut Cpu, _: Program) {
        if cpu.at.is_none() {
            (cpu.policy, cpu.period, cpu.serving) = (0, 0, 0);
        }
    }

    /// Caches of processors are in the other models.
    fn fill(&self, _: &mut State) {}

    fn is_over(&self, state: &State) -> bool {
        let own = &state.cpus[0];
        let freed_or_awaits_quiescence = self.mode == Mode::GracePeriod || own.at.is_none() && own.frees == 0;
        freed_or_awaits_quiescence && state.cpus[1..].iter().all(|own| own.at.is_none())
    }

    fn broken(&self, state: &State) -> Option<Claim> {
        let reads_freed = |own: &Cpu| own.holds != 0 && state.shared.freed >> own.holds & 1 == 1;
        state.cpus.iter().any(reads_freed).then_some(Claim::C3)
    }
}
