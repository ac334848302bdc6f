//! The races to explore.

use crate::architecture::Architecture;
use crate::stage::{Scenario, Stage, TAGS};
use shootdown::{Departure, Design, Free, Machine, Policy, Walkers};

/// A policy whose kernel has no lockless walks.
const fn no_walks(policy: Policy) -> Design {
    Policy {
        walkers: Walkers::None,
        ..policy
    }
    .on(Machine::PCID)
}

/// Every CPU runs space 0.
fn all_run(stage: &Stage) {
    for cpu in 0..stage.cpus() {
        stage.on(cpu, |stage| stage.run(0));
    }
}

/// CPU 0 runs space 0. CPU 1 has run it, and runs the other space.
fn one_has_left(stage: &Stage) {
    all_run(stage);
    stage.on(1, |stage| stage.run(1));
}

/// Every CPU runs space 0; the kernel's page is mapped.
fn kernel_mapped(stage: &Stage) {
    stage.on(0, Stage::map_kernel);
    all_run(stage);
}

/// Both CPUs run space 0; CPU 1 is in lazy TLB mode.
fn one_is_lazy(stage: &Stage) {
    all_run(stage);
    stage.on(1, Stage::go_lazy);
}

const BASE: Scenario = Scenario {
    name: "",
    about: "",
    design: no_walks(Policy::IPI),
    broadcasts: false,
    memory: Architecture::X86,
    tags: TAGS,
    before: all_run,
    scripts: &[],
};

/// Races for every design. CPU 0 considers promotion at every opportunity, so designs that promote do so during the
/// race.
pub const RACES: &[Scenario] = &[
    Scenario {
        name: "flush",
        about: "a page is withdrawn while another CPU runs the space",
        scripts: &[|stage| stage.unmap(0, 0), |_| {}],
        ..BASE
    },
    Scenario {
        name: "cross",
        about: "two CPUs withdraw pages of the same space at once",
        scripts: &[|stage| stage.unmap(0, 0), |stage| stage.unmap(0, 1)],
        ..BASE
    },
    Scenario {
        name: "masked",
        about: "two CPUs withdraw pages of the same space at once, interrupts off",
        scripts: &[
            |stage| stage.masked(|stage| stage.unmap(0, 0)),
            |stage| stage.masked(|stage| stage.unmap(0, 1)),
        ],
        ..BASE
    },
    Scenario {
        name: "twice",
        about: "a CPU withdraws one page after the other while another runs the space",
        scripts: &[
            |stage| {
                stage.unmap(0, 0);
                stage.unmap(0, 1);
            },
            |_| {},
        ],
        ..BASE
    },
    Scenario {
        name: "switch",
        about: "a CPU leaves the space and comes back while a page is withdrawn",
        scripts: &[
            |stage| stage.unmap(0, 0),
            |stage| {
                stage.run(1);
                stage.run(0);
            },
        ],
        ..BASE
    },
    Scenario {
        name: "return",
        about: "a CPU that has run the space before comes back while a page is withdrawn",
        before: one_has_left,
        scripts: &[|stage| stage.unmap(0, 0), |stage| stage.run(0)],
        ..BASE
    },
    Scenario {
        name: "departed",
        about: "a CPU that has left the space comes back while requests ask CPUs that have left to leave its set",
        design: Policy {
            departure: Departure::WhenShared { looks: 1 },
            ..BASE.design.policy
        }
        .on(Machine::PCID),
        before: one_has_left,
        scripts: &[
            |stage| {
                stage.unmap_at_once(0, 0);
                stage.unmap_at_once(0, 1);
            },
            |stage| stage.run(0),
        ],
        ..BASE
    },
    Scenario {
        name: "given-back",
        about: "a space gets a tag and loses it again while a CPU visits it twice",
        before: one_has_left,
        scripts: &[
            |stage| {
                stage.unmap_and_wait_later(0, 0, |stage| stage.flush(0, 1));
                stage.unmap(0, 1);
            },
            |stage| {
                stage.run(0);
                stage.run(1);
                stage.run(0);
            },
        ],
        ..BASE
    },
    Scenario {
        name: "lazy",
        about: "a CPU goes lazy and comes back while a page is withdrawn",
        scripts: &[
            |stage| stage.unmap(0, 0),
            |stage| {
                stage.go_lazy();
                stage.resume(0);
            },
        ],
        ..BASE
    },
    Scenario {
        name: "kernel",
        about: "a CPU makes a system call while a page is withdrawn",
        scripts: &[|stage| stage.unmap(0, 0), |stage| stage.call_kernel(0)],
        ..BASE
    },
    Scenario {
        name: "tables",
        about: "a table is freed while a CPU leaves and comes back",
        scripts: &[
            |stage| stage.free_table(0),
            |stage| {
                stage.run(1);
                stage.run(0);
            },
        ],
        ..BASE
    },
    Scenario {
        name: "lazy-tables",
        about: "a table is freed while a lazy CPU comes back",
        before: one_is_lazy,
        scripts: &[|stage| stage.free_table(0), |stage| stage.resume(0)],
        ..BASE
    },
    Scenario {
        name: "end",
        about: "a space ends that another CPU has loaded lazily",
        before: |stage| {
            one_is_lazy(stage);
            stage.on(0, |stage| stage.run(1));
        },
        scripts: &[|stage| stage.end(0), |stage| stage.run(1)],
        ..BASE
    },
    Scenario {
        name: "batch",
        about: "a batch withdraws pages of two spaces while a CPU changes from one to the other",
        scripts: &[|stage| stage.reclaim(0), |stage| stage.run(1)],
        ..BASE
    },
    Scenario {
        name: "hotplug",
        about: "a CPU goes off and comes back while a page is withdrawn",
        scripts: &[
            |stage| stage.unmap(0, 0),
            |stage| {
                stage.go_off();
                stage.come_on();
                stage.run(0);
            },
        ],
        ..BASE
    },
    Scenario {
        name: "off",
        about: "a CPU goes off for good while a page is withdrawn",
        scripts: &[|stage| stage.unmap(0, 0), Stage::go_off],
        ..BASE
    },
];

