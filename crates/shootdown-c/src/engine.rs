//! Making an engine, and calls that concern the whole machine.

use crate::kernel::CEngine;
use crate::memory;
use crate::settings::{shootdown_settings, shootdown_status};
use core::ffi::c_void;

/// TLB coherence for one machine.
pub struct shootdown_engine {
    _opaque: [u8; 0],
}

/// Returns the size in bytes of an engine with these settings. It depends on the number of CPUs and, for designs with
/// system-wide tags, on the tags of the machine. 0 for invalid settings. The hooks may be missing. Any context.
///
/// # Safety
/// The pointers are valid, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_engine_size(settings: *const shootdown_settings) -> usize {
    // SAFETY: the caller's.
    unsafe {
        settings
            .as_ref()
            .and_then(|settings| memory::size(settings))
            .unwrap_or(0)
    }
}

/// Returns the alignment of the memory of engines and spaces, bytes. Any context.
#[unsafe(no_mangle)]
pub extern "C" fn shootdown_alignment() -> usize {
    memory::ALIGNMENT
}

/// Makes an engine in memory of that many bytes, with every CPU offline. Before the second CPU starts. The engine keeps
/// the memory for ever.
///
/// # Safety
/// The pointers are valid, or null; the hooks satisfy their contracts, on every CPU.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_engine_init(
    memory: *mut c_void,
    size: usize,
    settings: *const shootdown_settings,
    engine: *mut *mut shootdown_engine,
) -> shootdown_status {
    // SAFETY: the caller's.
    match unsafe { memory::init(memory, size, settings) } {
        Ok(made) if !engine.is_null() => {
            // SAFETY: the caller's.
            unsafe { engine.write(made.cast()) };
            shootdown_status::SHOOTDOWN_OK
        }
        Ok(_) => shootdown_status::SHOOTDOWN_BAD_MEMORY,
        Err(status) => status,
    }
}

/// # Safety
/// It was made by `shootdown_engine_init`, and lives for ever.
pub(crate) unsafe fn engine_of(engine: *const shootdown_engine) -> &'static CEngine {
    // SAFETY: the caller's.
    unsafe { &*engine.cast() }
}

/// Measures the cost of IPIs and broadcasts: once, when all CPUs are online, for the design "adaptive". Does nothing in
/// a library without it. Takes some microseconds. Context: as shootdown_flush.
///
/// # Safety
/// The pointers were made by this library's init functions, and their objects still live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_calibrate(engine: *const shootdown_engine) {
    // SAFETY: the caller's.
    let _engine = unsafe { engine_of(engine) };
    #[cfg(feature = "adaptive")]
    _engine.calibrate();
}

/// The shootdown interrupt has arrived. In its handler, with interrupts off and without migration, after the
/// acknowledgement if the controller requires one. To poll, call it only outside of walks and of other calls.
///
/// # Safety
/// The pointers were made by this library's init functions, and their objects still live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_on_ipi(engine: *const shootdown_engine) {
    // SAFETY: the caller's.
    unsafe { engine_of(engine).on_ipi() }
}
