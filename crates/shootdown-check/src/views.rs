//! What each CPU may still see of the past, where memory is weak: views, as in the view-based models of Armv8-A and
//! RISC-V (Pulte, Pichon-Pharabod, Kang, Lee and Hur, PLDI 2019), without promises.
//!
//! Stores become visible to all other CPUs at once (multi-copy atomicity), one after the other: *now* counts them. A
//! load returns what stands in a word, or what stood there before, as long as nothing says that the load comes after
//! the replacement: no earlier load of the word by this CPU saw it, and the CPU's *floor* lies before it. What raises
//! the floor is what orders loads: an acquire, a barrier, an interrupt taken. Stores that become visible out of order
//! are `memory.rs`'s. Together that is what Arm and RISC-V allow, but for three things:
//!
//! - **Load buffering** is not there: a load never sees what is stored after a later store of its own CPU.
//! - **Dependencies** order nothing: more is tried than the processors do, not less.
//! - A failed compare-exchange reads what stands there.
//!
//! Page-table walkers are observers of their own. What a walker read before a table write it may use until something
//! orders the walk behind that write: a DSB of the writer, or of whoever has seen it (Arm); an SFENCE.VMA on the
//! walker's hart after the write was visible there (RISC-V). And the first walks under a root that is loaded may lie as
//! far back as the last barrier that comes before root loads.
//!
//! Times are of no matter, only their order: [`Views::hash`] looks at nothing else, and what nobody can see any more is
//! forgotten.

use crate::word::{Address, mix};

/// Stores that were visible before.
pub(crate) type Time = u32;

/// What a word held before it was replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Past {
    address: Address,
    value: u64,
    /// When it was stored; 0 for before anything that matters.
    stored: Time,
    /// When it was replaced.
    at: Time,
    /// The CPU that stored it.
    writer: u8,
    /// Bit *c*: the walker of CPU *c* may still find it.
    walkers: u8,
}

/// What one CPU knows.
#[derive(Debug, Clone, Default)]
struct Known {
    /// Loads from here on come after this.
    floor: Time,
    /// The newest store that it has read.
    read: Time,
    /// The newest store of its own that is visible.
    wrote: Time,
    /// By word, the newest store that it has read or written, if above the floor: coherence.
    seen: Vec<(Address, Time)>,
    /// What an interrupt that it sends comes after.
    sends: Time,
    /// What its root loads and invalidations come after, and walks thereafter.
    walks: Time,
    /// What the interrupt that it was sent comes after.
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

/// Who may see which part of the past. Empty, and of no effect, under x86.
#[derive(Debug, Clone, Default)]
pub(crate) struct Views {
    now: Time,
    /// Oldest first.
    past: Vec<Past>,
    /// When what stands in a word was stored, where `past` does not tell any more, and a walker may have come before.
    stored: Vec<(Address, Time)>,
    cpus: Vec<Known>,
}

impl Views {
    /// For so many CPUs.
    pub(crate) fn new(cpus: usize) -> Self {
        Views {
            now: 0,
            past: Vec::new(),
            stored: Vec::new(),
            cpus: vec![Known::default(); cpus],
        }
    }

    /// Whether there is a past at all.
    pub(crate) fn are_kept(&self) -> bool {
        !self.cpus.is_empty()
    }

    /// A store of `cpu` becomes visible, and replaces `value`. `walked`: walkers read the word.
    pub(crate) fn replaces(&mut self, cpu: usize, address: Address, value: u64, walked: bool) {
        self.now += 1;
        let at = self.now;
        let everybody = (1_u8 << self.cpus.len()) - 1;
        self.past.push(Past {
            address,
            value,
            stored: self.newest(address),
            at,
            writer: cpu as u8,
            walkers: if walked { everybody } else { 0 },
        });
        let known = &mut self.cpus[cpu];
        known.wrote = at;
        known.sees(address, at);
    }

    /// A store of `cpu` becomes visible, and changes nothing.
    pub(crate) fn rewrites(&mut self, cpu: usize) {
        self.cpus[cpu].wrote = self.now;
    }

    /// When what stands in the word was stored; 0 for before anything that matters.
    fn newest(&self, address: Address) -> Time {
        let of = |past: &&Past| past.address == address;
        let known = self.stored.iter().find(|&&(other, _)| other == address);
        let stored = || known.map_or(0, |&(_, at)| at);
        self.past.iter().rev().find(of).map_or_else(stored, |past| past.at)
    }

