//! Range operations (FEAT_TLBIRANGE): the operand, and the sequence of operations that covers a range exactly.
//!
//! Layout: ASID \[63:48\], TG \[47:46\], SCALE \[45:44\], NUM \[43:39\], TTL \[38:37\], BaseADDR \[36:0\]. One
//! operation covers (NUM + 1) * 2^(5 * SCALE + 1) granules. That number is always even, so an odd last page takes the
//! plain form. Scales go from 3 down to 0, each used once, which keeps the alignment that large pages need. With 52-bit
//! addresses in use (TCR_ELx.DS set) BaseADDR counts 64 KiB, so pages before the first such boundary take the plain
//! form. A processor with FEAT_LPA2 need not have it in use.

use super::asid::Asid;
use super::tlbi::{Granule, Level};

/// Most granules that one sequence covers, 2^21; a larger range becomes a whole-tag invalidation.
pub const MOST_GRANULES: u64 = granules(31, 3);

/// Number of pages at which a whole-tag invalidation replaces single operations, where there are no range operations.
pub const WHOLE_TAG_FROM: u64 = 512;

const BASE_BITS: u64 = (1 << 37) - 1;

/// BaseADDR is in units of this if TCR_ELx.DS is set; with granules of 64 KiB it always is.
const DS_SHIFT: u32 = 16;

/// Granules that an operation covers.
const fn granules(num: u64, scale: u32) -> u64 {
    (num + 1) << (5 * scale + 1)
}

/// A decoded range operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RangeOperand {
    /// The tag.
    pub asid: Asid,
    /// First byte.
    pub address: u64,
    /// Granules covered.
    pub granules: u64,
    /// Level hint.
    pub level: Level,
    /// Granule.
    pub granule: Granule,
}

impl RangeOperand {
    /// Decodes a register value; `None` if TG is reserved. `tcr_ds`: see [`Cover::new`].
    pub const fn decode(bits: u64, tcr_ds: bool) -> Option<RangeOperand> {
        let Some(granule) = Granule::from_bits(bits >> 46) else {
            return None;
        };
        let shift = base_shift(granule, tcr_ds);
        // The base is sign-extended.
        let address = ((bits & BASE_BITS) << 27) as i64 >> (27 - shift as i64);
        Some(RangeOperand {
            asid: Asid::from_bits((bits >> 48) as u16),
            address: address as u64,
            granules: granules(bits >> 39 & 31, (bits >> 44 & 3) as u32),
            level: Level::from_bits(bits >> 37),
            granule,
        })
    }
}

const fn base_shift(granule: Granule, tcr_ds: bool) -> u32 {
    if tcr_ds { DS_SHIFT } else { granule.shift() }
}

/// One operation of a sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Step {
    /// The plain form for the page at this address.
    Page(u64),
    /// The range form with this register value.
    Range(u64),
}

/// The operations that cover exactly a range.
#[derive(Debug, Clone)]
pub struct Cover {
    asid: Asid,
    granule: Granule,
    level: Level,
    tcr_ds: bool,
    next: u64,
    left: u64,
    scale: u32,
}

impl Cover {
    /// Covers `count` granules from `address`. `None` if that is more than [`MOST_GRANULES`] or `address` is not
    /// aligned to a granule: then invalidate the whole tag (C6). `level` is for the leaves in the range, which all have
    /// the same level.
    ///
    /// `tcr_ds`: the current TCR_ELx.DS of the translation regime, not whether the processor supports it. With a wrong
    /// value the operations name other addresses, and stale entries remain.
    pub const fn new(
        asid: Asid,
        address: u64,
        count: u64,
        granule: Granule,
        level: Level,
        tcr_ds: bool,
    ) -> Option<Cover> {
        if count > MOST_GRANULES || address & ((1 << granule.shift()) - 1) != 0 {
            return None;
        }
        Some(Cover {
            asid,
            granule,
            level,
            tcr_ds,
            next: address,
            left: count,
            scale: 3,
        })
    }

    const fn encode(&self, num: u64) -> u64 {
        let base = self.next >> base_shift(self.granule, self.tcr_ds) & BASE_BITS;
        (self.asid.get() as u64) << 48
            | self.granule.bits() << 46
            | (self.scale as u64) << 44
            | num << 39
            | self.level.bits() << 37
            | base
    }

    fn advance(&mut self, count: u64) {
        self.next = self.next.wrapping_add(count << self.granule.shift());
        self.left -= count;
    }
}

