//! The machine: CPUs that go on one step at a time, in whatever order somebody chooses.
//!
//! A step is one of [`Step`]. Nothing has a duration; there is only order. Between two steps the machine is in a
//! *state*, which [`Machine::hash`] identifies: each CPU is where the values that it has read have led it, so its
//! history of those values stands for its stack and registers.
//!
//! Owns what a CPU is (its interrupts, caches, history, what it waits for) and the oracle. Knows the engine only as
//! somebody who calls.

use crate::architecture::Architecture;
use crate::memory::{Image, Memory};
use crate::sharing::{ACCESSES, Place};
use crate::tlb::{Frame, Owner, Table, Tables, Tlb};
use crate::views::Time;
use crate::violation::Violation;
use crate::word::{Address, MAX_CPUS, mix};
use std::cell::RefCell;

/// Spaces that there can be, the kernel's not counted.
pub const SPACES: usize = 4;
/// Pages of a space.
pub const PAGES: usize = 2;
/// Words that the engine, its per-CPU state and its spaces may take.
const FIXED_WORDS: u32 = 4096;

/// What can happen next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Step {
    /// This CPU goes on to its next operation that others could see.
    Run(u8),
    /// The store in this place of this CPU's buffer becomes visible, from 1 for the oldest, and what must come before
    /// it.
    Drain(u8, u8),
    /// This CPU goes on, and its load returns what stood in the word so many replacements before.
    Old(u8, u8),
    /// This CPU takes its interrupt.
    Interrupt(u8),
}

impl Step {
    /// Whose step it is.
    pub fn cpu(self) -> usize {
        match self {
            Step::Run(cpu) | Step::Drain(cpu, _) | Step::Old(cpu, _) | Step::Interrupt(cpu) => usize::from(cpu),
        }
    }
}

/// A line of the story of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// Who.
    pub cpu: usize,
    /// What, in words.
    pub text: String,
    /// Only of interest to who wants every memory access.
    pub detail: bool,
}

/// One CPU.
#[derive(Debug, Clone, Default)]
pub(crate) struct Cpu {
    pub(crate) history: u64,
    /// Operations so far that others can see, or that change what this CPU does. Not part of the state.
    pub(crate) effects: u64,
    pub(crate) masked: bool,
    pub(crate) pending: bool,
    pub(crate) tlb: Tlb,
    /// It may touch user addresses.
    pub(crate) user: bool,
    /// It is off, or on the way there or back: it touches nothing that is being unmapped.
    pub(crate) off: bool,
    /// What its script has begun and not ended, one within the other.
    depth: u8,
    /// What its script has ended.
    ended: u64,
    /// How far it is in its script.
    pub(crate) place: Place,
    /// Its script is over; it only takes interrupts.
    pub(crate) done: bool,
    /// It is in its interrupt's handler, and what that came into. Not on its stack: whoever [goes
    /// back](crate::snapshot) copies stacks as bytes.
    pub(crate) interrupted: Option<Interrupted>,
    /// A table that software here holds a link to.
    pub(crate) holds: Option<Table>,
    /// The word that its next step touches, if it touches one.
    pub(crate) next: Option<Address>,
    /// That step is a load.
    pub(crate) loads: bool,
    /// How far back the load looks that is its next step.
    pub(crate) back: u8,
    /// What the condition of a wait has read, while it is being evaluated.
    pub(crate) reads: Option<Vec<(Address, u64)>>,
    /// What must change before it can go on.
    pub(crate) blocked: Option<Vec<(Address, u64)>>,
}

/// What a machine was at some time, but for what is known about sharing.
#[derive(Debug, Clone, Default)]
pub(crate) struct Kept {
    cpus: Vec<Cpu>,
    memory: Image,
    freed_frames: u64,
    freed_tables: u64,
}

/// The wait that an interrupt came into.
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
    /// By owner, from 1: where its link stands. The value is a table's number, 0 for none.
    pub(crate) links: Vec<Address>,
    /// By table, from 1, and page: where the entry stands. The value is a frame, 0 for none.
    pub(crate) entries: Vec<[Address; PAGES]>,
    /// Where the entry of the kernel's page stands.
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
    /// What may have been found since then counts as well.
    pub(crate) early: Option<Time>,
}

