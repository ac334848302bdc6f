//! The register operand of TLBI by address or by tag.
//!
//! Layout (Arm ARM, TLBI VAE1IS and related forms): ASID \[63:48\], TTL \[47:44\] (granule, then level), VA\[55:12\] in
//! \[43:0\]. TTL needs FEAT_TTL; on a processor without, those bits must be 0. `vmalle1` takes no operand.

use super::asid::Asid;

/// The size of the smallest page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Granule {
    /// 4 KiB.
    Size4K,
    /// 16 KiB.
    Size16K,
    /// 64 KiB.
    Size64K,
}

impl Granule {
    /// log2 of the size in bytes.
    pub const fn shift(self) -> u32 {
        match self {
            Granule::Size4K => 12,
            Granule::Size16K => 14,
            Granule::Size64K => 16,
        }
    }

    /// Its encoding in TTL and in the range operand's TG; 0 is reserved.
    pub(super) const fn bits(self) -> u64 {
        match self {
            Granule::Size4K => 0b01,
            Granule::Size16K => 0b10,
            Granule::Size64K => 0b11,
        }
    }

    pub(super) const fn from_bits(bits: u64) -> Option<Granule> {
        match bits & 3 {
            0b01 => Some(Granule::Size4K),
            0b10 => Some(Granule::Size16K),
            0b11 => Some(Granule::Size64K),
            _ => None,
        }
    }
}

/// Table level of the invalidated leaf: a hint. A wrong level may invalidate nothing, so use `Unknown` in doubt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Level {
    /// Not known, or leaves of several levels: always correct.
    Unknown,
    /// Level 1: 1 GiB with 4 KiB granules.
    One,
    /// Level 2: 2 MiB with 4 KiB granules.
    Two,
    /// Level 3: a page.
    Three,
}

impl Level {
    pub(super) const fn bits(self) -> u64 {
        match self {
            Level::Unknown => 0,
            Level::One => 1,
            Level::Two => 2,
            Level::Three => 3,
        }
    }

    pub(super) const fn from_bits(bits: u64) -> Level {
        match bits & 3 {
            0 => Level::Unknown,
            1 => Level::One,
            2 => Level::Two,
            _ => Level::Three,
        }
    }
}

/// Which TLBI, and which CPUs it reaches. Names are those of the instruction without `is`, which [`Operand::mnemonic`]
/// appends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operand {
    /// `vmalle1`: everything.
    All,
    /// `aside1`: one tag, global entries stay.
    Tag(Asid),
    /// `vae1`: an address under a tag, with its upper-level entries; global entries of the address too.
    Page(Asid, u64, Level, Granule),
    /// `vale1`: the same, leaf only.
    Leaf(Asid, u64, Level, Granule),
    /// `vaae1`: an address under every tag, and the upper-level entries.
    PageOfAnyTag(u64, Level, Granule),
    /// `vaale1`: the same, leaf only.
    LeafOfAnyTag(u64, Level, Granule),
}

const VA_BITS: u64 = (1 << 44) - 1;

