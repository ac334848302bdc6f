//! Chooses for each request between interrupts and a broadcast, and learns from timed requests what each costs.
//!
//! The estimates and the threshold are in `adaptive/costs.rs`; `flush/mod.rs` acts on the choice. Reaches the machine
//! only through the hooks: the clock, and the operations that are measured.

use crate::adaptive::costs::{Costs, EXPLORE_ONE_IN, Interrupts, ewma};
use crate::cpuset::CpuMask;
use crate::engine::Engine;
use crate::flush::any_tag::{ANY_TAG_INSTRUCTIONS, UnderAnyTag};
use crate::hooks::{Event, Kernel, Way};
use crate::range::Range;
use crate::space::Space;

/// Cost ratio above which exploration becomes rarer, see [`EXPLORE_ONE_IN`].
const EXPLORE_AT_MOST: u64 = 8;

impl<'k, K: Kernel<W>, const W: usize> Engine<'k, K, W> {
    /// The present cost estimates. Any context.
    pub fn costs(&self) -> Costs {
        self.costs.load()
    }

    /// `costs` with the machine's cost of a broadcast instead of only the requester's, where a broadcast is carried out
    /// by interrupts.
    pub(crate) fn weighed(&self, costs: Costs) -> Costs {
        match self.kernel.broadcast_interrupts() {
            true => costs.broadcast_disturbing(self.online().len() as u64),
            false => costs,
        }
    }

