//! Sets of CPUs: [`CpuMask`], a plain value, and [`CpuSet`], a shared one.
//!
//! Both are `W` words of 64 CPUs. Up to 512 CPUs (eight words, one cache line) a scan reads all words. Above that, a
//! summary of one byte-sized count per word says which words to read, so an empty machine of 8192 CPUs costs sixteen
//! loads.

use crate::facade::{Facade, Word};
use core::sync::atomic::Ordering;

/// The number of a CPU, from 0, dense. Not an APIC id: the implementation translates (regression 19).
pub type CpuId = usize;

/// Most words that a scan reads without a summary: one cache line, 512 CPUs.
const FLAT_WORDS: usize = 8;

/// A shared set of CPUs, for one space or for the online CPUs. Joining and leaving are full barriers. Numbers of CPUs
/// are below `64 * W`, which debug builds check.
///
/// Above 512 CPUs a summary counts, per word, the CPUs that are members or are about to join. A joining CPU raises its
/// count *before* it sets its bit, and a leaving one lowers it *after* clearing, so a count of zero proves the word
/// empty. A summary *bit* could be lost: one CPU clears it while another sets a bit in the leaf.
#[repr(C, align(64))]
pub struct CpuSet<F: Facade, const W: usize> {
    leaves: [F::U64; W],
    /// One 8-bit count per leaf word, eight to a word. A CPU is counted once, so at most 64. `W / 8` words are used.
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

    /// The word of `cpu`, and its bit there.
    #[inline]
    fn place(cpu: CpuId) -> (usize, u64) {
        // Numbers are below `64 * W`: with one word there is nothing to check.
        debug_assert!(cpu < 64 * W, "no such CPU");
        (if W == 1 { 0 } else { cpu / 64 }, 1 << (cpu % 64))
    }

    /// Adds `cpu`; a full barrier. Any context. Must only be called by the CPU itself, or while it is off.
    #[inline]
    pub fn join(&self, cpu: CpuId) {
        let (leaf, bit) = Self::place(cpu);
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
        let (leaf, bit) = Self::place(cpu);
        if self.leaves[leaf].load(Ordering::Relaxed) & bit == 0 {
            return;
        }
        self.leaves[leaf].fetch_and_full(!bit);
        if Self::SUMMARISED {
            self.counts[leaf / LANES].fetch_add_full((1_u64 << (leaf % LANES * 8)).wrapping_neg());
        }
    }

    /// Whether `cpu` is in the set. Acquire: what the CPU did before it joined or left is visible.
    #[inline]
    pub fn contains(&self, cpu: CpuId) -> bool {
        let (leaf, bit) = Self::place(cpu);
        self.leaves[leaf].load(Ordering::Acquire) & bit != 0
    }

    /// Calls `visit` for every CPU in the set (acquire loads), in ascending order. Not a snapshot: a CPU that joins or
    /// leaves concurrently may or may not be seen.
    #[inline]
    pub fn for_each(&self, visit: impl FnMut(CpuId)) {
        self.for_each_in(None, visit);
    }

    /// [`for_each`](Self::for_each), without `cpu`.
    #[inline]
    pub fn for_each_but(&self, cpu: CpuId, visit: impl FnMut(CpuId)) {
        self.for_each_in(Some(cpu), visit);
    }

    #[inline]
    fn for_each_in(&self, but: Option<CpuId>, mut visit: impl FnMut(CpuId)) {
        for (first, members) in self.words(but) {
            bits(members).for_each(|bit| visit(first + bit));
        }
    }

    /// Calls `visit` for every group of 64 CPUs with members: the number of its first CPU, and a bit for each member
    /// except `cpu`. Otherwise as [`for_each`](Self::for_each).
    #[inline(always)]
    pub(crate) fn words_but(&self, cpu: CpuId) -> impl Iterator<Item = (CpuId, u64)> {
        self.words(Some(cpu))
    }

