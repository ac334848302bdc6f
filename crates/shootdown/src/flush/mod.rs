//! Flushing a range of one space: counting the request, its way by the mode of the space's tag, the local part.

pub(crate) mod batch;
pub(crate) mod deferred;
pub(crate) mod gather;
pub(crate) mod kernel_range;
pub(crate) mod local_first;
pub(crate) mod targets;
pub(crate) mod token;

use crate::cpuset::CpuMask;
use crate::design::{Errata, Order, Reach, Requests};
use crate::engine::{Engine, Pinned};
use crate::facade::Word;
use crate::flush::token::{Flushed, Token};
use crate::hooks::{CpuId, Event, Kernel, Tag, Way};
use crate::range::Range;
use crate::space::{Mode, Space};
use crate::transport::request::Asked;
use core::sync::atomic::Ordering;

/// A broadcast that was issued and not yet synchronised; migration stays pinned until it is.
struct Issued<'e, K: Kernel<W>, const W: usize> {
    instructions: u32,
    _pin: Pinned<'e, K, W>,
}

impl<'k, K: Kernel<W>, const W: usize> Engine<'k, K, W> {
    /// Flushes `range` of `space` everywhere and waits. The entry writes must come before the call.
    ///
    /// Calling context: preemption may be on, interrupts should be on (with interrupts off it still makes progress, by
    /// serving its own requests while it waits). Not from the shootdown interrupt, NMI or machine-check handlers. From
    /// those of devices it may be called, on top of a flush that they came in on, but where broadcasts are remote
    /// actions ([`Rar`](crate::Rar)), of which a CPU has one under way. No allocation, no lock.
    ///
    /// Locks: hold none that another CPU may be spinning for with interrupts off, unless that loop calls
    /// [`poll`](Self::poll): such a CPU does not answer, and both wait for ever. A lock whose waiters keep interrupts
    /// on may be held.
    ///
    /// Cost when no other CPU uses the space: one locked add, the log entry if the design has a log, the invalidations.
    #[inline]
    pub fn flush(&self, space: &Space<K::Facade, W>, range: Range) -> Flushed {
        let mut token = self.token(space.id, 0);
        token.at_once = true;
        self.dispatch_into(&mut token, space, range, false, None);
        token.wait_in_place();
        Flushed::new(space.id, range.tables())
    }

