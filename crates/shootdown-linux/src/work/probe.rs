//! Single costs, measured directly: the numbers of a machine model that need no fitting.
//!
//! Each is the least of many short batches, because every disturbance makes a batch longer.

use std::hint::{black_box, spin_loop};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Result;
use rustix::mm::{MprotectFlags, mprotect};

use super::SmallPages;
use super::shared::{PAGE, Region};
use crate::cpus;

/// Duration of the repetition.
const WINDOW: Duration = Duration::from_millis(200);

/// The least time of one of the `per_batch` operations of a batch, ns.
fn least(per_batch: u32, mut batch: impl FnMut() -> Result<()>) -> Result<f64> {
    let (begun, mut least) = (Instant::now(), f64::INFINITY);
    while begun.elapsed() < WINDOW {
        let start = Instant::now();
        batch()?;
        least = least.min(start.elapsed().as_nanos() as f64 / f64::from(per_batch));
    }
    Ok(least)
}

/// A line that two CPUs write in turns.
#[repr(align(128))]
struct Line(AtomicU64);

/// Moving a cache line from one CPU to the other and back, halved, ns.
///
/// # Errors
/// When this process may not run on both.
pub fn line_transfer_ns(a: usize, b: usize) -> io::Result<f64> {
    const ROUNDS: u32 = 500;
    let (line, done, lost) = (Line(AtomicU64::new(0)), AtomicBool::new(false), AtomicBool::new(false));
    // The asker changes even values, the answerer odd ones. Release and acquire, as locks pass lines on.
    let wait_for = |odd: u64| {
        while line.0.load(Ordering::Acquire) % 2 != odd {
            if done.load(Ordering::Relaxed) || lost.load(Ordering::Relaxed) {
                return false;
            }
            spin_loop();
        }
        true
    };
    thread::scope(|scope| {
        let answerer = scope.spawn(|| {
            let pinned = cpus::pin(b);
            lost.store(pinned.is_err(), Ordering::Relaxed);
            while pinned.is_ok() && wait_for(1) {
                line.0.fetch_add(1, Ordering::Release);
            }
            pinned
        });
        let initiator = scope.spawn(|| {
            let round = cpus::pin(a).and_then(|()| {
                least(ROUNDS, || {
                    for _ in 0..ROUNDS {
                        line.0.fetch_add(1, Ordering::Release);
                        wait_for(0);
                    }
                    Ok(())
                })
            });
            done.store(true, Ordering::Relaxed);
            round
        });
        let round = initiator.join().expect("does not panic");
        answerer.join().expect("does not panic")?;
        Ok(round? / 2.0)
    })
}

/// How much longer one flush in a hundred takes than one in four, ns: of one page on `a`, beside a thread on `b` that
/// only spins. On a kernel that interrupts the other CPU this is how late interrupts can be. Not one in two: while the
/// spinning thread is preempted, nothing is interrupted.
///
/// # Errors
/// When this process may not run on both, or there is no memory for it.
pub fn flush_tail_ns(a: usize, b: usize) -> io::Result<f64> {
    let _small = SmallPages::only()?;
    let region = Region::new(1)?;
    let (ready, done) = (AtomicBool::new(false), AtomicBool::new(false));
    thread::scope(|scope| {
        let spinner = scope.spawn(|| {
            let pinned = cpus::pin(b);
            ready.store(true, Ordering::Relaxed);
            while pinned.is_ok() && !done.load(Ordering::Relaxed) {
                spin_loop();
            }
            pinned
        });
        let flusher = scope.spawn(|| {
            let times = cpus::pin(a).and_then(|()| {
                while !ready.load(Ordering::Relaxed) {
                    spin_loop();
                }
                let (begun, mut times) = (Instant::now(), Vec::new());
                while times.is_empty() || begun.elapsed() < WINDOW {
                    region.write(0);
                    let start = Instant::now();
                    region.drop_page(0)?;
                    times.push(start.elapsed().as_nanos() as u64);
                }
                Ok(times)
            });
            done.store(true, Ordering::Relaxed);
            times
        });
        let mut times = flusher.join().expect("does not panic")?;
        spinner.join().expect("does not panic")?;
        times.sort_unstable();
        Ok((times[times.len() * 99 / 100] - times[times.len() * 3 / 4]) as f64)
    })
}

/// Entering and leaving the kernel, ns.
///
/// # Errors
/// Never on a correct kernel.
pub fn system_call_ns() -> io::Result<f64> {
    const CALLS: u32 = 1000;
    Ok(least(CALLS, || {
        for _ in 0..CALLS {
            // SAFETY: only queries a number.
            black_box(unsafe { libc::syscall(libc::SYS_getppid) });
        }
        Ok(())
    })?)
}

