//! SFENCE.VMA and SINVAL.VMA: which registers are named, and the instruction words.
//!
//! A register that holds 0 differs from `x0`: the former means address or tag 0, the latter all of them. So operands
//! are options here, and the encoder takes register numbers that cannot be `x0`.

use super::satp::Asid;

/// What a fence covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fence {
    /// Everything, global entries included.
    All,
    /// Every non-global entry under a tag, at every level.
    Tag(Asid),
    /// Leaf entries of an address under every tag, global ones included.
    Leaf(u64),
    /// The leaf entry of an address under a tag, unless it is global.
    LeafOfTag(u64, Asid),
}

/// A general register that is not `x0`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Register(u32);

impl Register {
    /// `None` for 0 (`x0`) and above 31.
    pub const fn new(number: u32) -> Option<Register> {
        if number >= 1 && number <= 31 {
            Some(Register(number))
        } else {
            None
        }
    }
}

/// SFENCE.W.INVAL: orders earlier table writes before later SINVAL.VMAs.
pub const SFENCE_W_INVAL: u32 = 0x1800_0073;

/// SFENCE.INVAL.IR: completes earlier SINVAL.VMAs.
pub const SFENCE_INVAL_IR: u32 = 0x1810_0073;

impl Fence {
    /// Values for rs1 and rs2; `None` where the instruction must name `x0`.
    pub const fn operands(self) -> (Option<u64>, Option<u64>) {
        match self {
            Fence::All => (None, None),
            Fence::Tag(asid) => (None, Some(asid.get() as u64)),
            Fence::Leaf(address) => (Some(address), None),
            Fence::LeafOfTag(address, asid) => (Some(address), Some(asid.get() as u64)),
        }
    }

    /// The word of SFENCE.VMA with the address in `rs1` and the tag in `rs2`, if it has them.
    pub const fn sfence_vma(self, rs1: Register, rs2: Register) -> u32 {
        self.word(0b0001001, rs1, rs2)
    }

    /// The word of SINVAL.VMA (Svinval).
    pub const fn sinval_vma(self, rs1: Register, rs2: Register) -> u32 {
        self.word(0b0001011, rs1, rs2)
    }

    const fn word(self, function: u32, rs1: Register, rs2: Register) -> u32 {
        let (address, tag) = self.operands();
        let rs1 = if address.is_some() { rs1.0 } else { 0 };
        let rs2 = if tag.is_some() { rs2.0 } else { 0 };
        function << 25 | rs2 << 20 | rs1 << 15 | 0b111_0011
    }
}

#[cfg(test)]
mod tests {
    use super::super::AsidWidth;
    use super::*;

    #[test]
    fn fence_encodes_only_the_named_operands() {
        let width = AsidWidth::from_read_back(AsidWidth::probe(0));
        let asid = Asid::new(0x1234, width).expect("16 bits");
        let (a0, a1) = (Register::new(10).expect("a0"), Register::new(11).expect("a1"));
        // Output of an assembler: sfence.vma; sfence.vma x0, a1; sfence.vma a0; sfence.vma a0, a1.
        assert_eq!(Fence::All.sfence_vma(a0, a1), 0x1200_0073);
        assert_eq!(Fence::Tag(asid).sfence_vma(a0, a1), 0x12B0_0073);
        assert_eq!(Fence::Leaf(0x1000).sfence_vma(a0, a1), 0x1205_0073);
        assert_eq!(Fence::LeafOfTag(0x1000, asid).sfence_vma(a0, a1), 0x12B5_0073);
        assert_eq!(Fence::LeafOfTag(0x1000, asid).sinval_vma(a0, a1), 0x16B5_0073);
        assert_eq!(Fence::Tag(asid).operands(), (None, Some(0x1234)), "not truncated");
    }

    #[test]
    fn address_0_and_asid_0_do_not_mean_all() {
        let zero = Asid::new(0, AsidWidth::from_read_back(0)).expect("there is always one");
        assert_eq!(Fence::LeafOfTag(0, zero).operands(), (Some(0), Some(0)));
        assert!(Register::new(0).is_none() && Register::new(32).is_none());
    }
}
