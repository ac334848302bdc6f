//! The machine: CPUs that go on one step at a time, in whatever order somebody chooses.
//!
//! A step is one of [`Step`]. Nothing has a duration; there is only order. Between two steps the machine is in a *state*,
//! which [`Machine::hash`] identifies: each CPU is where the values that it has read have led it, so its history of those
//! values stands for its stack and registers.
//!
//! Owns what a CPU is (its interrupts, caches, history, what it waits for) and the oracle. Knows the engine only as
//! somebody who calls.

use crate::memory::{Address, Image, Memory, Touch, mix};
use crate::tlb::{Covers, Frame, Owner, Table, Tables, Tlb, What};
use std::cell::RefCell;
use std::fmt;

/// Most CPUs.
pub const MAX_CPUS: usize = 4;
/// Spaces that there can be, the kernel's not counted.
pub const SPACES: usize = 2;
/// Pages of a space.
pub const PAGES: usize = 2;
/// Words that the engine, its per-CPU state and its spaces may take.
const FIXED_WORDS: u32 = 4096;

/// What can happen next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Step {
    /// This CPU goes on to its next operation that others could see.
    Run(u8),
    /// That many of the oldest stores in this CPU's buffer become visible.
    Drain(u8, u8),
    /// This CPU takes its interrupt.
    Interrupt(u8),
}

impl Step {
    /// Whose step it is.
    pub fn cpu(self) -> usize {
        match self {
            Step::Run(cpu) | Step::Drain(cpu, _) | Step::Interrupt(cpu) => usize::from(cpu),
        }
    }
}

/// A rule that was broken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Violation {
    /// C1, C2: a CPU can use a translation of a frame that was freed.
    Stale {
        /// Which CPU.
        cpu: usize,
        /// The page.
        page: u8,
        /// The frame.
        frame: u8,
    },
    /// C3: a CPU's walker can reach a table that was freed.
    TableWalked {
        /// Which CPU.
        cpu: usize,
        /// The table.
        table: u8,
    },
    /// C3: software on a CPU reads a table that was freed.
    TableRead {
        /// Which CPU.
        cpu: usize,
        /// The table.
        table: u8,
    },
    /// C4: a CPU can use, under the tag that it has loaded, what was filled for another space.
    ForeignTag {
        /// Which CPU.
        cpu: usize,
        /// Whose the entry is, by root.
        owner: u8,
        /// The tag.
        tag: u16,
    },
    /// A word on a stack was touched after its frame was left.
    Gone {
        /// Which CPU touched it.
        cpu: usize,
    },
    /// C5: CPUs wait, and nobody can go on.
    Deadlock {
        /// Those that wait.
        waiting: Vec<usize>,
    },
    /// A CPU went on for longer than anything takes.
    Endless,
    /// The engine panicked.
    Panic(String),
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Violation::Stale { cpu, page, frame } => {
                write!(
                    f,
                    "C1 broken: CPU {cpu} can use its old translation of page {page}; frame {frame} is free"
                )
            }
            Violation::TableWalked { cpu, table } => {
                write!(
                    f,
                    "C3 broken: the walker of CPU {cpu} can reach table {table}, which is free"
                )
            }
            Violation::TableRead { cpu, table } => {
                write!(
                    f,
                    "C3 broken: a lockless walk on CPU {cpu} holds table {table}, which is free"
                )
            }
            Violation::ForeignTag { cpu, owner, tag } => {
                write!(
                    f,
                    "C4 broken: CPU {cpu} has tag {tag} loaded and can use what was filled under it for space {owner}"
                )
            }
            Violation::Gone { cpu } => write!(f, "CPU {cpu} touches a request whose stack frame is gone"),
            Violation::Deadlock { waiting } => write!(f, "C5 broken: CPUs {waiting:?} wait for ever"),
            Violation::Endless => write!(f, "C5 broken: a CPU goes on for ever"),
            Violation::Panic(message) => write!(f, "the engine panicked: {message}"),
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
    history: u64,
    /// Operations so far that others can see, or that change what this CPU does. Not part of the state.
    effects: u64,
    pub(crate) masked: bool,
    pub(crate) pending: bool,
    tlb: Tlb,
    /// It may touch user addresses.
    pub(crate) user: bool,
    /// What its script has begun and not ended, one within the other.
    depth: u8,
    /// What its script has ended.
    ended: u64,
    /// Its script is over; it only takes interrupts.
    pub(crate) done: bool,
    /// It is in its interrupt's handler.
    handling: bool,
    /// A table that software here holds a link to.
    holds: Option<Table>,
    /// The word that its next step touches, if it touches one.
    next: Option<Address>,
    /// What the condition of a wait has read, while it is being evaluated.
    reads: Option<Vec<(Address, u64)>>,
    /// What must change before it can go on.
    blocked: Option<Vec<(Address, u64)>>,
}

