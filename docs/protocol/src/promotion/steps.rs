//! Effects of the operations, and the invariants.

use super::*;
use crate::memory::Memory;
use crate::program::{Next, next_op};
use crate::{Claim, Mutated, Protocol};

impl Promotion {
    /// The page that a flush of this CPU withdraws.
    fn page(&self, state: &State, cpu: usize) -> usize {
        let before: u8 = self.flushes[..cpu].iter().sum();
        usize::from(before + self.flushes[cpu] - state.cpus[cpu].flushes - 1)
    }

    /// The space that a program switches to.
    fn goal(program: Program) -> u8 {
        match program {
            Program::SwitchIn => A,
            Program::SwitchOut => B,
            _ => KERNEL,
        }
    }

    /// After the local flush and the broadcast: which CPUs must be interrupted.
    fn after_settling(&self, kind: u8, stragglers: u8) -> Next<Op> {
        match kind {
            DEMOTING if self.is(Mutant::DemotionOnlyBroadcasts) => Next::To(Op::Complete),
            DEMOTING => Next::To(Op::Look(0)),
            _ if stragglers == 0 || self.is(Mutant::TransitionOnlyBroadcasts) => Next::To(Op::Complete),
            _ => Next::To(Op::Send),
        }
    }

    /// The first steps of a flush of a space that seems to be promoted, which takes no generation.
    fn publish_under_tag(&self, state: &mut State, me: usize, op: Op) -> Next<Op> {
        let memory = &mut state.memory;
        let own = &mut state.cpus[me];
        let counted = if self.is(Mutant::ModeBeforeIncrement) {
            Op::Dispatch
        } else {
            Op::Increment
        };
        match op {
            Op::Glance => {
                own.word = memory.load(me, MODE);
                if own.word & KIND != SYSTEM {
                    return Next::To(counted);
                }
            }
            Op::Publish if self.is(Mutant::NoBarrierUnderTag) => {}
            Op::Publish => memory.barrier(me),
            _ => {
                if !self.is(Mutant::ModeBeforeBarrierUnderTag) {
                    own.word = memory.load(me, MODE);
                }
                return Next::To(if own.word & KIND == SYSTEM {
                    Op::Broadcast
                } else {
                    counted
                });
            }
        }
        Next::Following
    }

    fn increment(&self, state: &mut State, me: usize) -> Next<Op> {
        let memory = &mut state.memory;
        if self.is(Mutant::IncrementWithoutBarrier) {
            memory.update_relaxed(me, GENERATION, |old| old + 1);
        } else {
            memory.update(me, GENERATION, |old| old + 1);
        }
        if self.is(Mutant::ModeBeforeIncrement) && state.cpus[me].word & KIND == SYSTEM {
            return Next::To(Op::Broadcast);
        }
        Next::Following
    }

    fn dispatch(&self, state: &mut State, me: usize, program: Program) -> Next<Op> {
        let memory = &mut state.memory;
        let own = &mut state.cpus[me];
        own.word = memory.load(me, MODE);
        let promoted = own.word & KIND == SYSTEM;
        match program {
            Program::Flush if promoted && !self.is(Mutant::ModeBeforeIncrement) => {
                return Next::To(Op::Broadcast);
            }
            Program::Change if promoted && self.is(Mutant::DemotionCountedLate) => return Next::To(Op::Exchange),
            Program::Change if promoted => return Next::To(Op::CountDemotion),
            Program::Change if own.word & KIND != PER_CPU => return Next::End,
            _ => {}
        }
        Next::Following
    }

    fn read_mode(&self, state: &mut State, me: usize, program: Program) -> Next<Op> {
        let memory = &mut state.memory;
        let own = &mut state.cpus[me];
        // A requester keeps the word that it dispatched on.
        let mode = memory.load(me, MODE) & KIND;
        own.state = own.state & !ON_TAG
            | if mode == TRANSITION || mode == SYSTEM {
                ON_TAG
            } else {
                0
            };
        let tag = own.state & ON_TAG != 0;
        if tag {
            return Next::To(Op::Bring);
        }
        if self.is(Mutant::GenerationBeforeMode) && program == Program::SwitchIn {
            return Next::To(Op::Bring);
        }
        Next::Following
    }

