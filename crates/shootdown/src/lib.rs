//! TLB coherence as a library.
#![cfg_attr(not(test), no_std)]

pub mod cpuset;
pub mod facade;
#[cfg(feature = "faults")]
pub mod fault;
pub mod hooks;
pub mod range;
