//! Recordings of a real kernel's TLB events.
//!
//! * [`text`] reads the output of kernels and their tools: the trace file of tracefs, `perf script`, `trace-cmd
//!   report`.
//! * [`summary`] counts a recording's content, [`Coverage`] says what it can tell and what is missing.
//! * [`program`] turns its events into the steps of its CPUs, and withholds the kernel's reactions.
//! * [`columns`] keeps a recording as one Parquet file, with its metadata inside: readable by pandas and DuckDB.
//!
//! Both return one [`Event`] after another: memory does not grow with the length of a recording.
#![forbid(unsafe_code)]

mod cause;
#[cfg(feature = "columns")]
pub mod columns;
mod coverage;
mod event;
mod metadata;
pub mod program;
pub mod summary;
pub mod text;
pub mod victims;

pub use cause::Cause;
pub use coverage::{Coverage, EVENTS, EventCount, Processes, Rebuilt, Resolver, Survey};
pub use event::{Call, Event, Function, Reason, What};
pub use metadata::{Damage, FirstDamage, Loss, Metadata};
pub use summary::Summary;
