//! Why a line gives no event.

/// Why a line gives no event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// Not an event, or cut off.
    Damaged(&'static str),
    /// An event that is not used.
    Unknown,
    /// Earlier than the one before.
    OutOfOrder,
    /// An event, printed without a required field.
    Lacks(Lack),
}

/// The missing field of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Lack {
    /// The CPU.
    Cpu,
    /// The time.
    Time,
    /// The unit of the time: a counter's value.
    Unit,
}

impl Lack {
    pub(super) fn what(self) -> &'static str {
        match self {
            Lack::Cpu => "an event without its CPU",
            Lack::Time => "an event without its time",
            Lack::Unit => "a time without a unit",
        }
    }
}
