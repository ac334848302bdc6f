//! Switches that re-introduce bugs that shipped elsewhere. Tests only: the feature `faults` is off in every build that
//! is not a test.

/// One switchable bug, by its number in the list of regressions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
#[non_exhaustive]
pub enum Fault {
    /// A CPU that is switching in is skipped (regression 1).
    SkipSwitchingCpu,
}
