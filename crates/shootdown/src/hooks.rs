//! The hooks that the kernel implements: everything outside the engine, in one file.
//!
//! [`Kernel`] has six required functions and one required constant. The other functions have defaults that are right
//! for a machine without the feature. The crate `shootdown-cpu` provides those that only execute instructions;
//! `examples/minimal-*` are kernels around them. Each hook states when it is called and in which context. None may
//! allocate or call back into the engine; [`unpin`](Kernel::unpin) may switch to another thread, which may call
//! anything. Only [`secondary`](Kernel::secondary) and [`secondary_sync`](Kernel::secondary_sync) may take a lock, such
//! as that of an IOMMU's queue: with interrupts masked, and one that no CPU holds over a flush. Copy what other hooks
//! need before the first call: APIC ids that a lock protects into an array, indexed by CPU number.

use crate::adaptive::costs::Costs;
pub use crate::cpuset::CpuId;
use crate::cpuset::CpuMask;
use crate::design::Policy;
use crate::facade::Facade;
use crate::range::{Range, Stride};
use crate::stuck::Stuck;

/// A hardware tag: PCID on x86 (12 bits), ASID on Arm and RISC-V (8 or 16 bits).
///
/// On a machine without tags it is always 0 and means what is loaded. Hooks may ignore it: INVLPG for a page, a MOV to
/// CR3 for a whole tag, SFENCE.VMA with rs2 `x0` for both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Tag(pub u16);

/// The value of a root register: the physical address of the top table, opaque to the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Root(pub u64);

/// One local invalidation. [`Kernel::invalidate`] says when it has to be complete.
///
/// `stride` is the distance between the addresses that are invalidated: the smallest page of the range, not the size of
/// the page at each address. A larger page may be cached there, so do not derive a level hint from it. On Arm leave TTL
/// unknown, because an invalidation with a wrong level may do nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Local {
    /// The translation of one page of `stride` at `address` under `tag`, and every paging-structure-cache entry of that
    /// tag for that address (INVLPG if the tag is loaded, INVPCID type 0 if not; Arm VAE1).
    Page {
        /// First byte of the page.
        address: u64,
        /// The smallest page of the range; see above.
        stride: Stride,
        /// The tag whose entry is invalidated.
        tag: Tag,
        /// Only the leaf must be invalidated: no page-table page is being freed (Arm VALE1). Invalidating more is
        /// allowed.
        leaf_only: bool,
    },
    /// Every non-global entry under `tag`, paging-structure entries included (INVPCID type 1, ASIDE1).
    Tag(Tag),
    /// The leaf translation of one kernel page under every tag (INVLPG of a global mapping, VAALE1). Used only where
    /// kernel mappings are global or the loaded tag is invalidated as well. Never used when kernel page-table pages are
    /// freed: INVLPG leaves the paging-structure-cache entries of tags that are not loaded.
    Kernel {
        /// First byte of the page.
        address: u64,
        /// The smallest page of the range; see above.
        stride: Stride,
    },
    /// Everything on this CPU, global entries included (INVPCID type 2, CR4.PGE toggle, VMALLE1).
    All,
}

/// One broadcast invalidation. It reaches every CPU of the machine, and is asynchronous until
/// [`Kernel::broadcast_sync`].
///
/// `stride` as in [`Local`]: no level hint may be derived from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Broadcast {
    /// `count` pages of `stride` from `address` under `tag`; `count` is at most the limit for that stride.
    Pages {
        /// First byte of the first page.
        address: u64,
        /// Distance between the pages; see above.
        stride: Stride,
        /// Number of pages, from 1 (not "extra pages": the encoder subtracts).
        count: u32,
        /// The tag whose entries are invalidated.
        tag: Tag,
        /// Only leaves must be invalidated (INVLPGB "final translation only").
        leaf_only: bool,
    },
    /// Every non-global entry under `tag`.
    Tag(Tag),
    /// `count` pages under every tag, including global entries (INVLPGB without a valid PCID). For kernel pages and,
    /// where reach is adaptive, for user pages of a space without a system-wide tag.
    Kernel {
        /// First byte of the first page.
        address: u64,
        /// Distance between the pages; see above.
        stride: Stride,
        /// Number of pages, from 1.
        count: u32,
        /// Only leaves must be invalidated (INVLPGB "final translation only", Arm VAALE1IS, a remote fence of an
        /// address). Otherwise the paging-structure-cache entries for these addresses go too: a fence of RISC-V leaves
        /// them, so there it is one of everything.
        leaf_only: bool,
    },
    /// Every non-global entry under every tag. Arm and the firmware of RISC-V have no such form and invalidate global
    /// entries as well (VMALLE1IS, a remote fence without ASID).
    NonGlobal,
    /// Everything, global entries included.
    All,
}

