//! System-wide tags: the pool, roll-over, promotion of a space to a tag of its own, and demotion.

pub(crate) mod demotion;
pub(crate) mod pool;
pub(crate) mod promotion;
pub(crate) mod rollover;
