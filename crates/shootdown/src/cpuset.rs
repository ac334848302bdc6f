//! Sets of CPUs: [`CpuMask`], a plain value, and [`CpuSet`], a shared one.
//!
//! Both are `W` words of 64 CPUs. Up to 512 CPUs (eight words, one cache line) a scan reads the words; above, a summary
//! of one byte-sized count per word says which words to read, so an empty machine of 8192 CPUs costs sixteen loads.

use crate::facade::{Facade, Word};
use crate::hooks::CpuId;
use core::sync::atomic::Ordering;

/// Words up to which a scan reads every word: one cache line, 512 CPUs.
const FLAT_WORDS: usize = 8;

/// A shared set of CPUs, for one space or for the online CPUs. Joining and leaving are full barriers.
///
/// Above 512 CPUs a summary counts, per word, the CPUs that are in or about to be in. A joining CPU raises its count
/// *before* it sets its bit and a leaving one lowers it *after* clearing, so a count of zero proves the word empty: no
/// bit can be lost as it could with a summary *bit* that one CPU clears while another sets a leaf.
#[repr(C, align(64))]
pub struct CpuSet<F: Facade, const W: usize> {
    leaves: [F::U64; W],
    /// One 8-bit count per leaf word, eight to a word; a CPU is counted once, so 64 at most. `W / 8` words are used.
    counts: [F::U64; MAX_COUNT_WORDS],
}

/// Count words for 8192 CPUs: 128 leaves, eight counts to a word.
const MAX_COUNT_WORDS: usize = 16;

/// Counts in one word.
const LANES: usize = 8;

impl<F: Facade, const W: usize> CpuSet<F, W> {
    const SUMMARISED: bool = W > FLAT_WORDS;

    /// The empty set.
    ///
    /// # Panics
    /// At compile time when `W` is 0 or above 128 (8192 CPUs).
    pub fn new() -> Self {
        const {
            assert!(
                W >= 1 && W <= LANES * MAX_COUNT_WORDS,
                "a CPU set holds 64 to 8192 CPUs"
            )
        };
        CpuSet {
            leaves: core::array::from_fn(|_| F::U64::new(0)),
            counts: core::array::from_fn(|_| F::U64::new(0)),
        }
    }

    /// Adds `cpu`; a full barrier. Any context. Must only be called by the CPU itself, or while it is off.
    #[inline]
    pub fn join(&self, cpu: CpuId) {
        let (leaf, bit) = (cpu / 64, 1 << (cpu % 64));
        if Self::SUMMARISED {
            if self.leaves[leaf].load(Ordering::Relaxed) & bit != 0 {
                F::full_barrier();
                return;
            }
            self.counts[leaf / LANES].fetch_add_full(1 << (leaf % LANES * 8));
        }
        self.leaves[leaf].fetch_or_full(bit);
    }

    /// Removes `cpu`; a full barrier if it was in. Any context. Must only be called by the CPU itself, or while it is
    /// off.
    #[inline]
    pub fn leave(&self, cpu: CpuId) {
        let (leaf, bit) = (cpu / 64, 1 << (cpu % 64));
        if self.leaves[leaf].load(Ordering::Relaxed) & bit == 0 {
            return;
        }
        self.leaves[leaf].fetch_and_full(!bit);
        if Self::SUMMARISED {
            self.counts[leaf / LANES].fetch_add_full((1_u64 << (leaf % LANES * 8)).wrapping_neg());
        }
    }

    /// Whether `cpu` is in the set (acquire: what it did before it joined or left is known).
    #[inline]
    pub fn contains(&self, cpu: CpuId) -> bool {
        self.leaves[cpu / 64].load(Ordering::Acquire) >> (cpu % 64) & 1 == 1
    }

    /// Calls `visit` for every CPU in the set (acquire loads), in rising order. Not a snapshot: a CPU that joins or
    /// leaves meanwhile may be seen or not.
    #[inline]
    pub fn for_each(&self, visit: impl FnMut(CpuId)) {
        self.for_each_but(CpuId::MAX, visit);
    }

