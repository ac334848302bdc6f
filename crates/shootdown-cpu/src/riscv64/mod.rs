//! RISC-V in supervisor mode: ASIDs in satp, SFENCE.VMA and Svinval, interrupts and remote fences of the firmware
//! (SBI).

mod barriers;
mod controller;
mod instructions;
mod interrupts;
mod processor;
pub mod sbi;
#[cfg(test)]
mod tests;

pub use barriers::BareMetal;
pub use controller::{Controller, ControllerId};
pub use interrupts::{interrupts_are_off, interrupts_off, interrupts_restore, relax};
pub use processor::Processor;