/// The limits of the broadcast hardware. Read from CPUID once it is known; until then the kernel reports `None`
/// (regression 4: a count of 0 read before CPUID made an early flush loop forever).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BroadcastLimits {
    /// Most 4 KiB pages in one instruction, at least 1 (CPUID 8000_0008 EDX\[15:0\] + 1).
    pub max_pages: u32,
    /// Most 2 MiB pages in one instruction, at least 1.
    pub max_large_pages: u32,
}

/// A notification for TLBs that belong to no CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Secondary {
    /// Entries in this range were withdrawn: invalidate their translations and, with [`Range::tables`], every cached
    /// pointer to a page-table page for these addresses.
    Flush(Range),
    /// The space ends: invalidate its translations. Its tables may not be walked any more.
    End,
}

/// A way of reaching other CPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// No other CPU had to be reached.
    Local,
    /// By interrupts.
    Interrupts,
    /// By broadcast.
    Broadcast,
}

/// How a CPU carried out a request from another CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// Translations were invalidated.
    Flushed,
    /// The space is loaded, and had already caught up.
    Current,
    /// The space was loaded in lazy TLB mode, or had to give way, and has been unloaded.
    Unloaded,
    /// The space is not loaded here.
    Elsewhere,
}

/// Engine events, for statistics and timelines. Reported only when something noteworthy happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A flush needed no other CPU.
    LocalOnly,
    /// A flush interrupted this many CPUs. CPUs with an interrupt already pending are not counted.
    Interrupted {
        /// CPUs that needed an interrupt.
        sent: u32,
        /// CPUs waited for.
        targets: u32,
    },
    /// A flush went out as this many broadcast instructions.
    Broadcast {
        /// Instructions before the synchronising one.
        instructions: u32,
    },
    /// An unmap was deferred: it interrupted no CPU, and this many frames wait.
    Deferred {
        /// Frames in quarantine.
        frames: u32,
    },
    /// A CPU has answered a request to flush a space, or caught up on request.
    Answered(Answer),
    /// A CPU caught up with a space, page by page.
    CaughtUpPartly,
    /// A CPU caught up by flushing a whole tag.
    CaughtUpWhole,
    /// A space was promoted to a system-wide tag.
    Promoted,
    /// A space should have been promoted, but no tag was free.
    TagsExhausted,
    /// System-wide tags rolled over.
    RollOver,
    /// A space changed between registered (sticky) and published (precise) walks.
    WalksChanged,
    /// Costs were measured at start.
    Calibrated(Costs),
    /// A request chose between interrupts and broadcast by cost, under per-CPU tags.
    Chose {
        /// The way taken.
        way: Way,
        /// Number of other CPUs.
        targets: u32,
    },
    /// A timed request: one in [`sample_one_in`](crate::Policy::sample_one_in).
    Measured {
        /// The way it went.
        way: Way,
        /// Number of other CPUs; 0 for a broadcast.
        targets: u32,
        /// Expected time of the requester, ns.
        expected_ns: u64,
        /// Measured time of the requester, ns.
        took_ns: u64,
    },
    /// Corrected costs moved the number of other CPUs at which requests are broadcast.
    ThresholdMoved {
        /// Before.
        from: u64,
        /// After; `u64::MAX` for never.
        to: u64,
        /// The number of other CPUs whose costs decided.
        targets: u64,
        /// Expected cost to the machine of interrupting that many, ns.
        interrupts_ns: u64,
        /// Expected cost to the machine of a broadcast, ns.
        broadcast_ns: u64,
    },
    /// A space that was found active on `active` CPUs should get a system-wide tag.
    Promoting {
        /// CPUs on which it is active, at least.
        active: u32,
        /// Where cost decides: expected cost of a request without a tag, and with one; ns.
        costs: Option<(u64, u64)>,
    },
    /// A space begins to give up its system-wide tag.
    Demoting {
        /// CPUs on which it is active.
        active: u32,
        /// Why.
        reason: Demotion,
    },
    /// A space is back on per-CPU tags, and its tag is free.
    Demoted,
}

/// Why a space gives up its system-wide tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Demotion {
    /// It is active on few CPUs.
    Shrunk,
    /// It is active on few CPUs, and other spaces need its tag.
    TagsShort,
    /// Its requests are expected to cost less `without` a tag than `with` it; ns.
    BroadcastCost {
        /// By interrupts, and by CPUs that catch up.
        without: u64,
        /// By a broadcast.
        with: u64,
    },
}

