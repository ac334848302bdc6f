//! The words of the machine: what memory holds, and the stores of each CPU that only it can see yet (x86-TSO).
//!
//! Owns values, store buffers, and the knowledge of which words more than one CPU has ever touched. That knowledge lasts
//! from run to run of an exploration: a word that only one CPU touches in any run needs no interleaving at its accesses.
//! When a second CPU touches one, whoever explores starts over.

use std::collections::VecDeque;

/// A word, by number.
pub(crate) type Address = u32;

/// Words that each CPU may hold at a time beside those of the set-up: the requests on its stack.
const DYNAMIC: u32 = 64;

/// Mixes `value` into `hash`.
#[inline]
pub(crate) fn mix(hash: u64, value: u64) -> u64 {
    // The finaliser of splitmix64 over a sum that depends on the order.
    let mut x = hash
        .rotate_left(5)
        .wrapping_add(value)
        .wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// What is learnt over all runs of an exploration: who touches which word, and who is interrupted.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sharing {
    /// Of each word, bit *c*: CPU *c* has touched it.
    touched: Vec<u8>,
    /// Of each word, bit *c*: CPU *c* has written it.
    written: Vec<u8>,
    /// Bit *c*: CPU *c* was sent an interrupt.
    interrupted: u8,
    /// Something was learnt in this run that makes more steps depend on each other.
    pub(crate) learnt: bool,
}

/// What an operation does with a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Touch {
    Read,
    Write,
}

impl Sharing {
    /// Whether what `cpu` does with the word depends on what another CPU does with it in some run; notes that `cpu` does it.
    #[inline]
    fn depends(&mut self, address: Address, cpu: usize, touch: Touch) -> bool {
        let own = 1 << cpu;
        let (touched, written) = (&mut self.touched[address as usize], &mut self.written[address as usize]);
        let before = (*touched, *written);
        *touched |= own;
        if touch == Touch::Write {
            *written |= own;
        }
        if (*touched, *written) != before {
            // Whoever has touched the word before may have been taken to be alone with it.
            let others_read = before.0 & !own != 0 && touch == Touch::Write;
            let others_wrote = before.1 & !own != 0;
            self.learnt |= others_read || others_wrote;
        }
        match touch {
            Touch::Read => *written & !own != 0,
            Touch::Write => *touched & !own != 0,
        }
    }

    /// Whether `cpu` is sent interrupts in some run.
    #[inline]
    pub(crate) fn is_interrupted(&self, cpu: usize) -> bool {
        self.interrupted >> cpu & 1 == 1
    }

    /// `cpu` is sent an interrupt.
    pub(crate) fn interrupts(&mut self, cpu: usize) {
        self.learnt |= !self.is_interrupted(cpu);
        self.interrupted |= 1 << cpu;
    }
}

/// What memory and store buffers held at some time. Good for [`Memory::go_back`] until that goes back to an earlier one.
#[derive(Debug, Clone, Default)]
pub(crate) struct Image {
    /// Changes that had been made.
    changes: usize,
    hash: u64,
    live: Vec<u64>,
    buffers: Vec<VecDeque<(Address, u64)>>,
}

/// Memory and store buffers.
#[derive(Debug)]
pub(crate) struct Memory {
    values: Vec<u64>,
    /// Words that were changed since the set-up, with what they held before; the last change last.
    changes: Vec<(Address, u64)>,
    /// Of all words that do not hold 0; independent of the order of writes.
    hash: u64,
    /// Words of the set-up that are given out.
    used: u32,
    /// Words of the set-up that there can be.
    fixed: u32,
    /// Which dynamic words of each CPU are in use.
    live: Vec<u64>,
    buffers: Vec<VecDeque<(Address, u64)>>,
    pub(crate) sharing: Sharing,
}

impl Memory {
    /// `fixed` words for the set-up, and some for each of `cpus` CPUs.
    pub(crate) fn new(fixed: u32, cpus: usize) -> Self {
        let words = (fixed + DYNAMIC * cpus as u32) as usize;
        Memory {
            values: vec![0; words],
            changes: Vec::new(),
            hash: 0,
            used: 0,
            fixed,
            live: vec![0; cpus],
            buffers: vec![VecDeque::new(); cpus],
            sharing: Sharing {
                touched: vec![0; words],
                written: vec![0; words],
                interrupted: 0,
                learnt: false,
            },
        }
    }

    /// The set-up is over: there will be no more words of it.
    pub(crate) fn seal(&mut self) {
        debug_assert!(self.live.iter().all(|&live| live == 0), "no word is on a stack yet");
        self.fixed = self.used;
        self.changes.clear();
        let words = self.fixed as usize + DYNAMIC as usize * self.live.len();
        self.values.truncate(words);
        self.sharing.touched.truncate(words);
        self.sharing.written.truncate(words);
    }

    /// Makes `image` what it holds now.
    pub(crate) fn keep(&self, image: &mut Image) {
        image.changes = self.changes.len();
        image.hash = self.hash;
        image.live.clone_from(&self.live);
        image.buffers.clone_from(&self.buffers);
    }

