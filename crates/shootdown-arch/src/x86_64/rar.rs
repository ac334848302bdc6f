//! Remote Action Request (RAR): invalidation on other processors, by a table in memory and a message of the interrupt
//! controller.
//!
//! All CPUs share one table of payloads. Each has an *action vector*, one byte per payload. A requester fills a
//! payload, marks its byte at each target, and sends the targets a message with [`DELIVERY_MODE`]. Their microcode
//! carries the payload out and clears the mark. `shootdown::Rar` sets the marks and waits.
//!
//! Sources: Intel, Remote Action Request white paper, document 341431; the Linux series "Intel RAR TLB invalidation",
//! version 4 of 2025-06-19. The series gives MSR numbers, fields and the two facts that limit its use: the form with an
//! address leaves global entries, and no form names an address under every tag. It was not merged: its author saw
//! processors report success with translations still present. Nothing here has run on a processor.

use super::address::{AddressWidth, Canonical};
use super::cr3::Pcid;

/// MSR that enables remote actions: [`CTRL_ENABLE`], [`CTRL_IGNORE_IF`].
pub const IA32_RAR_CTRL: u32 = 0xED;
/// MSR with the physical address of this CPU's action vector, 64 bytes, aligned to 64.
pub const IA32_RAR_ACT_VEC: u32 = 0xEE;
/// MSR with the physical address of the payload table, aligned to 4096.
pub const IA32_RAR_PAYLOAD_BASE: u32 = 0xEF;
/// MSR with the number of payloads: [`payloads`].
pub const IA32_RAR_INFO: u32 = 0xF0;

/// Bit of [`IA32_RAR_CTRL`]: requests are carried out.
pub const CTRL_ENABLE: u64 = 1 << 31;
/// Bit of [`IA32_RAR_CTRL`]: also while interrupts are masked. Without it, two CPUs that wait for each other with
/// interrupts off wait forever.
pub const CTRL_IGNORE_IF: u64 = 1 << 30;

/// Delivery mode of the message, bits \[10:8\] of the interrupt command register.
pub const DELIVERY_MODE: u64 = 0b011 << 8;
/// The vector of the message; it is fixed.
pub const VECTOR: u8 = 0xE0;

/// Most payloads of a table, and bytes of an action vector.
pub const MOST_PAYLOADS: usize = 64;
/// Most pages of one payload: what its field of 6 bits holds.
pub const MOST_PAGES: u32 = 63;

/// The processor has it (IA32_CORE_CAPABILITIES, MSR CFh, bit 1).
pub const fn is_available(core_capabilities: u64) -> bool {
    core_capabilities >> 1 & 1 == 1
}

/// Number of payloads that the processor reads, from [`IA32_RAR_INFO`]: bits \[63:32\] hold the number of the last.
/// Clamped to [`MOST_PAYLOADS`].
pub const fn payloads(info: u64) -> usize {
    let last = (info >> 32) as usize;
    if last < MOST_PAYLOADS { last + 1 } else { MOST_PAYLOADS }
}

/// Page size of [`Payload::Pages`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PageSize {
    /// 4 KiB.
    Size4K,
    /// 2 MiB.
    Size2M,
    /// 1 GiB.
    Size1G,
}

/// One invalidation, of the payload type that matches INVPCID.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Payload {
    /// Translations of some pages under one tag, except global ones, with the paging-structure-cache entries for these
    /// pages.
    Pages {
        /// The tag.
        pcid: Pcid,
        /// The first page.
        address: Canonical,
        /// Page size.
        size: PageSize,
        /// Number of pages, from 1.
        count: PageCount,
    },
    /// Every non-global entry under one tag.
    Tag(Pcid),
    /// Everything, global entries included.
    All,
    /// Every non-global entry under every tag.
    NonGlobal,
}

/// A number of pages that fits the field: 1 to [`MOST_PAGES`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PageCount(u8);

impl PageCount {
    /// `None` for 0 and above [`MOST_PAGES`].
    pub const fn new(count: u32) -> Option<PageCount> {
        if count >= 1 && count <= MOST_PAGES {
            Some(PageCount(count as u8))
        } else {
            None
        }
    }

    /// The count.
    pub const fn get(self) -> u32 {
        self.0 as u32
    }
}

/// Payload type 2: as INVPCID.
const TYPE_INVPCID: u64 = 2;

impl Payload {
    /// The first four quadwords of the 64 bytes of a payload; the others are ignored.
    ///
    /// \[7:0\] for software, \[15:8\] type, \[34:32\] subtype, \[36:35\] page size, \[42:37\] pages; the second
    /// quadword is zero, the third holds the PCID, the fourth the address.
    pub const fn words(self) -> [u64; 4] {
        let (subtype, size, count, pcid, address) = match self {
            Payload::Pages {
                pcid,
                address,
                size,
                count,
            } => (0, size as u64, count.get() as u64, pcid.get() as u64, address.get()),
            Payload::Tag(pcid) => (1, 0, 0, pcid.get() as u64, 0),
            Payload::All => (2, 0, 0, 0, 0),
            Payload::NonGlobal => (3, 0, 0, 0, 0),
        };
        [
            TYPE_INVPCID << 8 | subtype << 32 | size << 35 | count << 37,
            0,
            pcid,
            address,
        ]
    }

