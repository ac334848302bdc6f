//! What each CPU may still see of the past under weak memory: views, as in the view-based models of Armv8-A and RISC-V
//! (Pulte, Pichon-Pharabod, Kang, Lee and Hur, PLDI 2019), without promises.
//!
//! Stores become visible to all other CPUs at once (multi-copy atomicity), one after the other: *now* counts them. A
//! load returns the current value of a word, or an older one if nothing orders the load after the replacement. That is
//! so if no earlier load of the word by this CPU saw the replacement, and it lies after the CPU's *floor*. Everything
//! that orders loads raises the floor: an acquire, a barrier, an interrupt taken. Stores that become visible out of
//! order are in `memory.rs`. Together this is what Arm and RISC-V allow, with three differences:
//!
//! - **Load buffering** is absent: a load never sees a store that follows a later store of its own CPU.
//! - **Dependencies** order nothing: this allows more than the processors do, not less.
//! - A failed compare-exchange reads the current value.
//!
//! Page-table walkers are separate observers. A walker may use what it read before a table write until something orders
//! the walk after that write. On Arm that is a DSB of the writer or of a CPU that has seen the write. On RISC-V it is
//! an SFENCE.VMA on the walker's hart after the write was visible there. The first walks under a newly loaded root may
//! be as old as the last barrier that precedes root loads.
//!
//! Only the order of times matters: [`Views::hash`] uses nothing else, and values that no CPU can see any more are
//! dropped.

use crate::word::{Address, mix};

/// Number of stores that were visible before.
pub(crate) type Time = u32;

/// The value of a word before it was replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Past {
    address: Address,
    value: u64,
    /// When it was stored; 0 for before everything relevant.
    stored: Time,
    /// When it was replaced.
    at: Time,
    /// The CPU that stored it.
    writer: u8,
    /// Bit *c*: the walker of CPU *c* may still find it.
    walkers: u8,
}

/// The knowledge of one CPU.
#[derive(Debug, Clone, Default)]
struct Known {
    /// Later loads are ordered after this.
    floor: Time,
    /// The newest store that it has read.
    read: Time,
    /// The newest store of its own that is visible.
    wrote: Time,
    /// By word, the newest store that it has read or written, if above the floor: coherence.
    seen: Vec<(Address, Time)>,
    /// Interrupts that it sends are ordered after this.
    sends: Time,
    /// Its root loads and invalidations, and later walks, are ordered after this.
    walks: Time,
    /// The interrupt that it was sent is ordered after this.
    sent: Time,
}

impl Known {
    fn seen(&self, address: Address) -> Time {
        let own = self.seen.iter().find(|&&(other, _)| other == address);
        own.map_or(0, |&(_, at)| at)
    }

    fn walks_since(&self) -> Time {
        self.walks.max(self.read)
    }

    fn sees(&mut self, address: Address, at: Time) {
        match self.seen.iter_mut().find(|(other, _)| *other == address) {
            Some((_, seen)) => *seen = at.max(*seen),
            None => self.seen.push((address, at)),
        }
    }
}

/// Which CPU may see which part of the past. Empty, and without effect, under x86.
#[derive(Debug, Clone, Default)]
pub(crate) struct Views {
    now: Time,
    /// Oldest first.
    past: Vec<Past>,
    /// When the current value of a word was stored, if `past` no longer says, and a walker may have come before.
    stored: Vec<(Address, Time)>,
    cpus: Vec<Known>,
}

impl Views {
    /// For `cpus` CPUs.
    pub(crate) fn new(cpus: usize) -> Self {
        Views {
            now: 0,
            past: Vec::new(),
            stored: Vec::new(),
            cpus: vec![Known::default(); cpus],
        }
    }

    /// Whether views are kept.
    pub(crate) fn are_kept(&self) -> bool {
        !self.cpus.is_empty()
    }

    /// A store of `cpu` becomes visible, and replaces `value`. `walked`: whether walkers read the word.
    pub(crate) fn replaces(&mut self, cpu: usize, address: Address, value: u64, walked: bool) {
        self.now += 1;
        let at = self.now;
        let all_cpus = (1_u8 << self.cpus.len()) - 1;
        self.past.push(Past {
            address,
            value,
            stored: self.newest(address),
            at,
            writer: cpu as u8,
            walkers: if walked { all_cpus } else { 0 },
        });
        let known = &mut self.cpus[cpu];
        known.wrote = at;
        known.sees(address, at);
    }

    /// A store of `cpu` becomes visible without a change of value.
    pub(crate) fn rewrites(&mut self, cpu: usize) {
        self.cpus[cpu].wrote = self.now;
    }

