//! A model of the caches of CPUs and of a device, and of which entries they may use (C1, C3): versions of pages, of
//! page-table pages and of kernel pages. A CPU fills everything that it can reach, at every opportunity.

use crate::clocks::{self, Clock};
use crate::world::{CPUS, flushes_at_entry, here};
use shootdown::{Ack, Broadcast, Design, Errata, Local, Root, Secondary, Stride, Tag, USER_HALF};
use std::cell::RefCell;
use std::collections::BTreeMap;

/// Pages of each space, and of the kernel.
pub const PAGES: u64 = 6;

/// Owner of what is mapped in all spaces.
const KERNEL: u64 = u64::MAX;

/// Tag of global entries.
const GLOBAL: u16 = u16::MAX;

/// Number of the lowest-level table of a space, after its pages.
pub const LINK: u64 = PAGES;

/// Owner and page.
pub type Name = (u64, u64);

#[derive(Default, Clone)]
struct Cpu {
    /// Root and tag that are loaded.
    loaded: (u64, u16),
    /// Version of each entry, by tag.
    entries: BTreeMap<(u16, Name), u64>,
    /// Broadcasts that take effect at this CPU's next synchronisation.
    late: Vec<Broadcast>,
    user: bool,
    /// It fills, and it may use kernel mappings.
    on: bool,
    up: bool,
    /// The last time that it used each entry, and its version.
    used: BTreeMap<Name, (u64, u64)>,
}

/// The caches of the whole machine.
#[derive(Default)]
pub struct Caches {
    cpus: [Cpu; CPUS],
    /// For each entry: the CPU and time of each withdrawal by version, and the clock that the entry's lock passes on.
    withdrawn: BTreeMap<Name, (Vec<(usize, u64)>, Clock)>,
    /// Withdrawals that have not been flushed.
    pending: BTreeMap<Name, u64>,
    device: BTreeMap<Name, u64>,
    notified: Vec<(u64, Secondary)>,
    /// How many of these the device has carried out.
    done: usize,
    /// The broadcasts issued, and the CPUs that each reaches, one bit each.
    issued: [Vec<(Broadcast, u64)>; CPUS],
    issued_here: [Vec<Local>; CPUS],
    pub split: bool,
    pub errata: Option<Errata>,
    ack: Option<Ack>,
    /// With [`Errata::repeat`]: the broadcasts of the last synchronisation, which did not take effect.
    once: [Vec<(Broadcast, u64)>; CPUS],
    once_here: [Vec<Local>; CPUS],
}

std::thread_local! {
    static CACHES: RefCell<Caches> = RefCell::default();
}

pub fn with<T>(look: impl FnOnce(&mut Caches) -> T) -> T {
    CACHES.with_borrow_mut(look)
}

pub fn reset(design: &Design) {
    CACHES.set(Caches {
        split: design.machine.split,
        errata: Some(design.machine.errata),
        ack: Some(design.policy.ack),
        ..Caches::default()
    });
}

/// Whether an invalidation of `count` strides from `address` covers that page.
fn covers(address: u64, stride: Stride, count: u32, page: u64) -> bool {
    let (first, bytes) = (address >> 12, stride.bytes() >> 12);
    (first..first.saturating_add(bytes * u64::from(count))).contains(&page)
}

impl Cpu {
    fn pages(&mut self, tag: u16, leaf_only: bool, covered: impl Fn(u64) -> bool) {
        self.entries
            .retain(|&(of, (_, page)), _| of != tag || if page == LINK { leaf_only } else { !covered(page) });
    }

    fn local(&mut self, what: Local) {
        match what {
            Local::Page {
                address,
                stride,
                tag,
                leaf_only,
            } => self.pages(tag.0, leaf_only, |page| covers(address, stride, 1, page)),
            Local::Tag(tag) => self.entries.retain(|(of, _), _| *of != tag.0),
            Local::Kernel { address, stride } => {
                let loaded = self.loaded.1;
                for tag in [GLOBAL, loaded] {
                    self.entries.retain(|&(of, (owner, page)), _| {
                        of != tag || owner != KERNEL || !covers(address, stride, 1, page)
                    });
                }
            }
            Local::All => self.entries.clear(),
        }
    }

