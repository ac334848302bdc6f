//! Interrupts to other harts: by the firmware (SBI IPI extension), or by a CLINT's registers if the kernel can access
//! them.

use super::rfence::HartMask;

/// The extension's number, in a7. It has one function, 0.
pub const EXTENSION: u64 = 0x73_5049;

/// a0 and a1 of the call that raises a supervisor software interrupt on these harts.
pub const fn arguments(harts: HartMask) -> [u64; 2] {
    [harts.mask, harts.base]
}

/// Offset in a CLINT of the word whose lowest bit raises the machine software interrupt of a hart (msip): 4 bytes for
/// each (ACLINT specification, MSWI). A supervisor's device (SSWI) has the same layout.
pub const fn software_interrupt_register(hart: u64) -> u64 {
    4 * hart
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ipi_extension_is_spi_and_takes_mask_and_base() {
        assert_eq!(&EXTENSION.to_be_bytes()[5..], b"sPI");
        assert_eq!(arguments(HartMask { mask: 0b101, base: 64 }), [0b101, 64]);
    }

    #[test]
    fn each_hart_has_its_own_msip_word() {
        assert_eq!((0..3).map(software_interrupt_register).collect::<Vec<_>>(), [0, 4, 8]);
    }
}
