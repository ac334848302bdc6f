//! TLBI and TTBR0_EL1.

use super::instructions::*;
use crate::Refused;
use shootdown::{Broadcast, BroadcastLimits, Errata, Local, Machine, Root, Stride, Tag};
use shootdown_arch::aarch64::identification::{self, Midr, Workarounds};
use shootdown_arch::aarch64::range::{Cover, MOST_GRANULES, Step};
use shootdown_arch::aarch64::{Asid, AsidWidth, Granule, Level, Operand, Ttbr};

/// The features of the processors of this machine, and which are used. 4 KiB granules, the ASID in TTBR0_EL1
/// (TCR_EL1.A1 clear), physical addresses of at most 48 bits, CnP off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Processor {
    asids: AsidWidth,
    ranges: bool,
    /// Base addresses of range operands count 64 KiB: TCR_EL1.DS is set.
    wide_ranges: bool,
    workarounds: Workarounds,
    kernel_root: Root,
}

/// TCR_EL1.DS: 52-bit addresses with 4 KiB granules.
const TCR_DS: u64 = 1 << 59;

impl Processor {
    /// Detects the features of this CPU. `kernel_root` is the one that the engine has: it maps nothing under an ASID,
    /// so it can be loaded while entries under one are invalidated. On machines with different CPUs call it on each,
    /// and use the features [in common](Self::common_with).
    ///
    /// # Panics
    /// If ID_AA64MMFR0_EL1 reports a reserved ASID width, or if TCR_EL1.A1 selects the ASID of TTBR1_EL1.
    pub fn discover(kernel_root: Root) -> Processor {
        let (tcr, mmfr0) = (read_tcr(), read_mmfr0());
        assert!(
            tcr & Ttbr::TCR_A1 == 0,
            "TCR_EL1.A1 is set: the ASID would not be TTBR0_EL1's"
        );
        let width = AsidWidth::from_id(mmfr0).expect("ASIDs have 8 or 16 bits");
        Processor {
            asids: width.in_use(tcr),
            ranges: identification::has_range(read_isar0()),
            wide_ranges: tcr & TCR_DS != 0,
            workarounds: Workarounds::of(Midr(read_midr() as u32)),
            kernel_root,
        }
    }

    /// The features of both, and the workarounds of either.
    pub fn common_with(self, other: Processor) -> Processor {
        Processor {
            asids: self.asids.min(other.asids),
            ranges: self.ranges && other.ranges,
            workarounds: self.workarounds.or(other.workarounds),
            ..self
        }
    }

    /// One past the last tag, for the engine's `tag_limit`: 256, or 65,536 if 16 bits are in use (TCR_EL1.AS).
    pub fn tag_limit(&self) -> u32 {
        self.asids.count()
    }

    /// The machine description for the engine.
    pub fn machine(&self) -> Machine {
        Machine {
            tag_limit: self.tag_limit(),
            errata: self.errata(),
            ..Machine::NO_TAGS
        }
    }

    /// Enables what is used on this CPU: nothing on this architecture.
    ///
    /// # Safety
    /// No requirement; other instruction sets have some.
    pub unsafe fn enable(&self) {}

    /// The errata that the engine must work around on this processor.
    pub fn errata(&self) -> Errata {
        Errata {
            never_broadcast: self.workarounds.never_broadcast,
            interrupt_too: self.workarounds.interrupt_too,
            repeat: self.workarounds.repeat,
        }
    }

    /// Whether a user page that loses execute permission needs break before make (Cortex-A715 2645198): the kernel
    /// clears the entry, flushes, and then stores the new one.
    pub fn must_break_to_lose_execution(&self) -> bool {
        self.workarounds.break_to_lose_execution
    }

    fn asid(&self, tag: Tag) -> Asid {
        Asid::new(tag.0, self.asids).expect("tags lie below `tag_limit`")
    }

    /// The same for a tag whose entries are invalidated: there are none unless it was loaded, and that checked it.
    #[inline]
    fn loaded_asid(&self, tag: Tag) -> Asid {
        debug_assert!(Asid::new(tag.0, self.asids).is_some(), "tags lie below `tag_limit`");
        Asid::known_to_fit(tag.0)
    }

    /// Carries out a local invalidation; complete when [`local_sync`](Self::local_sync) returns.
    // Always: the caller's operation is constant, so this becomes a few instructions.
    #[inline(always)]
    pub fn invalidate(&self, what: Local) {
        let bits = |operand: Operand| operand.bits().expect("the form takes an operand");
        match what {
            Local::Page {
                address,
                tag,
                leaf_only: false,
                ..
            } => tlbi_vae1(bits(page(self.asid(tag), address))),
            Local::Page { address, tag, .. } => tlbi_vale1(bits(page(self.asid(tag), address))),
            Local::Tag(tag) => tlbi_aside1(bits(Operand::Tag(self.asid(tag)))),
            Local::Kernel { address, .. } => tlbi_vaale1(bits(page_of_any_tag(address))),
            Local::All => tlbi_vmalle1(),
        }
    }

    /// Waits for the local invalidations of this CPU.
    #[inline]
    pub fn local_sync(&self) {
        dsb_nsh();
        isb();
    }

