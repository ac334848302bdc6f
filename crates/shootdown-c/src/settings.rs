//! The settings of an engine: the design, by name and with changes, the machine and the hooks.

use crate::cpu_words::SHOOTDOWN_CPU_WORDS;
use crate::fixed::FIXED;
use crate::hooks::shootdown_hooks;
use crate::instructions::Instructions;
use core::ffi::{c_char, c_void};
use shootdown::{Design, Errata, Machine, Policy, Root};

/// The result of making an engine.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum shootdown_status {
    /// Success.
    SHOOTDOWN_OK = 0,
    /// No design has that name, or the library is built for another design.
    SHOOTDOWN_UNKNOWN_DESIGN,
    /// No CPU, or more than 64 * SHOOTDOWN_CPU_WORDS; or cpu_words differs from the library's.
    SHOOTDOWN_BAD_CPUS,
    /// A required hook is null; or broadcast or broadcast_sync, and the machine broadcasts; or pin or unpin, and the
    /// settings do not say that the kernel is not preemptible.
    SHOOTDOWN_MISSING_HOOK,
    /// A null pointer, or memory that is too small or not aligned.
    SHOOTDOWN_BAD_MEMORY,
    /// Policy and machine do not fit each other or the CPUs; each field documents its range. Under designs with
    /// system-wide tags only, tags must outnumber the CPUs. Where the library is built for one design, its policy is
    /// fixed.
    SHOOTDOWN_DOES_NOT_FIT,
}

/// The settings of a design that the kernel may change. shootdown_design writes the design's own.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct shootdown_policy {
    /// Pages up to which a range is flushed page by page; above, the whole tag is flushed.
    pub ceiling: u32,
    /// Per-CPU tags in use, 1 to 16.
    pub slots: u8,
    /// One request in this many, a power of two, is timed; for "adaptive".
    pub sample_one_in: u32,
    /// Consecutive samples that must favour a space without its tag before it gives the tag up; for "adaptive".
    pub demote_after: u32,
    /// Frames that unmaps on one CPU may defer; for "deferred".
    pub defer_frames: u32,
    /// Wait in ns after which a CPU that has not answered is reported to the hook `stuck`; 0 reports never.
    pub stuck_ns: u64,
}

/// The features of the machine. shootdown_design writes x86 with PCIDs and the errata that are part of the design.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct shootdown_machine {
    /// One past the last tag: 4096 with PCIDs, at most 65536. 1 or 0 without tags: then every hook receives tag 0 and
    /// load_root never receives `keep`, and both may be ignored.
    pub tag_limit: u32,
    /// First tag that the engine may use, from 1.
    pub first_tag: u16,
    /// User and kernel halves under pairs of tags that differ in SHOOTDOWN_USER_HALF (PTI). The hooks receive both of
    /// every pair.
    pub split: bool,
    /// Erratum: never broadcast.
    pub never_broadcast: bool,
    /// Erratum: interrupt as well as broadcast.
    pub interrupt_too: bool,
    /// Erratum: invalidate and synchronise twice.
    pub repeat: bool,
}

/// The tag bit of the user half of a pair.
pub const SHOOTDOWN_USER_HALF: u16 = 1 << 11;
const _: () = assert!(SHOOTDOWN_USER_HALF == shootdown::USER_HALF);

impl shootdown_policy {
    fn of(policy: &Policy) -> Self {
        shootdown_policy {
            ceiling: policy.ceiling,
            slots: policy.slots,
            sample_one_in: policy.sample_one_in,
            demote_after: policy.demote_after,
            defer_frames: policy.defer_frames,
            stuck_ns: policy.stuck_ns,
        }
    }

    fn change(&self, policy: Policy) -> Policy {
        Policy {
            ceiling: self.ceiling,
            slots: self.slots,
            sample_one_in: self.sample_one_in,
            demote_after: self.demote_after,
            defer_frames: self.defer_frames,
            stuck_ns: self.stuck_ns,
            ..policy
        }
    }
}

impl shootdown_machine {
    fn of(machine: &Machine) -> Self {
        shootdown_machine {
            tag_limit: machine.tag_limit,
            first_tag: machine.first_tag,
            split: machine.split,
            never_broadcast: machine.errata.never_broadcast,
            interrupt_too: machine.errata.interrupt_too,
            repeat: machine.errata.repeat,
        }
    }

    fn to_machine(self) -> Machine {
        Machine {
            tag_limit: self.tag_limit,
            first_tag: self.first_tag,
            split: self.split,
            errata: Errata {
                never_broadcast: self.never_broadcast,
                interrupt_too: self.interrupt_too,
                repeat: self.repeat,
            },
        }
    }
}

/// The design of that name. A library that is built for one design has only that one. By reference: a copy would lie on
/// the boot stack.
///
/// # Safety
/// `name` is a string or null.
unsafe fn preset(name: *const c_char) -> Option<&'static Design> {
    static LOCAL_ONLY: Design = Policy::LOCAL_ONLY.on(Machine::PCID);
    if name.is_null() {
        return const { &FIXED }.as_ref().map(|(_, design)| design);
    }
    // SAFETY: not null, so the caller's string.
    let is = |known: &str| unsafe { is_text(name, known) };
    match const { &FIXED } {
        Some((fixed, design)) => is(fixed).then_some(design),
        None => {
            if is("local-only") {
                return Some(&LOCAL_ONLY);
            }
            let mut presets = Design::PRESETS.iter();
            let (_, design, _) = presets.find(|(known, ..)| is(known))?;
            Some(design)
        }
    }
}

