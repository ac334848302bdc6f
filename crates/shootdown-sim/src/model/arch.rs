//! Instruction sets of machine models.

use super::costs::{Aarch64Model, Riscv64Model};

/// The instruction set of a machine, with the settings that only this kind of machine has.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Arch {
    /// x86-64.
    X86_64,
    /// AArch64, table `[aarch64]`.
    Aarch64(Aarch64Model),
    /// RISC-V with 64 bits, table `[riscv64]`.
    Riscv64(Riscv64Model),
}

impl Arch {
    pub(super) const NAMES: [&'static str; 3] = ["x86_64", "aarch64", "riscv64"];

    /// As model files call it.
    pub const fn name(&self) -> &'static str {
        match self {
            Arch::X86_64 => Self::NAMES[0],
            Arch::Aarch64(_) => Self::NAMES[1],
            Arch::Riscv64(_) => Self::NAMES[2],
        }
    }

    /// Widest tag, bits.
    pub(super) const fn tag_bits(&self) -> u32 {
        match self {
            Arch::X86_64 => 12,
            Arch::Aarch64(_) | Arch::Riscv64(_) => 16,
        }
    }
}
