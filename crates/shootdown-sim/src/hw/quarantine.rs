//! Quarantines: frames and ranges of deferred unmaps, and the checks that hold until the deferral ends.
//!
//! The relaxed contract, exactly. From the unmap to the end of its quarantine a withdrawn translation may be used: no
//! completed request forbids it. Meanwhile its frames may not be freed (C2), even if no CPU caches them any longer.
//! Nothing may be mapped in its virtual range either (C1: the old translation would be used in place of the new). The
//! end is a completed request like any other: all TLBs are checked, and every later use is a violation. Owns the list
//! of quarantines.

use super::violation::Rule;
use super::{Hw, Stamp};
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

#[derive(Debug, Clone)]
struct Quarantine {
    space: u32,
    bytes: Range<u64>,
    begun: Stamp,
    frames: Vec<u32>,
}

/// The contents of all quarantines.
#[derive(Debug, Clone, Default)]
pub(super) struct Quarantines {
    next: u64,
    open: BTreeMap<u64, Quarantine>,
    /// Number of quarantines that hold a frame.
    frames: HashMap<u32, u32>,
}

impl Quarantines {
    /// Whether a quarantine of this space is open.
    pub(super) fn concern(&self, space: u32) -> bool {
        self.open.values().any(|open| open.space == space)
    }
}

impl Hw {
    /// A deferred unmap of `bytes` of `space`, whose request began at `begun`, returns: the range and `frames` stay in
    /// quarantine until [`quarantine_ends`](Hw::quarantine_ends) for the number returned.
    pub fn quarantine(&mut self, space: u32, bytes: Range<u64>, begun: Stamp, frames: &[u32]) -> u64 {
        let quarantines = &mut self.quarantines;
        for &frame in frames {
            *quarantines.frames.entry(frame).or_default() += 1;
        }
        quarantines.next += 1;
        let quarantine = Quarantine {
            space,
            bytes,
            begun,
            frames: frames.to_vec(),
        };
        quarantines.open.insert(quarantines.next, quarantine);
        quarantines.next
    }

    /// The deferral is declared over: its withdrawals are binding from here on, and all TLBs are checked for them.
    ///
    /// # Panics
    /// When there is no such quarantine.
    pub fn quarantine_ends(&mut self, number: u64, cpu: usize, now: u64) {
        let quarantines = &mut self.quarantines;
        let ended = quarantines.open.remove(&number).expect("a quarantine ends once");
        for frame in &ended.frames {
            if let Some(count) = quarantines.frames.get_mut(frame) {
                *count -= 1;
                if *count == 0 {
                    quarantines.frames.remove(frame);
                }
            }
        }
        self.completed(ended.space, ended.bytes, ended.begun, cpu, now);
    }

    /// A frame is about to be freed.
    pub(super) fn check_quarantined_frame(&mut self, frame: u32, cpu: usize, now: u64) {
        if self.quarantines.frames.contains_key(&frame) {
            self.report(Rule::C2, cpu, 0, now, |_| {
                vec![format!(
                    "frame {frame} is freed at {now} by CPU {cpu} while it is in quarantine"
                )]
            });
        }
    }

    /// A translation of `va` was stored in the tables of `space`.
    pub(super) fn check_quarantined_range(&mut self, space: u32, va: u64, cpu: usize, now: u64) {
        let open = self.quarantines.open.values();
        let Some(until) = ({ open }).find(|open| open.space == space && open.bytes.contains(&va)) else {
            return;
        };
        let bytes = until.bytes.clone();
        self.report(Rule::C1, cpu, va, now, |_| {
            vec![
                format!(
                    "quarantine: {:#x} to {:#x}, unmapped and not yet flushed everywhere",
                    bytes.start, bytes.end
                ),
                format!("CPU {cpu} maps a page there at {now}"),
            ]
        });
    }

    /// Whether nothing is in quarantine.
    #[inline]
    pub(super) fn nothing_quarantined(&self) -> bool {
        self.quarantines.open.is_empty()
    }
}
