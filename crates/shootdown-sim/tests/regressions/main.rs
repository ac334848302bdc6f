//! Bugs that shipped elsewhere, as races on the simulated machine. Each scenario runs over many seeds: on the engine no
//! rule is broken; with the bug at least one seed shows its effect (`cargo test -p shootdown-sim-patched`, which
//! compiles these scenarios against the copy of the engine that has the bugs). Numbers are those of the list of
//! regressions in the documentation.

mod callers;
mod cpus;
mod deferred;
mod demotion;
mod departure;
mod early;
mod forks;
mod found_here;
mod interrupts;
mod isa;
mod lazy;
mod preemption;
mod ranges;
mod requests;
mod roles;
mod scene;
mod secondary;
mod switching;
mod tags;
mod virtual_cpus;
mod walks;
