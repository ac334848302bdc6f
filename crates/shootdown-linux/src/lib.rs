//! This machine's own Linux kernel, observed and measured.
//!
//! * [`tracefs`] records the kernel's TLB events, in its own trace instance.
//! * [`launch`] starts the recorded command, which is traced from its first instruction.
//! * [`work`] measures small workloads; [`cpus`] lists the CPUs for them, [`interrupts`] counts their interrupts,
//!   [`load`] measures the other load.
//!
//! On other systems the crate is empty.
#![cfg(target_os = "linux")]

pub mod cpus;
pub mod interrupts;
pub mod launch;
pub mod load;
pub mod tracefs;
pub mod work;
