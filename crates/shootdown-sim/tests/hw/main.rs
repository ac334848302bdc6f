//! The translation hardware and its oracle: required and allowed behaviour of the hardware, required and forbidden
//! reports of the oracle.

mod aarch64;
mod bed;
mod conformance;
mod freed;
mod in_flight;
mod kernel;
mod model;
mod mutations;
mod oracle;
mod quarantine;
mod riscv64;
mod table;
mod x86;
