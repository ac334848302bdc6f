//! Costs of requests, and the choice between ways that are all correct.
//!
//! Without the feature `adaptive` no policy uses this, so the compiler removes it. The words stay in the engine and in
//! each space.
#![cfg_attr(not(feature = "adaptive"), allow(dead_code))]

#[cfg(feature = "adaptive")]
pub(crate) mod calibration;
pub(crate) mod costs;
pub(crate) mod sampling;
pub(crate) mod tag_policy;
