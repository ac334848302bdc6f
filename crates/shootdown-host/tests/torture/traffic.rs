//! The actions of each CPU: random accesses, maps, unmaps, table frees, lockless walks, switches, idle, going offline,
//! exits.

use crate::guest::{Entry, FAN_OUT, Guest, Mmu, Process, Use, address, span};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use shootdown::{Design, Engine, Grace, Machine, Policy, Range, Retired, Root, Stride, TablesFree};
use shootdown_host::{Cpu, Threads};
use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::thread::yield_now;

pub type Sys<'k> = Engine<'k, Threads<Mmu>, 1>;

/// One virtual CPU and its state.
pub struct Traffic<'e, 'k> {
    guest: &'e Guest,
    slots: &'e [Mutex<Arc<Process>>],
    engine: &'e Sys<'k>,
    cpu: Cpu<'e, 'k, Mmu, 1>,
    random: Xoshiro256PlusPlus,
    /// Frames to be used next, the last freed first.
    free: Vec<usize>,
    stamps: u64,
    /// Page-table pages that wait for a grace period.
    waiting: VecDeque<(Grace, Vec<usize>)>,
    runs: Runs,
}

enum Runs {
    /// No process.
    Kernel,
    User(Arc<Process>),
    /// Kernel code, with the process still loaded and kept alive.
    Lazy(Arc<Process>),
    /// Kernel code, perhaps with a process still loaded, which may end at any time.
    LazyForgotten,
}

