//! The axes of a policy. Each says where it is read.
//!
//! Settings that stand for a published kernel only are there with the feature `published`, those that measure costs
//! with `adaptive`. Code that depends on one asks the predicates at the end; without the feature the answer is known.

/// How address spaces get hardware tags. Read in `cpu/switch.rs`, `flush` and `tags/promotion.rs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Tags {
    /// Dynamic slots per CPU, each with the generation it has seen (x86 PCIDs as Linux and FreeBSD use them).
    PerCpu,
    /// One tag per space on all CPUs, with roll-over when they run out (Arm and RISC-V ASIDs).
    System,
    /// Per-CPU slots, and a system-wide tag once a space is seen active on `promote_at` CPUs or more. With
    /// [`Reach::Adaptive`] the space gives the tag back when it is active on half as many.
    Hybrid {
        /// CPUs that must be seen active at once.
        promote_at: u32,
    },
    /// Per-CPU slots, and a system-wide tag once a space's requests are expected to cost less with one: by how many of
    /// its active CPUs have to be interrupted, and by how far the others fall behind before they catch up. The space
    /// gives the tag back when broadcasts have become more expensive than that. The engine tries it without the tag at
    /// intervals, because estimates go out of date. Served with [`Reach::Adaptive`], else as
    /// [`Hybrid`](Tags::Hybrid).
    #[cfg(feature = "adaptive")]
    HybridByCost {
        /// CPUs that must be seen active at once, at least.
        promote_at: u32,
    },
}

impl Tags {
    /// From how many active CPUs on a space may get a system-wide tag; `None` where only one kind of tag exists.
    #[inline]
    pub const fn promote_at(self) -> Option<u32> {
        match self {
            Tags::Hybrid { promote_at } => Some(promote_at),
            #[cfg(feature = "adaptive")]
            Tags::HybridByCost { promote_at } => Some(promote_at),
            Tags::PerCpu | Tags::System => None,
        }
    }

    /// Whether a space may have a system-wide tag.
    #[inline]
    pub const fn has_system_tags(self) -> bool {
        !matches!(self, Tags::PerCpu)
    }

    /// Whether a tag names the same space on every CPU, always. Only then may CPUs use each other's entries: Arm's CnP
    /// bit, which must be off where this is false.
    #[inline]
    pub const fn are_alike_on_all_cpus(self) -> bool {
        matches!(self, Tags::System)
    }
}

/// How an invalidation reaches other CPUs. Read in `flush`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reach {
    /// By interrupts to the CPUs concerned.
    Ipi,
    /// By the broadcast instruction wherever the space's tag is system-wide, else by interrupts.
    Broadcast,
    /// Locally when no other CPU was ever active in the space, else as [`Broadcast`](Reach::Broadcast).
    LocalFirst,
    /// Per request, whichever is expected to cost less, from costs that the engine measures for itself.
    #[cfg(feature = "adaptive")]
    Adaptive,
    /// Not at all. Unsound: the negative control that an oracle must catch at once.
    None,
}

/// Which CPUs of the set are interrupted. Read in `flush/targets.rs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Targets {
    /// Every online CPU, whatever it runs.
    #[cfg(feature = "published")]
    All,
    /// The space's CPU set.
    Space,
    /// The CPU set without lazy CPUs and CPUs that have left (lazy ones are kept where C3 needs them).
    Active,
    /// As [`Active`](Targets::Active), and a CPU also counts as lazy while it is inside the kernel on behalf of
    /// user code and touches no user address: between `enter_kernel` and `leave_lazy`. It catches up before it returns.
    InUser,
}

/// When a CPU that has switched away from a space leaves its set. Read in `cpu/switch.rs`, `flush/targets.rs` and
/// `transport/handler.rs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Departure {
    /// At the switch: a write of a line that the space's other CPUs share.
    AtSwitch,
    /// When a request finds it gone, as Linux does from 6.13 on: a switch writes nothing, and a CPU that comes back is
    /// still in. Requests that free table pages go to such CPUs too, and so does one request in `trim_ns`; all others
    /// skip them. Served with [`Requests::PerRequest`] and per-CPU tags, else as [`AtSwitch`](Departure::AtSwitch).
    #[cfg(feature = "published")]
    WhenAsked {
        /// Least time, ns, between two requests of a space that look for CPUs that have left.
        trim_ns: u64,
    },
    /// At the switch while no other CPU is in the set, which then costs next to nothing, else when a request finds it
    /// gone: CPUs that come and go between spaces that others run too write no shared line. Requests skip CPUs that
    /// have left, and ask them to leave the set as well once looking at them has cost as much; so a space that has
    /// moved on is soon rid of them. Requests that free table pages skip them too: what they hold is of no use before
    /// they have caught up. Served with [`Requests::PerRequest`] and [`Requests::Log`] and per-CPU tags, else as
    /// [`AtSwitch`](Departure::AtSwitch).
    WhenShared {
        /// Fruitless looks at a CPU that cost about as much as asking it once.
        looks: u32,
    },
}

