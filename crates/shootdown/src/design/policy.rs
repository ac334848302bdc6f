//! The axes of a policy. Each states where it is read.
//!
//! Settings that exist only to represent a published kernel need the feature `published`; those that measure costs need
//! `adaptive`. Code that depends on such a setting uses the predicates at the end of this file. Without the feature
//! their answer is a constant.

/// How address spaces get hardware tags. Read in `cpu/switch.rs`, `flush` and `tags/promotion.rs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Tags {
    /// Dynamic slots per CPU, each with the generation it has seen (x86 PCIDs as Linux and FreeBSD use them).
    PerCpu,
    /// One tag per space on all CPUs, with roll-over when tags run out (Arm and RISC-V ASIDs).
    System,
    /// Per-CPU slots, and a system-wide tag once a space is seen active on `promote_at` CPUs or more. With
    /// [`Reach::Adaptive`] the space gives the tag back when it is active on half as many.
    Hybrid {
        /// CPUs that must be seen active at once.
        promote_at: u32,
    },
    /// Per-CPU slots, and a system-wide tag once a space's requests are expected to cost less with one. The estimate
    /// uses how many of its active CPUs have to be interrupted, and how far the others fall behind before they catch
    /// up. The space gives the tag back when broadcasts cost more than that. Estimates go out of date, so the engine
    /// tries the space without the tag at intervals. Takes effect with [`Reach::Adaptive`]; otherwise as
    /// [`Hybrid`](Tags::Hybrid).
    #[cfg(feature = "adaptive")]
    HybridByCost {
        /// CPUs that must be seen active at once, as a minimum.
        promote_at: u32,
    },
}

impl Tags {
    /// Number of active CPUs at which a space may get a system-wide tag; `None` where only one kind of tag exists.
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

    /// Whether a tag always names the same space on every CPU. Only then may CPUs use each other's entries: Arm's CnP
    /// bit must be off where this is false.
    #[inline]
    pub const fn are_alike_on_all_cpus(self) -> bool {
        matches!(self, Tags::System)
    }
}

/// How an invalidation reaches other CPUs. Read in `flush`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reach {
    /// By interrupts to the target CPUs.
    Ipi,
    /// By the broadcast instruction where the space's tag is system-wide, otherwise by interrupts.
    Broadcast,
    /// Locally if no other CPU was ever active in the space, otherwise as [`Broadcast`](Reach::Broadcast).
    LocalFirst,
    /// For each request, the way that is expected to cost less, from costs that the engine measures.
    #[cfg(feature = "adaptive")]
    Adaptive,
    /// Not at all. Unsound: the negative control that an oracle must catch.
    None,
    /// On the calling CPU only. Unsound: the negative control for kernels whose CPUs need their own invalidations.
    Local,
}

/// Which CPUs of the set are interrupted. Read in `flush/targets.rs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Targets {
    /// Every online CPU.
    #[cfg(feature = "published")]
    All,
    /// The space's CPU set.
    Space,
    /// The CPU set without CPUs in lazy TLB mode and without CPUs that have left. Lazy CPUs stay targets where C3
    /// requires it.
    Active,
    /// As [`Active`](Targets::Active). A CPU also counts as lazy while it is inside the kernel on behalf of user code
    /// and accesses no user address: between `enter_kernel` and `leave_lazy`. It catches up before it returns.
    InUser,
}

/// When a CPU that has switched away from a space leaves its set. Read in `cpu/switch.rs`, `flush/targets.rs` and
/// `transport/handler.rs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Departure {
    /// At the switch: this writes a line that the space's other CPUs share.
    AtSwitch,
    /// When a request finds it gone, as in Linux since 6.13: a switch writes nothing, and a CPU that comes back is
    /// still a member. Requests that free page-table pages are sent to such CPUs too, and one request in each `trim_ns`
    /// is as well. All others skip them. Takes effect with [`Requests::PerRequest`] and per-CPU tags; otherwise as
    /// [`AtSwitch`](Departure::AtSwitch).
    #[cfg(feature = "published")]
    WhenAsked {
        /// Shortest time, ns, between two requests of a space that look for CPUs that have left.
        trim_ns: u64,
    },
    /// At the switch if no other CPU is in the set, because that costs next to nothing; otherwise when a request finds
    /// it gone. So a CPU that moves between spaces shared with other CPUs writes no shared line. Requests skip CPUs
    /// that have left. Once scanning them has cost as much as a request to leave the set, they get such a request. So a
    /// space that has moved to other CPUs soon drops the old ones. Requests that free page-table pages skip them too:
    /// such a CPU catches up before it uses any of its entries. Takes effect with [`Requests::PerRequest`] and
    /// [`Requests::Log`] and per-CPU tags; otherwise as [`AtSwitch`](Departure::AtSwitch).
    WhenShared {
        /// Number of fruitless scans of a CPU that cost about as much as one request to it.
        looks: u32,
    },
}

