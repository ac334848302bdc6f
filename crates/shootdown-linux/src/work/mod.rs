//! Small workloads on this machine's own kernel: those of the simulator, with real threads and real system calls.
//!
//! Owns a measurement: workers pinned one to a CPU, a warm-up, a window, counts read at its two ends. [`loops`](self)
//! has the workers' loops, `shared.rs` the memory that workers share, across processes too.

mod loops;
pub mod probe;
mod process;
mod shared;

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::cpus;
use crate::interrupts::Interrupts;
use process::Processes;
use shared::{Region, Shared};

/// Time before the window, in which page tables, free lists and clocks settle.
const WARM_UP: Duration = Duration::from_millis(100);

/// A workload; the names are those of the simulator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Workload {
    /// Each thread writes, drops and reads back the pages of a region of its own.
    TlbFlush2,
    /// One thread writes and drops one page, the others spin.
    MadviseSpin,
    /// A process on each CPU makes a page of its own read-only and writable again.
    MprotectAll,
    /// Each CPU alternates between two processes and idle, while pages are dropped.
    ContextSwitch,
}

impl Workload {
    /// All.
    pub const ALL: [Workload; 4] = [
        Workload::TlbFlush2,
        Workload::MadviseSpin,
        Workload::MprotectAll,
        Workload::ContextSwitch,
    ];

    /// The simulator's name.
    pub fn name(self) -> &'static str {
        match self {
            Workload::TlbFlush2 => "tlb_flush2",
            Workload::MadviseSpin => "madvise_spin",
            Workload::MprotectAll => "mprotect_all",
            Workload::ContextSwitch => "context_switch",
        }
    }
}

/// The measurement.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Measured {
    /// Operations in the window, all workers together.
    pub ops: u64,
    /// Length of the window.
    pub seconds: f64,
    /// Interrupts in the window, of the whole system.
    pub interrupts: Interrupts,
    /// Reads that found a dropped page's old contents: 0 on a correct kernel.
    pub stale: u64,
    /// Number of checked reads.
    pub checked: u64,
    /// `context_switch`: idle time of a CPU per sleep, ns.
    pub idle_ns: Option<f64>,
}

impl Measured {
    /// Operations per second.
    pub fn ops_per_s(&self) -> f64 {
        self.ops as f64 / self.seconds
    }
}

/// Arguments of a worker thread: its number, and the pages that all threads share.
type Loop = fn(&Shared, usize, &Region) -> rustix::io::Result<()>;

/// Runs `workload` with one worker on each of `cpus` for `window`. `None` when `stop` was set meanwhile.
///
/// # Errors
/// When a worker cannot be started or pinned, or one of its system calls fails.
pub fn measure(
    workload: Workload,
    cpus: &[usize],
    window: Duration,
    stop: &AtomicBool,
) -> io::Result<Option<Measured>> {
    // Two-megabyte pages would change the workloads: small pages for this process and its children.
    let _small = SmallPages::only()?;
    let shared = Shared::new(cpus.len())?;
    let pages = Region::new(loops::SPACE_PAGES)?;
    // Before the threads: each is stopped when dropped, on every path.
    let processes = match workload {
        Workload::MprotectAll => Processes::start(&shared, cpus, loops::mprotect_all)?,
        Workload::ContextSwitch => Processes::start(&shared, cpus, loops::other_process)?,
        Workload::TlbFlush2 | Workload::MadviseSpin => Processes::none(&shared),
    };
    let thread: Option<Loop> = match workload {
        Workload::TlbFlush2 => Some(loops::tlb_flush2),
        Workload::MadviseSpin => Some(loops::madvise_spin),
        Workload::ContextSwitch => Some(loops::own_process),
        Workload::MprotectAll => None,
    };
    let measured = thread::scope(|scope| {
        if let Some(work) = thread {
            for (index, &cpu) in cpus.iter().enumerate() {
                let (shared, pages) = (&shared, &pages);
                scope.spawn(move || shared.report(index, cpus::pin(cpu).and_then(|()| work(shared, index, pages))));
            }
        }
        let measured = watch(&shared, window, stop);
        shared.stop();
        measured
    });
    drop(processes);
    match shared.error() {
        Some(error) => Err(error),
        None => Ok(measured),
    }
}

/// The window, observed from the main thread.
fn watch(shared: &Shared, window: Duration, stop: &AtomicBool) -> Option<Measured> {
    let pause = |time: Duration| {
        let begun = Instant::now();
        while begun.elapsed() < time {
            if stop.load(Ordering::Relaxed) || shared.error().is_some() {
                return false;
            }
            thread::sleep(Duration::from_millis(20).min(time.saturating_sub(begun.elapsed())));
        }
        true
    };
    if !pause(WARM_UP) {
        return None;
    }
    let (begun, interrupts, before) = (Instant::now(), Interrupts::now(), shared.counts());
    if !pause(window) {
        return None;
    }
    let (after, now) = (shared.counts(), Interrupts::now());
    let idle = after.idle_times - before.idle_times;
    Some(Measured {
        ops: after.ops - before.ops,
        seconds: begun.elapsed().as_secs_f64(),
        interrupts: now.since(&interrupts),
        stale: after.stale,
        checked: after.checked - before.checked,
        idle_ns: (idle > 0).then(|| (after.idle_ns - before.idle_ns) as f64 / idle as f64),
    })
}

/// While it lives, this process gets no transparent huge pages.
struct SmallPages;

impl SmallPages {
    fn only() -> io::Result<SmallPages> {
        SmallPages::set(1).map(|()| SmallPages)
    }

    fn set(disable: libc::c_ulong) -> io::Result<()> {
        // SAFETY: changes one property of this process; no memory is accessed.
        match unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, disable, 0, 0, 0) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for SmallPages {
    fn drop(&mut self) {
        // Restores the property that was set.
        let _ = SmallPages::set(0);
    }
}

#[cfg(test)]
mod tests;
