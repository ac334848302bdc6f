//! The root register: mode, address-space identifier, page number of the top table.
//!
//! Layout on RV64 (privileged specification, "satp"): MODE \[63:60\], ASID \[59:44\], PPN \[43:0\]. A write orders
//! nothing and flushes nothing: a reused tag needs an SFENCE.VMA before it is loaded (regression 18).

/// The translation mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Three levels, 39 bits.
    Sv39,
    /// Four levels, 48 bits.
    Sv48,
    /// Five levels, 57 bits.
    Sv57,
}

impl Mode {
    const fn bits(self) -> u64 {
        match self {
            Mode::Sv39 => 8,
            Mode::Sv48 => 9,
            Mode::Sv57 => 10,
        }
    }

    /// The mode of a value of satp; `None` for Bare, and for unknown modes.
    pub const fn of(satp: u64) -> Option<Mode> {
        match satp >> 60 {
            8 => Some(Mode::Sv39),
            9 => Some(Mode::Sv48),
            10 => Some(Mode::Sv57),
            _ => None,
        }
    }
}

/// Number of implemented ASID bits, 0 to 16. Harts may differ: use the narrowest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AsidWidth(u32);

impl AsidWidth {
    /// The ASID field with every bit set.
    const FIELD: u64 = 0xFFFF << 44;

    /// The value that detects the width: the loaded `satp`, with every bit of its ASID set. Write it, read it back,
    /// write `satp` again and flush everything. Keep interrupts off, and use only global entries meanwhile. Mode and
    /// table stay the same. `satp` must be in a mode with tables: in mode Bare the effect of other bits is unspecified,
    /// also for translation (privileged specification, "satp").
    pub const fn probe(satp: u64) -> u64 {
        satp | Self::FIELD
    }

    /// The width, from the value that was read back. The implemented bits are the low ones; bits above a gap do not
    /// count.
    pub const fn from_read_back(satp: u64) -> AsidWidth {
        AsidWidth(((satp >> 44) as u16).trailing_ones())
    }

    /// The narrower of two.
    pub const fn narrowest(self, other: AsidWidth) -> AsidWidth {
        if self.0 < other.0 { self } else { other }
    }

    /// This width, but at most that many bits.
    pub const fn at_most(self, bits: u32) -> AsidWidth {
        if self.0 < bits { self } else { AsidWidth(bits) }
    }

    /// The width in bits.
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Number of ASIDs; 1 if none are implemented.
    pub const fn count(self) -> u32 {
        1 << self.0
    }
}

/// An address-space identifier that fits every hart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Asid(u16);

impl Asid {
    /// `None` if `tag` needs more bits than are implemented: refused, never truncated (regression 12).
    pub const fn new(tag: u16, width: AsidWidth) -> Option<Asid> {
        if (tag as u32) < width.count() {
            Some(Asid(tag))
        } else {
            None
        }
    }

    /// The identifier.
    pub const fn get(self) -> u16 {
        self.0
    }
}

/// A value for satp.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Satp(u64);

impl Satp {
    /// `None` if `table`, the physical address of the top table, is not page-aligned or needs more than 56 bits.
    pub const fn new(mode: Mode, table: u64, asid: Asid) -> Option<Satp> {
        if table & 0xFFF != 0 || table >> 56 != 0 {
            return None;
        }
        Some(Satp(mode.bits() << 60 | (asid.0 as u64) << 44 | table >> 12))
    }

    /// The register value.
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// Decodes a value of the register; `None` if [`Mode::of`] does not know its mode.
    pub const fn decode(satp: u64) -> Option<Satp> {
        match Mode::of(satp) {
            Some(_) => Some(Satp(satp)),
            None => None,
        }
    }

    /// Physical address of the top table.
    pub const fn table(self) -> u64 {
        self.0 << 12 & ((1 << 56) - 1)
    }

    /// The identifier.
    pub const fn asid(self) -> u16 {
        (self.0 >> 44) as u16
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const WIDE: AsidWidth = AsidWidth(16);

    #[test]
    fn asid_width_is_probed_from_satp() {
        let loaded = 0x8000_0000_0008_0000;
        let probe = AsidWidth::probe(loaded | 5 << 44);
        assert_eq!(AsidWidth::from_read_back(probe), WIDE);
        assert_eq!(probe & !(0xFFFF << 44), loaded, "mode and table stay");
        assert_eq!(AsidWidth::from_read_back(0x8000_0000_0008_0000 | 0x1FF << 44).bits(), 9);
        assert_eq!(AsidWidth::from_read_back(8 << 60).count(), 1);
        assert_eq!(AsidWidth(9).narrowest(WIDE), AsidWidth(9));
        assert_eq!((WIDE.at_most(9), AsidWidth(7).at_most(9)), (AsidWidth(9), AsidWidth(7)));
    }

    #[test]
    fn satp_in_bare_or_reserved_mode_is_no_root() {
        assert_eq!((Satp::decode(0), Satp::decode(1 << 60 | 7)), (None, None));
        assert_eq!(Mode::of(10 << 60 | 5), Some(Mode::Sv57));
    }

    #[test]
    fn table_address_outside_its_field_is_refused() {
        let asid = Asid::new(1, WIDE).expect("16 bits");
        assert!(Satp::new(Mode::Sv48, 0x800, asid).is_none());
        assert!(Satp::new(Mode::Sv48, 1 << 56, asid).is_none());
        assert_eq!(
            Satp::new(Mode::Sv48, 0x8000_1000, asid).map(Satp::bits),
            Some(0x9000_1000_0008_0001)
        );
    }

    proptest! {
        #[test]
        fn asid_that_exceeds_the_width_is_refused(tag: u16, width in 0u32..17) {
            let asid = Asid::new(tag, AsidWidth(width));
            prop_assert_eq!(asid.map(Asid::get), (u32::from(tag) >> width == 0).then_some(tag));
        }

        #[test]
        fn decoding_inverts_encoding(page in 0u64..1 << 44, tag: u16) {
            let satp = Satp::new(Mode::Sv39, page << 12, Asid::new(tag, WIDE).expect("16 bits")).expect("fits");
            prop_assert_eq!((satp.table(), satp.asid(), satp.bits() >> 60), (page << 12, tag, 8));
            prop_assert_eq!((Satp::decode(satp.bits()), Mode::of(satp.bits())), (Some(satp), Some(Mode::Sv39)));
        }
    }
}
