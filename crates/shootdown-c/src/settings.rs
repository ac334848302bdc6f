//! What an engine is made of, and why there is none.

use crate::hooks::shootdown_hooks;
use core::ffi::{c_char, c_void};

/// Why there is no engine.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum shootdown_status {
    /// There is one.
    SHOOTDOWN_OK = 0,
    /// No design has that name, or the name is no UTF-8.
    SHOOTDOWN_UNKNOWN_DESIGN,
    /// No CPU, or more than 64 * SHOOTDOWN_CPU_WORDS. Or as many as there are tags, under a design that gives tags out
    /// system-wide only.
    SHOOTDOWN_BAD_CPUS,
    /// One of the six required hooks is null; or the machine broadcasts, and broadcast or broadcast_sync is.
    SHOOTDOWN_MISSING_HOOK,
    /// A null pointer, or memory that is too small or not aligned.
    SHOOTDOWN_BAD_MEMORY,
}

/// The machine, the design and the hooks. Zero what is not used.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct shootdown_settings {
    /// The hooks; copied.
    pub hooks: shootdown_hooks,
    /// What each hook gets. Shared by all CPUs; used for as long as the engine is.
    pub kernel: *mut c_void,
    /// Name of the design, as in `shootdown list`: "ipi", "broadcast", "adaptive", "arm-local-first" and so on.
    pub design: *const c_char,
    /// CPUs of the machine, those that are off included.
    pub cpus: u32,
    /// Most 4 KiB pages in one broadcast instruction (CPUID 8000_0008, EDX bits 15 to 0, + 1); 0 where nothing can be
    /// broadcast.
    pub broadcast_pages: u32,
    /// Most 2 MiB pages in one; 0 is taken for 1.
    pub broadcast_large_pages: u32,
    /// Whether a broadcast is carried out by interrupting every other CPU, as firmware of RISC-V does (SBI RFENCE).
    pub broadcast_interrupts: bool,
    /// The top table that maps the kernel only.
    pub kernel_root: u64,
}
