//! Software-generated interrupts of a GICv3: the values of ICC_SGI1R_EL1 that reach a set of CPUs.
//!
//! Layout (GIC architecture specification, ICC_SGI1R_EL1): Aff3 \[55:48\], RS \[47:44\], IRM \[40\], Aff2 \[39:32\],
//! INTID \[27:24\], Aff1 \[23:16\], target list \[15:0\]. One write names up to 16 CPUs that agree in Aff3 to Aff1 and
//! in the upper four bits of Aff0, which are in RS. RS other than 0 needs a controller that supports it
//! (ICC_CTLR_EL1.RSS); CPUs whose Aff0 is below 16 never need it.

/// The affinity fields of MPIDR_EL1: Aff3 \[39:32\], Aff2 \[23:16\], Aff1 \[15:8\], Aff0 \[7:0\].
pub const AFFINITY: u64 = 0xFF_00FF_FFFF;

/// Number of software-generated interrupts, from 0.
pub const COUNT: u8 = 16;

/// Identifies the CPUs that one write can name: all of the affinity except the low four bits of Aff0.
const fn group(affinity: u64) -> u64 {
    affinity & AFFINITY & !0xF
}

const fn encode(group: u64, list: u64, interrupt: u8) -> u64 {
    let (aff3, aff2, aff1) = (group >> 32 & 0xFF, group >> 16 & 0xFF, group >> 8 & 0xFF);
    let selector = group >> 4 & 0xF;
    aff3 << 48 | selector << 44 | aff2 << 32 | (interrupt as u64) << 24 | aff1 << 16 | list
}

/// The values to write for the CPUs with these affinities (MPIDR_EL1; other bits are ignored), in this order.
/// Consecutive CPUs that fit one write share it.
///
/// # Panics
/// If `interrupt` is not below [`COUNT`].
pub fn covering(cpus: impl IntoIterator<Item = u64>, interrupt: u8) -> impl Iterator<Item = u64> {
    assert!(interrupt < COUNT, "software-generated interrupts are 0 to 15");
    let mut cpus = cpus.into_iter().peekable();
    core::iter::from_fn(move || {
        let first = cpus.next()?;
        let mut list = 1 << (first & 0xF);
        while let Some(cpu) = cpus.next_if(|&cpu| group(cpu) == group(first)) {
            list |= 1 << (cpu & 0xF);
        }
        Some(encode(group(first), list, interrupt))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;
    use std::vec::Vec;

    /// The CPUs that a value names, and the interrupt.
    fn decode(value: u64) -> (Vec<u64>, u8) {
        let field = |shift: u32, bits: u32| value >> shift & ((1 << bits) - 1);
        assert_eq!(field(40, 4) | field(56, 8) | field(28, 4), 0, "IRM and reserved bits");
        let above = field(48, 8) << 32 | field(32, 8) << 16 | field(16, 8) << 8 | field(44, 4) << 4;
        let listed = (0..16).filter(|bit| value >> bit & 1 == 1).map(|bit| above | bit);
        (listed.collect(), field(24, 4) as u8)
    }

    #[test]
    fn neighbouring_cpus_share_one_sgi_write() {
        let values: Vec<u64> = covering([0x0, 0x1, 0x3, 0x100, 0x12_0003_0415], 7).collect();
        assert_eq!(values, [0x0700_000B, 0x0701_0001, 0x0012_1003_0704_0020]);
        // Bit 31 of MPIDR_EL1 reads as 1.
        assert_eq!(covering([0x8000_0002], 0).collect::<Vec<_>>(), [0x4]);
    }

    proptest! {
        #[test]
        fn sgi_writes_name_exactly_the_targets(
            cpus in prop::collection::btree_set(0u64..600, 0..60),
            interrupt in 0..COUNT,
        ) {
            let values: Vec<u64> = covering(cpus.iter().copied(), interrupt).collect();
            let named: Vec<u64> = values.iter().flat_map(|&value| decode(value).0).collect();
            prop_assert_eq!(named.len(), cpus.len(), "each once");
            prop_assert_eq!(named.into_iter().collect::<BTreeSet<_>>(), cpus);
            prop_assert!(values.iter().all(|&value| decode(value).1 == interrupt));
        }
    }
}
