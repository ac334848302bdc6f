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
    /// Node 1 is the root; leaf of CPU `i` is node `leaves + i`.
    nodes: Box<[Cell<u64>]>,
    leaves: usize,
    mix: u64,
}

impl Tree {
    pub(crate) fn new(cpus: usize, seed: u64) -> Self {
        let leaves = cpus.next_power_of_two().max(2);
        let mix = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - BITS);
        Tree {
            nodes: (0..2 * leaves).map(|_| Cell::new(NEVER)).collect(),
            leaves,
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
        let mut node = self.leaves + cpu;
        self.nodes[node].set(value);
        while node > 1 {
            value = value.min(self.nodes[node ^ 1].get());
            node >>= 1;
            if self.nodes[node].get() == value {
                break;
            }
            self.nodes[node].set(value);
        }
    }

    /// Who is first, and when.
    #[inline]
    pub(crate) fn first(&self) -> Option<(usize, u64)> {
        let key = self.nodes[1].get();
        (key != NEVER).then_some((((key & ((1 << BITS) - 1)) ^ self.mix) as usize, key >> BITS))
    }

    /// The earliest time of all CPUs but `cpu`, `NEVER` when there is none.
    #[inline]
    pub(crate) fn first_other(&self, cpu: usize) -> u64 {
        let mut least = NEVER;
        let mut node = self.leaves + cpu;
        while node > 1 {
            least = least.min(self.nodes[node ^ 1].get());
            node >>= 1;
        }
        if least == NEVER { NEVER } else { least >> BITS }
    }
}
