//! One CPU's random steps: accesses, lockless walks, switches, lazy TLB mode, offline and online.

use super::oracle::State;
use super::power::Power;
use super::process::{self, KERNEL, LARGE, PAGES, Process, TABLES};
use crate::arch::boot::CAN_STOP;
use crate::arch::format::Entry;
use crate::arch::interrupts;
use crate::cpu::Cpu;
use crate::engine;
use crate::frames::FrameList;
use crate::lock::Mutex;
use crate::memory::Frame;
use crate::{invalidate, jitter, probe, smp, time};
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use shootdown::{Grace, TablesFree, Walkers};

/// Number of processes at a time.
const PROCESSES: u64 = 2;

/// The counts of the last line. In this order.
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs)]
pub enum Done {
    Maps,
    Unmaps,
    Protections,
    TablesFreed,
    LargePages,
    Splits,
    Batches,
    KernelUnmaps,
    Walks,
    Switches,
    LazyPeriods,
    TimesOff,
    Stops,
    Ends,
    Forks,
    Copies,
    Execs,
}

const NAMES: [&str; 17] = [
    "maps",
    "unmaps",
    "protections",
    "tables_freed",
    "large_pages",
    "splits",
    "batches",
    "kernel_unmaps",
    "walks",
    "switches",
    "lazy_periods",
    "times_off",
    "stops",
    "ends",
    "forks",
    "copies",
    "execs",
];

/// State that all CPUs share.
pub struct Arena {
    /// Totals.
    pub seed: u64,
    steps: u64,
    /// An emulated CPU yields its turn at PAUSE; where it does not, it executes at most this many.
    linger: Option<u64>,
    slots: Vec<Mutex<Arc<Process>>>,
    power: Power,
    next_number: AtomicU64,
    /// Kernel pages.
    pub kernel: Vec<super::oracle::Page>,
    done: [AtomicU64; NAMES.len()],
}

impl Arena {
    /// With its first processes.
    pub fn new(seed: u64, steps: u64, linger: Option<u64>, threads: usize) -> Arena {
        let process = |number| {
            Mutex::new(Arc::new(
                Process::new(number).expect("there is memory at the beginning"),
            ))
        };
        Arena {
            seed,
            steps,
            linger,
            slots: (1..=PROCESSES).map(process).collect(),
            power: Power::new(threads),
            next_number: AtomicU64::new(PROCESSES + 1),
            kernel: (0..KERNEL).map(|index| super::oracle::Page::new(0, index)).collect(),
            done: [const { AtomicU64::new(0) }; NAMES.len()],
        }
    }
}

/// The counts, as JSON.
impl fmt::Display for Arena {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{")?;
        for (index, (name, count)) in NAMES.iter().zip(&self.done).enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}\"{name}\":{}", count.load(Ordering::Acquire))?;
        }
        write!(f, "}}")
    }
}

/// The process of this CPU.
enum Runs {
    Kernel,
    User(Arc<Process>),
    Lazy(Arc<Process>),
    /// Loaded in lazy TLB mode, and no longer kept alive by this CPU.
    LazyForgotten,
}

/// A CPU under torture.
pub struct Traffic {
    pub(super) arena: &'static Arena,
    cpu: &'static Cpu,
    random: Xoshiro256PlusPlus,
    runs: Runs,
    /// Tables that wait for a grace period, with their content.
    pub(super) waiting: VecDeque<(Grace, Frame, FrameList)>,
}

