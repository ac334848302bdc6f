//! A simulated many-CPU machine.
pub mod hw;
