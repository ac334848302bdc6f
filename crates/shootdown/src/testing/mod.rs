//! Environments for unit tests.

pub(crate) mod interleave;
pub(crate) mod mock_kernel;