    /// The number of the sample, if the request with this generation is one. A sample is timed, where there is a choice
    /// of ways. Each group of consecutive requests has one, at a varying position, so that a caller that alternates two
    /// kinds of requests has samples of both.
    #[inline]
    pub(crate) fn sample(&self, generation: u64) -> Option<u64> {
        if !self.policy().reach.is_adaptive() {
            return None;
        }
        // A power of two: `Design::fits`.
        let one_in = u64::from(self.policy().sample_one_in);
        let (within, sample) = (one_in - 1, generation >> one_in.trailing_zeros());
        // Fibonacci hashing (Knuth): 2^64 divided by the golden ratio. The high half is well mixed.
        let which = (sample + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32 & within;
        (generation & within == which && self.broadcasts()).then_some(sample)
    }

    /// Whether a request of a space on per-CPU tags, to `targets` CPUs, should be broadcast under every tag. Also
    /// returns the number of its `sample`, if it is one. The slots stay behind and flush once more when they catch up,
    /// which is allowed (rule 1).
    #[inline]
    pub(crate) fn prefer_broadcast(
        &self,
        space: &Space<K::Facade, W>,
        targets: &CpuMask<W>,
        range: &Range,
        sample: Option<u64>,
    ) -> bool {
        if !self.policy().reach.is_adaptive() || targets.is_empty() {
            return false;
        }
        let targets = targets.len() as u64;
        let mut rather = targets >= self.costs.broadcast_from() && self.may_broadcast(space, targets);
        if let Some(sample) = sample
            && sample.is_multiple_of(EXPLORE_ONE_IN)
        {
            let costs = self.weighed(self.costs.load());
            let (one, other) = (costs.disturbance_ns(targets), costs.broadcast_ns);
            let times = one.max(other) / one.min(other).max(1) / EXPLORE_AT_MOST;
            if (sample / EXPLORE_ONE_IN).is_multiple_of(times.max(1)) {
                rather = !rather;
            }
        }
        rather
            && self
                .any_tag_instructions(range)
                .is_some_and(|instructions| instructions <= ANY_TAG_INSTRUCTIONS)
    }

    /// The ranges of a batch, if they should be broadcast under every tag and not sent by interrupts to `targets`. One
    /// instruction goes the way of a flush that is no sample. Several must cost less than the interrupts, each as much
    /// as a broadcast alone.
    pub(crate) fn prefer_broadcast_of<'r>(&self, ranges: &'r UnderAnyTag, targets: &CpuMask<W>) -> Option<&'r [Range]> {
        // Other batches have no ranges. The test lets the compiler remove the rest.
        let (ranges, instructions) = ranges.ranges().filter(|_| self.policy().reach.is_adaptive())?;
        let targets = targets.len() as u64;
        // The threshold is one target at least.
        if targets < self.costs.broadcast_from() {
            return None;
        }
        let costs = self.weighed(self.costs.load());
        let cheaper = costs.broadcast_ns.saturating_mul(instructions as u64) <= costs.disturbance_ns(targets);
        (instructions == 1 || cheaper).then_some(ranges)
    }

    /// Whether batches may be broadcast under every tag.
    #[inline]
    pub(crate) fn broadcasts_batches(&self) -> bool {
        // An early synchronisation proves nothing.
        self.policy().reach.is_adaptive() && self.broadcasts_any_tag() && !self.machine().errata.interrupt_too
    }

    /// The number of instructions that broadcast `range` of `space` under every tag. `None` if it is to be sent by
    /// interrupts to its `targets`, whatever else a batch holds.
    pub(crate) fn instructions_in_batch(
        &self,
        space: &Space<K::Facade, W>,
        targets: &CpuMask<W>,
        range: &Range,
    ) -> Option<usize> {
        self.any_tag_instructions(range)
            .filter(|_| self.may_broadcast(space, targets.len() as u64))
    }

    /// The number of instructions that broadcast `range` under every tag, if that is possible.
    fn any_tag_instructions(&self, range: &Range) -> Option<usize> {
        let most = self.page_limit(range).filter(|_| self.broadcasts_any_tag())?;
        Some(range.strides().div_ceil(u64::from(most)) as usize)
    }

    /// Invalidates `ranges` on every CPU under every tag, without knowing the tags, in place of interrupts to so many
    /// `targets`. Pinned.
    #[inline(never)]
    pub(crate) fn broadcast_any_tag(&self, ranges: &[Range], targets: usize) {
        self.kernel.event(Event::Chose {
            way: Way::Broadcast,
            targets: targets as u32,
        });
        self.broadcast_complete(|| ranges.iter().map(|range| self.issue_any_tag(range)).sum());
    }

    fn issue_any_tag(&self, range: &Range) -> u32 {
        let Some(most) = self.page_limit(range) else {
            unreachable!("`any_tag_instructions` looked at the range")
        };
        // The form for page-table pages is more than is needed, and what its costs were measured with.
        self.issue_kernel(range, most, false)
    }

    /// Records a measurement: a request went `way`, to `targets` CPUs, and took `took` ns.
    #[cold]
    pub(crate) fn learn(&self, way: Way, targets: u64, took: u64) {
        let mut costs = self.costs.load();
        let expected = match way {
            Way::Local => return,
            Way::Interrupts => costs.interrupts_ns(targets),
            Way::Broadcast => costs.broadcast_ns,
        };
        if took == 0 || self.costs.clock_too_coarse() {
            return; // a clock that stands still, or is too coarse
        }
        self.kernel.event(Event::Measured {
            way,
            targets: targets as u32,
            expected_ns: expected,
            took_ns: took,
        });
        let mut interrupts = self.costs.interrupts();
        match way {
            Way::Local => {}
            Way::Broadcast => costs.broadcast_ns = ewma(expected, took),
            Way::Interrupts => {
                interrupts = interrupts.after(targets, took);
                costs.interrupt_ns = interrupts.first / Interrupts::NS;
                costs.interrupt_more_ns = interrupts.more / Interrupts::NS;
            }
        }
        let moved = self.move_threshold(&mut costs);
        self.costs.store(&costs, interrupts);
        if let Some(event) = moved {
            self.kernel.event(event);
        }
    }

    /// Updates the threshold after a timed request. Returns the event if it moves.
    fn move_threshold(&self, costs: &mut Costs) -> Option<Event> {
        if !self.broadcasts_any_tag() {
            return None;
        }
        let (from, weighed) = (costs.broadcast_from, self.weighed(*costs));
        let (proposed, targets) = weighed.threshold_and_border(from, self.cpus.len() as u64);
        costs.broadcast_from = self.costs.confirm(proposed);
        (costs.broadcast_from != from).then_some(Event::ThresholdMoved {
            from,
            to: costs.broadcast_from,
            targets,
            interrupts_ns: weighed.disturbance_ns(targets),
            broadcast_ns: weighed.broadcast_ns,
        })
    }
}
