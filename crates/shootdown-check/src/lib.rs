//! Exhaustive exploration of the shootdown engine on a small machine without time.
//!
//! The engine under test is the same crate that kernels embed. This crate supplies its atomics
//! ([`Facade`](shootdown::Facade)) and its hooks ([`Kernel`](shootdown::Kernel)) on a machine of two to four CPUs. The
//! exploration covers every order of events: which CPU runs, when a store becomes visible, which older value a load
//! returns (as in x86, Arm or RISC-V: [`Architecture`]), when an interrupt arrives, when an invalidation takes effect,
//! and what a processor caches speculatively.
//!
//! # What is explored
//! A [`Scenario`] is a design, an initial history, and a script for each CPU ([`scenario`] has the catalogue).
//! [`explore`] visits every state that any order of steps leads to, each once, and stops at the first that breaks a
//! rule: C1 to C5, see [`Violation`]. Larger races run at random, by [`Priorities`]. A [`Counterexample`] is a list of
//! steps; [`replay`] describes each step.
//!
//! # Why it is small enough
//! - **Caches cost no choices.** A CPU holds everything that it *may* have cached (`tlb.rs`): one set instead of one
//!   run for each time of a fill.
//! - **Nothing is repeated.** Where more than one step is possible, a snapshot with all stacks is kept and restored
//!   (`snapshot.rs`).
//! - **Only dependent operations are interleaved.** A word that only one CPU accesses, or that no CPU writes, needs no
//!   interleaving. The runs show which CPUs access which words, and the exploration restarts when it learns more
//!   (`memory.rs`).
//! - **A store becomes visible late.** Just before another CPU's operation on its word, or at a fence of its own CPU;
//!   any time in between is equivalent.
//! - **A CPU's position follows from its history.** The values that it has read determine its stack and registers. A
//!   handler returns nothing, a condition that does not hold leaves nothing, and a script keeps nothing from its
//!   earlier actions. At these points the history is dropped, and runs that differ only in the past merge.
//!
//! # What it does not cover
//! Load buffering on Arm and RISC-V, and the limits stated in `views.rs` and `barriers.rs`. TLBs are unbounded, pages
//! are 4 KiB, the kernel has one page, and there is no time (no stuck reports, C7; CPU 0 considers promotion at every
//! opportunity). Tasks do not migrate. States are identified by 64-bit hashes: two different ones among *n* collide
//! with a probability of about *n*²/2⁶⁵, one in a million for six million states, one in sixteen thousand for fifty
//! million.

/// The program in the README of the repository, compiled and run as a documentation test. It is in this crate because
/// published packages do not contain that file.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

mod architecture;
mod barriers;
pub mod configuration;
mod counterexample;
mod explore;
mod kernel;
pub mod litmus;
mod machine;
mod memory;
mod operations;
pub mod ordering_sites;
mod play;
mod random;
mod report;
pub mod scenario;
mod sharing;
mod snapshot;
mod stage;
mod tlb;
mod views;
mod violation;
mod word;
mod world;

pub use architecture::Architecture;
pub use counterexample::{Recorded, story};
pub use explore::{Bounds, explore, replay};
pub use machine::{Line, PAGES, SPACES, Step};
pub use play::Play;
pub use random::{Priorities, at_random, sample};
pub use report::{Counterexample, Report};
pub use stage::{Scenario, Stage};
pub use violation::Violation;
pub use word::MAX_CPUS;