    /// Loads `root` under `tag`, as the hook `load_root` requires.
    ///
    /// Without `keep`, the kernel's root is loaded while the tag's entries are invalidated: between TLBI and the load
    /// the processor cannot walk under the tag. With `keep`, a DSB follows the load: an ISB does not wait for walks by
    /// the previous root, whose tables may be freed next.
    ///
    /// # Safety
    /// `root` or TTBR1_EL1 maps the running code, its stack and data as they are now. The tables stay until another
    /// root is loaded. Interrupts are off.
    #[inline]
    pub unsafe fn load_root(&self, root: Root, tag: Tag, keep: bool) {
        let asid = self.asid(tag);
        if !keep {
            write_root(self.kernel_root, self.asid(Tag(0)));
            tlbi_aside1(Operand::Tag(asid).bits().expect("the form takes an operand"));
            // Also completes walks by the previous root.
            dsb_nsh();
        }
        write_root(root, asid);
        if keep {
            dsb_nsh();
        }
    }

    /// Pages in one broadcast: what range operations cover, otherwise one.
    #[inline]
    pub fn broadcast_limits(&self) -> Option<BroadcastLimits> {
        let pages = |stride: Stride| match self.ranges {
            true => (MOST_GRANULES << Granule::Size4K.shift() >> stride.shift()) as u32,
            false => 1,
        };
        Some(BroadcastLimits {
            max_pages: pages(Stride::Size4K),
            max_large_pages: pages(Stride::Size2M),
        })
    }

    /// A broadcast interrupts no CPU.
    #[inline]
    pub fn broadcast_interrupts(&self) -> bool {
        false
    }

    /// Issues a broadcast; complete when [`broadcast_sync`](Self::broadcast_sync) returns.
    ///
    /// # Errors
    /// None on this instruction set.
    // Always: the common flush names one page, which then stays in registers (`linux-baseline --arch aarch64 --only
    // counts`).
    #[inline(always)]
    pub fn broadcast(&self, what: Broadcast) -> Result<(), Refused> {
        match what {
            // What most flushes name. Ranges are left to a function, or their registers would be saved for a page too
            // (`linux-baseline --arch aarch64 --only counts`).
            Broadcast::Pages {
                address,
                count: 1,
                tag,
                leaf_only: true,
                ..
            } => tlbi_vale1is(
                page(self.loaded_asid(tag), address)
                    .bits()
                    .expect("the form takes an operand"),
            ),
            Broadcast::Pages {
                address,
                stride,
                count,
                tag,
                leaf_only,
            } => self.broadcast_pages(address, stride, count, self.asid(tag), leaf_only),
            Broadcast::Kernel {
                address,
                stride,
                count,
                leaf_only,
            } => self.broadcast_kernel(address, stride, count, leaf_only),
            Broadcast::Tag(tag) => {
                tlbi_aside1is(Operand::Tag(self.asid(tag)).bits().expect("the form takes an operand"))
            }
            // No form keeps the global entries: this invalidates more, never less (C6).
            Broadcast::NonGlobal | Broadcast::All => tlbi_vmalle1is(),
        }
        Ok(())
    }

    #[inline(never)]
    fn broadcast_pages(&self, address: u64, stride: Stride, count: u32, asid: Asid, leaf_only: bool) {
        let single = if leaf_only { tlbi_vale1is } else { tlbi_vae1is };
        let range = if leaf_only { tlbi_rvale1is } else { tlbi_rvae1is };
        self.cover(address, stride, count, asid, single, range);
    }

    #[inline(never)]
    fn broadcast_kernel(&self, address: u64, stride: Stride, count: u32, leaf_only: bool) {
        let single = if leaf_only { tlbi_vaale1is } else { tlbi_vaae1is };
        let range = if leaf_only { tlbi_rvaale1is } else { tlbi_rvaae1is };
        // The forms for every tag ignore the ASID.
        self.cover(address, stride, count, self.asid(Tag(0)), single, range);
    }

    /// Waits for the broadcasts of this CPU, and for accesses by other CPUs through the invalidated translations.
    #[inline]
    pub fn broadcast_sync(&self) {
        dsb_ish();
        // For kernel addresses: discards what this CPU has fetched through an old translation.
        isb();
    }

    /// Uses `single` if one page is named or there are no range operations, otherwise `range`. A range that range
    /// operations cannot name invalidates everything (C6).
    fn cover(&self, address: u64, stride: Stride, count: u32, asid: Asid, single: fn(u64), range: fn(u64)) {
        let one = |address| single(page(asid, address).bits().expect("the form takes an operand"));
        if count == 1 || !self.ranges {
            return (0..u64::from(count)).for_each(|index| one(address.wrapping_add(index << stride.shift())));
        }
        let granules = u64::from(count) << (stride.shift() - Granule::Size4K.shift());
        let cover = Cover::new(
            asid,
            address,
            granules,
            Granule::Size4K,
            Level::Unknown,
            self.wide_ranges,
        );
        let Some(cover) = cover else {
            return tlbi_vmalle1is();
        };
        cover.for_each(|step| match step {
            Step::Page(address) => one(address),
            Step::Range(operand) => range(operand),
        });
    }
}

/// Writes TTBR0_EL1; it takes effect from the next instruction.
#[inline]
fn write_root(root: Root, asid: Asid) {
    write_ttbr0(
        Ttbr::new(root.0, asid)
            .expect("roots are page-aligned and below 2^48")
            .bits(),
    );
    isb();
}

/// No level hint: a wrong one may invalidate nothing, and a larger page than the stride may be cached.
const fn page(asid: Asid, address: u64) -> Operand {
    Operand::Page(asid, address, Level::Unknown, Granule::Size4K)
}

const fn page_of_any_tag(address: u64) -> Operand {
    Operand::LeafOfAnyTag(address, Level::Unknown, Granule::Size4K)
}
