//! One simulated CPU: its clock, its activity, its pending interrupts, and its time accounting.
//!
//! Everything is a `Cell`: the record is reached through a shared reference from the scheduler and from the CPU's own
//! coroutine, and no borrow is ever held across a switch.

use super::arena::ArenaStack;
use super::config::{NEVER, Topology};
use super::store_buffer::Buffered;
use corosensei::{Coroutine, Yielder};
use std::cell::{Cell, RefCell, UnsafeCell};
use std::collections::VecDeque;
use std::ptr::NonNull;

/// Time categories for accounting.
pub const CATEGORIES: usize = 16;

/// Entries of the per-CPU memory of lines that were read.
pub(crate) const TAGS: usize = 512;

/// Why the fast paths are closed: stores are buffered.
pub(crate) const SLOW_BUFFERED: u8 = 1;
/// Why the fast paths are closed: a condition is being evaluated and its lines recorded.
pub(crate) const SLOW_RECORDING: u8 = 2;
/// Why the fast paths are closed: every store is delayed at random.
pub(crate) const SLOW_RANDOM: u8 = 4;
/// Why the fast paths are closed: this is not a CPU.
pub(crate) const SLOW_HOST: u8 = 8;
/// Why the fast paths are closed: lines are on their way that were prefetched.
pub(crate) const SLOW_PREFETCHED: u8 = 16;

/// Activity of a CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// It has no task.
    Absent,
    /// It runs, or would if it had the turn.
    Running,
    /// It is inside a long charge, which an interrupt splits.
    Charging,
    /// It spins in `wait_until`.
    Waiting,
    /// It is idle.
    Sleeping,
    /// Its task returned.
    Finished,
}

/// How much a CPU slows its siblings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Load {
    None,
    Spinning,
    Working,
}

impl State {
    #[inline]
    pub(crate) fn load(self) -> Load {
        match self {
            State::Running | State::Charging => Load::Working,
            State::Waiting => Load::Spinning,
            State::Absent | State::Sleeping | State::Finished => Load::None,
        }
    }
}

/// Arrival times at a CPU: of interrupts, or wakes. Those that have arrived are taken together.
#[derive(Debug, Default)]
pub(crate) struct Arrivals {
    /// Arrival and send time of each. Latest first.
    arrivals: RefCell<Vec<(u64, u64)>>,
}

impl Arrivals {
    /// Adds one that was sent at `sent`, or [`NEVER`] if it has no sender; returns the earliest arrival.
    pub(crate) fn add(&self, at: u64, sent: u64) -> u64 {
        let mut arrivals = self.arrivals.borrow_mut();
        let place = arrivals.partition_point(|&(arrival, _)| arrival > at);
        arrivals.insert(place, (at, sent));
        arrivals.last().map_or(NEVER, |&(arrival, _)| arrival)
    }

    /// Takes all up to `now`. Returns the send time of the first of them and the earliest remaining arrival.
    pub(crate) fn take(&self, now: u64) -> (u64, u64) {
        let mut arrivals = self.arrivals.borrow_mut();
        let keep = arrivals.partition_point(|&(arrival, _)| arrival > now);
        let sent = arrivals[keep..].iter().map(|&(_, sent)| sent).min().unwrap_or(NEVER);
        arrivals.truncate(keep);
        (sent, arrivals.last().map_or(NEVER, |&(arrival, _)| arrival))
    }

    /// The earliest after `now`.
    pub(crate) fn after(&self, now: u64) -> u64 {
        let arrivals = self.arrivals.borrow();
        let keep = arrivals.partition_point(|&(arrival, _)| arrival > now);
        keep.checked_sub(1).map_or(NEVER, |index| arrivals[index].0)
    }
}

/// A load of a line of another CPU, and the loads in flight with it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Miss {
    /// When the processor issued it, ticks.
    pub issued: u64,
    /// When the line arrived, ticks; 0: no load overlaps with it.
    pub arrived: u64,
    /// Number of loads in flight together.
    pub together: usize,
}

