//! Measures once, at start, what each way of reaching other CPUs costs. The estimates live in `adaptive/costs.rs`.

use crate::adaptive::costs::{Costs, Interrupts};
use crate::cpuset::CpuMask;
use crate::engine::Engine;
use crate::hooks::{Broadcast, CpuId, Event, Kernel, Local, Tag};
use crate::range::{Range, Stride};
use crate::transport::request::Asked;

/// Samples that [`Engine::calibrate`] takes of each way. It uses the [`COUNTS`]th shortest.
const TRIES: u32 = 8;

/// Disturbances lengthen a sample. Only a target that polls its posts before the interrupt arrives shortens one. Two
/// such samples are skipped.
const COUNTS: usize = 3;

/// A broadcast that invalidates nothing in use: address 0 under the tag of the kernel's own root.
const NOTHING: Broadcast = Broadcast::Pages {
    address: 0,
    stride: Stride::Size4K,
    count: 1,
    tag: Tag(0),
    leaf_only: true,
};

/// The same on this CPU.
const UNUSED_PAGE: Local = Local::Page {
    address: 0,
    stride: Stride::Size4K,
    tag: Tag(0),
    leaf_only: true,
};

impl<K: Kernel<W>, const W: usize> Engine<'_, K, W> {
    /// Measures the cost of reaching other CPUs, for [`Reach::Adaptive`](crate::Reach::Adaptive). Returns the measured
    /// costs. Without this call, or with a clock that stands still or runs backwards, [`Costs::PRIORS`] apply.
    ///
    /// Call it once, when all CPUs that will be up are online and take interrupts. It interrupts each CPU 8 times and
    /// one of them 16 times, and takes 16 round trips. Context as for [`flush`](Self::flush).
    pub fn calibrate(&self) -> Costs {
        let mut costs = Costs::PRIORS;
        let all = {
            let pin = self.pinned();
            self.all_targets(pin.cpu)
        };
        let first = all.iter().next();
        let mut is_fine = false;
        if let Some(first) = first {
            let mut one = CpuMask::EMPTY;
            one.insert(first);
            if let Some(ns) = self.shortest(|engine| engine.round_trip(one)) {
                is_fine = true;
                costs.interrupt_ns = ns;
                costs.disturbed_ns = ns / 2;
                let further = all.len() as u64 - 1;
                if further > 0
                    && let Some(ns) = self.shortest(|engine| engine.round_trip(all))
                {
                    costs.interrupt_more_ns = ns.saturating_sub(costs.interrupt_ns).div_ceil(further);
                }
            }
        }
        if self.broadcasts()
            && let Some(ns) = self.shortest(|engine| {
                engine.broadcast_nothing(first);
                true
            })
        {
            is_fine = true;
            costs.broadcast_ns = ns;
        }
        let local = |what| {
            self.shortest(|engine| {
                let _pin = engine.pinned();
                engine.kernel.invalidate(what);
                true
            })
        };
        let (page, tag) = (local(UNUSED_PAGE), local(Local::Tag(Tag(0))));
        costs.page_ns = page.unwrap_or(costs.page_ns);
        costs.tag_ns = tag.unwrap_or(costs.tag_ns);
        self.costs.record_clock(is_fine || page.is_some() || tag.is_some());
        // No hysteresis: there is no earlier threshold to hold on to.
        let cpus = self.cpus.len() as u64;
        let weighed = self.weighed(costs);
        costs.broadcast_from = (1..cpus)
            .find(|&targets| self.broadcasts_any_tag() && weighed.disturbance_ns(targets) >= weighed.broadcast_ns)
            .unwrap_or(Costs::NEVER);
        self.costs.store(&costs, Interrupts::of(&costs));
        self.kernel.event(Event::Calibrated(costs));
        self.costs()
    }

    /// One of the shortest of several runs of `what`, in ns. `None` if the clock does not resolve them. A run that
    /// returns false did not do what is measured, and is not counted.
    fn shortest(&self, mut what: impl FnMut(&Self) -> bool) -> Option<u64> {
        // Ascending.
        let mut best = [u64::MAX; COUNTS];
        for _ in 0..TRIES {
            let begun = self.kernel.now_ns();
            let done = what(self);
            match self.kernel.now_ns().checked_sub(begun) {
                Some(ns) if ns > 0 && done => {
                    let [.., last] = &mut best;
                    *last = ns.min(*last);
                    best.sort_unstable();
                }
                _ => {}
            }
        }
        let [.., last] = best;
        (last != u64::MAX).then_some(last)
    }

    /// Broadcasts an invalidation of nothing in use. Where broadcasts are targeted it goes to `one`, and samples teach
    /// the cost of more targets.
    pub(crate) fn broadcast_nothing(&self, one: Option<CpuId>) {
        let pin = self.pinned();
        match one.filter(|&one| one != pin.cpu && self.kernel.broadcast_is_targeted()) {
            Some(one) => {
                let mut target = CpuMask::EMPTY;
                target.insert(one);
                self.kernel.broadcast_to(&target, NOTHING);
            }
            None => self.kernel.broadcast(NOTHING),
        }
        self.kernel.broadcast_sync();
    }

    /// Interrupts `targets` and waits for their answers. Returns false, and does nothing, if this CPU is the only
    /// target.
    pub(crate) fn round_trip(&self, mut targets: CpuMask<W>) -> bool {
        let pin = self.pinned();
        // The targets were found under an earlier pin, perhaps on another CPU. A CPU does not interrupt itself.
        targets.remove(pin.cpu);
        if targets.is_empty() {
            return false;
        }
        let token = self.token(0, 0);
        token.sends(|token| self.interrupt(token, targets, (Asked::CATCH_UP, Range::WHOLE), pin));
        token.wait_in_place();
        true
    }
}
