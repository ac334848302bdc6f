//! What the kernel implements: everything outside the engine, in one file.
//!
//! [`Kernel`] has six required functions and one required constant; the rest have defaults that are right for a machine
//! without the feature.
//! Crate `shootdown-cpu` fills in those that only execute instructions; `examples/minimal-*` are kernels around them.
//! Each says when it is called and in which context. None may allocate, take a lock, or call back into the engine; but
//! [`unpin`](Kernel::unpin) may switch to another thread, which calls what it likes.

use crate::adaptive::costs::Costs;
use crate::cpuset::CpuMask;
use crate::design::Policy;
use crate::facade::Facade;
use crate::range::{Range, Stride};

/// The number of a CPU, from 0, dense. Not an APIC id: translating is the implementation's job (regression 19).
pub type CpuId = usize;

/// A hardware tag: PCID on x86 (12 bits), ASID on Arm and RISC-V (8 or 16 bits).
///
/// On a machine without tags it is always 0 and means what is loaded. Hooks may ignore it: a page goes by INVLPG, a
/// whole tag by a MOV to CR3, and both by SFENCE.VMA with rs2 `x0`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Tag(pub u16);

/// What a root register holds: the physical address of the top table, opaque to the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Root(pub u64);

/// One local invalidation. [`Kernel::invalidate`] says when it has to be complete.
///
/// `stride` is the distance between the addresses that are invalidated: the smallest page of the range, not the size of
/// the page at each address. A larger page may be cached there. Derive no level hint from it: on Arm leave TTL unknown,
/// because an invalidation with a wrong level may do nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Local {
    /// The translation of one page of `stride` at `address` under `tag`, together with every paging-structure entry of
    /// that tag on the way to it (INVLPG when the tag is loaded, INVPCID type 0 when not; Arm VAE1).
    Page {
        /// First byte of the page.
        address: u64,
        /// The smallest page of the range; see above.
        stride: Stride,
        /// The tag whose entry goes.
        tag: Tag,
        /// Only the leaf need go: no table page is being freed (Arm VALE1). Removing more is allowed.
        leaf_only: bool,
    },
    /// Every non-global entry under `tag`, paging-structure entries included (INVPCID type 1, ASIDE1).
    Tag(Tag),
    /// The leaf translation of one kernel page under every tag (INVLPG of a global mapping, VAALE1). Asked for only
    /// where kernel mappings are global or the loaded tag is treated besides, and never when kernel table pages are
    /// freed: INVLPG leaves paging-structure entries of tags that are not loaded.
    Kernel {
        /// First byte of the page.
        address: u64,
        /// The smallest page of the range; see above.
        stride: Stride,
    },
    /// Everything on this CPU, global entries included (INVPCID type 2, CR4.PGE toggle, VMALLE1).
    All,
}

/// One broadcast invalidation: reaches every CPU of the machine, asynchronously until [`Kernel::broadcast_sync`].
///
/// `stride` as in [`Local`]: no level hint follows from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Broadcast {
    /// `count` pages of `stride` from `address` under `tag`; `count` is at most the limit for that stride.
    Pages {
        /// First byte of the first page.
        address: u64,
        /// Distance between the pages; see above.
        stride: Stride,
        /// How many pages, from 1 (not "extra pages": the encoder subtracts).
        count: u32,
        /// The tag whose entries go.
        tag: Tag,
        /// Only leaves need go (INVLPGB "final translation only").
        leaf_only: bool,
    },
    /// Every non-global entry under `tag`.
    Tag(Tag),
    /// `count` pages under every tag, global entries and the paging-structure entries on the way included (INVLPGB
    /// without a valid PCID, "final translation only" clear): kernel pages, and where reach is adaptive user pages of a
    /// space without a system-wide tag.
    Kernel {
        /// First byte of the first page.
        address: u64,
        /// Distance between the pages; see above.
        stride: Stride,
        /// How many pages, from 1.
        count: u32,
    },
    /// Every non-global entry under every tag. Arm and the firmware of RISC-V have no such form: global entries go too
    /// (VMALLE1IS, a remote fence without ASID).
    NonGlobal,
    /// Everything, global entries included.
    All,
}