    /// Decodes the words of a payload, for emulations. `None` if the microcode refuses them: another type, a reserved
    /// bit, no pages, or a non-canonical address.
    pub fn decode(words: [u64; 4], width: AddressWidth) -> Option<Payload> {
        let [first, second, third, address] = words;
        let known = first >> 8 & 0xFF_FFFF == TYPE_INVPCID && first >> 43 == 0 && second == 0;
        let pcid = Pcid::low_bits(third);
        let payload = match first >> 32 & 0b111 {
            0 => Payload::Pages {
                pcid,
                address: Canonical::new(address, width)?,
                size: match first >> 35 & 0b11 {
                    0 => PageSize::Size4K,
                    1 => PageSize::Size2M,
                    2 => PageSize::Size1G,
                    _ => return None,
                },
                count: PageCount::new((first >> 37 & 0x3F) as u32)?,
            },
            1 => Payload::Tag(pcid),
            2 => Payload::All,
            3 => Payload::NonGlobal,
            _ => return None,
        };
        known.then_some(payload)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pages(count: u32, size: PageSize) -> Payload {
        Payload::Pages {
            pcid: Pcid::new(0xABC).expect("12 bits"),
            address: Canonical::new(0x7F00_0000_1000, AddressWidth::Bits48).expect("canonical"),
            size,
            count: PageCount::new(count).expect("fits"),
        }
    }

    #[test]
    fn rar_fields_match_the_white_paper() {
        let words = pages(1, PageSize::Size4K).words();
        assert_eq!(words, [0x0000_0020_0000_0200, 0, 0xABC, 0x7F00_0000_1000]);
        assert_eq!(pages(63, PageSize::Size2M).words()[0], 0x0000_07E8_0000_0200);
        assert_eq!(pages(2, PageSize::Size1G).words()[0], 0x0000_0050_0000_0200);
        let pcid = Pcid::new(5).expect("12 bits");
        assert_eq!(Payload::Tag(pcid).words(), [0x0000_0001_0000_0200, 0, 5, 0]);
        assert_eq!(Payload::All.words(), [0x0000_0002_0000_0200, 0, 0, 0]);
        assert_eq!(Payload::NonGlobal.words(), [0x0000_0003_0000_0200, 0, 0, 0]);
    }

    #[test]
    fn reserved_bits_are_zero_in_every_payload() {
        for payload in [
            pages(63, PageSize::Size1G),
            Payload::Tag(Pcid::new(0xFFF).expect("12 bits")),
        ] {
            let [first, second, third, _] = payload.words();
            assert_eq!(first & !0x0000_07FF_0000_FF00, 0, "{payload:?}");
            assert_eq!((second, third >> 12), (0, 0), "{payload:?}");
        }
    }

    proptest! {
        #[test]
        fn decoding_inverts_encoding(
            kind in 0..4,
            tag in 0_u16..1 << 12,
            low in 0_u64..1 << 47,
            count in 1..=MOST_PAGES,
            size in 0..3,
        ) {
            let pcid = Pcid::new(tag).expect("12 bits");
            let payload = match kind {
                0 => Payload::Pages {
                    pcid,
                    address: Canonical::new(low, AddressWidth::Bits48).expect("canonical"),
                    size: [PageSize::Size4K, PageSize::Size2M, PageSize::Size1G][size as usize],
                    count: PageCount::new(count).expect("fits"),
                },
                1 => Payload::Tag(pcid),
                2 => Payload::All,
                _ => Payload::NonGlobal,
            };
            prop_assert_eq!(Payload::decode(payload.words(), AddressWidth::Bits48), Some(payload));
        }
    }

    #[test]
    fn payload_that_microcode_refuses_is_not_decoded() {
        let good = pages(3, PageSize::Size4K).words();
        let with = |word: usize, bits: u64| {
            let mut words = good;
            words[word] ^= bits;
            Payload::decode(words, AddressWidth::Bits48)
        };
        assert_eq!(
            with(0, 0xFF),
            Payload::decode(good, AddressWidth::Bits48),
            "the low byte is for software"
        );
        for (word, bits) in [
            (0, 1 << 8),
            (0, 1 << 16),
            (0, 1 << 34),
            (0, 0b11 << 35),
            (0, 3 << 37),
            (0, 1 << 43),
            (1, 1),
            (3, 1 << 47),
        ] {
            assert_eq!(with(word, bits), None, "word {word}, {bits:#x}");
        }
    }

    #[test]
    fn rar_page_count_is_1_to_63() {
        assert_eq!((PageCount::new(0), PageCount::new(64)), (None, None));
        assert_eq!(PageCount::new(63).map(PageCount::get), Some(63));
    }

    #[test]
    fn rar_capabilities_are_read_and_bounded() {
        assert!(is_available(0b10) && !is_available(!0b10));
        assert_eq!((payloads(0), payloads(63 << 32), payloads(u64::MAX)), (1, 64, 64));
        assert_eq!(payloads(31 << 32 | 0xFFFF_FFFF), 32, "the low half says nothing of it");
    }
}
