//! The engine under [loom](https://docs.rs/loom): small cases in every interleaving and with every reordering that C11
//! allows.
//!
//! Runs the engine's own source, on a facade whose words and fences are loom's (`facade.rs`), in a machine of two or
//! three CPUs that are loom threads (`world.rs`). Frames and page-table pages are cells that loom watches. It reports a
//! free that is not ordered after a use through a translation, whether or not it does harm in that run (C1 to C3).
//! Entries record their owner, so a tag with two owners is detected (C4). A CPU that waits forever exceeds loom's bound
//! (C5).
//!
//! `cargo xtask test loom` runs the models (`tests/models.rs`). Each has mutants that it must detect: a known bug of
//! the engine (`shootdown-loom-patched`) or a weakened facade.
//!
//! Not covered: loads that take effect late (loom buffers only stores), more CPUs, longer programs, and everything that
//! a model's bound on preemptions excludes.
#![cfg(feature = "models")]

mod execution;
mod explore;
mod facade;
mod model;
mod world;

pub use facade::{ACQUIRE, FENCES, Loom, NOTHING, RELEASE, RMW_FENCES};
pub use model::Model;
pub use world::{Cpu, World};
