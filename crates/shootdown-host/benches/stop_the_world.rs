//! Cost of flushes to the guest, compared with stopping the world: `cargo bench -p shootdown-host`.
//!
//! All threads run guest code, which is TLB look-ups in blocks of 64. One of them flushes a page after every 64 blocks.
//! The output is the guest code that all threads execute, relative to a run without flushes. The other threads run the
//! flushed space, or another one. Stopping the world makes every thread halt at its next safe point, drop its whole
//! TLB, and wait until it is released. An emulator that does not track which CPU runs which space must do that.
//!
//! With more threads than processors, or on a busy host, threads wait to be scheduled: compare only within a row.

use shootdown::{Engine, Facade, PerCpu, Policy, Range, Root, Storage};
use shootdown_host::{Cpu, Host, Threads, Tlb};
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const ROUNDS: usize = 5;
const ROUND: Duration = Duration::from_millis(200);
/// Blocks between two flushes.
const BETWEEN: u64 = 64;
/// Look-ups between two safe points.
const BLOCK: u64 = 64;

/// The naive way: a number that all threads must have seen, and one that releases them.
#[derive(Default)]
struct World {
    requested: AtomicU64,
    stopped: AtomicU64,
    released: AtomicU64,
}

impl World {
    /// Stops `others` threads, and releases them.
    fn stop(&self, others: u64) {
        let round = self.requested.fetch_add(1, Ordering::SeqCst) + 1;
        Host::wait_until(|| self.stopped.load(Ordering::Acquire) == round * others);
        self.released.store(round, Ordering::Release);
    }

    /// At a safe point: stops if requested. Returns whether the TLB must be dropped.
    fn safe_point(&self, seen: &mut u64) -> bool {
        let requested = self.requested.load(Ordering::Acquire);
        if requested == *seen {
            return false;
        }
        *seen = requested;
        self.stopped.fetch_add(1, Ordering::AcqRel);
        Host::wait_until(|| self.released.load(Ordering::Acquire) >= requested);
        true
    }
}

/// How the page is removed from all TLBs.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    NoFlush,
    Shootdown,
    StopTheWorld,
}

/// Blocks per microsecond, and flushes per second, with `threads` threads. The others run the flushed space or another
/// one.
fn run(threads: usize, same_space: bool, way: Way) -> (f64, f64) {
    let mut cpus: Vec<_> = (0..threads).map(|_| PerCpu::new()).collect();
    let mmus = Threads::new(threads, |_| Tlb::<u64, u64>::new());
    let storage = Storage {
        cpus: &mut cpus,
        tags: &mut [],
    };
    let engine: Engine<'_, _, 1> = Engine::new(mmus, Policy::IPI_CONCURRENT.into(), Root(0), storage);
    let (space, other) = (engine.space(Root(1)), engine.space(Root(2)));
    let (ready, done, world) = (AtomicU64::new(0), AtomicBool::new(false), World::default());
    let (blocks, flushes) = (AtomicU64::new(0), AtomicU64::new(0));
    let guest = |id: usize| {
        let cpu = Cpu::attach(&engine, id);
        // SAFETY: both spaces outlive the threads.
        unsafe { engine.switch_to(if same_space || id == 0 { &space } else { &other }) };
        ready.fetch_add(1, Ordering::Release);
        cpu.wait_until(|| ready.load(Ordering::Acquire) == threads as u64);
        let begun = Instant::now();
        let (mut seen, mut page, mut ran) = (0, 0, 0);
        while !done.load(Ordering::Relaxed) {
            for _ in 0..BLOCK {
                page = (page + 1) % 256;
                let mut tlb = cpu.mmu();
                if black_box(tlb.lookup(page << 12)).is_none() {
                    tlb.fill(page << 12, page, false);
                }
            }
            ran += 1;
            if id == 0 && ran % BETWEEN == 0 {
                match way {
                    Way::NoFlush => {}
                    Way::Shootdown => drop(engine.flush(&space, Range::page(page << 12))),
                    Way::StopTheWorld => {
                        world.stop(threads as u64 - 1);
                        *cpu.mmu() = Tlb::new();
                    }
                }
                flushes.fetch_add(1, Ordering::Relaxed);
                if begun.elapsed() > ROUND {
                    done.store(true, Ordering::Relaxed);
                }
            }
            cpu.safe_point();
            if id > 0 && world.safe_point(&mut seen) {
                *cpu.mmu() = Tlb::new();
            }
        }
        blocks.fetch_add(ran, Ordering::Relaxed);
    };
    let begun = Instant::now();
    std::thread::scope(|scope| {
        let guest = &guest;
        (0..threads).for_each(|id| drop(scope.spawn(move || guest(id))));
    });
    let seconds = begun.elapsed().as_secs_f64();
    let of = |count: &AtomicU64| count.load(Ordering::Relaxed) as f64 / seconds;
    (of(&blocks) / 1e6, of(&flushes))
}

/// The median of several rounds, by blocks.
fn median(threads: usize, same_space: bool, way: Way) -> (f64, f64) {
    let mut rounds: Vec<_> = (0..ROUNDS).map(|_| run(threads, same_space, way)).collect();
    rounds.sort_by(|a, b| a.0.total_cmp(&b.0));
    rounds[ROUNDS / 2]
}

fn main() {
    let processors = std::thread::available_parallelism().map_or(0, usize::from);
    println!("guest code of all threads, median of {ROUNDS} rounds of {ROUND:?}; {processors} processors");
    println!("                           no flush  shootdown              stop the world");
    println!("threads  the others run   blocks/us   of that  flushes/s     of that  flushes/s");
    for threads in [1, 2, 4] {
        let others: &[(&str, bool)] = if threads == 1 {
            &[("-", true)]
        } else {
            &[("the same space", true), ("another space", false)]
        };
        for &(name, same) in others {
            let [(most, _), ours, naive] =
                [Way::NoFlush, Way::Shootdown, Way::StopTheWorld].map(|way| median(threads, same, way));
            let share = |(blocks, _): (f64, f64)| 100.0 * blocks / most;
            println!(
                "{threads:>7}  {name:<15}  {most:>8.2}  {:>7.0}%  {:>9.0}  {:>9.0}%  {:>9.0}",
                share(ours),
                ours.1,
                share(naive),
                naive.1
            );
        }
    }
}
