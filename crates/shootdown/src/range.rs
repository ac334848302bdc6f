//! Ranges of addresses: what a flush covers, and whether it is flushed page by page.

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
        12 + 9 * self as u32
    }

    /// Size in bytes.
    #[inline]
    pub const fn bytes(self) -> u64 {
        1 << self.shift()
    }

    const fn from_bits(bits: u64) -> Stride {
        match bits & 3 {
            0 => Stride::Size4K,
            1 => Stride::Size2M,
            _ => Stride::Size1G,
        }
    }
}

/// What a flush covers.
///
/// `start` is rounded down and `end` up to the stride: more is flushed rather than less (C6). `stride` must be the
/// smallest page size of the *withdrawn* entries. If small and large entries may both be cached, as after a split or a
/// collapse, use the small one.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Range {
    /// First byte. Below the page size are the stride (bits 0 and 1), whether page-table pages are freed (bit 2), and
    /// the number of strides (bits 3 to 11), 0 if the range [is long](Self::is_long). So a range that is flushed page
    /// by page is one word in requests and in the flush log.
    first: u64,
    /// One past the last byte where the first word does not say, otherwise 0. So equal ranges are equal words.
    end: u64,
}

/// Bit of [`Range::tables`].
const TABLES: u64 = 4;

/// First bit of the number of strides.
const COUNT: u32 = 3;

/// Smallest number of strides that does not fit there.
const LONG: u64 = 1 << (12 - COUNT);

/// The address bits.
const ADDRESS: u64 = !0xFFF;

impl core::fmt::Debug for Range {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let tables = if self.tables() { " with tables" } else { "" };
        write!(
            out,
            "{:#x}..{:#x} {:?}{tables}",
            self.start(),
            self.end(),
            self.stride()
        )
    }
}

impl Range {
    /// The whole address space, page tables included.
    pub const WHOLE: Range = Range {
        first: Stride::Size4K as u64 | TABLES,
        end: u64::MAX,
    };

    /// Both ends are multiples of the stride, or the end is the end of the address space.
    #[inline]
    const fn of(start: u64, end: u64, flags: u64) -> Range {
        let long = Range {
            first: start | flags,
            end,
        };
        let strides = long.strides();
        if strides >= LONG || end == u64::MAX {
            return long;
        }
        Range {
            first: long.first | strides << COUNT,
            end: 0,
        }
    }

    /// Leaf entries of `start..end` (bytes, end excluded). An empty range covers the page at `start`.
    ///
    /// An end of 0 means the end of the address space, so `start + length` may wrap there. A range whose end lies
    /// before its start covers the whole address space, because either end may be wrong (C6).
    #[inline]
    pub const fn pages(start: u64, end: u64, stride: Stride) -> Range {
        let (start, end) = match end {
            0 => (start, u64::MAX),
            end if end < start => (0, u64::MAX),
            end => (start, end),
        };
        let mask = stride.bytes() - 1;
        let start = start & !mask;
        let end = if end <= start { start.saturating_add(1) } else { end };
        // Rounding up past the top of the address space means "to the end".
        let end = match end.checked_add(mask) {
            Some(sum) => sum & !mask,
            None => u64::MAX,
        };
        Range::of(start, end, stride as u64)
    }

    /// One 4 KiB page.
    #[inline]
    pub const fn page(address: u64) -> Range {
        match address & ADDRESS {
            ADDRESS => Range::pages(ADDRESS, u64::MAX, Stride::Size4K),
            start => Range {
                first: start | 1 << COUNT,
                end: 0,
            },
        }
    }

    /// The same range, with page-table pages being freed: paging-structure caches are invalidated too, and CPUs in lazy
    /// TLB mode are not skipped (C3). The range must meet the span of each freed table: an invalidation may purge only
    /// the paging-structure-cache entries for its own address (x86 with TCE, Arm). A stride of 1 GiB becomes one of 2
    /// MiB, the span of a lowest-level table, so that every freed table of any level contains one of the addresses
    /// named.
    #[inline]
    pub const fn with_tables(self) -> Range {
        let stride = match self.stride() {
            Stride::Size1G => Stride::Size2M,
            smaller => smaller,
        };
        Range::of(self.start(), self.end(), stride as u64 | TABLES)
    }