/// The part of the design that the race sets: frames of private pages may wait for ticks.
const DEFERRED: Scenario = Scenario {
    design: Policy {
        free: Free::Deferred,
        ..BASE.design.policy
    }
    .on(Machine::PCID),
    ..BASE
};

/// Races of unmaps whose frames wait for ticks.
pub const DEFERRALS: &[Scenario] = &[
    Scenario {
        name: "deferral",
        about: "the frame of a page waits for the ticks of another CPU that runs the space",
        scripts: &[
            |stage| stage.unmap_later(0, 0),
            |stage| {
                stage.tick();
                stage.tick();
            },
        ],
        ..DEFERRED
    },
    Scenario {
        name: "deferral-lazy",
        about: "the frame of a page waits while another CPU goes lazy and comes back",
        scripts: &[
            |stage| stage.unmap_later(0, 0),
            |stage| {
                stage.go_lazy();
                stage.tick();
                stage.resume(0);
            },
        ],
        ..DEFERRED
    },
    Scenario {
        name: "ticks-stop",
        about: "the frame of a page waits while another CPU takes no more ticks",
        scripts: &[|stage| stage.unmap_later(0, 0), |stage| stage.stop_ticks()],
        ..DEFERRED
    },
    Scenario {
        name: "ticks-resume",
        about: "a page is withdrawn while another CPU begins an epoch and takes ticks again",
        before: |stage| {
            all_run(stage);
            stage.on(1, Stage::stop_ticks);
        },
        scripts: &[|stage| stage.unmap_later(0, 0), |stage| stage.look_and_resume_ticks()],
        ..DEFERRED
    },
];

/// Races for the kernel's own pages.
pub const OF_KERNEL: &[Scenario] = &[
    Scenario {
        name: "kernel-range",
        about: "the kernel's page is withdrawn while a CPU goes lazy and comes back",
        before: kernel_mapped,
        scripts: &[Stage::unmap_kernel, |stage| {
            stage.go_lazy();
            stage.resume(0);
        }],
        ..BASE
    },
    Scenario {
        name: "kernel-hotplug",
        about: "the kernel's page is withdrawn while a CPU goes off and comes back",
        before: kernel_mapped,
        scripts: &[Stage::unmap_kernel, |stage| {
            stage.go_off();
            stage.come_on();
        }],
        ..BASE
    },
];

/// Tags for two CPUs and one more space, none of them for the kernel.
const FEW_TAGS: u32 = 1 + 3;

/// CPU 1 has run space 0, under the first tag, and runs the third space, under the last. CPU 0 runs space 1. A
/// roll-over frees the first tag.
fn no_tag_is_left(stage: &Stage) {
    stage.on(1, |stage| stage.run(0));
    stage.on(0, |stage| stage.run(1));
    stage.on(1, |stage| stage.run(2));
}