/// What the broadcast hardware can do. Read from CPUID once it is known; until then the kernel reports `None`
/// (regression 4: a count of 0 read before CPUID made an early flush loop for ever).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BroadcastLimits {
    /// Most 4 KiB pages in one instruction, at least 1 (CPUID 8000_0008 EDX\[15:0\] + 1).
    pub max_pages: u32,
    /// Most 2 MiB pages in one instruction, at least 1.
    pub max_large_pages: u32,
}

/// A CPU that did not answer in time (C7). The wait goes on after the report: it never gives up and frees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stuck {
    /// Who waits.
    pub waiter: CpuId,
    /// Who has not answered.
    pub target: CpuId,
    /// Space whose flush is waited for, 0 for kernel ranges and batches.
    pub space: u64,
    /// Generation asked for, 0 when the request has none.
    pub generation: u64,
}

/// What TLBs that belong to no CPU are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Secondary {
    /// Entries in this range were withdrawn: their translations go, and with [`Range::tables`] every cached link to a
    /// table page on the way to them.
    Flush(Range),
    /// The space ends: its translations go, and nobody may walk its tables any more.
    End,
}

/// A way of reaching other CPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// None had to be reached.
    Local,
    /// By interrupts.
    Interrupts,
    /// By broadcast.
    Broadcast,
}

/// What became of one thing that another CPU asked of this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// Translations were invalidated.
    Flushed,
    /// The space is loaded, and had been caught up with already.
    Current,
    /// The space was loaded lazily, or was in the way, and has been unloaded.
    Unloaded,
    /// The space is not loaded here.
    Elsewhere,
}

/// What the engine did, for statistics and timelines. Called only when something noteworthy happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A flush was served without any other CPU.
    LocalOnly,
    /// A flush interrupted this many CPUs (those already poked are not counted).
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
    /// An unmap was deferred: it interrupted nobody, and this many frames wait.
    Deferred {
        /// Frames in quarantine.
        frames: u32,
    },
    /// A CPU has answered a request to flush a space, or caught up because it was asked to.
    Answered(Answer),
    /// A CPU caught up with a space, page by page.
    CaughtUpPartly,
    /// A CPU caught up by flushing a whole tag.
    CaughtUpWhole,
    /// A space was promoted to a system-wide tag.
    Promoted,
    /// A space should have been promoted but no tag was free.
    TagsExhausted,
    /// System-wide tags rolled over.
    RollOver,
    /// A space changed between registered and published walks.
    WalksChanged,
    /// Costs were measured at start.
    Calibrated(Costs),
    /// A request chose between interrupts and broadcast by cost, under per-CPU tags.
    Chose {
        /// The way taken.
        way: Way,
        /// Other CPUs concerned.
        targets: u32,
    },
    /// A timed request: one in [`sample_one_in`](crate::Policy::sample_one_in).
    Measured {
        /// The way it went.
        way: Way,
        /// Other CPUs concerned; 0 for a broadcast.
        targets: u32,
        /// What the requester was expected to spend, ns.
        expected_ns: u64,
        /// What it spent, ns.
        took_ns: u64,
    },
    /// Corrected costs moved the number of other CPUs from which on a request is broadcast.
    ThresholdMoved {
        /// Before.
        from: u64,
        /// After; `u64::MAX` for never.
        to: u64,
        /// The number of other CPUs whose costs decided.
        targets: u64,
        /// What interrupting so many is expected to cost the machine, ns.
        interrupts_ns: u64,
        /// What a broadcast is expected to cost it, ns.
        broadcast_ns: u64,
    },
    /// A space that was found active on `active` CPUs is worth a system-wide tag.
    Promoting {
        /// CPUs it is active on, at least.
        active: u32,
        /// Where worth is by cost: what a request is expected to cost without a tag, and with one; ns.
        costs: Option<(u64, u64)>,
    },
    /// A space begins to give up its system-wide tag.
    Demoting {
        /// CPUs it is active on.
        active: u32,
        /// Why.
        reason: Demotion,
    },
    /// A space is back on per-CPU tags, its tag free.
    Demoted,
}

