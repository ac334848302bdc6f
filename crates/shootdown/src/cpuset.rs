//! Sets of CPUs: [`CpuMask`], a plain value, and [`CpuSet`], a shared one.
//!
//! Both are `W` words of 64 CPUs. Up to 512 CPUs (eight words, one cache line) a scan reads the words; above, a summary
//! of one byte-sized count per word says which words to read, so an empty machine of 8192 CPUs costs sixteen loads.

use crate::facade::{Facade, Word};
use crate::hooks::CpuId;
use core::sync::atomic::Ordering;

/// A set of CPUs as a plain value, for targets of one request. Lives on the stack: `8 * W` bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CpuMask<const W: usize> {
    words: [u64; W],
}

impl<const W: usize> CpuMask<W> {
    /// The empty set.
    pub const EMPTY: Self = CpuMask { words: [0; W] };

    /// CPUs that fit.
    pub const CAPACITY: usize = 64 * W;

    /// Adds `cpu`.
    ///
    /// # Panics
    /// When `cpu` is not below [`CAPACITY`](Self::CAPACITY).
    #[inline]
    pub fn insert(&mut self, cpu: CpuId) {
        self.words[cpu / 64] |= 1 << (cpu % 64);
    }

    /// Removes `cpu`; absent or out of range is not an error.
    #[inline]
    pub fn remove(&mut self, cpu: CpuId) {
        if let Some(word) = self.words.get_mut(cpu / 64) {
            *word &= !(1 << (cpu % 64));
        }
    }

    /// Whether `cpu` is in the set.
    #[inline]
    pub fn contains(&self, cpu: CpuId) -> bool {
        self.words.get(cpu / 64).is_some_and(|word| word >> (cpu % 64) & 1 == 1)
    }

    /// How many CPUs.
    #[inline]
    pub fn len(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Whether there is none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|&word| word == 0)
    }

    /// Adds every CPU of `other`.
    #[inline]
    pub fn union_with(&mut self, other: &Self) {
        for (word, more) in self.words.iter_mut().zip(&other.words) {
            *word |= more;
        }
    }

    /// The CPUs, in rising order.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = CpuId> + '_ {
        self.words.iter().enumerate().flat_map(|(index, &word)| bits(word).map(move |bit| index * 64 + bit))
    }
}

impl<const W: usize> Default for CpuMask<W> {
    fn default() -> Self {
        Self::EMPTY
    }
}

fn bits(mut word: u64) -> impl Iterator<Item = usize> {
    core::iter::from_fn(move || {
        (word != 0).then(|| {
            let bit = word.trailing_zeros() as usize;
            word &= word - 1;
            bit
        })
    })
}