/// How a request is handed over. Read in `flush`, `transport/ipi.rs` and `transport/handler.rs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Requests {
    /// A queue entry at each target points at a descriptor on the requester's stack.
    PerRequest,
    /// The same, but the descriptor belongs to the requester's CPU and is made once. Kernels that have only that keep
    /// preemption off while it is in use; here a request that finds it in use takes the stack.
    #[cfg(feature = "published")]
    PerCpu,
    /// The range goes to the space's log; an interrupt only says "catch up"; many requesters share one.
    Log,
}

/// When the requester does its own invalidation. Read in `transport/ipi.rs` and `flush_while`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Order {
    /// Before sending.
    Serial,
    /// After sending, while the targets answer.
    Concurrent,
}

/// When a target acknowledges. Read in `transport/early_ack.rs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ack {
    /// When it has invalidated.
    Late,
    /// When its handler begins, where that is right: a range of one space on per-CPU tags, no table pages, and nothing
    /// on the target touches user addresses before it has invalidated. NMI handlers have to ask
    /// ([`user_access_ok`](crate::Engine::user_access_ok)). Else as [`Late`](Ack::Late).
    Early,
}

/// How a requester waits, and who carries out the requests that reach its CPU meanwhile. Read in `transport/ipi.rs`,
/// `flush/token.rs` and `transport/handler.rs` (`serves_while_waiting`).
///
/// A waiter that has interrupts off serves requests under every setting (C5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Wait {
    /// Pinned, with preemption off, until every target has answered. Requests to this CPU are left to its interrupt,
    /// as in Linux. With [`Requests::Log`] the wait is a section of its own: a preemption may come between the sending
    /// and it.
    Spin,
    /// As [`Spin`](Wait::Spin), but the waiter carries out requests to its CPU as soon as it sees them.
    SpinServing,
    /// With preemption on: the waiter may be preempted and may migrate. Only the local part, choosing targets and
    /// sending are pinned (and a wait for a free slot in a target's queue, which is part of sending). Requests to its
    /// CPU are left to the interrupt.
    Preemptible,
    /// As [`Preemptible`](Wait::Preemptible), but the waiter carries out requests to its CPU as soon as it sees them.
    PreemptibleServing,
}

impl Wait {
    /// Whether the waiter may be preempted.
    #[inline]
    pub const fn is_preemptible(self) -> bool {
        matches!(self, Wait::Preemptible | Wait::PreemptibleServing)
    }

    /// Whether the waiter carries out requests to its CPU although interrupts are on.
    #[inline]
    pub const fn serves(self) -> bool {
        matches!(self, Wait::SpinServing | Wait::PreemptibleServing)
    }
}

/// How the freeing side of a table page knows that no lockless walk still holds a link to it. Read in `walk`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Walkers {
    /// The kernel has no lockless walks: nothing is done, nothing is checked, and [`walk`](crate::Engine::walk) panics.
    None,
    /// Interrupts every online CPU; walks run with interrupts off and cost nothing.
    InterruptAll,
    /// A walk publishes its space in a word of its CPU by a store and a full barrier, and clears it afterwards.
    Precise,
    /// The same with one atomic exchange in place of store and barrier.
    #[cfg(feature = "published")]
    PreciseExchange,
    /// A walk registers its CPU once; it stays registered until a freeing side asks.
    Sticky,
    /// Table pages go to a reclaimer that frees them after a grace period.
    GracePeriod,
    /// Sticky or precise, per space, by which of walking and freeing is the more frequent.
    Adaptive,
}

/// What happens to a space's tag when the space ends. Read in `tags/promotion.rs` (`retire`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Exit {
    /// Its translations are invalidated.
    Flush,
    /// Nothing: the tag is not used again before a roll-over has invalidated it.
    DeferToRollOver,
}