/// How a request is passed to its targets. Read in `flush`, `transport/ipi.rs` and `transport/handler.rs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Requests {
    /// A queue entry at each target points at a descriptor on the requester's stack.
    PerRequest,
    /// The same, but the descriptor belongs to the requester's CPU and is created once. Kernels with this scheme keep
    /// preemption off while it is in use. Here a request that finds it in use takes the stack.
    #[cfg(feature = "published")]
    PerCpu,
    /// The range goes to the space's log. An interrupt only says "catch up", and many requesters share one.
    Log,
}

/// When the requester invalidates locally. Read in `transport/ipi.rs` and `flush_while`.
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
    /// After it has invalidated.
    Late,
    /// When its handler begins, where that is safe: for a range of one space on per-CPU tags that frees no page-table
    /// pages. Nothing on the target may access user addresses before it has invalidated. NMI handlers must check
    /// [`user_access_ok`](crate::Engine::user_access_ok). Otherwise as [`Late`](Ack::Late).
    Early,
}

/// How a requester waits, and which code carries out the requests that reach its CPU during the wait. Read in
/// `transport/send.rs`, `cpu/wait.rs` and `transport/handler.rs` (`serves_while_waiting`).
///
/// A waiter with interrupts off serves requests under every setting (C5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Wait {
    /// Pinned, with preemption off, until every target has answered. Requests to this CPU are left to its interrupt
    /// handler, as in Linux. With [`Requests::Log`] the wait is a pinned section of its own: a preemption may occur
    /// between the send and the wait.
    Spin = 0,
    /// As [`Spin`](Wait::Spin), but the waiter carries out requests to its CPU when it sees them.
    SpinServing = SERVES,
    /// With preemption on: the waiter may be preempted and may migrate. Only the local invalidation, the choice of
    /// targets and the send are pinned. Requests to this CPU are left to its interrupt handler.
    Preemptible = PREEMPTIBLE,
    /// As [`Preemptible`](Wait::Preemptible), but the waiter carries out requests to its CPU when it sees them.
    PreemptibleServing = PREEMPTIBLE | SERVES,
}

// Bits of `Wait`. To test a bit is one instruction without a constant, which a wait would keep at hand.
const SERVES: isize = 1;
const PREEMPTIBLE: isize = 2;

impl Wait {
    /// Whether the waiter may be preempted.
    #[inline]
    pub const fn is_preemptible(self) -> bool {
        self as isize & PREEMPTIBLE != 0
    }

    /// Whether the waiter carries out requests to its CPU even with interrupts on.
    #[inline]
    pub const fn serves(self) -> bool {
        self as isize & SERVES != 0
    }
}

/// How a CPU that frees a page-table page knows that no lockless walk still holds a pointer to it. Read in `walk`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Walkers {
    /// The kernel has no lockless walks: nothing is done, nothing is checked, and [`walk`](crate::Engine::walk) panics.
    None,
    /// Interrupts every online CPU. Walks run with interrupts off and cost nothing.
    InterruptAll,
    /// A walk publishes its space in a per-CPU word by a store and a full barrier, and clears the word afterwards.
    Precise,
    /// The same with one atomic exchange in place of store and barrier.
    #[cfg(feature = "published")]
    PreciseExchange,
    /// A walk registers its CPU once. The CPU stays registered until a freeing CPU removes it.
    Sticky,
    /// Page-table pages go to a reclaimer that frees them after a grace period.
    GracePeriod,
    /// Sticky or precise, per space, depending on whether walks or frees are more frequent.
    Adaptive,
}

/// What happens to a space's tag when the space ends. Read in `tags/promotion.rs` (`retire`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Exit {
    /// Its translations are invalidated.
    Flush,
    /// Nothing: the tag is not reused before a roll-over has invalidated it.
    DeferToRollOver,
}

