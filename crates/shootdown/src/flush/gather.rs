//! Gathers an unmap: entries, frames and page-table pages of one address space are flushed together and freed with the
//! proof. Linux calls it `mmu_gather`.
//!
//! ```text
//!   clear an entry ──► page(address, stride, frame) ─┐   kept: up to RANGES ranges,     flush()
//!   unlink a table ──► table(span, frame)            ├─► and the frames in the buffer ──► one shootdown
//!   weaken an entry ─► changed(range)               ─┘                                    release(frames, proof)
//! ```
//!
//! Ranges of different page sizes are kept apart. A 4 KiB page and a 2 MiB page are two invalidations; one range in the
//! smaller stride would be 513, above every ceiling, and would flush the whole tag.

use crate::design::Requests;
use crate::engine::Engine;
use crate::flush::token::Flushed;
use crate::hooks::Kernel;
use crate::range::{Range, Stride};
use crate::space::Space;
use crate::walk::TablesFree;

/// Ranges kept apart: as many as the flush log of a space has entries, so that a CPU that missed all of them can still
/// catch up page by page.
const RANGES: usize = crate::space::log::LOG_ENTRIES;

/// Whether the buffer has room for another frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a full gather is flushed where its caller may wait"]
pub enum Room {
    /// For at least one.
    Left,
    /// None: call [`Gather::flush`] where waiting is allowed, before the next frame. The next frame does so otherwise.
    Full,
}

/// The frames that a [`Gather`] passes to its `release`.
#[derive(Debug)]
pub struct Freed<'a, F> {
    /// Frames that the cleared entries named.
    pub pages: &'a [F],
    /// Page-table pages.
    pub tables: &'a [F],
    /// The proof that they may be freed.
    pub proof: &'a Proof,
}

/// The proof that gathered frames may be freed.
#[derive(Debug)]
#[must_use = "frames may only be freed with this proof"]
pub enum Proof {
    /// No page-table page was gathered.
    Pages(Flushed),
    /// Page-table pages too.
    Tables(TablesFree),
}

/// An unmap being gathered; see [`Engine::gather`]. Dropping it flushes and releases what is left.
pub struct Gather<'g, 'k, K, F, R, const W: usize>
where
    K: Kernel<W>,
    F: Copy,
    R: FnMut(Freed<'_, F>),
{
    engine: &'g Engine<'k, K, W>,
    space: &'g Space<K::Facade, W>,
    ranges: Ranges,
    /// Frames of pages from the front, page-table pages from the back.
    buffer: &'g mut [F],
    pages: usize,
    tables: usize,
    release: R,
}

impl<'k, K: Kernel<W>, const W: usize> Engine<'k, K, W> {
    /// Begins to gather an unmap of `space`. Frames wait in `buffer`, whose contents are overwritten, until a flush is
    /// complete. Then `release` is called with them and the proof, once for each flush that had frames.
    ///
    /// `F` is the kernel's handle of a frame: a number or a pointer. Nothing is allocated, no lock is taken. The gather
    /// itself is about 150 bytes.
    ///
    /// # Panics
    /// If the buffer is empty.
    ///
    /// # Example
    /// ```
    /// # mod stub { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/stub.rs")); }
    /// # use stub::*;
    /// # let engine = start();
    /// # let space = engine.space(Root(0x2000));
    /// let mut free = Vec::new();
    /// let mut buffer = [0_u64; 64];
    /// let release = |freed: Freed<'_, u64>| free.extend_from_slice(freed.pages);
    /// let mut gather = engine.gather(&space, &mut buffer, release);
    /// for page in 0..4 {
    ///     // The entry of this page was cleared; it named frame 100 + page.
    ///     let _room = gather.page(0x7000_0000 + page * 4096, Stride::Size4K, 100 + page);
    /// }
    /// gather.finish();
    /// assert_eq!(free, [100, 101, 102, 103]);
    /// ```
    pub fn gather<'g, F: Copy, R: FnMut(Freed<'_, F>)>(
        &'g self,
        space: &'g Space<K::Facade, W>,
        buffer: &'g mut [F],
        release: R,
    ) -> Gather<'g, 'k, K, F, R, W> {
        assert!(!buffer.is_empty(), "a gather needs room for one frame at least");
        Gather {
            engine: self,
            space,
            ranges: Ranges::NONE,
            buffer,
            pages: 0,
            tables: 0,
            release,
        }
    }

    /// Flushes every one of `ranges`. Returns what that proves.
    fn flush_ranges(&self, space: &Space<K::Facade, W>, ranges: &[Range]) -> Option<Proof> {
        match ranges {
            [] => return None,
            [range] => return Some(self.flush_one(space, *range)),
            _ => {}
        }
        if self.policy().requests == Requests::Log && !self.is_sample_due(space, ranges.len()) {
            // One request: targets catch up with all of them from the log.
            let mut batch = self.batch_unmarked();
            ranges.iter().for_each(|range| batch.add(space, *range));
            let flushed = batch.finish();
            return Some(match ranges.iter().any(Range::tables) {
                true => Proof::Tables(self.retire_tables(space, &flushed)),
                false => Proof::Pages(flushed),
            });
        }
        // A request holds one range, and a CPU that is two generations behind flushes its whole tag. A sample is of one
        // range, too.
        ranges.iter().fold(None, |proof, range| {
            let next = self.flush_one(space, *range);
            match proof {
                Some(Proof::Tables(_)) => proof,
                _ => Some(next),
            }
        })
    }

    fn flush_one(&self, space: &Space<K::Facade, W>, range: Range) -> Proof {
        match range.tables() {
            true => Proof::Tables(self.flush_tables(space, range)),
            false => Proof::Pages(self.flush(space, range)),
        }
    }
}

