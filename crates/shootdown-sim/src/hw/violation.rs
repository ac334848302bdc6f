//! Violations, and how each is printed.
//!
//! Owns the wording. Makes no decisions.

use super::Hw;
use super::ledger::Record;
use super::tlb::{Body, GLOBAL, Tlb, key_tag};
use std::fmt;

/// The rule of the contract that was broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Rule {
    /// Translations: a CPU can use, used, or filled from, a translation whose withdrawal a completed request covers.
    C1,
    /// Frames: a frame was freed while a CPU could still use it, or used afterwards.
    C2,
    /// Tables: a page-table page was freed while linked, loaded or cached where a CPU can walk it, or walked
    /// afterwards.
    C3,
    /// Tags: a tag reached another space while entries were left under it.
    C4,
    /// AArch64: an entry changed its output address or size without "not mapped" and a completed flush between.
    BreakBeforeMake,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Rule::C1 => "C1 (translations)",
            Rule::C2 => "C2 (frames)",
            Rule::C3 => "C3 (tables)",
            Rule::C4 => "C4 (tags)",
            Rule::BreakBeforeMake => "break before make",
        })
    }
}

/// One violation. The entry is dropped afterwards, so that one mistake is reported once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The broken rule.
    pub rule: Rule,
    /// The CPU whose cache is at fault.
    pub cpu: usize,
    /// First byte of the page, or of the span of the table.
    pub va: u64,
    /// The space the CPU had loaded.
    pub space: u32,
    /// When it was found, cycles.
    pub at: u64,
    /// The history, in several lines.
    pub diagnosis: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.diagnosis)
    }
}

impl Hw {
    /// Counts a violation, and keeps it while there is room.
    pub(super) fn report(
        &mut self,
        rule: Rule,
        cpu: usize,
        va: u64,
        now: u64,
        details: impl FnOnce(&Hw) -> Vec<String>,
    ) {
        self.violation_count += 1;
        self.first_violation_after.get_or_insert(self.accesses);
        if self.violations.len() >= self.config.stories {
            return;
        }
        let space = self.cpus[cpu].space;
        let mut lines = vec![format!(
            "{rule} broken: CPU {cpu}, address {va:#x}, space {space}, at cycle {now}"
        )];
        lines.extend(details(self).into_iter().map(|l| format!("  {l}")));
        let diagnosis = lines.join("\n");
        self.violations.push(Violation {
            rule,
            cpu,
            va,
            space,
            at: now,
            diagnosis,
        });
    }

    /// The history of a TLB entry: its contents, its withdrawal, and the request that should have removed it.
    pub(super) fn describe_entry(&self, cpu: usize, key: u64, body: &Body) -> Vec<String> {
        let under = if key & GLOBAL != 0 {
            "global".to_string()
        } else {
            format!("tag {}", key_tag(key))
        };
        let (va, _) = Tlb::page_of(key);
        let c = &self.cpus[cpu];
        let mut lines = vec![
            format!(
                "cached:    {:?}, {under}, space {}, filled at {}",
                body.entry(),
                body.space,
                body.at
            ),
            format!(
                "CPU {cpu}:     space {} under tag {}{}{}",
                c.space,
                c.tag,
                if c.lazy { ", lazy" } else { "" },
                if c.settling { ", still switching" } else { "" }
            ),
        ];
        match self.withdrawal_of(body) {
            Some(record) => lines.extend(self.describe_withdrawal(record, body.space, va)),
            None => lines.push(format!(
                "tables:    hold {:?} now",
                super::Entry(self.ledger.slots[body.slot as usize].held)
            )),
        }
        let frame = self.frames.get(body.frame);
        if frame.life as u16 != (body.bits >> 16) as u16 {
            lines.push(format!(
                "frame:     {} was freed since the fill, and is {:?} now",
                body.frame, frame.kind
            ));
        }
        lines
    }

    fn describe_withdrawal(&self, record: &Record, space: u32, va: u64) -> Vec<String> {
        let Record {
            old, new, issued, at, ..
        } = record;
        let mut lines = vec![format!(
            "withdrawn: at {at} by CPU {}: {old:?} became {new:?}",
            issued.cpu
        )];
        if issued.at != *at {
            lines.push(format!(
                "           (the store was issued at {} and sat in a store buffer)",
                issued.at
            ));
        }
        lines.push(match self.ledger.completion_of(space, va, issued.seq) {
            Some(c) => format!(
                "request:   by CPU {}, begun at {}, completed at {}: it should have removed the entry",
                c.cpu, c.begun.at, c.at
            ),
            None => "request:   none has completed".to_string(),
        });
        lines
    }
}
