//! CR3, INVLPG, INVPCID and INVLPGB.

use super::instructions::*;
use crate::Refused;
use shootdown::{Broadcast, BroadcastLimits, Errata, Local, Machine, Root, Stride, Tag};
use shootdown_arch::x86_64::cpuid::{self, EFER_TCE, Signature, Vendor};
use shootdown_arch::x86_64::invlpgb::{self, Invlpgb, InvlpgbLimits};
use shootdown_arch::x86_64::{AddressWidth, Canonical, Cr3, Invpcid, Pcid};

/// The features of the processors of this machine, and which are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Processor {
    /// PCIDs. Used only together with INVPCID.
    tags: bool,
    broadcast: Option<InvlpgbLimits>,
    /// Translation cache extension.
    narrow: bool,
    width: AddressWidth,
}

/// Process-context identifiers; global pages; five table levels.
const CR4_PCIDE: u64 = 1 << 17;
const CR4_PGE: u64 = 1 << 7;
const CR4_LA57: u64 = 1 << 12;

/// The model-specific register of extended features.
const EFER: u32 = 0xC000_0080;

/// Number of PCIDs.
const PCIDS: u16 = 1 << Pcid::BITS;

impl Processor {
    /// Detects the features of this CPU. INVLPGB is used only together with PCIDs: a nonzero PCID raises #GP while
    /// PCIDs are off, and no processor is known to broadcast without PCIDs. The microcode revision is not read, which
    /// errs towards not using PCIDs. `_kernel_root` is for other instruction sets.
    pub fn discover(_kernel_root: Root) -> Processor {
        let [most_basic, names_b, names_c, names_d] = cpuid(0);
        let [signature, _, basic, _] = cpuid(1);
        let most = cpuid(0x8000_0000)[0];
        let extended = |leaf: u32| if leaf <= most { cpuid(leaf) } else { [0; 4] };
        let structured = if most_basic >= 7 { cpuid(7)[1] } else { 0 };
        let vendor = Vendor::from_cpuid(names_b, names_c, names_d);
        let signature = Signature::from_cpuid(signature);
        let guest = basic >> 31 == 1;
        let tags = cpuid::has_pcid(basic)
            && cpuid::has_invpcid(structured)
            && cpuid::must_not_tag(vendor, signature, 0, guest).is_none();
        let [_, sizes_b, _, sizes_d] = extended(0x8000_0008);
        let broadcast = cpuid::broadcast_limits(vendor, signature, sizes_b, sizes_d);
        Processor {
            tags,
            broadcast: broadcast.filter(|_| tags),
            narrow: cpuid::has_translation_cache_extension(extended(0x8000_0001)[2]),
            width: match read_cr4() & CR4_LA57 {
                0 => AddressWidth::Bits48,
                _ => AddressWidth::Bits57,
            },
        }
    }

    /// Broadcasts within `limits`, regardless of CPUID; `None` disables broadcasts. For an invalid-opcode handler that
    /// emulates INVLPGB and TLBSYNC, or to avoid them.
    pub fn with_broadcast(self, limits: Option<InvlpgbLimits>) -> Processor {
        Processor {
            broadcast: limits,
            ..self
        }
    }

    /// The features of both.
    pub fn common_with(self, other: Processor) -> Processor {
        let limits = self.broadcast.zip(other.broadcast);
        Processor {
            tags: self.tags && other.tags,
            broadcast: limits.map(|(one, other)| {
                if one.max_pages() < other.max_pages() {
                    one
                } else {
                    other
                }
            }),
            narrow: self.narrow && other.narrow,
            width: self.width,
        }
    }

    /// Enables what is used on this CPU: global pages, PCIDs, and the translation cache extension (TCE), with which
    /// invalidations keep the paging-structure-cache entries of other addresses. That is safe because the engine names
    /// an address within the span of every freed page-table page.
    ///
    /// # Safety
    /// In 64-bit mode, with the root loaded under PCID 0 (CR3 bits 0 to 11 are 0). All other CPUs have the features
    /// that this [discovered](Self::discover).
    pub unsafe fn enable(&self) {
        let tags = if self.tags { CR4_PCIDE } else { 0 };
        write_cr4(read_cr4() & !CR4_PCIDE | CR4_PGE | tags);
        if self.narrow {
            write_msr(EFER, read_msr(EFER) | EFER_TCE);
        }
    }

    /// Whether PCIDs are used.
    #[inline]
    pub fn has_tags(&self) -> bool {
        self.tags
    }

    /// The limits of INVLPGB.
    pub fn invlpgb_limits(&self) -> Option<InvlpgbLimits> {
        self.broadcast
    }

    /// One past the last tag, for the engine's `tag_limit`: 4096, or 1 without PCIDs.
    pub fn tag_limit(&self) -> u32 {
        self.machine().tag_limit
    }

    /// The machine description for the engine.
    pub fn machine(&self) -> Machine {
        let machine = if self.tags { Machine::PCID } else { Machine::NO_TAGS };
        Machine {
            errata: self.errata(),
            ..machine
        }
    }

    /// The errata that the engine must work around on this processor: none beyond what is handled here.
    pub fn errata(&self) -> Errata {
        Errata::NONE
    }

    fn pcid(&self, tag: Tag) -> Pcid {
        Pcid::new(tag.0).expect("tags lie below `tag_limit`")
    }

    /// Carries out a local invalidation; complete on return.
    // Always: the caller's operation is constant, so this becomes a few instructions.
    #[inline(always)]
    pub fn invalidate(&self, what: Local) {
        // Without PCIDs all cached entries belong to the loaded root.
        self.invalidate_under(self.tags.then(|| Tag(read_cr3() as u16 & (PCIDS - 1))), what);
    }

