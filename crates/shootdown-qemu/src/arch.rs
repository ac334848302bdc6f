//! The instruction sets of the kernel: QEMU's program, its package, the board, the Rust target.

/// An instruction set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Arch {
    /// x86-64, on QEMU's PC.
    X86_64,
    /// AArch64, on QEMU's virt board with a GICv3.
    Aarch64,
    /// RISC-V of 64 bits, on QEMU's virt board with OpenSBI.
    Riscv64,
}

impl Arch {
    /// All of them.
    pub const ALL: [Arch; 3] = [Arch::X86_64, Arch::Aarch64, Arch::Riscv64];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Arch::X86_64 => "x86_64",
            Arch::Aarch64 => "aarch64",
            Arch::Riscv64 => "riscv64",
        }
    }

    /// The instruction set of that name.
    ///
    /// # Errors
    /// One line with the known names.
    pub fn named(name: &str) -> Result<Arch, String> {
        let found = Arch::ALL.into_iter().find(|arch| arch.name() == name);
        found.ok_or_else(|| {
            let names = Arch::ALL.map(Arch::name).join(", ");
            format!("no instruction set {name:?}: there are {names}")
        })
    }

    /// QEMU's program.
    pub fn binary(self) -> &'static str {
        match self {
            Arch::X86_64 => "qemu-system-x86_64",
            Arch::Aarch64 => "qemu-system-aarch64",
            Arch::Riscv64 => "qemu-system-riscv64",
        }
    }

    /// Its Debian and Ubuntu package.
    pub fn package(self) -> &'static str {
        match self {
            Arch::X86_64 => "qemu-system-x86",
            Arch::Aarch64 => "qemu-system-arm",
            Arch::Riscv64 => "qemu-system-misc",
        }
    }

    /// The command for its installation.
    pub fn install(self) -> String {
        format!("apt-get install -y --no-install-recommends {}", self.package())
    }

    /// The Rust target of the kernel. Without floating point on Arm and RISC-V, so user code's registers there are
    /// preserved.
    pub fn target(self) -> &'static str {
        match self {
            Arch::X86_64 => "x86_64-unknown-none",
            Arch::Aarch64 => "aarch64-unknown-none-softfloat",
            Arch::Riscv64 => "riscv64imac-unknown-none-elf",
        }
    }

    /// The processor that QEMU translates: the one with all features.
    pub(crate) fn translated(self) -> &'static str {
        match self {
            Arch::X86_64 | Arch::Aarch64 => "max",
            Arch::Riscv64 => "rv64",
        }
    }

    /// Arguments for the board, and for an exit with a status.
    pub(crate) fn board(self) -> &'static [&'static str] {
        match self {
            Arch::X86_64 => &["-device", "isa-debug-exit,iobase=0xf4,iosize=4"],
            Arch::Aarch64 => &["-semihosting-config", "enable=on,target=native"],
            Arch::Riscv64 => &[],
        }
    }

    /// The name of the board; `None` for QEMU's own choice.
    pub(crate) fn machine(self) -> Option<&'static str> {
        match self {
            Arch::X86_64 => None,
            Arch::Aarch64 => Some("virt,gic-version=3"),
            Arch::Riscv64 => Some("virt"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_arch_is_refused_with_all_names() {
        for arch in Arch::ALL {
            assert_eq!(Arch::named(arch.name()), Ok(arch));
        }
        let error = Arch::named("arm").expect_err("not a name");
        assert!(error.contains("aarch64") && error.contains("\"arm\""), "{error}");
    }
}