impl<'e, 'k> Traffic<'e, 'k> {
    /// `free` are frames that only this CPU owns.
    pub fn new(
        guest: &'e Guest,
        slots: &'e [Mutex<Arc<Process>>],
        engine: &'e Sys<'k>,
        id: usize,
        seed: u64,
        free: Vec<usize>,
    ) -> Self {
        Traffic {
            guest,
            slots,
            engine,
            cpu: Cpu::attach(engine, id),
            random: Xoshiro256PlusPlus::seed_from_u64(seed << 8 | id as u64),
            free,
            stamps: 0,
            waiting: VecDeque::new(),
            runs: Runs::Kernel,
        }
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.random.next_u64() % bound as u64) as usize
    }

    fn one_in(&mut self, bound: usize) -> bool {
        self.below(bound) == 0
    }

    /// `steps` steps, or until a violation is found.
    pub fn run(mut self, steps: u64) {
        for _ in 0..steps {
            if self.guest.stop.load(Ordering::Relaxed) {
                break;
            }
            self.cpu.safe_point();
            // More threads than processors: lets the others reach any state.
            if self.one_in(16) {
                yield_now();
            }
            self.step();
            self.reap();
        }
        self.settle_down();
    }

    fn step(&mut self) {
        match std::mem::replace(&mut self.runs, Runs::Kernel) {
            Runs::User(process) => {
                self.runs = Runs::User(process.clone());
                self.user_step(&process);
            }
            Runs::Lazy(process) => self.lazy_step(process),
            Runs::LazyForgotten => {
                self.speculate();
                match self.below(4) {
                    0 => self.engine.switch_to_kernel(),
                    1 => self.switch(),
                    _ => self.runs = Runs::LazyForgotten,
                }
            }
            Runs::Kernel => match self.below(8) {
                0 => self.turn_off(),
                _ => self.switch(),
            },
        }
    }

    fn lazy_step(&mut self, process: Arc<Process>) {
        self.speculate();
        match self.below(6) {
            0 | 1 => {
                // SAFETY: as in `switch`.
                unsafe { self.engine.leave_lazy(&process.space) };
                self.runs = Runs::User(process);
            }
            2 => {
                self.runs = Runs::LazyForgotten;
                self.unuse(process);
            }
            _ => self.runs = Runs::Lazy(process),
        }
    }

    fn user_step(&mut self, process: &Arc<Process>) {
        match self.below(100) {
            0..=69 => {
                for _ in 0..4 {
                    self.access();
                }
            }
            70..=79 => self.map(process),
            80..=86 => self.unmap(process),
            87 => self.unmap_elsewhere(),
            88 => self.unmap_batch(process),
            89 | 90 => self.free_table(process),
            91 | 92 => self.walk(process),
            93 => {
                let other = self.random_process();
                self.walk(&other);
                self.unuse(other);
            }
            94 | 95 => {
                self.engine.enter_lazy();
                self.runs = Runs::Lazy(process.clone());
            }
            96 => {
                if self.engine.enter_kernel(&process.space) {
                    self.speculate();
                    self.cpu.safe_point();
                    // SAFETY: as in `switch`.
                    unsafe { self.engine.leave_lazy(&process.space) };
                }
            }
            97 | 98 => {
                self.switch();
                self.unuse(process.clone());
            }
            _ if self.one_in(16) => self.replace(),
            _ => self.speculate(),
        }
    }

    /// A guest access.
    fn access(&mut self) {
        let page = (self.below(FAN_OUT), self.below(FAN_OUT));
        let entry = self.guest.translate(&mut self.cpu.mmu(), page, self.cpu.id());
        if let Some(entry) = entry {
            if self.one_in(32) {
                yield_now(); // looked up, and used a little later
            }
            self.guest.check(entry, Use::Data, self.cpu.id());
            self.guest.checked.fetch_add(1, Ordering::Relaxed);
        }
        self.cpu.safe_point();
    }

    /// A speculative fill, under the loaded root, lazy or not.
    fn speculate(&mut self) {
        for _ in 0..4 {
            let page = (self.below(FAN_OUT), self.below(FAN_OUT));
            let _filled = self.guest.translate(&mut self.cpu.mmu(), page, self.cpu.id());
        }
    }

    fn allocate(&mut self) -> Option<Entry> {
        let frame = self.free.pop()?;
        self.stamps += 1;
        Some(
            self.guest
                .allocate(frame, (self.stamps << 8) | (self.cpu.id() as u64 + 1)),
        )
    }

    fn free(&mut self, frames: impl IntoIterator<Item = usize>) {
        for frame in frames {
            self.guest.free(frame);
            self.free.push(frame);
        }
    }

    fn map(&mut self, process: &Process) {
        let (table, page) = (self.below(FAN_OUT), self.below(FAN_OUT));
        let _lock = self.cpu.lock(&process.tables);
        let root = process.root();
        let link = match self.guest.entry(root, table) {
            Some(link) => link,
            None => {
                let Some(link) = self.allocate() else { return };
                self.guest.set(root, table, Some(link));
                link
            }
        };
        // An entry that is cleared but not yet flushed everywhere may be reused: nothing relies on its absence.
        for page in page..(page + 3).min(FAN_OUT) {
            if self.guest.entry(link, page).is_none()
                && let Some(data) = self.allocate()
            {
                self.guest.set(link, page, Some(data));
            }
        }
    }

    /// Clears entries of one table, pages `first` to `last`; returns the frames. The caller has the lock.
    fn clear(&self, root: Entry, table: usize, first: usize, last: usize) -> Vec<usize> {
        let Some(link) = self.guest.entry(root, table) else {
            return Vec::new();
        };
        let mut frames = Vec::new();
        for page in first..=last {
            if let Some(entry) = self.guest.entry(link, page) {
                self.guest.set(link, page, None);
                frames.push(entry.frame());
            }
        }
        frames
    }

    fn unmap(&mut self, process: &Process) {
        let (table, first) = (self.below(FAN_OUT - 1), self.below(FAN_OUT));
        // Sometimes two whole tables, which is above the ceiling.
        let (first, tables) = if self.one_in(8) { (0, 2) } else { (first, 1) };
        let last = if tables == 2 {
            FAN_OUT
        } else {
            (first + 1 + self.below(3)).min(FAN_OUT)
        };
        let range = Range::pages(address(table, first), address(table + tables - 1, last), Stride::Size4K);
        let under_lock = self.one_in(2);
        let lock = self.cpu.lock(&process.tables);
        let mut frames = Vec::new();
        for table in table..table + tables {
            frames.extend(self.clear(process.root(), table, first, last - 1));
        }
        if frames.is_empty() {
            return;
        }
        let lock = under_lock.then_some(lock);
        match self.below(3) {
            0 => drop(self.engine.flush(&process.space, range)),
            1 => {
                let token = self.engine.dispatch(&process.space, range);
                if self.one_in(2) {
                    yield_now();
                }
                let _flushed = token.wait();
            }
            _ => drop(self.engine.flush_while(&process.space, range, || ())),
        }
        drop(lock);
        self.free(frames);
    }

    /// Unmaps from a process that need not be loaded here.
    fn unmap_elsewhere(&mut self) {
        let other = self.random_process();
        self.unmap(&other);
        self.unuse(other);
    }

    /// The process of a random slot, with this CPU as a user.
    fn random_process(&mut self) -> Arc<Process> {
        let slot = self.below(self.slots.len());
        let slot = self.cpu.lock(&self.slots[slot]);
        slot.use_too();
        slot.clone()
    }

    /// Page reclaim: scattered pages, one request.
    fn unmap_batch(&mut self, process: &Arc<Process>) {
        let other = self.random_process();
        let mut frames = Vec::new();
        let mut batch = self.engine.batch();
        for process in [process, &other] {
            for _ in 0..2 {
                let (table, page) = (self.below(FAN_OUT), self.below(FAN_OUT));
                let _lock = self.cpu.lock(&process.tables);
                frames.extend(self.clear(process.root(), table, page, page));
                batch.add(&process.space, Range::page(address(table, page)));
            }
        }
        let _flushed = batch.finish();
        self.free(frames);
        self.unuse(other);
    }

    /// Unlinks a table and frees it with all its frames.
    fn free_table(&mut self, process: &Process) {
        let table = self.below(FAN_OUT);
        let _lock = self.cpu.lock(&process.tables);
        let Some(link) = self.guest.entry(process.root(), table) else {
            return;
        };
        let mut frames: Vec<_> = (0..FAN_OUT)
            .filter_map(|page| Some(self.guest.entry(link, page)?.frame()))
            .collect();
        self.guest.set(process.root(), table, None);
        frames.push(link.frame());
        // Flushes pending batches before relying on entries that are cleared already (rule 9). The batch frees its own
        // frames, but their table is freed here.
        self.engine.flush_pending(&process.space);
        let proof = match self.below(3) {
            0 => self.engine.flush_tables(&process.space, span(table)),
            1 => {
                let flushed = self.engine.flush(&process.space, span(table).with_tables());
                self.engine.retire_tables(&process.space, &flushed)
            }
            _ => match self.engine.flush_tables_later(&process.space, span(table)) {
                Retired::Now(proof) => proof,
                Retired::Later(grace) => return self.waiting.push_back((grace, frames)),
            },
        };
        self.free_proved(&proof, frames);
    }

    fn free_proved(&mut self, _proof: &TablesFree, frames: Vec<usize>) {
        self.free(frames);
    }

    /// Frees tables whose grace period is over.
    fn reap(&mut self) {
        if self.waiting.is_empty() {
            self.engine.quiescent();
            return;
        }
        let over = self.engine.graces_over();
        while let Some(proof) = self.waiting.front().and_then(|(grace, _)| over.proof(*grace)) {
            let (_, frames) = self.waiting.pop_front().expect("seen");
            self.free_proved(&proof, frames);
        }
    }

    /// A lockless walk of the process, which need not be loaded here.
    fn walk(&mut self, process: &Process) {
        let table = self.below(FAN_OUT);
        let slow = self.one_in(2);
        let walk = self.engine.walk(&process.space);
        if let Some(link) = self.guest.entry(process.root(), table) {
            for page in 0..FAN_OUT {
                if slow {
                    yield_now();
                }
                let _entry = self.guest.entry(link, page);
                self.guest.check(link, Use::LocklessWalk, self.cpu.id());
            }
        }
        drop(walk);
    }

    /// Loads the process of a random slot, and runs it.
    fn switch(&mut self) {
        let process = self.random_process();
        // SAFETY: a process is dropped after `unuse` has retired its space, and not while a CPU uses it.
        unsafe { self.engine.switch_to(&process.space) };
        self.runs = Runs::User(process);
    }

    /// Puts a new process in a slot; the old one ends when its last user leaves it.
    fn replace(&mut self) {
        let Some(root) = self.allocate() else { return };
        let new = Arc::new(Process::new(self.engine.space(Root(root.0))));
        let slot = self.below(self.slots.len());
        let old = std::mem::replace(&mut *self.cpu.lock(&self.slots[slot]), new);
        self.unuse(old);
    }

    /// Drops this CPU's use of `process`, which it may still have loaded lazily. The last user ends it.
    fn unuse(&mut self, process: Arc<Process>) {
        if !process.unuse() {
            return;
        }
        let _flushed = self.engine.retire(&process.space);
        let root = process.root();
        let mut frames = vec![root.frame()];
        for table in 0..FAN_OUT {
            if let Some(link) = self.guest.entry(root, table) {
                frames.push(link.frame());
                frames.extend((0..FAN_OUT).filter_map(|page| Some(self.guest.entry(link, page)?.frame())));
            }
        }
        self.free(frames);
    }

    /// Goes offline, and online again with its TLB unchanged.
    fn turn_off(&mut self) {
        self.engine.cpu_offline();
        for _ in 0..self.below(8) {
            yield_now();
        }
        self.engine.cpu_online();
        self.runs = Runs::Kernel;
    }

    /// Unloads the loaded space.
    fn settle_down(&mut self) {
        let runs = std::mem::replace(&mut self.runs, Runs::Kernel);
        self.engine.switch_to_kernel();
        if let Runs::User(process) | Runs::Lazy(process) = runs {
            self.unuse(process);
        }
    }
}

