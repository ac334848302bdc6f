//! Contended cache lines, and overlapping loads.
//!
//! A pairwise latency does not give the throughput of a contended line. Three properties of the processor make it
//! higher. A CPU that has just gained a line can use it again until the next request arrives. Requests from one cluster
//! are answered within the cluster before the line leaves it. Loads of different lines overlap. One makes it lower: the
//! first read after a write is a transfer too, and takes its place in the queue; later reads are served from copies.

use super::cpu::{Cpu, Miss};
use super::lines::{Batch, distance_of};
use super::record::Core;

/// Bits of a place for the core, and again for the cluster.
const PLACE_BITS: usize = 16;

impl Cpu {
    /// Whether it gained `id` so recently that no other CPU has taken it yet.
    #[inline]
    pub(crate) fn holds(&self, id: u32) -> bool {
        let (line, until) = self.held.get();
        line == id && self.clock.get() < until
    }

    /// It has gained `id` at its clock, and keeps it for `ticks` despite requests.
    #[inline]
    pub(crate) fn hold(&self, id: u32, ticks: u64) {
        if ticks > 0 {
            self.held.set((id, self.clock.get() + ticks));
        }
    }
}

impl Core {
    /// Queues a request of `cpu` for line `id` at `now`. It takes `cost` ticks from the line's last owner and then
    /// keeps the line busy for `extra`. Returns the time of service, and the cost of the transfer at that place of the
    /// queue.
    #[inline]
    pub(crate) fn queue_for(&self, cpu: &Cpu, id: u32, now: u64, cost: u64, extra: u64) -> (u64, u64) {
        let line = self.lines.get(id);
        let busy = line.busy.get();
        if busy <= now {
            line.busy.set(now + cost + extra);
            return (now, cost);
        }
        if self.costs.line_batches == 0 {
            let cost = self.contended(cost);
            line.busy.set(busy + cost + extra);
            return (busy, cost);
        }
        self.queue_behind_others(cpu, id, now, cost, extra)
    }

    /// The cost of a queued transfer that takes `cost` between two CPUs.
    #[inline]
    fn contended(&self, cost: u64) -> u64 {
        (cost * self.costs.line_contended) >> 8
    }

    #[inline(never)]
    fn queue_behind_others(&self, cpu: &Cpu, id: u32, now: u64, cost: u64, extra: u64) -> (u64, u64) {
        let busy = &self.lines.get(id).busy;
        let place = self.place(cpu.name);
        let mut queues = self.lines.queues.0.borrow_mut();
        let queue = queues.entry(id).or_default();
        queue.retain(|batch| batch.end > now);
        let level = self.costs.line_batches;
        let near = |batch: &Batch| (batch.place ^ place) >> (PLACE_BITS * level) == 0;
        let within = self.contended(cost.min(self.costs.transfer[level.min(3)]));
        if let Some(at) = queue.iter().position(|batch| near(batch) && batch.start > now) {
            // It joins the batch of its cluster, and delays all later batches.
            let start = queue[at].end;
            queue[at].end += within + extra;
            for later in &mut queue[at + 1..] {
                later.start += within + extra;
                later.end += within + extra;
            }
            busy.set(busy.get() + within + extra);
            return (start, within);
        }
        let cost = match queue.last() {
            Some(last) if near(last) => within,
            Some(last) => self.contended(self.costs.transfer[distance_of(last.place ^ place) & 3]),
            None => self.contended(cost),
        };
        let start = busy.get();
        let end = start + cost + extra;
        busy.set(end);
        queue.push(Batch { place, start, end });
        (start, cost)
    }

    /// Waits for a load of line `id`, which takes `cost` ticks. If it follows another load closely it was issued while
    /// that one waited, unless an operation between them orders loads.
    #[inline]
    pub(crate) fn load_overlapping(&self, cpu: &Cpu, id: u32, cost: u64) {
        let line = self.lines.get(id);
        let (now, last) = (cpu.clock.get(), cpu.miss.get());
        let between = now.saturating_sub(last.arrived);
        let overlaps = last.arrived != 0 && between < self.costs.load_window && last.together < self.costs.prefetches;
        let issued = if overlaps { last.issued + between } else { now };
        let (start, cost) = if line.is_modified() {
            self.queue_for(cpu, id, issued, cost, 0)
        } else {
            (issued.max(line.busy.get()), cost)
        };
        let arrived = now.max(start + cost);
        cpu.clock.set(arrived);
        cpu.miss.set(Miss {
            issued,
            arrived,
            together: if overlaps { last.together + 1 } else { 1 },
        });
    }
}
