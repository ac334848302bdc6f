//! Address-space identifiers: 8 or 16 bits, and the pairs of split tables.

/// Number of ASID bits that the processor compares (ID_AA64MMFR0_EL1.ASIDBits). 16 also needs TCR_EL1.AS set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum AsidWidth {
    /// 8 bits.
    Bits8,
    /// 16 bits.
    Bits16,
}

impl AsidWidth {
    /// TCR_EL1.AS: the kernel sets it to use 16 bits.
    pub const TCR_AS: u64 = 1 << 36;

    /// From ID_AA64MMFR0_EL1; `None` for a reserved value of its ASIDBits field \[7:4\].
    pub const fn from_id(id_aa64mmfr0: u64) -> Option<AsidWidth> {
        match id_aa64mmfr0 >> 4 & 0xF {
            0b0000 => Some(AsidWidth::Bits8),
            0b0010 => Some(AsidWidth::Bits16),
            _ => None,
        }
    }

    /// The width in use: 16 bits only if the processor has them and TCR_EL1.AS is set.
    pub const fn in_use(self, tcr: u64) -> AsidWidth {
        if tcr & Self::TCR_AS == 0 {
            AsidWidth::Bits8
        } else {
            self
        }
    }

    /// Number of ASIDs.
    pub const fn count(self) -> u32 {
        match self {
            AsidWidth::Bits8 => 1 << 8,
            AsidWidth::Bits16 => 1 << 16,
        }
    }
}

/// An address-space identifier that fits the processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Asid(u16);

impl Asid {
    /// `None` if `tag` needs more bits than are compared: a tag is refused, never truncated (regression 12).
    pub const fn new(tag: u16, width: AsidWidth) -> Option<Asid> {
        if (tag as u32) < width.count() {
            Some(Asid(tag))
        } else {
            None
        }
    }

    /// Without the check of [`new`](Self::new), for a tag that passed it when a root was loaded under it.
    pub const fn known_to_fit(tag: u16) -> Asid {
        Asid(tag)
    }

    /// The identifier.
    pub const fn get(self) -> u16 {
        self.0
    }

    pub(super) const fn from_bits(bits: u16) -> Asid {
        Asid(bits)
    }
}

/// The two ASIDs of a space with split user and kernel tables: even for the kernel, odd for the user. An invalidation
/// that names one MUST be repeated for the other (regression 30).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AsidPair(Asid);

impl AsidPair {
    /// The bit that distinguishes the halves.
    pub const USER_BIT: u16 = 1;

    /// `None` if `kernel` is odd.
    pub const fn new(kernel: Asid) -> Option<AsidPair> {
        if kernel.0 & Self::USER_BIT == 0 {
            Some(AsidPair(kernel))
        } else {
            None
        }
    }

    /// The pair that a hook uses for one of the engine's tags, and the half that the tag names. The engine counts pairs
    /// from 0 and sets `user_half` (`shootdown::USER_HALF`) for the user's half. Here the pairs are every second ASID.
    /// `None` if the pair needs more bits than are compared: keep the engine's `tag_limit` at half of
    /// [`AsidWidth::count`] and of the engine's own limit.
    pub const fn of_tag(tag: u16, user_half: u16, width: AsidWidth) -> Option<(AsidPair, Asid)> {
        let number = tag & !user_half;
        if number as u32 >= width.count() / 2 {
            return None;
        }
        let pair = AsidPair(Asid(number << 1));
        let half = if tag & user_half == 0 {
            pair.kernel()
        } else {
            pair.user()
        };
        Some((pair, half))
    }

    /// The kernel's half.
    pub const fn kernel(self) -> Asid {
        self.0
    }

    /// The user's half.
    pub const fn user(self) -> Asid {
        Asid(self.0.0 | Self::USER_BIT)
    }

    /// Both halves, for an invalidation.
    pub const fn both(self) -> [Asid; 2] {
        [self.kernel(), self.user()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn asid_width_comes_from_its_field_and_16_bits_need_tcr_as() {
        assert_eq!(AsidWidth::from_id(0x0000_1122), Some(AsidWidth::Bits16));
        assert_eq!(AsidWidth::from_id(0x0000_1102), Some(AsidWidth::Bits8));
        assert_eq!(AsidWidth::from_id(0x10), None);
        assert_eq!(AsidWidth::Bits16.in_use(0), AsidWidth::Bits8);
        assert_eq!(AsidWidth::Bits16.in_use(1 << 36), AsidWidth::Bits16);
        assert_eq!(AsidWidth::Bits8.in_use(1 << 36), AsidWidth::Bits8);
    }

    proptest! {
        #[test]
        fn asid_that_exceeds_the_width_is_refused(tag: u16) {
            prop_assert_eq!(Asid::new(tag, AsidWidth::Bits16).map(Asid::get), Some(tag));
            prop_assert_eq!(Asid::new(tag, AsidWidth::Bits8).map(Asid::get), (tag < 256).then_some(tag));
        }

        #[test]
        fn engine_tag_halves_map_to_the_kernel_and_user_asid(tag in 0u16..1 << 11) {
            for (width, limit) in [(AsidWidth::Bits8, 128), (AsidWidth::Bits16, 2048)] {
                let halves = [tag, tag | 1 << 11].map(|tag| AsidPair::of_tag(tag, 1 << 11, width));
                if tag >= limit {
                    prop_assert_eq!(halves, [None, None]);
                    continue;
                }
                let (pair, _) = halves[0].expect("fits");
                prop_assert_eq!(halves.map(|half| half.map(|(_, asid)| asid)), pair.both().map(Some));
                prop_assert_eq!(pair.kernel().get(), 2 * tag, "no other tag has it");
            }
        }

        #[test]
        fn asid_pair_differs_only_in_bit_0(tag: u16) {
            let asid = Asid::new(tag, AsidWidth::Bits16).expect("16 bits");
            match AsidPair::new(asid) {
                Some(pair) => prop_assert_eq!(pair.both().map(Asid::get), [tag, tag + 1]),
                None => prop_assert!(tag % 2 == 1),
            }
        }
    }
}
