//! A winner tree over the CPUs' wake-up keys: the next CPU in O(1), a changed key in O(log n).
//!
//! A key is a time with the CPU's number, mixed by the seed, in the low bits. So the same seed breaks ties the same
//! way, and another seed differently. Independent of the CPUs' activities.

use super::config::NEVER;
use std::cell::Cell;

/// Bits of a key for the CPU number.
const BITS: u32 = 13;

/// Latest representable time, ticks; 2^47 cycles, nine hours at 4 GHz.
pub(crate) const LATEST: u64 = (1 << (64 - BITS)) - 2;

/// Children of a node, as a power of two. With four, a level costs less than two levels of two.
const FAN: u32 = 2;

pub(crate) struct Tree {
    /// The children of node `i` are `4 * i` to `4 * i + 3`, so the leaves, a power of four, begin at their number; the
    /// slots between two levels are unused. Only the subtree under `top` is maintained; it covers all leaves in use.
    nodes: Box<[Cell<u64>]>,
    /// Leaf of each CPU, 0 while it has none: CPUs that never run do not make the tree higher.
    leaf_of: Box<[Cell<u32>]>,
    used: Cell<usize>,
    leaves: usize,
    top: Cell<usize>,
    mix: u64,
}

impl Tree {
    pub(crate) fn new(cpus: usize, seed: u64) -> Self {
        let leaves = 1 << cpus.next_power_of_two().ilog2().next_multiple_of(FAN);
        let mix = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - BITS);
        Tree {
            nodes: (0..2 * leaves).map(|_| Cell::new(NEVER)).collect(),
            leaf_of: vec![Cell::new(0); cpus].into(),
            used: Cell::new(0),
            leaves,
            top: Cell::new(leaves),
            mix,
        }
    }

    #[inline]
    fn key(&self, cpu: usize, time: u64) -> u64 {
        if time > LATEST {
            NEVER
        } else {
            time << BITS | (cpu as u64 ^ self.mix)
        }
    }

    /// Sets the time at which `cpu` is to run; a time later than [`LATEST`] removes it.
    #[inline]
    pub(crate) fn set(&self, cpu: usize, time: u64) {
        let mut value = self.key(cpu, time);
        let mut node = self.leaf_of[cpu].get() as usize;
        if node == 0 {
            node = self.new_leaf(cpu);
        }
        self.node(node).set(value);
        // No early exit for an unchanged value: a mispredicted branch costs more than all levels.
        let top = self.top.get();
        while node > top {
            value = value.min(self.siblings(node));
            node >>= FAN;
            self.node(node).set(value);
        }
    }

    /// Gives `cpu` the next free leaf, and the tree another level if that does not fit under the top.
    #[cold]
    fn new_leaf(&self, cpu: usize) -> usize {
        let leaf = self.leaves + self.used.get();
        self.used.set(self.used.get() + 1);
        let top = self.top.get();
        if leaf >> (self.leaves.ilog2() - top.ilog2()) != top {
            let below = self.nodes[top].get();
            self.top.set(top >> FAN);
            self.nodes[top >> FAN].set(below);
        }
        self.leaf_of[cpu].set(leaf as u32);
        leaf
    }

    /// The least of the three nodes beside `node`.
    #[inline]
    fn siblings(&self, node: usize) -> u64 {
        let [a, b, c] = [1, 2, 3].map(|other| self.node(node ^ other).get());
        a.min(b).min(c)
    }

    #[inline]
    fn node(&self, node: usize) -> &Cell<u64> {
        debug_assert!(node < self.nodes.len());
        // SAFETY: every caller starts at a leaf from `new_leaf`, or at the top, and goes upwards or to a sibling.
        unsafe { self.nodes.get_unchecked(node) }
    }

    /// The first CPU, and its time.
    #[inline]
    pub(crate) fn first(&self) -> Option<(usize, u64)> {
        let key = self.node(self.top.get()).get();
        (key != NEVER).then_some((((key & ((1 << BITS) - 1)) ^ self.mix) as usize, key >> BITS))
    }

    /// The earliest time of all CPUs except `cpu`, which has been set before; `NEVER` when there is none.
    #[inline]
    pub(crate) fn first_other(&self, cpu: usize) -> u64 {
        let mut least = NEVER;
        let mut node = self.leaf_of[cpu].get() as usize;
        let top = self.top.get();
        while node > top {
            least = least.min(self.siblings(node));
            node >>= FAN;
        }
        if least == NEVER { NEVER } else { least >> BITS }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn tree_minimum_matches_a_linear_scan(
            cpus in 1usize..300,
            seed: u64,
            steps in prop::collection::vec((any::<u16>(), prop::option::of(0u64..50)), 1..400),
        ) {
            let tree = Tree::new(cpus, seed);
            let mut times = vec![None; cpus];
            for (cpu, time) in steps {
                let cpu = usize::from(cpu) % cpus;
                times[cpu] = time;
                tree.set(cpu, time.unwrap_or(NEVER));
                let least = |except: Option<usize>| {
                    let others = times.iter().enumerate().filter(|&(other, _)| Some(other) != except);
                    others.filter_map(|(_, &time)| time).min()
                };
                prop_assert_eq!(tree.first_other(cpu), least(Some(cpu)).unwrap_or(NEVER));
                prop_assert_eq!(tree.first().map(|(_, time)| time), least(None));
                if let Some((first, time)) = tree.first() {
                    prop_assert_eq!(times[first], Some(time));
                }
            }
        }
    }
}