/// A machine that is set up: where runs start from.
#[derive(Debug)]
pub(crate) struct Start {
    cpus: Vec<Cpu>,
    memory: Image,
}

/// The wait that an interrupt came into.
#[derive(Debug)]
pub(crate) struct Interrupted {
    history: u64,
    reads: Option<Vec<(Address, u64)>>,
    blocked: Option<Vec<(Address, u64)>>,
}

/// Page tables in memory: the links of the roots, and the entries of each table.
#[derive(Debug, Clone, Default)]
pub(crate) struct TableWords {
    /// By owner, from 1: where its link stands. The value is a table's number, 0 for none.
    pub(crate) links: Vec<Address>,
    /// By table, from 1, and page: where the entry stands. The value is a frame, 0 for none.
    pub(crate) entries: Vec<[Address; PAGES]>,
}

impl TableWords {
    /// Whether walkers read the word.
    fn contains(&self, address: Address) -> bool {
        self.links.contains(&address) || self.entries.iter().any(|pages| pages.contains(&address))
    }
}

struct View<'a> {
    memory: &'a Memory,
    words: &'a TableWords,
}

impl Tables for View<'_> {
    fn link(&self, owner: Owner) -> Option<Table> {
        let table = self.memory.value(self.words.links[usize::from(owner) - 1]) as Table;
        (table != 0).then_some(table)
    }

    fn pages(&self, table: Table) -> impl Iterator<Item = (u8, Frame)> {
        self.words.entries[usize::from(table) - 1]
            .iter()
            .zip(0..)
            .map(|(&address, page)| (page, self.memory.value(address) as Frame))
            .filter(|&(_, frame)| frame != 0)
    }
}

/// The machine.
#[derive(Debug)]
pub struct Machine {
    pub(crate) cpus: Vec<Cpu>,
    pub(crate) memory: Memory,
    pub(crate) words: TableWords,
    /// The CPU whose step it is.
    pub(crate) current: usize,
    /// Before the scripts begin: CPUs go on one after the other and all stores are visible at once.
    pub(crate) setting_up: bool,
    freed_frames: u64,
    freed_tables: u64,
    violation: Option<Violation>,
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
    pub(crate) fn new(cpus: usize) -> Self {
        assert!((1..=MAX_CPUS).contains(&cpus), "1 to {MAX_CPUS} CPUs");
        Machine {
            cpus: (0..cpus).map(|_| Cpu::default()).collect(),
            memory: Memory::new(FIXED_WORDS, cpus),
            words: TableWords::default(),
            current: 0,
            setting_up: true,
            freed_frames: 0,
            freed_tables: 0,
            violation: None,
            story: None,
        }
    }

    /// As `start` was, but for what is known about sharing. With `tell` the run is recorded.
    pub(crate) fn reset(&mut self, start: &Start, tell: bool) {
        self.cpus.clone_from(&start.cpus);
        self.memory.reset(&start.memory);
        (self.freed_frames, self.freed_tables) = (0, 0);
        self.violation = None;
        self.story = tell.then(Vec::new);
    }

