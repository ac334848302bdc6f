//! What each CPU may have cached, and what it may use of that.
//!
//! A processor may fill its TLB at any time. Instead of trying every time, a CPU here holds *everything that it may
//! have filled* since the last invalidation that covered it. At any time that includes everything that its walker can
//! reach. That loses nothing. A translation in this set was once walkable, so there is a run in which the processor
//! filled it then and never dropped it. One stale translation is enough for a violation. So fills need no interleaving.
//!
//! A broadcast invalidation may take effect at any time from its issue to its synchronisation. The issue marks what it
//! covers. Entries that can be walked after that may have been filled again, and are unmarked. The synchronisation
//! removes what is still marked.

use crate::word::mix;

/// A lowest-level table.
pub(crate) type Table = u8;
/// A frame of data.
pub(crate) type Frame = u8;
/// A space by its root; 0 is the kernel's.
pub(crate) type Owner = u8;

/// A cached translation of a page, or a cached link to a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) tag: u16,
    pub(crate) owner: Owner,
    pub(crate) what: What,
    /// Bit *c*: a broadcast of CPU *c* in progress will remove it, unless it is filled again; bit 7: a local
    /// invalidation.
    doomed: u8,
}

/// What an [`Entry`] caches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    /// The link to a table.
    Link(Table),
    /// The translation of a page.
    Page(u8, Frame),
    /// The translation of the kernel's page, which is valid under every tag ([`GLOBAL`]).
    Kernel(Frame),
}

/// The number of the kernel's page.
pub(crate) const KERNEL_PAGE: u8 = u8::MAX;

/// Issuer number of local invalidations.
const HERE: usize = 7;

/// Tag number of entries that are valid under every tag.
const GLOBAL: u16 = u16::MAX;

/// What an invalidation covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Covers {
    /// `count` pages from `first` under `tag`, and the links for them unless `leaf_only`.
    Pages {
        tag: u16,
        first: u8,
        count: u8,
        leaf_only: bool,
    },
    /// The same under every tag, including global entries.
    AnyTag { first: u8, count: u8, leaf_only: bool },
    /// Everything under a tag.
    Tag(u16),
    /// Everything except the kernel's page.
    NonGlobal,
    /// Everything.
    All,
}

impl Covers {
    fn entry(self, entry: &Entry) -> bool {
        match self {
            Covers::All => true,
            Covers::Tag(tag) => entry.tag == tag,
            Covers::NonGlobal => entry.tag != GLOBAL,
            Covers::Pages {
                tag,
                first,
                count,
                leaf_only,
            } => entry.tag == tag && entry.is_of(first, count, leaf_only),
            Covers::AnyTag {
                first,
                count,
                leaf_only,
            } => entry.is_of(first, count, leaf_only),
        }
    }
}

impl Entry {
    /// Whether an invalidation of `count` pages from `first` covers it, under any tag.
    fn is_of(&self, first: u8, count: u8, leaf_only: bool) -> bool {
        let covers = |page: u8| (u16::from(first)..u16::from(first) + u16::from(count)).contains(&u16::from(page));
        match self.what {
            // One table maps every page of a space.
            What::Link(_) => !leaf_only && first != KERNEL_PAGE,
            What::Page(page, _) => covers(page),
            What::Kernel(_) => covers(KERNEL_PAGE),
        }
    }
}

/// Source of walks: memory in its present state.
pub(crate) trait Tables {
    /// The table that the root of `owner` links to, and those that the walker may still find there.
    fn links(&self, owner: Owner) -> impl Iterator<Item = Table>;
    /// The frames that `table` maps, by page, and those that the walker may still find there.
    fn pages(&self, table: Table) -> impl Iterator<Item = (u8, Frame)>;
    /// The frame of the kernel's page, which every root maps, and those that the walker may still find there.
    fn kernel(&self) -> impl Iterator<Item = Frame>;
}

/// One CPU's caches.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tlb {
    pub(crate) root: Owner,
    pub(crate) tag: u16,
    entries: Vec<Entry>,
}

impl Tlb {
    /// Caches everything that the walker can reach.
    pub(crate) fn fill(&mut self, tables: &impl Tables) {
        for frame in tables.kernel() {
            self.add(GLOBAL, 0, What::Kernel(frame), 0);
        }
        if self.root != 0 {
            for table in tables.links(self.root) {
                self.add(self.tag, self.root, What::Link(table), 0);
            }
        }
        // Under the kernel's root too: entries that a space has left under its tag, 0.
        let mut next = 0;
        while let Some(&entry) = self.entries.get(next) {
            next += 1;
            if let What::Link(table) = entry.what
                && entry.tag == self.tag
            {
                for (page, frame) in tables.pages(table) {
                    // What is found through a link that is being removed is removed with it.
                    self.add(self.tag, entry.owner, What::Page(page, frame), entry.doomed);
                }
            }
        }
    }

    fn add(&mut self, tag: u16, owner: Owner, what: What, doomed: u8) {
        let same = |entry: &&mut Entry| (entry.tag, entry.owner, entry.what) == (tag, owner, what);
        match self.entries.iter_mut().find(same) {
            Some(entry) => entry.doomed &= doomed,
            None => self.entries.push(Entry {
                tag,
                owner,
                what,
                doomed,
            }),
        }
    }

    /// Loads a root.
    pub(crate) fn load(&mut self, root: Owner, tag: u16, keep: bool) {
        if !keep {
            self.invalidate(Covers::Tag(tag));
        }
        (self.root, self.tag) = (root, tag);
    }

    /// Removes entries at once.
    pub(crate) fn invalidate(&mut self, covers: Covers) {
        self.entries.retain(|entry| !covers.entry(entry));
    }

