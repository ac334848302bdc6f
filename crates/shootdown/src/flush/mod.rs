//! A flush, from the call to its proof.
//!
//! Owns the order of a flush: publish the entry writes, count the request, read the mode of the space's tag, then one
//! function for each mode. `adaptive/sampling.rs` times some of them.
//!
//! ```text
//!   mod.rs       flush, dispatch, flush_while       batch.rs         many spaces, one request
//!   targets.rs   which CPUs a request concerns      kernel_range.rs  kernel addresses
//!   token.rs     the wait, and the proof            deferred.rs      unmaps that interrupt no CPU
//!   straight.rs  the common flush of a space on     under_tag.rs     flushes that take no generation
//!                slots, at one other CPU at most    state.rs         what flushes keep
//!   any_tag.rs   what a batch may broadcast
//! ```
//!
//! # Invariants
//! * **C1** `publish_and_count`: a CPU that may use the space is interrupted or reached by a broadcast, or it reads the
//!   new generation before it fills anything. The barriers below decide which.
//! * **C2** `Flushed` is created after the wait, and nowhere else.
//! * **C3** `targets_present`: lazy CPUs are targets if page-table pages are freed.
//! * **C5** `add_target`, `wait_for_targets`: an offline CPU is neither interrupted nor waited for.
//!
//! # Barriers
//! The increment of the generation in `publish_and_count` is a full barrier between the entry writes and the reads of
//! mode, set and states. (`Batch::add`, `flush_later` and `retire` do the same.) Under a tag that rolls over, or can be
//! taken back, no CPU compares generations: a barrier without a write takes the place of the increment
//! (`publish_uncounted`). In each pair the other CPU writes, passes a full barrier, and reads. So either the requester
//! sees what it wrote, or it sees the generation and the entries.
//!
//! ```text
//!   requester                           CPU that switches, cpu/switch.rs switch_to_masked
//!     write entries                       publish "switching"
//!     generation += 1   (full barrier)    join the set   (full barrier)
//!     read mode, set, states              read mode, then generation; load the root; fill
//!   ─ sees the member: interrupts it    ─ or this CPU's slot is behind: it flushes as it loads
//!
//!   requester, tags roll over           CPU that switches, tags/rollover.rs rolled_tag
//!     write entries                       join the set   (full barrier)
//!     publish_tables_full                 mode := tag, or this CPU runs under it   (swap or compare-exchange, full)
//!     read mode, set                      load the root; fill
//!   ─ broadcasts the tag it reads       ─ or the tag is newer than the entries, so every fill sees them
//!
//!   requester                           CPU that ends lazy TLB mode, cpu/switch.rs leave_lazy_here
//!     write entries                       clear "lazy"
//!     generation += 1   (full barrier)    full barrier   (user_access_ok in NMI context has its own)
//!     read state                          read generation; catch up
//!   ─ not lazy: interrupts it           ─ or catches up
//!
//!   requester                           promotion, tags/promotion.rs promote
//!     write entries                       mode := Transition(tag)   (compare-exchange, full barrier)
//!     generation += 1   (full barrier)    CPUs read the mode, then load the tag and fill under it
//!     read mode
//!   ─ has the tag: broadcasts under it  ─ or every fill under the tag sees the entries
//!
//!   requester, space has the tag        demotion, tags/demotion.rs consider_demotion
//!     write entries                       generation += 1
//!     publish_tables_full                 mode := Demoting(tag)   (compare-exchange, full barrier)
//!     read mode                           CPUs read the mode (acquire), then the generation; take a slot and fill
//!   ─ not System: as on slots           ─ or every slot is behind, is flushed, and its fills see the entries
//!
//!   requester                           target, transport/handler.rs take_posts and request.rs take
//!     write entries                       take the post, or the ready bits   (full barrier)
//!     generation += 1   (full barrier)    read generation and log; invalidate
//!     post or queue     (full barrier)    acknowledge   (release or full barrier)
//!     wait              (acquire)       ─ everything published before the post is invalidated
//!
//!   requester, flush_kernel             CPU that comes online, cpu/hotplug.rs come_online
//!     write entries                       publish "on"
//!     kernel generation += 1 (full)       join the online set   (full barrier)
//!     read the online set                 flush everything
//!   ─ sees the CPU: interrupts it       ─ or what it fills is new
//! ```
//!
//! `stragglers` has a separate full barrier between the mode and the set, for the same pair with the join.