    /// The set-up is over, and so is this, where runs start from.
    pub(crate) fn start(&mut self) -> Start {
        self.setting_up = false;
        Start {
            cpus: self.cpus.clone(),
            memory: self.memory.image(),
        }
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
            if (!cpu.done || cpu.handling) && self.can_run(number) {
                steps.push(Step::Run(id));
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
                    .until(number, wanted)
                    .map(|count| Step::Drain(id, count as u8)),
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

    /// Identifies the state.
    pub(crate) fn hash(&self) -> u64 {
        let mut hash = mix(self.memory.hash(), mix(self.freed_frames, self.freed_tables));
        for cpu in &self.cpus {
            let flags = u64::from(cpu.masked)
                | u64::from(cpu.pending) << 1
                | u64::from(cpu.user) << 2
                | u64::from(cpu.done) << 3
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
    fn detail(&mut self, text: impl FnOnce() -> String) {
        self.tell_of(self.current, true, text);
    }

    fn tell_of(&mut self, cpu: usize, detail: bool, text: impl FnOnce() -> String) {
        if let Some(story) = &mut self.story {
            story.push(Line {
                cpu,
                text: text(),
                detail,
            });
        }
    }

    // What the current CPU does. Whoever calls has let others go first where that matters.

    fn cpu(&mut self) -> &mut Cpu {
        &mut self.cpus[self.current]
    }

    /// The current CPU has learnt `value`, or done something where that is 0.
    #[inline]
    pub(crate) fn learns(&mut self, value: u64) {
        let cpu = &mut self.cpus[self.current];
        cpu.history = mix(cpu.history, value);
    }

    /// The same, of something that others can see.
    #[inline]
    pub(crate) fn acts(&mut self, value: u64) {
        self.learns(value);
        self.cpu().effects += 1;
    }

    /// Whether others are to be let go first: what is done with the word depends on them, or an interrupt might come.
    #[inline]
    pub(crate) fn is_point(&mut self, address: Address, touch: Touch) -> bool {
        let cpu = self.current;
        let depends = self.memory.depends(address, cpu, touch);
        let interruptible = !self.cpus[cpu].masked && self.memory.sharing.is_interrupted(cpu);
        self.cpus[cpu].next = depends.then_some(address);
        !self.setting_up && (depends || interruptible)
    }

    /// Whether others are to be let go first before something that touches no word.
    pub(crate) fn is_point_elsewhere(&mut self) -> bool {
        self.cpu().next = None;
        !self.setting_up
    }

    fn must_exist(&mut self, address: Address) {
        if !self.memory.exists(address) {
            let cpu = self.current;
            self.break_rule(Violation::Gone { cpu });
        }
    }

    pub(crate) fn load(&mut self, address: Address) -> u64 {
        self.must_exist(address);
        let value = self.memory.read(self.current, address);
        if let Some(reads) = &mut self.cpus[self.current].reads {
            reads.push((address, value));
        }
        self.learns(value);
        self.detail(|| format!("reads word {address}: {value:#x}"));
        value
    }

    pub(crate) fn store(&mut self, address: Address, value: u64) {
        self.must_exist(address);
        self.acts(1);
        self.detail(|| format!("writes word {address}: {value:#x}"));
        if self.setting_up || !self.memory.depends(address, self.current, Touch::Write) {
            self.memory.commit(address, value);
            self.refill();
        } else {
            self.memory.buffer(self.current, address, value);
        }
    }

    /// A locked operation: a full barrier.
    pub(crate) fn update(&mut self, address: Address, change: impl FnOnce(u64) -> Option<u64>) -> u64 {
        self.must_exist(address);
        self.drain_all();
        let old = self.memory.value(address);
        let new = change(old);
        if let Some(new) = new {
            self.memory.commit(address, new);
            self.refill();
        }
        self.acts(old);
        self.detail(|| format!("updates word {address}: {old:#x} to {:#x}", new.unwrap_or(old)));
        old
    }

    /// Everything in the buffer of the current CPU becomes visible.
    pub(crate) fn drain_all(&mut self) {
        while self.drain(self.current) {}
    }

    /// The oldest store of `cpu` becomes visible. False when there is none.
    pub(crate) fn drain(&mut self, cpu: usize) -> bool {
        let Some(address) = self.memory.drain_one(cpu) else {
            return false;
        };
        let value = self.memory.value(address);
        self.tell_of(cpu, true, || format!("word {address} becomes visible: {value:#x}"));
        self.refill();
        true
    }

    /// Stores that wait in the buffer of the current CPU.
    pub(crate) fn has_buffered(&self) -> bool {
        self.memory.buffered(self.current) > 0
    }

    /// Walkers reach what memory holds now; then the oracle looks.
    fn refill(&mut self) {
        let view = View {
            memory: &self.memory,
            words: &self.words,
        };
        for cpu in &mut self.cpus {
            cpu.tlb.fill(&view);
        }
        self.judge();
    }

    /// The oracle: nobody can use what is free, or another space's.
    fn judge(&mut self) {
        let mut broken = None;
        for (number, cpu) in self.cpus.iter().enumerate() {
            // A handler touches no user address.
            let in_user = cpu.user && !cpu.handling;
            for entry in cpu.tlb.usable() {
                let found = match entry.what {
                    _ if entry.owner != cpu.tlb.root => Some(Violation::ForeignTag {
                        cpu: number,
                        owner: entry.owner,
                        tag: entry.tag,
                    }),
                    What::Link(table) if self.freed_tables >> table & 1 == 1 => {
                        Some(Violation::TableWalked { cpu: number, table })
                    }
                    What::Page(page, frame) if in_user && self.freed_frames >> frame & 1 == 1 => {
                        Some(Violation::Stale {
                            cpu: number,
                            page,
                            frame,
                        })
                    }
                    _ => None,
                };
                broken = broken.or(found);
            }
            if let Some(table) = cpu.holds
                && self.freed_tables >> table & 1 == 1
            {
                broken = broken.or(Some(Violation::TableRead { cpu: number, table }));
            }
        }
        if let Some(violation) = broken {
            self.break_rule(violation);
        }
    }

    pub(crate) fn invalidate(&mut self, covers: Covers) {
        self.drain_all();
        self.acts(2);
        self.cpu().tlb.invalidate(covers);
        self.tell(|| format!("invalidates {covers:?}"));
        self.refill();
    }

    pub(crate) fn load_root(&mut self, root: Owner, tag: u16, keep: bool) {
        self.drain_all();
        self.acts(3);
        self.cpu().tlb.load(root, tag, keep);
        self.tell(|| {
            format!(
                "loads root {root} under tag {tag}{}",
                if keep { ", keeping its entries" } else { "" }
            )
        });
        self.refill();
    }

    pub(crate) fn broadcast(&mut self, covers: Covers) {
        self.acts(4);
        let issuer = self.current;
        for cpu in &mut self.cpus {
            cpu.tlb.doom(covers, issuer);
        }
        self.tell(|| format!("broadcasts {covers:?}"));
        self.refill();
    }

    pub(crate) fn broadcast_sync(&mut self) {
        self.acts(5);
        let issuer = self.current;
        for cpu in &mut self.cpus {
            cpu.tlb.synchronise(issuer);
        }
        self.tell(|| "synchronises: its broadcasts are complete".into());
        self.refill();
    }

    pub(crate) fn send(&mut self, cpu: usize) {
        self.acts(6);
        self.memory.sharing.interrupts(cpu);
        self.cpus[cpu].pending = true;
        self.tell(|| format!("interrupts CPU {cpu}"));
    }

    /// The current CPU takes its interrupt: masked from here on. A wait that this interrupts goes on afterwards, with what
    /// is returned.
    pub(crate) fn take_interrupt(&mut self) -> Interrupted {
        let cpu = self.cpu();
        (cpu.pending, cpu.masked, cpu.handling) = (false, true, true);
        let interrupted = Interrupted {
            history: cpu.history,
            reads: cpu.reads.take(),
            blocked: cpu.blocked.take(),
        };
        self.acts(7);
        // What it waits for is not in the history of a CPU that waits, and now it is on its stack only.
        for &(address, seen) in interrupted.blocked.iter().flatten() {
            self.learns(u64::from(address));
            self.learns(seen);
        }
        self.tell(|| "takes its interrupt".into());
        interrupted
    }

    /// The handler is over. It returns nothing, so what it has read is of no matter to what it interrupted: this CPU is where
    /// it was.
    pub(crate) fn end_interrupt(&mut self, interrupted: Interrupted) {
        self.acts(10);
        let cpu = self.cpu();
        cpu.history = interrupted.history;
        (cpu.masked, cpu.handling) = (false, false);
        (cpu.reads, cpu.blocked) = (interrupted.reads, interrupted.blocked);
        self.tell(|| "goes on after its interrupt".into());
        self.judge();
    }

    pub(crate) fn free_frame(&mut self, frame: Frame) {
        self.acts(8);
        self.freed_frames |= 1 << frame;
        self.tell(|| format!("frees frame {frame}"));
        self.judge();
    }

    pub(crate) fn free_table(&mut self, table: Table) {
        self.acts(9);
        self.freed_tables |= 1 << table;
        self.tell(|| format!("frees table {table}"));
        self.judge();
    }

    /// Software on the current CPU holds a link to this table from here on, or to none.
    pub(crate) fn hold(&mut self, table: Option<Table>) {
        self.cpu().holds = table;
        self.judge();
    }

    /// The current CPU may touch user addresses from here on, or not.
    pub(crate) fn in_user(&mut self, user: bool) {
        self.cpu().user = user;
        self.judge();
    }

    // Scripts.

    /// The script of the current CPU begins something.
    pub(crate) fn begins(&mut self, text: impl FnOnce() -> String) {
        self.cpu().depth += 1;
        self.tell(text);
    }

    /// It has ended what it began last. What it has read on the way is of no matter any more: the script keeps nothing, so
    /// this CPU is where its script is.
    pub(crate) fn ends(&mut self) {
        let cpu = self.cpu();
        cpu.depth -= 1;
        if cpu.depth == 0 {
            cpu.ended += 1;
            cpu.history = mix(0, cpu.ended);
        }
    }

    /// The script of the current CPU is over.
    pub(crate) fn is_done(&mut self) {
        self.cpu().done = true;
        self.tell(|| "is done".into());
    }

    // Waits.

    /// A condition is going to be evaluated. Returns what [`condition_failed`](Self::condition_failed) needs.
    pub(crate) fn condition_begins(&mut self) -> (u64, u64) {
        let cpu = self.cpu();
        cpu.reads = Some(Vec::new());
        (cpu.history, cpu.effects)
    }

    /// It did not hold, which is all that it leaves behind, so the CPU is where it was before. When it has changed nothing
    /// either (it may have served requests), the CPU is blocked until something that it has read changes: then true.
    pub(crate) fn condition_failed(&mut self, (history, effects): (u64, u64)) -> bool {
        let cpu = self.cpu();
        let reads = cpu.reads.take();
        cpu.history = history;
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
