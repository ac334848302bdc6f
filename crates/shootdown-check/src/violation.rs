//! Broken rules of the contract, as detected by the oracle.

use std::fmt;

/// A rule that was broken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Violation {
    /// C1, C2: a CPU can use a translation of a frame that was freed.
    Stale {
        /// The CPU.
        cpu: usize,
        /// The page.
        page: u8,
        /// The frame.
        frame: u8,
    },
    /// C1, C2: the same for the kernel's page.
    KernelStale {
        /// The CPU.
        cpu: usize,
        /// The frame.
        frame: u8,
    },
    /// C3: a CPU's walker can reach a table that was freed.
    TableWalked {
        /// The CPU.
        cpu: usize,
        /// The table.
        table: u8,
    },
    /// C3: software on a CPU reads a table that was freed.
    TableRead {
        /// The CPU.
        cpu: usize,
        /// The table.
        table: u8,
    },
    /// C4: a CPU can use, under the tag that it has loaded, an entry that was filled for another space.
    ForeignTag {
        /// The CPU.
        cpu: usize,
        /// The owner of the entry, by root.
        owner: u8,
        /// The tag.
        tag: u16,
    },
    /// A word on a stack was accessed after its frame was left.
    Gone {
        /// The CPU that accessed it.
        cpu: usize,
    },
    /// C5: CPUs wait, and none can continue.
    Deadlock {
        /// The waiting CPUs.
        waiting: Vec<usize>,
    },
    /// A CPU ran for longer than anything takes.
    Endless,
    /// The engine panicked.
    Panic(String),
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Violation::Stale { cpu, page, frame } => {
                write!(
                    f,
                    "C1 broken: CPU {cpu} can use its old translation of page {page}; frame {frame} is free"
                )
            }
            Violation::KernelStale { cpu, frame } => {
                write!(
                    f,
                    "C1 broken: CPU {cpu} can use its old translation of the kernel's page; frame {frame} is free"
                )
            }
            Violation::TableWalked { cpu, table } => {
                write!(
                    f,
                    "C3 broken: the walker of CPU {cpu} can reach table {table}, which is free"
                )
            }
            Violation::TableRead { cpu, table } => {
                write!(
                    f,
                    "C3 broken: a lockless walk on CPU {cpu} holds table {table}, which is free"
                )
            }
            Violation::ForeignTag { cpu, owner, tag } => {
                write!(
                    f,
                    "C4 broken: CPU {cpu} has tag {tag} loaded and can use what was filled under it for space {owner}"
                )
            }
            Violation::Gone { cpu } => write!(f, "CPU {cpu} touches a request whose stack frame is gone"),
            Violation::Deadlock { waiting } => write!(f, "C5 broken: CPUs {waiting:?} wait for ever"),
            Violation::Endless => write!(f, "C5 broken: a CPU goes on for ever"),
            Violation::Panic(message) => write!(f, "the engine panicked: {message}"),
        }
    }
}
