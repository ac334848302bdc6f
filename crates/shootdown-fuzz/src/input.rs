//! Reads numbers from bytes. Bytes that are missing at the end read as 0.

/// Bytes that are used up from the front.
pub(crate) struct Input<'a>(pub(crate) &'a [u8]);

impl Input<'_> {
    /// The next `bytes` bytes as a number, lowest first.
    fn take(&mut self, bytes: usize) -> u64 {
        let (now, rest) = self.0.split_at(bytes.min(self.0.len()));
        self.0 = rest;
        now.iter().rev().fold(0, |sum, &byte| sum << 8 | u64::from(byte))
    }

    pub(crate) fn byte(&mut self) -> u8 {
        self.take(1) as u8
    }

    pub(crate) fn short(&mut self) -> u16 {
        self.take(2) as u16
    }

    pub(crate) fn word(&mut self) -> u32 {
        self.take(4) as u32
    }

    pub(crate) fn long(&mut self) -> u64 {
        self.take(8)
    }

    /// One of these.
    pub(crate) fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[usize::from(self.byte()) % choices.len()]
    }
}