impl Operand {
    /// The instruction's name: with `is` for the inner-shareable form, which is broadcast.
    pub const fn mnemonic(self, broadcast: bool) -> &'static str {
        match (self, broadcast) {
            (Operand::All, false) => "vmalle1",
            (Operand::All, true) => "vmalle1is",
            (Operand::Tag(_), false) => "aside1",
            (Operand::Tag(_), true) => "aside1is",
            (Operand::Page(..), false) => "vae1",
            (Operand::Page(..), true) => "vae1is",
            (Operand::Leaf(..), false) => "vale1",
            (Operand::Leaf(..), true) => "vale1is",
            (Operand::PageOfAnyTag(..), false) => "vaae1",
            (Operand::PageOfAnyTag(..), true) => "vaae1is",
            (Operand::LeafOfAnyTag(..), false) => "vaale1",
            (Operand::LeafOfAnyTag(..), true) => "vaale1is",
        }
    }

    /// The register value, `None` for the form that takes none.
    // Always: the form is constant where it is executed, and then this is two instructions.
    #[inline(always)]
    pub const fn bits(self) -> Option<u64> {
        let (tag, address, level, granule) = match self {
            Operand::All => return None,
            Operand::Tag(tag) => return Some((tag.get() as u64) << 48),
            Operand::Page(tag, address, level, granule) | Operand::Leaf(tag, address, level, granule) => {
                (tag.get() as u64, address, level, granule)
            }
            Operand::PageOfAnyTag(address, level, granule) | Operand::LeafOfAnyTag(address, level, granule) => {
                (0, address, level, granule)
            }
        };
        let ttl = match level {
            Level::Unknown => 0,
            known => granule.bits() << 2 | known.bits(),
        };
        Some(tag << 48 | ttl << 44 | (address >> 12 & VA_BITS))
    }

    /// The same operation with the fields of a register value, for emulators. The form is that of `self`. `None` for a
    /// TTL with a reserved granule. The granule of an unknown level is that of `self`, or 4 KiB.
    pub const fn with_bits(self, bits: u64) -> Option<Operand> {
        let tag = Asid::from_bits((bits >> 48) as u16);
        // The address is sign-extended from VA[55].
        let address = ((bits & VA_BITS) << 20) as i64 >> 8;
        let address = address as u64;
        let level = Level::from_bits(bits >> 44);
        let own = match self {
            Operand::All | Operand::Tag(_) => Granule::Size4K,
            Operand::Page(_, _, _, own)
            | Operand::Leaf(_, _, _, own)
            | Operand::PageOfAnyTag(_, _, own)
            | Operand::LeafOfAnyTag(_, _, own) => own,
        };
        let granule = match (level, Granule::from_bits(bits >> 46)) {
            (Level::Unknown, _) => own,
            (_, Some(granule)) => granule,
            (_, None) => return None,
        };
        Some(match self {
            Operand::All => Operand::All,
            Operand::Tag(_) => Operand::Tag(tag),
            Operand::Page(..) => Operand::Page(tag, address, level, granule),
            Operand::Leaf(..) => Operand::Leaf(tag, address, level, granule),
            Operand::PageOfAnyTag(..) => Operand::PageOfAnyTag(address, level, granule),
            Operand::LeafOfAnyTag(..) => Operand::LeafOfAnyTag(address, level, granule),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::AsidWidth;
    use super::*;
    use proptest::prelude::*;

    fn asid(tag: u16) -> Asid {
        Asid::new(tag, AsidWidth::Bits16).expect("16 bits")
    }

    #[test]
    fn fields_match_the_manual() {
        let page = Operand::Page(asid(0xABCD), 0x0000_7F12_3456_7000, Level::Three, Granule::Size4K);
        assert_eq!(page.bits(), Some(0xABCD_7007_F123_4567));
        let unknown = Operand::Leaf(asid(1), 0x1000, Level::Unknown, Granule::Size64K);
        assert_eq!(unknown.bits(), Some(0x0001_0000_0000_0001));
        let kernel = Operand::LeafOfAnyTag(0xFFFF_8000_0000_1000, Level::Two, Granule::Size4K);
        assert_eq!(kernel.bits(), Some(0x0000_6FF8_0000_0001), "VA[55:12] and no more");
        assert_eq!(Operand::Tag(asid(0x1234)).bits(), Some(0x1234_0000_0000_0000));
        assert_eq!(Operand::All.bits(), None);
    }

    #[test]
    fn broadcast_mnemonics_end_in_is() {
        let forms = [
            Operand::All,
            Operand::Tag(asid(1)),
            Operand::Page(asid(1), 0, Level::Unknown, Granule::Size4K),
            Operand::Leaf(asid(1), 0, Level::Unknown, Granule::Size4K),
            Operand::PageOfAnyTag(0, Level::Unknown, Granule::Size4K),
            Operand::LeafOfAnyTag(0, Level::Unknown, Granule::Size4K),
        ];
        for form in forms {
            assert_eq!(form.mnemonic(true), format!("{}is", form.mnemonic(false)));
        }
    }

    proptest! {
        #[test]
        fn decoding_inverts_encoding(tag: u16, page in 0u64..1 << 36, kernel: bool, level in 0u64..4, leaf: bool) {
            let address = page << 12 | if kernel { 0xFFFF_0000_0000_0000 } else { 0 };
            let level = Level::from_bits(level);
            let operand = if leaf {
                Operand::Leaf(asid(tag), address, level, Granule::Size4K)
            } else {
                Operand::Page(asid(tag), address, level, Granule::Size4K)
            };
            prop_assert_eq!(operand.with_bits(operand.bits().expect("by address")), Some(operand));
        }
    }
}
