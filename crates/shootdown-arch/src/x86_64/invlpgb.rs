//! INVLPGB: broadcast invalidation, and TLBSYNC, which waits for it.
//!
//! Operand layout (AMD APM vol. 3, INVLPGB):
//!
//! | register | bits |
//! | --- | --- |
//! | RAX \[63:12\] | page address |
//! | RAX \[2:0\] | 0 address valid, 1 PCID valid, 2 ASID valid |
//! | RAX \[5:3\] | 3 include global, 4 final translation only, 5 include nested |
//! | ECX | \[15:0\] *extra* pages, one less than the count; 31 stride of 2 MiB |
//! | EDX | \[15:0\] ASID (0 for the host), \[27:16\] PCID |
//!
//! Two rules hold for every operand built here. The ASID is always valid and 0: otherwise the instruction would reach
//! the translations of every guest. A page count is created only by [`InvlpgbLimits`], so it is at least 1 and at most
//! what CPUID allows; only the encoder subtracts one (regression 26).
//!
//! INVLPGB is asynchronous and weakly ordered. TLBSYNC waits for the INVLPGBs *of the CPU that executes it*, so the
//! issuer must not migrate in between. A PCID other than 0 while CR4.PCIDE = 0 raises #GP.

use core::num::NonZeroU32;

use super::address::{AddressWidth, Canonical};
use super::cr3::Pcid;

/// The bytes of INVLPGB (operands implicit in RAX, ECX, EDX).
pub const INVLPGB_OPCODE: [u8; 3] = [0x0F, 0x01, 0xFE];

/// The bytes of TLBSYNC (no operands).
pub const TLBSYNC_OPCODE: [u8; 3] = [0x0F, 0x01, 0xFF];

const ADDRESS_VALID: u64 = 1 << 0;
const PCID_VALID: u64 = 1 << 1;
const ASID_VALID: u64 = 1 << 2;
const INCLUDE_GLOBAL: u64 = 1 << 3;
const FINAL_ONLY: u64 = 1 << 4;
const INCLUDE_NESTED: u64 = 1 << 5;
const RESERVED_RAX: u64 = 0xFC0;
const RESERVED_ECX: u32 = 0x7FFF_0000;
const RESERVED_EDX: u32 = 0xF000_0000;
const LARGE_STRIDE: u32 = 1 << 31;

/// Distance between the pages of one INVLPGB.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stride {
    /// 4 KiB.
    Size4K,
    /// 2 MiB.
    Size2M,
}

impl Stride {
    /// Size in bytes.
    pub const fn bytes(self) -> u64 {
        match self {
            Stride::Size4K => 1 << 12,
            Stride::Size2M => 1 << 21,
        }
    }
}

/// Proof that INVLPGB may include nested translations (8000_0008 EBX bit 21).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct NestedForm(());

impl NestedForm {
    /// `None` if the processor does not report it.
    pub const fn from_cpuid(ebx_8000_0008: u32) -> Option<NestedForm> {
        if ebx_8000_0008 >> 21 & 1 == 1 {
            Some(NestedForm(()))
        } else {
            None
        }
    }
}

/// Most pages that one INVLPGB may name on this processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct InvlpgbLimits {
    max: NonZeroU32,
}

impl InvlpgbLimits {
    /// The limit before CPUID is read: one page. It is correct on every processor, and never 0, which would make a
    /// splitting loop endless (regression 4).
    pub const UNREAD: InvlpgbLimits = InvlpgbLimits { max: NonZeroU32::MIN };

    /// From EDX of CPUID leaf 8000_0008: bits \[15:0\] hold the most *extra* pages, so FFFFh means 65,536 pages.
    pub const fn from_cpuid(edx_8000_0008: u32) -> InvlpgbLimits {
        InvlpgbLimits {
            max: NonZeroU32::MIN.saturating_add(edx_8000_0008 & 0xFFFF),
        }
    }

    /// Most pages in one instruction, 1 to 65,536, at either stride.
    pub const fn max_pages(self) -> NonZeroU32 {
        self.max
    }

    /// `count` pages from `start`, for one instruction.
    ///
    /// # Errors
    /// See [`RangeError`].
    pub fn pages(self, start: u64, count: u32, stride: Stride, width: AddressWidth) -> Result<Pages, RangeError> {
        let count = NonZeroU32::new(count).ok_or(RangeError::Empty)?;
        if count > self.max {
            return Err(RangeError::TooMany { max: self.max });
        }
        let address = check(start, u64::from(count.get()), stride, width)?;
        Ok(Pages { address, count, stride })
    }