    /// [`for_each`](Self::for_each), without `cpu`.
    #[inline]
    pub fn for_each_but(&self, cpu: CpuId, mut visit: impl FnMut(CpuId)) {
        for (first, members) in self.words_but(cpu) {
            bits(members).for_each(|bit| visit(first + bit));
        }
    }

    /// For every 64 CPUs of which some are in the set, the number of the first, and a bit for each member but `cpu`.
    /// Otherwise as [`for_each`](Self::for_each).
    #[inline(always)]
    pub(crate) fn words_but(&self, cpu: CpuId) -> impl Iterator<Item = (CpuId, u64)> {
        let (mut leaf, mut counts) = (0, 0);
        core::iter::from_fn(move || {
            while leaf < W {
                if Self::SUMMARISED {
                    if leaf % LANES == 0 {
                        counts = self.counts[leaf / LANES].load(Ordering::Acquire);
                    }
                    if counts >> (leaf % LANES * 8) == 0 {
                        leaf = leaf / LANES * LANES + LANES;
                        continue;
                    }
                }
                let this = leaf;
                leaf += 1;
                if !Self::SUMMARISED || counts >> (this % LANES * 8) & 0xFF != 0 {
                    let own = if this == cpu / 64 { 1 << (cpu % 64) } else { 0 };
                    return Some((this * 64, self.leaves[this].load(Ordering::Acquire) & !own));
                }
            }
            None
        })
    }

    /// Whether another CPU than `cpu` is in the set, or about to be, on a machine of `cpus` CPUs (acquire loads, none
    /// beyond the first that is found, nor of words for CPUs that the machine does not have).
    #[inline]
    pub fn has_others(&self, cpu: CpuId, cpus: usize) -> bool {
        let (own, bit) = (cpu / 64, 1 << (cpu % 64));
        let words = cpus.div_ceil(64).min(W);
        if words > FLAT_WORDS {
            let lane = 0xFF << (own % LANES * 8);
            let counts = self.counts[..words.div_ceil(LANES)].iter().enumerate();
            return self.leaves[own].load(Ordering::Acquire) & !bit != 0
                || counts.into_iter().any(|(group, count)| {
                    let own = if group == own / LANES { lane } else { 0 };
                    count.load(Ordering::Acquire) & !own != 0
                });
        }
        self.leaves[..words].iter().enumerate().any(|(leaf, word)| {
            let own = if leaf == own { bit } else { 0 };
            word.load(Ordering::Acquire) & !own != 0
        })
    }

    /// Whether nobody is in the middle of joining or leaving, on a machine of `cpus` CPUs: CPUs that this CPU has seen
    /// outside of the set have written to it for the last time. One acquire load for each 512 CPUs where it is empty;
    /// none up to 512.
    pub(crate) fn is_settled(&self, cpus: usize) -> bool {
        // Count before leaf: who leaves in between is found in one of them. Relaxed: no older than it was seen before.
        let settled = |(index, count): (usize, u64)| {
            let leaf = self.leaves.get(index).map_or(0, |leaf| leaf.load(Ordering::Relaxed));
            count & 0xFF == u64::from(leaf.count_ones())
        };
        let groups = if Self::SUMMARISED { cpus.div_ceil(64 * LANES) } else { 0 };
        self.counts[..groups.min(MAX_COUNT_WORDS)]
            .iter()
            .enumerate()
            .all(|(group, counts)| {
                let counts = counts.load(Ordering::Acquire);
                let lane = |lane: usize| (group * LANES + lane, counts >> (lane * 8));
                counts == 0 || (0..LANES).map(lane).all(settled)
            })
    }

    /// Whether no CPU is in the set.
    pub fn is_empty(&self) -> bool {
        let mut empty = true;
        self.for_each(|_| empty = false);
        empty
    }
}

