//! The presets: published designs, and our own, as settings on every axis.
//!
//! Which preset for which machine:
//! - x86 without INVLPGB, or a first port to any machine: [`IPI`](Policy::IPI).
//! - AMD with INVLPGB: [`BROADCAST`](Policy::BROADCAST).
//! - Arm, RISC-V with broadcast fences: [`ARM_BROADCAST`](Policy::ARM_BROADCAST).
//! - Several kinds of machines with one kernel, or many CPUs without broadcast: `ADAPTIVE` (feature `adaptive`).

use crate::design::*;

impl Policy {
    /// x86 before broadcast: per-CPU tags, interrupts to active CPUs, requests on the stack, local invalidation first.
    /// Waiters leave requests to the interrupt handler, as Linux always has.
    pub const IPI: Policy = Policy {
        tags: Tags::PerCpu,
        reach: Reach::Ipi,
        targets: Targets::Active,
        departure: Departure::AtSwitch,
        requests: Requests::PerRequest,
        order: Order::Serial,
        ack: Ack::Late,
        wait: Wait::Spin,
        walkers: Walkers::InterruptAll,
        exit: Exit::Flush,
        free: Free::Batched,
        ceiling: 33,
        slots: 6,
        consider_window_ns: 1 << 16,
        sample_one_in: 64,
        demote_after: 8,
        defer_frames: 4096,
        stuck_ns: 1_000_000_000,
    };

    /// As [`IPI`](Self::IPI), but CPUs stay in a space's set until a request finds them gone, as in Linux since 6.13.
    /// One second between trims is Linux's value.
    #[cfg(feature = "published")]
    pub const IPI_TRIM: Policy = Policy {
        departure: Departure::WhenAsked { trim_ns: 1_000_000_000 },
        ..Policy::IPI
    };

    /// As [`IPI`](Self::IPI), but the requester invalidates locally while the targets invalidate.
    pub const IPI_CONCURRENT: Policy = Policy {
        order: Order::Concurrent,
        ..Policy::IPI
    };

    /// As [`IPI`](Self::IPI), with one preallocated descriptor per CPU: Linux before requests moved to the stack.
    #[cfg(feature = "published")]
    pub const IPI_PER_CPU: Policy = Policy {
        requests: Requests::PerCpu,
        ..Policy::IPI
    };

    /// As [`IPI_CONCURRENT`](Self::IPI_CONCURRENT), and targets acknowledge before they invalidate, where that is safe.
    pub const IPI_EARLY: Policy = Policy {
        ack: Ack::Early,
        ..Policy::IPI_CONCURRENT
    };

    /// As [`IPI`](Self::IPI), but unmaps interrupt no CPU: frames and virtual ranges wait for ticks. Relaxes the
    /// contract.
    pub const DEFERRED: Policy = Policy {
        free: Free::Deferred,
        ..Policy::IPI
    };

    /// AMD broadcast invalidation: hybrid tags at 4 active CPUs, broadcast for promoted spaces, otherwise as
    /// [`IPI`](Self::IPI).
    ///
    /// Its flushes interrupt no CPU, so they prove nothing about walks: page-table pages wait for a grace period, as in
    /// Linux with INVLPGB.
    pub const BROADCAST: Policy = Policy {
        tags: Tags::Hybrid { promote_at: 4 },
        reach: Reach::Broadcast,
        walkers: Walkers::GracePeriod,
        ..Policy::IPI
    };

    /// As [`IPI`](Self::IPI), but a waiter may be preempted and may migrate.
    pub const PREEMPTIBLE: Policy = Policy {
        wait: Wait::Preemptible,
        ..Policy::IPI
    };

    /// Our own design: hybrid tags with demotion, reach by measured cost, the flush log, local invalidation while the
    /// targets answer. Promotion of a space also depends on cost; `promote_at` is the minimum.
    #[cfg(feature = "adaptive")]
    pub const ADAPTIVE: Policy = Policy {
        tags: Tags::HybridByCost { promote_at: 2 },
        reach: Reach::Adaptive,
        targets: Targets::InUser,
        // About the ratio of an interrupt's cost on both sides to that of a cache-line transfer (0.5 to 1 us over 50 to
        // 100 ns in most machine models). Not fitted: 4 or 64 instead, tried by hand, change the rates of
        // `context_switch` on `milan-128`, `turin-2p` and `ampere-32` without broadcast by at most 1.2 %.
        departure: Departure::WhenShared { looks: 16 },
        requests: Requests::Log,
        order: Order::Concurrent,
        walkers: Walkers::Adaptive,
        wait: Wait::PreemptibleServing,
        ..Policy::BROADCAST
    };

    /// [`IPI`](Self::IPI); a CPU that frees page-table pages interrupts every CPU, and walks cost nothing.
    pub const WALK_INTERRUPT_ALL: Policy = Policy {
        walkers: Walkers::InterruptAll,
        ..Policy::IPI
    };

    /// [`IPI`](Self::IPI) with every lockless walk published by a store and a full barrier.
    pub const WALK_PRECISE: Policy = Policy {
        walkers: Walkers::Precise,
        ..Policy::IPI
    };

    /// [`IPI`](Self::IPI) with walkers that register once and stay registered until a CPU frees page-table pages.
    pub const WALK_STICKY: Policy = Policy {
        walkers: Walkers::Sticky,
        ..Policy::IPI
    };

    /// [`IPI`](Self::IPI) with page-table pages that wait for a grace period.
    pub const WALK_GRACE: Policy = Policy {
        walkers: Walkers::GracePeriod,
        ..Policy::IPI
    };

