//! SBI RFENCE: asking the firmware to fence other harts. Arguments of the call, as register values.
//!
//! Extension 52464E43h ("RFNC"). A call names harts by a mask of 64 and the number of the mask's first hart.

use super::fence::Fence;

/// The extension's number, in a7.
pub const EXTENSION: u64 = 0x5246_4E43;

/// Up to 64 harts: bit *n* stands for hart `base + n`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct HartMask {
    /// One bit per hart.
    pub mask: u64,
    /// Number of the hart of bit 0.
    pub base: u64,
}

impl HartMask {
    /// Every hart.
    pub const ALL: HartMask = HartMask {
        mask: 0,
        base: u64::MAX,
    };

    /// Masks for harts in ascending order: the fewest that cover them if each begins at the first hart not covered
    /// before.
    pub fn covering(harts: impl IntoIterator<Item = u64>) -> impl Iterator<Item = HartMask> {
        let mut harts = harts.into_iter().peekable();
        core::iter::from_fn(move || {
            let base = harts.next()?;
            let mut mask = 1;
            while let Some(hart) = harts.next_if(|&hart| hart >= base && hart - base < 64) {
                mask |= 1 << (hart - base);
            }
            Some(HartMask { mask, base })
        })
    }

    /// Whether it names a hart.
    pub const fn names(self, hart: u64) -> bool {
        self.base == u64::MAX
            || (hart >= self.base && hart - self.base < 64 && self.mask >> (hart - self.base) & 1 == 1)
    }
}

/// One call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RemoteFence {
    /// The harts to fence.
    pub harts: HartMask,
    /// The fence, from this address; with [`Fence::All`] and [`Fence::Tag`] everything.
    pub fence: Fence,
    /// Bytes from the address. Every page that they touch is fenced, at least one. Not used without an address.
    pub bytes: u64,
}

impl RemoteFence {
    /// a0 to a4 and the function number for a6: mask, base, first byte, bytes, tag. The tag is 0 if the function takes
    /// none. "Everything" is encoded as all bytes, which every firmware takes for "no address". A range is sent as
    /// whole pages. Firmware steps from the first byte page by page while bytes are left. From the middle of a page
    /// that misses the last page, and with 0 bytes it misses all of them (OpenSBI `lib/sbi/sbi_tlb.c`).
    pub const fn arguments(self) -> ([u64; 5], u64) {
        let (start, size) = match self.fence {
            Fence::All | Fence::Tag(_) => (0, u64::MAX),
            Fence::Leaf(address) | Fence::LeafOfTag(address, _) => whole_pages(address, self.bytes),
        };
        let (tag, function) = match self.fence {
            Fence::All | Fence::Leaf(_) => (0, 1),
            Fence::Tag(asid) | Fence::LeafOfTag(_, asid) => (asid.get() as u64, 2),
        };
        ([self.harts.mask, self.harts.base, start, size, tag], function)
    }
}

/// First byte and size of the pages that `bytes` from `address` touch, at least one. Everything if that extends beyond
/// the last address.
const fn whole_pages(address: u64, bytes: u64) -> (u64, u64) {
    let start = address & !(PAGE - 1);
    let bytes = if bytes == 0 { 1 } else { bytes };
    match (address - start).checked_add(bytes) {
        Some(size) if size <= u64::MAX - PAGE => (start, size.next_multiple_of(PAGE)),
        _ => (0, u64::MAX),
    }
}

/// Bytes of the smallest page.
const PAGE: u64 = 4096;

#[cfg(test)]
mod tests {
    use super::super::{Asid, AsidWidth};
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;
    use std::vec::Vec;

    #[test]
    fn rfence_extension_id_spells_rfnc() {
        assert_eq!(&EXTENSION.to_be_bytes()[4..], b"RFNC");
    }

    #[test]
    fn rfence_arguments_hold_range_and_asid() {
        let asid = Asid::new(0xABC, AsidWidth::from_read_back(AsidWidth::probe(0))).expect("16 bits");
        let harts = HartMask { mask: 0b101, base: 7 };
        let call = |fence| {
            RemoteFence {
                harts,
                fence,
                bytes: 0x3000,
            }
            .arguments()
        };
        assert_eq!(call(Fence::LeafOfTag(0x1000, asid)), ([5, 7, 0x1000, 0x3000, 0xABC], 2));
        assert_eq!(call(Fence::Tag(asid)), ([5, 7, 0, u64::MAX, 0xABC], 2));
        assert_eq!(call(Fence::Leaf(0x1000)), ([5, 7, 0x1000, 0x3000, 0], 1));
        assert_eq!(call(Fence::All), ([5, 7, 0, u64::MAX, 0], 1));
        assert!(HartMask::ALL.names(12345));
        let endless = RemoteFence {
            harts,
            fence: Fence::Leaf(0x1800),
            bytes: u64::MAX,
        };
        assert_eq!(endless.arguments(), ([5, 7, 0, u64::MAX, 0], 1));
    }

    proptest! {
        /// As OpenSBI carries it out.
        #[test]
        fn remote_fence_covers_every_touched_page(
            address in 0u64..1 << 20,
            bytes in prop_oneof![Just(0u64), 0u64..40_000],
        ) {
            let call = RemoteFence { harts: HartMask::ALL, fence: Fence::Leaf(address), bytes };
            let ([_, _, start, size, _], _) = call.arguments();
            let fenced: BTreeSet<u64> = (0..size).step_by(4096).map(|offset| (start + offset) >> 12).collect();
            let touched: BTreeSet<u64> = (address >> 12..=(address + bytes.max(1) - 1) >> 12).collect();
            prop_assert_eq!(fenced, touched);
        }

        #[test]
        fn hart_masks_name_exactly_the_given_harts(harts in prop::collection::btree_set(0u64..2000, 0..200)) {
            let masks: Vec<_> = HartMask::covering(harts.iter().copied()).collect();
            let named: BTreeSet<u64> = (0..2100).filter(|&hart| masks.iter().any(|mask| mask.names(hart))).collect();
            prop_assert_eq!(&named, &harts);
            let bits: u32 = masks.iter().map(|mask| mask.mask.count_ones()).sum();
            prop_assert_eq!(bits as usize, harts.len(), "each once");
        }
    }
}
