//! The scenarios of `shootdown-sim`, each with its bug.

extern crate shootdown_sim_patched as shootdown_sim;

#[path = "../../shootdown-sim/tests/regressions/main.rs"]
mod scenarios;