    /// As in the image, but for what is known about sharing.
    pub(crate) fn go_back(&mut self, image: &Image) {
        debug_assert!(image.changes <= self.changes.len(), "went back to an earlier one");
        for (address, value) in self.changes.drain(image.changes..).rev() {
            self.values[address as usize] = value;
        }
        self.hash = image.hash;
        self.live.copy_from_slice(&image.live);
        self.buffers.clone_from(&image.buffers);
        self.sharing.learnt = false;
    }

    /// A word that holds `value`: of the set-up, or on the stack of `cpu`.
    ///
    /// # Panics
    /// When there are more than the machine was made for.
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

    /// The end of a word that is on a stack; others stay. What is left in the buffer for it goes to nobody.
    pub(crate) fn free(&mut self, address: Address) {
        if address < self.fixed {
            return;
        }
        let (cpu, slot) = ((address - self.fixed) / DYNAMIC, (address - self.fixed) % DYNAMIC);
        self.buffers[cpu as usize].retain(|&(other, _)| other != address);
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

    /// Whether what `cpu` does with the word depends on others; notes that `cpu` does it.
    #[inline]
    pub(crate) fn depends(&mut self, address: Address, cpu: usize, touch: Touch) -> bool {
        self.sharing.depends(address, cpu, touch)
    }

    /// What `cpu` reads: its own newest store, else memory.
    #[inline]
    pub(crate) fn read(&self, cpu: usize, address: Address) -> u64 {
        self.buffers[cpu]
            .iter()
            .rev()
            .find(|&&(other, _)| other == address)
            .map_or(self.values[address as usize], |&(_, value)| value)
    }

    /// What memory holds.
    #[inline]
    pub(crate) fn value(&self, address: Address) -> u64 {
        self.values[address as usize]
    }

    /// Makes memory hold `value`.
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

    /// A store that waits in the buffer of `cpu`.
    pub(crate) fn buffer(&mut self, cpu: usize, address: Address, value: u64) {
        self.buffers[cpu].push_back((address, value));
    }

    /// Stores of `cpu` that wait.
    pub(crate) fn buffered(&self, cpu: usize) -> usize {
        self.buffers[cpu].len()
    }

    /// How many of the oldest stores of `cpu` have to become visible for the newest one to this word to be.
    pub(crate) fn until(&self, cpu: usize, wanted: impl Fn(Address, u64) -> bool) -> impl Iterator<Item = usize> {
        self.buffers[cpu]
            .iter()
            .zip(1..)
            .filter(move |((address, value), _)| wanted(*address, *value))
            .map(|(_, count)| count)
    }

    /// The oldest store of `cpu` becomes visible. Returns its word.
    pub(crate) fn drain_one(&mut self, cpu: usize) -> Option<Address> {
        let (address, value) = self.buffers[cpu].pop_front()?;
        self.commit(address, value);
        Some(address)
    }

    /// Of values and buffers.
    pub(crate) fn hash(&self) -> u64 {
        self.buffers.iter().enumerate().fold(self.hash, |hash, (cpu, buffer)| {
            buffer.iter().fold(mix(hash, cpu as u64), |hash, &(address, value)| {
                mix(mix(hash, u64::from(address)), value)
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_seen_by_its_own_cpu_first_and_by_others_in_order() {
        let mut memory = Memory::new(2, 2);
        let (a, b) = (memory.allocate(None, 0), memory.allocate(None, 0));
        memory.buffer(0, a, 1);
        memory.buffer(0, b, 2);
        assert_eq!((memory.read(0, a), memory.read(1, a)), (1, 0));
        assert_eq!(memory.drain_one(0), Some(a));
        assert_eq!((memory.read(1, a), memory.read(1, b)), (1, 0));
    }

    #[test]
    fn the_hash_tells_states_apart_and_forgets_how_they_came_about() {
        let mut memory = Memory::new(2, 1);
        let (a, b) = (memory.allocate(None, 0), memory.allocate(None, 0));
        let empty = memory.hash();
        memory.commit(a, 1);
        let one = memory.hash();
        memory.commit(b, 2);
        memory.commit(a, 3);
        memory.commit(b, 0);
        memory.commit(a, 1);
        assert_eq!(memory.hash(), one);
        memory.commit(a, 0);
        assert_eq!(memory.hash(), empty);
        memory.buffer(0, a, 1);
        assert_ne!(memory.hash(), empty);
    }

    #[test]
    fn an_access_depends_on_others_once_one_of_them_writes_and_that_outlives_a_run() {
        let mut memory = Memory::new(1, 2);
        let a = memory.allocate(None, 0);
        let mut start = Image::default();
        memory.keep(&mut start);
        assert!(!memory.depends(a, 0, Touch::Read) && !memory.depends(a, 1, Touch::Read));
        assert!(!memory.sharing.learnt, "reads do not depend on reads");
        assert!(memory.depends(a, 1, Touch::Write) && memory.sharing.learnt);
        memory.go_back(&start);
        assert!(memory.depends(a, 0, Touch::Read) && !memory.sharing.learnt);
        assert!(!memory.depends(a, 1, Touch::Read), "nobody else writes");
    }

    #[test]
    fn a_word_on_a_stack_ends_with_its_frame() {
        let mut memory = Memory::new(0, 1);
        let a = memory.allocate(Some(0), 7);
        memory.buffer(0, a, 8);
        memory.free(a);
        assert!(!memory.exists(a) && memory.buffered(0) == 0);
        assert_eq!(memory.allocate(Some(0), 0), a);
    }
}
