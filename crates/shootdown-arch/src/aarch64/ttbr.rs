//! TTBR0_EL1 and TTBR1_EL1: top table and ASID.
//!
//! Layout (Arm ARM, TTBR0_EL1): ASID \[63:48\], BADDR \[47:1\], CnP \[0\]. TCR_EL1.A1 selects the register whose ASID
//! is in use; here it is TTBR0's (A1 clear). CnP stays 0: it lets threads of one core share entries, which is wrong if
//! an ASID names different spaces on different CPUs (per-CPU tags; `Tags::are_alike_on_all_cpus` of the engine).

use super::asid::Asid;

/// A value for TTBR0_EL1 or TTBR1_EL1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ttbr(u64);

impl Ttbr {
    /// TCR_EL1.A1: the ASID is that of TTBR1_EL1. Must be clear for the ASID in TTBR0 to take effect.
    pub const TCR_A1: u64 = 1 << 22;

    /// `None` if `table`, the physical address of the top table, is not a multiple of 4 KiB or needs more than 48 bits.
    /// With 52-bit addresses bits \[51:48\] are in another place, which is not encoded here.
    pub const fn new(table: u64, asid: Asid) -> Option<Ttbr> {
        if table & 0xFFF != 0 || table >> 48 != 0 {
            return None;
        }
        Some(Ttbr((asid.get() as u64) << 48 | table))
    }

    /// The register value.
    pub const fn bits(self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::super::AsidWidth;
    use super::*;

    #[test]
    fn ttbr_holds_asid_above_table_with_cnp_clear() {
        let asid = Asid::new(0xABCD, AsidWidth::Bits16).expect("16 bits");
        assert_eq!(
            Ttbr::new(0x4008_1000, asid).map(Ttbr::bits),
            Some(0xABCD_0000_4008_1000)
        );
    }

    #[test]
    fn table_address_outside_its_field_is_refused() {
        let asid = Asid::new(1, AsidWidth::Bits8).expect("8 bits");
        assert_eq!((Ttbr::new(0x801, asid), Ttbr::new(1 << 48, asid)), (None, None));
    }
}
