//! CR3 with process-context identifiers: table root, tag, and whether the tag's entries are kept.
//!
//! Layout with CR4.PCIDE = 1 (AMD APM vol. 2 and Intel SDM vol. 3, "process-context identifiers"): \[11:0\] PCID,
//! \[51:12\] physical address of the top table, \[63\] in the written value: keep the entries under this PCID. Bit 63
//! always reads as 0.

/// A process-context identifier: 12 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Pcid(u16);

impl Pcid {
    /// Width in bits.
    pub const BITS: u32 = 12;

    /// The tag in use before PCIDs are enabled (and the only one while CR4.PCIDE = 0): reserve it for boot.
    pub const BOOT: Pcid = Pcid(0);

    /// `None` if `tag` needs more than 12 bits: a tag is refused, never truncated (regression 12).
    pub const fn new(tag: u16) -> Option<Pcid> {
        if tag >> Pcid::BITS == 0 { Some(Pcid(tag)) } else { None }
    }

    /// The identifier.
    pub const fn get(self) -> u16 {
        self.0
    }

    pub(super) const fn low_bits(value: u64) -> Pcid {
        Pcid((value & 0xFFF) as u16)
    }
}

/// The two tags of a space with split user and kernel tables. They differ only in bit 11, so either follows from the
/// other. An invalidation that names one MUST be repeated for the other (regression 30).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PcidPair(Pcid);

impl PcidPair {
    /// The bit that distinguishes the user half from the kernel half.
    pub const USER_BIT: u16 = 1 << 11;

    /// The pair of the tags `kernel` and `kernel | USER_BIT`; `None` if `kernel` has bit 11 set or more bits than fit.
    pub const fn new(kernel: u16) -> Option<PcidPair> {
        if kernel < PcidPair::USER_BIT {
            Some(PcidPair(Pcid(kernel)))
        } else {
            None
        }
    }

    /// The tag of the full tables.
    pub const fn kernel(self) -> Pcid {
        self.0
    }

    /// The tag of the tables that user code runs on.
    pub const fn user(self) -> Pcid {
        Pcid(self.0.0 | PcidPair::USER_BIT)
    }

    /// The pair that `either` half belongs to.
    pub const fn of(either: Pcid) -> PcidPair {
        PcidPair(Pcid(either.0 & !PcidPair::USER_BIT))
    }

    /// Both halves, for flushing.
    pub const fn both(self) -> [Pcid; 2] {
        [self.kernel(), self.user()]
    }
}

/// A value to load into CR3 while CR4.PCIDE = 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Cr3 {
    table: u64,
    pcid: Pcid,
    keep: bool,
}

impl Cr3 {
    /// Bit 63: entries under the loaded PCID survive the load.
    pub const NOFLUSH: u64 = 1 << 63;

    /// Bits that hold the table address: physical addresses have at most 52 bits.
    pub const TABLE: u64 = 0x000F_FFFF_FFFF_F000;

    /// A load of the table at physical address `table` under `pcid` that flushes that tag's non-global entries. `None`
    /// if the address is not page-aligned or needs more than 52 bits.
    pub const fn new(table: u64, pcid: Pcid) -> Option<Cr3> {
        if table & !Cr3::TABLE == 0 {
            Some(Cr3 {
                table,
                pcid,
                keep: false,
            })
        } else {
            None
        }
    }

    /// The same load with the tag's entries kept. Correct only if they are known to be up to date.
    pub const fn keeping(self) -> Cr3 {
        Cr3 { keep: true, ..self }
    }

    /// The register value to write.
    pub const fn bits(self) -> u64 {
        self.table | self.pcid.0 as u64 | if self.keep { Cr3::NOFLUSH } else { 0 }
    }

    /// Decodes a written value; `None` if reserved bits are set, for which the processor raises #GP.
    pub const fn decode(bits: u64) -> Option<Cr3> {
        if bits & !(Cr3::NOFLUSH | Cr3::TABLE | 0xFFF) != 0 {
            return None;
        }
        Some(Cr3 {
            table: bits & Cr3::TABLE,
            pcid: Pcid::low_bits(bits),
            keep: bits & Cr3::NOFLUSH != 0,
        })
    }

    /// Physical address of the top table.
    pub const fn table(self) -> u64 {
        self.table
    }

    /// The tag.
    pub const fn pcid(self) -> Pcid {
        self.pcid
    }

    /// Whether entries under the tag survive.
    pub const fn keeps(self) -> bool {
        self.keep
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn cr3_bits_match_the_manuals() {
        let load = Cr3::new(0x0000_0001_2345_6000, Pcid::new(0xABC).expect("12 bits")).expect("aligned");
        assert_eq!(load.bits(), 0x0000_0001_2345_6ABC);
        assert_eq!(load.keeping().bits(), 0x8000_0001_2345_6ABC);
    }

    #[test]
    fn cr3_table_address_outside_its_field_is_refused() {
        for table in [0x1, 0x800, 0x1234_5678, 1 << 52, 1 << 61, 1 << 63] {
            assert_eq!(Cr3::new(table, Pcid::BOOT), None, "{table:#x}");
        }
        assert_eq!(Cr3::decode(1 << 52), None);
        assert_eq!(Cr3::decode(1 << 62), None);
    }

    #[test]
    fn tag_that_exceeds_the_width_is_refused_not_truncated() {
        assert_eq!(Pcid::new(0xFFF).map(Pcid::get), Some(0xFFF));
        assert_eq!(Pcid::new(0x1000), None);
        assert_eq!(Pcid::new(0x1005), None, "must not become tag 5");
    }

    #[test]
    fn pcid_pair_differs_only_in_bit_11() {
        let pair = PcidPair::new(0x7FF).expect("fits");
        assert_eq!((pair.kernel().get(), pair.user().get()), (0x7FF, 0xFFF));
        assert_eq!(PcidPair::new(0x800), None);
        for half in pair.both() {
            assert_eq!(PcidPair::of(half), pair);
        }
    }

    proptest! {
        #[test]
        fn decoding_inverts_encoding(page in 0u64..1 << 40, tag in 0u16..1 << 12, keep: bool) {
            let load = Cr3::new(page << 12, Pcid::new(tag).expect("12 bits")).expect("aligned");
            let load = if keep { load.keeping() } else { load };
            let decoded = Cr3::decode(load.bits()).expect("valid");
            prop_assert_eq!(decoded, load);
            prop_assert_eq!((decoded.table(), decoded.pcid().get(), decoded.keeps()), (page << 12, tag, keep));
        }
    }
}
