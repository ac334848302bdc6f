//! The interrupt command register of the local APIC: destination and command.
//!
//! The low word is the same in both modes; the destination is an APIC id in \[31:24\] of a second register (xAPIC), or
//! in \[63:32\] of the one model-specific register (x2APIC). Source: Intel SDM vol. 3, "Interrupt Command Register".

/// The model-specific register in x2APIC mode.
pub const MSR: u32 = 0x830;

/// Bit of the low word: the command is still being sent (xAPIC only).
pub const PENDING: u32 = 1 << 12;

/// A low word: the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Command(u32);

impl Command {
    /// An NMI.
    pub const NMI: Command = Command(0b100 << 8 | ASSERT);
    /// A reset.
    pub const INIT: Command = Command(0b101 << 8 | ASSERT);

    /// The interrupt `vector`, which must be one that the APIC accepts: 16 or above.
    pub const fn interrupt(vector: u8) -> Option<Command> {
        if vector >= 16 {
            Some(Command(vector as u32 | ASSERT))
        } else {
            None
        }
    }

    /// Starts execution at `page`, below 1 MiB, in real mode.
    pub const fn startup(page: u64) -> Option<Command> {
        if page & 0xFFF == 0 && page < 1 << 20 {
            Some(Command(0b110 << 8 | ASSERT | (page >> 12) as u32))
        } else {
            None
        }
    }

    /// The word.
    pub const fn low(self) -> u32 {
        self.0
    }

    /// The second word in xAPIC mode; `None` for an id that needs x2APIC mode, and for the broadcast id (FFh).
    pub const fn high(apic_id: u32) -> Option<u32> {
        if apic_id < 0xFF { Some(apic_id << 24) } else { None }
    }

    /// The whole register in x2APIC mode; `None` for the broadcast id.
    pub const fn x2apic(self, apic_id: u32) -> Option<u64> {
        if apic_id < u32::MAX {
            Some((apic_id as u64) << 32 | self.0 as u64)
        } else {
            None
        }
    }
}

/// Level asserted: set for every command except the de-assertion of INIT, which no processor of this architecture
/// needs.
const ASSERT: u32 = 1 << 14;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_has_its_delivery_mode() {
        assert_eq!(Command::interrupt(0xF0).map(Command::low), Some(0x40F0));
        assert_eq!((Command::NMI.low(), Command::INIT.low()), (0x4400, 0x4500));
        assert_eq!(Command::startup(0x8000).map(Command::low), Some(0x4608));
    }

    #[test]
    fn invalid_or_broadcast_icr_commands_are_refused() {
        assert_eq!(Command::interrupt(15), None);
        assert_eq!((Command::startup(0x8001), Command::startup(1 << 20)), (None, None));
        assert_eq!((Command::high(0xFE), Command::high(0xFF)), (Some(0xFE00_0000), None));
        assert_eq!(Command::NMI.x2apic(u32::MAX), None);
        assert_eq!(Command::NMI.x2apic(0x1_0000), Some(0x0001_0000_0000_4400));
    }
}
