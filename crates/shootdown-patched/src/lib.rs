//! The engine with every known bug in it, none selected: see `shootdown-known-bugs`. Built from `crates/shootdown/src`.
#![no_std]
#![allow(warnings, clippy::all)]

include!(concat!(env!("OUT_DIR"), "/src/lib.rs"));