/// Races for more spaces than there are tags.
pub const ROLL_OVERS: &[Scenario] = &[
    Scenario {
        name: "roll-over",
        about: "a CPU takes a tag when none is left, and then the space that a page is withdrawn from",
        tags: FEW_TAGS,
        before: no_tag_is_left,
        scripts: &[
            |stage| stage.unmap(0, 0),
            |stage| {
                stage.run(3);
                stage.run(0);
            },
        ],
        ..BASE
    },
    Scenario {
        name: "roll-over-lazy",
        about: "a CPU takes a tag when none is left, \
            then the space that another has loaded lazily, and withdraws a page from it",
        tags: FEW_TAGS,
        before: |stage| {
            stage.on(1, |stage| {
                stage.run(0);
                stage.go_lazy();
            });
            stage.on(0, |stage| {
                stage.run(1);
                stage.run(2);
            });
        },
        scripts: &[
            |stage| {
                stage.run(3);
                stage.run(0);
                stage.unmap(0, 0);
            },
            |stage| stage.resume(0),
        ],
        ..BASE
    },
    Scenario {
        name: "roll-over-batch",
        about: "a batch withdraws pages of two spaces while a CPU takes \
            a tag when none is left, and then one of the two",
        tags: FEW_TAGS,
        before: no_tag_is_left,
        scripts: &[
            |stage| stage.reclaim(0),
            |stage| {
                stage.run(3);
                stage.run(0);
            },
        ],
        ..BASE
    },
];

/// Races with lockless walks, for designs that protect freed tables from walks.
pub const WALKS: &[Scenario] = &[
    Scenario {
        name: "walk",
        about: "a table is freed while another CPU walks the space without a lock",
        design: Policy::IPI.on(Machine::PCID),
        scripts: &[|stage| stage.free_table(0), |stage| stage.walk(0)],
        ..BASE
    },
    Scenario {
        name: "foreign-walk",
        about: "a table is freed while a CPU that runs another space walks this one, for the second time",
        design: Policy::IPI.on(Machine::PCID),
        before: |stage| {
            all_run(stage);
            stage.on(1, |stage| {
                stage.run(1);
                stage.walk(0);
            });
        },
        scripts: &[|stage| stage.free_table(0), |stage| stage.walk(0)],
        ..BASE
    },
];

/// Races of three CPUs.
pub const OF_THREE: &[Scenario] = &[
    Scenario {
        name: "flush-3",
        about: "a page is withdrawn while two CPUs run the space",
        scripts: &[|stage| stage.unmap(0, 0), |_| {}, |_| {}],
        ..BASE
    },
    Scenario {
        name: "switch-3",
        about: "a page is withdrawn while one CPU switches in and one goes lazy and comes back",
        before: one_has_left,
        scripts: &[
            |stage| stage.unmap(0, 0),
            |stage| stage.run(0),
            |stage| {
                stage.go_lazy();
                stage.resume(0);
            },
        ],
        ..BASE
    },
    Scenario {
        name: "cross-3",
        about: "two CPUs withdraw pages at once while a third runs the space",
        scripts: &[|stage| stage.unmap(0, 0), |stage| stage.unmap(0, 1), |_| {}],
        ..BASE
    },
];

/// Races of four CPUs: too many states for exhaustive exploration.
pub const OF_FOUR: &[Scenario] = &[
    Scenario {
        name: "mixed-4",
        about: "two CPUs withdraw pages at once while one switches in and out and one goes lazy and comes back",
        scripts: &[
            |stage| stage.unmap(0, 0),
            |stage| stage.unmap(0, 1),
            |stage| {
                stage.run(1);
                stage.run(0);
            },
            |stage| {
                stage.go_lazy();
                stage.resume(0);
            },
        ],
        ..BASE
    },
    Scenario {
        name: "tables-4",
        about: "a table is freed and a page of another space withdrawn while \
            a CPU that has left walks it and one goes off and comes back",
        design: Policy::IPI.on(Machine::PCID),
        scripts: &[
            |stage| stage.free_table(0),
            |stage| stage.unmap(1, 0),
            |stage| {
                stage.run(1);
                stage.walk(0);
                stage.walk(0);
            },
            |stage| {
                stage.go_off();
                stage.come_on();
                stage.run(0);
            },
        ],
        ..BASE
    },
];

/// All races, those of two CPUs first.
pub fn races() -> impl Iterator<Item = &'static Scenario> {
    let of_two = RACES
        .iter()
        .chain(DEFERRALS)
        .chain(OF_KERNEL)
        .chain(ROLL_OVERS)
        .chain(WALKS);
    of_two.chain(OF_THREE).chain(OF_FOUR)
}
