//! A software TLB: set-associative, tagged, with a cache of links to lowest-level tables.

use crate::threads::Mmu;
use shootdown::{Local, Root, Stride, Tag};

/// Sets of links; a power of two.
const LINKS: usize = 16;

/// Translations of 4 KiB pages to an `E`, and links from 2 MiB spans to an `L`, which represents a lowest-level page
/// table. A larger page is cached in pieces. An emulator stores host addresses in both.
///
/// `SETS` sets, a power of two, of `WAYS` entries. [`new`](Tlb::new) makes the default, 256 entries, direct-mapped; any
/// other size is made by `Default`:
///
/// ```
/// use shootdown_host::Tlb;
/// let tlb = Tlb::<u64, u64, 128, 12>::default(); // 1536 entries, 12-way
/// assert_eq!(tlb.lookup(0x7000), None);
/// ```
#[derive(Debug)]
pub struct Tlb<E, L, const SETS: usize = 256, const WAYS: usize = 1> {
    root: Root,
    tag: Tag,
    pages: Cache<E, SETS, WAYS, 12>,
    links: Cache<L, LINKS, 1, 21>,
}

/// `SETS` sets of `WAYS` lines, each for a span of `1 << SHIFT` bytes. The first line of a set is the youngest.
#[derive(Debug)]
struct Cache<T, const SETS: usize, const WAYS: usize, const SHIFT: u32>(Box<[Set<T, WAYS>]>);

type Set<T, const WAYS: usize> = [Option<Line<T>>; WAYS];

#[derive(Debug, Clone, Copy)]
struct Line<T> {
    /// `None` for a global entry.
    tag: Option<Tag>,
    number: u64,
    value: T,
}

impl<T: Copy, const SETS: usize, const WAYS: usize, const SHIFT: u32> Cache<T, SETS, WAYS, SHIFT> {
    fn new() -> Self {
        const {
            assert!(
                SETS.is_power_of_two() && WAYS > 0,
                "a power of two sets, of one way or more"
            )
        };
        Cache(vec![[None; WAYS]; SETS].into_boxed_slice())
    }

    #[inline]
    fn get(&self, tag: Tag, address: u64) -> Option<T> {
        let number = address >> SHIFT;
        let lines = self.0[number as usize % SETS].iter().flatten();
        let is = |line: &&Line<T>| line.number == number && line.tag.is_none_or(|of| of == tag);
        lines.into_iter().find(is).map(|line| line.value)
    }

    fn put(&mut self, tag: Option<Tag>, address: u64, value: T) {
        let number = address >> SHIFT;
        let set = &mut self.0[number as usize % SETS];
        // In place of an entry that it replaces, of an empty one, or of the oldest.
        let old = |line: &Option<Line<T>>| line.is_none_or(|line| line.number == number && line.tag == tag);
        let place = set.iter().position(old).unwrap_or(WAYS - 1);
        set[..=place].rotate_right(1);
        set[0] = Some(Line { tag, number, value });
    }

    /// Drops entries within the page of `stride` at `address` whose tag `goes`.
    fn drop_span(&mut self, address: u64, stride: Stride, goes: impl Fn(Option<Tag>) -> bool) {
        let first = (address & !(stride.bytes() - 1)) >> SHIFT;
        let count = (stride.bytes() >> SHIFT).max(1);
        for index in 0..count.min(SETS as u64) {
            for line in &mut self.0[(first + index) as usize % SETS] {
                if line.is_some_and(|line| (first..first + count).contains(&line.number) && goes(line.tag)) {
                    *line = None;
                }
            }
        }
    }

    /// Drops every entry whose tag `goes`.
    fn drop_all(&mut self, goes: impl Fn(Option<Tag>) -> bool) {
        for line in self.0.iter_mut().flatten() {
            if line.is_some_and(|line| goes(line.tag)) {
                *line = None;
            }
        }
    }
}

impl<E: Copy, L: Copy> Tlb<E, L> {
    /// An empty TLB. Load a root before any look-up.
    pub fn new() -> Self {
        Self::default()
    }
}

impl<E: Copy, L: Copy, const SETS: usize, const WAYS: usize> Tlb<E, L, SETS, WAYS> {
    /// The loaded root, which a miss walks.
    pub fn root(&self) -> Root {
        self.root
    }

    /// The translation of the page of `address` under the loaded tag, or a global one.
    #[inline]
    pub fn lookup(&self, address: u64) -> Option<E> {
        self.pages.get(self.tag, address)
    }

    /// The cached link to the lowest-level table for `address`.
    #[inline]
    pub fn link(&self, address: u64) -> Option<L> {
        self.links.get(self.tag, address)
    }

    /// Caches the result of a walk for the page of `address`; `global` for all tags.
    pub fn fill(&mut self, address: u64, entry: E, global: bool) {
        self.pages.put((!global).then_some(self.tag), address, entry);
    }

    /// Caches a link that a walk has followed.
    pub fn fill_link(&mut self, address: u64, link: L) {
        self.links.put(Some(self.tag), address, link);
    }
}