    fn broadcast(&mut self, what: Broadcast) {
        match what {
            Broadcast::Pages {
                address,
                stride,
                count,
                tag,
                leaf_only,
            } => self.pages(tag.0, leaf_only, |page| covers(address, stride, count, page)),
            Broadcast::Tag(tag) => self.entries.retain(|(of, _), _| *of != tag.0),
            // Those pages under every tag, including global entries; and the page-table pages on the way.
            Broadcast::Kernel {
                address,
                stride,
                count,
                leaf_only,
            } => self.entries.retain(|&(_, (_, page)), _| match page {
                LINK => leaf_only,
                page => !covers(address, stride, count, page),
            }),
            Broadcast::NonGlobal => self.entries.retain(|(of, _), _| *of == GLOBAL),
            Broadcast::All => self.entries.clear(),
        }
    }
}

/// Asserts that this CPU cannot use versions older than these.
fn judge_cpu(number: usize, cpu: &Cpu, user: bool, names: &[(Name, u64)]) {
    let (root, tag) = cpu.loaded;
    for &(name, version) in names {
        let (owner, page) = name;
        if owner != KERNEL && (owner != root || !user && page != LINK) {
            continue;
        }
        for tag in [tag, tag | USER_HALF, GLOBAL] {
            if let Some(&held) = cpu.entries.get(&(tag, name)) {
                assert!(
                    held >= version,
                    "CPU {number} can use {name:x?} under tag {tag} (C1, C3)"
                );
            }
        }
    }
    // C4: no entry of another space under the loaded tag.
    if root != 0 {
        let foreign = |(of, (owner, _)): &(u16, Name)| *of == tag && *owner != root && *owner != KERNEL;
        let found = cpu.entries.keys().find(|key| foreign(key));
        assert_eq!(found, None, "CPU {number} runs root {root} under tag {tag} (C4)");
    }
}

impl Caches {
    fn errata(&self) -> Errata {
        self.errata.unwrap_or(Errata::NONE)
    }

    pub fn version(&self, name: Name) -> u64 {
        self.withdrawn
            .get(&name)
            .map_or(0, |(withdrawn, _)| withdrawn.len() as u64)
    }

    /// The oldest version that a walk of the tables on that CPU may find.
    pub fn found(&self, cpu: usize, name: Name) -> u64 {
        let Some((withdrawn, _)) = self.withdrawn.get(&name) else {
            return 0;
        };
        let found = |&(by, time): &(usize, u64)| !clocks::walker_may_miss(cpu, by, time);
        withdrawn.iter().rposition(found).map_or(0, |index| index as u64 + 1)
    }

    /// Every CPU and the device fill everything that they can reach and do not hold yet.
    fn fill(&mut self) {
        (0..CPUS).for_each(|cpu| self.fill_on(cpu));
    }

    fn fill_on(&mut self, cpu: usize) {
        let (root, tag) = self.cpus[cpu].loaded;
        if !self.cpus[cpu].on {
            return;
        }
        let user_tag = self.split.then_some(tag | USER_HALF);
        let kernel_tag = if self.split { tag } else { GLOBAL };
        for page in 0..=LINK {
            let own = (root != 0).then_some((tag, (root, page)));
            let user = user_tag.filter(|_| root != 0).map(|tag| (tag, (root, page)));
            let kernel = (page != LINK).then_some((kernel_tag, (KERNEL, page)));
            // The user half also maps the part of the kernel that is entered first.
            let entry = user_tag
                .filter(|_| root != 0 && page != LINK)
                .map(|tag| (tag, (KERNEL, page)));
            for key in own.into_iter().chain(user).chain(kernel).chain(entry) {
                if !self.cpus[cpu].entries.contains_key(&key) {
                    let version = self.found(cpu, key.1);
                    self.cpus[cpu].entries.insert(key, version);
                }
            }
        }
    }

    /// Asserts that no CPU can use outdated entries: user pages where user code runs, page-table pages and kernel pages
    /// wherever they are loaded.
    fn judge(&self, names: &[(Name, u64)]) {
        for (number, cpu) in self.cpus.iter().enumerate() {
            if cpu.up && !flushes_at_entry(number) {
                judge_cpu(number, cpu, cpu.user, names);
            }
        }
    }

    // Called by hooks.

