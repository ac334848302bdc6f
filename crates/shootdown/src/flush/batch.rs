//! Batches: many changes in many spaces, one request (rules 8 and 9).
//!
//! Page reclaim unmaps scattered pages. Each [`add`](Batch::add) increments that space's generation and collects
//! targets. [`finish`](Batch::finish) interrupts all of them once, with a request that names no space. Where reach is
//! adaptive, and a few broadcasts under every tag are expected to cost less, it issues those instead. Until then every
//! space in the batch is marked *flush pending*, and code that relies on one of its cleared entries must call
//! [`Engine::flush_pending`] first (regressions 33 and 34).
//!
//! Such pages are not written to the flush log, so a CPU that catches up with them flushes its whole tag. An entry
//! costs a locked operation and two stores for each page. Tried by hand: with it the workload `reclaim` is up to 14 %
//! slower in 14 cells of five machines (1 to 72 CPUs), and in none faster by more than 0.5 %.

use crate::cpuset::CpuMask;
use crate::design::{Free, Reach};
use crate::engine::{Engine, Pinned};
use crate::facade::Word;
use crate::flush::any_tag::UnderAnyTag;
use crate::flush::token::{Flushed, SEVERAL};
use crate::hooks::{CpuId, Event, Kernel, Tag};
use crate::range::Range;
use crate::space::{Mode, Space};
use crate::transport::request::Asked;
use core::sync::atomic::Ordering;

/// Broadcasts held for one synchronisation. If there are more, the held ones are issued first.
const HELD: usize = 16;

/// A batch being collected. Dropping it finishes it: what was unmapped is flushed, and the proof is lost.
///
/// A CPU that [`finish`](Self::finish) interrupts flushes its whole tag, not page by page.
#[must_use = "finish the batch to get the proof that allows freeing"]
pub struct Batch<'e, 'k, K: Kernel<W>, const W: usize> {
    engine: &'e Engine<'k, K, W>,
    targets: CpuMask<W>,
    broadcasts: [(Tag, Range); HELD],
    held: usize,
    /// What targets on slots are interrupted for.
    on_slots: UnderAnyTag,
    empty: bool,
    /// The last ticket of the notifications to secondary TLBs.
    secondary: u64,
    /// Whether page-table pages are freed: then no lazy CPU is skipped, not even the one that finishes (C3).
    tables: bool,
    /// The space of all ranges so far; [`SEVERAL`] if there are several.
    space: Option<u64>,
    /// Whether spaces are marked *flush pending*. If not, these are the ranges of one gather, and they are logged.
    marks: bool,
}

impl<'k, K: Kernel<W>, const W: usize> Engine<'k, K, W> {
    /// Begins a batch.
    pub fn batch<'e>(&'e self) -> Batch<'e, 'k, K, W> {
        self.new_batch(true)
    }

    /// A batch of the ranges of one space that is finished before any code can rely on one of its cleared entries: it
    /// marks no space. CPUs catch up with its ranges from the flush log.
    pub(crate) fn batch_unmarked<'e>(&'e self) -> Batch<'e, 'k, K, W> {
        self.new_batch(false)
    }

    fn new_batch<'e>(&'e self, marks: bool) -> Batch<'e, 'k, K, W> {
        Batch {
            engine: self,
            targets: CpuMask::EMPTY,
            broadcasts: [(Tag(0), Range::WHOLE); HELD],
            held: 0,
            on_slots: UnderAnyTag::NONE,
            empty: true,
            secondary: 0,
            tables: false,
            space: None,
            marks,
        }
    }

    /// Ensures that no batched unmap of `space` is still unflushed (rule 9). Call it, under the lock that protects the
    /// page table, before relying on an entry that is already clear: protection changes, unmaps, moves, migration. One
    /// load if nothing is pending; otherwise a flush of the whole space. Context as for [`flush`](Self::flush).
    #[inline]
    pub fn flush_pending(&self, space: &Space<K::Facade, W>) {
        // Acquire: pairs with the exchange below. A CPU that finds nothing pending any more sees the flush.
        let pending = space.pending.load(Ordering::Acquire);
        if pending != 0 {
            let _done = self.flush(space, Range::WHOLE);
            // A batch that marked the space meanwhile stored a later generation: then the mark stays.
            let _ = space.pending.compare_exchange_full(pending, 0);
        }
    }
}