/// Why a space gives up its system-wide tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Demotion {
    /// It is active on few CPUs.
    Shrunk,
    /// It is active on few CPUs, and others want its tag.
    TagsShort,
    /// Its requests are expected to cost less `without` a tag than they do `with` it; ns.
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
/// Each hook does what it says. In particular: no two CPUs have the same [`cpu`](Kernel::cpu) at the same time, between
/// [`interrupts_off`](Kernel::interrupts_off) and [`interrupts_restore`](Kernel::interrupts_restore) nobody else runs
/// on this CPU (but NMI handlers, where the documentation of a call allows them), and a [`pin`](Kernel::pin) keeps its
/// caller where it is. On this rests that a handler finds spaces alive, and that a frame that is proved free is free.
pub unsafe trait Kernel<const W: usize>: Sync {
    /// Whether a thread that is in one of the engine's calls can be preempted, or can go on on another CPU. It has no
    /// default: an engine whose caller migrates unseen would invalidate on one CPU what it has to invalidate on
    /// another.
    ///
    /// `false` for a kernel that never preempts its own code, or that makes these calls with interrupts off only.
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

    /// The policy, if it is fixed when the kernel is compiled: the compiler then removes what the policy does not use.
    /// [`Engine::new`](crate::Engine::new) must be given the same one. `None` if it is chosen at boot. What the
    /// [`Machine`](crate::Machine) can do is found at boot in either case.
    const POLICY: Option<Policy> = None;

    /// The world whose atomics the engine uses.
    type Facade: Facade;

    /// The CPU this runs on. Called with interrupts off or migration pinned, so the answer stays true; and by waiters
    /// that may migrate, to which an answer that was true a moment ago is good enough. Also in NMI context, where a
    /// call may be made there.
    fn cpu(&self) -> CpuId;

    /// Masks interrupts on this CPU; returns what [`interrupts_restore`](Kernel::interrupts_restore) needs.
    fn interrupts_off(&self) -> u64;

    /// Restores the mask that [`interrupts_off`](Kernel::interrupts_off) returned.
    fn interrupts_restore(&self, saved: u64);

    /// Whether interrupts are off on this CPU. `true` is always right; `false` lets a policy with
    /// [`Wait::Spin`](crate::Wait::Spin) or [`Wait::Preemptible`](crate::Wait::Preemptible) leave requests to an
    /// interrupt, which must then come although the CPU waits. Asked once for each wait.
    #[inline]
    fn interrupts_are_off(&self) -> bool {
        true
    }

    /// Raises the shootdown interrupt, which carries no payload, on every CPU in `targets` (never the sender). Their
    /// handlers must acknowledge it at its controller and then call `Engine::on_ipi`. Called pinned; may be called with
    /// interrupts on or off. A target may have gone off meanwhile: nobody waits for it then. What this CPU wrote before
    /// the call must be seen by the handlers ([`before_ipi`](Facade::before_ipi) was called): in the x2APIC mode of
    /// x86, whose sending write is no store, that takes `mfence; lfence` before it (Intel SDM 3A, "MSR access in x2APIC
    /// mode").
    fn send_ipi(&self, targets: &CpuMask<W>);

    /// Carries out one local invalidation: complete on return, or at the latest when [`local_sync`](Kernel::local_sync)
    /// on the same CPU returns. Called pinned or with interrupts off.
    fn invalidate(&self, what: Local);

    /// Waits until the local invalidations of this CPU are complete, and what it runs afterwards sees them: for
    /// processors whose invalidations are asynchronous (Arm `dsb nsh; isb`, RISC-V with Svinval `sfence.inval.ir`), so
    /// that many share one wait. Called after every group of [`invalidate`](Kernel::invalidate), before anybody is told
    /// that they are done; on the same CPU, pinned or with interrupts off. Nothing to do where each is complete on
    /// return (x86, SFENCE.VMA).
    #[inline]
    fn local_sync(&self) {}