    /// Number of strides in the first word; 0 if the range [is long](Self::is_long).
    #[inline]
    const fn count(&self) -> u64 {
        self.first >> COUNT & (LONG - 1)
    }

    /// First byte.
    #[inline]
    pub const fn start(&self) -> u64 {
        self.first & ADDRESS
    }

    /// One past the last byte; `u64::MAX` means to the end of the address space.
    #[inline]
    pub const fn end(&self) -> u64 {
        match self.count() {
            0 => self.end,
            count => self.start().wrapping_add(count << self.shift()),
        }
    }

    /// Page size in which it is flushed.
    #[inline]
    pub const fn stride(&self) -> Stride {
        Stride::from_bits(self.first)
    }

    /// log2 of that size in bytes.
    #[inline]
    pub(crate) const fn shift(&self) -> u32 {
        12 + 9 * (self.first & 3) as u32
    }

    /// Whether page-table pages are being freed.
    #[inline]
    pub const fn tables(&self) -> bool {
        self.first & TABLES != 0
    }

    /// Number of strides, rounded up.
    #[inline]
    pub const fn strides(&self) -> u64 {
        match self.count() {
            // Never empty. A descriptor torn by an injected bug reads as a huge range (C6).
            0 => (self.end.wrapping_sub(self.start()).wrapping_sub(1) >> self.shift()) + 1,
            count => count,
        }
    }

    /// Whether it is one stride, and no page-table pages are freed.
    #[inline]
    pub(crate) const fn is_one_leaf(&self) -> bool {
        self.first & (TABLES | (LONG - 1) << COUNT) == 1 << COUNT
    }

    /// Whether it is flushed page by page under a ceiling of that many strides.
    #[inline]
    pub const fn is_walkable(&self, ceiling: u32) -> bool {
        self.strides() <= ceiling as u64
    }

    /// The first address of every stride.
    #[inline]
    pub fn addresses(&self) -> impl Iterator<Item = u64> + use<> {
        let (start, shift) = (self.start(), self.shift());
        (0..self.strides()).map(move |index| start + (index << shift))
    }

    /// Calls `each` with the first address of every stride: `addresses`, with less at hand between the calls.
    #[inline]
    pub(crate) fn for_each_address(&self, mut each: impl FnMut(u64)) {
        let mut address = self.start();
        // No counter. There is one stride at least.
        let step = 1 << self.shift();
        let end = address.wrapping_add(self.strides().wrapping_mul(step));
        loop {
            each(address);
            address = address.wrapping_add(step);
            if address == end {
                break;
            }
        }
    }

    /// The range cut into pieces of at most `most` strides (0 counts as 1), as a broadcast instruction takes them:
    /// first address and number of strides.
    #[inline]
    pub fn chunks(&self, most: u32) -> Chunks {
        Chunks {
            next: self.start(),
            left: self.strides(),
            most: u64::from(most.max(1)),
            shift: self.shift(),
        }
    }

    /// Whether [`word`](Self::word) does not contain its end: it has 512 strides or more, or is at the very end of the
    /// address space.
    #[inline]
    pub(crate) const fn is_long(&self) -> bool {
        self.count() == 0
    }

    /// The range as one word, for the flush log and for requests, unless it [is long](Self::is_long).
    #[inline]
    pub(crate) const fn word(&self) -> u64 {
        self.first
    }

    /// Its end, if it [is long](Self::is_long); otherwise 0.
    #[inline]
    pub(crate) const fn second_word(&self) -> u64 {
        self.end
    }

    /// The inverse of [`word`](Self::word). Calls `end` if the word does not contain the end.
    #[inline]
    pub(crate) fn from_word(first: u64, end: impl FnOnce() -> u64) -> Range {
        let known = Range { first, end: 0 };
        if known.is_long() {
            return Range { first, end: end() };
        }
        known
    }
}

/// Pieces of a range; see [`Range::chunks`].
#[derive(Debug, Clone)]
pub struct Chunks {
    next: u64,
    left: u64,
    most: u64,
    shift: u32,
}

impl Iterator for Chunks {
    type Item = (u64, u32);

    #[inline]
    fn next(&mut self) -> Option<(u64, u32)> {
        if self.left == 0 {
            return None;
        }
        let count = self.left.min(self.most);
        let start = self.next;
        self.next = start.wrapping_add(count << self.shift);
        self.left -= count;
        Some((start, count as u32))
    }
}