/// When unmapped memory may be reused. Read in `flush/batch.rs` and `flush/deferred.rs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Free {
    /// When its own flush is complete, also in batches.
    Synchronous,
    /// The same, but a [`batch`](crate::Engine::batch) of changes in many spaces shares one request.
    Batched,
    /// As [`Batched`](Free::Batched), and [`flush_later`](crate::Engine::flush_later) interrupts no CPU: frames and
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
    /// When CPUs that have left stop being targets.
    pub departure: Departure,
    /// How requests are handed over.
    pub requests: Requests,
    /// When the requester invalidates locally.
    pub order: Order,
    /// When targets acknowledge.
    pub ack: Ack,
    /// How the requester waits.
    pub wait: Wait,
    /// How page-table pages are protected from lockless walks while they are freed.
    pub walkers: Walkers,
    /// What happens when a space ends.
    pub exit: Exit,
    /// When unmapped memory may be reused.
    pub free: Free,
    /// Most strides of a range that is flushed page by page. A longer range flushes the whole tag. 33 is Linux's
    /// default (`tlb_single_page_flush_ceiling`).
    pub ceiling: u32,
    /// Per-CPU tag slots in use, 1 to [`MAX_SLOTS`]. 6 is Linux's `TLB_NR_DYN_ASIDS`.
    pub slots: u8,
    /// Length in ns (a power of two) of one sampling window for promotion, where reach is not adaptive. A CPU considers
    /// promotion in 1 of [`CONSIDER_ONE_IN`] windows. Linux samples in jiffies (1 to 4 ms), also 1 in 32. Shorter
    /// windows react sooner.
    pub consider_window_ns: u64,
    /// One request in this many (a power of two) of a space is timed where reach is adaptive, and its space is
    /// considered for promotion and demotion. A sample costs two clock reads, and sometimes a store to the shared
    /// estimates.
    pub sample_one_in: u32,
    /// Samples in a row that must find a space better off without its tag before it is demoted. With 64 and 8 that is
    /// about 500 flushes, so threads that sleep briefly do not lose the tag. After a demotion because broadcasts cost
    /// too much, promotion takes as many samples.
    pub demote_after: u32,
    /// Frames that unmaps on one CPU may hold in quarantine with [`Free::Deferred`]. Unmaps beyond that are flushed
    /// synchronously. 4096 frames are 16 MiB: what a CPU that unmaps one page per microsecond frees in four ticks of a
    /// millisecond.
    pub defer_frames: u32,
    /// Wait in ns after which a CPU that has not answered is reported (C7); 0 disables the report.
    pub stuck_ns: u64,
}

/// Largest number of per-CPU tag slots.
pub const MAX_SLOTS: usize = 16;

/// A CPU considers promoting the space that it has just flushed in one window of this many.
pub const CONSIDER_ONE_IN: u64 = 32;

// Predicates for settings that not every build has.

impl Tags {
    #[inline]
    pub(crate) const fn are_by_cost(self) -> bool {
        match self {
            #[cfg(feature = "adaptive")]
            Tags::HybridByCost { .. } => true,
            _ => false,
        }
    }
}

impl Reach {
    /// Whether it is a negative control, which reaches no other CPU.
    #[inline]
    pub(crate) const fn is_control(self) -> bool {
        matches!(self, Reach::None | Reach::Local)
    }

    #[inline]
    pub(crate) const fn is_adaptive(self) -> bool {
        match self {
            #[cfg(feature = "adaptive")]
            Reach::Adaptive => true,
            _ => false,
        }
    }
}

impl Targets {
    #[inline]
    pub(crate) const fn is_all(self) -> bool {
        match self {
            #[cfg(feature = "published")]
            Targets::All => true,
            _ => false,
        }
    }
}

impl Departure {
    #[inline]
    pub(crate) const fn trim_ns(self) -> Option<u64> {
        match self {
            #[cfg(feature = "published")]
            Departure::WhenAsked { trim_ns } => Some(trim_ns),
            _ => None,
        }
    }
}

impl Requests {
    #[inline]
    pub(crate) const fn is_per_cpu(self) -> bool {
        match self {
            #[cfg(feature = "published")]
            Requests::PerCpu => true,
            _ => false,
        }
    }
}