/// When what an unmap took away is free again. Read in `flush/batch.rs` and `flush/deferred.rs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Free {
    /// When its own flush is complete, in batches too.
    Synchronous,
    /// The same, but the changes of a [`batch`](crate::Engine::batch) in many spaces share one request.
    Batched,
    /// As [`Batched`](Free::Batched), and [`flush_later`](crate::Engine::flush_later) interrupts nobody: frames and
    /// virtual range wait until every CPU has flushed at a tick or a switch. Relaxes the contract: other CPUs may use
    /// the old translation until then.
    Deferred,
}

/// What a kernel chooses: one setting per axis. [`Kernel::POLICY`](crate::Kernel::POLICY) may fix it at compile time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// How spaces get tags.
    pub tags: Tags,
    /// How invalidations reach other CPUs.
    pub reach: Reach,
    /// Which CPUs are interrupted.
    pub targets: Targets,
    /// When CPUs that have left are no longer among them.
    pub departure: Departure,
    /// How requests are handed over.
    pub requests: Requests,
    /// When the requester does its own part.
    pub order: Order,
    /// When targets acknowledge.
    pub ack: Ack,
    /// How the requester waits.
    pub wait: Wait,
    /// How lockless walks are kept off freed table pages.
    pub walkers: Walkers,
    /// What happens when a space ends.
    pub exit: Exit,
    /// When what was unmapped is free again.
    pub free: Free,
    /// Strides up to which a range is flushed page by page; above, the whole tag goes. 33 is Linux's customary value
    /// (`tlb_single_page_flush_ceiling`).
    pub ceiling: u32,
    /// Per-CPU tag slots in use, 1 to [`MAX_SLOTS`]. 6 is Linux's `TLB_NR_DYN_ASIDS`.
    pub slots: u8,
    /// Length in ns (a power of two) of one sampling window for promotion, where reach is not adaptive; a CPU considers
    /// in 1 of [`CONSIDER_ONE_IN`] windows. Linux samples in jiffies (1 to 4 ms), also 1 in 32; shorter reacts sooner.
    pub consider_window_ns: u64,
    /// One request in this many (a power of two) of a space is timed where reach is adaptive, and its space considered
    /// for promotion and demotion: two clock reads, and now and then a store to the shared estimates.
    pub sample_one_in: u32,
    /// Samples in a row that must find a space better off without its tag before it is demoted; with 64 and 8 about 500
    /// flushes, so that threads which sleep for a moment do not cost it its tag. As many must find a space better off
    /// with a tag again, after it gave its tag up because broadcasts cost too much.
    pub demote_after: u32,
    /// Frames that unmaps on one CPU may keep waiting with [`Free::Deferred`]; what would exceed it is flushed
    /// synchronously. 4096 are 16 MiB: what a CPU that unmaps a page in a microsecond frees in four ticks of a
    /// millisecond.
    pub defer_frames: u32,
    /// Wait in ns after which a CPU that has not answered is reported (C7); 0 reports never.
    pub stuck_ns: u64,
}

/// Most per-CPU tag slots.
pub const MAX_SLOTS: usize = 16;

/// A CPU considers promoting the space that it has just flushed in one of this many windows.
pub const CONSIDER_ONE_IN: u64 = 32;

// Whether a setting is one that not every build has.

impl Tags {
    #[inline(always)]
    pub(crate) const fn are_by_cost(self) -> bool {
        match self {
            #[cfg(feature = "adaptive")]
            Tags::HybridByCost { .. } => true,
            _ => false,
        }
    }
}

impl Reach {
    #[inline(always)]
    pub(crate) const fn is_adaptive(self) -> bool {
        match self {
            #[cfg(feature = "adaptive")]
            Reach::Adaptive => true,
            _ => false,
        }
    }
}

impl Targets {
    #[inline(always)]
    pub(crate) const fn is_all(self) -> bool {
        match self {
            #[cfg(feature = "published")]
            Targets::All => true,
            _ => false,
        }
    }
}

impl Departure {
    #[inline(always)]
    pub(crate) const fn trim_ns(self) -> Option<u64> {
        match self {
            #[cfg(feature = "published")]
            Departure::WhenAsked { trim_ns } => Some(trim_ns),
            _ => None,
        }
    }
}

impl Requests {
    #[inline(always)]
    pub(crate) const fn is_per_cpu(self) -> bool {
        match self {
            #[cfg(feature = "published")]
            Requests::PerCpu => true,
            _ => false,
        }
    }
}