impl<K: Kernel<W>, const W: usize> Batch<'_, '_, K, W> {
    /// Adds a range whose entries have been cleared, under the lock that protects the page table.
    ///
    /// With [`Free::Synchronous`] this flushes and waits. Otherwise it usually does not wait for other CPUs. It waits
    /// for broadcasts that no longer fit, and for CPUs in the middle of a switch while the space is being promoted or
    /// demoted. If tags roll over and invalidation is by interrupts it waits for the whole flush of this range, because
    /// a request without a space cannot name the tag. Context as for [`Engine::flush`]. Ordering: the entry writes come
    /// before the call; a full barrier.
    pub fn add(&mut self, space: &Space<K::Facade, W>, range: Range) {
        let engine = self.engine;
        self.tables |= range.tables();
        self.space = Some(match self.space {
            Some(other) if other != space.id => SEVERAL,
            Some(_) | None => space.id,
        });
        if engine.policy().reach.is_control() {
            return engine.flush_as_control(space, &range);
        }
        if engine.policy().free == Free::Synchronous {
            let _done = engine.flush(space, range);
            return;
        }
        self.empty = false;
        let pin = engine.pinned();
        // As in `dispatch`: entry writes, full barrier, then the reads of mode, set and states.
        engine.publish_tables();
        let generation = space.log.generation.fetch_add_full(1) + 1;
        if self.marks {
            // Relaxed: the lock that protects the page table orders it before calls of `flush_pending`.
            space.pending.store(generation, Ordering::Relaxed);
        }
        match engine.mode(space) {
            Mode::PerCpu => {
                if !self.marks {
                    engine.log_if_kept(space, generation, &range);
                }
                self.add_on_slots(space, range, pin.cpu);
            }
            Mode::System(tag) => self.hold(tag, range),
            Mode::Transition(tag) => {
                self.on_slots.refuse();
                self.hold(tag, range);
                self.targets.union_with(&engine.stragglers(space, pin.cpu, false));
            }
            Mode::Demoting(tag) => {
                self.on_slots.refuse();
                self.hold(tag, range);
                let (targets, _) = engine.demotion_targets(space, &range, pin.cpu);
                self.targets.union_with(&targets);
            }
            Mode::Rolled { tag, .. } => {
                if engine.policy().reach == Reach::LocalFirst && engine.flush_alone(space, tag, &range, pin.cpu) {
                    engine.kernel.event(Event::LocalOnly);
                } else if engine.broadcasts() {
                    self.hold(tag, range);
                } else {
                    // A request without a space cannot name this tag: a separate flush, to all targets.
                    drop(pin);
                    let _done = engine.flush(space, range);
                    return;
                }
            }
        }
        self.secondary = engine.notify_secondary(space, &range).max(self.secondary);
        // The CPU that adds may differ from the one that finishes.
        self.targets.insert(engine.kernel.cpu());
    }

    fn add_on_slots(&mut self, space: &Space<K::Facade, W>, range: Range, me: CpuId) {
        let engine = self.engine;
        let targets = engine.targets(space, range.tables(), me);
        // This CPU, too, is a target if the batch is finished on another.
        let concerns_any = || !targets.is_empty() || engine.cpus[me].own_state().id() == space.id;
        if engine.broadcasts_batches() && concerns_any() {
            let instructions = engine.instructions_in_batch(space, &targets, &range);
            self.on_slots.add(range, instructions);
        }
        self.targets.union_with(&targets);
    }

    fn hold(&mut self, tag: Tag, range: Range) {
        if self.held == HELD {
            self.send_held();
        }
        self.broadcasts[self.held] = (tag, range);
        self.held += 1;
    }

    /// Issues all held broadcasts and synchronises once, pinned.
    fn send_held(&mut self) {
        if self.held == 0 {
            return;
        }
        let pin = self.engine.pinned();
        let held = &self.broadcasts[..self.held];
        self.engine.broadcast_complete(|| {
            let issued = held.iter().map(|(tag, range)| self.engine.issue(*tag, range));
            issued.sum()
        });
        self.held = 0;
        if self.engine.machine().errata.interrupt_too {
            // The spaces are not recorded, so every CPU that may run one of them is a target.
            self.targets.union_with(&self.engine.all_targets(pin.cpu));
        }
        drop(pin);
    }

    /// Interrupts all targets, or broadcasts, and waits. The proof covers every range added, and page-table pages of
    /// those that were added with tables. Context as for [`Engine::flush`].
    pub fn finish(self) -> Flushed {
        let (space, tables) = (self.space.unwrap_or(SEVERAL), self.tables);
        drop(self);
        Flushed::new(space, tables)
    }

    fn complete(&mut self) {
        if self.empty {
            return;
        }
        let engine = self.engine;
        // Without broadcasts none are held. The test lets the compiler remove what follows from it.
        let mut broadcasts = engine.broadcasts() && self.held > 0;
        self.send_held();
        let pin = engine.pinned();
        let mut targets = core::mem::take(&mut self.targets);
        targets.remove(pin.cpu);
        if let Some(ranges) = engine.prefer_broadcast_of(&self.on_slots, &targets) {
            engine.broadcast_any_tag(ranges, targets.len());
            (broadcasts, targets) = (true, CpuMask::EMPTY);
        }
        let asked = match self.tables {
            true => Asked::ALL_CATCH_UP_WITH_TABLES,
            false => Asked::ALL_CATCH_UP,
        };
        if broadcasts && targets.is_empty() {
            engine.do_own_part(asked, 0, Range::WHOLE);
            drop(pin);
            engine.await_secondary(core::mem::take(&mut self.secondary));
        } else {
            self.interrupt(targets, asked, pin);
        }
    }

    /// Interrupts `targets`, if there are any, and waits. May be a sample.
    fn interrupt(&mut self, targets: CpuMask<W>, asked: Asked, pin: Pinned<'_, K, W>) {
        let (engine, me) = (self.engine, pin.cpu);
        let token = engine.token(0, 0);
        token.secondary.set(core::mem::take(&mut self.secondary));
        engine.begin_sample(&token, me);
        token.sends(|token| {
            engine.interrupt(token, targets, (asked, Range::WHOLE), pin);
            if engine.is_timed(token) {
                token.timer.pause(engine.kernel.now_ns());
            }
        });
        token.wait_in_place();
    }
}

impl<K: Kernel<W>, const W: usize> Drop for Batch<'_, '_, K, W> {
    fn drop(&mut self) {
        self.complete();
    }
}
