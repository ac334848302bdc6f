//! The processor: everything that names an instruction, a register or a device. One folder for each instruction set,
//! with the same file names; what is not among these names is a folder's own.
//!
//! | module | what the rest of the kernel uses of it |
//! | --- | --- |
//! | `boot` | the first instructions; the loader's word; the kernel's root; starting another CPU |
//! | `console` | bytes out, and the way out of the emulator |
//! | `controller` | which CPUs there are; interrupts to them |
//! | `cpu` | what the instruction set needs in each [`Cpu`](crate::cpu::Cpu); which of them this is |
//! | `features` | what the processor has; broadcasts, and whether they are emulated |
//! | `format` | entries of page tables |
//! | `interrupts` | the interrupt mask, sleeping |
//! | `invalidate` | local invalidations and root loads: `shootdown-cpu` executes them, they are counted here |
//! | `layout` | where things are in the address space |
//! | `probe` | accesses that may fail |
//! | `tally` | how often each instruction was executed |
//! | `timer` | the counter, and the one-shot timer |
//! | `traps` | entry points; numbers of interrupts |
//! | `user` | the way to user code and back; its registers |

#[cfg(target_arch = "x86_64")]
mod x86_64;
#[cfg(target_arch = "x86_64")]
pub use self::x86_64::*;
