//! Designs that no preset has: what presets leave out of the combinations, and limits that are reached soon.

use shootdown::{Ack, Departure, Design, Errata, Exit, Reach, Requests, Tags, Worth};

/// What no preset has.
pub fn variants() -> impl Iterator<Item = (&'static str, Design)> {
    let system = Design {
        tag_limit: 7,
        ..Design::ARM_BROADCAST
    };
    let hybrid = Design {
        tags: Tags::Hybrid { promote_at: 2 },
        slots: 2,
        tag_limit: 7,
        worth: Worth::Count,
        sample_one_in: 1,
        demote_after: 1,
        consider_window_ns: 1,
        ..Design::ADAPTIVE
    };
    let errata = |interrupt_too, never_broadcast| Errata {
        interrupt_too,
        never_broadcast,
        ..Errata::NONE
    };
    [
        (
            "tags by cost",
            Design {
                worth: Worth::Cost,
                ..hybrid
            },
        ),
        (
            "log on slots",
            Design {
                tags: Tags::PerCpu,
                reach: Reach::Ipi,
                slots: 2,
                ..hybrid
            },
        ),
        (
            "log on slots, low ceiling",
            Design {
                tags: Tags::PerCpu,
                reach: Reach::Ipi,
                ceiling: 2,
                ..hybrid
            },
        ),
        (
            "log, split",
            Design {
                tags: Tags::PerCpu,
                reach: Reach::Ipi,
                split: true,
                tag_limit: 4096,
                ..hybrid
            },
        ),
        (
            "log and deferral",
            Design {
                tags: Tags::PerCpu,
                requests: Requests::Log,
                ..Design::DEFERRED
            },
        ),
        (
            "deferral of few frames",
            Design {
                defer_frames: 3,
                ..Design::DEFERRED
            },
        ),
        (
            "hybrid and deferral",
            Design {
                free: shootdown::Free::Deferred,
                ..hybrid
            },
        ),
        (
            "hybrid, interrupts besides",
            Design {
                errata: errata(true, false),
                ..hybrid
            },
        ),
        (
            "hybrid on stack, interrupts besides",
            Design {
                errata: errata(true, false),
                requests: Requests::PerRequest,
                ..hybrid
            },
        ),
        (
            "hybrid, never broadcast",
            Design {
                errata: errata(false, true),
                ..hybrid
            },
        ),
        ("hybrid, low ceiling", Design { ceiling: 1, ..hybrid }),
        // Tags are short.
        ("hybrid, one tag", Design { tag_limit: 4, ..hybrid }),
        (
            "hybrid, one tag, promoted at one",
            Design {
                tag_limit: 4,
                tags: Tags::Hybrid { promote_at: 1 },
                demote_after: 4,
                ..hybrid
            },
        ),
        (
            "hybrid, demoted late",
            Design {
                tags: Tags::Hybrid { promote_at: 3 },
                demote_after: 3,
                ..hybrid
            },
        ),
        (
            "hybrid, sampled seldom",
            Design {
                sample_one_in: 4,
                ..hybrid
            },
        ),
        (
            "published walks, log",
            Design {
                walkers: shootdown::Walkers::PreciseExchange,
                ..hybrid
            },
        ),
        (
            "registered walks, log",
            Design {
                walkers: shootdown::Walkers::Sticky,
                ..hybrid
            },
        ),
        (
            "log on tags of the system",
            Design {
                requests: Requests::Log,
                ..system
            },
        ),
        (
            "log on tags of the system, by interrupts",
            Design {
                requests: Requests::Log,
                reach: Reach::Ipi,
                ..system
            },
        ),
        (
            "tags of the system, whoever is active, by interrupts",
            Design {
                reach: Reach::Ipi,
                targets: shootdown::Targets::Active,
                tag_limit: 5,
                ..system
            },
        ),
        (
            "tags of the system, whoever is active",
            Design {
                targets: shootdown::Targets::Active,
                reach: Reach::LocalFirst,
                tag_limit: 5,
                ..system
            },
        ),
        ("few tags of the system", Design { tag_limit: 5, ..system }),
        (
            "local first, flush at exit",
            Design {
                reach: Reach::LocalFirst,
                exit: Exit::Flush,
                ..system
            },
        ),
        (
            "by interrupts, page by page",
            Design {
                reach: Reach::Ipi,
                exit: Exit::Flush,
                ceiling: 33,
                ..system
            },
        ),
        (
            "log, answered early",
            Design {
                tags: Tags::PerCpu,
                reach: Reach::Ipi,
                ack: Ack::Early,
                slots: 2,
                ..hybrid
            },
        ),
        (
            "log and promotion, answered early",
            Design {
                ack: Ack::Early,
                ..hybrid
            },
        ),
        (
            "log, interrupts besides, answered early",
            Design {
                ack: Ack::Early,
                errata: errata(true, false),
                ..hybrid
            },
        ),
        (
            "synchronous batches",
            Design {
                free: shootdown::Free::Synchronous,
                ..hybrid
            },
        ),
        (
            "trims at once",
            Design {
                departure: Departure::WhenAsked { trim_ns: 1 },
                ..Design::IPI
            },
        ),
        (
            "asks at once whoever has left a shared space",
            Design {
                departure: Departure::WhenShared { looks: 1 },
                ..Design::IPI
            },
        ),
        (
            "adaptive, asks at once",
            Design {
                departure: Departure::WhenShared { looks: 1 },
                ..Design::ADAPTIVE
            },
        ),
        (
            "two slots, everybody",
            Design {
                slots: 2,
                targets: shootdown::Targets::All,
                ..Design::IPI
            },
        ),
        (
            "two slots, the whole set",
            Design {
                slots: 2,
                targets: shootdown::Targets::Space,
                ..Design::IPI
            },
        ),
    ]
    .into_iter()
}
