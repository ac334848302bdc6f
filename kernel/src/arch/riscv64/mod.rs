//! RISC-V in supervisor mode on QEMU's virt board, or one like it: a device tree, OpenSBI, a 16550. Sv39.

pub mod boot;
pub mod console;
pub mod controller;
pub mod cpu;
pub mod features;
mod fences;
pub mod format;
pub mod interrupts;
pub mod invalidate;
pub mod layout;
pub mod marks;
pub mod probe;
pub mod timer;
pub mod traps;
pub mod user;
