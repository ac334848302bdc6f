//! Random sequences against a slow, simple reference: same results, same number of violations after every step.
//!
//! The reference keeps each TLB as a map and removes entries explicitly (no sequence numbers, no counts, no marks). It
//! keeps every store for ever, and checks everything at every completion.

use crate::bed::{KVA, PAGE, VA};
use proptest::prelude::*;
use shootdown::Stride;
use shootdown::{Broadcast, BroadcastLimits, Local, Tag};
use shootdown_sim::hw::*;
use std::collections::BTreeMap;

const CPUS: usize = 3;
const PAGES: usize = 4; // the last one is the kernel's

#[derive(Debug, Clone)]
enum Step {
    /// Space, page, value: stored and visible.
    Store(u32, usize, Entry),
    /// The same, but left in a buffer.
    Buffer(u32, usize, Entry),
    /// The oldest buffered store becomes visible.
    Drain,
    Access(usize, usize, bool),
    Page(usize, usize, u16),
    Tag(usize, u16),
    Kernel(usize),
    All(usize),
    Load(usize, u32, bool),
    Lazy(usize, bool),
    CaughtUp(usize),
    Begin,
    Complete(usize, u32, usize),
    CompleteSpace(usize, u32),
    BroadcastPage(usize, usize, u16),
    BroadcastTag(usize, u16),
}

fn step() -> impl Strategy<Value = Step> {
    let cpu = 0..CPUS;
    let space = 1..3u32;
    let page = 0..PAGES;
    let value = prop_oneof![
        2 => Just(Entry::NONE),
        4 => (2..5u32, any::<bool>()).prop_map(|(f, w)| {
            Entry::page(f + 100).with(Entry::USER | if w { Entry::WRITE } else { 0 })
        }),
    ];
    prop_oneof![
        6 => (space.clone(), page.clone(), value.clone()).prop_map(|(s, p, v)| Step::Store(s, p, v)),
        1 => (space.clone(), page.clone(), value).prop_map(|(s, p, v)| Step::Buffer(s, p, v)),
        1 => Just(Step::Drain),
        12 => (cpu.clone(), page.clone(), any::<bool>()).prop_map(|(c, p, w)| Step::Access(c, p, w)),
        3 => (cpu.clone(), page.clone(), 1..3u16).prop_map(|(c, p, t)| Step::Page(c, p, t)),
        1 => (cpu.clone(), 1..3u16).prop_map(|(c, t)| Step::Tag(c, t)),
        1 => cpu.clone().prop_map(Step::Kernel),
        1 => cpu.clone().prop_map(Step::All),
        2 => (cpu.clone(), space.clone(), any::<bool>()).prop_map(|(c, s, k)| Step::Load(c, s, k)),
        1 => (cpu.clone(), any::<bool>()).prop_map(|(c, l)| Step::Lazy(c, l)),
        3 => cpu.clone().prop_map(Step::CaughtUp),
        3 => Just(Step::Begin),
        3 => (0..8usize, space.clone(), page.clone()).prop_map(|(i, s, p)| Step::Complete(i, s, p)),
        1 => (0..8usize, 0..3u32).prop_map(|(i, s)| Step::CompleteSpace(i, s)),
        1 => (cpu.clone(), page, 1..3u16).prop_map(|(c, p, t)| Step::BroadcastPage(c, p, t)),
        1 => (cpu, 1..3u16).prop_map(|(c, t)| Step::BroadcastTag(c, t)),
    ]
}

fn va(page: usize) -> u64 {
    if page == PAGES - 1 {
        KVA
    } else {
        VA + page as u64 * PAGE
    }
}

#[derive(Clone, Copy, Debug)]
struct Cached {
    space: u32,
    value: Entry,
    dirty: bool,
}

/// A visible store: order of its issue, and what it stored.
type Store = (usize, Entry);

