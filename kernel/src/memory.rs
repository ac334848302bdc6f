//! The layout of the address space, and physical memory as the kernel sees it.
//!
//! The instruction set defines the addresses: `arch/*/layout.rs`.
//!
//! | from | content |
//! | --- | --- |
//! | `0` | user addresses, of the loaded space |
//! | [`DIRECT_MAP`] | the first 4 GiB of physical memory |
//! | [`DYNAMIC`] | dynamic kernel mappings, global |
//! | [`KERNEL_BASE`] | the kernel's own image |

pub use crate::arch::layout::{DIRECT_MAP, DYNAMIC, KERNEL_BASE, USER_BITS};

/// Bytes of a page.
pub const PAGE: u64 = 4096;
/// Bytes of a large page, and of what one lowest-level table maps.
pub const LARGE_PAGE: u64 = 2 << 20;
/// One past the last user address.
pub const USER_END: u64 = (1 << USER_BITS) - PAGE;
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

    /// Its memory, as words, through the direct map. The frame's owner decides how they may be used.
    pub fn words(self) -> &'static [core::sync::atomic::AtomicU64; 512] {
        // SAFETY: the direct map reaches every frame and is never unmapped, and atomics allow any sharing.
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
