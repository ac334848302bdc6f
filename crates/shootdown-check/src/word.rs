//! Basic types of the machine: its words, the number of CPUs, and state hashing.

/// Most CPUs.
pub const MAX_CPUS: usize = 4;

/// A word, by number.
pub(crate) type Address = u32;

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
