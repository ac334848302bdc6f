//! Starting the other CPUs, switching them off, and running jobs on them.

use crate::arch::{boot, controller, features, interrupts, traps};
use crate::cpu::{self, Cpu, cpu};
use crate::{arch, frames, stacks, time};
use core::sync::atomic::{AtomicBool, Ordering};

/// Starts every CPU that is not up, one after the other.
pub fn start_others() {
    boot::prepare_to_start();
    let me = cpu().id;
    for other in cpu::all().iter().filter(|other| other.id != me) {
        boot::start(other, frames::new_stack().expect("there is memory at boot"));
        assert!(other.up.load(Ordering::Acquire), "CPU {} does not start", other.id);
    }
}

/// A CPU is being started: they share the word with the stack.
static STARTING: AtomicBool = AtomicBool::new(false);

/// Switches this CPU off by the firmware; returns when another CPU has started it again. Interrupts are off, and the
/// engine counts it as offline. Its registers but those of a call are lost, and so is what its TLB held.
pub fn stop_until_started(cpu: &'static Cpu) {
    if cpu.parking.load(Ordering::Relaxed) == 0 {
        let stack = frames::new_stack().expect("there is memory for one stack of each CPU");
        cpu.parking.store(stack, Ordering::Relaxed);
    }
    cpu.up.store(false, Ordering::Release);
    let parking = stacks::begin(cpu.parking.load(Ordering::Relaxed), stop);
    // SAFETY: the stack is this CPU's own, and unused since it started.
    unsafe { stacks::switch(cpu.stopped.as_ptr(), parking) };
    // A CPU that asked before this one stopped sees it up again, and would wait for its answer.
    #[cfg(target_arch = "riscv64")]
    crate::hooks::Hooks::serve_refused();
    cpu.up.store(true, Ordering::Release);
}

extern "C" fn stop() -> ! {
    // Release: the registers are saved. From here on the firmware refuses a start until this CPU is off.
    cpu().off.store(true, Ordering::Release);
    boot::stop()
}

/// On a CPU that has started: continues where it was switched off, if it was.
pub fn continue_after_stop(cpu: &'static Cpu) {
    let saved = cpu.stopped.replace(0);
    if saved != 0 {
        let mut unused = 0;
        // SAFETY: saved by this CPU, which no other code continues.
        unsafe { stacks::switch(&mut unused, saved) };
    }
}

/// Starts a CPU that is off, if there is one and no other is being started.
pub fn start_one() {
    let Some(other) = cpu::all().iter().find(|other| other.off.load(Ordering::Acquire)) else {
        return;
    };
    if STARTING.swap(true, Ordering::AcqRel) {
        return;
    }
    if other.off.swap(false, Ordering::AcqRel) {
        let stack = other.parking.load(Ordering::Relaxed);
        let started = wait_us(1_000_000, || boot::start_again(other, stack));
        // It may be on its way off again.
        let was_up = || other.up.load(Ordering::Acquire) || other.off.load(Ordering::Acquire);
        let is_up = started && wait_us(1_000_000, was_up);
        assert!(is_up, "CPU {} does not start again", other.id);
    }
    STARTING.store(false, Ordering::Release);
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
/// On that CPU, each time it starts.
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
