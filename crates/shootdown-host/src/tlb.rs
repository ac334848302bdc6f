//! A software TLB: direct-mapped, tagged, with a cache of links to lowest-level tables.

use crate::threads::Mmu;
use shootdown::{Local, Root, Stride, Tag};

/// Leaf entries; a power of two.
const ENTRIES: usize = 256;

/// Links; a power of two.
const LINKS: usize = 16;

/// Translations of 4 KiB pages to an `E`, and links from 2 MiB spans to an `L`, which represents a lowest-level page
/// table. A larger page is cached in pieces. An emulator stores host addresses in both.
#[derive(Debug)]
pub struct Tlb<E, L> {
    root: Root,
    tag: Tag,
    pages: Cache<E, ENTRIES, 12>,
    links: Cache<L, LINKS, 21>,
}

/// `N` lines, each for a span of `1 << SHIFT` bytes.
#[derive(Debug)]
struct Cache<T, const N: usize, const SHIFT: u32>(Box<[Option<Line<T>>; N]>);

#[derive(Debug, Clone, Copy)]
struct Line<T> {
    /// `None` for a global entry.
    tag: Option<Tag>,
    number: u64,
    value: T,
}

impl<T: Copy, const N: usize, const SHIFT: u32> Cache<T, N, SHIFT> {
    fn new() -> Self {
        Cache(Box::new([None; N]))
    }

    #[inline]
    fn get(&self, tag: Tag, address: u64) -> Option<T> {
        let number = address >> SHIFT;
        let line = self.0[number as usize % N].as_ref()?;
        (line.number == number && line.tag.is_none_or(|of| of == tag)).then_some(line.value)
    }

    fn put(&mut self, tag: Option<Tag>, address: u64, value: T) {
        let number = address >> SHIFT;
        self.0[number as usize % N] = Some(Line { tag, number, value });
    }

    /// Drops entries within the page of `stride` at `address` whose tag `goes`.
    fn drop_span(&mut self, address: u64, stride: Stride, goes: impl Fn(Option<Tag>) -> bool) {
        let first = (address & !(stride.bytes() - 1)) >> SHIFT;
        let count = (stride.bytes() >> SHIFT).max(1);
        for index in 0..count.min(N as u64) {
            let line = &mut self.0[(first + index) as usize % N];
            if line.is_some_and(|line| (first..first + count).contains(&line.number) && goes(line.tag)) {
                *line = None;
            }
        }
    }

    /// Drops every entry whose tag `goes`.
    fn drop_all(&mut self, goes: impl Fn(Option<Tag>) -> bool) {
        for line in self.0.iter_mut() {
            if line.is_some_and(|line| goes(line.tag)) {
                *line = None;
            }
        }
    }
}

impl<E: Copy, L: Copy> Tlb<E, L> {
    /// An empty TLB. Load a root before any look-up.
    pub fn new() -> Self {
        Tlb {
            root: Root(0),
            tag: Tag(0),
            pages: Cache::new(),
            links: Cache::new(),
        }
    }

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

impl<E: Copy, L: Copy> Default for Tlb<E, L> {
    fn default() -> Self {
        Self::new()
    }
}

impl<E: Copy + Send + 'static, L: Copy + Send + 'static> Mmu for Tlb<E, L> {
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
    fn an_invalidation_takes_what_it_names_and_the_links_unless_leaves_only() {
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
    fn tags_keep_entries_apart_and_global_ones_are_everybodys() {
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
