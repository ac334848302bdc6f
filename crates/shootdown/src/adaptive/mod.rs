//! What requests cost, and the choices between ways that are each right.

pub(crate) mod calibration;
pub(crate) mod costs;
pub(crate) mod sampling;
pub(crate) mod tag_policy;