    #[inline(always)]
    fn words(&self, but: Option<CpuId>) -> impl Iterator<Item = (CpuId, u64)> {
        let (mut leaf, mut counts) = (0, 0);
        core::iter::from_fn(move || {
            while leaf < W {
                if Self::SUMMARISED {
                    if leaf % LANES == 0 {
                        // Acquire: pairs with `join` and `leave`. A count of 0 proves the word empty.
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
                    // Acquire: pairs with `join`. What a member wrote before it joined is seen.
                    let own = match but {
                        // Numbers are below `64 * W`.
                        Some(cpu) if W == 1 || this == cpu / 64 => 1 << (cpu % 64),
                        _ => 0,
                    };
                    return Some((this * 64, self.leaves[this].load(Ordering::Acquire) & !own));
                }
            }
            None
        })
    }

    /// Whether a CPU other than `cpu` is in the set, or about to join, on a machine of `cpus` CPUs. Acquire loads;
    /// stops at the first member found, and reads no words of CPUs that the machine does not have.
    #[inline]
    pub fn has_others(&self, cpu: CpuId, cpus: usize) -> bool {
        let (own, bit) = Self::place(cpu);
        // With one word there is nothing to count: an engine has a CPU.
        let words = if W == 1 { 1 } else { cpus.div_ceil(64).min(W) };
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

    /// The other member of the set than `cpu`, if there is at most one (acquire loads).
    #[inline]
    pub(crate) fn others(&self, cpu: CpuId) -> Others {
        let mut others = Others::None;
        for (first, members) in self.words_but(cpu) {
            match others {
                _ if members == 0 => {}
                Others::None if members.is_power_of_two() => {
                    others = Others::One(first + members.trailing_zeros() as usize);
                }
                _ => return Others::More,
            }
        }
        others
    }

    /// Whether no CPU is in the middle of joining or leaving, on a machine of `cpus` CPUs. CPUs that this CPU has seen
    /// outside of the set have then written to it for the last time. Costs one acquire load for each 512 CPUs where the
    /// set is empty, and none up to 512 CPUs.
    pub(crate) fn is_settled(&self, cpus: usize) -> bool {
        // Count before leaf: a CPU that leaves in between is found in one of them. Relaxed: no older than what was seen
        // before.
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

/// The other members of a set.
pub(crate) enum Others {
    /// None.
    None,
    /// This one alone.
    One(CpuId),
    /// Several.
    More,
}

impl<F: Facade, const W: usize> Default for CpuSet<F, W> {
    fn default() -> Self {
        Self::new()
    }
}

/// A set of CPUs as a plain value, such as the targets of one request. Lives on the stack: `8 * W` bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CpuMask<const W: usize> {
    words: [u64; W],
}

impl<const W: usize> CpuMask<W> {
    /// The empty set.
    pub const EMPTY: Self = CpuMask { words: [0; W] };

    /// CPUs that the set can hold.
    pub const CAPACITY: usize = 64 * W;

    /// The set of one CPU.
    ///
    /// # Panics
    /// When `cpu` is not below [`CAPACITY`](Self::CAPACITY).
    #[inline]
    pub fn of(cpu: CpuId) -> Self {
        let mut mask = Self::EMPTY;
        mask.insert(cpu);
        mask
    }

    /// Adds `cpu`.
    ///
    /// # Panics
    /// When `cpu` is not below [`CAPACITY`](Self::CAPACITY).
    #[inline]
    pub fn insert(&mut self, cpu: CpuId) {
        self.words[cpu / 64] |= 1 << (cpu % 64);
    }

    /// Removes `cpu`. An absent or out-of-range CPU is not an error.
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

    /// Number of CPUs in the set.
    #[inline]
    pub fn len(&self) -> usize {
        // Usually none or one. Counting the bits of a word takes two dozen instructions without a population-count
        // instruction. A function of its own, because otherwise the compiler merges both countings.
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

    /// Whether the set is empty.
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

    /// The first CPU that is `first` or later, if there is one.
    #[inline]
    pub(crate) fn next_from(&self, first: CpuId) -> Option<CpuId> {
        let mut index = first / 64;
        let mut word = self.words.get(index)? & u64::MAX << (first % 64);
        while word == 0 {
            index += 1;
            word = *self.words.get(index)?;
        }
        Some(index * 64 + word.trailing_zeros() as usize)
    }

    /// The CPUs, in ascending order.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = CpuId> + '_ {
        // Written by hand: chained adapters take three times the instructions for a set of one.
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
    use crate::testing::interleave::{self, Interleaved};
    use core::cell::Cell;
    use std::boxed::Box;
    use std::vec::Vec;

    type Set = CpuSet<Interleaved, 9>;

    #[test]
    fn simultaneous_joins_and_leaves_are_both_kept() {
        // Two members of one word join and leave. A third, whose count is in the same word, stays.
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
    fn set_is_settled_only_if_no_cpu_joins_or_leaves() {
        const CPUS: usize = 64 * 9;
        for cpu in [5, 130, 64 * 8 + 7] {
            for joins in [true, false] {
                for operation in 0.. {
                    let set: &Set = Box::leak(Box::new(Set::new()));
                    set.join(131);
                    if !joins {
                        set.join(cpu);
                    }
                    // The first operation tests membership; the last write settles it.
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

    #[test]
    fn next_member_is_found_beyond_empty_words() {
        let mut mask = CpuMask::<9>::EMPTY;
        [5, 300].into_iter().for_each(|cpu| mask.insert(cpu));
        let next = [0, 5, 6, 63, 64, 300, 301, 9 * 64].map(|first| mask.next_from(first));
        let (five, far) = (Some(5), Some(300));
        assert_eq!(next, [five, five, far, far, far, far, None, None]);
    }
}