pub(crate) mod any_tag;
pub(crate) mod batch;
pub(crate) mod deferred;
pub(crate) mod gather;
pub(crate) mod kernel_range;
pub(crate) mod state;
pub(crate) mod straight;
pub(crate) mod targets;
pub(crate) mod token;
pub(crate) mod under_tag;

use crate::cpu::state::PerCpu;
use crate::cpuset::CpuMask;
use crate::design::{Errata, Order, Reach, Requests};
use crate::engine::Engine;
use crate::facade::{Facade, Word};
use crate::flush::state::Straight;
use crate::flush::token::{Flushed, Token};
use crate::hooks::{CpuId, Kernel};
use crate::range::Range;
use crate::space::{Mode, Space};
use crate::transport::request::Asked;
use core::sync::atomic::Ordering;

/// A flush whose generation is taken. Migration is pinned until it is sent.
#[derive(Clone, Copy)]
pub(crate) struct Flush<'s, F: Facade, const W: usize> {
    pub(crate) space: &'s Space<F, W>,
    pub(crate) range: Range,
    /// 0 if none was taken, because no CPU compares generations under the space's tag (`under_tag.rs`).
    pub(crate) generation: u64,
    /// The word of the space's [`Mode`], read after the request was counted.
    pub(crate) mode: u64,
    /// The ticket of the last command to secondary TLBs, which must be complete before the proof; 0 if there is none.
    pub(crate) secondary: u64,
}

impl<'k, K: Kernel<W>, const W: usize> Engine<'k, K, W> {
    /// Flushes `range` of `space` everywhere and waits. The entry writes must come before the call.
    ///
    /// Calling context: preemption may be on, interrupts should be on. With interrupts off it still makes progress, by
    /// serving its own requests while it waits. Not from the shootdown interrupt, NMI or machine-check handlers. Device
    /// interrupt handlers may call it, even if they interrupted a flush. The exception is broadcasts by remote actions
    /// ([`Rar`](crate::Rar)), of which a CPU has one in progress. No allocation, no lock.
    ///
    /// Locks: hold none that another CPU may be spinning for with interrupts off, unless that loop calls
    /// [`poll`](Self::poll): such a CPU does not answer, and both wait forever. A lock whose waiters keep interrupts on
    /// may be held.
    ///
    /// Cost when no other CPU uses the space: one locked add, the log entry if the design has a log, the invalidations.
    /// Under a tag that rolls over, or that can be taken back: a full barrier, the broadcast, and no write to a line
    /// that CPUs share.
    #[inline]
    pub fn flush(&self, space: &Space<K::Facade, W>, range: Range) -> Flushed {
        self.flush_inlined(space, range)
    }

    /// [`flush`](Self::flush), always inlined: tests of a range that the caller knows, of one page for example, fall
    /// away. Each call takes some 600 bytes of code on x86-64, as in `shootdown_flush_pages` of the C library.
    #[inline(always)]
    pub fn flush_inlined(&self, space: &Space<K::Facade, W>, range: Range) -> Flushed {
        if matches!(self.straight(), Straight::RollOver | Straight::Control) || self.is_uncounted(space) {
            // Not inlined: flushes on slots would save registers for it.
            return self.flush_apart(space, range);
        }
        let pin = self.pinned();
        let flush = self.publish_and_count(space, range);
        let Some(common) = self.common_kind(&flush, pin.cpu) else {
            // A tail call, so that this frame is not on the stack meanwhile (`cargo xtask stack`).
            pin.hand_over();
            return self.flush_any(space, range, flush.generation, flush.secondary);
        };
        self.flush_straight(&flush, common, pin)
    }

    /// A flush of any kind, and the wait.
    #[inline]
    pub(super) fn flush_otherwise(&self, space: &Space<K::Facade, W>, range: Range) -> Flushed {
        self.pinned().hand_over();
        self.flush_any(space, range, 0, 0)
    }

