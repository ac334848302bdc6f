//! Calls of a CPU about itself: hotplug, switches, lazy TLB mode, ticks.

use crate::engine::{engine_of, shootdown_engine};
use crate::space::{shootdown_space, space_of};

/// Brings this CPU online, with the kernel's root loaded. Call it before the CPU loads a space, or uses kernel mappings
/// that may change. Interrupts off, and on soon after. A library with the feature `instructions` enables the processor
/// features that it uses (x86: PCIDs, global pages).
///
/// # Safety
/// The pointers were made by this library's init functions, and their objects still live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_cpu_online(engine: *const shootdown_engine) {
    // SAFETY: the caller's.
    unsafe {
        engine_of(engine).kernel().enable();
        engine_of(engine).cpu_online();
    }
}

/// Takes this CPU offline, after its last use of user translations and its last walk. From here on no flush waits for
/// it. Interrupts off.
///
/// # Safety
/// The pointers were made by this library's init functions, and their objects still live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_cpu_offline(engine: *const shootdown_engine) {
    // SAFETY: the caller's.
    unsafe { engine_of(engine).cpu_offline() }
}

/// Loads a space on this CPU, or ends lazy TLB mode when it is loaded already. From the scheduler.
///
/// # Safety
/// The space lives until every CPU has left it: by switching to another or to the kernel, going offline, or
/// shootdown_retire.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_switch_to(engine: *const shootdown_engine, space: *const shootdown_space) {
    // SAFETY: the caller's.
    unsafe { engine_of(engine).switch_to(space_of(space)) }
}

/// As shootdown_switch_to, for a caller that has interrupts off: it neither masks them nor asks whether they are.
///
/// # Safety
/// As shootdown_switch_to. Interrupts are off on this CPU.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_switch_to_interrupts_off(
    engine: *const shootdown_engine,
    space: *const shootdown_space,
) {
    // SAFETY: the caller's.
    unsafe { engine_of(engine).switch_to_interrupts_off(space_of(space)) }
}

/// Loads the kernel's own root: this CPU leaves its space.
///
/// # Safety
/// The pointers were made by this library's init functions, and their objects still live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_switch_to_kernel(engine: *const shootdown_engine) {
    // SAFETY: the caller's.
    unsafe { engine_of(engine).switch_to_kernel() }
}

/// Enters lazy TLB mode: the space stays loaded, but no user address is touched until shootdown_leave_lazy or
/// shootdown_switch_to.
///
/// # Safety
/// The pointers were made by this library's init functions, and their objects still live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_enter_lazy(engine: *const shootdown_engine) {
    // SAFETY: the caller's.
    unsafe { engine_of(engine).enter_lazy() }
}

/// Ends lazy TLB mode, or loads the space if it was unloaded meanwhile. Call it before any user address is touched.
///
/// # Safety
/// As shootdown_switch_to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_leave_lazy(engine: *const shootdown_engine, space: *const shootdown_space) {
    // SAFETY: the caller's.
    unsafe { engine_of(engine).leave_lazy(space_of(space)) }
}

/// User code of the loaded space has entered the kernel. If true, call shootdown_leave_lazy before any user address is
/// touched, copying routines included, and before the return. Optional; useful under "adaptive".
///
/// # Safety
/// The pointers were made by this library's init functions, and their objects still live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_enter_kernel(
    engine: *const shootdown_engine,
    space: *const shootdown_space,
) -> bool {
    // SAFETY: the caller's.
    unsafe { engine_of(engine).enter_kernel(space_of(space)) }
}

/// Serves requests of other CPUs, and returns whether there were any. Call it in every loop that waits with interrupts
/// off for something that a CPU may hold while it flushes, such as a spin lock. Does nothing inside a walk, and on an
/// offline CPU. Not from NMI context. One or two loads when no request is pending.
///
/// # Safety
/// The pointers were made by this library's init functions, and their objects still live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_poll(engine: *const shootdown_engine) -> bool {
    // SAFETY: the caller's.
    unsafe { engine_of(engine).poll() }
}

/// Whether an NMI handler may touch user addresses of the space. In NMI context.
///
/// # Safety
/// The pointers were made by this library's init functions, and their objects still live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_user_access_ok(
    engine: *const shootdown_engine,
    space: *const shootdown_space,
) -> bool {
    // SAFETY: the caller's.
    unsafe { engine_of(engine).user_access_ok(space_of(space)) }
}

/// The timer tick on this CPU, which is in no walk. Ticks end deferrals and grace periods. Any context with a CPU that
/// cannot change. A load and a compare when nothing is pending.
///
/// # Safety
/// The pointers were made by this library's init functions, and their objects still live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_tick(engine: *const shootdown_engine) {
    // SAFETY: the caller's.
    unsafe { engine_of(engine).tick() }
}

/// This CPU takes no ticks from here on, although it runs user code: no deferral waits for it, and unmaps that concern
/// it are synchronous. Not in the shootdown handler. Idle CPUs need not call it.
///
/// # Safety
/// The pointers were made by this library's init functions, and their objects still live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_tick_stops(engine: *const shootdown_engine) {
    // SAFETY: the caller's.
    unsafe { engine_of(engine).tick_stops() }
}

/// This CPU takes ticks again.
///
/// # Safety
/// The pointers were made by this library's init functions, and their objects still live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_tick_resumes(engine: *const shootdown_engine) {
    // SAFETY: the caller's.
    unsafe { engine_of(engine).tick_resumes() }
}
