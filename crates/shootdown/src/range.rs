//! Ranges of addresses, and how many strides they hold.

/// The page size a range is walked in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Stride {
    /// 4 KiB pages.
    Size4K = 0,
    /// 2 MiB pages.
    Size2M = 1,
    /// 1 GiB pages.
    Size1G = 2,
}

impl Stride {
    /// log2 of the size in bytes.
    #[inline]
    pub const fn shift(self) -> u32 {
        match self {
            Stride::Size4K => 12,
            Stride::Size2M => 21,
            Stride::Size1G => 30,
        }
    }

    /// Size in bytes.
    #[inline]
    pub const fn bytes(self) -> u64 {
        1 << self.shift()
    }
}
