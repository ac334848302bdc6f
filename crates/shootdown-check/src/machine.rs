//! The machine: CPUs that run one step at a time, in an order that the caller chooses.
//!
//! A step is one of [`Step`]. There is no duration, only order. Between two steps the machine is in a *state*, which
//! [`Machine::hash`] identifies. The values that a CPU has read determine its position, so the history of those values
//! stands for its stack and registers.
//!
//! Owns the state of a CPU (its interrupts, caches, history, wait) and the oracle. Knows the engine only as a caller.

use crate::architecture::Architecture;
use crate::memory::{Image, Memory};
use crate::sharing::{ACCESSES, Place};
use crate::tlb::{Frame, Owner, Table, Tables, Tlb};
use crate::views::Time;
use crate::violation::Violation;
use crate::word::{Address, MAX_CPUS, mix};
use std::cell::RefCell;

/// Most spaces, not counting the kernel's.
pub const SPACES: usize = 4;
/// Pages of a space.
pub const PAGES: usize = 2;
/// Words that the engine, its per-CPU state and its spaces may take.
const FIXED_WORDS: u32 = 4096;

/// The possible steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Step {
    /// This CPU runs to its next operation that other CPUs could see.
    Run(u8),
    /// The store in this place of this CPU's buffer, from 1 for the oldest, becomes visible, after those that must
    /// precede it.
    Drain(u8, u8),
    /// This CPU runs, and its load returns the value from this many replacements before.
    Old(u8, u8),
    /// This CPU takes its interrupt.
    Interrupt(u8),
}

impl Step {
    /// The CPU that takes the step.
    pub fn cpu(self) -> usize {
        match self {
            Step::Run(cpu) | Step::Drain(cpu, _) | Step::Old(cpu, _) | Step::Interrupt(cpu) => usize::from(cpu),
        }
    }
}

/// A line of the textual run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// The CPU.
    pub cpu: usize,
    /// The event, in words.
    pub text: String,
    /// Shown only with every memory access.
    pub detail: bool,
}

/// One CPU.
#[derive(Debug, Clone, Default)]
pub(crate) struct Cpu {
    pub(crate) history: u64,
    /// Operations so far that other CPUs can see, or that change what this CPU does. Not part of the state.
    pub(crate) effects: u64,
    pub(crate) masked: bool,
    pub(crate) pending: bool,
    pub(crate) tlb: Tlb,
    /// It may access user addresses.
    pub(crate) user: bool,
    /// It is offline, or going offline or online: it accesses nothing that is being unmapped.
    pub(crate) off: bool,
    /// Nesting of actions that its script has begun and not ended.
    depth: u8,
    /// Actions that its script has ended.
    ended: u64,
    /// Its position in its script.
    pub(crate) place: Place,
    /// Its script is over; it only takes interrupts.
    pub(crate) done: bool,
    /// It is in its interrupt handler, with the wait that this interrupted. Not on its stack: a
    /// [snapshot](crate::snapshot) copies stacks as bytes.
    pub(crate) interrupted: Option<Interrupted>,
    /// A table to which software on this CPU holds a link.
    pub(crate) holds: Option<Table>,
    /// The word that its next step accesses, if any.
    pub(crate) next: Option<Address>,
    /// Whether that step is a load.
    pub(crate) loads: bool,
    /// How many replacements back its next load reads.
    pub(crate) back: u8,
    /// Values read by a wait condition that is being evaluated.
    pub(crate) reads: Option<Vec<(Address, u64)>>,
    /// Values of which one must change before it can continue.
    pub(crate) blocked: Option<Vec<(Address, u64)>>,
}

/// A snapshot of the machine, without what is known about sharing.
#[derive(Debug, Clone, Default)]
pub(crate) struct Kept {
    cpus: Vec<Cpu>,
    memory: Image,
    freed_frames: u64,
    freed_tables: u64,
}

/// The wait that was interrupted.
#[derive(Debug, Clone)]
pub(crate) struct Interrupted {
    pub(crate) history: u64,
    pub(crate) reads: Option<Vec<(Address, u64)>>,
    pub(crate) blocked: Option<Vec<(Address, u64)>>,
    pub(crate) next: Option<Address>,
    pub(crate) loads: bool,
}

/// Page tables in memory: the links of the roots, and the entries of each table.
#[derive(Debug, Clone, Default)]
pub(crate) struct TableWords {
    /// Address of each owner's link, from 1. The value is a table's number, 0 for none.
    pub(crate) links: Vec<Address>,
    /// Address of each entry, by table, from 1, and page. The value is a frame, 0 for none.
    pub(crate) entries: Vec<[Address; PAGES]>,
    /// Address of the entry of the kernel's page.
    pub(crate) kernel: Address,
}

impl TableWords {
    /// Whether walkers read the word.
    pub(crate) fn contains(&self, address: Address) -> bool {
        address == self.kernel
            || self.links.contains(&address)
            || self.entries.iter().any(|pages| pages.contains(&address))
    }
}

