//! Starting the other CPUs, and giving each something to run.

use super::cpu::{self, Cpu};
use super::{apic, boot, descriptors, features, time};
use core::sync::atomic::Ordering;

/// Starts every CPU that is not up, one after the other (INIT, then STARTUP twice).
pub fn start_others() {
    boot::prepare_startup_page();
    let me = cpu::cpu().id;
    for other in cpu::all().iter().filter(|other| other.id != me) {
        let stack = descriptors::new_stack().expect("there is memory at boot");
        boot::set_startup(stack, other.id);
        let apic_id = cpu::apic_id(other.id);
        apic::send_init(apic_id);
        // What processors of the last century ask for; a virtual one needs none.
        if !features::get().hypervisor {
            wait_us(10_000, || false);
        }
        for _ in 0..2 {
            apic::send_startup(apic_id, boot::AP_PAGE);
            if wait_us(200_000, || other.up.load(Ordering::Acquire)) {
                break;
            }
        }
        assert!(other.up.load(Ordering::Acquire), "CPU {} does not start", other.id);
    }
}

/// Has every other CPU take an NMI, as firmware may at any time, and answer afterwards.
pub fn survive_nmis() {
    let all = cpu::all();
    all[1..].iter().for_each(|other| apic::send_nmi(cpu::apic_id(other.id)));
    on_all(all.len(), |_| {});
}

/// Waits until `done`, but no longer than that. Returns whether it was.
fn wait_us(us: u64, done: impl Fn() -> bool) -> bool {
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
    unsafe { cpu.adopt() };
    features::enable();
    cpu.loaded_root.store(boot::root(), Ordering::Relaxed);
    apic::enable();
}

/// Runs `job` on CPUs `0..count`, the calling one (which is CPU 0) included, and waits until all are done.
pub fn on_all(count: usize, job: fn(&'static Cpu)) {
    let others = &cpu::all()[1..count];
    for other in others {
        // Release: what the job needs comes before; pairs with the acquire in `serve_jobs`.
        other.job.store(job as *mut (), Ordering::Release);
        apic::send(cpu::apic_id(other.id), super::traps::JOB);
    }
    job(cpu::cpu());
    for other in others {
        while !other.job.load(Ordering::Acquire).is_null() {
            time::relax();
        }
    }
}

/// What every CPU but the first does for ever: the jobs it is given, asleep in between.
pub fn serve_jobs(cpu: &'static Cpu) -> ! {
    x86_64::instructions::interrupts::disable();
    loop {
        let job = cpu.job.load(Ordering::Acquire);
        if job.is_null() {
            time::sleep();
            continue;
        }
        x86_64::instructions::interrupts::enable();
        // SAFETY: `on_all` has put such a function there.
        let job = unsafe { core::mem::transmute::<*mut (), fn(&'static Cpu)>(job) };
        job(cpu);
        x86_64::instructions::interrupts::disable();
        // Release: what the job did comes before; pairs with the acquire in `on_all`.
        cpu.job.store(core::ptr::null_mut(), Ordering::Release);
    }
}