/// The hooks. `W` is the number of 64-bit words in a CPU set: machines of up to `64 * W` CPUs.
///
/// Required: [`PREEMPTIBLE`](Kernel::PREEMPTIBLE), [`cpu`](Kernel::cpu), [`interrupts_off`](Kernel::interrupts_off),
/// [`interrupts_restore`](Kernel::interrupts_restore), [`send_ipi`](Kernel::send_ipi),
/// [`invalidate`](Kernel::invalidate), [`load_root`](Kernel::load_root).
///
/// # Safety
/// Each hook does what it says. In particular: no two CPUs have the same [`cpu`](Kernel::cpu) at the same time. Between
/// [`interrupts_off`](Kernel::interrupts_off) and [`interrupts_restore`](Kernel::interrupts_restore) no other code runs
/// on this CPU, except NMI handlers where the documentation of a call allows them. A [`pin`](Kernel::pin) prevents
/// migration of its caller. The engine relies on this: handlers find spaces alive, and a frame that is proved free is
/// free.
#[doc = include_str!("../doc/kernel.md")]
pub unsafe trait Kernel<const W: usize>: Sync {
    /// Whether a thread inside an engine call can be preempted or can migrate. There is no default: if a caller
    /// migrates unnoticed, the engine invalidates on the wrong CPU.
    ///
    /// `false` for a kernel that never preempts its own code, or that makes these calls only with interrupts off.
    /// `true` does not compile without [`pin`](Kernel::pin) and [`unpin`](Kernel::unpin):
    ///
    /// ```compile_fail
    /// # use shootdown::*;
    /// # struct MyKernel;
    /// unsafe impl Kernel<1> for MyKernel {
    ///     const PREEMPTIBLE: bool = true; // and no `pin`
    ///     // ...
    /// #     type Facade = Native;
    /// #     fn cpu(&self) -> CpuId { 0 }
    /// #     fn interrupts_off(&self) -> u64 { 0 }
    /// #     fn interrupts_restore(&self, _saved: u64) {}
    /// #     fn send_ipi(&self, _targets: &CpuMask<1>) {}
    /// #     fn invalidate(&self, _what: Local) {}
    /// #     fn load_root(&self, _root: Root, _tag: Tag, _keep: bool) {}
    /// }
    /// fn unmap(engine: &Engine<MyKernel, 1>, space: &Space<Native, 1>) {
    ///     let _ = engine.flush(space, Range::page(0x1000));
    /// }
    /// # fn main() { let _: fn(&Engine<MyKernel, 1>, &Space<Native, 1>) = unmap; }
    /// ```
    const PREEMPTIBLE: bool;

    /// The policy, if it is fixed at compile time: the compiler then removes what it does not use, and
    /// [`Engine::new`](crate::Engine::new) must receive the same one. `None` if it is chosen at boot.
    const POLICY: Option<Policy> = None;

    /// Whether each CPU's state lies by itself, on its own node ([`Engine::scattered`](crate::Engine::scattered)).
    const SCATTERED: bool = false;

    /// The facade whose atomics the engine uses.
    type Facade: Facade;

    /// The CPU on which this runs. Called with interrupts off or pinned, so the answer stays true; by waiters that may
    /// migrate, for which an outdated answer is good enough; and in NMI context, by calls that are allowed there.
    fn cpu(&self) -> CpuId;

    /// Masks interrupts on this CPU; returns what [`interrupts_restore`](Kernel::interrupts_restore) needs.
    fn interrupts_off(&self) -> u64;

    /// Restores the mask that [`interrupts_off`](Kernel::interrupts_off) returned.
    fn interrupts_restore(&self, saved: u64);

    /// Whether interrupts are off on this CPU. `true` is always correct. `false` lets a policy with
    /// [`Wait::Spin`](crate::Wait::Spin) or [`Wait::Preemptible`](crate::Wait::Preemptible) leave requests to an
    /// interrupt, which must then arrive during the wait. Called once for each wait.
    #[inline]
    fn interrupts_are_off(&self) -> bool {
        true
    }

    /// Raises the shootdown interrupt, which carries no payload, on every CPU in `targets` (never the sender). Their
    /// handlers acknowledge it at the controller, then call `Engine::on_ipi`. Called pinned, with interrupts on or off.
    /// A target that went offline since is not waited for. The handlers must see what this CPU wrote before the call
    /// ([`before_ipi`](Facade::before_ipi) was called). On x86 in x2APIC mode, whose ICR write is no store, that takes
    /// `mfence; lfence` before it (Intel SDM 3A, "MSR access in x2APIC mode").
    fn send_ipi(&self, targets: &CpuMask<W>);

