//! Starting the other CPUs, and running jobs on them.

use crate::arch::{boot, controller, features, interrupts, traps};
use crate::cpu::{self, Cpu, cpu};
use crate::{arch, frames, time};
use core::sync::atomic::Ordering;

/// Starts every CPU that is not up, one after the other.
pub fn start_others() {
    boot::prepare_to_start();
    let me = cpu().id;
    for other in cpu::all().iter().filter(|other| other.id != me) {
        boot::start(other, frames::new_stack().expect("there is memory at boot"));
        assert!(other.up.load(Ordering::Acquire), "CPU {} does not start", other.id);
    }
}

/// Waits until `done`, at most that long. Returns whether it was done.
pub fn wait_us(us: u64, done: impl Fn() -> bool) -> bool {
    let end = time::ticks() + us * time::hertz() / 1_000_000;
    while time::ticks() < end {
        if done() {
            return true;
        }
        time::relax();
    }
    done()
}

/// Initialisation of every CPU, on its own stack.
///
/// # Safety
/// Once on each CPU.
pub unsafe fn set_up_this_cpu(cpu: &'static Cpu) {
    // SAFETY: the caller's promise.
    unsafe { arch::cpu::adopt(cpu) };
    features::enable();
    cpu.loaded_root.store(boot::root(), Ordering::Relaxed);
    controller::enable();
}

/// Runs `job` on CPUs `0..count`, including the calling one (CPU 0), and waits until all are done.
pub fn on_all(count: usize, job: fn(&'static Cpu)) {
    let others = &cpu::all()[1..count];
    for other in others {
        // Release: the job's data come before. Pairs with the acquire in `serve_jobs`.
        other.job.store(job as *mut (), Ordering::Release);
        controller::send([other.id], traps::JOB);
    }
    job(cpu());
    for other in others {
        while !other.job.load(Ordering::Acquire).is_null() {
            time::relax();
        }
    }
}

/// Main loop of every CPU except the first: runs its jobs, and sleeps in between.
pub fn serve_jobs(cpu: &'static Cpu) -> ! {
    interrupts::disable();
    loop {
        let job = cpu.job.load(Ordering::Acquire);
        if job.is_null() {
            time::sleep();
            continue;
        }
        interrupts::enable();
        // SAFETY: `on_all` has stored such a function there.
        let job = unsafe { core::mem::transmute::<*mut (), fn(&'static Cpu)>(job) };
        job(cpu);
        interrupts::disable();
        // Release: the job's results come before. Pairs with the acquire in `on_all`.
        cpu.job.store(core::ptr::null_mut(), Ordering::Release);
    }
}