    /// When the current value of the word was stored; 0 for before everything relevant.
    fn newest(&self, address: Address) -> Time {
        let of = |past: &&Past| past.address == address;
        let known = self.stored.iter().find(|&&(other, _)| other == address);
        let stored = || known.map_or(0, |&(_, at)| at);
        self.past.iter().rev().find(of).map_or_else(stored, |past| past.at)
    }

    /// The older values that a load of the word by `cpu` may return, newest first.
    pub(crate) fn older(&self, cpu: usize, address: Address) -> impl Iterator<Item = u64> {
        let known = &self.cpus[cpu];
        let from = known.floor.max(known.seen(address));
        let visible = move |past: &&Past| past.address == address && past.at > from;
        self.past.iter().rev().filter(visible).map(|past| past.value)
    }

    /// `cpu` loads the current value of the word (0), or the value that many before. Returns that value.
    pub(crate) fn load(&mut self, cpu: usize, address: Address, before: usize, acquire: bool) -> Option<u64> {
        let (value, stored) = match before {
            0 => (None, self.newest(address)),
            _ => {
                let mut back = self.past.iter().rev().filter(|past| past.address == address);
                let past = back.nth(before - 1);
                (past.map(|past| past.value), past.map_or(0, |past| past.stored))
            }
        };
        let known = &mut self.cpus[cpu];
        known.read = known.read.max(stored);
        known.sees(address, stored);
        if acquire {
            known.floor = known.floor.max(stored);
        }
        value
    }

    /// Orders later actions of `cpu` after everything that it has read and written.
    pub(crate) fn order_all(&mut self, cpu: usize) {
        let known = &mut self.cpus[cpu];
        known.floor = known.floor.max(known.read).max(known.wrote);
    }

    /// Orders later actions of `cpu` after everything that has happened.
    pub(crate) fn order_now(&mut self, cpu: usize) {
        self.cpus[cpu].floor = self.now;
    }

    /// Orders later interrupts sent by `cpu` after what orders its loads.
    pub(crate) fn order_interrupts(&mut self, cpu: usize) {
        let known = &mut self.cpus[cpu];
        known.sends = known.floor.max(known.wrote);
    }

    /// Orders later root loads and invalidations of `cpu` after what orders its loads.
    pub(crate) fn order_walks(&mut self, cpu: usize) {
        let known = &mut self.cpus[cpu];
        known.walks = known.floor.max(known.wrote);
    }

    /// Early walks of all CPUs are covered by an invalidation that `cpu` issues for all.
    pub(crate) fn order_walks_everywhere(&mut self, cpu: usize) {
        let until = self.cpus[cpu].floor.max(self.cpus[cpu].wrote);
        self.cpus
            .iter_mut()
            .for_each(|known| known.walks = known.walks.max(until));
    }

    /// `cpu` sends an interrupt to `target`.
    pub(crate) fn send(&mut self, cpu: usize, target: usize) {
        let sends = self.cpus[cpu].sends;
        let known = &mut self.cpus[target];
        known.sent = known.sent.max(sends);
    }

    /// `cpu` takes its interrupt.
    pub(crate) fn take_interrupt(&mut self, cpu: usize) {
        let known = &mut self.cpus[cpu];
        known.floor = known.floor.max(known.sent);
        known.walks = known.walks.max(known.floor);
    }

    // Walkers.

    /// The older values that the walker of `cpu` may find in the word; with `early` also those that it may have found
    /// since then.
    pub(crate) fn walked(&self, cpu: usize, address: Address, early: Option<Time>) -> impl Iterator<Item = u64> {
        let found = move |past: &&Past| {
            past.address == address && (past.walkers >> cpu & 1 == 1 || early.is_some_and(|since| past.at > since))
        };
        self.past.iter().filter(found).map(|past| past.value)
    }

    /// The earliest time of walks by `cpu` under a root that it loads now, or of walks that an invalidation issued now
    /// does not cover. Both wait for the loads that decided them, and for the barriers intended for them.
    pub(crate) fn walks_since(&self, cpu: usize) -> Time {
        self.cpus[cpu].walks_since()
    }

    /// Whether some walker may miss a table write.
    pub(crate) fn are_walkers_behind(&self) -> bool {
        self.past.iter().any(|past| past.walkers != 0)
    }

    /// The walkers in `walkers` find what `cpu` has written and, with `known`, everything else that it knows.
    pub(crate) fn publish(&mut self, cpu: usize, walkers: u8, known: bool) {
        let own = &self.cpus[cpu];
        let until = if known { own.floor.max(own.read) } else { 0 };
        self.catch_up(walkers, |past| usize::from(past.writer) == cpu || past.at <= until);
    }

    /// The walker of `cpu` finds everything that its root loads are ordered after.
    pub(crate) fn publish_to_root(&mut self, cpu: usize) {
        let until = self.cpus[cpu].walks;
        self.catch_up(1 << cpu, |past| past.at <= until);
    }

