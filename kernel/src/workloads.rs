//! Small workloads of the kernel's own: threads, one to a CPU, that work on user pages. One line of JSON each.
//!
//! They are the simulator's workloads of the same names. The threads run in kernel mode; pages are accessed through the
//! translations of the loaded space, and faults are handled as for user code.

use crate::arch::{features, marks, traps};
use crate::cpu::{self, Counts, Cpu, add};
use crate::measure::{self, Longest};
use crate::memory::PAGE;
use crate::options::Options;
use crate::serial::{self, Status};
use crate::space::AddressSpace;
use crate::{engine, println};
use crate::{smp, time};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use shootdown::Reach;

/// First user address that is used.
const BASE: u64 = 0x0000_1000_0000;
/// `tlb_flush2`: bytes of each thread's region.
const REGION: u64 = 1 << 20;
/// `process_churn`: pages of the process that forks, and of what its child runs.
const PARENT: u64 = 4;
/// See [`PARENT`].
const CHILD: u64 = 8;
/// Default length of a measurement, in instructions.
const WINDOW: u64 = 20_000_000;

/// A workload.
#[derive(Debug, Clone, Copy)]
pub struct Workload {
    name: &'static str,
    /// Every thread has a space of its own.
    apart: bool,
    /// The work of a thread: `index`, its CPU, and whether to continue.
    body: fn(&Shared, usize, &Cpu),
}

/// The workloads.
pub const ALL: [Workload; 4] = [
    Workload {
        name: "tlb_flush2",
        apart: false,
        body: tlb_flush2,
    },
    Workload {
        name: "madvise_spin",
        apart: false,
        body: madvise_spin,
    },
    Workload {
        name: "mprotect_all",
        apart: true,
        body: mprotect_all,
    },
    Workload {
        name: "process_churn",
        apart: true,
        body: process_churn,
    },
];

/// The workload of that name.
pub fn named(name: &str) -> Option<Workload> {
    ALL.into_iter().find(|workload| workload.name == name)
}

/// State that the threads of a run share.
struct Shared {
    workload: Workload,
    spaces: Vec<AddressSpace>,
    threads: usize,
    seed: u64,
    arrived: AtomicUsize,
    /// Ticks at which it is over; 0 before it begins.
    end: AtomicU64,
    length: u64,
}

static SHARED: AtomicPtr<Shared> = AtomicPtr::new(core::ptr::null_mut());

impl Shared {
    fn space(&self, index: usize) -> &AddressSpace {
        &self.spaces[if self.workload.apart { index } else { 0 }]
    }

    /// Waits until every thread has started.
    fn begin(&self) {
        if self.arrived.fetch_add(1, Ordering::AcqRel) + 1 == self.threads {
            self.end.store(time::ticks() + self.length, Ordering::Release);
        }
        while self.end.load(Ordering::Acquire) == 0 {
            time::relax();
        }
    }

    /// Whether there is time left. Yields to the emulator's other CPUs, because nothing else does between two
    /// operations.
    fn goes_on(&self) -> bool {
        time::relax();
        time::ticks() < self.end.load(Ordering::Relaxed)
    }
}

/// Sums of all CPUs' counts.
#[derive(Default, Clone, Copy)]
struct Totals {
    ops: u64,
    sent: u64,
    taken: u64,
    emulation: u64,
    broadcasts: u64,
    flushes: u64,
    flush_ticks: u64,
    taken_ticks: u64,
    faults: u64,
    checked: u64,
    stale: u64,
}

impl Totals {
    fn now() -> Totals {
        let sum = |of: fn(&Counts) -> &AtomicU64| {
            let counts = cpu::all().iter().map(|cpu| of(&cpu.counts).load(Ordering::Acquire));
            counts.sum::<u64>()
        };
        Totals {
            ops: sum(|counts| &counts.ops),
            sent: sum(|counts| &counts.sent),
            taken: sum(|counts| &counts.taken),
            emulation: sum(|counts| &counts.emulation),
            broadcasts: sum(|counts| &counts.broadcasts),
            flushes: sum(|counts| &counts.flushes),
            flush_ticks: sum(|counts| &counts.flush_ticks),
            taken_ticks: sum(|counts| &counts.taken_ticks),
            faults: sum(|counts| &counts.faults),
            checked: sum(|counts| &counts.checked),
            stale: sum(|counts| &counts.stale),
        }
    }