impl<K, F, R, const W: usize> Gather<'_, '_, K, F, R, W>
where
    K: Kernel<W>,
    F: Copy,
    R: FnMut(Freed<'_, F>),
{
    /// Adds the page of `stride` at `address`, whose entry was cleared before this call, and the frame that it named.
    ///
    /// Context: any lock that protects the page tables may be held while the buffer has room. A gather that is full
    /// flushes first, in the context of [`Engine::flush`].
    pub fn page(&mut self, address: u64, stride: Stride, frame: F) -> Room {
        self.make_room();
        self.ranges
            .add(Range::pages(address, address | (stride.bytes() - 1), stride));
        self.buffer[self.pages] = frame;
        self.pages += 1;
        self.room()
    }

    /// Adds a page-table page that was unlinked before this call. `span` is what it mapped, in the stride of the entry
    /// that linked it or smaller: for the lowest table of x86-64 its 2 MiB, as 2 MiB pages. Context as for
    /// [`page`](Self::page).
    pub fn table(&mut self, span: Range, frame: F) -> Room {
        self.make_room();
        self.ranges.add_table(span);
        self.tables += 1;
        let last = self.buffer.len() - self.tables;
        self.buffer[last] = frame;
        self.room()
    }

    /// Adds entries that were changed without freeing anything: write-protected, aged, moved. Any context.
    pub fn changed(&mut self, range: Range) {
        self.ranges.add(range);
    }

    /// Flushes what was gathered, waits, and releases the frames. Does nothing if nothing was gathered. The gather may
    /// be used again. Context as for [`Engine::flush`].
    pub fn flush(&mut self) {
        let ranges = core::mem::replace(&mut self.ranges, Ranges::NONE).joined(self.engine.policy().ceiling);
        let Some(proof) = self.engine.flush_ranges(self.space, ranges.as_slice()) else {
            return;
        };
        let (front, back) = self.buffer.split_at(self.buffer.len() - self.tables);
        let freed = Freed {
            pages: &front[..self.pages],
            tables: back,
            proof: &proof,
        };
        (self.pages, self.tables) = (0, 0);
        if !(freed.pages.is_empty() && freed.tables.is_empty()) {
            (self.release)(freed);
        }
    }

    /// Flushes, waits and releases; see [`flush`](Self::flush).
    pub fn finish(self) {}

    fn room(&self) -> Room {
        if self.pages + self.tables == self.buffer.len() {
            Room::Full
        } else {
            Room::Left
        }
    }

    fn make_room(&mut self) {
        if self.room() == Room::Full {
            self.flush();
        }
    }
}

impl<K, F, R, const W: usize> Drop for Gather<'_, '_, K, F, R, W>
where
    K: Kernel<W>,
    F: Copy,
    R: FnMut(Freed<'_, F>),
{
    fn drop(&mut self) {
        self.flush();
    }
}

impl<K, F, R, const W: usize> core::fmt::Debug for Gather<'_, '_, K, F, R, W>
where
    K: Kernel<W>,
    F: Copy,
    R: FnMut(Freed<'_, F>),
{
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        out.debug_struct("Gather")
            .field("ranges", &self.ranges.as_slice())
            .field("pages", &self.pages)
            .field("tables", &self.tables)
            .finish_non_exhaustive()
    }
}

/// Up to [`RANGES`] ranges that together cover everything that was added, and as little more as possible.
#[derive(Debug, Clone)]
struct Ranges {
    kept: [Range; RANGES],
    len: usize,
}

impl Ranges {
    const NONE: Ranges = Ranges {
        kept: [Range::WHOLE; RANGES],
        len: 0,
    };

    fn as_slice(&self) -> &[Range] {
        &self.kept[..self.len]
    }

    fn add(&mut self, range: Range) {
        let meets = |kept: &&mut Range| wasted(kept, &range) == 0;
        if let Some(kept) = self.kept[..self.len].iter_mut().find(meets) {
            *kept = hull(kept, &range);
        } else if self.len < RANGES {
            self.kept[self.len] = range;
            self.len += 1;
        } else {
            self.merge_cheapest(range);
        }
    }

    /// Adds the span of a page-table page. A range that meets the span already names an address in it; see
    /// [`Range::with_tables`].
    fn add_table(&mut self, span: Range) {
        let meets = |kept: &&mut Range| kept.start() < span.end() && span.start() < kept.end();
        match self.kept[..self.len].iter_mut().find(meets) {
            Some(kept) => *kept = kept.with_tables(),
            None => self.add(span.with_tables()),
        }
    }

    /// Merges the two of the kept ranges and `range` whose hull wastes least.
    fn merge_cheapest(&mut self, range: Range) {
        let (mut least, mut pair) = (u64::MAX, (0, RANGES));
        for second in 1..=RANGES {
            for first in 0..second {
                let other = self.kept.get(second).unwrap_or(&range);
                let waste = wasted(&self.kept[first], other);
                if waste < least {
                    (least, pair) = (waste, (first, second));
                }
            }
        }
        let (first, second) = pair;
        let other = self.kept.get(second).copied().unwrap_or(range);
        self.kept[first] = hull(&self.kept[first], &other);
        if let Some(free) = self.kept.get_mut(second) {
            *free = range;
        }
    }

    /// A single range, if that is cheaper: it is flushed page by page, and at least half of it is wanted.
    fn joined(self, ceiling: u32) -> Ranges {
        let Some(one) = self.as_slice().iter().copied().reduce(|a, b| hull(&a, &b)) else {
            return self;
        };
        let unmapped: u64 = self.as_slice().iter().map(Range::strides).sum();
        if one.is_walkable(ceiling) && one.strides() <= 2 * unmapped {
            return Ranges {
                kept: [one; RANGES],
                len: 1,
            };
        }
        self
    }
}

/// The smallest range that covers both, in the smaller stride.
fn hull(a: &Range, b: &Range) -> Range {
    let range = Range::pages(
        a.start().min(b.start()),
        a.end().max(b.end()),
        a.stride().min(b.stride()),
    );
    match a.tables() || b.tables() {
        true => range.with_tables(),
        false => range,
    }
}

/// Strides of the hull that neither range needs.
fn wasted(a: &Range, b: &Range) -> u64 {
    hull(a, b).strides().saturating_sub(a.strides() + b.strides())
}

#[cfg(test)]
mod tests;
