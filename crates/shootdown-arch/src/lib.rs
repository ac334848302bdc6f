//! Operands of translation-invalidation instructions, as pure functions.
//!
//! Nothing here executes an instruction: each module turns an intention into register values and back, so that every
//! bit can be tested on any host. Kernels put the values into registers; simulators and #UD handlers decode them.
//! Types are chosen so that operands a processor would refuse, or that would flush too little, cannot be built.
//!
//! One module per instruction set: [`x86_64`], [`aarch64`], [`riscv64`].
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

/// The example of the README, compiled and run as a documentation test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub mod aarch64;
pub mod riscv64;
pub mod x86_64;