    fn since(self, before: Totals) -> Totals {
        Totals {
            ops: self.ops - before.ops,
            sent: self.sent - before.sent,
            taken: self.taken - before.taken,
            emulation: self.emulation - before.emulation,
            broadcasts: self.broadcasts - before.broadcasts,
            flushes: self.flushes - before.flushes,
            flush_ticks: self.flush_ticks - before.flush_ticks,
            taken_ticks: self.taken_ticks - before.taken_ticks,
            faults: self.faults - before.faults,
            checked: self.checked - before.checked,
            stale: self.stale - before.stale,
        }
    }
}

/// Runs a workload, prints the result, and ends.
pub fn run(workload: Workload, options: &Options) -> ! {
    let all = cpu::all().len();
    let threads = if options.threads == 0 { all } else { options.threads };
    if threads > all {
        serial::print_last(format_args!(
            "shootdown kernel: threads={threads}: there are {all} CPUs"
        ));
        serial::exit(Status::Usage);
    }
    let measured = measure(workload, threads, options);
    print(workload, threads, options, &measured.counted, measured.took);
    serial::exit(if measured.stale() == 0 {
        Status::Success
    } else {
        Status::Violation
    })
}

/// The counts of a run, and its ticks.
pub struct Measured {
    counted: Totals,
    took: u64,
}

impl Measured {
    /// Stale reads.
    pub fn stale(&self) -> u64 {
        self.counted.stale
    }

    fn per_op(&self, count: u64) -> f64 {
        count as f64 / self.counted.ops.max(1) as f64
    }

    fn ops_per_s(&self) -> f64 {
        self.counted.ops as f64 * time::hertz() as f64 / self.took as f64
    }
}

/// A row of a table: operations per second, interrupts sent and taken and broadcasts for an operation, stale reads.
impl core::fmt::Display for Measured {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(
            f,
            "{:>10.0} {:>8.2} {:>9.2} {:>12.2} {:>6}",
            self.ops_per_s(),
            self.per_op(self.counted.sent),
            self.per_op(self.counted.taken),
            self.per_op(self.counted.broadcasts),
            self.counted.stale
        )
    }
}

/// Runs a workload three times: first to allocate every table and tag, then for the rates, and finally for the
/// stretches without interrupts and preemption.
pub fn measure(workload: Workload, threads: usize, options: &Options) -> Measured {
    if engine().policy().reach == Reach::Adaptive {
        let _costs = engine().calibrate();
    }
    time::take_up(time::ACCOUNTS);
    let length = match (options.ms, time::instruction_shift()) {
        (0, Some(shift)) => WINDOW << shift,
        (0, None) => time::hertz() / 5,
        (ms, _) => ms * time::hertz() / 1000,
    };
    measure_once(workload, threads, options.seed, length / 10, false);
    let (counted, took) = measure_once(workload, threads, options.seed, length, true);
    measure::track(true);
    measure_once(workload, threads, options.seed, length / 4, false);
    measure::track(false);
    Measured { counted, took }
}

/// `marked`: for a counter outside the machine.
fn measure_once(workload: Workload, threads: usize, seed: u64, length: u64, marked: bool) -> (Totals, u64) {
    let spaces = if workload.apart { threads } else { 1 };
    let new_space = |_| AddressSpace::new().expect("there is memory for a root");
    let shared = Box::into_raw(Box::new(Shared {
        workload,
        spaces: (0..spaces).map(new_space).collect(),
        threads,
        seed,
        arrived: AtomicUsize::new(0),
        end: AtomicU64::new(0),
        length,
    }));
    SHARED.store(shared, Ordering::Release);
    let before = Totals::now();
    if marked {
        marks::window_begins();
    }
    smp::on_all(threads, |cpu| {
        // SAFETY: freed below, when every CPU has done its job.
        let shared: &'static Shared = unsafe { &*SHARED.load(Ordering::Acquire) };
        shared.space(cpu.id).enter();
        shared.begin();
        (shared.workload.body)(shared, cpu.id, cpu);
        AddressSpace::leave();
    });
    if marked {
        marks::window_ends();
    }
    // SAFETY: made above by `into_raw`; every CPU has left the spaces and is done.
    let shared = unsafe { Box::from_raw(shared) };
    let took = time::ticks() - (shared.end.load(Ordering::Acquire) - length);
    let counted = Totals::now().since(before);
    shared.spaces.into_iter().for_each(AddressSpace::destroy);
    (counted, took)
}