    pub fn invalidate(&mut self, what: Local) {
        if self.errata().repeat {
            self.issued_here[here()].push(what);
        } else {
            self.removes(|cpu| cpu.local(what));
        }
    }

    /// What this CPU could use until this removal, it has finished using now. With early acknowledgement it had
    /// finished before.
    fn removes(&mut self, remove: impl FnOnce(&mut Cpu)) {
        let late = self.ack == Some(Ack::Late);
        let cpu = &mut self.cpus[here()];
        let (root, tag) = cpu.loaded;
        let usable = |(of, (owner, _)): &(u16, Name)| *owner == root && (*of == tag || *of == tag | USER_HALF);
        let before: Vec<_> = match cpu.user && late {
            true => cpu
                .entries
                .iter()
                .filter(|(key, _)| usable(key))
                .map(|(key, version)| (*key, *version))
                .collect(),
            false => Vec::new(),
        };
        remove(cpu);
        if before.is_empty() {
            return;
        }
        let now = clocks::tick();
        for ((of, name), version) in before {
            if !cpu.entries.contains_key(&(of, name)) {
                cpu.used.insert(name, (now, version));
            }
        }
    }

    pub fn local_sync(&mut self) {
        let cpu = here();
        let now = std::mem::take(&mut self.issued_here[cpu]);
        let before = std::mem::replace(&mut self.once_here[cpu], now.clone());
        // The second invalidation takes effect.
        if !now.is_empty() && before == now {
            now.into_iter().for_each(|what| self.removes(|cpu| cpu.local(what)));
            self.once_here[cpu].clear();
        }
        self.apply_late();
        self.fill_on(here());
    }

    /// Accesses of user code in progress end when it is left.
    pub fn apply_late(&mut self) {
        let cpu = &mut self.cpus[here()];
        let late = std::mem::take(&mut cpu.late);
        late.into_iter().for_each(|what| cpu.broadcast(what));
    }

    pub fn load_root(&mut self, root: Root, tag: Tag, keep: bool) {
        let cpu = &mut self.cpus[here()];
        if !keep {
            cpu.entries.retain(|(of, _), _| *of != tag.0);
        }
        cpu.loaded = (root.0, tag.0);
        // A CPU that is no longer in the set finds broadcasts complete when it returns.
        self.apply_late();
        self.fill_on(here());
    }

    pub fn broadcast(&mut self, what: Broadcast, cpus: u64) {
        assert!(!self.errata().never_broadcast, "this processor must not broadcast");
        self.issued[here()].push((what, cpus));
    }

    pub fn broadcast_sync(&mut self) {
        let issued = std::mem::take(&mut self.issued[here()]);
        if self.errata().repeat {
            let before = std::mem::replace(&mut self.once[here()], issued.clone());
            if before != issued {
                return;
            }
            self.once[here()].clear();
        }
        for (number, cpu) in self.cpus.iter_mut().enumerate() {
            let issued = issued
                .iter()
                .filter(|(_, cpus)| cpus >> number & 1 == 1)
                .map(|(what, _)| what);
            if self.errata.is_some_and(|errata| errata.interrupt_too) && number != here() && cpu.user {
                cpu.late.extend(issued);
            } else {
                issued.for_each(|what| cpu.broadcast(*what));
            }
        }
        self.fill();
    }

    pub fn secondary(&mut self, root: Root, invalidation: Secondary) -> u64 {
        self.notified.push((root.0, invalidation));
        self.notified.len() as u64
    }

    pub fn secondary_sync(&mut self, ticket: u64) {
        let done = self.done;
        self.done = done.max(ticket as usize);
        for &(root, invalidation) in &self.notified[done..self.done] {
            self.device.retain(|(owner, page), _| match invalidation {
                Secondary::Flush(range) => {
                    let inside = (range.start()..range.end()).contains(&(page << 12));
                    (*owner != root && (root != 0 || *owner != KERNEL)) || !inside
                }
                Secondary::End => *owner != root,
            });
        }
    }

    /// The hypervisor flushes everything on this CPU.
    pub fn flush_at_entry(&mut self) {
        self.cpus[here()].entries.clear();
    }

