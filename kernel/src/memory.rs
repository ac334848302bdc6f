//! Where things are: the layout of the address space, and physical memory as the kernel sees it.
//!
//! | from | what |
//! | --- | --- |
//! | `0` | user addresses, of the space that is loaded |
//! | [`DIRECT_MAP`] | the first 4 GiB of physical memory |
//! | [`DYNAMIC`] | kernel mappings that come and go, global |
//! | [`KERNEL_BASE`] | the kernel's own image |

/// Bytes of a page.
pub const PAGE: u64 = 4096;
/// Bytes of a large page, and of what one lowest-level table maps.
pub const LARGE_PAGE: u64 = 2 << 20;
/// First address of the upper half.
pub const DIRECT_MAP: u64 = 0xFFFF_8000_0000_0000;
/// Kernel mappings that come and go.
pub const DYNAMIC: u64 = 0xFFFF_C000_0000_0000;
/// Physical address 0, where the kernel is linked.
pub const KERNEL_BASE: u64 = 0xFFFF_FFFF_8000_0000;
/// One past the last user address.
pub const USER_END: u64 = 0x0000_7FFF_FFFF_F000;
/// Physical memory that the direct map reaches.
pub const DIRECT_BYTES: u64 = 4 << 30;

/// A physical page, by number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Frame(pub u32);

impl Frame {
    /// The frame at a physical address.
    pub const fn at(address: u64) -> Frame {
        Frame((address / PAGE) as u32)
    }

    /// Its first byte.
    pub const fn address(self) -> u64 {
        self.0 as u64 * PAGE
    }

    /// The frame `index` pages on.
    pub const fn plus(self, index: u32) -> Frame {
        Frame(self.0 + index)
    }

    /// Its memory, as words, through the direct map. What may be done with them depends on who owns the frame.
    pub fn words(self) -> &'static [core::sync::atomic::AtomicU64; 512] {
        // SAFETY: the direct map reaches every frame, is never taken away, and atomics allow any sharing.
        unsafe { &*direct(self.address()) }
    }

    /// Fills it with one word.
    pub fn fill(self, word: u64) {
        for place in self.words() {
            place.store(word, core::sync::atomic::Ordering::Relaxed);
        }
    }
}

/// A physical address in the direct map.
pub fn direct<T>(physical: u64) -> *mut T {
    debug_assert!(physical < DIRECT_BYTES);
    core::ptr::with_exposed_provenance_mut((DIRECT_MAP + physical) as usize)
}

unsafe extern "C" {
    static kernel_end: u8;
}

/// Physical address of the end of the kernel's image.
pub fn image_end() -> u64 {
    &raw const kernel_end as u64 - KERNEL_BASE
}
