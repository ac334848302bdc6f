//! Encoders.