    /// `pages` pages from `start`, in as few instructions as the limit allows. No pages give no instruction.
    ///
    /// # Errors
    /// As [`pages`](Self::pages), except that neither 0 nor a large count is an error.
    pub fn split(self, start: u64, pages: u64, stride: Stride, width: AddressWidth) -> Result<Chunks, RangeError> {
        let next = check(start, pages, stride, width)?;
        Ok(Chunks {
            next,
            left: pages,
            stride,
            max: self.max,
        })
    }
}

impl Default for InvlpgbLimits {
    fn default() -> InvlpgbLimits {
        InvlpgbLimits::UNREAD
    }
}

fn check(start: u64, pages: u64, stride: Stride, width: AddressWidth) -> Result<Canonical, RangeError> {
    let address = Canonical::new(start, width).ok_or(RangeError::NotCanonical)?;
    if start & (stride.bytes() - 1) != 0 {
        return Err(RangeError::Misaligned);
    }
    let stays = pages
        .checked_mul(stride.bytes())
        .is_some_and(|length| address.holds(length, width));
    if stays {
        Ok(address)
    } else {
        Err(RangeError::LeavesHalf)
    }
}

/// Why a range cannot be invalidated page by page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RangeError {
    /// No pages.
    Empty,
    /// The first address is not a multiple of the stride: the last page would be missed.
    Misaligned,
    /// The first address is not canonical.
    NotCanonical,
    /// The range runs past the end of its half of the address space.
    LeavesHalf,
    /// More pages than one instruction may name.
    TooMany {
        /// The most it may.
        max: NonZeroU32,
    },
}

/// Pages for one INVLPGB, within the limits of the processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Pages {
    address: Canonical,
    count: NonZeroU32,
    stride: Stride,
}

impl Pages {
    /// First byte of the first page.
    pub const fn address(self) -> Canonical {
        self.address
    }

    /// Number of pages, at least 1 (not extra pages).
    pub const fn count(self) -> NonZeroU32 {
        self.count
    }

    /// Distance between them.
    pub const fn stride(self) -> Stride {
        self.stride
    }
}

/// The pieces of a range, one per instruction. Made by [`InvlpgbLimits::split`].
#[derive(Debug, Clone)]
pub struct Chunks {
    next: Canonical,
    left: u64,
    stride: Stride,
    max: NonZeroU32,
}

impl Iterator for Chunks {
    type Item = Pages;

    fn next(&mut self) -> Option<Pages> {
        // `left` of 2^32 and more exceeds any limit.
        let left = u32::try_from(self.left).unwrap_or(u32::MAX);
        let count = NonZeroU32::new(left)?.min(self.max);
        let pages = Pages {
            address: self.next,
            count,
            stride: self.stride,
        };
        self.left -= u64::from(count.get());
        self.next = self.next.forward(u64::from(count.get()) * self.stride.bytes());
        Some(pages)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let chunks = usize::try_from(self.left.div_ceil(u64::from(self.max.get())));
        (chunks.unwrap_or(usize::MAX), chunks.ok())
    }
}

/// One INVLPGB. Always of the host (ASID 0).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Invlpgb {
    pages: Option<Pages>,
    tag: Option<Pcid>,
    global: bool,
    leaf_only: bool,
    nested: bool,
}

impl Invlpgb {
    const NON_GLOBAL: Invlpgb = Invlpgb {
        pages: None,
        tag: None,
        global: false,
        leaf_only: false,
        nested: false,
    };

    /// The non-global translations of some pages under one tag, with the paging-structure-cache entries for these
    /// pages.
    pub const fn pages(pages: Pages, tag: Pcid) -> PageInvlpgb {
        PageInvlpgb(Invlpgb {
            pages: Some(pages),
            tag: Some(tag),
            ..Invlpgb::NON_GLOBAL
        })
    }

    /// The translations of some pages under every tag, global ones included: for kernel ranges.
    pub const fn kernel_pages(pages: Pages) -> PageInvlpgb {
        PageInvlpgb(Invlpgb {
            pages: Some(pages),
            global: true,
            ..Invlpgb::NON_GLOBAL
        })
    }

    /// Every non-global translation under one tag.
    pub const fn whole_tag(tag: Pcid) -> Invlpgb {
        Invlpgb {
            tag: Some(tag),
            ..Invlpgb::NON_GLOBAL
        }
    }

    /// Every non-global translation under every tag.
    pub const fn all_non_global() -> Invlpgb {
        Invlpgb::NON_GLOBAL
    }

    /// Every translation, global ones included.
    pub const fn all() -> Invlpgb {
        Invlpgb {
            global: true,
            ..Invlpgb::NON_GLOBAL
        }
    }

    /// Also the nested (second-stage) translations of the host; needs the feature that [`NestedForm`] proves.
    pub const fn with_nested(self, _proof: NestedForm) -> Invlpgb {
        Invlpgb { nested: true, ..self }
    }

    /// The pages named; `None` if whole tags are invalidated.
    pub const fn page_range(self) -> Option<Pages> {
        self.pages
    }