    /// [`send_ipi`](Kernel::send_ipi) to one CPU, as most requests need. Saves the dozen instructions that walk a set.
    #[inline]
    fn send_ipi_to(&self, target: CpuId) {
        self.send_ipi(&CpuMask::of(target));
    }

    /// Carries out one local invalidation. It is complete on return, or at the latest when
    /// [`local_sync`](Kernel::local_sync) on the same CPU returns. Called pinned or with interrupts off.
    fn invalidate(&self, what: Local);

    /// Waits until the local invalidations of this CPU are complete and visible to the code that follows. For
    /// processors whose invalidations are asynchronous (Arm `dsb nsh; isb`, RISC-V with Svinval `sfence.inval.ir`).
    /// Called after every group of [`invalidate`](Kernel::invalidate), before their completion is reported, on the same
    /// CPU, pinned or with interrupts off. Nothing to do where each is complete on return (x86, SFENCE.VMA).
    #[inline]
    fn local_sync(&self) {}

    /// Loads `root` under `tag`. With `keep`, entries under the tag survive (x86 NOFLUSH). Without, every non-global
    /// entry under the tag, including paging-structure-cache entries, is gone before the processor can walk under the
    /// tag even once. MOV to CR3 does both in one step. Where loading and invalidating are two instructions, no walk
    /// may happen between them. First switch to a tag that maps nothing, invalidate, wait for completion, and load then
    /// (Arm: a reserved TTBR0 with ISB, TLBI ASIDE1, DSB NSH, then the root with ISB).
    ///
    /// When it returns, no walk by the previous root is in progress, and later fills use this root. From then on
    /// page-table pages of the old space are freed without a request to this CPU (C3). A walk still in progress could
    /// read them, or write accessed and dirty bits there. On Arm, ending walks takes ISB and then DSB NSH: an ISB does
    /// not wait for walks (Arm ARM, R_LFHQG). On RISC-V a write of satp flushes nothing, and the specification does not
    /// say when walks in progress end. An SFENCE.VMA after it must name the ASID that is left, unless the harts end
    /// walks there.
    ///
    /// On a machine without tags ([`Machine::NO_TAGS`](crate::Machine::NO_TAGS)) `tag` is always 0 and `keep` always
    /// false: every non-global entry of this CPU is invalidated. A MOV to CR3 with CR4.PCIDE clear does that by itself.
    /// A write of satp does not: an SFENCE.VMA with rs1 and rs2 `x0` must follow it.
    ///
    /// Called with interrupts off, from calls that switch, leave lazy TLB mode, serve requests or retire a space.
    fn load_root(&self, root: Root, tag: Tag, keep: bool);

    /// The limits of the broadcast hardware; `None` if there is none.
    #[inline]
    fn broadcast_limits(&self) -> Option<BroadcastLimits> {
        None
    }

    /// Whether a broadcast is carried out by interrupting every other CPU, as the firmware of RISC-V does (SBI RFENCE).
    /// It then takes time from CPUs that run something else, which the requester's clock does not see. Any context.
    #[inline]
    fn broadcast_interrupts(&self) -> bool {
        false
    }

    /// Whether broadcasts are *targeted* at CPUs, as the remote actions of Intel processors are ([`Rar`](crate::Rar)).
    /// Those under one tag then go through [`broadcast_to`](Kernel::broadcast_to), to CPUs that may hold entries under
    /// it. Pages under every tag, which no action names, are requested only as kernel pages ([`Broadcast::Kernel`];
    /// invalidating more is correct). Any context; the answer never changes.
    #[inline]
    fn broadcast_is_targeted(&self) -> bool {
        false
    }

    /// As [`broadcast`](Kernel::broadcast), only to `targets`, which were recently online and never include this CPU.
    /// Called pinned, only where broadcasts are targeted. A target that goes offline need not be waited for: it flushes
    /// everything before it is online again.
    fn broadcast_to(&self, _targets: &CpuMask<W>, what: Broadcast) {
        self.broadcast(what);
    }

    /// Issues one broadcast invalidation. Asynchronous. Called pinned, only where there are limits. A refused broadcast
    /// (SBI can return an error) has flushed nothing. The hook must then make every CPU flush everything by the
    /// kernel's own interrupt, and wait (`shootdown_cpu::FlushByIpi`).
    fn broadcast(&self, _what: Broadcast) {
        unreachable!("broadcast() called on a kernel that reports no broadcast limits")
    }