    /// Begins a broadcast of `issuer`.
    pub(crate) fn doom(&mut self, covers: Covers, issuer: usize) {
        for entry in self.entries.iter_mut().filter(|entry| covers.entry(entry)) {
            entry.doomed |= 1 << issuer;
        }
    }

    /// Begins a local invalidation.
    pub(crate) fn doom_here(&mut self, covers: Covers) {
        self.doom(covers, HERE);
    }

    /// Completes the local invalidations.
    pub(crate) fn synchronise_here(&mut self) {
        self.synchronise(HERE);
    }

    /// Completes the broadcasts of `issuer`.
    pub(crate) fn synchronise(&mut self, issuer: usize) {
        self.entries.retain(|entry| entry.doomed >> issuer & 1 == 0);
    }

    /// Entries under the loaded tag, which this CPU can use. Under the kernel's root no user address is used, but links
    /// may be walked.
    pub(crate) fn usable(&self) -> impl Iterator<Item = &Entry> {
        let is_used = |entry: &&Entry| self.root != 0 || matches!(entry.what, What::Link(_));
        self.entries
            .iter()
            .filter(|entry| entry.tag == self.tag)
            .filter(is_used)
    }

    /// Frames that this CPU's kernel code can use as the kernel's page.
    pub(crate) fn kernel(&self) -> impl Iterator<Item = Frame> {
        self.entries.iter().filter_map(|entry| match entry.what {
            What::Kernel(frame) => Some(frame),
            _ => None,
        })
    }

    /// Independent of the order in which entries were added.
    pub(crate) fn hash(&self) -> u64 {
        self.entries
            .iter()
            .map(|entry| {
                let what = match entry.what {
                    What::Link(table) => u64::from(table) << 32,
                    What::Page(page, frame) => 1 << 40 | u64::from(page) << 32 | u64::from(frame),
                    What::Kernel(frame) => 2 << 40 | u64::from(frame),
                };
                mix(
                    what,
                    u64::from(entry.tag) << 16 | u64::from(entry.owner) << 8 | u64::from(entry.doomed),
                )
            })
            .fold(mix(u64::from(self.root), u64::from(self.tag)), |sum, hash| sum ^ hash)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One space, root 1, table 1; page 0 maps the frame.
    struct Fixed(Option<Table>, Option<Frame>);

    impl Tables for Fixed {
        fn links(&self, _: Owner) -> impl Iterator<Item = Table> {
            self.0.into_iter()
        }
        fn pages(&self, _: Table) -> impl Iterator<Item = (u8, Frame)> {
            self.1.map(|frame| (0, frame)).into_iter()
        }
        fn kernel(&self) -> impl Iterator<Item = Frame> {
            [40].into_iter()
        }
    }

    fn page_0() -> Covers {
        Covers::Pages {
            tag: 1,
            first: 0,
            count: 1,
            leaf_only: true,
        }
    }

    fn holds(tlb: &Tlb, frame: Frame) -> bool {
        tlb.usable().any(|entry| entry.what == What::Page(0, frame))
    }

    fn loaded() -> Tlb {
        let mut tlb = Tlb::default();
        tlb.load(1, 1, true);
        tlb.fill(&Fixed(Some(1), Some(7)));
        tlb
    }

    #[test]
    fn entry_outlives_table_change_until_invalidated() {
        let mut tlb = loaded();
        tlb.fill(&Fixed(Some(1), None));
        assert!(holds(&tlb, 7));
        tlb.invalidate(page_0());
        tlb.fill(&Fixed(Some(1), None));
        assert!(!holds(&tlb, 7));
    }

    #[test]
    fn cached_link_fills_from_an_unlinked_table() {
        let mut tlb = loaded();
        tlb.invalidate(page_0());
        tlb.fill(&Fixed(None, Some(9)));
        assert!(holds(&tlb, 9), "the link was cached");
        tlb.invalidate(Covers::Tag(1));
        tlb.fill(&Fixed(None, Some(9)));
        assert!(!holds(&tlb, 9));
    }

    #[test]
    fn kernel_page_is_global_until_invalidated_under_any_tag() {
        let mut tlb = Tlb::default();
        tlb.fill(&Fixed(None, None));
        tlb.load(1, 1, false);
        for covers in [Covers::Tag(1), Covers::NonGlobal, page_0()] {
            tlb.invalidate(covers);
            assert!(tlb.kernel().eq([40]), "{covers:?}");
        }
        assert!(tlb.usable().all(|entry| !matches!(entry.what, What::Kernel(_))));
        tlb.invalidate(Covers::AnyTag {
            first: KERNEL_PAGE,
            count: 1,
            leaf_only: true,
        });
        assert_eq!(tlb.kernel().count(), 0);
    }

    #[test]
    fn broadcast_completes_at_sync_and_spares_later_fills() {
        let mut tlb = loaded();
        tlb.doom(page_0(), 2);
        assert!(holds(&tlb, 7));
        let mut refilled = tlb.clone();
        refilled.fill(&Fixed(Some(1), Some(7)));
        refilled.synchronise(2);
        assert!(holds(&refilled, 7), "walked again after the issue");
        tlb.synchronise(1);
        assert!(holds(&tlb, 7), "another CPU's");
        tlb.synchronise(2);
        assert!(!holds(&tlb, 7));
    }

    #[test]
    fn entries_under_an_unloaded_tag_are_unusable() {
        let mut tlb = loaded();
        tlb.load(2, 2, true);
        assert!(!holds(&tlb, 7));
        tlb.load(1, 1, true);
        assert!(holds(&tlb, 7));
        tlb.load(1, 1, false);
        assert!(!holds(&tlb, 7));
    }
}