impl View<'_> {
    /// All that may be found in a word.
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
    /// The CPU whose step it is.
    pub(crate) current: usize,
    /// Before the scripts begin: CPUs go on one after the other and all stores are visible at once.
    pub(crate) setting_up: bool,
    pub(crate) freed_frames: u64,
    pub(crate) freed_tables: u64,
    pub(crate) violation: Option<Violation>,
    story: Option<Vec<Line>>,
}

thread_local! {
    static MACHINE: RefCell<Option<Machine>> = const { RefCell::new(None) };
}

/// Makes `machine` the one that the scripts of this host thread run on.
pub(crate) fn install(machine: Machine) {
    MACHINE.with(|current| *current.borrow_mut() = Some(machine));
}

/// Calls `body` with the machine of this host thread.
///
/// # Panics
/// When there is none, or when called from within `body`.
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

    /// Makes `kept` what the machine is now.
    pub(crate) fn keep(&self, kept: &mut Kept) {
        kept.cpus.clone_from(&self.cpus);
        self.memory.keep(&mut kept.memory);
        (kept.freed_frames, kept.freed_tables) = (self.freed_frames, self.freed_tables);
    }

    /// As it was, but for what is known about sharing. With `tell` what happens from here on is recorded.
    pub(crate) fn go_back(&mut self, kept: &Kept, tell: bool) {
        self.cpus.clone_from(&kept.cpus);
        self.memory.go_back(&kept.memory);
        (self.freed_frames, self.freed_tables) = (kept.freed_frames, kept.freed_tables);
        self.violation = None;
        self.story = tell.then(Vec::new);
    }

    /// What can happen now, but for steps that may as well happen later: a store becomes visible just before somebody
    /// else's operation on its word, or at a fence of its own CPU.
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
            // A CPU that waits comes to look at what it has read before.
            let wanted = |address: Address, value: u64| {
                others().any(|(_, other)| {
                    other.next == Some(address) || other.blocked.iter().flatten().any(|&(read, _)| read == address)
                }) || (value != 0 && self.words.contains(address))
            };
            steps.extend(
                self.memory
                    .waiting(number, wanted)
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

    /// CPUs that have not come to the end of their script.
    pub(crate) fn waiting(&self) -> Vec<usize> {
        (0..self.cpus.len()).filter(|&cpu| !self.cpus[cpu].done).collect()
    }

    fn places(cpus: &[Cpu]) -> [Place; MAX_CPUS] {
        std::array::from_fn(|cpu| cpus.get(cpu).map_or(Place::MAX, |cpu| cpu.place))
    }

    /// Forgets what makes no difference any more.
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
            // Not in the history of a CPU that waits: what it would have to see changed.
            for &(address, seen) in cpu.blocked.iter().flatten() {
                hash = mix(mix(hash, u64::from(address) + 1), seen);
            }
        }
        hash
    }

    /// Says that a rule was broken; the first counts.
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

    /// Adds to the story, if it is told.
    #[inline]
    pub(crate) fn tell(&mut self, text: impl FnOnce() -> String) {
        self.tell_of(self.current, false, text);
    }

    #[inline]
    pub(crate) fn detail(&mut self, text: impl FnOnce() -> String) {
        self.tell_of(self.current, true, text);
    }

    pub(crate) fn tell_of(&mut self, cpu: usize, detail: bool, text: impl FnOnce() -> String) {
        if let Some(story) = &mut self.story {
            story.push(Line {
                cpu,
                text: text(),
                detail,
            });
        }
    }

    // Scripts.

    /// The script of the current CPU begins something.
    pub(crate) fn begins(&mut self, text: impl FnOnce() -> String) {
        self.cpu().depth += 1;
        self.tell(text);
    }

    /// It has ended what it began last. What it has read on the way is of no matter any more: the script keeps nothing,
    /// so this CPU is where its script is.
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
        self.tell(|| "is done".into());
    }

    // Waits.

    /// A condition is going to be evaluated. Returns what [`condition_failed`](Self::condition_failed) needs.
    pub(crate) fn condition_begins(&mut self) -> (u64, u64, Place) {
        let cpu = self.cpu();
        cpu.reads = Some(Vec::new());
        (cpu.history, cpu.effects, cpu.place)
    }

    /// It did not hold, which is all that it leaves behind, so the CPU is where it was before. When it has changed
    /// nothing either (it may have served requests), the CPU is blocked until something that it has read changes: then
    /// true.
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