    /// Waits until every broadcast *issued by this CPU* is complete everywhere, and with it every access by other CPUs
    /// through the invalidated translations. Called pinned, on the issuing CPU.
    ///
    /// The hook does not know whether kernel addresses were among them. On Arm an ISB therefore always follows the DSB;
    /// without it this CPU may execute instructions that it fetched through an old translation.
    ///
    /// A full barrier is required either here, as in Arm's `dsb ish`, or in [`publish_tables`](Facade::publish_tables).
    fn broadcast_sync(&self) {
        unreachable!("broadcast_sync() called on a kernel that reports no broadcast limits")
    }

    /// Forbids migration and preemption until [`unpin`](Kernel::unpin). Nests. With waits that spin it lasts until
    /// every target has answered (see [`Wait::Spin`](crate::Wait::Spin)); with preemptible waits until the interrupts
    /// are sent. Required where [`PREEMPTIBLE`](Kernel::PREEMPTIBLE) is true.
    #[inline]
    fn pin(&self) {
        const { assert!(!Self::PREEMPTIBLE, "a preemptible kernel implements `pin`") };
    }

    /// Ends one [`pin`](Kernel::pin). Ending the last one is where a preemption that became due takes place. Required
    /// where [`PREEMPTIBLE`](Kernel::PREEMPTIBLE) is true.
    #[inline]
    fn unpin(&self) {
        const { assert!(!Self::PREEMPTIBLE, "a preemptible kernel implements `unpin`") };
    }

    /// Monotonic time in nanoseconds. Used for sampling windows, for stuck reports and, where reach is adaptive, to
    /// time requests. Requests take a few hundred nanoseconds, so steps up to that length are fine enough. If
    /// [`calibrate`](crate::Engine::calibrate) cannot resolve anything (a tick of milliseconds), costs keep their
    /// assumed values. A constant disables the reports, and leaves promotion to the CPUs whose window it selects.
    #[inline]
    fn now_ns(&self) -> u64 {
        0
    }

    /// Asks the hypervisor to flush everything under every tag of virtual CPU `cpu`, paging-structure-cache entries
    /// included, before that CPU runs again. Returns true if it will, because the CPU is descheduled: the CPU is then
    /// neither interrupted nor waited for. Returns false if the CPU runs, or may run.
    ///
    /// Testing that it is descheduled and leaving the request must be one atomic step, and the entry must be atomic
    /// against it. KVM uses a compare-exchange of "preempted" for "preempted, flush", and at entry an exchange for 0. A
    /// query followed by a store loses the request to an entry between the two (CVE-2019-3016). Called pinned, after
    /// the entry writes and a full barrier. Never called where page-table pages are freed or lockless walks are
    /// concerned: a CPU may be descheduled in the middle of a walk.
    #[inline]
    fn flush_at_entry(&self, _cpu: CpuId) -> bool {
        false
    }

    /// Notifies TLBs that belong to no CPU of a flush of the space with top table `root`, or of the kernel's: an IOMMU
    /// that shares page tables, a guest's second stage. Called for every flush of any kind, and at the end of a space.
    /// Called twice if an unmap should be deferred but could not be. Pinned, after the entry writes and a full barrier,
    /// or, if a kernel flush is broadcast, [`publish_tables`](Facade::publish_tables). If the device's walker needs
    /// more to see those writes, the hook must supply it (on Arm a DSB before the command is issued). A change of tag
    /// is not notified: tags belong to the CPUs.
    ///
    /// May return before it is carried out. It then returns a ticket for [`secondary_sync`](Kernel::secondary_sync):
    /// not 0, and never lower than one returned earlier. 0 says that there is nothing to wait for.
    #[inline]
    fn secondary(&self, _root: Root, _invalidation: Secondary) -> u64 {
        0
    }

    /// Waits until everything up to `ticket` is carried out (C1 to C3 for those TLBs). Called once per flush or batch,
    /// after all CPUs have answered, perhaps on another CPU than the notification; not pinned. It may not depend on
    /// another CPU, which could be waiting for this one.
    #[inline]
    fn secondary_sync(&self, _ticket: u64) {}

    /// This CPU has left the space with that root, and the kernel's root is loaded: another CPU requested it while the
    /// space was loaded in lazy TLB mode, or the space ends, or the kernel called
    /// [`switch_to_kernel`](crate::Engine::switch_to_kernel) or [`cpu_offline`](crate::Engine::cpu_offline). For
    /// kernels that keep a loaded space of their own. Not called where another space is loaded instead. The space still
    /// exists. Interrupts are off.
    #[inline]
    fn unloaded(&self, _root: Root) {}

    /// A CPU has not answered within the configured bound. Log it; the wait continues.
    fn stuck(&self, _report: Stuck) {}

    /// Statistics. Must be cheap.
    #[inline]
    fn event(&self, _event: Event) {}
}
