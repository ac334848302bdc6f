//! Regions of an address space: the rights of user code, and the source of their pages.

use crate::backing::Backing;
use alloc::vec::Vec;

/// A stretch of addresses that faults fill.
#[derive(Clone)]
pub struct Region {
    /// First byte.
    pub start: u64,
    /// One past the last.
    pub end: u64,
    /// Rights of user code in addition to reading.
    pub access: Access,
    /// Source of its pages; without one they are zeroes.
    pub backing: Option<Backing>,
}

/// Rights of user code in addition to reading, or kinds of its accesses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access {
    /// Write.
    pub write: bool,
    /// Fetch instructions.
    pub execute: bool,
}

impl Access {
    /// Reading, and writing if so.
    pub const fn data(write: bool) -> Access {
        Access { write, execute: false }
    }
}

/// Removes `start..end` from the regions, splitting if necessary; returns the removed parts.
pub fn carve(regions: &mut Vec<Region>, start: u64, end: u64) -> Vec<Region> {
    let mut taken = Vec::new();
    let mut index = 0;
    while index < regions.len() {
        let region = &regions[index];
        if region.end <= start || region.start >= end {
            index += 1;
            continue;
        }
        let region = regions.swap_remove(index);
        let part = |start, end| Region {
            start,
            end,
            ..region.clone()
        };
        for (from, to) in [(region.start, start), (end, region.end)] {
            if from < to {
                regions.push(part(from, to));
            }
        }
        taken.push(part(region.start.max(start), region.end.min(end)));
    }
    taken
}
