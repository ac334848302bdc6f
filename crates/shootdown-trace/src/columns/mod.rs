//! A recording as one Parquet file: a row an event, the metadata as JSON under the key [`METADATA_KEY`].
//!
//! | column | type | of which events |
//! | --- | --- | --- |
//! | `time_ns`, `cpu`, `task`, `name`, `event` | required | all; `event` is one of [`EVENTS`] |
//! | `process` | int32 | all, where the recording has it |
//! | `from_task`, `to_task` | int32 | `switch`: previous and next task; `fork`, `new_task`: `to_task` is the child |
//! | `text` | string | `switch`: state of the previous task; `interrupts`: list of CPUs |
//! | `pages`, `reason` | int64, int32 | `flush` |
//! | `target` | int32 | `queued`, `interrupt` |
//! | `call` | boolean | `queued`, `interrupt`, `interrupts`: see below |
//! | `address`, `length`, `argument` | uint64 | `fault`, `queued`, `new_task`, and the memory system calls: see below |
//!
//! `call` of `queued` says whether it is a shootdown; it is empty if the function has no name. Of `interrupt` and
//! `interrupts` it says whether they are for function calls. `address` of `fault` is the faulting address, of `queued`
//! that of a function without a name. `argument` of `new_task` has the flags of clone. The memory system calls are
//! `madvise`, `munmap`, `mprotect` and `mremap`.
//!
//! A `task` of -1 is not known.
//!
//! Rows are written and read in groups of [`GROUP_ROWS`]: memory does not grow with the recording. The file is whole
//! only after [`Writer::finish`]; callers write it under a temporary name.

mod layout;
mod read;
mod row;
mod write;

pub use read::Reader;
pub use write::Writer;

use parquet::errors::ParquetError;
use std::fmt;

/// Key of the metadata in the file.
pub const METADATA_KEY: &str = "shootdown";

/// Rows of a row group: a few MiB in memory.
pub const GROUP_ROWS: usize = 1 << 16;

/// Names in the column `event`, without system calls.
pub const EVENTS: [&str; 11] = [
    "switch",
    "flush",
    "queued",
    "interrupt",
    "interrupts",
    "handler",
    "fork",
    "new_task",
    "exec",
    "exit",
    "fault",
];

/// Why a file could not be written or read.
#[derive(Debug)]
pub enum Error {
    /// Writing failed.
    Parquet(ParquetError),
    /// The file is not a Parquet file, or a damaged one.
    Damaged(ParquetError),
    /// It is a Parquet file, but not a recording of this program.
    NotARecording(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Parquet(error) => write!(f, "{error}"),
            Error::Damaged(error) => write!(f, "damaged: {error}; record or import it again"),
            Error::NotARecording(what) => write!(f, "not a recording: {what}; make one with `shootdown import`"),
        }
    }
}

impl std::error::Error for Error {}

impl From<ParquetError> for Error {
    fn from(error: ParquetError) -> Self {
        Error::Parquet(error)
    }
}
