//! A winner tree over the CPUs' wake-up keys: who is next in O(1), a changed key in O(log n).
//!
//! A key is a time with the CPU's number, mixed by the seed, in the low bits, so that ties are broken the same way for
//! the same seed and differently for another. Knows nothing of what CPUs do.

use super::cpu::NEVER;
use std::cell::Cell;

/// Bits of a key that name the CPU.
const BITS: u32 = 13;

/// Latest representable time, ticks; 2^47 cycles, nine hours at 4 GHz.
pub(crate) const LATEST: u64 = (1 << (64 - BITS)) - 2;

pub(crate) struct Tree {
    /// As in a heap: the children of node `i` are `2 * i` and `2 * i + 1`, the leaves are the last half. Only the
    /// subtree under `top` is kept up; it covers all leaves in use.
    nodes: Box<[Cell<u64>]>,
    /// Leaf of each CPU, 0 while it has none: CPUs that never run do not make the tree higher.
    leaf_of: Box<[Cell<u32>]>,
    used: Cell<usize>,
    top: Cell<usize>,
    mix: u64,
}

impl Tree {
    pub(crate) fn new(cpus: usize, seed: u64) -> Self {
        let leaves = cpus.next_power_of_two().max(2);
        let mix = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - BITS);
        Tree {
            nodes: (0..2 * leaves).map(|_| Cell::new(NEVER)).collect(),
            leaf_of: vec![Cell::new(0); cpus].into(),
            used: Cell::new(0),
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

    /// Sets the time at which `cpu` is to run; later than [`LATEST`] takes it out.
    #[inline]
    pub(crate) fn set(&self, cpu: usize, time: u64) {
        let mut value = self.key(cpu, time);
        let mut node = self.leaf_of[cpu].get() as usize;
        if node == 0 {
            node = self.new_leaf(cpu);
        }
        self.node(node).set(value);
        // No early end when a value stays as it was: guessing wrongly costs a processor more than all levels do.
        let top = self.top.get();
        while node > top {
            value = value.min(self.node(node ^ 1).get());
            node >>= 1;
            self.node(node).set(value);
        }
    }

    /// Gives `cpu` the next free leaf, and the tree another level when that does not fit under the top.
    #[cold]
    fn new_leaf(&self, cpu: usize) -> usize {
        let leaves = self.nodes.len() / 2;
        let used = self.used.get();
        self.used.set(used + 1);
        if used >> (leaves.ilog2() - self.top.get().ilog2()) != 0 {
            let below = self.nodes[self.top.get()].get();
            self.top.set(self.top.get() / 2);
            self.nodes[self.top.get()].set(below);
        }
        self.leaf_of[cpu].set((leaves + used) as u32);
        leaves + used
    }

    #[inline]
    fn node(&self, node: usize) -> &Cell<u64> {
        debug_assert!(node < self.nodes.len());
        // SAFETY: every caller starts at a leaf from `new_leaf`, or at the top, and goes upwards or to a sibling.
        unsafe { self.nodes.get_unchecked(node) }
    }

    /// Who is first, and when.
    #[inline]
    pub(crate) fn first(&self) -> Option<(usize, u64)> {
        let key = self.node(self.top.get()).get();
        (key != NEVER).then_some((((key & ((1 << BITS) - 1)) ^ self.mix) as usize, key >> BITS))
    }

    /// The earliest time of all CPUs but `cpu`, which has been set before; `NEVER` when there is none.
    #[inline]
    pub(crate) fn first_other(&self, cpu: usize) -> u64 {
        let mut least = NEVER;
        let mut node = self.leaf_of[cpu].get() as usize;
        let top = self.top.get();
        while node > top {
            least = least.min(self.node(node ^ 1).get());
            node >>= 1;
        }
        if least == NEVER { NEVER } else { least >> BITS }
    }
}
