//! SFENCE.VMA, Svinval, satp, and remote fences.

use super::instructions::*;
use super::sbi;
use crate::Refused;
use shootdown::{Broadcast, BroadcastLimits, Errata, Local, Machine, Root, Stride, Tag};
use shootdown_arch::riscv64::{Asid, AsidWidth, Fence, HartMask, Mode, RemoteFence, Satp, rfence};

/// The features of the harts of this machine, and which are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Processor {
    /// `None` if there are none, or too few to be used.
    asids: Option<AsidWidth>,
    mode: Mode,
    svinval: bool,
    /// Pages under tags below this are invalidated by SFENCE.VMA with their ASID: all tags, or none with Svinval or
    /// without ASIDs. Follows from the two; kept because most shootdowns invalidate one page, and compare once.
    fenced_by_asid: u32,
    remote_fences: bool,
    /// See [`trusting_root_loads`](Processor::trusting_root_loads).
    root_loads_end_walks: bool,
    kernel_root: Root,
}

/// Fewer ASID bits than this are not used: the kernel's ASID and a few slots would not fit.
const LEAST_BITS: u32 = 4;

impl Processor {
    /// Detects the features of this hart and of the firmware. `kernel_root` is the one that the engine has: it maps
    /// only global entries, so it can be loaded while entries under an ASID are fenced. On machines with different
    /// harts call it on each, and use the features [in common](Self::common_with).
    ///
    /// Call it in supervisor mode with tables loaded. It masks interrupts meanwhile, and drops every translation of
    /// this hart.
    ///
    /// # Panics
    /// If satp is in a mode without tables, or in one other than Sv39, Sv48 or Sv57.
    pub fn discover(kernel_root: Root) -> Processor {
        let satp = read_satp();
        let mode = Mode::of(satp).expect("satp is in mode Sv39, Sv48 or Sv57");
        let saved = super::interrupts_off();
        write_satp(AsidWidth::probe(satp));
        let width = AsidWidth::from_read_back(read_satp());
        write_satp(satp);
        sfence_vma();
        super::interrupts_restore(saved);
        Processor {
            asids: None,
            mode,
            svinval: false,
            fenced_by_asid: 0,
            remote_fences: sbi::has(rfence::EXTENSION),
            root_loads_end_walks: false,
            kernel_root,
        }
        .with(Some(width), false)
    }

    /// With ASIDs of that width, unless they are too few.
    fn with(self, width: Option<AsidWidth>, svinval: bool) -> Processor {
        let asids = width.filter(|width| width.bits() >= LEAST_BITS);
        Processor {
            asids,
            svinval,
            fenced_by_asid: asids.filter(|_| !svinval).map_or(0, AsidWidth::count),
            ..self
        }
    }

    /// All harts have Svinval (device tree: `riscv,isa`): invalidations share one wait.
    pub fn with_svinval(self) -> Processor {
        self.with(self.asids, true)
    }

    /// Uses at most this many bits of ASIDs; 0 for none. For a kernel with its own use for the others, and for tests.
    pub fn with_asid_bits(self, bits: u32) -> Processor {
        self.with(self.asids.map(|width| width.at_most(bits)), self.svinval)
    }

    /// The engine requires that no walk by the previous root is in progress after a root load. With this setting the
    /// write of satp itself guarantees that, and entries under the ASID that is left stay.
    ///
    /// # Safety
    /// A hart stops walking by the old root when satp is written. The privileged specification lets a hart read only
    /// tables that the current satp leads to (`norm:sfence_vma_implicit_access`). It does not say when a walk in
    /// progress must end, nor does it mention Svadu's writes. On a hart without this property, a walk in progress may
    /// read, and with Svadu write, a freed page-table page.
    pub unsafe fn trusting_root_loads(self) -> Processor {
        Processor {
            root_loads_end_walks: true,
            ..self
        }
    }

    /// The features of both.
    pub fn common_with(self, other: Processor) -> Processor {
        let asids = self.asids.zip(other.asids).map(|(one, other)| one.narrowest(other));
        Processor {
            remote_fences: self.remote_fences && other.remote_fences,
            root_loads_end_walks: self.root_loads_end_walks && other.root_loads_end_walks,
            ..self
        }
        .with(asids, self.svinval && other.svinval)
    }

