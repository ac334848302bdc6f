//! The ranges of a batch that a broadcast under every tag may cover, in place of interrupts. Chosen in
//! `adaptive/choice.rs`.

use crate::range::Range;

/// Most instructions for which a request is still broadcast under every tag. A longer broadcast invalidates too much of
/// other spaces.
pub(crate) const ANY_TAG_INSTRUCTIONS: usize = 4;

/// The ranges of a batch that targets on slots would be interrupted for. If they are few they may be broadcast under
/// every tag instead.
pub(crate) struct UnderAnyTag {
    ranges: [Range; ANY_TAG_INSTRUCTIONS],
    len: usize,
    /// What all ranges take, also those that are not kept. [`REFUSED`](Self::REFUSED) if interrupts are needed.
    instructions: usize,
}

impl UnderAnyTag {
    pub(crate) const NONE: UnderAnyTag = UnderAnyTag {
        ranges: [Range::WHOLE; ANY_TAG_INSTRUCTIONS],
        len: 0,
        instructions: 0,
    };
    const REFUSED: usize = usize::MAX;

    /// Adds a range that takes this many instructions; `None` if it cannot be broadcast.
    pub(crate) fn add(&mut self, range: Range, instructions: Option<usize>) {
        self.instructions = self.instructions.saturating_add(instructions.unwrap_or(Self::REFUSED));
        if self.instructions <= ANY_TAG_INSTRUCTIONS {
            self.ranges[self.len] = range;
            self.len += 1;
        }
    }

    /// The targets must be interrupted.
    pub(crate) fn refuse(&mut self) {
        self.instructions = Self::REFUSED;
    }

    /// All ranges and the number of instructions, if there are any ranges and they can be broadcast.
    pub(crate) fn ranges(&self) -> Option<(&[Range], usize)> {
        let can = self.len > 0 && self.instructions <= ANY_TAG_INSTRUCTIONS;
        can.then_some((&self.ranges[..self.len], self.instructions))
    }
}