impl Iterator for Cover {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        if self.left == 0 {
            return None;
        }
        let misaligned = self.tcr_ds && self.next & ((1 << DS_SHIFT) - 1) != 0;
        if self.left == 1 || misaligned {
            let step = Step::Page(self.next);
            self.advance(1);
            return Some(step);
        }
        loop {
            // Never more than 32 units: the rest after a scale is less than one of its units, and a unit of the next
            // scale is a thirty-second of that.
            let units = self.left >> (5 * self.scale + 1);
            if units > 0 {
                let num = units.min(32) - 1;
                let step = Step::Range(self.encode(num));
                self.advance(granules(num, self.scale));
                return Some(step);
            }
            // At least two are left, so scale 0 always fits.
            self.scale -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::AsidWidth;
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    fn cover(address: u64, count: u64, granule: Granule, tcr_ds: bool) -> Vec<Step> {
        let asid = Asid::new(0x1234, AsidWidth::Bits16).expect("16 bits");
        let cover = Cover::new(asid, address, count, granule, Level::Unknown, tcr_ds);
        cover.expect("small enough").collect()
    }

    /// The granules that a sequence covers, in order.
    fn covered(steps: &[Step], granule: Granule, tcr_ds: bool) -> Vec<u64> {
        let mut found = Vec::new();
        for step in steps {
            match *step {
                Step::Page(address) => found.push(address >> granule.shift()),
                Step::Range(bits) => {
                    let operand = RangeOperand::decode(bits, tcr_ds).expect("a granule");
                    assert_eq!((operand.granule, operand.asid.get()), (granule, 0x1234));
                    let first = operand.address >> granule.shift();
                    found.extend(first..first + operand.granules);
                }
            }
        }
        found
    }

    #[test]
    fn fields_match_the_manual() {
        // 2 pages: scale 0, num 0.
        assert_eq!(
            cover(0x4000_1000, 2, Granule::Size4K, false),
            [Step::Range(0x1234_4000_0004_0001)]
        );
        // 64 pages of 64 KiB with 52-bit addresses: scale 1, num 0, base in units of 64 KiB.
        assert_eq!(
            cover(0x5_0000, 64, Granule::Size64K, true),
            [Step::Range(0x1234_D000_0000_0005)]
        );
    }

    #[test]
    fn odd_last_page_uses_a_single_page_operation() {
        assert_eq!(cover(0x1000, 1, Granule::Size4K, false), [Step::Page(0x1000)]);
        assert_eq!(
            cover(0x1000, 3, Granule::Size4K, false).last(),
            Some(&Step::Page(0x3000))
        );
    }

    #[test]
    fn largest_range_is_one_operation_and_a_larger_one_is_refused() {
        assert_eq!(cover(0, MOST_GRANULES, Granule::Size4K, false).len(), 1);
        let asid = Asid::new(1, AsidWidth::Bits8).expect("8 bits");
        assert!(Cover::new(asid, 0, MOST_GRANULES + 1, Granule::Size4K, Level::Unknown, false).is_none());
        assert!(Cover::new(asid, 0x800, 1, Granule::Size4K, Level::Unknown, false).is_none());
    }

    #[test]
    fn every_small_range_is_covered_exactly() {
        for count in 0..5000 {
            let found = covered(
                &cover(0x7F00_0000_3000, count, Granule::Size4K, false),
                Granule::Size4K,
                false,
            );
            assert!(
                found.iter().copied().eq((0..count).map(|i| 0x7_F000_0003 + i)),
                "{count}"
            );
        }
    }

    proptest! {
        #[test]
        fn sequence_covers_exactly_its_range(
            first in 0u64..1 << 30,
            count in 0u64..300_000,
            granule in 0u64..3,
            tcr_ds: bool,
        ) {
            let granule = Granule::from_bits(granule + 1).expect("one of three");
            let steps = cover(first << granule.shift(), count, granule, tcr_ds);
            prop_assert!(covered(&steps, granule, tcr_ds).into_iter().eq(first..first + count));
            // Four scales, one odd page, and with TCR_ELx.DS up to 15 pages before the first boundary.
            prop_assert!(steps.len() <= 5 + if tcr_ds { 30 } else { 0 }, "{} steps", steps.len());
        }

        #[test]
        fn kernel_addresses_keep_their_upper_bits(page in 0u64..1 << 28, pairs in 1u64..16) {
            let address = 0xFFFF_8000_0000_0000 | page << 12;
            let steps = cover(address, 2 * pairs, Granule::Size4K, false);
            let Step::Range(bits) = steps[0] else { panic!("a range") };
            prop_assert_eq!(RangeOperand::decode(bits, false).expect("a granule").address, address);
        }
    }
}