    fn catch_up(&mut self, walkers: u8, published: impl Fn(&Past) -> bool) {
        for index in (0..self.past.len()).rev() {
            let past = self.past[index];
            if published(&past) {
                let older = self.past[..=index].iter_mut();
                older
                    .filter(|other| other.address == past.address)
                    .for_each(|other| other.walkers &= !walkers);
            }
        }
    }

    // States.

    /// Drops what no CPU can see: `touches` gives the CPUs that access a word, one bit each; `walked` whether walkers
    /// do.
    pub(crate) fn forget(&mut self, touches: impl Fn(Address) -> u8, walked: impl Fn(Address) -> bool) {
        let cpus = &mut self.cpus;
        for (cpu, known) in cpus.iter_mut().enumerate() {
            // The first replacement that could be missed, if it cannot be, orders nothing any more.
            for past in self.past.iter().filter(|past| touches(past.address) >> cpu & 1 == 1) {
                if past.at > known.floor {
                    if past.at > known.seen(past.address) {
                        break;
                    }
                    known.floor = past.at;
                }
            }
            let floor = known.floor;
            known.seen.retain(|&(_, at)| at > floor);
        }
        let stays = |past: &Past| {
            let touched = touches(past.address);
            let of_loads = |(cpu, known): (usize, &Known)| touched >> cpu & 1 == 1 && past.at > known.floor;
            let of_walks = |known: &Known| past.walkers != 0 || past.at > known.walks_since();
            cpus.iter().enumerate().any(of_loads) || walked(past.address) && cpus.iter().any(of_walks)
        };
        let mut on_tables = self.past.iter().filter(|past| walked(past.address) && stays(past));
        let oldest = on_tables.next().map_or(Time::MAX, |past| past.at);
        let stored = &mut self.stored;
        stored.retain(|&(_, at)| at >= oldest);
        self.past.retain(|past| {
            let stays = stays(past);
            if !stays && past.at >= oldest {
                stored.retain(|&(address, _)| address != past.address);
                stored.push((past.address, past.at));
            }
            stays
        });
    }

    /// Identifies what can be seen; after [`forget`](Self::forget), with the same arguments.
    pub(crate) fn hash(&self, touches: impl Fn(Address) -> u8, walked: impl Fn(Address) -> bool) -> u64 {
        let mut hash = 0;
        for (cpu, known) in self.cpus.iter().enumerate() {
            // In the order in which this CPU may see them: its own times, and those that other CPUs may pass to it.
            let mut times = [known.read, known.wrote, known.sent].map(|at| (at, 0_u64));
            let mut rank = 0;
            for past in self.past.iter() {
                if touches(past.address) >> cpu & 1 == 0 || past.at <= known.floor {
                    continue;
                }
                rank += 1;
                times
                    .iter_mut()
                    .for_each(|(at, below)| *below = if past.at <= *at { rank } else { *below });
                let others = self.cpus.iter().enumerate().filter(|&(other, _)| other != cpu);
                let sends = others.fold(0, |bits, (other, known)| {
                    bits | u64::from(past.at <= known.sends) << other
                });
                let readable = u64::from(past.at > known.seen(past.address));
                hash = mix(
                    mix(hash, u64::from(past.address) << 8 | sends << 1 | readable),
                    past.value,
                );
            }
            hash = times
                .iter()
                .fold(mix(hash, cpu as u64), |hash, &(_, below)| mix(hash, below));
        }
        for past in self.past.iter().filter(|past| walked(past.address)) {
            let known = self.cpus.iter().enumerate();
            let unseen = known.fold(0, |bits, (cpu, known)| {
                let times = [
                    known.walks,
                    known.walks_since(),
                    known.floor,
                    known.read,
                    known.wrote,
                    known.sent,
                ];
                let own = times.iter().fold(0, |bits, &at| bits << 1 | u64::from(past.at <= at));
                bits | own << (6 * cpu)
            });
            let origin = u64::from(past.writer) << 8 | u64::from(past.walkers);
            hash = mix(
                mix(mix(hash, u64::from(past.address)), past.value),
                unseen << 16 | origin,
            );
        }
        // Which table writes a store is known to follow.
        let unseen = |at: Time| {
            self.past
                .iter()
                .filter(|past| walked(past.address) && past.at <= at)
                .count() as u64
        };
        let of_past = self.past.iter().flat_map(|past| {
            [
                (past.address, past.value, past.at),
                (past.address, !past.value, past.stored),
            ]
        });
        let all = of_past.chain(self.stored.iter().map(|&(address, at)| (address, u64::MAX, at)));
        let ranked = all.map(|(address, value, at)| (mix(u64::from(address), value), unseen(at)));
        let ranked = ranked.filter(|&(_, rank)| rank > 0);
        ranked.fold(hash, |hash, (word, rank)| hash ^ mix(word, rank))
    }
}
