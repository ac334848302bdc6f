//! The words of the machine: memory, and the stores of each CPU that only that CPU sees so far. On x86 they become
//! visible in order (TSO). Under weak memory the order is free, except for stores to the same word and for release
//! stores, which follow all earlier stores.
//!
//! Owns values and store buffers.

use crate::architecture::Architecture;
use crate::sharing::{Place, Sharing, Touch};
use crate::views::Views;
use crate::word::{Address, mix};
use std::collections::VecDeque;

/// Most words of each CPU in addition to those of the set-up: the requests on its stack.
const DYNAMIC: u32 = 64;

/// A snapshot of memory and store buffers. Valid for [`Memory::go_back`] until that restores an earlier one.
#[derive(Debug, Clone, Default)]
pub(crate) struct Image {
    /// Number of changes so far.
    changes: usize,
    hash: u64,
    live: Vec<u64>,
    buffers: Vec<VecDeque<Waiting>>,
    views: Views,
}

/// A store that is not visible yet.
#[derive(Debug, Clone, Copy)]
struct Waiting {
    address: Address,
    value: u64,
    /// It follows all earlier stores of its CPU.
    release: bool,
}

/// Memory and store buffers.
#[derive(Debug)]
pub(crate) struct Memory {
    values: Vec<u64>,
    /// Words changed since the set-up, with their previous values; the last change last.
    changes: Vec<(Address, u64)>,
    /// Hash of all words other than 0; independent of the order of writes.
    hash: u64,
    /// Words of the set-up in use.
    used: u32,
    /// Most words of the set-up.
    fixed: u32,
    /// Which dynamic words of each CPU are in use.
    live: Vec<u64>,
    buffers: Vec<VecDeque<Waiting>>,
    architecture: Architecture,
    /// What CPUs and walkers may see instead of `values`.
    pub(crate) views: Views,
    pub(crate) sharing: Sharing,
}

impl Memory {
    /// `fixed` words for the set-up, and a number of words for each of `cpus` CPUs.
    pub(crate) fn new(fixed: u32, cpus: usize, architecture: Architecture) -> Self {
        let words = (fixed + DYNAMIC * cpus as u32) as usize;
        Memory {
            values: vec![0; words],
            changes: Vec::new(),
            hash: 0,
            used: 0,
            fixed,
            live: vec![0; cpus],
            buffers: vec![VecDeque::new(); cpus],
            architecture,
            views: Views::new(if architecture.is_weak() { cpus } else { 0 }),
            sharing: Sharing::new(words),
        }
    }

    /// Ends the set-up: no more words are added to it.
    pub(crate) fn seal(&mut self) {
        debug_assert!(self.live.iter().all(|&live| live == 0), "no word is on a stack yet");
        self.fixed = self.used;
        self.changes.clear();
        let words = self.fixed as usize + DYNAMIC as usize * self.live.len();
        self.values.truncate(words);
        self.sharing.truncate(words);
    }

    /// Copies the present state to `image`.
    pub(crate) fn keep(&self, image: &mut Image) {
        image.changes = self.changes.len();
        image.hash = self.hash;
        image.live.clone_from(&self.live);
        image.buffers.clone_from(&self.buffers);
        image.views.clone_from(&self.views);
    }

    /// Restores the image, except what is known about sharing.
    pub(crate) fn go_back(&mut self, image: &Image) {
        debug_assert!(image.changes <= self.changes.len(), "went back to an earlier one");
        for (address, value) in self.changes.drain(image.changes..).rev() {
            self.values[address as usize] = value;
        }
        self.hash = image.hash;
        self.live.copy_from_slice(&image.live);
        self.buffers.clone_from(&image.buffers);
        self.views.clone_from(&image.views);
        self.sharing.learnt = false;
    }

    /// Allocates a word that holds `value`: of the set-up, or on the stack of `cpu`.
    ///
    /// # Panics
    /// If the machine has no more words.
    pub(crate) fn allocate(&mut self, cpu: Option<usize>, value: u64) -> Address {
        let address = match cpu {
            None => {
                assert!(self.used < self.fixed, "more than {} words in the set-up", self.fixed);
                self.used += 1;
                self.used - 1
            }
            Some(cpu) => {
                let slot = (!self.live[cpu]).trailing_zeros();
                assert!(slot < DYNAMIC, "more than {DYNAMIC} words on the stack of CPU {cpu}");
                self.live[cpu] |= 1 << slot;
                self.fixed + cpu as u32 * DYNAMIC + slot
            }
        };
        self.commit(address, value);
        address
    }