    fn publish_loaded(&self, state: &mut State, me: usize, program: Program) -> Next<Op> {
        let memory = &mut state.memory;
        let own = &mut state.cpus[me];
        let kind = own.word & KIND;
        own.state = A | own.state & ON_TAG;
        if memory.load(me, STATE + me) != own.state {
            memory.release(me, STATE + me, own.state);
        }
        if program == Program::Flush {
            let only_interrupts = self.is(Mutant::TransitionOnlyInterrupts) && kind == TRANSITION
                || self.only_interrupts && kind == DEMOTING;
            return match kind {
                PER_CPU => Next::To(Op::Look(0)),
                _ if only_interrupts => Next::To(Op::Scan(0)),
                _ => Next::To(Op::Broadcast),
            };
        }
        Next::Following
    }

    /// Ends the transition, or the demotion, if no CPU is on the wrong kind of tag.
    fn settle(&self, state: &mut State, me: usize) -> Next<Op> {
        let memory = &mut state.memory;
        let own = &mut state.cpus[me];
        let kind = own.word & KIND;
        let (word, stragglers) = (own.word, own.stragglers);
        let early = match kind {
            DEMOTING => self.is(Mutant::DemotionEndsEarly),
            _ => self.is(Mutant::TransitionEndsEarly) || self.is(Mutant::TransitionOnlyBroadcasts),
        };
        own.targets |= stragglers;
        own.stragglers = 0;
        if stragglers == 0 || early {
            let next = match kind {
                DEMOTING if self.is(Mutant::NoEra) => PER_CPU,
                DEMOTING => PER_CPU | ((word & !KIND) + ONE_ERA),
                _ => SYSTEM | (word & !KIND),
            };
            let found = memory.update(me, MODE, |old| if old == word { next } else { old });
            if found == word && kind == DEMOTING {
                return Next::Following;
            }
        }
        self.after_settling(kind, stragglers)
    }

    fn freed_first(&self) -> bool {
        self.is(Mutant::FreedBeforeInvalidation) || self.is(Mutant::FreedBeforeSync)
    }

    /// Whether the CPU's position leaves the space that it runs unchanged.
    fn is_quiet(own: &Cpu) -> bool {
        own.at
            .is_none_or(|at| matches!(at.program, Program::Flush | Program::Change))
    }

    /// Whether a CPU may access user addresses of A.
    fn in_user(own: &Cpu) -> bool {
        own.state & (SPACE | LAZY | SWITCHING) == A && Self::is_quiet(own)
    }
}

impl Protocol for Promotion {
    const NAME: &str = "promotion";

    type Program = Program;
    type Op = Op;
    type Own = Own;
    type Shared = Shared;
    const PROGRAMS: &[Program] = &[
        Program::Flush,
        Program::Change,
        Program::SwitchIn,
        Program::SwitchOut,
        Program::GoLazy,
        Program::LeaveLazy,
    ];
    const SERVE: Option<Program> = Some(Program::Serve);

    const SOUND: &[(&str, Self)] = &[
        ("promoted under a CPU that wanders", PROMOTED),
        ("on the tag", SYSTEM_WIDE),
        ("demoted under a CPU that wanders", DEMOTED),
        ("to the tag and back", ROUND),
        ("promoted by another than flushes", OTHERWISE),
        ("2 requesters in one transition", TOGETHER),
        ("2 requesters, demoted twice", AGAIN),
        // CPUs on the tag are interrupted and waited for, so the broadcast of each flush is more than needed.
        (
            "demoted without broadcasts",
            Promotion {
                only_interrupts: true,
                ..DEMOTED
            },
        ),
        (
            "2 requesters, demoted without broadcasts",
            Promotion {
                only_interrupts: true,
                ..AGAIN
            },
        ),
        (
            "promoted, 2 CPUs wander",
            Promotion {
                cpus: 3,
                migrates: [0, 1, 1],
                ..PROMOTED
            },
        ),
        (
            "demoted, 2 CPUs wander",
            Promotion {
                cpus: 3,
                migrates: [0, 1, 1],
                ..DEMOTED
            },
        ),
    ];

