//! The memory model of the machine: x86, Arm or RISC-V.
//!
//! Owns the names, and which one a preset is meant for. Their behaviour is in `views.rs` and `barriers.rs`.

use std::fmt;

/// The memory model of an instruction set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Architecture {
    /// Total store order: stores wait in order, everything else happens in order.
    #[default]
    X86,
    /// Armv8-A: other-multi-copy atomic; loads and stores are reordered unless ordered by something; walkers see a
    /// table write after a DSB; local invalidations are in progress until a DSB.
    Arm,
    /// RISC-V (RVWMO): the same order of loads and stores; the walker of a hart sees what the hart knew at its
    /// SFENCE.VMA.
    RiscV,
}

impl Architecture {
    /// All of them.
    pub const ALL: [Architecture; 3] = [Architecture::X86, Architecture::Arm, Architecture::RiscV];

    /// Its name on the command line and in files.
    pub const fn name(self) -> &'static str {
        match self {
            Architecture::X86 => "x86",
            Architecture::Arm => "arm",
            Architecture::RiscV => "riscv",
        }
    }

    /// The one of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|architecture| architecture.name() == name)
    }

    /// Whether loads may return replaced values, and stores may become visible out of order.
    pub(crate) const fn is_weak(self) -> bool {
        !matches!(self, Architecture::X86)
    }
}

impl fmt::Display for Architecture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