    /// Loads `root` under `tag`. With `keep`, entries under the tag survive (x86 NOFLUSH); without, every non-global
    /// entry under the tag is gone, links too, before the processor can walk under the tag even once: as MOV to CR3
    /// does in one step. Where loading and invalidating are two instructions, nothing may be walked by in between:
    /// leave the tag first for one that maps nothing, invalidate, wait until that is complete, and load then (Arm: a
    /// reserved TTBR0 with ISB, TLBI ASIDE1, DSB NSH, then the root with ISB).
    ///
    /// When it returns no walk by the root before is under way any more, and what is filled from now on is filled by
    /// this one. Table pages of the old space are freed without asking this CPU from then on (C3), and a walk may read
    /// them, or write accessed and dirty bits there. On Arm that takes ISB and then DSB NSH: an ISB does not wait for
    /// walks (Arm ARM, R_LFHQG). On RISC-V a write of satp flushes nothing, and nothing says when walks that have begun
    /// end: an SFENCE.VMA after it names the ASID that is left, unless harts end walks there.
    ///
    /// On a machine without tags ([`Machine::NO_TAGS`](crate::Machine::NO_TAGS)) `tag` is always 0 and `keep` always
    /// false: every non-global entry of this CPU goes. A MOV to CR3 with CR4.PCIDE clear does that by itself. A write
    /// of satp does not: an SFENCE.VMA with rs1 and rs2 `x0` must follow it.
    ///
    /// Called with interrupts off, from whatever switches, ends laziness, serves requests or retires a space.
    fn load_root(&self, root: Root, tag: Tag, keep: bool);

    /// What the broadcast hardware can do, `None` when there is none.
    #[inline]
    fn broadcast_limits(&self) -> Option<BroadcastLimits> {
        None
    }

    /// Whether a broadcast is carried out by interrupting every other CPU, as the firmware of RISC-V does (SBI RFENCE):
    /// then it takes time from CPUs that run something else, which the clock of the requester does not see. Any
    /// context.
    #[inline]
    fn broadcast_interrupts(&self) -> bool {
        false
    }

    /// Whether broadcasts are *aimed* at CPUs, as the remote actions of Intel processors are ([`Rar`](crate::Rar)):
    /// then those under one tag go by [`broadcast_to`](Kernel::broadcast_to), to CPUs that may hold entries under it,
    /// and pages under every tag, which no action names, are asked for with kernel pages only ([`Broadcast::Kernel`];
    /// to invalidate more is right). Any context; always the same answer.
    #[inline]
    fn broadcast_is_targeted(&self) -> bool {
        false
    }

    /// As [`broadcast`](Kernel::broadcast), to `targets` only, which were online a moment ago and are never this CPU.
    /// Called pinned, only where broadcasts are aimed. One that goes off need not be waited for: it flushes everything
    /// before it is on again.
    fn broadcast_to(&self, _targets: &CpuMask<W>, what: Broadcast) {
        self.broadcast(what);
    }

    /// Issues one broadcast invalidation. Asynchronous. Called pinned, only when limits were given. Where it can be
    /// refused (SBI returns an error) a refusal has flushed nothing: the hook then has every CPU flush everything by
    /// the kernel's own interrupt, and waits (`shootdown_cpu::FlushByIpi`).
    fn broadcast(&self, _what: Broadcast) {
        unreachable!("broadcast() called on a kernel that reports no broadcast limits")
    }

    /// Waits until every broadcast *issued by this CPU* is complete everywhere, and with it every access elsewhere
    /// under what was invalidated. Called pinned, on the issuing CPU.
    ///
    /// It is not told whether kernel addresses were among them: on Arm an ISB follows the DSB in any case, without
    /// which this CPU may use what it has fetched by an old translation of them.
    ///
    /// A full barrier stands either here, as in Arm's `dsb ish`, or in [`publish_tables`](Facade::publish_tables).
    fn broadcast_sync(&self) {
        unreachable!("broadcast_sync() called on a kernel that reports no broadcast limits")
    }

