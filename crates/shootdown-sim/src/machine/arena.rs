//! Simulated memory: one lazily committed mapping that holds every shared word and every CPU's stack.
//!
//! Because everything shared lives here, the cache line of an address follows from its offset (see `lines`), and host
//! addresses never influence a result. Words grow from the start, stacks from the end; no memory is reused before the
//! region is unmapped. Independent of time.

use corosensei::stack::{STACK_ALIGNMENT, Stack, StackPointer};
use std::cell::Cell;
use std::ops::Deref;
use std::ptr::NonNull;
use std::rc::Rc;

/// Granularity of the layout, the same on every host: results depend on offsets, so offsets must not depend on the
/// host's page size.
const PAGE: usize = 4096;

/// Bytes in a cache line.
pub const LINE: usize = 64;

/// An anonymous private mapping, zeroed, committed when touched, unmapped on drop.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
}

impl Mapping {
    /// Maps `bytes` (rounded up to pages).
    ///
    /// # Panics
    /// When the host refuses.
    pub(crate) fn new(bytes: usize) -> Self {
        let bytes = bytes.next_multiple_of(PAGE).max(PAGE);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a fresh anonymous mapping at an address of the host's choice touches no existing memory.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                flags,
                -1,
                0,
            )
        };
        assert!(
            start != libc::MAP_FAILED,
            "cannot map {bytes} bytes: {}",
            std::io::Error::last_os_error()
        );
        let start = NonNull::new(start.cast()).expect("mmap returned null");
        Mapping { start, bytes }
    }

    /// Asks for large host pages, which save much of the host's own address translation; refused is fine.
    pub(crate) fn prefer_large_pages(&self) {
        #[cfg(target_os = "linux")]
        self.advise(0, libc::MADV_HUGEPAGE);
    }

    /// Asks for no large pages from `from` bytes on, where accesses are sparse.
    fn prefer_small_pages(&self, from: usize) {
        debug_assert!(from <= self.bytes);
        #[cfg(target_os = "linux")]
        self.advise(from, libc::MADV_NOHUGEPAGE);
        #[cfg(not(target_os = "linux"))]
        let _ = from;
    }

    #[cfg(target_os = "linux")]
    fn advise(&self, from: usize, advice: libc::c_int) {
        // SAFETY: the range is in this mapping, or refused; advice does not change contents.
        unsafe { libc::madvise(self.start().wrapping_add(from).cast(), self.bytes - from, advice) };
    }

    pub(crate) fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this value is the only owner of the mapping, and outlived every pointer into it.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

/// The memory of one machine.
#[derive(Debug)]
pub(crate) struct Region {
    mapping: Mapping,
    /// Offset of the next free byte for words.
    low: Cell<usize>,
    /// Offset of the first byte used by stacks.
    high: Cell<usize>,
}

/// Size of the words from which large host pages pay: a small machine would spend more time clearing them than running.
const LARGE_FROM: usize = 65 << 20;

impl Region {
    /// A region for `words` bytes of words and `cpus` stacks of `stack` usable bytes.
    pub(crate) fn new(words: usize, cpus: usize, stack: usize) -> Self {
        let words = (words + LINE).next_multiple_of(PAGE);
        let stacks = cpus * (stack.next_multiple_of(PAGE) + 2 * PAGE);
        let mapping = Mapping::new(words + stacks);
        assert!(
            mapping.bytes / LINE < u32::MAX as usize,
            "the arena is larger than 256 GiB"
        );
        if words > LARGE_FROM {
            mapping.prefer_large_pages();
        }
        mapping.prefer_small_pages(words);
        // Line 0 stands for everything outside the region, so no word may be there.
        Region {
            low: Cell::new(LINE),
            high: Cell::new(mapping.bytes),
            mapping,
        }
    }

    /// Address of byte 0.
    pub(crate) fn base(&self) -> usize {
        self.mapping.start() as usize
    }

    /// Cache lines in the region.
    pub(crate) fn lines(&self) -> usize {
        self.mapping.bytes / LINE
    }

    /// Line, by offset, from which on there are stacks.
    pub(crate) fn stacks_from(&self) -> usize {
        self.high.get() / LINE
    }

    /// Lines that one stack of `usable` bytes takes, its guard page included.
    pub(crate) fn stack_lines(usable: usize) -> usize {
        (usable.next_multiple_of(PAGE) + 2 * PAGE) / LINE
    }

    /// Reserves `bytes`, on lines of their own.
    ///
    /// # Panics
    /// When the region is full.
    pub(crate) fn reserve(&self, bytes: usize, align: usize) -> NonNull<u8> {
        assert!(align <= PAGE, "alignment above a page is not supported");
        let at = self.low.get().next_multiple_of(align.max(LINE));
        let end = (at + bytes.max(1)).next_multiple_of(LINE);
        assert!(
            end <= self.high.get(),
            "the machine's arena is full: raise `arena_bytes`"
        );
        self.low.set(end);
        // SAFETY: `at` is inside the mapping, checked above.
        unsafe { self.mapping.start.add(at) }
    }

    /// Moves `value` into the region, on lines of its own.
    pub(crate) fn place<T>(&self, value: T) -> NonNull<T> {
        let slot = self.reserve(size_of::<T>(), align_of::<T>()).cast::<T>();
        // SAFETY: freshly reserved, large enough and aligned for `T`.
        unsafe { slot.write(value) };
        slot
    }

