//! The simulation around `shootdown-patched`, with the known bugs of a kernel around the engine: see
//! `shootdown-known-bugs`.
#![allow(warnings, clippy::all)]

include!(concat!(env!("OUT_DIR"), "/src/lib.rs"));