impl<E: Copy, L: Copy, const SETS: usize, const WAYS: usize> Default for Tlb<E, L, SETS, WAYS> {
    fn default() -> Self {
        Tlb {
            root: Root(0),
            tag: Tag(0),
            pages: Cache::new(),
            links: Cache::new(),
        }
    }
}

impl<E, L, const SETS: usize, const WAYS: usize> Mmu for Tlb<E, L, SETS, WAYS>
where
    E: Copy + Send + 'static,
    L: Copy + Send + 'static,
{
    fn invalidate(&mut self, what: Local) {
        match what {
            Local::Page {
                address,
                stride,
                tag,
                leaf_only,
            } => {
                let of_tag = Some(tag);
                self.pages.drop_span(address, stride, |tag| tag == of_tag);
                if !leaf_only {
                    self.links.drop_span(address, stride, |tag| tag == of_tag);
                }
            }
            Local::Tag(tag) => {
                self.pages.drop_all(|of| of == Some(tag));
                self.links.drop_all(|of| of == Some(tag));
            }
            Local::Kernel { address, stride } => self.pages.drop_span(address, stride, |_| true),
            Local::All => {
                self.pages.drop_all(|_| true);
                self.links.drop_all(|_| true);
            }
        }
    }

    fn load_root(&mut self, root: Root, tag: Tag, keep: bool) {
        (self.root, self.tag) = (root, tag);
        if !keep {
            self.invalidate(Local::Tag(tag));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(address: u64, stride: Stride, leaf_only: bool) -> Local {
        let tag = Tag(1);
        Local::Page {
            address,
            stride,
            tag,
            leaf_only,
        }
    }

    #[test]
    fn invalidation_drops_its_entries_and_links_unless_leaf_only() {
        let mut tlb = Tlb::<u8, u8>::new();
        tlb.load_root(Root(1), Tag(1), true);
        let fill = |tlb: &mut Tlb<u8, u8>| {
            tlb.fill(0x20_1000, 1, false);
            tlb.fill(0x20_2000, 2, false);
            tlb.fill_link(0x20_0000, 3);
        };
        fill(&mut tlb);
        tlb.invalidate(page(0x20_1000, Stride::Size4K, true));
        assert_eq!((tlb.lookup(0x20_1fff), tlb.lookup(0x20_2000)), (None, Some(2)));
        assert_eq!(tlb.link(0x3f_ffff), Some(3));
        tlb.invalidate(page(0x20_2000, Stride::Size4K, false));
        assert_eq!((tlb.lookup(0x20_2000), tlb.link(0x20_0000)), (None, None));
        for stride in [Stride::Size2M, Stride::Size1G] {
            fill(&mut tlb);
            tlb.invalidate(page(0, Stride::Size2M, false));
            assert_eq!(tlb.lookup(0x20_1000), Some(1), "another page of 2 MiB");
            tlb.invalidate(page(0x20_0000, stride, false));
            assert_eq!((tlb.lookup(0x20_1000), tlb.link(0x20_0000)), (None, None));
        }
    }

    #[test]
    fn set_holds_one_entry_per_way_and_invalidates_each() {
        let mut tlb = Tlb::<u8, u8, 2, 2>::default();
        tlb.load_root(Root(1), Tag(1), true);
        // All in the same set; the first is the oldest.
        let pages = [0x2000, 0x4000, 0x6000];
        for (entry, page) in (1..).zip(pages) {
            tlb.fill(page, entry, false);
        }
        assert_eq!(pages.map(|page| tlb.lookup(page)), [None, Some(2), Some(3)]);
        tlb.fill(0x4000, 9, false);
        assert_eq!(
            pages.map(|page| tlb.lookup(page)),
            [None, Some(9), Some(3)],
            "replaced, not doubled"
        );
        tlb.invalidate(page(0x4000, Stride::Size4K, true));
        assert_eq!(pages.map(|page| tlb.lookup(page)), [None, None, Some(3)]);
        tlb.invalidate(Local::Tag(Tag(1)));
        assert_eq!(tlb.lookup(0x6000), None);
    }

    #[test]
    fn tags_keep_entries_apart_and_global_entries_match_every_tag() {
        let mut tlb = Tlb::<u8, u8>::new();
        tlb.load_root(Root(1), Tag(1), true);
        tlb.fill(0x1000, 1, false);
        tlb.fill(0x2000, 2, true);
        tlb.load_root(Root(2), Tag(2), true);
        assert_eq!((tlb.lookup(0x1000), tlb.lookup(0x2000)), (None, Some(2)));
        tlb.load_root(Root(1), Tag(1), false);
        assert_eq!((tlb.lookup(0x1000), tlb.lookup(0x2000)), (None, Some(2)));
        let (address, stride) = (0x2000, Stride::Size4K);
        tlb.invalidate(Local::Kernel { address, stride });
        assert_eq!(tlb.lookup(0x2000), None);
    }
}