    fn start(&self) -> State {
        let mut state = State {
            memory: Memory::default(),
            cpus: [Cpu::default(); CPUS],
            shared: Shared {
                tag_free: self.mode == PER_CPU,
                complete: 0,
            },
        };
        state.memory.set(GENERATION, 1);
        state.memory.set(MODE, self.mode);
        (0..PAGES).for_each(|page| state.memory.set(ENTRY + page, 1));
        let on_tag = matches!(self.mode, SYSTEM | DEMOTING);
        for cpu in 0..self.cpus {
            let own = &mut state.cpus[cpu];
            (own.flushes, own.changes, own.left) = (self.flushes[cpu], self.changes[cpu], self.migrates[cpu]);
            (own.root, own.state) = (A, A | if on_tag { ON_TAG } else { 0 });
            (own.seen, own.slot, own.on_tag) = (1, ALL_PAGES, on_tag);
            own.tag = if on_tag { ALL_PAGES } else { 0 };
            state.memory.set(STATE + cpu, own.state);
            state.memory.set(MEMBER + cpu, 1);
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
        match program {
            _ if own.at.is_some() => false,
            Program::Flush => own.flushes > 0,
            Program::Change => own.changes > 0,
            Program::Serve => false,
            _ if own.left == 0 => false,
            Program::SwitchIn => own.state & SPACE != A,
            Program::SwitchOut => own.state & SPACE == A,
            Program::GoLazy => own.state & (SPACE | LAZY) == A,
            Program::LeaveLazy => own.state & (SPACE | LAZY) == A | LAZY,
        }
    }

    fn begin(&self, cpu: &mut Cpu, program: Program) {
        match program {
            Program::Flush => cpu.flushes -= 1,
            Program::Change => cpu.changes -= 1,
            _ => cpu.left -= 1,
        }
    }

    fn carry_out(&self, state: &mut State, cpu: usize, program: Program, op: Op) -> Next<Op> {
        let me = cpu;
        let page = (program == Program::Flush).then(|| self.page(state, me));
        let memory = &mut state.memory;
        let own = &mut state.cpus[me];
        let kind = own.word & KIND;
        match op {
            Op::ClearEntry => memory.store(me, ENTRY + page.expect("a flush"), 0),
            Op::Glance | Op::Publish | Op::DispatchUnderTag => return self.publish_under_tag(state, me, op),
            Op::Increment => return self.increment(state, me),
            Op::Dispatch => return self.dispatch(state, me, program),
            Op::ReadMode => return self.read_mode(state, me, program),
            Op::Barrier => memory.barrier(me),
            Op::ReadGeneration => own.read = memory.load(me, GENERATION),
            Op::Bring => {
                own.root = A;
                own.on_tag = own.state & ON_TAG != 0;
                if !own.on_tag && own.seen != own.read {
                    (own.slot, own.seen) = (0, own.read);
                }
            }
            Op::PublishLoaded => return self.publish_loaded(state, me, program),
            Op::Broadcast => {
                let pages = 1 << page.expect("a flush");
                state
                    .cpus
                    .iter_mut()
                    .for_each(|other| other.doomed[me] = other.tag & pages);
            }
            Op::Sync | Op::SyncTag => {
                let kind = own.word & KIND;
                for other in &mut state.cpus {
                    other.tag &= !std::mem::take(&mut other.doomed[me]);
                }
                if op == Op::Sync && kind == SYSTEM {
                    return Next::To(Op::Complete);
                }
                if op == Op::SyncTag && self.freed_first() {
                    return Next::To(Op::Look(0));
                }
            }
            Op::Scan(other) => {
                let of = usize::from(other);
                let (member, seen) = (memory.load(me, MEMBER + of), memory.load(me, STATE + of));
                let wrong = if kind == DEMOTING { ON_TAG } else { 0 };
                let straggles = seen & (SPACE | SWITCHING) == A && seen & ON_TAG == wrong;
                own.stragglers |= u8::from(of != me && member != 0 && straggles) << other;
            }
            Op::Settle => return self.settle(state, me),
            Op::BroadcastTag => state.cpus.iter_mut().for_each(|other| other.doomed[me] = other.tag),
            Op::FreeTag => {
                let targets = own.targets;
                state.shared.tag_free = true;
                if !self.freed_first() {
                    return self.after_settling(DEMOTING, targets);
                }
            }
            Op::Look(other) => {
                let of = usize::from(other);
                let (member, seen) = (memory.load(me, MEMBER + of), memory.load(me, STATE + of));
                let concerned = seen & SWITCHING != 0 || seen & (SPACE | LAZY) == A;
                own.targets |= u8::from(of != me && member != 0 && concerned) << other;
            }
            Op::Send => state.send(me),
            Op::Wait => {}
            Op::Complete => state.shared.complete |= 1 << page.expect("a flush"),
            Op::Allocate => {
                if !std::mem::take(&mut state.shared.tag_free) {
                    return Next::End;
                }
                return Next::To(Op::Exchange);
            }
            Op::CountDemotion if self.is(Mutant::DemotionNotCounted) => {}
            Op::CountDemotion => {
                memory.update(me, GENERATION, |old| old + 1);
            }
            Op::Exchange => {
                let (word, tag) = (own.word, own.word & KIND == PER_CPU);
                let next = (word & !KIND) | if tag { TRANSITION } else { DEMOTING };
                let found = memory.update(me, MODE, |old| if old == word { next } else { old });
                state.shared.tag_free |= tag && found != word;
                if tag || found != word {
                    return Next::End;
                }
            }
            Op::PublishSwitching => {
                own.state = Self::goal(program) | SWITCHING;
                memory.release(me, STATE + me, own.state);
            }
            Op::Join if program == Program::SwitchIn => {
                memory.enter(me, MEMBER + me, self.is(Mutant::JoinWithoutBarrier));
            }
            Op::Join => memory.barrier(me),
            Op::LoadOther => (own.root, own.on_tag) = (Self::goal(program), false),
            Op::PublishOther => {
                own.state = Self::goal(program);
                memory.release(me, STATE + me, own.state);
            }
            Op::Depart => {
                if memory.load(me, MODE) & KIND != SYSTEM {
                    memory.update(me, MEMBER + me, |_| 0);
                }
                if program == Program::Serve {
                    return Next::To(Op::Acknowledge);
                }
            }
            Op::PublishLazy | Op::PublishNotLazy => {
                own.state ^= LAZY;
                memory.release(me, STATE + me, own.state);
            }
            Op::Take => {
                state.take_request(me);
                return match state.cpus[me].state {
                    elsewhere if elsewhere & SPACE != A => Next::To(Op::Acknowledge),
                    // Before anything that involves tags (regression 6).
                    lazy if lazy & LAZY != 0 => Next::Following,
                    _ => Next::To(Op::ReadMode),
                };
            }
            Op::Acknowledge => state.acknowledge(me),
        }
        Next::Following
    }

    fn waits(&self, state: &State, cpu: usize, op: Op) -> bool {
        match op {
            Op::Wait => state.cpus[cpu].targets != 0,
            Op::Scan(other) => {
                let of = usize::from(other);
                let member = state.memory.load(cpu, MEMBER + of) != 0;
                let switching = state.memory.load(cpu, STATE + of) & SWITCHING != 0;
                of != cpu && member && switching && !self.is(Mutant::SwitchingNotWaitedOut)
            }
            _ => false,
        }
    }

    /// A flush masks interrupts for its local part.
    fn is_open(&self, cpu: &Cpu) -> bool {
        use Op::{Bring, PublishLoaded, ReadGeneration};
        let masks = |op| matches!(op, ReadGeneration | Bring | PublishLoaded);
        cpu.outer.is_none() && Self::is_quiet(cpu) && !next_op(self, cpu).is_some_and(masks)
    }

    fn ended(&self, cpu: &mut Cpu, _: Program) {
        (cpu.read, cpu.serving) = (0, 0);
        // A requester that served keeps the word that it dispatched on.
        cpu.word = if cpu.at.is_none() { 0 } else { cpu.word };
    }

    fn fill(&self, state: &mut State) {
        let visible = |page: usize| state.memory.visible(ENTRY + page) << page;
        let reach = (0..PAGES).map(visible).sum::<u8>();
        for own in state.cpus.iter_mut().filter(|own| own.root == A) {
            if own.on_tag {
                own.tag |= reach;
                own.doomed.iter_mut().for_each(|doomed| *doomed &= !reach);
            } else {
                own.slot |= reach;
            }
        }
    }

    fn is_over(&self, state: &State) -> bool {
        state.cpus.iter().all(|own| own.at.is_none() && own.flushes == 0)
    }

    fn broken(&self, state: &State) -> Option<Claim> {
        for own in &state.cpus[..self.cpus] {
            if state.shared.tag_free && (own.on_tag || own.tag != 0) {
                return Some(Claim::C4);
            }
            let cached = if own.on_tag { own.tag } else { own.slot };
            if own.root == A && Self::in_user(own) && cached & state.shared.complete != 0 {
                return Some(Claim::C1);
            }
        }
        None
    }
}
