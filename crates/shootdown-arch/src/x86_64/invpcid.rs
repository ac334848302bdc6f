//! INVPCID: invalidation on the CPU that executes it, by address, by tag, or of everything.
//!
//! The instruction takes a type in a register and a 128-bit descriptor in memory: \[11:0\] PCID, \[63:12\] zero,
//! \[127:64\] linear address (Intel SDM vol. 2 and AMD APM vol. 3, INVPCID).

use super::address::{AddressWidth, Canonical};
use super::cr3::Pcid;

/// One invalidation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Invpcid {
    /// Type 0: the translation of one address under one tag, except global entries, with the paging-structure-cache
    /// entries for it.
    Address {
        /// The tag.
        pcid: Pcid,
        /// Any address in the page.
        address: Canonical,
    },
    /// Type 1: every non-global entry under one tag.
    Tag(Pcid),
    /// Type 2: everything, global entries included.
    All,
    /// Type 3: every non-global entry under every tag.
    NonGlobal,
}

/// The descriptor in its memory layout: low quadword, then high quadword.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(C, align(16))]
pub struct Descriptor(pub [u64; 2]);

/// Operands for which the instruction raises #GP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Refused {
    /// A type above 3.
    UnknownType(u64),
    /// Bits \[63:12\] of the descriptor are not all zero.
    ReservedBits(u64),
    /// Type 0 with an address that is not canonical.
    NotCanonical(u64),
}

impl Invpcid {
    /// The type, for the register operand.
    pub const fn kind(self) -> u64 {
        match self {
            Invpcid::Address { .. } => 0,
            Invpcid::Tag(_) => 1,
            Invpcid::All => 2,
            Invpcid::NonGlobal => 3,
        }
    }

    /// The descriptor, for the memory operand. Fields that the type ignores are 0.
    pub const fn descriptor(self) -> Descriptor {
        Descriptor(match self {
            Invpcid::Address { pcid, address } => [pcid.get() as u64, address.get()],
            Invpcid::Tag(pcid) => [pcid.get() as u64, 0],
            Invpcid::All | Invpcid::NonGlobal => [0, 0],
        })
    }

    /// Decodes the operands.
    ///
    /// # Errors
    /// Operands for which the processor would raise #GP. CR4.PCIDE is not considered (while it is 0, a tag other than 0
    /// is refused too).
    pub const fn decode(kind: u64, descriptor: Descriptor, width: AddressWidth) -> Result<Invpcid, Refused> {
        let [low, address] = descriptor.0;
        if kind > 3 {
            return Err(Refused::UnknownType(kind));
        }
        if low >> Pcid::BITS != 0 {
            return Err(Refused::ReservedBits(low));
        }
        let pcid = Pcid::low_bits(low);
        Ok(match kind {
            0 => match Canonical::new(address, width) {
                Some(address) => Invpcid::Address { pcid, address },
                None => return Err(Refused::NotCanonical(address)),
            },
            1 => Invpcid::Tag(pcid),
            2 => Invpcid::All,
            _ => Invpcid::NonGlobal,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const WIDTH: AddressWidth = AddressWidth::Bits48;

    #[test]
    fn each_type_has_its_literal_operands() {
        let pcid = Pcid::new(0x123).expect("12 bits");
        let address = Canonical::new(0xFFFF_8000_0000_1000, WIDTH).expect("canonical");
        let one = Invpcid::Address { pcid, address };
        assert_eq!((one.kind(), one.descriptor().0), (0, [0x123, 0xFFFF_8000_0000_1000]));
        assert_eq!(
            (Invpcid::Tag(pcid).kind(), Invpcid::Tag(pcid).descriptor().0),
            (1, [0x123, 0])
        );
        assert_eq!((Invpcid::All.kind(), Invpcid::All.descriptor().0), (2, [0, 0]));
        assert_eq!(
            (Invpcid::NonGlobal.kind(), Invpcid::NonGlobal.descriptor().0),
            (3, [0, 0])
        );
        assert_eq!((size_of::<Descriptor>(), align_of::<Descriptor>()), (16, 16));
    }

    #[test]
    fn operands_that_fault_are_refused() {
        let refused = |kind, low, high| Invpcid::decode(kind, Descriptor([low, high]), WIDTH).expect_err("refused");
        assert_eq!(refused(4, 0, 0), Refused::UnknownType(4));
        assert_eq!(refused(1, 0x1000, 0), Refused::ReservedBits(0x1000));
        assert_eq!(
            refused(0, 1, 0x0000_8000_0000_0000),
            Refused::NotCanonical(0x0000_8000_0000_0000)
        );
        let ignored = Invpcid::decode(2, Descriptor([0, 0x0000_8000_0000_0000]), WIDTH);
        assert_eq!(ignored, Ok(Invpcid::All), "only type 0 looks at the address");
    }

    proptest! {
        #[test]
        fn decoding_inverts_encoding(kind in 0u64..4, tag in 0u16..1 << 12, low in 0u64..1 << 47, upper: bool) {
            let raw = if upper { low | WIDTH.upper_half() } else { low };
            let pcid = Pcid::new(tag).expect("12 bits");
            let operation = match kind {
                0 => Invpcid::Address { pcid, address: Canonical::new(raw, WIDTH).expect("canonical") },
                1 => Invpcid::Tag(pcid),
                2 => Invpcid::All,
                _ => Invpcid::NonGlobal,
            };
            prop_assert_eq!(operation.kind(), kind);
            prop_assert_eq!(Invpcid::decode(kind, operation.descriptor(), WIDTH), Ok(operation));
        }
    }
}