/// Whether a string of C has these bytes. By hand: the compiler's `strlen` is larger than this.
///
/// # Safety
/// `text` is a string.
unsafe fn is_text(text: *const c_char, known: &str) -> bool {
    let mut place = text.cast::<u8>();
    for &byte in known.as_bytes() {
        // SAFETY: all bytes before are those of `known`, none of them the last of the string.
        if unsafe { *place } != byte {
            return false;
        }
        place = place.wrapping_add(1);
    }
    // SAFETY: as above.
    unsafe { *place == 0 }
}

/// Writes the settings of the design of that name, for the kernel to change and to pass in the settings. False if there
/// is no such design. Either pointer may be null. Any context.
///
/// # Safety
/// The pointers are valid, or null; `name` is a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_design(
    name: *const c_char,
    policy: *mut shootdown_policy,
    machine: *mut shootdown_machine,
) -> bool {
    // SAFETY: the caller's.
    let Some(design) = (unsafe { preset(name) }) else {
        return false;
    };
    if !policy.is_null() {
        // SAFETY: not null, so the caller's.
        unsafe { policy.write(shootdown_policy::of(&design.policy)) };
    }
    if !machine.is_null() {
        // SAFETY: not null, so the caller's.
        unsafe { machine.write(shootdown_machine::of(&design.machine)) };
    }
    true
}

/// Writes the features of the present machine, for the kernel to change and to pass in the settings. False in a library
/// without the feature `instructions`. On a CPU with the kernel's root loaded.
///
/// # Safety
/// The pointer is valid; kernel_root is the root that maps only the kernel.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_machine_found(kernel_root: u64, machine: *mut shootdown_machine) -> bool {
    let Some(found) = Instructions::machine(Root(kernel_root)) else {
        return false;
    };
    // SAFETY: the caller's.
    unsafe { machine.write(shootdown_machine::of(&found)) };
    true
}

/// The machine, the design and the hooks. Set unused fields to zero.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct shootdown_settings {
    /// The hooks; copied.
    pub hooks: shootdown_hooks,
    /// The context pointer of each hook. Shared by all CPUs; used for the engine's lifetime.
    pub kernel: *mut c_void,
    /// Name of the design, as in `shootdown list`: "ipi", "broadcast", "adaptive", "arm-local-first" and so on.
    /// Negative controls for tests: "none" invalidates nothing, "local-only" nothing on other CPUs. Null for the design
    /// that the library is built for (the variable SHOOTDOWN_DESIGN of its build).
    pub design: *const c_char,
    /// The changes to its policy; null for none. Only shootdown_engine_init reads it, and the machine.
    pub policy: *const shootdown_policy,
    /// The machine. Null for x86 with PCIDs, not split; with the feature `instructions`, for the machine that the
    /// library detects.
    pub machine: *const shootdown_machine,
    /// SHOOTDOWN_CPU_WORDS, so that a header that differs from the library is detected.
    pub cpu_words: u32,
    /// CPUs of the machine, including those that are offline.
    pub cpus: u32,
    /// The kernel is never preempted: a thread leaves its CPU only at its own request. Then pin and unpin may be
    /// null.
    pub not_preemptible: bool,
    /// Most 4 KiB pages in one broadcast instruction (CPUID 8000_0008, EDX bits 15 to 0, + 1); 0 without broadcasts.
    pub broadcast_pages: u32,
    /// Most 2 MiB pages in one; 0 counts as 1.
    pub broadcast_large_pages: u32,
    /// Whether a broadcast interrupts every other CPU, as firmware of RISC-V does (SBI RFENCE).
    pub broadcast_interrupts: bool,
    /// The root that maps only the kernel.
    pub kernel_root: u64,
}

impl shootdown_settings {
    /// The design, with the changes.
    ///
    /// # Safety
    /// The pointers are valid, or null.
    pub(crate) unsafe fn design(&self) -> Result<Design, shootdown_status> {
        if self.cpu_words as usize != SHOOTDOWN_CPU_WORDS {
            return Err(shootdown_status::SHOOTDOWN_BAD_CPUS);
        }
        // SAFETY: the caller's.
        let named = unsafe { preset(self.design) };
        let Design { policy, machine } = named.ok_or(shootdown_status::SHOOTDOWN_UNKNOWN_DESIGN)?;
        // SAFETY: null or valid, says the caller.
        let (changed, found) = unsafe { (self.policy.as_ref(), self.machine.as_ref()) };
        let policy = changed.map_or(*policy, |changed| changed.change(*policy));
        if FIXED.is_some_and(|(_, fixed)| fixed.policy != policy) {
            return Err(shootdown_status::SHOOTDOWN_DOES_NOT_FIT);
        }
        let found = found.map(|found| found.to_machine());
        let found = found.or_else(|| Instructions::machine(Root(self.kernel_root)));
        let design = policy.on(found.unwrap_or(*machine));
        match design.fits(self.cpus as usize) {
            Ok(()) => Ok(design),
            Err(_) => Err(shootdown_status::SHOOTDOWN_DOES_NOT_FIT),
        }
    }
}