impl<F: Facade, const W: usize> Default for CpuSet<F, W> {
    fn default() -> Self {
        Self::new()
    }
}

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
        // Most often none or one; to count the bits of a word takes two dozen instructions where the processor has none
        // for it. Apart, or the compiler makes one counting of both.
        #[inline(never)]
        fn several(word: u64) -> usize {
            word.count_ones() as usize
        }
        let count = |&word: &u64| match word & word.wrapping_sub(1) {
            0 => usize::from(word != 0),
            _ => several(word),
        };
        self.words.iter().map(count).sum()
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

    /// The set whose words these are: bit *b* of word *w* is CPU *64 w + b*.
    #[inline]
    #[cfg(feature = "rar")]
    pub(crate) const fn from_words(words: [u64; W]) -> Self {
        CpuMask { words }
    }

    /// Its words.
    #[inline]
    #[cfg(feature = "rar")]
    pub(crate) const fn words(&self) -> [u64; W] {
        self.words
    }

    /// The CPUs, in rising order.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = CpuId> + '_ {
        // By hand: chained adapters take three times the instructions for a set of one.
        let (mut index, mut word) = (0, self.words[0]);
        core::iter::from_fn(move || {
            while word == 0 {
                index += 1;
                word = *self.words.get(index)?;
            }
            let bit = word.trailing_zeros() as usize;
            word &= word - 1;
            Some(index * 64 + bit)
        })
    }

    /// The CPUs, in rising order from `first` on and then those below it.
    #[inline]
    pub fn iter_from(&self, first: CpuId) -> impl Iterator<Item = CpuId> + '_ {
        let above = self.iter().filter(move |&cpu| cpu >= first);
        above.chain(self.iter().filter(move |&cpu| cpu < first))
    }
}

impl<const W: usize> Default for CpuMask<W> {
    fn default() -> Self {
        Self::EMPTY
    }
}

pub(crate) fn bits(mut word: u64) -> impl Iterator<Item = usize> {
    core::iter::from_fn(move || {
        (word != 0).then(|| {
            let bit = word.trailing_zeros() as usize;
            word &= word - 1;
            bit
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::interleave::{self, Meddling};
    use core::cell::Cell;
    use std::boxed::Box;
    use std::vec::Vec;

    type Set = CpuSet<Meddling, 9>;

    #[test]
    fn of_two_that_come_or_go_at_once_none_is_lost() {
        // Of one word of CPUs; another, whose count stands beside theirs, stays.
        let (one, other, stays) = (65, 66, 130);
        let changes = |set: &Set, cpu, joins| if joins { set.join(cpu) } else { set.leave(cpu) };
        for (first, second) in [(true, true), (true, false), (false, true), (false, false)] {
            for operation in 0.. {
                let set: &Set = Box::leak(Box::new(Set::new()));
                let all = [(one, first), (other, second), (stays, false)];
                all.iter()
                    .filter(|(_, joins)| !joins)
                    .for_each(|&(cpu, _)| set.join(cpu));
                interleave::after(operation, move || changes(set, other, second));
                changes(set, one, first);
                if !interleave::never() {
                    break;
                }
                let mut members = Vec::new();
                set.for_each(|cpu| members.push(cpu));
                let expected = all.iter().filter(|&&(cpu, joins)| joins || cpu == stays);
                assert!(
                    members.iter().eq(expected.map(|(cpu, _)| cpu)),
                    "{members:?}, before operation {operation}"
                );
                members.iter().for_each(|&cpu| set.leave(cpu));
                assert!(set.counts.iter().all(|counts| counts.load(Ordering::Relaxed) == 0));
            }
        }
    }

    #[test]
    fn a_set_is_settled_when_no_cpu_is_joining_or_leaving() {
        const CPUS: usize = 64 * 9;
        for cpu in [5, 130, 64 * 8 + 7] {
            for joins in [true, false] {
                for operation in 0.. {
                    let set: &Set = Box::leak(Box::new(Set::new()));
                    set.join(131);
                    if !joins {
                        set.join(cpu);
                    }
                    // The first operation is the look whether it is in; the last write settles it.
                    let seen: &'static Cell<Option<bool>> = Box::leak(Box::new(Cell::new(None)));
                    interleave::after(operation, move || seen.set(Some(set.is_settled(CPUS))));
                    if joins {
                        set.join(cpu)
                    } else {
                        set.leave(cpu)
                    }
                    interleave::never();
                    assert!(set.is_settled(CPUS));
                    let Some(settled) = seen.get() else { break };
                    assert_eq!(
                        settled,
                        operation < 2,
                        "CPU {cpu}, joins {joins}, before operation {operation}"
                    );
                }
            }
        }
    }
}