/// Memory as the walker of one CPU finds it.
pub(crate) struct View<'a> {
    pub(crate) memory: &'a Memory,
    pub(crate) words: &'a TableWords,
    pub(crate) cpu: usize,
    /// Includes what may have been found since then.
    pub(crate) early: Option<Time>,
}

impl View<'_> {
    /// Every value that may be found in a word.
    fn found(&self, address: Address) -> impl Iterator<Item = u8> {
        let older = self.memory.views.walked(self.cpu, address, self.early);
        let all = std::iter::once(self.memory.value(address)).chain(older);
        all.filter(|&value| value != 0).map(|value| value as u8)
    }
}

impl Tables for View<'_> {
    fn links(&self, owner: Owner) -> impl Iterator<Item = Table> {
        self.found(self.words.links[usize::from(owner) - 1])
    }

    fn pages(&self, table: Table) -> impl Iterator<Item = (u8, Frame)> {
        let pages = self.words.entries[usize::from(table) - 1].iter().zip(0..);
        pages.flat_map(|(&address, page)| self.found(address).map(move |frame| (page, frame)))
    }

    fn kernel(&self) -> impl Iterator<Item = Frame> {
        self.found(self.words.kernel)
    }
}

/// The machine.
#[derive(Debug)]
pub struct Machine {
    pub(crate) architecture: Architecture,
    pub(crate) cpus: Vec<Cpu>,
    pub(crate) memory: Memory,
    pub(crate) words: TableWords,
    /// The CPU that takes the step.
    pub(crate) current: usize,
    /// Before the scripts begin: CPUs run one after the other and all stores are visible at once.
    pub(crate) setting_up: bool,
    pub(crate) freed_frames: u64,
    pub(crate) freed_tables: u64,
    pub(crate) violation: Option<Violation>,
    story: Option<Vec<Line>>,
}

thread_local! {
    static MACHINE: RefCell<Option<Machine>> = const { RefCell::new(None) };
}

/// Installs `machine` for the scripts of this host thread.
pub(crate) fn install(machine: Machine) {
    MACHINE.with(|current| *current.borrow_mut() = Some(machine));
}

/// Calls `body` with the machine of this host thread.
///
/// # Panics
/// If there is none, or if called from within `body`.
#[inline]
pub(crate) fn with<T>(body: impl FnOnce(&mut Machine) -> T) -> T {
    MACHINE.with(|current| body(current.borrow_mut().as_mut().expect("a machine is installed")))
}

impl Machine {
    pub(crate) fn new(cpus: usize, architecture: Architecture) -> Self {
        assert!((1..=MAX_CPUS).contains(&cpus), "1 to {MAX_CPUS} CPUs");
        Machine {
            architecture,
            cpus: (0..cpus).map(|_| Cpu::default()).collect(),
            memory: Memory::new(FIXED_WORDS, cpus, architecture),
            words: TableWords::default(),
            current: 0,
            setting_up: true,
            freed_frames: 0,
            freed_tables: 0,
            violation: None,
            story: None,
        }
    }

    /// The set-up is over: from here on scripts run.
    pub(crate) fn begin(&mut self) {
        self.setting_up = false;
        self.memory.seal();
    }

    /// Copies the state of the machine to `kept`.
    pub(crate) fn keep(&self, kept: &mut Kept) {
        kept.cpus.clone_from(&self.cpus);
        self.memory.keep(&mut kept.memory);
        (kept.freed_frames, kept.freed_tables) = (self.freed_frames, self.freed_tables);
    }

    /// Restores a state, except what is known about sharing. With `traced` later events are recorded.
    pub(crate) fn go_back(&mut self, kept: &Kept, traced: bool) {
        self.cpus.clone_from(&kept.cpus);
        self.memory.go_back(&kept.memory);
        (self.freed_frames, self.freed_tables) = (kept.freed_frames, kept.freed_tables);
        self.violation = None;
        self.story = traced.then(Vec::new);
    }

    /// The possible steps, without those that may as well happen later: a store becomes visible just before another
    /// CPU's operation on its word, or at a fence of its own CPU.
    pub(crate) fn steps(&self) -> Vec<Step> {
        let mut steps = Vec::with_capacity(2 * self.cpus.len());
        for (number, cpu) in self.cpus.iter().enumerate() {
            let id = number as u8;
            if cpu.pending && !cpu.masked {
                steps.push(Step::Interrupt(id));
            }
            if (!cpu.done || cpu.interrupted.is_some()) && self.can_run(number) {
                steps.push(Step::Run(id));
                if let Some(address) = cpu.next.filter(|_| cpu.loads) {
                    let older = self.memory.older(number, address) as u8;
                    steps.extend((1..=older).map(|back| Step::Old(id, back)));
                }
            }
            let others = || self.cpus.iter().enumerate().filter(|&(other, _)| other != number);
            // A waiting CPU will read again what it has read before.
            let ends_wait = |address: Address, value: u64| {
                others().any(|(_, other)| {
                    other.next == Some(address) || other.blocked.iter().flatten().any(|&(read, _)| read == address)
                }) || (value != 0 && self.words.contains(address))
            };
            steps.extend(
                self.memory
                    .waiting(number, ends_wait)
                    .map(|place| Step::Drain(id, place as u8)),
            );
        }
        steps
    }