    /// Moves the values into the region, one after the other as in an array.
    pub(crate) fn place_slice<T>(&self, values: impl ExactSizeIterator<Item = T>) -> NonNull<[T]> {
        let count = values.len();
        let first = self.reserve(size_of::<T>() * count, align_of::<T>()).cast::<T>();
        for (index, value) in values.take(count).enumerate() {
            // SAFETY: freshly reserved for `count` values, aligned for `T`; `index` is below `count`.
            unsafe { first.add(index).write(value) };
        }
        NonNull::slice_from_raw_parts(first, count)
    }

    /// A stack of `usable` bytes with a guard page below. `colour` shifts the top so that the hot ends of many stacks
    /// do not fall into the same sets of the host's caches.
    pub(crate) fn stack(self: &Rc<Self>, usable: usize, colour: usize) -> ArenaStack {
        let usable = usable.next_multiple_of(PAGE) + PAGE;
        let end = self.high.get();
        let start = end - usable - PAGE;
        assert!(
            start >= self.low.get(),
            "the machine's arena is full: raise `arena_bytes`"
        );
        self.high.set(start);
        let limit = self.base() + start;
        let guard = self.guard(start);
        let shift = (colour * 7 % 60) * LINE;
        ArenaStack {
            base: self.base() + end - shift,
            limit,
            guard,
            region: Rc::clone(self),
        }
    }

    /// Guards the page at this offset, which was just cut off for a stack.
    fn guard(&self, offset: usize) -> Guard {
        // SAFETY: only queries a number.
        if unsafe { libc::sysconf(libc::_SC_PAGESIZE) } != PAGE as libc::c_long {
            return Guard::Untouched;
        }
        // SAFETY: the page lies inside the mapping and is unused.
        let refused = unsafe { libc::mprotect(self.mapping.start().add(offset).cast(), PAGE, libc::PROT_NONE) };
        assert!(
            refused == 0,
            "cannot protect a guard page: {}",
            std::io::Error::last_os_error()
        );
        Guard::Protected
    }

    /// Whether the page at this offset, which is readable, was never written.
    fn is_untouched(&self, offset: usize) -> bool {
        // SAFETY: inside the mapping, and the task that might write there has ended.
        let page = unsafe { std::slice::from_raw_parts(self.mapping.start().add(offset), PAGE) };
        page.iter().all(|&byte| byte == 0)
    }
}

/// How a stack overflow is detected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Guard {
    /// The host stops it at the first access.
    Protected,
    /// It is detected when the stack is dropped. The host's pages are larger than ours (16 KiB on Apple's processors,
    /// up to 64 KiB on other Arm hosts), so the host cannot protect one of ours.
    Untouched,
}

/// A coroutine stack inside the region.
pub(crate) struct ArenaStack {
    base: usize,
    limit: usize,
    guard: Guard,
    region: Rc<Region>,
}

impl Drop for ArenaStack {
    fn drop(&mut self) {
        if self.guard == Guard::Untouched && !self.region.is_untouched(self.limit - self.region.base()) {
            // Memory below was overwritten, so nothing that this process would report can be trusted.
            eprintln!("error: the stack of a simulated CPU was too small: raise `stack_bytes`");
            std::process::abort();
        }
    }
}

// SAFETY: the stack has a guard page at its limit (protected, or checked at the end, see `Guard`), more than a page of
// usable memory above it, an aligned base, and keeps the mapping alive.
unsafe impl Stack for ArenaStack {
    fn base(&self) -> StackPointer {
        debug_assert!(self.base.is_multiple_of(STACK_ALIGNMENT));
        StackPointer::new(self.base).expect("stacks are not at address zero")
    }
    fn limit(&self) -> StackPointer {
        StackPointer::new(self.limit).expect("stacks are not at address zero")
    }
}

/// A value in simulated memory, shared by reference count; it keeps the memory alive.
///
/// The value starts on a cache line of its own. It is dropped with the last handle; its memory is reused by
/// [`renew`](Self::renew) only.
pub struct Shared<T> {
    value: NonNull<T>,
    owner: Rc<Owner<T>>,
}

struct Owner<T> {
    value: NonNull<T>,
    _region: Rc<Region>,
}

impl<T> Shared<T> {
    pub(crate) fn new(region: &Rc<Region>, value: T) -> Self {
        let value = region.place(value);
        Shared {
            value,
            owner: Rc::new(Owner {
                value,
                _region: Rc::clone(region),
            }),
        }
    }
}

impl<T> Shared<T> {
    /// Drops the value and puts `value` in its place; gives it back when there are other handles.
    pub fn renew(self, value: T) -> Result<Self, T> {
        if Rc::strong_count(&self.owner) > 1 {
            return Err(value);
        }
        // SAFETY: this is the only handle, taken by value, so nothing refers to the old value, which is initialised.
        unsafe {
            self.value.drop_in_place();
            self.value.write(value);
        }
        Ok(self)
    }
}

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Shared {
            value: self.value,
            owner: Rc::clone(&self.owner),
        }
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: `value` was initialised by `place` and lives until the last `Owner` handle goes, which `self` is.
        unsafe { self.value.as_ref() }
    }
}

impl<T: std::fmt::Debug> std::fmt::Debug for Shared<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        (**self).fmt(f)
    }
}

impl<T> Drop for Owner<T> {
    fn drop(&mut self) {
        // SAFETY: the last handle is gone, so nothing refers to the value; the region is still mapped.
        unsafe { self.value.drop_in_place() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stack_overflow_is_detected_without_guard_pages() {
        let region = Rc::new(Region::new(1 << 20, 2, 1 << 16));
        let free = (1 << 20) - PAGE;
        assert!(region.is_untouched(free));
        // SAFETY: a byte of the words that is not reserved.
        unsafe { region.mapping.start().add(free + PAGE - 1).write(1) };
        assert!(!region.is_untouched(free));
    }
}