fn print(workload: Workload, threads: usize, options: &Options, counted: &Totals, took: u64) {
    let shift = time::instruction_shift();
    let per_op = |count: u64| count as f64 / counted.ops.max(1) as f64;
    let instructions = |ticks: u64, by: u64| match shift {
        Some(shift) if by > 0 => Number(Some((ticks >> shift) as f64 / by as f64)),
        _ => Number(None),
    };
    let longest = |of: fn(&Cpu) -> &Longest, machine: bool| {
        let ticks = cpu::all().iter().map(|cpu| {
            let longest = of(cpu);
            let ticks = if machine { &longest.machine } else { &longest.own };
            ticks.load(Ordering::Acquire)
        });
        instructions(ticks.max().unwrap_or(0), 1)
    };
    let stubs = (counted.taken * traps::STUB_INSTRUCTIONS) << shift.unwrap_or(0);
    println!(
        "{{\"workload\":\"{}\",\"target\":\"{}\",\"design\":\"{}\",\"threads\":{},\"seed\":{},\"ops\":{},\
         \"ops_per_s\":{:.1},\"ipis_per_op\":{:.4},\"interrupts_per_op\":{:.4},\"stale\":{},\"accesses_checked\":{},\
         \"cpus\":{},\"icount\":{},\"broadcast\":\"{}\",\"broadcasts_per_op\":{:.4},\
         \"emulation_interrupts_per_op\":{:.4},\
         \"faults_per_op\":{:.4},\"flushes_per_op\":{:.4},\"instructions_per_op\":{},\"requester_instructions\":{},\
         \"target_instructions\":{},\"preemption_off_instructions\":{},\"preemption_off_machine\":{},\
         \"interrupts_off_instructions\":{},\"interrupts_off_machine\":{},\"promoted\":{},\"demoted\":{}}}",
        workload.name,
        options.target(),
        options.design_name,
        threads,
        options.seed,
        counted.ops,
        counted.ops as f64 * time::hertz() as f64 / took as f64,
        per_op(counted.sent),
        per_op(counted.taken),
        counted.stale,
        counted.checked,
        cpu::all().len(),
        Number(shift.map(f64::from)),
        broadcast_in_words(),
        per_op(counted.broadcasts),
        per_op(counted.emulation),
        per_op(counted.faults),
        per_op(counted.flushes),
        instructions(took, counted.ops),
        instructions(counted.flush_ticks, counted.flushes),
        instructions(counted.taken_ticks + stubs, counted.taken),
        longest(|cpu| &cpu.silence.preemption, false),
        longest(|cpu| &cpu.silence.preemption, true),
        longest(|cpu| &cpu.silence.interrupts, false),
        longest(|cpu| &cpu.silence.interrupts, true),
        measure::EVENTS.promoted.load(Ordering::Relaxed),
        measure::EVENTS.demoted.load(Ordering::Relaxed),
    );
}

/// How broadcasts are carried out.
pub fn broadcast_in_words() -> &'static str {
    let hooks = engine().kernel();
    features::broadcast_in_words(&hooks.processor, hooks.emulated)
}

/// A number, or `null`.
struct Number(Option<f64>);

impl core::fmt::Display for Number {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self.0 {
            Some(number) => write!(f, "{number:.1}"),
            None => write!(f, "null"),
        }
    }
}