impl Miss {
    /// A value with which no load overlaps.
    pub(crate) const NONE: Miss = Miss {
        issued: 0,
        arrived: 0,
        together: 0,
    };
}

pub(crate) type Task = Coroutine<(), (), (), ArenaStack>;

/// One CPU. Fields are in order of use: those that every operation and every turn touches fill the first cache line of
/// the host, because many simulated CPUs have to fit into its cache.
#[repr(C, align(64))]
pub(crate) struct Cpu {
    /// Own time, ticks.
    pub clock: Cell<u64>,
    /// Charged operations so far.
    pub events: Cell<u64>,
    /// `SLOW_*` bits; 0 opens the fast paths.
    pub slow: Cell<u8>,
    pub masked: Cell<bool>,
    pub state: Cell<State>,
    /// Number plus one, as lines name their owner.
    pub name: u16,
    /// Costs of an L1 hit and of a read-modify-write that hits, in ticks, with the current slowdown by siblings.
    pub l1: Cell<u32>,
    pub rmw_hit: Cell<u32>,
    /// Current slowdown times 256.
    pub factor: Cell<u32>,
    /// (line, version) last read, by line modulo [`TAGS`]. Those of all CPUs are contiguous, in large host pages.
    tags: NonNull<[Cell<u64>; TAGS]>,

    /// Next wake-up while suspended, ticks.
    pub key: Cell<u64>,
    pub yielder: Cell<*const Yielder<(), ()>>,

    /// Earliest interrupt not yet taken.
    pub irq_at: Cell<u64>,
    /// When it was asked to leave the guest, and whether it is outside.
    pub exit_at: Cell<u64>,
    pub outside: Cell<bool>,
    pub task: UnsafeCell<Option<Task>>,
    pub daemon: Cell<bool>,
    pub siblings: Box<[u16]>,
    /// Number of the kernel that it runs.
    pub kernel: u8,

    pub irqs: Arrivals,
    /// Send time of the first of the interrupts taken last, ticks.
    pub irq_sent: Cell<u64>,
    /// Interrupts raised so far, merged ones too.
    pub raised: Cell<u64>,
    pub wake_at: Cell<u64>,
    pub wakes: Arrivals,
    pub deadline_seen: Cell<bool>,
    /// Begin of its last sleep, ticks.
    pub asleep_since: Cell<u64>,
    /// How long the core had slept when an interrupt ended this CPU's sleep, ticks; 0 outside of that interrupt.
    pub core_slept: Cell<u64>,

    /// Buffered stores, oldest first.
    pub buffer: RefCell<VecDeque<Buffered>>,
    /// When the youngest buffered store drains.
    pub last_drain: Cell<u64>,
    /// Prefetched lines and their arrival times, ticks.
    pub in_flight: RefCell<Vec<(u32, u64)>>,
    /// The line gained last, and the time in ticks until which requests of other CPUs wait.
    pub held: Cell<(u32, u64)>,
    /// The last missing load, for loads that overlap with it.
    pub miss: Cell<Miss>,
    /// (line, version) read by the conditions being evaluated; nested evaluations stack up.
    pub recorded: RefCell<Vec<(u32, u32)>>,

    pub category: Cell<u8>,
    pub since: Cell<u64>,
    /// Its next read-modify-write is an answer in a line of its own.
    pub answers: Cell<bool>,
    pub times: [Cell<u64>; CATEGORIES],
    /// Of these, the time that entering and leaving interrupt handlers took from the interrupted category.
    pub entries: [Cell<u64>; CATEGORIES],
    pub events_base: Cell<u64>,
    pub ipis_sent: Cell<u64>,
    pub interrupts: Cell<u64>,
}