    fn can_run(&self, number: usize) -> bool {
        self.cpus[number].blocked.as_ref().is_none_or(|reads| {
            reads
                .iter()
                .any(|&(address, seen)| self.memory.read(number, address) != seen)
        })
    }

    /// CPUs that have not reached the end of their script.
    pub(crate) fn waiting(&self) -> Vec<usize> {
        (0..self.cpus.len()).filter(|&cpu| !self.cpus[cpu].done).collect()
    }

    fn places(cpus: &[Cpu]) -> [Place; MAX_CPUS] {
        std::array::from_fn(|cpu| cpus.get(cpu).map_or(Place::MAX, |cpu| cpu.place))
    }

    /// Drops state that no longer makes a difference.
    pub(crate) fn forget(&mut self) {
        if self.memory.views.are_kept() {
            let words = &self.words;
            let places = Self::places(&self.cpus);
            self.memory.forget(&places, |address| words.contains(address));
        }
    }

    /// Identifies the state.
    pub(crate) fn hash(&self) -> u64 {
        let places = Self::places(&self.cpus);
        let mut hash = mix(
            self.memory.hash(&places, |address| self.words.contains(address)),
            mix(self.freed_frames, self.freed_tables),
        );
        for cpu in &self.cpus {
            let flags = u64::from(cpu.masked)
                | u64::from(cpu.pending) << 1
                | u64::from(cpu.user) << 2
                | u64::from(cpu.done) << 3
                | u64::from(cpu.off) << 4
                | u64::from(cpu.holds.unwrap_or(0)) << 8;
            hash = mix(mix(mix(hash, cpu.history), flags), cpu.tlb.hash());
            // Not in the history of a waiting CPU: the values of which one must change.
            for &(address, seen) in cpu.blocked.iter().flatten() {
                hash = mix(mix(hash, u64::from(address) + 1), seen);
            }
        }
        hash
    }

    /// Records a broken rule; the first counts.
    pub(crate) fn break_rule(&mut self, violation: Violation) {
        self.violation.get_or_insert(violation);
    }

    pub(crate) fn take_violation(&mut self) -> Option<Violation> {
        self.violation.take()
    }

    pub(crate) fn is_broken(&self) -> bool {
        self.violation.is_some()
    }

    pub(crate) fn take_story(&mut self) -> Vec<Line> {
        self.story.take().unwrap_or_default()
    }

    /// Adds a line to the textual run, if it is recorded.
    #[inline]
    pub(crate) fn trace(&mut self, text: impl FnOnce() -> String) {
        self.trace_on(self.current, false, text);
    }

    #[inline]
    pub(crate) fn detail(&mut self, text: impl FnOnce() -> String) {
        self.trace_on(self.current, true, text);
    }

    pub(crate) fn trace_on(&mut self, cpu: usize, detail: bool, text: impl FnOnce() -> String) {
        if let Some(story) = &mut self.story {
            story.push(Line {
                cpu,
                text: text(),
                detail,
            });
        }
    }

    // Scripts.

    /// The script of the current CPU begins an action.
    pub(crate) fn begins(&mut self, text: impl FnOnce() -> String) {
        self.cpu().depth += 1;
        self.trace(text);
    }

    /// The script ends its innermost action. What it has read on the way no longer matters: the script keeps nothing,
    /// so the CPU's position is that of its script.
    pub(crate) fn ends(&mut self) {
        let cpu = self.cpu();
        cpu.depth -= 1;
        if cpu.depth == 0 {
            cpu.ended += 1;
            cpu.place = cpu.ended as Place * ACCESSES;
            cpu.history = mix(0, cpu.ended);
        }
    }

    /// The script of the current CPU is over.
    pub(crate) fn is_done(&mut self) {
        let cpu = self.cpu();
        (cpu.done, cpu.place) = (true, Place::MAX);
        self.trace(|| "is done".into());
    }

    // Waits.

    /// Called before a condition is evaluated. Returns what [`condition_failed`](Self::condition_failed) needs.
    pub(crate) fn condition_begins(&mut self) -> (u64, u64, Place) {
        let cpu = self.cpu();
        cpu.reads = Some(Vec::new());
        (cpu.history, cpu.effects, cpu.place)
    }

    /// The condition did not hold and leaves nothing else, so the CPU is at its previous position. If it has not
    /// changed anything either (it may have served requests), the CPU is blocked until a value that it has read
    /// changes. Then returns true.
    pub(crate) fn condition_failed(&mut self, (history, effects, place): (u64, u64, Place)) -> bool {
        let cpu = self.cpu();
        let reads = cpu.reads.take();
        (cpu.history, cpu.place) = (history, place);
        let blocked = cpu.effects == effects;
        if blocked {
            cpu.blocked = reads;
        }
        blocked
    }

    pub(crate) fn condition_held(&mut self) {
        self.cpu().reads = None;
    }

    pub(crate) fn unblock(&mut self) {
        self.cpu().blocked = None;
    }
}
