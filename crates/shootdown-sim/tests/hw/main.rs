//! The translation hardware and its oracle: required and allowed behaviour of the hardware, required and forbidden
//! reports of the oracle.

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
