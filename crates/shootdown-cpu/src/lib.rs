//! The instructions that a kernel needs for the engine of Shootdown, under the same names on each instruction set.
//!
//! `shootdown-arch` encodes operands and executes nothing. This crate executes. A kernel's hooks become:
//!
//! ```ignore
//! struct Hooks { processor: Processor, controller: Controller }
//! // SAFETY: `this_cpu` is right, nothing migrates, and all roots map the kernel alike.
//! unsafe impl Kernel<1> for Hooks {
//!     shootdown_cpu::hooks!(processor);
//!     const PREEMPTIBLE: bool = false; // or true, with `pin` and `unpin`
//!     fn cpu(&self) -> CpuId { this_cpu() }
//!     fn send_ipi(&self, targets: &CpuMask<1>) { self.controller.send(targets.iter().map(controller_id), IPI) }
//! }
//! ```
//!
//! The kernel supplies its CPU number, the interrupt controller's id for each CPU, pinning, the clock, and the handler
//! that acknowledges the interrupt and calls `Engine::on_ipi`. `examples/minimal-*` of the repository are complete
//! kernels for two CPUs.
//!
//! | name | x86-64 | AArch64 | RISC-V |
//! | --- | --- | --- | --- |
//! | `BareMetal` | locked instructions | DMB; DSB for walks and the GIC | FENCE RW,RW; FENCE IORW,IORW for IPIs |
//! | `Processor::invalidate` | INVLPG, INVPCID, CR4.PGE | TLBI | SFENCE.VMA, or SINVAL.VMA |
//! | `Processor::local_sync` | nothing | DSB NSH; ISB | SFENCE.INVAL.IR with Svinval |
//! | `Processor::load_root` | MOV to CR3 | TTBR0_EL1; an empty root first, to drop entries | satp; SFENCE.VMA |
//! | `Processor::broadcast` | INVLPGB | TLBI IS, range forms | SBI RFENCE, which may refuse: [`FlushByIpi`] |
//! | `Processor::broadcast_sync` | TLBSYNC | DSB ISH; ISB | nothing |
//! | `Controller::send` | xAPIC, x2APIC | GICv3 | SBI IPI, CLINT |
//!
//! # Targets
//! Instructions are executed if `target_os = "none"`, and the names of that instruction set are at the root of the
//! crate. Elsewhere only the modules exist, so that documentation and tests can be built on any host. There the crate's
//! own tests record instructions; other code panics on them.
#![cfg_attr(not(test), no_std)]

#[macro_use]
mod instructions;
mod hooks;
mod refused;

pub use refused::{FlushByIpi, Refused};
pub use shootdown;

#[cfg(any(target_arch = "aarch64", not(target_os = "none")))]
pub mod aarch64;

#[cfg(any(target_arch = "riscv64", not(target_os = "none")))]
pub mod riscv64;

#[cfg(any(target_arch = "x86_64", not(target_os = "none")))]
pub mod x86_64;

#[cfg(all(target_arch = "aarch64", target_os = "none"))]
pub use aarch64::*;
#[cfg(all(target_arch = "riscv64", target_os = "none"))]
pub use riscv64::*;
#[cfg(all(target_arch = "x86_64", target_os = "none"))]
pub use x86_64::*;