#[derive(Default)]
struct Reference {
    clock: usize,
    /// (space, page) to every visible store.
    tables: BTreeMap<(u32, usize), Vec<Store>>,
    /// (space, page) to the latest binding moment.
    bound: BTreeMap<(u32, usize), usize>,
    /// Per CPU: (tag, or None for global; page).
    tlbs: Vec<BTreeMap<(Option<u16>, usize), Cached>>,
    loaded: Vec<u32>,
    lazy: Vec<bool>,
    settling: Vec<bool>,
    violations: u64,
}

impl Reference {
    fn home(space: u32, page: usize) -> u32 {
        if page == PAGES - 1 { 0 } else { space }
    }

    fn held(&self, at: (u32, usize)) -> Entry {
        self.tables.get(&at).and_then(|s| s.last()).map_or(Entry::NONE, |s| s.1)
    }

    /// The last moment at which the tables granted the translation is before a binding moment.
    fn stale(&self, page: usize, c: &Cached) -> bool {
        let at = (c.space, page);
        let stores = &self.tables[&at];
        let last = stores
            .iter()
            .rposition(|s| s.1.covers(c.value))
            .expect("it was held when it was filled");
        stores
            .get(last + 1)
            .is_some_and(|next| next.0 <= self.bound.get(&at).copied().unwrap_or(0))
    }

    fn usable(&self, cpu: usize, key: (Option<u16>, usize)) -> bool {
        let reachable = key
            .0
            .is_none_or(|t| t as u32 == self.loaded[cpu] && !self.settling[cpu]);
        reachable && (key.1 == PAGES - 1 || !(self.lazy[cpu] || self.settling[cpu]))
    }

    fn look_everywhere(&mut self) {
        for cpu in 0..CPUS {
            self.look_at(cpu);
        }
    }

    fn look_at(&mut self, cpu: usize) {
        let bad: Vec<_> = self.tlbs[cpu]
            .iter()
            .filter(|(k, c)| self.stale(k.1, c) && self.usable(cpu, **k))
            .map(|(k, _)| *k)
            .collect();
        for k in bad {
            self.tlbs[cpu].remove(&k);
            self.violations += 1;
        }
    }

    fn access(&mut self, cpu: usize, page: usize, write: bool) -> Result<u32, FaultKind> {
        let tag = self.loaded[cpu] as u16;
        for key in [(Some(tag), page), (None, page)] {
            let Some(&c) = self.tlbs[cpu].get(&key) else { continue };
            let rights = !write || (c.value.has(Entry::WRITE) && c.dirty);
            if rights && !self.stale(page, &c) {
                return Ok(c.value.frame());
            }
            self.violations += rights as u64;
            self.tlbs[cpu].remove(&key);
        }
        let space = Self::home(self.loaded[cpu], page);
        let value = self.held((space, page));
        if !value.is_present() {
            return Err(FaultKind::NotPresent);
        }
        if write && !value.has(Entry::WRITE) {
            return Err(FaultKind::Protection);
        }
        let key = if value.has(Entry::GLOBAL) {
            (None, page)
        } else {
            (Some(tag), page)
        };
        let known_dirty = self.tables[&(space, page)].last().unwrap().1.has(Entry::DIRTY);
        self.tlbs[cpu].insert(
            key,
            Cached {
                space,
                value,
                dirty: write || known_dirty,
            },
        );
        if write {
            self.tables.get_mut(&(space, page)).unwrap().last_mut().unwrap().1 = value.with(Entry::DIRTY);
        }
        Ok(value.frame())
    }
}

struct Pair {
    hw: Hw,
    r: Reference,
    now: u64,
    buffered: std::collections::VecDeque<(u32, usize, Entry, Stamp, usize)>,
    stamps: Vec<(Stamp, usize)>,
}

