//! The paging-structure caches of all CPUs: links to page-table pages, so that a walk can start low.
//!
//! Owns where a link is stored. `cpu.rs` decides liveness, `oracle.rs` judges misuse.

const VALID: u64 = 1 << 63;
const LEVEL_SHIFT: u32 = 60;
const TAG_SHIFT: u32 = 40;

/// A cached link.
#[derive(Debug, Clone, Copy)]
pub(super) struct Link {
    /// Machine sequence number of the fill.
    pub(super) fill: u64,
    /// The page-table page linked to.
    pub(super) frame: u32,
    /// Its life at the fill.
    pub(super) life: u32,
    /// Space whose tables it came from (0: the kernel's).
    pub(super) space: u32,
    /// Tag it is held under.
    pub(super) tag: u16,
}

/// Entries of a set; the newest is first, the last is evicted.
const WAYS: usize = 4;

/// Four-way sets, `entries` per level and CPU.
#[derive(Debug, Clone)]
pub(super) struct Psc {
    entries: usize,
    keys: Vec<u64>,
    links: Vec<[u64; 3]>,
}

/// Number of address bits that a table of this level spans.
#[inline]
pub(super) const fn span_shift(level: u32) -> u32 {
    12 + 9 * level
}

impl Psc {
    pub(super) fn new(cpus: usize, entries: usize) -> Psc {
        let entries = entries.next_power_of_two().max(WAYS);
        Psc {
            entries,
            keys: vec![0; cpus * 3 * entries],
            links: vec![[0; 3]; cpus * 3 * entries],
        }
    }

    /// The first position of the set of a link, and its key.
    #[inline]
    fn set(&self, cpu: usize, level: u32, va: u64, tag: u16) -> (usize, u64) {
        let prefix = (va & super::tlb::VA_MASK) >> span_shift(level);
        let key = VALID | ((level as u64) << LEVEL_SHIFT) | ((tag as u64) << TAG_SHIFT) | prefix;
        // Multiplicative hashing: regions at the same offset of different gigabytes do not evict each other.
        let hash = (prefix ^ (tag as u64) << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        let set = hash as usize & (self.entries / WAYS - 1);
        ((cpu * 3 + level as usize - 1) * self.entries + set * WAYS, key)
    }

    /// The position of the link to the table of `level` (1 to 3) on the path to `va`, if cached.
    #[inline]
    pub(super) fn find(&self, cpu: usize, level: u32, va: u64, tag: u16) -> Option<usize> {
        let (set, key) = self.set(cpu, level, va, tag);
        self.keys[set..set + WAYS]
            .iter()
            .position(|&k| k == key)
            .map(|way| set + way)
    }

    /// The link at a position, if any.
    #[inline]
    pub(super) fn link(&self, at: usize) -> Option<Link> {
        let key = self.keys[at];
        let w = &self.links[at];
        (key != 0).then(|| Link {
            fill: w[0],
            frame: w[1] as u32,
            life: (w[1] >> 32) as u32,
            space: w[2] as u32,
            tag: (key >> TAG_SHIFT) as u16,
        })
    }

    /// The first address a position's link spans, sign-extended.
    pub(super) fn base(&self, at: usize) -> u64 {
        let key = self.keys[at];
        let level = ((key >> LEVEL_SHIFT) & 7) as u32;
        super::canonical((key & ((1 << TAG_SHIFT) - 1)) << span_shift(level))
    }

    /// Whether a position's link is on the path to `va`.
    pub(super) fn spans(&self, at: usize, va: u64) -> bool {
        let key = self.keys[at];
        let level = ((key >> LEVEL_SHIFT) & 7) as u32;
        key != 0 && key & ((1 << TAG_SHIFT) - 1) == (va & super::tlb::VA_MASK) >> span_shift(level)
    }

    /// Inserts a link; returns the evicted one.
    #[inline]
    pub(super) fn put(&mut self, cpu: usize, level: u32, va: u64, link: Link) -> Option<Link> {
        let (set, key) = self.set(cpu, level, va, link.tag);
        let ways = &self.keys[set..set + WAYS];
        let way_index = ways.iter().position(|&k| k == key || k == 0).unwrap_or(WAYS - 1);
        let old = self.link(set + way_index);
        for way in (set..set + way_index).rev() {
            self.keys[way + 1] = self.keys[way];
            self.links[way + 1] = self.links[way];
        }
        self.keys[set] = key;
        self.links[set] = [
            link.fill,
            link.frame as u64 | (link.life as u64) << 32,
            link.space as u64,
        ];
        old
    }

    /// Clears a position; returns its link.
    #[inline]
    pub(super) fn take(&mut self, at: usize) -> Option<Link> {
        let old = self.link(at);
        self.keys[at] = 0;
        old
    }

    /// The positions of one CPU.
    pub(super) fn positions(&self, cpu: usize) -> std::ops::Range<usize> {
        cpu * 3 * self.entries..(cpu + 1) * 3 * self.entries
    }
}
