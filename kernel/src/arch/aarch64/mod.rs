//! AArch64 on QEMU's virt board, or one like it: a device tree, a GICv3, a PL011, PSCI. EL1, four levels of tables of
//! 4 KiB, 48 bits of address. User addresses are walked from TTBR0, the kernel's from TTBR1, so roots are for user
//! addresses only. CnP is off: with per-CPU tags, an ASID has a different meaning on each CPU.

pub mod boot;
pub mod console;
pub mod controller;
pub mod cpu;
pub mod features;
pub mod format;
pub mod interrupts;
pub mod invalidate;
pub mod layout;
pub mod marks;
pub mod probe;
mod psci;
pub mod timer;
pub mod traps;
pub mod user;