    /// Begins a flush; see [`flush`](Self::flush). Pinned for the local part, choosing targets and sending; the waiting
    /// is the token's.
    ///
    /// Designs with stack requests finish inside (their descriptors cannot outlive this call): pinned to the end when
    /// the design spins, with preemption on when its waits are preemptible. The token then waits for TLBs of devices
    /// only.
    ///
    /// # Panics
    /// In debug builds, when somebody must be waited for and this is called from the shootdown handler.
    pub fn dispatch<'e>(&'e self, space: &Space<K::Facade, W>, range: Range) -> Token<'e, 'k, K, W> {
        let mut token = self.token(space.id, 0);
        token.tables = range.tables();
        self.dispatch_into(&mut token, space, range, false, None);
        token
    }

    /// [`dispatch`](Self::dispatch), where it goes by interrupts telling lockless walkers too: then the token says so.
    pub(crate) fn dispatch_telling<'e>(&'e self, space: &Space<K::Facade, W>, range: Range) -> Token<'e, 'k, K, W> {
        let mut token = self.token(space.id, 0);
        token.at_once = true;
        token.tables = range.tables();
        self.dispatch_into(&mut token, space, range, true, None);
        token
    }

    /// Flushes as [`flush`](Self::flush), and calls `meanwhile` between asking and waiting: while the targets answer,
    /// or while a broadcast is under way. What is done there needs no proof that the flush is complete: letting go of
    /// the lock that protects the page tables, for one, where whoever takes it next minds that a flush is pending
    /// ([`settle`](Self::settle), or a count of unmaps under way). With [`Order::Serial`], and where requests are on
    /// the stack, everything is over before `meanwhile` begins.
    ///
    /// `meanwhile` may be called pinned and must not sleep, switch spaces or flush: on the processors concerned the
    /// synchronising instruction waits for broadcasts of its own CPU only.
    pub fn flush_while<T>(
        &self,
        space: &Space<K::Facade, W>,
        range: Range,
        meanwhile: impl FnOnce() -> T,
    ) -> (Flushed, T) {
        if self.policy().order == Order::Serial {
            let done = self.flush(space, range);
            return (done, meanwhile());
        }
        let mut issued = None;
        let mut token = self.token(space.id, 0);
        token.at_once = true;
        self.dispatch_into(&mut token, space, range, false, Some(&mut issued));
        let result = meanwhile();
        if let Some(Issued { instructions, _pin }) = issued {
            self.synchronise(instructions);
            self.broadcast_over(instructions);
        }
        token.wait_in_place();
        (Flushed::new(space.id, range.tables()), result)
    }

    /// [`dispatch`](Self::dispatch), into a new token that stays where it is: it is large. With `walkers`, and where it
    /// goes by interrupts, one request tells lockless walkers too. Where a broadcast is all it takes and `held` is
    /// given, that is left to be synchronised.
    fn dispatch_into<'e>(
        &'e self,
        token: &mut Token<'e, 'k, K, W>,
        space: &Space<K::Facade, W>,
        range: Range,
        walkers: bool,
        held: Option<&mut Option<Issued<'e, K, W>>>,
    ) {
        if self.policy().reach == Reach::None {
            return;
        }
        let pin = self.pinned();
        let me = pin.cpu;
        self.publish_tables();
        // C1: entry writes, then this full barrier, then the reads of mode, set and states below. Pairs with the join
        // of `switch_to` (step 2), the barrier of `leave_lazy_here`, the compare-exchange of `promote`, the take of
        // `serve`.
        let generation = space.log.generation.fetch_add_full(1) + 1;
        token.generation = generation;
        let sample = self.sample(generation);
        let begun = sample.map(|_| self.kernel.now_ns());
        // Relaxed: what is read of CPUs comes after the same barrier, and each of those words is acquired by itself;
        // where the mode has to come before them, they are read behind a barrier of their own (`stragglers`).
        let word = space.mode.0.load(Ordering::Relaxed);
        token.secondary = self.tell_secondary(space, &range);
        match Mode::unpack(word) {
            Mode::PerCpu => {
                // With nobody else in the set there is nobody to write a log entry for, nor to look for. A slot that is
                // behind across this generation, or across a broadcast, which leaves no entry either, flushes
                // everything (C6).
                let alone = self.runs_alone(space, me);
                if self.policy().requests == Requests::Log && !alone {
                    space.log.append(generation, &range);
                }
                let asked = Asked::space(space.id, generation, &range);
                // Where requests are posted, only who waits here in any case can tell CPUs to leave the set.
                let tells = token.at_once || self.policy().requests != Requests::Log;
                let (mut targets, departing) = if alone {
                    (CpuMask::EMPTY, false)
                } else {
                    self.targets_and_departed(space, range.tables(), me, tells)
                };
                // Who holds a descriptor anyway may be told, for it may leave before it answers.
                if departing || self.departs_when_asked() && self.policy().requests == Requests::PerRequest {
                    token.departed = core::ptr::from_ref(space).expose_provenance() as u64;
                }
                // A broadcast tells nobody to leave a set, it proves nothing about walks, and an early synchronisation
                // nothing at all.
                let by_interrupts = walkers || departing || self.machine().errata.interrupt_too;
                if !by_interrupts && self.rather_broadcast(space, &targets, &range, sample) {
                    self.kernel.event(Event::Chose {
                        way: Way::Broadcast,
                        targets: targets.len() as u32,
                    });
                    self.broadcast_any_tag(&range);
                    drop(pin);
                    if let Some(begun) = begun {
                        self.learn(Way::Broadcast, 0, self.since(begun));
                    }
                    self.consider_after_any_tag(space, me, begun.is_some(), targets.len());
                    return;
                }
                if walkers {
                    let walking = self.walkers_of(space, me);
                    token.tell(space, &walking, &mut targets);
                }
                // What it needs it has itself: nothing need stand in memory for its sake.
                self.interrupt(token, targets, asked, pin, move |engine| {
                    engine.flush_here(me, space, generation, range)
                });
                if let Some(begun) = begun {
                    let (asked, took) = (targets.len() as u64, self.since(begun));
                    if token.targets.is_empty() && asked > 0 {
                        // They hold descriptors, so all have answered.
                        self.learn(Way::Interrupts, asked, took);
                    } else {
                        token.timed = Some((asked, took));
                    }
                }
                self.consider(space, me, begun.is_some(), targets.len());
            }
            Mode::System(tag) => {
                let begun = begun.filter(|_| sample.is_some_and(|sample| self.looks(space, sample)));
                // A request that may end in demotion has more to do, pinned, than wait for its broadcast.
                if let Some(held) = held
                    && begun.is_none()
                    && self.machine().errata == Errata::NONE
                {
                    *held = Some(Issued {
                        instructions: self.issue_for(space, me, tag, &range),
                        _pin: pin,
                    });
                    return;
                }
                let any = self.broadcast_and_sync(space, me, tag, &range);
                if self.machine().errata.interrupt_too {
                    self.interrupt_besides(token, space, pin);
                } else if let Some(begun) = begun {
                    if any {
                        self.learn(Way::Broadcast, 0, self.since(begun));
                    }
                    self.consider_demotion(token, space, word, tag, pin);
                }
            }
            Mode::Transition(tag) => self.flush_in_transition(token, space, word, tag, &range, pin),
            Mode::Demoting(tag) => {
                self.log_if_kept(space, generation, &range);
                self.flush_in_demotion(token, space, word, tag, &range, pin);
            }
            Mode::Rolled { tag, .. } => self.flush_rolled(token, space, tag, &range, walkers, pin),
        }
    }

    /// The local part of a flush of a space on per-CPU tags: nothing if it is not loaded here (its slot is behind and
    /// catches up at the next switch-in), else partial if rule 2 allows, else whatever catching up takes.
    pub(crate) fn flush_here(&self, me: CpuId, space: &Space<K::Facade, W>, generation: u64, range: Range) {
        let cpu = &self.cpus[me];
        self.masked(|| {
            if cpu.state().id() != space.id {
                return;
            }
            if self.flush_next(cpu, space, generation, &range).is_some() {
                return;
            }
            // Then it is on a slot: while a CPU is on the tag of a space there is one.
            if space.mode() == Mode::PerCpu {
                self.catch_up(cpu, space);
            } else {
                self.follow_loaded(cpu);
            }
        });
    }

    /// The local part under a roll-over tag, whatever is loaded.
    pub(crate) fn flush_tag_here(&self, tag: Tag, range: &Range) {
        self.masked(|| {
            if range.is_walkable(self.policy().ceiling) {
                self.flush_range(tag, range);
            } else {
                self.flush_tag(tag);
            }
        });
    }
}
