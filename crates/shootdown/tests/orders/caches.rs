//! What CPUs and a device may have cached, and what of it they may use (C1, C3): versions of pages, of links and of
//! kernel pages. A CPU caches all that it can reach, whenever it can.

use crate::clocks::{self, Clock};
use crate::world::{CPUS, flushes_at_entry, here};
use shootdown::{Ack, Broadcast, Design, Errata, Local, Root, Secondary, Stride, Tag, USER_HALF};
use std::cell::RefCell;
use std::collections::BTreeMap;

/// Pages of each space, and of the kernel.
pub const PAGES: u64 = 6;

/// Stands for what is mapped in all spaces.
const KERNEL: u64 = u64::MAX;

/// Stands for the tag of global entries.
const GLOBAL: u16 = u16::MAX;

/// Where the link to the lowest table of a space stands among its pages.
pub const LINK: u64 = PAGES;

/// Whose, and which page.
pub type Name = (u64, u64);

#[derive(Default, Clone)]
struct Cpu {
    /// Root and tag that are loaded.
    loaded: (u64, u16),
    /// Version of each entry, by tag.
    entries: BTreeMap<(u16, Name), u64>,
    /// Broadcasts that take effect at its next synchronisation.
    late: Vec<Broadcast>,
    user: bool,
    /// It fills, and it may use what is mapped in the kernel.
    on: bool,
    up: bool,
    /// When it last went on from using what it had, and of which version that was.
    used: BTreeMap<Name, (u64, u64)>,
}

/// All of it.
#[derive(Default)]
pub struct Caches {
    cpus: [Cpu; CPUS],
    /// Who withdrew which version, and when; and what whoever withdraws the next of the same entry knows by its lock.
    withdrawn: BTreeMap<Name, (Vec<(usize, u64)>, Clock)>,
    /// Withdrawals that have not been flushed.
    pending: BTreeMap<Name, u64>,
    device: BTreeMap<Name, u64>,
    told: Vec<(u64, Secondary)>,
    /// How much of that it has done.
    done: usize,
    /// What was broadcast, and to which CPUs, a bit each.
    issued: [Vec<(Broadcast, u64)>; CPUS],
    issued_here: [Vec<Local>; CPUS],
    pub split: bool,
    pub errata: Option<Errata>,
    ack: Option<Ack>,
    /// With [`Errata::repeat`]: what the last synchronisation was for, and did not do.
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
            // Those pages under every tag, the global ones too, and links on the way.
            Broadcast::Kernel { address, stride, count } => self
                .entries
                .retain(|&(_, (_, page)), _| page != LINK && !covers(address, stride, count, page)),
            Broadcast::NonGlobal => self.entries.retain(|(of, _), _| *of == GLOBAL),
            Broadcast::All => self.entries.clear(),
        }
    }
}

/// That CPU, which runs user code or does not, cannot use what is older than these.
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
    // C4: nothing of others under the tag that is loaded.
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

    /// Every CPU and the device cache what they can reach and do not hold yet.
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
            // The user half maps some of the kernel too, where it is entered.
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

    /// Nobody can use what is out of date: user pages where user code runs, links and kernel pages wherever they are
    /// loaded.
    fn judge(&self, names: &[(Name, u64)]) {
        for (number, cpu) in self.cpus.iter().enumerate() {
            if cpu.up && !flushes_at_entry(number) {
                judge_cpu(number, cpu, cpu.user, names);
            }
        }
    }

    // What hooks do.

    pub fn invalidate(&mut self, what: Local) {
        if self.errata().repeat {
            self.issued_here[here()].push(what);
        } else {
            self.removes(|cpu| cpu.local(what));
        }
    }

    /// What this CPU could use, and cannot any more, it is through with now; but where it answers early it was before.
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
        // The second time it works.
        if !now.is_empty() && before == now {
            now.into_iter().for_each(|what| self.removes(|cpu| cpu.local(what)));
            self.once_here[cpu].clear();
        }
        self.apply_late();
        self.fill_on(here());
    }

    /// What user code has under way is over when it is left.
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
        // A CPU that is not in the set any more finds broadcasts done when it comes back.
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

    pub fn secondary(&mut self, root: Root, told: Secondary) -> u64 {
        self.told.push((root.0, told));
        self.told.len() as u64
    }

    pub fn secondary_sync(&mut self, ticket: u64) {
        let done = self.done;
        self.done = done.max(ticket as usize);
        for &(root, told) in &self.told[done..self.done] {
            self.device.retain(|(owner, page), _| match told {
                Secondary::Flush(range) => {
                    let inside = (range.start()..range.end()).contains(&(page << 12));
                    (*owner != root && (root != 0 || *owner != KERNEL)) || !inside
                }
                Secondary::End => *owner != root,
            });
        }
    }

    /// The hypervisor flushes everything here.
    pub fn flush_at_entry(&mut self) {
        self.cpus[here()].entries.clear();
    }

    /// This CPU goes on from what it did, in the kernel: by a call, or an interrupt. What it had under way is over.
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

    // What tests do.

    /// This CPU runs user code from here on, or not.
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

    /// This CPU uses what is mapped in the kernel.
    pub fn in_kernel(&mut self) {
        self.cpus[here()].up = self.cpus[here()].on;
        self.judge_here(false, |owner| owner == KERNEL);
    }

    /// This CPU may use what it has of the space with that root.
    pub fn looks(&self, root: Root) {
        assert_eq!(self.cpus[here()].loaded.0, root.0, "another space is loaded");
        self.judge_here(true, |owner| owner == root.0);
    }

    /// What was withdrawn and is not flushed yet may still be used: only what was flushed is judged.
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

    /// There is no space with this root any more. What is held of it is not its own (C4).
    pub fn forget(&mut self, root: Root) {
        self.withdrawn.retain(|(owner, _), _| *owner != root.0);
        self.pending.retain(|(owner, _), _| *owner != root.0);
        self.cpus
            .iter_mut()
            .for_each(|cpu| cpu.used.retain(|(owner, _), _| *owner != root.0));
    }

    /// This CPU begins to run, and to fill; or does not run any more.
    pub fn online(&mut self, on: bool) {
        let cpu = &mut self.cpus[here()];
        cpu.on = on;
        cpu.up &= on;
        cpu.user = false;
        self.fill_on(here());
    }

    /// The device has these pages cached.
    pub fn device_uses(&mut self, root: Root) {
        for page in 0..PAGES {
            let version = self.version((root.0, page));
            self.device.entry((root.0, page)).or_insert(version);
        }
    }

    /// Entries of pages are withdrawn, and with `link` the table; of the kernel for root 0. What came instead, by
    /// version.
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

    /// The flush of these is complete.
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
