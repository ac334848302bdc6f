//! A cache line of its own for a word, or for a few that are written together.

/// Gives a word that is written by one side and polled by another a cache line of its own.
#[repr(C, align(64))]
pub(crate) struct CachePadded<T>(pub(crate) T);