    /// Frees a word if it is on a stack. Stores that are still buffered for it reach no word.
    pub(crate) fn free(&mut self, address: Address) {
        if address < self.fixed {
            return;
        }
        let (cpu, slot) = ((address - self.fixed) / DYNAMIC, (address - self.fixed) % DYNAMIC);
        self.buffers[cpu as usize].retain(|waiting| waiting.address != address);
        self.live[cpu as usize] &= !(1 << slot);
        self.commit(address, 0);
    }

    /// Whether the word exists: one on a stack ends with its frame.
    pub(crate) fn exists(&self, address: Address) -> bool {
        address < self.fixed || {
            let (cpu, slot) = ((address - self.fixed) / DYNAMIC, (address - self.fixed) % DYNAMIC);
            self.live[cpu as usize] >> slot & 1 == 1
        }
    }

    /// Whether an operation of `cpu` on the word depends on other CPUs. Records the operation.
    #[inline]
    pub(crate) fn depends(&mut self, address: Address, cpu: usize, touch: Touch) -> bool {
        self.sharing.depends(address, cpu, touch)
    }

    /// The value that `cpu` reads: its own newest store, otherwise memory.
    #[inline]
    pub(crate) fn read(&self, cpu: usize, address: Address) -> u64 {
        self.forwarded(cpu, address).unwrap_or(self.values[address as usize])
    }

    /// The newest buffered store of `cpu` to the word.
    #[inline]
    fn forwarded(&self, cpu: usize, address: Address) -> Option<u64> {
        let mut newest = self.buffers[cpu].iter().rev();
        let own = newest.find(|waiting| waiting.address == address);
        own.map(|waiting| waiting.value)
    }

    /// The number of replaced values that a load of the word by `cpu` may return.
    pub(crate) fn older(&self, cpu: usize, address: Address) -> usize {
        match self.views.are_kept() && self.forwarded(cpu, address).is_none() {
            true => self.views.older(cpu, address).count(),
            false => 0,
        }
    }

    /// `cpu` loads the word: the value that it [`read`](Self::read)s, or the one from this many replacements before.
    #[inline]
    pub(crate) fn load(&mut self, cpu: usize, address: Address, before: usize, acquire: bool) -> u64 {
        if let Some(own) = self.forwarded(cpu, address) {
            return own;
        }
        let old = match self.views.are_kept() {
            true => self.views.load(cpu, address, before, acquire),
            false => None,
        };
        old.unwrap_or(self.values[address as usize])
    }

    /// The value in memory.
    #[inline]
    pub(crate) fn value(&self, address: Address) -> u64 {
        self.values[address as usize]
    }

    /// Sets the value in memory.
    #[inline]
    pub(crate) fn commit(&mut self, address: Address, value: u64) {
        let old = std::mem::replace(&mut self.values[address as usize], value);
        self.changes.push((address, old));
        let of = |value: u64| {
            if value == 0 {
                0
            } else {
                mix(u64::from(address) + 1, value)
            }
        };
        self.hash ^= of(old) ^ of(value);
    }

    /// A store of `cpu` becomes visible; `walked`: walkers read the word.
    #[inline]
    pub(crate) fn replace(&mut self, cpu: usize, address: Address, value: u64, walked: bool) {
        if self.views.are_kept() && (walked || self.sharing.touched_by(address) & !(1 << cpu) != 0) {
            match self.values[address as usize] {
                // Otherwise a spinning CPU would have an endless past. A CPU that reads the word learns less from it
                // than it might.
                same if same == value => self.views.rewrites(cpu),
                old => self.views.replaces(cpu, address, old, walked),
            }
        }
        self.commit(address, value);
    }

    /// Adds a store to the buffer of `cpu`.
    pub(crate) fn buffer(&mut self, cpu: usize, address: Address, value: u64, release: bool) {
        self.buffers[cpu].push_back(Waiting {
            address,
            value,
            release,
        });
    }

    /// Number of buffered stores of `cpu`.
    pub(crate) fn buffered(&self, cpu: usize) -> usize {
        self.buffers[cpu].len()
    }

    /// The buffered stores of `cpu` that are wanted, from 1 for the oldest.
    pub(crate) fn waiting(&self, cpu: usize, ends_wait: impl Fn(Address, u64) -> bool) -> impl Iterator<Item = usize> {
        self.buffers[cpu]
            .iter()
            .zip(1..)
            .filter(move |(waiting, _)| ends_wait(waiting.address, waiting.value))
            .map(|(_, place)| place)
    }