impl Traffic {
    /// On this CPU.
    pub fn new(arena: &'static Arena, cpu: &'static Cpu) -> Traffic {
        Traffic {
            arena,
            cpu,
            random: Xoshiro256PlusPlus::seed_from_u64(arena.seed << 8 | cpu.id as u64),
            runs: Runs::Kernel,
            waiting: VecDeque::new(),
        }
    }

    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.random.next_u64() % bound
    }

    pub(super) fn one_in(&mut self, bound: u64) -> bool {
        self.below(bound) == 0
    }

    pub(super) fn note(&self, what: Done) {
        self.arena.done[what as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Lets the other CPUs run for a random time.
    pub(super) fn pause(&mut self, one_in: u64) {
        if self.one_in(one_in) {
            self.linger();
        }
    }

    /// Lets the others have a turn.
    fn linger(&mut self) {
        for _ in 0..self.arena.linger.map_or(1, |most| 1 + self.below(most)) {
            time::relax();
        }
    }

    /// All the steps.
    pub fn run(mut self) {
        for _ in 0..self.arena.steps {
            self.pause(4);
            if CAN_STOP && self.one_in(4) {
                smp::start_one();
            }
            self.step();
            self.reap();
        }
        let runs = core::mem::replace(&mut self.runs, Runs::Kernel);
        engine().switch_to_kernel();
        if let Runs::User(process) | Runs::Lazy(process) = runs {
            self.unuse(process);
        }
        self.arena.power.finish();
    }

    fn step(&mut self) {
        super::oracle::begin_step();
        if self.one_in(8) {
            self.kernel_step();
        }
        match core::mem::replace(&mut self.runs, Runs::Kernel) {
            Runs::User(process) => {
                self.runs = Runs::User(process.clone());
                self.user_step(&process);
            }
            Runs::Lazy(process) => match self.below(6) {
                0 | 1 => {
                    // SAFETY: as in `switch`.
                    unsafe { engine().leave_lazy(&process.space) };
                    self.accesses(&process, 4);
                    self.runs = Runs::User(process);
                }
                2 => {
                    self.runs = Runs::LazyForgotten;
                    self.unuse(process);
                }
                _ => self.runs = Runs::Lazy(process),
            },
            Runs::LazyForgotten => match self.below(4) {
                0 => engine().switch_to_kernel(),
                1 => self.switch(),
                _ => self.runs = Runs::LazyForgotten,
            },
            Runs::Kernel => match self.below(6) {
                0 => self.turn_off(),
                _ => self.switch(),
            },
        }
    }

    fn user_step(&mut self, process: &Arc<Process>) {
        match self.below(100) {
            0..=27 => self.accesses(process, 6),
            28..=43 => self.map(process),
            44..=51 => self.unmap(process),
            52..=56 => self.protect(process),
            57 => self.protect_all(process),
            58 | 59 => self.large(process),
            60..=67 => self.free_table(process),
            68 => self.exec(process),
            69..=73 => self.walk(process),
            74..=84 => {
                // Of a process that may not be loaded here.
                let other = self.random_process();
                match self.below(8) {
                    0 => self.unmap(&other),
                    1 => self.free_table(&other),
                    _ => self.walk(&other),
                }
                self.unuse(other);
            }
            85 | 86 => self.batch(process),
            87 | 88 => self.rely_on_absence(process),
            89 => {
                engine().enter_lazy();
                self.note(Done::LazyPeriods);
                self.runs = Runs::Lazy(process.clone());
            }
            90 | 91 => {
                if engine().enter_kernel(&process.space) {
                    self.pause(2);
                    // SAFETY: as in `switch`.
                    unsafe { engine().leave_lazy(&process.space) };
                }
            }
            92..=97 => {
                self.switch();
                self.unuse(process.clone());
            }
            98 => {
                match self.one_in(2) {
                    true => self.turn_off(),
                    false => engine().switch_to_kernel(),
                }
                self.runs = Runs::Kernel;
                self.unuse(process.clone());
            }
            _ => self.replace(process),
        }
    }

    /// Some accesses, during which the others run.
    fn accesses(&mut self, process: &Process, count: u32) {
        for _ in 0..count {
            self.access(process);
            self.pause(6);
        }
    }

    /// Reads or writes a page of the loaded process, checked by the oracle.
    fn access(&mut self, process: &Process) {
        let index = self.below(TABLES * PAGES + LARGE);
        self.access_page(process, index);
    }

    /// The same with one page.
    pub(super) fn access_page(&mut self, process: &Process, index: u64) {
        let (page, address) = (process.page(index), process::address(index));
        let before = page.word();
        if self.one_in(3) {
            let own = address + 8 + self.cpu.id as u64 * 8;
            let value = page.stamp(before.serial());
            // SAFETY: tortured pages hold words that any code may write.
            let write = || unsafe { probe::write(own, value) };
            page.check_write(before, write(), || {
                invalidate::forget(self.cpu, own);
                write()
            });
            if before.state() == State::ReadOnly && self.one_in(4) {
                self.write_fault(process, index);
            }
        } else {
            let read = || probe::read(address);
            page.check_read(before, read(), || {
                invalidate::forget(self.cpu, address);
                read()
            });
        }
    }

    /// Reads a kernel page, maps one, or unmaps one.
    fn kernel_step(&mut self) {
        let index = self.below(KERNEL);
        let page = &self.arena.kernel[index as usize];
        match self.below(8) {
            0 => self.map_kernel(index),
            1 => self.unmap_kernel(index),
            _ => {
                let before = page.word();
                let address = process::kernel_address(index);
                let read = || probe::read_dynamic(address);
                page.check_read(before, read(), || {
                    invalidate::forget(self.cpu, address);
                    read()
                });
            }
        }
    }

    /// A lockless walk of the process, which may not be loaded here.
    fn walk(&mut self, process: &Process) {
        if engine().policy().walkers == Walkers::None {
            return;
        }
        self.note(Done::Walks);
        let first = self.below(TABLES) * PAGES;
        let address = process::address(first);
        // Occasionally long enough for the others to make progress.
        let rounds = if self.one_in(3) { 4 } else { 1 };
        let walk = engine().walk(&process.space);
        let link = Entry(process.link(address).load(Ordering::Acquire));
        if link.is_present() {
            for index in 0..PAGES * rounds {
                if rounds > 1 {
                    self.linger();
                }
                let _entry = link.frame().words()[(index % PAGES) as usize].load(Ordering::Acquire);
                process.check_walked(link.frame(), address);
            }
        }
        drop(walk);
    }

    /// The process of a random slot, with this CPU as a user of it.
    fn random_process(&mut self) -> Arc<Process> {
        let slot = self.below(PROCESSES) as usize;
        let slot = self.arena.slots[slot].lock();
        assert!(slot.use_too(), "the slot is a user itself");
        slot.clone()
    }

    /// Loads the process of a random slot, and runs it.
    fn switch(&mut self) {
        let process = self.random_process();
        self.note(Done::Switches);
        // SAFETY: a process is freed after `unuse` has retired its space, and not while a CPU uses it.
        unsafe { engine().switch_to(&process.space) };
        self.accesses(&process, 4);
        self.runs = Runs::User(process);
    }

    /// Puts a new process in a slot, or a copy of this one; the old one ends when its last user leaves it.
    fn replace(&mut self, parent: &Process) {
        let number = self.arena.next_number.fetch_add(1, Ordering::Relaxed);
        let new = match self.one_in(4) {
            true => Process::new(number),
            false => self.fork(parent, number),
        };
        let Some(new) = new else { return };
        let slot = self.below(PROCESSES) as usize;
        let old = core::mem::replace(&mut *self.arena.slots[slot].lock(), Arc::new(new));
        self.unuse(old);
    }

    /// This CPU no longer uses `process` (though it may have it loaded, in lazy TLB mode). The last user ends it.
    fn unuse(&mut self, process: Arc<Process>) {
        if process.unuse() {
            self.note(Done::Ends);
            let _flushed = engine().retire(&process.space);
            process.free();
        }
    }

    /// Offline for a while, and online again with the remaining entries of its TLB.
    fn turn_off(&mut self) {
        self.note(Done::TimesOff);
        // Occasionally for longer than a CPU may wait for an answer.
        let ticks = if self.one_in(32) {
            engine().policy().stuck_ns * 2
        } else {
            self.below(1 << 14)
        };
        let before = self.below(4);
        let stops = self.one_in(2) && self.arena.power.may_stop();
        interrupts::without_interrupts(|| {
            // Requests that arrive meanwhile are answered on its way offline.
            for _ in 0..before {
                time::relax();
            }
            engine().cpu_offline();
            self.cpu.local.detach();
            if stops {
                self.note(Done::Stops);
                smp::stop_until_started(self.cpu);
                self.arena.power.started();
                jitter::rearm(self.cpu);
            } else {
                let end = time::now_ns() + ticks;
                while time::now_ns() < end {
                    time::relax();
                }
            }
            self.cpu.local.attach();
            engine().cpu_online();
        });
    }

    /// Frees tables whose grace period is over.
    fn reap(&mut self) {
        if self.waiting.is_empty() {
            return engine().quiescent();
        }
        let over = engine().graces_over();
        while let Some(proof) = self.waiting.front().and_then(|(grace, ..)| over.proof(*grace)) {
            let (_, table, pages) = self.waiting.pop_front().expect("seen");
            self.free_proved(&proof, table, pages);
        }
    }

    /// Frees a table and its pages.
    pub(super) fn free_proved(&mut self, _proof: &TablesFree, table: Frame, mut pages: FrameList) {
        while let Some(frame) = pages.pop() {
            process::reclaim_frame(frame);
        }
        process::free_table(table);
        self.note(Done::TablesFreed);
    }

    /// States in which a page is mapped.
    pub(super) const MAPPED: [State; 2] = [State::Writable, State::ReadOnly];
}
