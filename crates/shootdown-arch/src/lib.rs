//! Operands of translation-invalidation instructions, as pure functions.
//!
//! Nothing here executes an instruction. Each module converts an operation into register values and back, so every bit
//! can be tested on any host. Kernels put the values into registers; simulators and #UD handlers decode them. The types
//! exclude operands that a processor would refuse, or that would flush too little.
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
