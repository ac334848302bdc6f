//! The engine for kernels written in C: the calls of [`shootdown::Engine`] with the hooks as pointers to functions.
//!
//! `include/shootdown.h` is generated from these files, comments included, so they are written for a reader of C. The
//! full guarantees of a call are documented where it is implemented: [`shootdown`] and its `hooks`.
//!
//! # Example
//! ```c
//! struct shootdown_space *space = shootdown_space_init(engine, memory_of_space, root);
//! shootdown_switch_to(engine, space);         /* the scheduler, on each CPU that runs it */
//! *entry = 0;                                 /* a translation is withdrawn */
//! shootdown_flush(engine, space, (struct shootdown_range){address, address + 4096, 12, false});
//! free_frame(frame);                          /* no CPU uses it any more */
//! shootdown_retire(engine, space);            /* the process has ended; its tables may be freed */
//! ```
//! `README.md` has the start, `tests/machine.c` every call, and `examples/minimal-c` is a kernel.
//!
//! A hook costs a test and an indirect call, or, where the build names it in SHOOTDOWN_HOOKS, a direct call.
#![cfg_attr(not(feature = "std"), no_std)]
#![allow(non_camel_case_types)] // the names of the header

mod batch;
mod cpu;
mod cpu_words;
mod engine;
mod event;
mod fixed;
mod flush;
mod gather;
mod hook_calls;
mod hooks;
#[cfg_attr(all(feature = "instructions", target_os = "none"), path = "executed.rs")]
#[cfg_attr(not(all(feature = "instructions", target_os = "none")), path = "hooked.rs")]
mod instructions;
mod kernel;
mod later;
mod memory;
#[cfg(not(feature = "std"))]
mod panic;
mod range;
mod settings;
mod sizes;
mod space;
mod walk;

pub use batch::*;
pub use cpu::*;
pub use cpu_words::*;
pub use engine::*;
pub use flush::*;
pub use gather::*;
pub use hooks::*;
pub use later::*;
pub use range::*;
pub use settings::*;
pub use sizes::*;
pub use space::*;
pub use walk::*;
