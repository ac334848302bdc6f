//! The processor: all code that names an instruction, a register or a device. One folder for each instruction set, with
//! the same file names; other names are private to a folder.
//!
//! | module | items that the rest of the kernel uses |
//! | --- | --- |
//! | `boot` | the first instructions; the loader's information; the kernel's root; starting another CPU |
//! | `console` | output of bytes, and exit from the emulator |
//! | `controller` | the CPUs; interrupts to them |
//! | `cpu` | the instruction set's part of each [`Cpu`](crate::cpu::Cpu); the current CPU |
//! | `features` | the processor's features; broadcasts, and whether they are emulated |
//! | `format` | entries of page tables |
//! | `interrupts` | the interrupt mask, sleeping |
//! | `invalidate` | invalidations, executed by `shootdown-cpu`; names of the instructions, for their counts |
//! | `layout` | the layout of the address space |
//! | `marks` | the beginning and the end of what a counter outside the machine counts |
//! | `probe` | accesses that may fail, and where they do |
//! | `timer` | the counter, and the one-shot timer |
//! | `traps` | entry points; numbers of interrupts |
//! | `user` | entering and leaving user code; its registers |

#[cfg(target_arch = "x86_64")]
mod x86_64;
#[cfg(target_arch = "x86_64")]
pub use self::x86_64::*;

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "aarch64")]
pub use aarch64::*;

#[cfg(target_arch = "riscv64")]
mod riscv64;
#[cfg(target_arch = "riscv64")]
pub use riscv64::*;

#[cfg(not(target_arch = "x86_64"))]
mod device_tree;
#[cfg(not(target_arch = "x86_64"))]
mod generic_calls;
#[cfg(not(target_arch = "x86_64"))]
mod generic_features;
#[cfg(not(target_arch = "x86_64"))]
mod generic_interrupts;
