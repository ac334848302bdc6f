//! A tiny emulator: four virtual CPUs on four threads, with a guest that maps and unmaps pages while others read them.
//!
//! `cargo run --release -p shootdown-host --example tiny_emulator`
//!
//! Every frame of guest memory contains the number of the page that it backs. A reader that finds another page's number
//! has used a translation after its frame was reused. The program then ends with status 1. `-- --broken` demonstrates
//! it: the same guest without invalidation.

use shootdown::{Engine, PerCpu, Policy, Range, Root, Space, Storage};
use shootdown_host::{Cpu, Host, Threads, Tlb};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Barrier, Mutex};

const VCPUS: usize = 4;
const PAGES: u64 = 64;
/// Fewer than pages, so that a freed frame is soon reused by another page.
const FRAMES: u64 = 48;

/// The guest's instructions. Registers: `page`, and `count` for loops.
#[derive(Clone, Copy)]
enum Op {
    /// Reads the current page, and checks that it is that page.
    Load,
    /// Gives the current page a frame, if it has none and one is free.
    Map,
    /// Unmaps the current page: its frame is free for another page at once.
    Unmap,
    /// Selects another page.
    Next,
    /// Decrements `count`; jumps while it is not 0. Ends a block.
    Loop(usize),
    /// Ends the program; the virtual CPU idles.
    Exit,
}

const READER: &[Op] = &[
    Op::Load,
    Op::Next,
    Op::Load,
    Op::Next,
    Op::Load,
    Op::Next,
    Op::Loop(0),
    Op::Exit,
];
const WRITER: &[Op] = &[
    Op::Unmap,
    Op::Next,
    Op::Map,
    Op::Load,
    Op::Next,
    Op::Next,
    Op::Loop(0),
    Op::Exit,
];

/// The program of each virtual CPU, and its loops.
const PROGRAMS: [(&str, &[Op], u64); VCPUS] = [
    ("maps and unmaps", WRITER, 20_000),
    ("reads", READER, 2_000_000),
    ("reads", READER, 2_000_000),
    ("reads a little", READER, 2_000),
];

/// The guest's memory: one page table, and frames of one word.
struct Guest {
    /// Frame number plus one, or 0, for each page.
    table: Vec<AtomicU64>,
    frames: Vec<AtomicU64>,
    free: Mutex<Vec<u64>>,
    running: AtomicUsize,
}

/// Software TLBs hold frame numbers. There is one level of tables, so no links are cached.
type Mmu = Tlb<u64, ()>;
type Sys<'k> = Engine<'k, Threads<Mmu>, 1>;

/// A running virtual CPU, and its counts.
struct Vcpu<'e, 'k> {
    cpu: Cpu<'e, 'k, Mmu, 1>,
    guest: &'e Guest,
    space: &'e Space<Host, 1>,
    page: u64,
    count: u64,
    counted: Counted,
}

#[derive(Default, Clone, Copy)]
struct Counted {
    loads: u64,
    misses: u64,
    faults: u64,
    unmaps: u64,
    wrong: u64,
}

impl Vcpu<'_, '_> {
    /// Runs a program, block by block. Between blocks it serves other virtual CPUs.
    fn run(mut self, program: &[Op]) -> Counted {
        // SAFETY: the space outlives all virtual CPUs.
        unsafe { self.cpu.engine().switch_to(self.space) };
        let mut at = 0;
        loop {
            match program[at] {
                Op::Load => self.load(),
                Op::Map => self.map(),
                Op::Unmap => self.unmap(),
                Op::Next => self.page = (self.page * 5 + 3) % PAGES,
                Op::Loop(to) => {
                    self.count -= 1;
                    self.cpu.safe_point();
                    if self.count > 0 {
                        at = to;
                        continue;
                    }
                }
                Op::Exit => break,
            }
            at += 1;
        }
        self.idle();
        self.counted
    }

    /// Nothing to run: enters lazy TLB mode, so that flushes of the unused space do not interrupt this virtual CPU.
    fn idle(&self) {
        self.cpu.engine().enter_lazy();
        if self.guest.running.fetch_sub(1, Ordering::AcqRel) == 1 {
            (0..VCPUS).for_each(|other| self.cpu.engine().kernel().wake(other));
        }
        while self.guest.running.load(Ordering::Acquire) > 0 {
            self.cpu.halt();
        }
    }

