//! Designs to explore: each preset, made to promote and demote at once, in place of the race's own design.

use crate::architecture::Architecture;
use crate::stage::Scenario;
use shootdown::{Departure, Design, Free, Machine, Policy, Tags, Walkers};

/// A design to explore.
#[derive(Debug, Clone, Copy)]
pub struct Configuration {
    /// Its name.
    pub name: &'static str,
    /// The design, made to promote and demote at once.
    pub design: Design,
    /// Whether the machine has broadcast instructions.
    pub broadcasts: bool,
    /// The memory model of the processors that the preset is meant for.
    pub memory: Architecture,
}

impl Configuration {
    /// The same on a machine with that memory model.
    #[must_use]
    pub fn on(self, memory: Architecture) -> Self {
        Configuration { memory, ..self }
    }
}

/// The engine's presets; `adaptive` on a machine without broadcast as well, and two designs on machines without tags.
pub fn configurations() -> impl Iterator<Item = Configuration> {
    let presets = Design::PRESETS.iter().map(|&(name, design, _)| (name, design, true));
    presets
        .chain([
            ("adaptive-no-broadcast", Policy::ADAPTIVE.into(), false),
            ("ipi-no-tags", Policy::IPI.on(Machine::NO_TAGS), false),
            ("adaptive-no-tags", Policy::ADAPTIVE.on(Machine::NO_TAGS), false),
        ])
        .map(|(name, design, broadcasts)| {
            let tags = match design.policy.tags {
                Tags::Hybrid { .. } | Tags::HybridByCost { .. } => Tags::Hybrid { promote_at: 2 },
                tags => tags,
            };
            Configuration {
                name,
                // Every space has a tag shared by all CPUs, as in Arm kernels.
                memory: match tags {
                    Tags::System => Architecture::Arm,
                    _ => Architecture::X86,
                },
                design: Policy {
                    tags,
                    sample_one_in: 1,
                    demote_after: 1,
                    ..design.policy
                }
                .on(design.machine),
                broadcasts,
            }
        })
}

/// A race under a design. If the race has no lockless walks, neither has the kernel. The race may set when CPUs leave
/// the sets of spaces, and whether frames wait for ticks.
pub fn under(race: &Scenario, configuration: Configuration) -> Scenario {
    let walkers = match race.design.policy.walkers {
        Walkers::None => Walkers::None,
        _ => configuration.design.policy.walkers,
    };
    let departure = match race.design.policy.departure {
        Departure::AtSwitch => configuration.design.policy.departure,
        its => its,
    };
    let free = match race.design.policy.free {
        Free::Deferred => Free::Deferred,
        _ => configuration.design.policy.free,
    };
    Scenario {
        design: Policy {
            walkers,
            departure,
            free,
            ..configuration.design.policy
        }
        .on(configuration.design.machine),
        broadcasts: configuration.broadcasts,
        memory: configuration.memory,
        ..*race
    }
}