    /// AArch64 kernels: one tag per space on all CPUs, roll-over, everything by broadcast, the tag flushed when a space
    /// ends. 512 pages or more become one whole-tag invalidation, the limit without range instructions.
    pub const ARM_BROADCAST: Policy = Policy {
        tags: Tags::System,
        reach: Reach::Broadcast,
        targets: Targets::Space,
        ceiling: 511,
        ..Policy::IPI
    };

    /// The same tags without broadcast: interrupts to every CPU that was ever active in the space, and each flushes the
    /// whole tag. Proposed for ThunderX in 2015. Also for processors that must not broadcast.
    pub const ARM_IPI: Policy = Policy {
        reach: Reach::Ipi,
        ceiling: 0,
        ..Policy::ARM_BROADCAST
    };

    /// The same tags; local if only one CPU was ever active in the space, otherwise by broadcast; no flush when it
    /// ends.
    pub const ARM_LOCAL_FIRST: Policy = Policy {
        reach: Reach::LocalFirst,
        exit: Exit::DeferToRollOver,
        ..Policy::ARM_BROADCAST
    };

    /// No invalidation at all. Unsound: the negative control.
    pub const NONE: Policy = Policy {
        reach: Reach::None,
        ..Policy::IPI
    };

    /// As [`IPI`](Self::IPI), without the remote part: each flush invalidates on the calling CPU only. Unsound: the
    /// negative control for a kernel that does not get far without its own invalidations. Not a preset.
    pub const LOCAL_ONLY: Policy = Policy {
        reach: Reach::Local,
        ..Policy::IPI
    };
}

impl Design {
    /// The presets: name, settings, one line of description.
    pub const PRESETS: &'static [(&'static str, Design, &'static str)] = &[
        (
            "ipi",
            Policy::IPI.on(Machine::PCID),
            "per-CPU tags, interrupts to active CPUs: x86 before broadcast",
        ),
        #[cfg(feature = "published")]
        (
            "ipi-trim",
            Policy::IPI_TRIM.on(Machine::PCID),
            "as ipi, but CPUs stay in a space's set until a request finds them gone: Linux from 6.13",
        ),
        (
            "ipi-concurrent",
            Policy::IPI_CONCURRENT.on(Machine::PCID),
            "as ipi, but the requester does its own part while the targets do theirs",
        ),
        #[cfg(feature = "published")]
        (
            "ipi-per-cpu",
            Policy::IPI_PER_CPU.on(Machine::PCID),
            "as ipi, but with one preallocated request per CPU instead of one on the stack",
        ),
        (
            "ipi-early",
            Policy::IPI_EARLY.on(Machine::PCID),
            "as ipi-concurrent, but targets acknowledge on entry, before they invalidate, where that is right",
        ),
        (
            "broadcast",
            Policy::BROADCAST.on(Machine::PCID),
            "system-wide tags from 4 active CPUs on, INVLPGB/TLBSYNC; else as ipi",
        ),
        (
            "preemptible",
            Policy::PREEMPTIBLE.on(Machine::PCID),
            "as ipi, but waiting with preemption on: the waiter may be preempted and migrate",
        ),
        #[cfg(feature = "adaptive")]
        (
            "adaptive",
            Policy::ADAPTIVE.on(Machine::PCID),
            "interrupts or broadcast by measured cost, tags given and taken back, flush log, concurrent",
        ),
        (
            "walk-interrupt-all",
            Policy::WALK_INTERRUPT_ALL.on(Machine::PCID),
            "as ipi; freeing a page-table page interrupts every CPU, lockless walks cost nothing",
        ),
        (
            "walk-precise",
            Policy::WALK_PRECISE.on(Machine::PCID),
            "as ipi; every lockless walk is published by a store and a full barrier",
        ),
        (
            "walk-sticky",
            Policy::WALK_STICKY.on(Machine::PCID),
            "as ipi; a walker registers once and stays registered until a table is freed",
        ),
        (
            "walk-grace",
            Policy::WALK_GRACE.on(Machine::PCID),
            "as ipi; page-table pages wait for a grace period, walks cause no interrupt",
        ),
        (
            "arm-broadcast",
            Policy::ARM_BROADCAST.on(Machine::PCID),
            "one tag per space with roll-over, broadcast always: the AArch64 default",
        ),
        (
            "arm-ipi",
            Policy::ARM_IPI.on(Machine::PCID),
            "the same tags, interrupts to CPUs ever active, each flushes the whole tag",
        ),
        (
            "arm-local-first",
            Policy::ARM_LOCAL_FIRST.on(Machine::PCID),
            "the same tags, local if only this CPU was ever active, else broadcast; no flush at exit",
        ),
        (
            "never-broadcast",
            Policy::ARM_BROADCAST.on(Machine {
                errata: Errata {
                    never_broadcast: true,
                    ..Errata::NONE
                },
                ..Machine::PCID
            }),
            "arm-broadcast on a processor that must not broadcast: interrupts, page by page",
        ),
        (
            "broadcast+ipi",
            Policy::ARM_BROADCAST.on(Machine {
                errata: Errata {
                    interrupt_too: true,
                    ..Errata::NONE
                },
                ..Machine::PCID
            }),
            "arm-broadcast on a processor whose synchronisation is acknowledged too early",
        ),
        (
            "deferred",
            Policy::DEFERRED.on(Machine::PCID),
            "as ipi, but unmaps interrupt no CPU: RELAXED, frames and ranges wait until all CPUs flushed at ticks",
        ),
        (
            "none",
            Policy::NONE.on(Machine::PCID),
            "no invalidation: UNSOUND, the negative control",
        ),
    ];

    /// The preset called `name`.
    pub fn preset(name: &str) -> Option<Design> {
        Self::PRESETS
            .iter()
            .find(|(known, ..)| *known == name)
            .map(|&(_, design, _)| design)
    }
}