    /// This CPU enters the kernel, by a call or an interrupt. Its earlier accesses are over.
    pub fn goes_on(&mut self) {
        self.apply_late();
        let now = clocks::tick();
        let cpu = &mut self.cpus[here()];
        let (root, tag) = cpu.loaded;
        for (&(of, name), &version) in cpu.entries.iter().filter(|_| cpu.on) {
            let usable = name.0 == KERNEL || name.0 == root && (cpu.user || name.1 == LINK);
            if usable && [tag, tag | USER_HALF, GLOBAL].contains(&of) {
                cpu.used.insert(name, (now, version));
            }
        }
    }

    // Called by tests.

    /// This CPU starts or stops running user code.
    pub fn user(&mut self, user: bool) {
        self.cpus[here()].user = user;
        if !user {
            self.apply_late();
        }
        self.fill_on(here());
        if user {
            self.judge_here(true, |_| true);
        }
    }

    /// This CPU uses kernel mappings.
    pub fn in_kernel(&mut self) {
        self.cpus[here()].up = self.cpus[here()].on;
        self.judge_here(false, |owner| owner == KERNEL);
    }

    /// This CPU may use its entries of the space with that root.
    pub fn looks(&self, root: Root) {
        assert_eq!(self.cpus[here()].loaded.0, root.0, "another space is loaded");
        self.judge_here(true, |owner| owner == root.0);
    }

    /// Entries that were withdrawn and not flushed yet may still be used: only flushed ones are checked.
    fn judge_here(&self, user: bool, whose: impl Fn(u64) -> bool) {
        let flushed = self
            .withdrawn
            .keys()
            .filter(|name| whose(name.0) && !self.is_pending(**name));
        let flushed: Vec<_> = flushed.map(|&name| (name, self.version(name))).collect();
        if self.cpus[here()].on {
            judge_cpu(here(), &self.cpus[here()], user, &flushed);
        }
    }

    fn is_pending(&self, name: Name) -> bool {
        self.pending.get(&name).is_some_and(|pending| *pending != 0)
    }

    /// The space with this root is gone. Entries of it that remain belong to no live space (C4).
    pub fn forget(&mut self, root: Root) {
        self.withdrawn.retain(|(owner, _), _| *owner != root.0);
        self.pending.retain(|(owner, _), _| *owner != root.0);
        self.cpus
            .iter_mut()
            .for_each(|cpu| cpu.used.retain(|(owner, _), _| *owner != root.0));
    }

    /// This CPU starts to run and to fill, or stops.
    pub fn online(&mut self, on: bool) {
        let cpu = &mut self.cpus[here()];
        cpu.on = on;
        cpu.up &= on;
        cpu.user = false;
        self.fill_on(here());
    }

    /// The device caches these pages.
    pub fn device_uses(&mut self, root: Root) {
        for page in 0..PAGES {
            let version = self.version((root.0, page));
            self.device.entry((root.0, page)).or_insert(version);
        }
    }

    /// Withdraws entries of pages and, with `link`, of the table; of the kernel for root 0. Returns the new versions.
    pub fn withdraw(&mut self, root: Root, pages: std::ops::Range<u64>, link: bool) -> Vec<(Name, u64)> {
        let owner = if root.0 == 0 { KERNEL } else { root.0 };
        let names: Vec<Name> = pages.chain(link.then_some(LINK)).map(|page| (owner, page)).collect();
        let withdraw = |name| {
            let (withdrawn, lock) = self.withdrawn.entry(name).or_default();
            clocks::learn(lock);
            withdrawn.push((here(), clocks::tick()));
            *lock = clocks::now();
            *self.pending.entry(name).or_insert(0) += 1;
            (name, withdrawn.len() as u64)
        };
        names.into_iter().map(withdraw).collect()
    }

    /// The flush of these entries is complete.
    pub fn flushed(&mut self, names: &[(Name, u64)]) {
        for (name, version) in names {
            if let Some(pending) = self.pending.get_mut(name) {
                *pending -= 1;
            }
            if let Some(held) = self.device.get(name) {
                assert!(held >= version, "the device can use {name:x?}");
            }
            for (number, cpu) in self.cpus.iter().enumerate() {
                let used = cpu.used.get(name).filter(|(_, old)| old < version);
                let knows = used.is_none_or(|(time, _)| clocks::knows(number, *time));
                assert!(
                    knows,
                    "CPU {} does not know that CPU {number} is through with {name:x?}",
                    here()
                );
            }
        }
        self.judge(names);
        self.fill();
    }
}