    /// The tag named; `None` for every tag.
    pub const fn tag(self) -> Option<Pcid> {
        self.tag
    }

    /// Whether global translations are included.
    pub const fn includes_global(self) -> bool {
        self.global
    }

    /// Whether only leaves must be invalidated. True only if pages are named.
    pub const fn is_leaf_only(self) -> bool {
        self.leaf_only
    }

    /// Whether nested translations are included.
    pub const fn includes_nested(self) -> bool {
        self.nested
    }

    /// The register values.
    pub const fn encode(self) -> Operands {
        let mut rax = ASID_VALID;
        let (mut ecx, mut edx) = (0, 0);
        if let Some(pages) = self.pages {
            rax |= pages.address.get() | ADDRESS_VALID;
            ecx = pages.count.get() - 1;
            if let Stride::Size2M = pages.stride {
                ecx |= LARGE_STRIDE;
            }
        }
        if let Some(tag) = self.tag {
            rax |= PCID_VALID;
            edx = (tag.get() as u32) << 16;
        }
        if self.global {
            rax |= INCLUDE_GLOBAL;
        }
        if self.leaf_only {
            rax |= FINAL_ONLY;
        }
        if self.nested {
            rax |= INCLUDE_NESTED;
        }
        Operands { rax, ecx, edx }
    }

    /// Decodes register values, for an emulation in a #UD handler of a processor with `limits`.
    ///
    /// Fields that the instruction ignores (count and address without address valid, PCID without PCID valid) are
    /// ignored. "Final translation only" without an address is dropped: that flushes more, never less (C6).
    ///
    /// # Errors
    /// See [`DecodeError`]. An emulation should raise #GP.
    pub fn decode(operands: Operands, limits: InvlpgbLimits, width: AddressWidth) -> Result<Invlpgb, DecodeError> {
        let Operands { rax, ecx, edx } = operands;
        if rax & RESERVED_RAX != 0 || ecx & RESERVED_ECX != 0 || edx & RESERVED_EDX != 0 {
            return Err(DecodeError::ReservedBits);
        }
        if rax & ASID_VALID == 0 {
            return Err(DecodeError::EveryGuest);
        }
        if edx & 0xFFFF != 0 {
            return Err(DecodeError::GuestAsid((edx & 0xFFFF) as u16));
        }
        let pages = if rax & ADDRESS_VALID != 0 {
            let stride = if ecx & LARGE_STRIDE != 0 {
                Stride::Size2M
            } else {
                Stride::Size4K
            };
            let count = (ecx & 0xFFFF) + 1;
            Some(
                limits
                    .pages(rax & !0xFFF, count, stride, width)
                    .map_err(DecodeError::Range)?,
            )
        } else {
            None
        };
        Ok(Invlpgb {
            pages,
            tag: (rax & PCID_VALID != 0).then(|| Pcid::low_bits(u64::from(edx >> 16))),
            global: rax & INCLUDE_GLOBAL != 0,
            leaf_only: pages.is_some() && rax & FINAL_ONLY != 0,
            nested: rax & INCLUDE_NESTED != 0,
        })
    }
}

/// An INVLPGB that names pages; only this form can be limited to leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[must_use]
pub struct PageInvlpgb(Invlpgb);

impl PageInvlpgb {
    /// Only leaf translations: upper levels may stay. Wrong if a page-table page is about to be freed (C3).
    pub const fn leaf_only(self) -> PageInvlpgb {
        PageInvlpgb(Invlpgb {
            leaf_only: true,
            ..self.0
        })
    }

    /// Also global translations of these pages.
    pub const fn with_global(self) -> PageInvlpgb {
        PageInvlpgb(Invlpgb { global: true, ..self.0 })
    }

    /// The finished operation.
    pub const fn build(self) -> Invlpgb {
        self.0
    }

    /// The register values: as [`Invlpgb::encode`].
    pub const fn encode(self) -> Operands {
        self.0.encode()
    }
}

impl From<PageInvlpgb> for Invlpgb {
    fn from(page: PageInvlpgb) -> Invlpgb {
        page.0
    }
}

/// Register values of one INVLPGB.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Operands {
    /// Address and flags.
    pub rax: u64,
    /// Extra pages and stride.
    pub ecx: u32,
    /// ASID and PCID.
    pub edx: u32,
}

/// Why an emulation refuses operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DecodeError {
    /// A reserved bit is set in RAX \[11:6\], ECX \[30:16\] or EDX \[31:28\].
    ReservedBits,
    /// ASID valid is clear: on a real host this would flush every guest too, which is never intended.
    EveryGuest,
    /// An ASID other than the host's.
    GuestAsid(u16),
    /// Impossible pages. It is unconfirmed that a count above the limit raises #GP on hardware.
    Range(RangeError),
}

#[cfg(test)]
mod tests;
