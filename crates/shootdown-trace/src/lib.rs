//! Recordings of what a real kernel did with its translation caches.
//!
//! * [`text`] reads what kernels and their tools print: the trace file of tracefs, `perf script`, `trace-cmd report`.
//! * [`summary`] says what is in one, [`Coverage`] what it can tell and what not.
//! * [`program`] turns its events into what its CPUs did, and withholds what the kernel did about it.
//! * [`columns`] keeps a recording as one Parquet file, with its metadata inside: readable by pandas and DuckDB.
//!
//! Both hand out one [`Event`] after another: memory does not grow with the length of a recording.
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
