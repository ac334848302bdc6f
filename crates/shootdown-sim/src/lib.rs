//! A simulated many-CPU machine that runs the engine under an oracle.  `machine` is virtual time, coroutines, cache
//! lines and interrupts; `hw` the translation hardware and the oracle; `model` the costs, from files; `os` a kernel
//! that implements the engine's hooks; `workload` the programs; `run` one run, put together by `setup` and measured in
//! a `window`; `timeline` what each CPU did around a shootdown.

mod design;
pub mod hw;
pub mod machine;
pub mod model;
pub mod numeral;
pub mod os;
mod precision;
pub mod run;
mod setup;
mod shares;
mod threads;
pub mod timeline;
mod window;
mod workload;

pub use workload::trace as replay;