    /// The frame of the current page: from the TLB, otherwise from the page table.
    fn translate(&mut self) -> Option<u64> {
        let address = self.page << 12;
        if let Some(frame) = self.cpu.mmu().lookup(address) {
            return Some(frame);
        }
        self.counted.misses += 1;
        // Acquire: a CPU that sees the entry sees what was written to its frame.
        let frame = self.guest.table[self.page as usize]
            .load(Ordering::Acquire)
            .checked_sub(1)?;
        self.cpu.mmu().fill(address, frame, false);
        Some(frame)
    }

    fn load(&mut self) {
        match self.translate() {
            None => self.counted.faults += 1,
            Some(frame) => {
                self.counted.loads += 1;
                let owner = self.guest.frames[frame as usize].load(Ordering::Relaxed);
                self.counted.wrong += u64::from(owner != self.page);
            }
        }
    }

    fn map(&mut self) {
        let entry = &self.guest.table[self.page as usize];
        if entry.load(Ordering::Relaxed) != 0 {
            return;
        }
        if let Some(frame) = { self.cpu.lock(&self.guest.free).pop() } {
            self.guest.frames[frame as usize].store(self.page, Ordering::Relaxed);
            entry.store(frame + 1, Ordering::Release); // only one virtual CPU maps, so the entry is still empty
        }
    }

    fn unmap(&mut self) {
        let Some(frame) = self.guest.table[self.page as usize]
            .swap(0, Ordering::Relaxed)
            .checked_sub(1)
        else {
            return;
        };
        self.counted.unmaps += 1;
        let _flushed = self.cpu.engine().flush(self.space, Range::page(self.page << 12));
        // `_flushed` is the proof: no virtual CPU has the translation any more.
        self.cpu.lock(&self.guest.free).push(frame);
    }
}

fn main() -> ExitCode {
    let design = match std::env::args().nth(1).as_deref() {
        None => Policy::IPI,
        Some("--broken") => Policy::NONE,
        Some(other) => {
            eprintln!("tiny_emulator: unknown argument {other:?}; expected nothing, or --broken");
            return ExitCode::from(2);
        }
    };
    let mut cpus: Vec<_> = (0..VCPUS).map(|_| PerCpu::new()).collect();
    let storage = Storage {
        cpus: &mut cpus,
        tags: &mut [],
    };
    let engine: Sys<'_> = Engine::new(Threads::new(VCPUS, |_| Mmu::new()), design.into(), Root(0), storage);
    let space = engine.space(Root(1));
    let guest = Guest {
        table: (0..PAGES)
            .map(|page| AtomicU64::new(if page < FRAMES { page + 1 } else { 0 }))
            .collect(),
        frames: (0..FRAMES).map(AtomicU64::new).collect(),
        free: Mutex::new(Vec::new()),
        running: AtomicUsize::new(VCPUS),
    };
    let start = Barrier::new(VCPUS);
    let run = |id: usize| {
        start.wait();
        Vcpu {
            cpu: Cpu::attach(&engine, id),
            guest: &guest,
            space: &space,
            page: id as u64,
            count: PROGRAMS[id].2,
            counted: Counted::default(),
        }
        .run(PROGRAMS[id].1)
    };
    let counted: Vec<Counted> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..VCPUS).map(|id| scope.spawn(move || run(id))).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("no virtual CPU panics"))
            .collect()
    });

    println!("vCPU  program              loads    TLB misses  page faults  unmaps  wrong page");
    for (id, (counted, (name, ..))) in counted.iter().zip(PROGRAMS).enumerate() {
        let [loads, misses, faults] = [counted.loads, counted.misses, counted.faults];
        let [unmaps, wrong] = [counted.unmaps, counted.wrong];
        println!("{id:>4}  {name:<15} {loads:>10}  {misses:>12}  {faults:>11}  {unmaps:>6}  {wrong:>10}");
    }
    let sum = |of: fn(&Counted) -> u64| counted.iter().map(of).sum::<u64>();
    let (unmaps, wrong) = (sum(|counted| counted.unmaps), sum(|counted| counted.wrong));
    println!(
        "{unmaps} unmaps took {} interrupts; stopping the world would have taken {}",
        engine.kernel().interrupts_sent(),
        unmaps * (VCPUS as u64 - 1)
    );
    if wrong > 0 {
        println!("{wrong} loads read a frame that had gone to another page");
        return ExitCode::FAILURE;
    }
    println!("no load read a frame that had gone to another page");
    ExitCode::SUCCESS
}
