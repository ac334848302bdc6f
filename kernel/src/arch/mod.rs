//! The processor: everything that names an instruction, a register or a device of x86-64.

pub mod acpi;
pub mod apic;
pub mod boot;
pub mod cpu;
pub mod descriptors;
pub mod features;
pub mod invalidate;
pub mod lock;
pub mod probe;
pub mod smp;
pub mod tally;
pub mod time;
pub mod traps;

pub use cpu::cpu;
pub use time::relax;