    /// Forbids migration and preemption until [`unpin`](Kernel::unpin). Nests. Under designs that spin it lasts until
    /// every target has answered (see [`Wait::Spin`](crate::Wait::Spin)); with preemptible waits until the interrupts
    /// are sent. Required where [`PREEMPTIBLE`](Kernel::PREEMPTIBLE) is true.
    #[inline]
    fn pin(&self) {
        const { assert!(!Self::PREEMPTIBLE, "a preemptible kernel implements `pin`") };
    }

    /// Ends one [`pin`](Kernel::pin). Ending the last one is where a preemption that fell due meanwhile takes place.
    /// Required where [`PREEMPTIBLE`](Kernel::PREEMPTIBLE) is true.
    #[inline]
    fn unpin(&self) {
        const { assert!(!Self::PREEMPTIBLE, "a preemptible kernel implements `unpin`") };
    }

    /// Monotonic time in nanoseconds; used for sampling windows, stuck reports, and, where reach is adaptive, to
    /// measure requests, which take a few hundred: steps of up to that length tell enough. Where they are so long that
    /// [`calibrate`](crate::Engine::calibrate) can tell nothing (a tick of milliseconds), costs stay what they are
    /// assumed to be. A constant disables the reports, and leaves promotion to the CPUs whose window it happens to be
    /// (with 0, every 32nd from CPU 0).
    #[inline]
    fn now_ns(&self) -> u64 {
        0
    }

    /// Asks the hypervisor to flush everything under every tag of virtual CPU `cpu`, links to tables included, before
    /// that runs again. True when it will, because the CPU is descheduled: then the CPU is neither interrupted nor
    /// waited for. False when it runs, or perhaps does.
    ///
    /// To find it descheduled and to leave the request must be one atomic step, against which the entry is atomic too
    /// (KVM: a compare-exchange of "preempted" for "preempted, flush"; at entry an exchange for 0). A query followed by
    /// a store loses the request to an entry between the two (CVE-2019-3016). Called pinned, after the entry writes and
    /// a full barrier, and never where table pages are freed or lockless walks are concerned: a CPU may be descheduled
    /// in the middle of a walk. Asking without need costs a flush and is right.
    #[inline]
    fn flush_at_entry(&self, _cpu: CpuId) -> bool {
        false
    }

    /// Tells TLBs that belong to no CPU (an IOMMU that shares page tables, a guest's second stage) of a flush of the
    /// space whose top table is `root`, or of the kernel's. Called for every flush, whatever its way (twice where an
    /// unmap was to be deferred, and could not be), and at the end of a space; pinned, after the entry writes and a
    /// full barrier, or, where a flush of the kernel's is broadcast, [`publish_tables`](Facade::publish_tables). What
    /// more the device's walker needs in order to see those writes (on Arm a DSB before the command goes out) is up to
    /// the hook. A change of tag is not told: tags are the CPUs'.
    ///
    /// May return before it is carried out; then with a ticket for [`secondary_sync`](Kernel::secondary_sync): not 0,
    /// and never falling from one call to a later one. 0 says that there is nothing to wait for.
    #[inline]
    fn secondary(&self, _root: Root, _told: Secondary) -> u64 {
        0
    }

    /// Waits until everything up to `ticket` is carried out (C1 to C3 for those TLBs). Called once per flush or batch,
    /// after all CPUs have answered, perhaps on another CPU than the one that told; not pinned. It may not depend on
    /// another CPU, which could be waiting for this one.
    #[inline]
    fn secondary_sync(&self, _ticket: u64) {}

    /// A CPU has not answered within the configured bound. Log it; the wait continues.
    fn stuck(&self, _report: Stuck) {}

    /// Statistics. Must be cheap.
    #[inline]
    fn event(&self, _event: Event) {}
}