impl Pair {
    fn new() -> Pair {
        let mut hw = Hw::new(HwConfig {
            defect: crate::mutations::requested(),
            cpus: CPUS,
            tlb_entries: 64,
            tlb_ways: 8,
            // Broadcasts that no CPU carries out before the sync: the reference has no delays.
            broadcast: Some(BroadcastLimits {
                max_pages: 8,
                max_large_pages: 8,
            }),
            costs: Costs {
                broadcast_min: u32::MAX,
                ..HwConfig::default().costs
            },
            ..HwConfig::default()
        });
        for _ in 0..200 {
            hw.alloc_data();
        }
        for space in 1..3 {
            let root = hw.new_space(space);
            hw.ensure_table(root, VA, 1, 0, 0);
            hw.ensure_table(root, KVA, 1, 0, 0);
        }
        let mut r = Reference {
            tlbs: vec![BTreeMap::new(); CPUS],
            loaded: vec![1; CPUS],
            lazy: vec![false; CPUS],
            settling: vec![false; CPUS],
            clock: 1,
            ..Reference::default()
        };
        for space in 0..3 {
            for page in 0..PAGES {
                r.tables.insert((space, page), vec![(0, Entry::NONE)]);
            }
        }
        for cpu in 0..CPUS {
            hw.load_root(cpu, hw.root(1), 1, true, 1, 0).unwrap();
            hw.caught_up(cpu, 0);
        }
        Pair {
            hw,
            r,
            now: 1,
            buffered: Default::default(),
            stamps: Vec::new(),
        }
    }

    fn show(&mut self, (space, page, value, stamp, order): (u32, usize, Entry, Stamp, usize)) {
        let table = self.hw.table_at(self.hw.root(space), va(page), 1).unwrap();
        self.hw
            .set_entry(table, table_index(va(page), 1), value, stamp, self.now);
        self.r.tables.get_mut(&(space, page)).unwrap().push((order, value));
        self.r.look_everywhere();
    }

    fn issue(&mut self, space: u32, page: usize, value: Entry) -> (u32, usize, Entry, Stamp, usize) {
        let space = Reference::home(space, page);
        let value = if space == 0 && value.is_present() && value.frame().is_multiple_of(2) {
            value.with(Entry::GLOBAL)
        } else {
            value
        };
        self.r.clock += 1;
        (space, page, value, self.hw.store_issued(0, self.now), self.r.clock)
    }

