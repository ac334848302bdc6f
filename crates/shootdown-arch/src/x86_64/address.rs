//! Canonical virtual addresses: all bits above the implemented ones repeat the highest implemented one.

/// Number of virtual address bits that the processor translates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum AddressWidth {
    /// Four table levels, 48 bits (CR4.LA57 clear).
    Bits48,
    /// Five table levels, 57 bits (CR4.LA57 set).
    Bits57,
}

impl AddressWidth {
    /// The width in bits.
    pub const fn bits(self) -> u32 {
        match self {
            AddressWidth::Bits48 => 48,
            AddressWidth::Bits57 => 57,
        }
    }

    /// Whether `address` is canonical at this width.
    pub const fn is_canonical(self, address: u64) -> bool {
        let unused = 64 - self.bits();
        ((address << unused) as i64 >> unused) as u64 == address
    }

    /// First byte of the upper half, where kernels live.
    pub const fn upper_half(self) -> u64 {
        !0 << (self.bits() - 1)
    }
}

/// An address that is canonical at the width given at its creation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Canonical(u64);

impl Canonical {
    /// `None` if `address` is not canonical: instructions that take it would raise #GP, or flush nothing.
    pub const fn new(address: u64, width: AddressWidth) -> Option<Canonical> {
        if width.is_canonical(address) {
            Some(Canonical(address))
        } else {
            None
        }
    }

    /// The address.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Whether the address is in the upper half, at either width.
    pub const fn is_upper_half(self) -> bool {
        self.0 >> 63 == 1
    }

    /// Whether `length` bytes from here stay in this half; 0 bytes do.
    pub(super) const fn holds(self, length: u64, width: AddressWidth) -> bool {
        // Distance to the end of the half. For the upper half that is 2^64: `0 - address`, never 0.
        let end: u64 = if self.is_upper_half() {
            0
        } else {
            1 << (width.bits() - 1)
        };
        length <= end.wrapping_sub(self.0)
    }

    /// The address plus `offset` bytes. The caller has checked [`holds`](Self::holds) for a range that contains it.
    pub(super) const fn forward(self, offset: u64) -> Canonical {
        Canonical(self.0.wrapping_add(offset))
    }
}

#[cfg(test)]
mod tests {
    use super::AddressWidth::*;
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn canonical_hole_edges_follow_the_address_width() {
        assert!(Bits48.is_canonical(0x0000_7FFF_FFFF_FFFF));
        assert!(!Bits48.is_canonical(0x0000_8000_0000_0000));
        assert!(!Bits48.is_canonical(0xFFFF_7FFF_FFFF_FFFF));
        assert!(Bits48.is_canonical(0xFFFF_8000_0000_0000));
        assert!(Bits57.is_canonical(0x00FF_FFFF_FFFF_FFFF));
        assert!(!Bits57.is_canonical(0x0100_0000_0000_0000));
        assert!(!Bits57.is_canonical(0xFEFF_FFFF_FFFF_FFFF));
        assert!(Bits57.is_canonical(0xFF00_0000_0000_0000));
        assert_eq!(
            (Bits48.upper_half(), Bits57.upper_half()),
            (0xFFFF_8000_0000_0000, 0xFF00_0000_0000_0000)
        );
    }

    #[test]
    fn range_may_end_at_but_not_cross_its_half() {
        let last = |address| Canonical::new(address, Bits48).expect("canonical");
        assert!(last(0x0000_7FFF_FFFF_F000).holds(0x1000, Bits48));
        assert!(!last(0x0000_7FFF_FFFF_F000).holds(0x1001, Bits48));
        assert!(last(0xFFFF_FFFF_FFFF_F000).holds(0x1000, Bits48));
        assert!(!last(0xFFFF_FFFF_FFFF_F000).holds(0x1001, Bits48));
        assert!(last(0).holds(1 << 47, Bits48) && !last(0).holds((1 << 47) + 1, Bits48));
    }

    proptest! {
        #[test]
        fn canonical_addresses_have_equal_high_bits(address: u64, five_levels: bool) {
            let width = if five_levels { Bits57 } else { Bits48 };
            let high = address >> (width.bits() - 1);
            let ones = u64::MAX >> (width.bits() - 1);
            prop_assert_eq!(Canonical::new(address, width).is_some(), high == 0 || high == ones);
        }
    }
}
