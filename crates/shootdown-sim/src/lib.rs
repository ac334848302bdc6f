//! A simulated many-CPU machine that runs the engine under an oracle.
//!
//! Bottom up, each module names only those before it:
//!
//! - `hw`: translation hardware and the oracle; `model`: costs, from files;
//! - `machine`: virtual time, coroutines, cache lines, interrupts, and a record of what each CPU does;
//! - `os`: a kernel that implements the engine's hooks; `design`: its settings by name;
//! - `workload`: the programs; `spec`: the specification of a run; `result`: its results;
//! - `run`: one run, put together by `setup` and `threads`, measured in a `window`;
//! - `replay`: a recorded program as the workload; `timeline`: what each CPU did around a shootdown.

mod design;
pub mod hw;
pub mod machine;
pub mod model;
pub mod numeral;
pub mod os;
mod precision;
pub mod replay;
mod result;
pub mod run;
mod setup;
mod shares;
mod spec;
mod threads;
pub mod timeline;
mod window;
mod workload;