    fn run(&mut self, step: &Step) -> Result<(), TestCaseError> {
        self.now += 10;
        let now = self.now;
        match *step {
            Step::Store(space, page, value) => {
                let store = self.issue(space, page, value);
                self.show(store);
            }
            Step::Buffer(space, page, value) => {
                let store = self.issue(space, page, value);
                self.buffered.push_back(store);
            }
            Step::Drain => {
                if let Some(store) = self.buffered.pop_front() {
                    self.show(store);
                }
            }
            Step::Access(cpu, page, write) => {
                let access = if write { Access::Write } else { Access::Read };
                let got = self.hw.translate(cpu, va(page), access, Privilege::User, now);
                let want = self.r.access(cpu, page, write);
                prop_assert_eq!(got.map(|t| t.frame).map_err(|f| f.kind), want);
            }
            Step::Page(cpu, page, tag) => {
                let what = Local::Page {
                    address: va(page),
                    stride: Stride::Size4K,
                    tag: Tag(tag),
                    leaf_only: true,
                };
                self.hw.local(cpu, what, now).unwrap();
                self.r.tlbs[cpu].remove(&(Some(tag), page));
                if self.r.loaded[cpu] == tag as u32 {
                    self.r.tlbs[cpu].remove(&(None, page));
                }
            }
            Step::Tag(cpu, tag) => {
                self.hw.local(cpu, Local::Tag(Tag(tag)), now).unwrap();
                self.r.tlbs[cpu].retain(|k, _| k.0 != Some(tag));
            }
            Step::Kernel(cpu) => {
                self.hw
                    .local(
                        cpu,
                        Local::Kernel {
                            address: KVA,
                            stride: Stride::Size4K,
                        },
                        now,
                    )
                    .unwrap();
                // INVLPG: the loaded tag and global entries; the page under other tags stays.
                let loaded = self.r.loaded[cpu] as u16;
                self.r.tlbs[cpu].retain(|k, _| k.1 != PAGES - 1 || k.0.is_some_and(|tag| tag != loaded));
            }
            Step::All(cpu) => {
                self.hw.local(cpu, Local::All, now).unwrap();
                self.r.tlbs[cpu].clear();
            }
            Step::Load(cpu, space, keep) => {
                self.hw
                    .load_root(cpu, self.hw.root(space), space as u16, keep, space, now)
                    .unwrap();
                if !keep {
                    self.r.tlbs[cpu].retain(|k, _| k.0 != Some(space as u16));
                }
                self.r.loaded[cpu] = space;
                self.r.settling[cpu] = true;
                // A kernel entry under a tag not loaded was tolerated; the load alone reports nothing.
            }
            Step::Lazy(cpu, lazy) => {
                self.hw.set_lazy(cpu, lazy);
                self.r.settling[cpu] |= self.r.lazy[cpu] && !lazy;
                self.r.lazy[cpu] = lazy;
            }
            Step::CaughtUp(cpu) => {
                self.hw.caught_up(cpu, now);
                self.r.settling[cpu] = false;
                self.r.look_at(cpu);
            }
            Step::Begin => {
                self.stamps.push((self.hw.request_begins(0, now), self.r.clock));
            }
            Step::Complete(i, space, page) => {
                let n = self.stamps.len();
                let Some(&(stamp, order)) = self.stamps.get(n.wrapping_sub(1 + i % n.max(1))) else {
                    return Ok(());
                };
                let space = Reference::home(space, page);
                self.hw.completed(space, va(page)..va(page) + PAGE, stamp, 0, now);
                self.bind(space, page, order);
            }
            Step::CompleteSpace(i, space) => {
                let n = self.stamps.len();
                let Some(&(stamp, order)) = self.stamps.get(n.wrapping_sub(1 + i % n.max(1))) else {
                    return Ok(());
                };
                self.hw.completed_space(space, stamp, 0, now);
                for page in 0..PAGES {
                    self.bind(space, page, order);
                }
            }
            Step::BroadcastPage(cpu, page, tag) => {
                let what = Broadcast::Pages {
                    address: va(page),
                    stride: Stride::Size4K,
                    count: 1,
                    tag: Tag(tag),
                    leaf_only: true,
                };
                self.hw.broadcast(cpu, what, now).unwrap();
                self.hw.sync_done(cpu);
                for tlb in &mut self.r.tlbs {
                    tlb.remove(&(Some(tag), page));
                }
            }
            Step::BroadcastTag(cpu, tag) => {
                self.hw.broadcast(cpu, Broadcast::Tag(Tag(tag)), now).unwrap();
                self.hw.sync_done(cpu);
                for tlb in &mut self.r.tlbs {
                    tlb.retain(|k, _| k.0 != Some(tag));
                }
            }
        }
        prop_assert_eq!(
            self.hw.violation_count(),
            self.r.violations,
            "after {:?}; first told: {:#?}",
            step,
            self.hw.violations().last()
        );
        Ok(())
    }

    fn bind(&mut self, space: u32, page: usize, order: usize) {
        let bound = self.r.bound.entry((space, page)).or_default();
        *bound = (*bound).max(order);
        self.r.look_everywhere();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn oracle_matches_the_reference_oracle(steps in prop::collection::vec(step(), 1..120)) {
        let mut pair = Pair::new();
        for step in &steps {
            pair.run(step)?;
        }
    }
}

#[test]
fn invlpg_of_a_kernel_page_spares_it_under_a_tag_not_loaded() {
    let page = Entry::page(103).with(Entry::USER | Entry::WRITE);
    let mut pair = Pair::new();
    for step in [
        Step::Store(1, 3, page),
        Step::Access(1, 3, true),
        Step::Load(1, 2, false),
        Step::Kernel(1),
        Step::Store(1, 3, Entry::NONE),
        Step::Load(1, 1, true),
        Step::Access(1, 3, false),
    ] {
        pair.run(&step).expect("both agree");
    }
    let read = pair.hw.translate(1, KVA, Access::Read, Privilege::User, pair.now);
    assert_eq!(
        read.map(|t| (t.frame, t.walked)),
        Ok((103, false)),
        "PCID 1 was not loaded"
    );
}
