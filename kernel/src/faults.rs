//! placeholder
/// lists
pub fn list() {}
#[cfg(feature = "faults")]
/// named
pub fn named(_name: &str) -> Option<shootdown::Fault> {
    None
}