fn write_byte(address: u64, value: u8) {
    // SAFETY: user memory of the loaded space, which contains no Rust object.
    unsafe { core::ptr::with_exposed_provenance_mut::<u8>(address as usize).write_volatile(value) };
}

fn read_byte(address: u64) -> u8 {
    // SAFETY: as in `write_byte`.
    unsafe { core::ptr::with_exposed_provenance::<u8>(address as usize).read_volatile() }
}

/// Each thread has a region of 256 pages: writes a page, drops it, reads it back as zero; unmaps the region after the
/// last.
fn tlb_flush2(shared: &Shared, index: usize, cpu: &Cpu) {
    let space = shared.space(index);
    let start = BASE + index as u64 * REGION;
    // Random starts, so that regions are not unmapped in step.
    let mut random = Xoshiro256PlusPlus::seed_from_u64(shared.seed << 8 | index as u64);
    let mut page = random.next_u64() % (REGION / PAGE);
    space.map(start, start + REGION, true);
    while shared.goes_on() {
        let address = start + page * PAGE;
        write_byte(address, 1);
        space.drop_pages(address, address + PAGE);
        let stale = read_byte(address) != 0;
        add(&cpu.counts.checked, 1);
        add(&cpu.counts.stale, u64::from(stale));
        add(&cpu.counts.ops, 1);
        page += 1;
        if page == REGION / PAGE {
            page = 0;
            space.unmap(start, start + REGION);
            space.map(start, start + REGION, true);
        }
    }
    space.unmap(start, start + REGION);
}

/// The first thread writes a page and drops it; the others spin.
fn madvise_spin(shared: &Shared, index: usize, cpu: &Cpu) {
    if index > 0 {
        while shared.goes_on() {}
        return;
    }
    let space = shared.space(index);
    space.map(BASE, BASE + PAGE, true);
    while shared.goes_on() {
        write_byte(BASE, 1);
        space.drop_pages(BASE, BASE + PAGE);
        add(&cpu.counts.ops, 1);
    }
}

/// Each thread has its own space, and repeatedly removes the write permission of a page and restores it.
fn mprotect_all(shared: &Shared, index: usize, cpu: &Cpu) {
    let space = shared.space(index);
    space.map(BASE, BASE + PAGE, true);
    write_byte(BASE, 1);
    while shared.goes_on() {
        space.protect(BASE, BASE + PAGE, false);
        space.protect(BASE, BASE + PAGE, true);
        write_byte(BASE, 1);
        add(&cpu.counts.ops, 1);
    }
}

/// Each thread forks one small process after the other, on its own CPU: the child writes a page that it shares with its
/// parent, drops what it has (exec), writes pages of its own, drops some, and ends. The shape of a compile.
fn process_churn(shared: &Shared, index: usize, cpu: &Cpu) {
    // SAFETY: the space is freed when every thread has left it.
    let parent: &'static AddressSpace = unsafe { &*core::ptr::from_ref(shared.space(index)) };
    parent.map(BASE, BASE + PARENT * PAGE, true);
    while shared.goes_on() {
        (0..PARENT).for_each(|page| write_byte(BASE + page * PAGE, 1));
        let child = Box::into_raw(Box::new(parent.fork().expect("there is memory for a small process")));
        // SAFETY: freed below, when this CPU has left it; no other has entered it.
        let running: &'static AddressSpace = unsafe { &*child };
        running.enter();
        write_byte(BASE, 2);
        running.unmap(BASE, BASE + PARENT * PAGE);
        running.map(BASE, BASE + CHILD * PAGE, true);
        (0..CHILD).for_each(|page| write_byte(BASE + page * PAGE, 3));
        running.drop_pages(BASE, BASE + CHILD / 2 * PAGE);
        let dropped_is_read = read_byte(BASE) != 0;
        parent.enter();
        // SAFETY: made by `into_raw` above, and left.
        unsafe { Box::from_raw(child) }.destroy();
        let written_by_child = read_byte(BASE) != 1;
        add(&cpu.counts.checked, 2);
        add(
            &cpu.counts.stale,
            u64::from(dropped_is_read) + u64::from(written_by_child),
        );
        add(&cpu.counts.ops, 1);
    }
}
