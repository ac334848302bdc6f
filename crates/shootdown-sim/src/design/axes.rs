//! Every axis of a design by name: the table that maps `design.NAME` to the setting's accessors.
//!
//! A new axis, or a new value of one, is an entry here; the command line, sweeps and `list` take their names from this
//! table.

use super::setting::{Choice, Setting, Values};
use shootdown::{Ack, Departure, Design, Exit, Free, MAX_SLOTS, Order, Reach, Requests, Tags, Targets, Wait, Walkers};

/// Where an axis is read: a description, and a predicate on designs.
pub type Place = (&'static str, fn(&Design) -> bool);

/// An axis of a design, or one of its numbers.
#[derive(Debug)]
pub struct Axis {
    /// Dotted path, `design.NAME`.
    pub path: &'static str,
    /// The values that it takes.
    pub values: Values,
    /// One line about it, unit included.
    pub about: &'static str,
    /// Designs that read it, if not all do.
    pub read: Option<Place>,
    /// Reads it.
    pub(super) get: fn(&Design) -> Setting,
    /// Writes it.
    pub(super) set: fn(&mut Design, Setting),
}

impl Axis {
    /// The value that `text` stands for.
    ///
    /// # Errors
    /// One line with the values that the axis takes.
    pub fn read(&self, text: &str) -> Result<Setting, String> {
        let expected = || format!("expected {}, found `{}`", self.values, text.trim().escape_debug());
        self.values.read(text).ok_or_else(expected)
    }

    /// Its value in a design.
    pub fn of(&self, design: &Design) -> Setting {
        (self.get)(design)
    }
}

impl PartialEq for Axis {
    fn eq(&self, other: &Self) -> bool {
        self.path == other.path
    }
}

/// An axis whose values are words, each a variant of an enumeration.
macro_rules! words {
    ($path:literal, $field:ident: $type:ident { $($word:literal => $variant:ident),+ }, $read:expr, $about:literal) => {
        Axis {
            path: $path,
            values: Values::Choices(&[$(Choice::plain($word)),+]),
            about: $about,
            read: $read,
            get: |design| match design.policy.$field {
                $($type::$variant => Setting::word($word),)+
                // Not offered: unsound and meaningless combinations.
                _ => Setting::word("none"),
            },
            set: |design, setting| match setting.word {
                $($word => design.policy.$field = $type::$variant,)+
                _ => {}
            },
        }
    };
}

/// A number.
macro_rules! number {
    ($path:literal, $($field:ident).+, $least:expr, $most:expr, $power_of_two:literal, $read:expr, $about:literal) => {
        Axis {
            path: $path,
            values: Values::Numbers {
                least: $least,
                most: $most,
                power_of_two: $power_of_two,
            },
            about: $about,
            read: $read,
            #[allow(clippy::unnecessary_cast)]
            get: |design| Setting::number(design.$($field).+ as u64),
            #[allow(clippy::unnecessary_cast)]
            set: |design, setting| design.$($field).+ = setting.number as _,
        }
    };
}

/// A setting that is on or off.
macro_rules! flag {
    ($path:literal, $($field:ident).+, $read:expr, $about:literal) => {
        Axis {
            path: $path,
            values: Values::Choices(&[Choice::plain("false"), Choice::plain("true")]),
            about: $about,
            read: $read,
            get: |design| Setting::word(if design.$($field).+ { "true" } else { "false" }),
            set: |design, setting| design.$($field).+ = setting.word == "true",
        }
    };
}

/// The most CPUs that a simulated machine has.
const MOST_CPUS: u64 = crate::model::Topology::MAX_CPUS as u64;

/// A virtual hour, ns: longer than any run.
const HOUR_NS: u64 = 3_600_000_000_000;

const ADAPTIVE: Option<Place> = Some(("where design.reach=adaptive", is_adaptive));

fn is_adaptive(design: &Design) -> bool {
    design.policy.reach == Reach::Adaptive
}

fn is_hybrid(design: &Design) -> bool {
    design.policy.tags.promote_at().is_some()
}

/// All of them, in the order of [`Design`]'s fields.
pub static AXES: [Axis; 24] = [
    Axis {
        path: "design.tags",
        values: Values::Choices(&[
            Choice::plain("per-cpu"),
            Choice::plain("system"),
            Choice::with("hybrid", "CPUS", 1, MOST_CPUS),
            Choice::with("hybrid-by-cost", "CPUS", 1, MOST_CPUS),
        ]),
        about: "how spaces get tags: slots per CPU, one on all CPUs, \
            the latter from a number of active CPUs on, or if it costs less",
        read: None,
        get: |design| match design.policy.tags {
            Tags::PerCpu => Setting::word("per-cpu"),
            Tags::System => Setting::word("system"),
            Tags::Hybrid { promote_at } => Setting::with("hybrid", u64::from(promote_at)),
            Tags::HybridByCost { promote_at } => Setting::with("hybrid-by-cost", u64::from(promote_at)),
            _ => Setting::word("none"),
        },
        set: |design, setting| {
            design.policy.tags = match setting.word {
                "per-cpu" => Tags::PerCpu,
                "system" => Tags::System,
                "hybrid-by-cost" => Tags::HybridByCost {
                    promote_at: setting.number as u32,
                },
                _ => Tags::Hybrid {
                    promote_at: setting.number as u32,
                },
            };
        },
    },
    words!("design.reach", reach: Reach {
            "ipi" => Ipi, "broadcast" => Broadcast, "local-first" => LocalFirst, "adaptive" => Adaptive
        },
        None,
        "how an invalidation reaches other CPUs"),
    words!("design.targets", targets: Targets {
            "all" => All, "space" => Space, "active" => Active, "in-user" => InUser
        },
        None,
        "which CPUs are interrupted: all, the space's set, those active in it, those in its user code"),
    Axis {
        path: "design.departure",
        values: Values::Choices(&[
            Choice::plain("at-switch"),
            Choice::with("when-asked", "NS", 0, HOUR_NS),
            Choice::with("when-shared", "LOOKS", 1, 1 << 20),
        ]),
        about: "when a CPU that has switched away leaves the space's set: at once, or when a request finds it gone",
        read: Some((
            "where design.tags is not system; \
             when-asked also where design.requests=per-request, when-shared where it is not per-cpu",
            |design| {
                design.policy.tags != Tags::System
                    && match design.policy.departure {
                        Departure::WhenAsked { .. } => design.policy.requests == Requests::PerRequest,
                        Departure::WhenShared { .. } => design.policy.requests != Requests::PerCpu,
                        _ => true,
                    }
            },
        )),
        get: |design| match design.policy.departure {
            Departure::AtSwitch => Setting::word("at-switch"),
            Departure::WhenAsked { trim_ns } => Setting::with("when-asked", trim_ns),
            Departure::WhenShared { looks } => Setting::with("when-shared", u64::from(looks)),
            _ => Setting::word("none"),
        },
        set: |design, setting| {
            design.policy.departure = match setting.word {
                "when-asked" => Departure::WhenAsked {
                    trim_ns: setting.number,
                },
                "when-shared" => Departure::WhenShared {
                    looks: setting.number as u32,
                },
                _ => Departure::AtSwitch,
            };
        },
    },
    words!("design.requests", requests: Requests { "per-request" => PerRequest, "per-cpu" => PerCpu, "log" => Log },
        None,
        "how a request is handed over: on the requester's stack, one per CPU, or in the space's log"),
    words!("design.order", order: Order { "serial" => Serial, "concurrent" => Concurrent },
        None,
        "whether the requester invalidates before it sends, or while the targets answer"),
    words!("design.ack", ack: Ack { "late" => Late, "early" => Early },
        None,
        "whether a target answers after it has invalidated, or on entry where that is right"),
    words!("design.wait", wait: Wait {
            "spin" => Spin, "spin-serving" => SpinServing,
            "preemptible" => Preemptible, "preemptible-serving" => PreemptibleServing
        },
        None,
        "whether a requester waits with preemption off or on, \
         and whether it carries out requests to its CPU meanwhile"),
    words!("design.walkers", walkers: Walkers {
            "interrupt-all" => InterruptAll, "precise" => Precise, "precise-exchange" => PreciseExchange,
            "sticky" => Sticky, "grace-period" => GracePeriod, "adaptive" => Adaptive
        },
        Some(("by workloads with lockless walks (gup)", |design| design.policy.walkers != Walkers::None)),
        "how freed page-table pages are kept from lockless walks"),
    words!("design.exit", exit: Exit { "flush" => Flush, "defer-to-roll-over" => DeferToRollOver },
        Some(("where design.tags is not per-cpu", |design| design.policy.tags != Tags::PerCpu)),
        "what happens to a system-wide tag when its space ends"),
    words!("design.free", free: Free { "synchronous" => Synchronous, "batched" => Batched, "deferred" => Deferred },
        None,
        "when what was unmapped is free: after its flush, after its batch's, or (RELAXED) after all CPUs' next tick"),
    flag!(
        "design.errata.never_broadcast",
        machine.errata.never_broadcast,
        Some(("where design.reach is not ipi", |design| design.policy.reach
            != Reach::Ipi)),
        "workaround: interrupts in place of every broadcast"
    ),
    flag!(
        "design.errata.interrupt_too",
        machine.errata.interrupt_too,
        Some(("where design.reach is not ipi", |design| design.policy.reach
            != Reach::Ipi)),
        "workaround: interrupts with every broadcast"
    ),
    flag!(
        "design.errata.repeat",
        machine.errata.repeat,
        None,
        "workaround: every invalidation twice"
    ),
    number!(
        "design.ceiling",
        policy.ceiling,
        0,
        1 << 20,
        false,
        None,
        "pages up to which a range is flushed page by page; above, the whole tag (Linux: 33)"
    ),
    number!(
        "design.slots",
        policy.slots,
        1,
        MAX_SLOTS as u64,
        false,
        Some(("where design.tags is not system", |design| design.policy.tags
            != Tags::System)),
        "tags in use on each CPU; in place of the machine's tags.slots"
    ),
    number!(
        "design.first_tag",
        machine.first_tag,
        1,
        u16::MAX as u64,
        false,
        None,
        "first number of the tags given out"
    ),
    number!(
        "design.tag_limit",
        machine.tag_limit,
        2,
        1 << 16,
        false,
        None,
        "one past the last tag, at most as many as the machine's tags.bits allow"
    ),
    flag!(
        "design.split",
        machine.split,
        None,
        "a tag each for the user and the kernel half of a space (PTI)"
    ),
    number!(
        "design.consider_window_ns",
        policy.consider_window_ns,
        1,
        1 << 40,
        true,
        Some((
            "where design.tags=hybrid:CPUS and design.reach is not adaptive",
            |design| is_hybrid(design) && !is_adaptive(design)
        )),
        "length of a sampling window for promotion, ns"
    ),
    number!(
        "design.sample_one_in",
        policy.sample_one_in,
        1,
        1 << 20,
        true,
        ADAPTIVE,
        "one request in this many is timed"
    ),
    number!(
        "design.demote_after",
        policy.demote_after,
        1,
        1 << 20,
        false,
        ADAPTIVE,
        "samples in a row before a space gives its tag back"
    ),
    number!(
        "design.defer_frames",
        policy.defer_frames,
        0,
        u32::MAX as u64,
        false,
        Some(("where design.free=deferred", |design| design.policy.free
            == Free::Deferred)),
        "frames that deferred unmaps of a CPU may keep waiting"
    ),
    number!(
        "design.stuck_ns",
        policy.stuck_ns,
        0,
        HOUR_NS,
        false,
        None,
        "wait after which a CPU that has not answered is reported, ns (0: never)"
    ),
];

/// The axis of that path.
pub fn axis(path: &str) -> Option<&'static Axis> {
    AXES.iter().find(|axis| axis.path == path)
}