    /// As [`invalidate`](Self::invalidate), for a kernel that knows the loaded tag. Without PCIDs, invalidations of
    /// other tags do nothing, because the root load that left them has dropped their entries. `None` for unknown, only
    /// without PCIDs.
    #[inline(always)]
    pub fn invalidate_under(&self, loaded: Option<Tag>, what: Local) {
        let is_loaded = |tag: Tag| loaded.is_none_or(|loaded| loaded == tag);
        match what {
            // INVLPG and INVPCID also drop the paging-structure-cache entries for the address, even if only the leaf is
            // requested.
            Local::Page { address, tag, .. } if is_loaded(tag) => invlpg(address),
            Local::Page { address, tag, .. } => self.page_elsewhere(address, tag),
            Local::Tag(tag) => self.whole_tag(is_loaded(tag), tag),
            Local::Kernel { address, .. } => invlpg(address),
            Local::All => self.everything(),
        }
    }

    // Always: for a call a target would save six registers, although it rarely comes here (`linux compare`).
    #[inline(always)]
    fn page_elsewhere(&self, address: u64, tag: Tag) {
        if !self.tags {
            return;
        }
        let address = Canonical::new(address, self.width).expect("the engine passes on addresses that were mapped");
        execute(Invpcid::Address {
            pcid: self.pcid(tag),
            address,
        });
    }

    #[inline]
    fn whole_tag(&self, is_loaded: bool, tag: Tag) {
        if self.tags {
            execute(Invpcid::Tag(self.pcid(tag)));
        } else if is_loaded {
            write_cr3(read_cr3());
        }
    }

    /// Drops every non-global translation of this CPU, under every tag.
    pub fn all_non_global(&self) {
        if self.tags {
            execute(Invpcid::NonGlobal);
        } else {
            write_cr3(read_cr3());
        }
    }

    fn everything(&self) {
        if self.tags {
            return execute(Invpcid::All);
        }
        let flags = read_cr4();
        if flags & CR4_PGE == 0 {
            return write_cr3(read_cr3());
        }
        // Turns global pages off and on again.
        write_cr4(flags & !CR4_PGE);
        write_cr4(flags);
    }

    /// Nothing: each invalidation is complete on return.
    #[inline]
    pub fn local_sync(&self) {}

    /// Loads `root` under `tag`, as the hook `load_root` requires: MOV to CR3 serialises.
    ///
    /// # Safety
    /// `root` maps the running code, its stack and data as they are now. The tables stay until another root is loaded.
    /// Interrupts are off.
    #[inline]
    pub unsafe fn load_root(&self, root: Root, tag: Tag, keep: bool) {
        // Tag 0 is the number itself. An engine without tags passes these constants, and nothing is left to test.
        if !self.tags || tag == Tag(0) && !keep {
            return write_cr3(root.0);
        }
        let load = Cr3::new(root.0, self.pcid(tag)).expect("roots are page-aligned");
        write_cr3(if keep { load.keeping().bits() } else { load.bits() });
    }

    /// Pages in one INVLPGB; `None` without INVLPGB.
    #[inline]
    pub fn broadcast_limits(&self) -> Option<BroadcastLimits> {
        let most = self.broadcast?.max_pages().get();
        Some(BroadcastLimits {
            max_pages: most,
            max_large_pages: most,
        })
    }

    /// A broadcast interrupts no CPU.
    #[inline]
    pub fn broadcast_interrupts(&self) -> bool {
        false
    }

    /// Issues a broadcast, which is complete when [`broadcast_sync`](Self::broadcast_sync) returns. A range that cannot
    /// be named invalidates everything (C6).
    ///
    /// # Errors
    /// None on this instruction set.
    ///
    /// # Panics
    /// If there are no [limits](Self::broadcast_limits).
    pub fn broadcast(&self, what: Broadcast) -> Result<(), Refused> {
        let limits = self.broadcast.expect("asked for only where there are limits");
        let pages = |address, stride, count| {
            let stride = match stride {
                Stride::Size4K => invlpgb::Stride::Size4K,
                Stride::Size2M | Stride::Size1G => invlpgb::Stride::Size2M,
            };
            limits.pages(address, count, stride, self.width)
        };
        let operation = match what {
            Broadcast::Pages {
                address,
                stride,
                count,
                tag,
                leaf_only,
            } => pages(address, stride, count).map(|pages| {
                let operation = Invlpgb::pages(pages, self.pcid(tag));
                if leaf_only {
                    operation.leaf_only().build()
                } else {
                    operation.build()
                }
            }),
            Broadcast::Kernel {
                address,
                stride,
                count,
                leaf_only,
            } => pages(address, stride, count).map(|pages| {
                let operation = Invlpgb::kernel_pages(pages);
                if leaf_only {
                    operation.leaf_only().build()
                } else {
                    operation.build()
                }
            }),
            Broadcast::Tag(tag) => Ok(Invlpgb::whole_tag(self.pcid(tag))),
            Broadcast::NonGlobal => Ok(Invlpgb::all_non_global()),
            Broadcast::All => Ok(Invlpgb::all()),
        };
        invlpgb(operation.unwrap_or(Invlpgb::all()).encode());
        Ok(())
    }

    /// Waits for the broadcasts of this CPU.
    #[inline]
    pub fn broadcast_sync(&self) {
        tlbsync();
    }
}

fn execute(what: Invpcid) {
    invpcid(what.kind(), what.descriptor());
}
