//! This machine's own Linux kernel, observed and measured.
//!
//! * [`tracefs`] records what the kernel does with translations, in a trace instance of its own.
//! * [`launch`] starts the command that is recorded, known to the trace before its first instruction.
//!
//! * [`work`] measures small workloads on it; [`cpus`] says where they may run, [`interrupts`] what they caused,
//!   [`load`] what else runs meanwhile.
//!
//! On other systems the crate is empty.
#![cfg(target_os = "linux")]

pub mod cpus;
pub mod interrupts;
pub mod launch;
pub mod load;
pub mod tracefs;
pub mod work;