/// `madvise(MADV_DONTNEED)` of an absent page, the system call included, ns.
///
/// # Errors
/// When there is no memory for it.
pub fn madvise_ns() -> io::Result<f64> {
    const CALLS: u32 = 500;
    let region = Region::new(1)?;
    Ok(least(CALLS, || {
        for _ in 0..CALLS {
            region.drop_page(0)?;
        }
        Ok(())
    })?)
}

/// Mapping a region of 1 MiB and unmapping it untouched, both system calls included, ns.
///
/// # Errors
/// When there is no memory for it.
pub fn map_unmap_ns() -> io::Result<f64> {
    const PAIRS: u32 = 100;
    Ok(least(PAIRS, || {
        for _ in 0..PAIRS {
            black_box(Region::new(super::loops::FLUSH_PAGES)?);
        }
        Ok(())
    })?)
}

/// Added time of an access whose translation is in no TLB but whose tables are cached, ns. The same number of lines is
/// read in a random order, once each in its own page, once densely.
///
/// # Errors
/// When there is no memory for it.
pub fn refill_ns() -> io::Result<f64> {
    // 32 MiB of pages, more than any TLB holds; their lines and their tables are half a MiB each at most.
    const LINES: usize = 8192;
    const LINE: usize = 64;
    let _small = SmallPages::only()?;
    let spread = Region::new(LINES)?;
    let dense = Region::new(LINES * LINE / PAGE)?;
    let far = |line: usize| (line, line * LINE % PAGE);
    let near = |line: usize| (line * LINE / PAGE, line * LINE % PAGE);
    Ok((chase(&spread, LINES, far)? - chase(&dense, LINES, near)?).max(0.0))
}

/// Time of one access of a random cycle through all lines, ns.
fn chase(region: &Region, lines: usize, place: impl Fn(usize) -> (usize, usize)) -> Result<f64> {
    let address = |line: usize| {
        let (page, offset) = place(line);
        // SAFETY: within the page.
        unsafe { region.at(page).add(offset) }.cast::<*mut u8>()
    };
    // A generator with these constants visits every number below a power of two once, in an order that prefetchers
    // cannot follow.
    let next = |line: usize| (line.wrapping_mul(4_005) + 2_731) % lines;
    for line in 0..lines {
        // SAFETY: aligned, inside our region, and written only here.
        unsafe { address(line).write(address(next(line)).cast()) };
    }
    let mut at = address(0);
    least(lines as u32, || {
        for _ in 0..lines {
            // SAFETY: every address in the cycle is one of those written above.
            at = unsafe { at.read_volatile() }.cast();
        }
        black_box(at);
        Ok(())
    })
}

/// Added time of removing a right of a page when the page is present, ns: changing its entry, and invalidating it on
/// this CPU. Restoring the right is measured with it, and invalidates nothing.
///
/// # Errors
/// When a system call fails.
pub fn local_flush_ns() -> io::Result<f64> {
    const PAIRS: u32 = 200;
    let _small = SmallPages::only()?;
    let pair = |resident: bool| -> Result<f64> {
        let region = Region::new(1)?;
        if resident {
            region.write(0);
        }
        let protect = |flags| {
            // SAFETY: a page of our own, not accessed meanwhile.
            unsafe { mprotect(region.at(0).cast(), PAGE, flags) }
        };
        least(PAIRS, || {
            for _ in 0..PAIRS {
                protect(MprotectFlags::READ)?;
                protect(MprotectFlags::READ | MprotectFlags::WRITE)?;
            }
            Ok(())
        })
    };
    Ok((pair(true)? - pair(false)?).max(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_probe_returns_a_time() {
        for cost in [
            system_call_ns(),
            madvise_ns(),
            map_unmap_ns(),
            refill_ns(),
            local_flush_ns(),
        ] {
            let cost = cost.unwrap();
            assert!(cost.is_finite() && cost >= 0.0, "{cost}");
        }
        if let [a, b, ..] = cpus::allowed().unwrap()[..] {
            assert!(line_transfer_ns(a, b).unwrap() > 0.0);
            let tail = flush_tail_ns(a, b).unwrap();
            assert!((0.0..1e9).contains(&tail), "{tail}");
        }
        assert!(line_transfer_ns(1022, 1023).is_err(), "no such CPUs");
        assert!(flush_tail_ns(1022, 1023).is_err(), "no such CPUs");
    }

    #[test]
    fn random_cycle_visits_every_line() {
        let mut line = 0_usize;
        let mut seen = vec![false; 8192];
        for _ in 0..8192 {
            seen[line] = true;
            line = (line.wrapping_mul(4_005) + 2_731) % 8192;
        }
        assert!(seen.into_iter().all(|seen| seen) && line == 0);
    }
}
