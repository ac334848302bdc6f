//! The engine for kernels written in C: the calls of [`shootdown::Engine`] with the hooks as pointers to functions.
//!
//! `include/shootdown.h` is generated from these files, comments included, so they are written for a reader of C. What a
//! call guarantees is said in full where it is implemented: [`shootdown`] and its `hooks`.
//!
//! A hook costs an indirect call here. A kernel that cannot afford that writes the six required ones in Rust.
#![cfg_attr(not(feature = "std"), no_std)]
#![allow(non_camel_case_types)] // the names of the header

// The facade is the one whose full barriers order a page-table walker and stores of its own, as they do on x86, and
// threads of a host anywhere. On Arm and RISC-V they would have to be those of `shootdown_arch`.
#[cfg(all(not(feature = "std"), not(target_arch = "x86_64")))]
compile_error!(
    "the engine behind the header is for kernels on x86-64: on others use `shootdown` and `shootdown-arch` from Rust"
);

mod batch;
mod cpu;
mod engine;
mod flush;
mod gather;
mod hooks;
mod kernel;
mod later;
mod memory;
#[cfg(not(feature = "std"))]
mod panic;
mod range;
mod settings;
mod space;
mod walk;

pub use batch::*;
pub use cpu::*;
pub use engine::*;
pub use flush::*;
pub use gather::*;
pub use hooks::*;
pub use later::*;
pub use range::*;
pub use settings::*;
pub use space::*;
pub use walk::*;
