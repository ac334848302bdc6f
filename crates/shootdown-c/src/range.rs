//! The range of a flush.

use shootdown::{Range, Stride};

/// The range of a flush. First and last byte are rounded to pages.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct shootdown_range {
    /// First byte.
    pub start: u64,
    /// One past the last byte; if it is not above start, the range is the page at start.
    pub end: u64,
    /// log2 of the smallest page that was withdrawn: 12, 21 or 30. Any other value counts as 12, which flushes no less.
    pub page_shift: u32,
    /// Whether page-table pages are being freed: then the CPUs' paging-structure caches are flushed too.
    pub tables: bool,
}

const PAGE: u64 = 1 << 12;

/// The last page of the address space.
const LAST: u64 = u64::MAX - PAGE + 1;

impl From<Range> for shootdown_range {
    fn from(range: Range) -> shootdown_range {
        shootdown_range {
            start: range.start(),
            end: range.end(),
            page_shift: range.stride().shift(),
            tables: range.tables(),
        }
    }
}

impl shootdown_range {
    pub(crate) fn range(&self) -> Range {
        let range = Range::pages(self.start, self.end, stride_of(self.page_shift));
        if self.tables { range.with_tables() } else { range }
    }
}

/// The most common range, one small page, without what rounding takes. `None` for any other, and for the last page of
/// the address space.
#[inline(always)]
pub(crate) fn one_page(start: u64, end: u64, page_shift: u32, tables: bool) -> Option<Range> {
    let is_one = end.wrapping_sub(start) == PAGE && start.is_multiple_of(PAGE) && page_shift == 12 && !tables;
    (is_one && start != LAST).then(|| Range::page(start))
}

/// The smallest page, for an invalid shift: it flushes no less.
pub(crate) fn stride_of(page_shift: u32) -> Stride {
    match page_shift {
        21 => Stride::Size2M,
        30 => Stride::Size1G,
        _ => Stride::Size4K,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_page_range_is_what_rounding_makes() {
        for start in [0, PAGE, 0x7FFF_FFFF_F000, LAST - PAGE] {
            let end = start + PAGE;
            let rounded = shootdown_range {
                start,
                end,
                page_shift: 12,
                tables: false,
            };
            assert_eq!(one_page(start, end, 12, false), Some(rounded.range()), "{start:#x}");
            let others = [
                one_page(start, end, 21, false),
                one_page(start, end, 12, true),
                one_page(start | 1, end | 1, 12, false),
                one_page(start, end + 1, 12, false),
            ];
            assert!(others.iter().all(Option::is_none), "{start:#x}");
        }
        assert_eq!(one_page(LAST, 0, 12, false), None);
    }
}