    /// The buffered stores of `cpu` that must be visible before the one in `place`, and that one, the oldest first.
    pub(crate) fn before(&self, cpu: usize, place: usize) -> Vec<usize> {
        if !self.architecture.is_weak() {
            return (1..=place).collect();
        }
        let stores = &self.buffers[cpu];
        let mut needed = vec![place];
        for earlier in (1..place).rev() {
            let store = &stores[earlier - 1];
            let comes_after = |&later: &usize| stores[later - 1].release || stores[later - 1].address == store.address;
            if needed.iter().any(comes_after) {
                needed.push(earlier);
            }
        }
        needed.reverse();
        needed
    }

    /// Removes the store of `cpu` in `place` from its buffer.
    pub(crate) fn take(&mut self, cpu: usize, place: usize) -> Option<(Address, u64)> {
        let waiting = self.buffers[cpu].remove(place.checked_sub(1)?)?;
        Some((waiting.address, waiting.value))
    }

    /// Hash of values, buffers and views; `places` is the position of each CPU.
    pub(crate) fn hash(&self, places: &[Place], walked: impl Fn(Address) -> bool) -> u64 {
        let hash = self.buffers.iter().enumerate().fold(self.hash, |hash, (cpu, buffer)| {
            buffer.iter().fold(mix(hash, cpu as u64), |hash, waiting| {
                let release = u64::from(waiting.release && self.architecture.is_weak()) << 32;
                mix(mix(hash, u64::from(waiting.address) | release), waiting.value)
            })
        });
        if !self.views.are_kept() {
            return hash;
        }
        mix(
            hash,
            self.views
                .hash(|address| self.sharing.reached_by(address, places), walked),
        )
    }

    /// Drops what no CPU can see any more; `places` is the position of each CPU.
    pub(crate) fn forget(&mut self, places: &[Place], walked: impl Fn(Address) -> bool) {
        let sharing = &self.sharing;
        self.views.forget(|address| sharing.reached_by(address, places), walked);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stores_are_forwarded_locally_and_seen_elsewhere_in_order() {
        let mut memory = Memory::new(2, 2, Architecture::X86);
        let (a, b) = (memory.allocate(None, 0), memory.allocate(None, 0));
        memory.buffer(0, a, 1, false);
        memory.buffer(0, b, 2, false);
        assert_eq!((memory.read(0, a), memory.read(1, a)), (1, 0));
        assert_eq!((memory.before(0, 2), memory.take(0, 1)), (vec![1, 2], Some((a, 1))));
        memory.replace(0, a, 1, false);
        assert_eq!((memory.read(1, a), memory.read(1, b)), (1, 0));
    }

    #[test]
    fn memory_hash_depends_on_state_not_on_history() {
        let mut memory = Memory::new(2, 1, Architecture::X86);
        let (a, b) = (memory.allocate(None, 0), memory.allocate(None, 0));
        let empty = memory.hash(&[], |_| false);
        memory.commit(a, 1);
        let one = memory.hash(&[], |_| false);
        memory.commit(b, 2);
        memory.commit(a, 3);
        memory.commit(b, 0);
        memory.commit(a, 1);
        assert_eq!(memory.hash(&[], |_| false), one);
        memory.commit(a, 0);
        assert_eq!(memory.hash(&[], |_| false), empty);
        memory.buffer(0, a, 1, false);
        assert_ne!(memory.hash(&[], |_| false), empty);
    }

    #[test]
    fn accesses_depend_once_one_writes_and_across_runs() {
        let mut memory = Memory::new(1, 2, Architecture::X86);
        let a = memory.allocate(None, 0);
        let mut start = Image::default();
        memory.keep(&mut start);
        assert!(!memory.depends(a, 0, Touch::Read) && !memory.depends(a, 1, Touch::Read));
        assert!(!memory.sharing.learnt, "reads do not depend on reads");
        assert!(memory.depends(a, 1, Touch::Write) && memory.sharing.learnt);
        memory.go_back(&start);
        assert!(memory.depends(a, 0, Touch::Read) && !memory.sharing.learnt);
        assert!(!memory.depends(a, 1, Touch::Read), "no other CPU writes");
    }

    #[test]
    fn stack_word_is_freed_with_its_frame() {
        let mut memory = Memory::new(0, 1, Architecture::X86);
        let a = memory.allocate(Some(0), 7);
        memory.buffer(0, a, 8, false);
        memory.free(a);
        assert!(!memory.exists(a) && memory.buffered(0) == 0);
        assert_eq!(memory.allocate(Some(0), 0), a);
    }
}