/// Runs `steps` steps on each of `cpus` threads under `design`.
pub fn run(guest: &Guest, engine: &Sys<'_>, cpus: usize, seed: u64, steps: u64) {
    const PROCESSES: usize = 3;
    let frames = |cpu: usize| (1 + PROCESSES + cpu * FRAMES_EACH..).take(FRAMES_EACH);
    let slots: Vec<_> = (0..PROCESSES)
        .map(|slot| {
            let root = guest.allocate(1 + slot, 1 << 40 | slot as u64);
            Mutex::new(Arc::new(Process::new(engine.space(Root(root.0)))))
        })
        .collect();
    std::thread::scope(|scope| {
        let slots = &slots;
        let work = |cpu| move || Traffic::new(guest, slots, engine, cpu, seed, frames(cpu).collect()).run(steps);
        let threads: Vec<_> = (0..cpus).map(|cpu| scope.spawn(work(cpu))).collect();
        // One by one: ThreadSanitizer understands joins of threads, not the end of a scope.
        for thread in threads {
            thread.join().expect("no CPU panics");
        }
    });
}

/// Initial frames of each CPU.
pub const FRAMES_EACH: usize = 48;

/// Frames that `cpus` CPUs need.
pub fn frames(cpus: usize) -> usize {
    4 + cpus * FRAMES_EACH
}

/// `design` with few tags and a small ceiling, so that tags are reused and whole tags are sometimes flushed.
pub fn tightened(design: Design, cpus: usize) -> Design {
    let slots = 2;
    Policy {
        slots,
        ceiling: design.policy.ceiling.min(9),
        consider_window_ns: 1 << 12,
        sample_one_in: 4,
        demote_after: 2,
        stuck_ns: 30_000_000_000,
        ..design.policy
    }
    .on(Machine {
        tag_limit: u32::from(design.machine.first_tag) + u32::from(slots) + cpus as u32 + 1,
        ..design.machine
    })
}
