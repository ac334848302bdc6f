//! A simulated many-CPU machine.
pub mod model;
pub mod run;
