//! The translation hardware and its oracle: what the hardware must and may do, what the oracle must and must not say.

mod aarch64;
mod bed;
mod conformance;
mod freed;
mod kernel;
mod model;
mod mutations;
mod oracle;
mod quarantine;
mod riscv64;
mod table;
mod under_way;
mod x86;
