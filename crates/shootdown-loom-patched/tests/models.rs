//! The models of `shootdown-loom`, each with its known bugs.

extern crate shootdown_loom_patched as shootdown_loom;

#[path = "../../shootdown-loom/tests/models.rs"]
mod models;
