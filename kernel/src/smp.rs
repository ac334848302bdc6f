//! Starting the other CPUs, and giving each something to run.

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

/// Waits until `done`, but no longer than that. Returns whether it was.
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

/// What every CPU does first, on its own stack.
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

/// Runs `job` on CPUs `0..count`, the calling one (which is CPU 0) included, and waits until all are done.
pub fn on_all(count: usize, job: fn(&'static Cpu)) {
    let others = &cpu::all()[1..count];
    for other in others {
        // Release: what the job needs comes before; pairs with the acquire in `serve_jobs`.
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

/// What every CPU but the first does for ever: the jobs it is given, asleep in between.
pub fn serve_jobs(cpu: &'static Cpu) -> ! {
    interrupts::disable();
    loop {
        let job = cpu.job.load(Ordering::Acquire);
        if job.is_null() {
            time::sleep();
            continue;
        }
        interrupts::enable();
        // SAFETY: `on_all` has put such a function there.
        let job = unsafe { core::mem::transmute::<*mut (), fn(&'static Cpu)>(job) };
        job(cpu);
        interrupts::disable();
        // Release: what the job did comes before; pairs with the acquire in `on_all`.
        cpu.job.store(core::ptr::null_mut(), Ordering::Release);
    }
}