    /// One past the last tag, for the engine's `tag_limit`; 1 if ASIDs are not used.
    pub fn tag_limit(&self) -> u32 {
        self.asids.map_or(Machine::NO_TAGS.tag_limit, AsidWidth::count)
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

    /// The errata that the engine must work around on this processor: none is known.
    pub fn errata(&self) -> Errata {
        Errata::NONE
    }

    /// Without ASIDs every space is under ASID 0.
    fn asid(&self, tag: Tag) -> Option<Asid> {
        self.asids
            .map(|width| Asid::new(tag.0, width).expect("tags lie below `tag_limit`"))
    }

    /// The fence for a page under a tag. With an address it covers only leaves, so a freed table needs a fence of the
    /// whole tag. Without ASIDs an entry may belong to any space.
    fn page(&self, address: u64, tag: Tag, leaf_only: bool) -> Fence {
        match (self.asid(tag), leaf_only) {
            (Some(asid), true) => Fence::LeafOfTag(address, asid),
            (Some(asid), false) => Fence::Tag(asid),
            (None, true) => Fence::Leaf(address),
            (None, false) => Fence::All,
        }
    }

    fn tag(&self, tag: Tag) -> Fence {
        self.asid(tag).map_or(Fence::All, Fence::Tag)
    }

    /// Carries out a local invalidation. With Svinval it is complete when [`local_sync`](Self::local_sync) returns,
    /// otherwise at once.
    // Always inlined, with what most shootdowns do: there the operation is known. What is passed to a function is a
    // register, because an operation would first be built in memory, also for those that need no function
    // (`linux-baseline --only counts`).
    #[inline(always)]
    pub fn invalidate(&self, what: Local) {
        if let Local::Page {
            address,
            tag,
            leaf_only: true,
            ..
        } = what
        {
            if u32::from(tag.0) < self.fenced_by_asid {
                sfence_vma_both(address, u64::from(tag.0));
            } else {
                self.invalidate_leaf(address, tag);
            }
        } else {
            self.invalidate_otherwise(what);
        }
    }

    /// The page at `address` under `tag`, on every processor.
    #[inline(never)]
    fn invalidate_leaf(&self, address: u64, tag: Tag) {
        self.carry_out(self.page(address, tag, true));
    }

    /// As [`invalidate`](Self::invalidate), for any operation.
    #[inline(never)]
    fn invalidate_otherwise(&self, what: Local) {
        self.carry_out(match what {
            Local::Page {
                address,
                tag,
                leaf_only,
                ..
            } => self.page(address, tag, leaf_only),
            Local::Tag(tag) => self.tag(tag),
            Local::Kernel { address, .. } => Fence::Leaf(address),
            Local::All => Fence::All,
        });
    }

    #[inline]
    fn carry_out(&self, fence: Fence) {
        if self.svinval {
            sinval(fence);
        } else {
            sfence(fence);
        }
    }

    /// Waits for the local invalidations of this CPU.
    #[inline]
    pub fn local_sync(&self) {
        if self.svinval {
            sfence_inval_ir();
        }
    }

    /// Loads `root` under `tag`, as the hook `load_root` requires.
    ///
    /// A write of satp orders nothing and drops nothing, with ASIDs or without. Without `keep`, the kernel's root is
    /// loaded while the tag's entries are invalidated: between the fence and the load nothing is filled under the tag.
    /// The ASID that is left is fenced too, because walks by its root could otherwise continue. That drops its entries,
    /// unless root loads [are trusted](Self::trusting_root_loads).
    ///
    /// # Safety
    /// `root` maps the running code, its stack and data as they are now. The tables stay until another root is loaded.
    /// Interrupts are off.
    #[inline]
    pub unsafe fn load_root(&self, root: Root, tag: Tag, keep: bool) {
        let Some(asid) = self.asid(tag) else {
            return self.load_untagged(root);
        };
        let left = Satp::decode(read_satp()).map_or(0, Satp::asid);
        if !keep {
            write_satp(self.satp(self.kernel_root, self.kernel_asid()));
            sfence(Fence::Tag(asid));
        }
        write_satp(self.satp(root, asid));
        // ASID 0 is for the kernel's tables, which are freed only after a flush of everything.
        if left != 0 && left != asid.get() && !self.root_loads_end_walks {
            sfence_vma_asid(u64::from(left));
        }
    }

    /// As [`load_root`](Self::load_root) without ASIDs. The kernel's root may leave invalid entries cached, so the last
    /// fence comes after the load.
    fn load_untagged(&self, root: Root) {
        write_satp(self.satp(self.kernel_root, self.kernel_asid()));
        sfence_vma();
        write_satp(self.satp(root, self.kernel_asid()));
        sfence_vma();
    }

    fn kernel_asid(&self) -> Asid {
        Asid::new(0, AsidWidth::from_read_back(0)).expect("there is always ASID 0")
    }

    fn satp(&self, root: Root, asid: Asid) -> u64 {
        let satp = Satp::new(self.mode, root.0, asid);
        satp.expect("roots are page-aligned and below 2^56").bits()
    }

    /// Pages in one remote fence: any number; `None` if the firmware has none.
    #[inline]
    pub fn broadcast_limits(&self) -> Option<BroadcastLimits> {
        self.remote_fences.then_some(BroadcastLimits {
            max_pages: MOST_PAGES,
            max_large_pages: MOST_PAGES,
        })
    }

    /// The firmware interrupts every hart.
    #[inline]
    pub fn broadcast_interrupts(&self) -> bool {
        true
    }

    /// Fences every hart; complete on return. Not while a hart stops: see [`broadcast_to`](Self::broadcast_to).
    ///
    /// # Errors
    /// If the firmware refuses. Then nothing has been flushed: interrupt every CPU, and have it flush everything.
    #[inline]
    pub fn broadcast(&self, what: Broadcast) -> Result<(), Refused> {
        self.fence(HartMask::ALL, what)
    }

    /// The same on these harts alone; ascending numbers share calls of the firmware. For a kernel that stops harts
    /// (HSM): OpenSBI waits forever for one that runs when the call begins and stops before it has fenced. Leave such
    /// a hart out, let it wait for the fences that have begun, then stop it. It flushes everything when it is back.
    ///
    /// # Errors
    /// If the firmware refuses, as above. Some harts may have fenced.
    #[inline]
    pub fn broadcast_to(&self, what: Broadcast, harts: impl IntoIterator<Item = u64>) -> Result<(), Refused> {
        HartMask::covering(harts).try_for_each(|harts| self.fence(harts, what))
    }

    #[inline]
    fn fence(&self, harts: HartMask, what: Broadcast) -> Result<(), Refused> {
        let bytes = |stride: Stride, count: u32| u64::from(count) << stride.shift();
        let (fence, bytes) = match what {
            Broadcast::Pages {
                address,
                stride,
                count,
                tag,
                leaf_only,
            } => (self.page(address, tag, leaf_only), bytes(stride, count)),
            Broadcast::Tag(tag) => (self.tag(tag), 0),
            Broadcast::Kernel {
                address,
                stride,
                count,
                leaf_only: true,
            } => (Fence::Leaf(address), bytes(stride, count)),
            // With an address only leaves are fenced, and here tables are freed.
            Broadcast::Kernel { .. } | Broadcast::NonGlobal | Broadcast::All => (Fence::All, 0),
        };
        let (arguments, function) = RemoteFence { harts, fence, bytes }.arguments();
        // SAFETY: dropping cached translations is always correct.
        let fenced = unsafe { sbi::call(rfence::EXTENSION, function, arguments) };
        fenced.map(drop).map_err(|sbi::Error(error)| Refused(error))
    }

    /// Waits for the broadcasts of this CPU: each is complete when it returns.
    #[inline]
    pub fn broadcast_sync(&self) {}
}

/// Most pages of a remote fence: as many as a range operation of Arm names. Assumed; above a few dozen firmware fences
/// everything (OpenSBI: `tlb_range_flush_limit`).
const MOST_PAGES: u32 = 1 << 21;

#[inline]
fn sfence(fence: Fence) {
    match fence.operands() {
        (None, None) => sfence_vma(),
        (None, Some(asid)) => sfence_vma_asid(asid),
        (Some(address), None) => sfence_vma_address(address),
        (Some(address), Some(asid)) => sfence_vma_both(address, asid),
    }
}

/// With Svinval. Orders earlier reads and writes of this hart before each invalidation: nothing else in the handler of
/// a shootdown does.
#[inline]
fn sinval(fence: Fence) {
    sfence_w_inval();
    match fence.operands() {
        (None, None) => sinval_vma(),
        (None, Some(asid)) => sinval_vma_asid(asid),
        (Some(address), None) => sinval_vma_address(address),
        (Some(address), Some(asid)) => sinval_vma_both(address, asid),
    }
}
