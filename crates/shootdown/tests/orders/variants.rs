//! Designs outside the presets: combinations that no preset has, and limits that are reached early.

use shootdown::{Ack, Departure, Design, Errata, Exit, Machine, Policy, Reach, Requests, Tags};

/// Designs outside the presets.
pub fn variants() -> impl Iterator<Item = (&'static str, Design)> {
    let few = Machine {
        tag_limit: 7,
        ..Machine::PCID
    };
    let system = Policy::ARM_BROADCAST;
    let hybrid = Policy {
        tags: Tags::Hybrid { promote_at: 2 },
        slots: 2,
        sample_one_in: 1,
        demote_after: 1,
        consider_window_ns: 1,
        ..Policy::ADAPTIVE
    };
    let errata = |interrupt_too, never_broadcast| Errata {
        interrupt_too,
        never_broadcast,
        ..Errata::NONE
    };
    [
        (
            "tags by cost",
            Policy {
                tags: Tags::HybridByCost { promote_at: 2 },
                ..hybrid
            }
            .on(few),
        ),
        (
            "log on slots",
            Policy {
                tags: Tags::PerCpu,
                reach: Reach::Ipi,
                slots: 2,
                ..hybrid
            }
            .on(few),
        ),
        (
            "log on slots, low ceiling",
            Policy {
                tags: Tags::PerCpu,
                reach: Reach::Ipi,
                ceiling: 2,
                ..hybrid
            }
            .on(few),
        ),
        (
            "log, split",
            Policy {
                tags: Tags::PerCpu,
                reach: Reach::Ipi,
                ..hybrid
            }
            .on(Machine {
                split: true,
                tag_limit: 4096,
                ..few
            }),
        ),
        (
            "log and deferral",
            Policy {
                tags: Tags::PerCpu,
                requests: Requests::Log,
                ..Policy::DEFERRED
            }
            .on(Machine::PCID),
        ),
        (
            "deferral of few frames",
            Policy {
                defer_frames: 3,
                ..Policy::DEFERRED
            }
            .on(Machine::PCID),
        ),
        (
            "hybrid and deferral",
            Policy {
                free: shootdown::Free::Deferred,
                ..hybrid
            }
            .on(few),
        ),
        (
            "hybrid, also by interrupts",
            hybrid.on(Machine {
                errata: errata(true, false),
                ..few
            }),
        ),
        (
            "hybrid on stack, also by interrupts",
            Policy {
                requests: Requests::PerRequest,
                ..hybrid
            }
            .on(Machine {
                errata: errata(true, false),
                ..few
            }),
        ),
        (
            "hybrid, never broadcast",
            hybrid.on(Machine {
                errata: errata(false, true),
                ..few
            }),
        ),
        ("hybrid, low ceiling", Policy { ceiling: 1, ..hybrid }.on(few)),
        // Few tags.
        ("hybrid, one tag", hybrid.on(Machine { tag_limit: 4, ..few })),
        (
            "hybrid, one tag, promoted at one",
            Policy {
                tags: Tags::Hybrid { promote_at: 1 },
                demote_after: 4,
                ..hybrid
            }
            .on(Machine { tag_limit: 4, ..few }),
        ),
        (
            "hybrid, demoted late",
            Policy {
                tags: Tags::Hybrid { promote_at: 3 },
                demote_after: 3,
                ..hybrid
            }
            .on(few),
        ),
        (
            "hybrid, sampled seldom",
            Policy {
                sample_one_in: 4,
                ..hybrid
            }
            .on(few),
        ),
        (
            "published walks, log",
            Policy {
                walkers: shootdown::Walkers::PreciseExchange,
                ..hybrid
            }
            .on(few),
        ),
        (
            "registered walks, log",
            Policy {
                walkers: shootdown::Walkers::Sticky,
                ..hybrid
            }
            .on(few),
        ),
        (
            "log on tags of the system",
            Policy {
                requests: Requests::Log,
                ..system
            }
            .on(few),
        ),
        (
            "log on tags of the system, by interrupts",
            Policy {
                requests: Requests::Log,
                reach: Reach::Ipi,
                ..system
            }
            .on(few),
        ),
        (
            "tags of the system, active CPUs, by interrupts",
            Policy {
                reach: Reach::Ipi,
                targets: shootdown::Targets::Active,
                ..system
            }
            .on(Machine { tag_limit: 5, ..few }),
        ),
        (
            "tags of the system, active CPUs",
            Policy {
                targets: shootdown::Targets::Active,
                reach: Reach::LocalFirst,
                ..system
            }
            .on(Machine { tag_limit: 5, ..few }),
        ),
        ("few tags of the system", system.on(Machine { tag_limit: 5, ..few })),
        (
            "local first, flush at exit",
            Policy {
                reach: Reach::LocalFirst,
                exit: Exit::Flush,
                ..system
            }
            .on(few),
        ),
        (
            "by interrupts, page by page",
            Policy {
                reach: Reach::Ipi,
                exit: Exit::Flush,
                ceiling: 33,
                ..system
            }
            .on(few),
        ),
        (
            "log, answered early",
            Policy {
                tags: Tags::PerCpu,
                reach: Reach::Ipi,
                ack: Ack::Early,
                slots: 2,
                ..hybrid
            }
            .on(few),
        ),
        (
            "log and promotion, answered early",
            Policy {
                ack: Ack::Early,
                ..hybrid
            }
            .on(few),
        ),
        (
            "log, also by interrupts, answered early",
            Policy {
                ack: Ack::Early,
                ..hybrid
            }
            .on(Machine {
                errata: errata(true, false),
                ..few
            }),
        ),
        (
            "synchronous batches",
            Policy {
                free: shootdown::Free::Synchronous,
                ..hybrid
            }
            .on(few),
        ),
        (
            "trims at once",
            Policy {
                departure: Departure::WhenAsked { trim_ns: 1 },
                ..Policy::IPI
            }
            .on(Machine::PCID),
        ),
        (
            "requests at once to leave a shared space",
            Policy {
                departure: Departure::WhenShared { looks: 1 },
                ..Policy::IPI
            }
            .on(Machine::PCID),
        ),
        (
            "adaptive, asks at once",
            Policy {
                departure: Departure::WhenShared { looks: 1 },
                ..Policy::ADAPTIVE
            }
            .on(Machine::PCID),
        ),
        (
            "two slots, all CPUs",
            Policy {
                slots: 2,
                targets: shootdown::Targets::All,
                ..Policy::IPI
            }
            .on(Machine::PCID),
        ),
        (
            "two slots, the whole set",
            Policy {
                slots: 2,
                targets: shootdown::Targets::Space,
                ..Policy::IPI
            }
            .on(Machine::PCID),
        ),
        ("no tags", Policy::IPI.on(Machine::NO_TAGS)),
        (
            "no tags, log, asks at once",
            Policy {
                departure: Departure::WhenShared { looks: 1 },
                ..Policy::ADAPTIVE
            }
            .on(Machine::NO_TAGS),
        ),
    ]
    .into_iter()
}
