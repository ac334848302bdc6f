//! Exhaustive exploration of the shootdown engine on a small machine without time.
//!
//! The engine under test is the very crate that kernels embed: this one supplies its atomics
//! ([`Facade`](shootdown::Facade)) and its hooks ([`Kernel`](shootdown::Kernel)) on a machine of two to four CPUs, in
//! which everything that could happen in another order *does*, in one run or another: which CPU goes on, when a store
//! becomes visible, what a load still finds of the past (as x86, Arm or RISC-V have it: [`Architecture`]), when an
//! interrupt arrives, when an invalidation takes effect, what a processor has cached on its own accord.
//!
//! # What is explored
//! A [`Scenario`] is a design, what has happened before, and a script for each CPU ([`scenario`] has the catalogue).
//! [`explore`] visits every state that any order of steps leads to, each once, and stops at the first that breaks a
//! rule:
//! C1 to C5 as [`Violation`] tells. What is too large for that is tried at random, by [`Priorities`]. A
//! [`Counterexample`] is a list of steps; [`replay`] describes each step.
//!
//! # Why it is small enough
//! - **Caches cost no choices.** A CPU holds everything that it *may* have cached (`tlb.rs`): one set instead of one
//!   run for each moment of a fill.
//! - **Nothing is done twice.** Where more than one step is possible the moment is kept, stacks and all, and gone back
//!   to (`snapshot.rs`).
//! - **Only what matters is interleaved.** A word that one CPU alone touches, or that nobody writes, needs no turn of
//!   its own; who touches what is learnt from the runs, and the exploration starts over when it learns more
//!   (`memory.rs`).
//! - **A store becomes visible late.** Just before somebody else's operation on its word, or at a fence of its own CPU;
//!   anything in between is the same.
//! - **A CPU is where its history has led it.** The values that it has read stand for its stack and registers. A
//!   handler returns nothing, a condition that does not hold leaves nothing, and a script keeps nothing from what it
//!   has done: there the history is forgotten, and runs that differ in the past only meet.
//!
//! # What it does not see
//! Load buffering on Arm and RISC-V, and what else `views.rs` and `barriers.rs` say. TLBs are unbounded, pages are 4
//! KiB, the kernel has one page, time does not exist (no stuck reports, C7; CPU 0 considers promotion at every chance).
//! Tasks do not migrate. States are told apart by 64-bit hashes: two different ones among *n* are taken for the same
//! with a probability of about *n*²/2⁶⁵, one in a million for six million states, one in sixteen thousand for fifty
//! million.

/// The program in the README of the repository, compiled and run as a documentation test: here, because the packages
/// that are published do not hold that file.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

mod architecture;
mod barriers;
mod counterexample;
mod explore;
mod kernel;
pub mod litmus;
mod machine;
mod memory;
mod operations;
pub mod orders;
mod play;
mod random;
mod report;
pub mod scenario;
mod sharing;
mod snapshot;
mod stage;
pub mod subject;
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
