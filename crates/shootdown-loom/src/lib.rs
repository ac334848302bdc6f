//! The engine under [loom](https://docs.rs/loom): small cases in every interleaving and with every reordering that C11
//! allows.
//!
//! What runs is the engine's own source, on a facade whose words and fences are loom's (`facade.rs`), in a machine of
//! two or three CPUs that are loom threads (`world.rs`). Frames and table pages are cells that loom watches: whoever
//! frees one while a use through a translation is not ordered before it is reported, whether or not it does harm in
//! that run (C1 to C3). Entries remember whose they are, so that a tag in two hands shows (C4); a CPU that waits for
//! ever exceeds loom's bound (C5).
//!
//! `cargo xtask test loom` runs the models (`tests/models.rs`). Each has mutants, a known bug of the engine
//! (`shootdown-loom-patched`) or a weakened facade, which it must find.
//!
//! What this cannot see: loads that take effect late (loom buffers stores only), more CPUs, longer programs, and
//! everything that a model's bound on preemptions leaves out, where one is set.
#![cfg(feature = "models")]

mod execution;
mod explore;
mod facade;
mod model;
mod world;

pub use facade::{ACQUIRE, FENCES, Loom, NOTHING, RELEASE, RMW_FENCES};
pub use model::Model;
pub use world::{Cpu, World};
