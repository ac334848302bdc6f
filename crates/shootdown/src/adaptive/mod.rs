//! Costs of requests, and the choice between ways that are all correct.
//!
//! ```text
//!   costs.rs     the estimates, and when a broadcast is cheaper   tag_costs.rs    what a space and a CPU record
//!   choice.rs    interrupts or broadcast, for each request        tag_policy.rs   whether a space should have a tag
//!   sampling.rs  timed requests                                   calibration.rs  measures at start
//! ```
//!
//! Without the feature `adaptive` no policy uses this, so the compiler removes it. The words stay in the engine and in
//! each space.
#![cfg_attr(not(feature = "adaptive"), allow(dead_code))]

#[cfg(feature = "adaptive")]
pub(crate) mod calibration;
pub(crate) mod choice;
pub(crate) mod costs;
pub(crate) mod sampling;
pub(crate) mod tag_costs;
pub(crate) mod tag_policy;