impl Cpu {
    /// CPU `id` of `topology`; `id == topology.cpus` makes the stand-in for the host. `tags` outlives it.
    pub(crate) fn new(
        topology: &Topology,
        id: usize,
        siblings: Box<[u16]>,
        kernel: u8,
        tags: NonNull<[Cell<u64>; TAGS]>,
    ) -> Self {
        let host = id == topology.cpus;
        Cpu {
            clock: Cell::new(u64::from(host)),
            events: Cell::new(0),
            slow: Cell::new(if host { SLOW_HOST } else { 0 }),
            masked: Cell::new(false),
            state: Cell::new(State::Absent),
            name: id as u16 + 1,
            l1: Cell::new(0),
            rmw_hit: Cell::new(0),
            factor: Cell::new(256),
            tags,
            key: Cell::new(NEVER),
            yielder: Cell::new(std::ptr::null()),
            task: UnsafeCell::new(None),
            daemon: Cell::new(false),
            siblings,
            kernel,
            irq_at: Cell::new(NEVER),
            exit_at: Cell::new(NEVER),
            outside: Cell::new(false),
            irqs: Arrivals::default(),
            irq_sent: Cell::new(NEVER),
            raised: Cell::new(0),
            wake_at: Cell::new(NEVER),
            wakes: Arrivals::default(),
            deadline_seen: Cell::new(false),
            asleep_since: Cell::new(0),
            core_slept: Cell::new(0),
            buffer: RefCell::default(),
            last_drain: Cell::new(0),
            in_flight: RefCell::default(),
            held: Cell::new((0, 0)),
            miss: Cell::new(Miss::NONE),
            recorded: RefCell::default(),
            category: Cell::new(0),
            since: Cell::new(0),
            answers: Cell::new(false),
            times: Default::default(),
            entries: Default::default(),
            events_base: Cell::new(0),
            ipis_sent: Cell::new(0),
            interrupts: Cell::new(0),
        }
    }

    /// Its number, from 0.
    #[inline]
    pub(crate) fn id(&self) -> usize {
        usize::from(self.name) - 1
    }

    /// Its record of a read of `line`.
    #[inline]
    pub(crate) fn tag(&self, line: u32) -> &Cell<u64> {
        // SAFETY: `Core` keeps the memory, zeroed and as large as the type requires, for the CPU's lifetime.
        unsafe { &self.tags.as_ref()[line as usize % TAGS] }
    }

    /// Lets `ticks` pass, slowed by the siblings.
    #[inline]
    pub(crate) fn pass(&self, ticks: u64) {
        self.clock.set(self.clock.get() + self.scaled(ticks));
    }

    /// As [`pass`](Self::pass), for entering or leaving an interrupt handler.
    #[inline]
    pub(crate) fn pass_entry(&self, ticks: u64) {
        let begun = self.clock.get();
        self.pass(ticks);
        let entries = &self.entries[usize::from(self.category.get())];
        entries.set(entries.get() + self.clock.get() - begun);
    }

    /// `ticks` slowed by the siblings.
    #[inline]
    pub(crate) fn scaled(&self, ticks: u64) -> u64 {
        (ticks * u64::from(self.factor.get())) >> 8
    }

    #[inline]
    pub(crate) fn count(&self) {
        self.events.set(self.events.get() + 1);
    }

    #[inline]
    pub(crate) fn set_slow(&self, bit: u8, on: bool) {
        let slow = self.slow.get();
        self.slow.set(if on { slow | bit } else { slow & !bit });
    }

    /// Whether an interrupt is due and unmasked.
    #[inline]
    pub(crate) fn interrupt_due(&self) -> bool {
        !self.masked.get() && self.irq_at.get() <= self.clock.get()
    }

    /// Raises an interrupt that arrives at `at` and was sent at `sent`, or [`NEVER`] if it has no sender.
    pub(crate) fn raise(&self, at: u64, sent: u64) {
        self.raised.set(self.raised.get() + 1);
        self.irq_at.set(self.irqs.add(at, sent));
    }
}