    /// The same, after the request was counted, or, with generation 0, before it is published. Takes over the caller's
    /// pin.
    #[inline(never)]
    fn flush_any(&self, space: &Space<K::Facade, W>, range: Range, generation: u64, secondary: u64) -> Flushed {
        let mut token = self.token(space.id, generation);
        token.at_once = true;
        token.tables = range.tables();
        token.secondary.set(secondary);
        token.sends(|token| self.send(token, space, range));
        token.wait_in_place();
        token.proof()
    }

    /// Begins a flush; see [`flush`](Self::flush). Pinned for the local part, the choice of targets and the send; the
    /// token waits.
    ///
    /// Designs with stack requests complete the flush inside, because their descriptors cannot outlive this call:
    /// pinned to the end if waits spin, with preemption on if they are preemptible. The token then waits only for TLBs
    /// of devices.
    ///
    /// # Panics
    /// In debug builds, if it must wait for a CPU and is called from the shootdown handler.
    pub fn dispatch<'e>(&'e self, space: &Space<K::Facade, W>, range: Range) -> Token<'e, 'k, K, W> {
        let mut token = self.token(space.id, 0);
        token.tables = range.tables();
        token.sends(|token| self.dispatch_any(token, space, range));
        token
    }

    /// [`dispatch`](Self::dispatch). If it uses interrupts it interrupts lockless walkers too, and the token records
    /// that.
    pub(crate) fn dispatch_with_walkers<'e>(
        &'e self,
        space: &Space<K::Facade, W>,
        range: Range,
    ) -> Token<'e, 'k, K, W> {
        let mut token = self.token(space.id, 0);
        token.at_once = true;
        token.tables = range.tables();
        token.with_walkers = true;
        token.sends(|token| self.dispatch_any(token, space, range));
        token
    }

    /// Flushes as [`flush`](Self::flush), and calls `meanwhile` between send and wait: while the targets answer, or
    /// while a broadcast is in progress. `meanwhile` must not need the proof that the flush is complete. For example it
    /// may release the lock that protects the page tables, if the next holder checks for a pending flush
    /// ([`flush_pending`](Self::flush_pending), or a count of unmaps in progress). With [`Order::Serial`], and where
    /// requests are on the stack, the flush is complete before `meanwhile` begins.
    ///
    /// `meanwhile` may be called pinned and must not sleep, switch spaces or flush: on the processors concerned the
    /// synchronising instruction waits only for broadcasts of its own CPU.
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
        let mut token = self.token(space.id, 0);
        token.at_once = true;
        token.leaves_broadcast = true;
        token.sends(|token| self.dispatch_any(token, space, range));
        let issued = token
            .left_broadcast()
            .map(|instructions| (instructions, self.still_pinned()));
        let result = meanwhile();
        if let Some((instructions, _pin)) = issued {
            self.synchronise(instructions);
            self.broadcast_over(instructions);
        }
        token.wait_in_place();
        (Flushed::new(space.id, range.tables()), result)
    }

    /// The first steps of every flush: makes the entry writes visible, counts the request unless its tag makes that
    /// needless, and reads the mode. Pinned.
    #[inline]
    fn publish_request<'s>(&self, space: &'s Space<K::Facade, W>, range: Range) -> Flush<'s, K::Facade, W> {
        match self.publish_under_tag(space) {
            Some(mode) => self.published_request(space, range, 0, mode),
            None => self.publish_and_count(space, range),
        }
    }

    /// The same, counted in any case.
    #[inline]
    fn publish_and_count<'s>(&self, space: &'s Space<K::Facade, W>, range: Range) -> Flush<'s, K::Facade, W> {
        self.publish_tables();
        // C1: entry writes, full barrier, then the reads of mode, set and states. The head of this file names the
        // partners.
        let generation = space.log.generation.fetch_add_full(1) + 1;
        // Relaxed: the increment orders it. Each word of a CPU has its own acquire. Where the mode must be read before
        // them, a separate barrier orders that (`stragglers`).
        self.published_request(space, range, generation, self.mode_word(space, Ordering::Relaxed))
    }

    /// What follows on either barrier: TLBs of devices are told.
    #[inline]
    fn published_request<'s>(
        &self,
        space: &'s Space<K::Facade, W>,
        range: Range,
        generation: u64,
        mode: u64,
    ) -> Flush<'s, K::Facade, W> {
        Flush {
            space,
            range,
            generation,
            mode,
            secondary: self.notify_secondary(space, &range),
        }
    }

    /// [`dispatch`](Self::dispatch), into a new token that is not moved, because it is large.
    fn dispatch_any(&self, token: &Token<'_, 'k, K, W>, space: &Space<K::Facade, W>, range: Range) {
        if self.policy().reach.is_control() {
            return self.flush_as_control(space, &range);
        }
        self.pinned().hand_over();
        self.send(token, space, range);
    }

    /// The next step: publishes the request, unless the token has its generation already, and sends it as the mode of
    /// the space's tag says. Takes over the caller's pin.
    // Not inlined: the wait needs no room for this. Each branch is a tail call (`cargo xtask stack`).
    #[inline(never)]
    fn send(&self, token: &Token<'_, 'k, K, W>, space: &Space<K::Facade, W>, range: Range) {
        let word = match token.generation.get() {
            0 => {
                let flush = self.publish_request(space, range);
                token.generation.set(flush.generation);
                token.secondary.set(flush.secondary);
                flush.mode
            }
            _ => self.mode_word(space, Ordering::Relaxed),
        };
        match self.unpack_mode(word) {
            Mode::PerCpu => self.send_on_slots(token, space, range),
            Mode::System(_) => self.send_under_tag(token, space, range, word),
            Mode::Transition(_) => self.send_in_transition(token, space, range, word),
            Mode::Demoting(_) => self.send_in_demotion(token, space, range, word),
            Mode::Rolled { .. } => self.send_rolled(token, space, range, word),
        }
    }

    /// Flushes a space on per-CPU tags: by interrupts to the CPUs that have it loaded, or by a broadcast under every
    /// tag where that is expected to cost less. Takes over the caller's pin.
    #[inline(never)]
    fn send_on_slots(&self, token: &Token<'_, 'k, K, W>, space: &Space<K::Facade, W>, range: Range) {
        let pin = self.still_pinned();
        let broadcasts = self.choose_targets(token, space, range);
        pin.hand_over();
        if broadcasts {
            return self.send_under_any_tag(token, space, range);
        }
        if self.follows_interrupts() {
            self.interrupt_targets(token, Asked::space(space.id), range);
            self.sampled_interrupts(token, space);
        } else {
            // A tail call.
            self.interrupt_targets(token, Asked::space(space.id), range);
        }
    }

    /// Chooses the targets of the token, of a space on per-CPU tags, and writes the log. Returns whether a broadcast
    /// under every tag is expected to cost less than interrupts. Pinned.
    // Not inlined: the request needs no room for this.
    #[inline(never)]
    fn choose_targets(&self, token: &Token<'_, 'k, K, W>, space: &Space<K::Facade, W>, range: Range) -> bool {
        let me = self.kernel.cpu();
        let sample = self.begin_sample(token, me);
        // With no other CPU in the set, no CPU needs a log entry, and there are no targets. A slot that is behind
        // across this generation, or across a broadcast, which leaves no entry either, flushes everything (C6).
        if self.runs_alone(space, me) {
            return false;
        }
        if self.policy().requests == Requests::Log {
            space.log.append(token.generation.get(), &range);
        }
        // A post cannot name the space whose set a CPU is to leave, so only a caller that waits here can request that.
        let may_trim = token.at_once || self.policy().requests != Requests::Log;
        let (mut targets, departing) = self.targets_and_departed(space, range.tables(), me, may_trim);
        // The descriptor may also tell a target to leave: it may have left the space before it answers.
        if departing || self.departs_on_request() && self.policy().requests == Requests::PerRequest {
            token.depart_from(space);
        }
        // A broadcast removes no CPU from a set and proves nothing about walks; an early synchronisation proves nothing
        // at all.
        let by_interrupts = token.with_walkers || departing || self.machine().errata.interrupt_too;
        let broadcasts = !by_interrupts && self.prefer_broadcast(space, &targets, &range, sample);
        if token.with_walkers {
            let walking = self.walkers_of(space, me);
            token.add_walkers(space, &walking, &mut targets);
        }
        token.targets.set(targets);
        broadcasts
    }

    /// Broadcasts under every tag in place of interrupts to the targets of the token. Takes over the caller's pin.
    #[inline(never)]
    fn send_under_any_tag(&self, token: &Token<'_, 'k, K, W>, space: &Space<K::Facade, W>, range: Range) {
        let pin = self.still_pinned();
        let targets = token.targets.replace(CpuMask::EMPTY).len();
        self.broadcast_any_tag(core::slice::from_ref(&range), targets);
        drop(pin);
        self.sampled_any_tag(token, space, targets);
    }

    /// Flushes a space on a system-wide tag: by one broadcast. Takes over the caller's pin.
    #[inline(never)]
    fn send_under_tag(&self, token: &Token<'_, 'k, K, W>, space: &Space<K::Facade, W>, range: Range, word: u64) {
        let (pin, tag) = (self.still_pinned(), Mode::tag_in(word));
        let me = pin.cpu;
        let sample = self.begin_sample(token, me);
        let looks = sample.is_some_and(|sample| self.looks(space, sample));
        // A request that may end in demotion has more to do while pinned than to wait for its broadcast.
        if token.leaves_broadcast && !looks && self.machine().errata == Errata::NONE {
            token.leave_broadcast(self.issue_for(space, me, tag, &range));
            return pin.hand_over();
        }
        let any = self.broadcast_and_sync(space, me, tag, &range);
        // Interrupts that follow are no part of the sample.
        token.timed.set(false);
        if self.machine().errata.interrupt_too {
            self.ipi_after_broadcast(token, space, pin);
        } else if looks {
            if any {
                self.learn_broadcast(token);
            }
            pin.hand_over();
            self.consider_demotion(token, space, word);
        }
    }

    /// The local part of a flush of a space on per-CPU tags. Nothing if the space is not loaded here: its slot is
    /// behind and catches up at the next switch-in. Otherwise partial if rule 2 allows, or a catch-up.
    #[inline]
    pub(crate) fn flush_here(&self, me: CpuId, space: &Space<K::Facade, W>, generation: u64, range: Range) {
        self.flush_on(&self.cpus[me], space, generation, &range);
    }

    /// [`flush_here`](Self::flush_here), on this CPU, whose data are `cpu`.
    pub(crate) fn flush_on(
        &self,
        cpu: &PerCpu<K::Facade>,
        space: &Space<K::Facade, W>,
        generation: u64,
        range: &Range,
    ) {
        self.masked(|| self.flush_on_masked(cpu, space, generation, *range));
    }

    /// As [`flush_on`](Self::flush_on), with interrupts off.
    // Not inlined: a tail call for those that have interrupts off.
    #[inline(never)]
    pub(crate) fn flush_on_masked(
        &self,
        cpu: &PerCpu<K::Facade>,
        space: &Space<K::Facade, W>,
        generation: u64,
        range: Range,
    ) {
        if cpu.state().id() != space.id {
            return;
        }
        if self.flush_next(cpu, space, generation, &range).is_some() {
            return;
        }
        self.flush_here_otherwise(cpu, space);
    }

    /// The local part where the slot is behind by more than this range. Interrupts off.
    #[cold]
    fn flush_here_otherwise(&self, cpu: &PerCpu<K::Facade>, space: &Space<K::Facade, W>) {
        // Then it is on a slot: while a CPU is on the tag of a space the space has a tag.
        if self.mode(space) == Mode::PerCpu {
            self.catch_up(cpu, space);
        } else {
            self.sync_loaded_space(cpu);
        }
    }

    /// A flush under a negative control: the local part and secondary TLBs, or nothing.
    #[cold]
    pub(crate) fn flush_as_control(&self, space: &Space<K::Facade, W>, range: &Range) {
        if self.policy().reach == Reach::Local {
            let ticket = {
                let pin = self.pinned();
                let flush = self.publish_request(space, *range);
                self.flush_here(pin.cpu, space, flush.generation, *range);
                flush.secondary
            };
            self.await_secondary(ticket);
        }
    }
}