    /// What a load of the word by `cpu` may return beside what stands there, newest first.
    pub(crate) fn older(&self, cpu: usize, address: Address) -> impl Iterator<Item = u64> {
        let known = &self.cpus[cpu];
        let from = known.floor.max(known.seen(address));
        let visible = move |past: &&Past| past.address == address && past.at > from;
        self.past.iter().rev().filter(visible).map(|past| past.value)
    }

    /// `cpu` loads what stands in the word (0), or the value that many before. Returns that value.
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

    /// What `cpu` does from here on comes after all that it has read and written.
    pub(crate) fn order_all(&mut self, cpu: usize) {
        let known = &mut self.cpus[cpu];
        known.floor = known.floor.max(known.read).max(known.wrote);
    }

    /// What `cpu` does from here on comes after everything that has happened.
    pub(crate) fn order_now(&mut self, cpu: usize) {
        self.cpus[cpu].floor = self.now;
    }

    /// Interrupts that `cpu` sends from here on come after what its loads do.
    pub(crate) fn order_interrupts(&mut self, cpu: usize) {
        let known = &mut self.cpus[cpu];
        known.sends = known.floor.max(known.wrote);
    }

    /// Root loads and invalidations of `cpu` from here on come after what its loads do.
    pub(crate) fn order_walks(&mut self, cpu: usize) {
        let known = &mut self.cpus[cpu];
        known.walks = known.floor.max(known.wrote);
    }

    /// What walkers of all CPUs have found too early goes with an invalidation that `cpu` issues for all.
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

    /// What the walker of `cpu` may find in the word beside what stands there; with `early` also what it may have found
    /// since then.
    pub(crate) fn walked(&self, cpu: usize, address: Address, early: Option<Time>) -> impl Iterator<Item = u64> {
        let found = move |past: &&Past| {
            past.address == address && (past.walkers >> cpu & 1 == 1 || early.is_some_and(|since| past.at > since))
        };
        self.past.iter().filter(found).map(|past| past.value)
    }

    /// Since when there may be walks by `cpu` under a root that it loads now, or that an invalidation does not cover
    /// which it issues now: both wait for what they were decided by, and for the barriers that are for them.
    pub(crate) fn walks_since(&self, cpu: usize) -> Time {
        self.cpus[cpu].walks_since()
    }

    /// Whether some walker may miss a table write.
    pub(crate) fn are_walkers_behind(&self) -> bool {
        self.past.iter().any(|past| past.walkers != 0)
    }

    /// The walkers in `walkers` find what `cpu` has written, and with `known` what it knows otherwise.
    pub(crate) fn publish(&mut self, cpu: usize, walkers: u8, known: bool) {
        let own = &self.cpus[cpu];
        let until = if known { own.floor.max(own.read) } else { 0 };
        self.catch_up(walkers, |past| usize::from(past.writer) == cpu || past.at <= until);
    }

    /// The walker of `cpu` finds what its root loads come after.
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

    /// Forgets what nobody can see: `touches` says who ever touches a word, one bit each; `walked` whether walkers do.
    pub(crate) fn forget(&mut self, touches: impl Fn(Address) -> u8, walked: impl Fn(Address) -> bool) {
        let cpus = &mut self.cpus;
        for (cpu, known) in cpus.iter_mut().enumerate() {
            // A replacement that cannot be missed, and is the first that could be, orders nothing any more.
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

    /// Identifies what can be seen; after [`forget`](Self::forget), with the same answers.
    pub(crate) fn hash(&self, touches: impl Fn(Address) -> u8, walked: impl Fn(Address) -> bool) -> u64 {
        let mut hash = 0;
        for (cpu, known) in self.cpus.iter().enumerate() {
            // In the order of what this CPU may see: its own times, and those that others may hand to it.
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
            let behind = known.fold(0, |bits, (cpu, known)| {
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
            let who = u64::from(past.writer) << 8 | u64::from(past.walkers);
            hash = mix(mix(mix(hash, u64::from(past.address)), past.value), behind << 16 | who);
        }
        // What is known to have been stored behind which table write.
        let behind = |at: Time| {
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
        let ranked = all.map(|(address, value, at)| (mix(u64::from(address), value), behind(at)));
        let ranked = ranked.filter(|&(_, rank)| rank > 0);
        ranked.fold(hash, |hash, (word, rank)| hash ^ mix(word, rank))
    }
}
