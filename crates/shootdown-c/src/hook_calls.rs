//! How the library reaches a hook: by the pointer in the settings, or, in a library that was built with the variable
//! SHOOTDOWN_HOOKS, by a function with a fixed name. The latter takes no test, no indirect call and no context pointer.
//! `cpu` may also be one instruction, which the variable SHOOTDOWN_CPU_INSTRUCTION gives: then a flush that interrupts
//! nobody calls no function of the kernel, and saves no registers for it.

use crate::fixed::equal;
use crate::hooks::*;
use crate::range::shootdown_range;
use crate::settings::{shootdown_settings, shootdown_status};
use core::ffi::c_void;

/// The hooks that the kernel defines as functions `shootdown_hook_NAME`, separated by spaces. `None`: pointers.
const LISTED: Option<&str> = match option_env!("SHOOTDOWN_HOOKS") {
    Some(list) if !list.is_empty() => Some(list),
    _ => None,
};

/// Hooks that can be listed. The first two must be.
const NAMES: [&str; 12] = [
    "cpu",
    "send_ipi",
    "send_ipi_to",
    "pin",
    "unpin",
    "now_ns",
    "flush_at_entry",
    "secondary",
    "secondary_sync",
    "unloaded",
    "event",
    "stuck",
];

const _: () = if let Some(list) = LISTED {
    assert!(
        cfg!(all(feature = "instructions", target_os = "none")),
        "SHOOTDOWN_HOOKS: only in a library with the feature `instructions`, for a kernel"
    );
    assert!(
        contains(list, "cpu") != cfg!(shootdown_cpu_instruction),
        "SHOOTDOWN_HOOKS must name cpu, unless SHOOTDOWN_CPU_INSTRUCTION takes its place"
    );
    assert!(contains(list, "send_ipi"), "SHOOTDOWN_HOOKS must name send_ipi");
    assert!(
        contains(list, "pin") == contains(list, "unpin")
            && contains(list, "secondary") == contains(list, "secondary_sync"),
        "SHOOTDOWN_HOOKS: pin goes with unpin, and secondary with secondary_sync"
    );
    assert!(
        are_known(list),
        "SHOOTDOWN_HOOKS names no hook of struct shootdown_hooks"
    );
};

#[cfg(shootdown_cpu_instruction)]
const _: () = assert!(LISTED.is_some(), "SHOOTDOWN_CPU_INSTRUCTION: only with SHOOTDOWN_HOOKS");

/// The word that begins at `from` in a list, and where the next one begins.
const fn word(list: &[u8], from: usize) -> (&[u8], usize) {
    let (_, rest) = list.split_at(from);
    let mut length = 0;
    while length < rest.len() && rest[length] != b' ' {
        length += 1;
    }
    let next = from + length + 1;
    (
        rest.split_at(length).0,
        if next < list.len() { next } else { list.len() },
    )
}

const fn contains(list: &str, name: &str) -> bool {
    let (list, mut place) = (list.as_bytes(), 0);
    while place < list.len() {
        let (found, next) = word(list, place);
        if equal(found, name.as_bytes()) {
            return true;
        }
        place = next;
    }
    false
}

const fn are_known(list: &str) -> bool {
    let (list, mut place) = (list.as_bytes(), 0);
    while place < list.len() {
        let (found, next) = word(list, place);
        let mut known = found.is_empty();
        let mut index = 0;
        while index < NAMES.len() {
            known |= equal(found, NAMES[index].as_bytes());
            index += 1;
        }
        if !known {
            return false;
        }
        place = next;
    }
    true
}

const fn is_listed(name: &str) -> bool {
    match LISTED {
        Some(list) => contains(list, name),
        None => false,
    }
}

/// Calls a hook: by name or by pointer. The last argument is the result without the hook.
macro_rules! call {
    ($hooks:ident.$hook:ident, $function:ident($($argument:expr),*), $absent:expr) => {
        if const { is_listed(stringify!($hook)) } {
            // SAFETY: the kernel defines it, and the caller of the init function promised its contract.
            unsafe { $function($($argument),*) }
        } else if const { LISTED.is_some() } {
            $absent
        } else {
            match $hooks.pointers().$hook {
                // SAFETY: as above, and the pointer is its context.
                Some(hook) => unsafe { hook($hooks.kernel, $($argument),*) },
                None => $absent,
            }
        }
    };
}

/// Whether the kernel has a hook.
macro_rules! has {
    ($hooks:ident.$hook:ident) => {
        if const { LISTED.is_some() } {
            const { is_listed(stringify!($hook)) }
        } else {
            $hooks.pointers().$hook.is_some()
        }
    };
}

/// Tables of pointers that an engine keeps: none if the hooks have names.
const TABLES: usize = LISTED.is_none() as usize;

/// The hooks of the kernel, except those that execute instructions.
#[derive(Clone, Copy)]
pub struct HookCalls {
    kernel: *mut c_void,
    tables: [shootdown_hooks; TABLES],
}

impl HookCalls {
    /// Whether a kernel may be preemptible. With pointers the settings say so at run time.
    pub const MAY_BE_PREEMPTIBLE: bool = LISTED.is_none() || is_listed("pin");

    /// # Errors
    /// A required hook is missing.
    pub fn check(settings: &shootdown_settings) -> Result<(), shootdown_status> {
        let hooks = &settings.hooks;
        let there = LISTED.is_some() || hooks.cpu.is_some() && hooks.send_ipi.is_some();
        let pins = match LISTED {
            Some(_) => is_listed("pin"),
            None => hooks.pin.is_some() && hooks.unpin.is_some(),
        };
        if there && (settings.not_preemptible || pins) {
            Ok(())
        } else {
            Err(shootdown_status::SHOOTDOWN_MISSING_HOOK)
        }
    }

    /// # Safety
    /// [`check`](Self::check) has found nothing missing.
    #[inline]
    pub unsafe fn of(settings: &shootdown_settings) -> HookCalls {
        HookCalls {
            kernel: settings.kernel,
            tables: [settings.hooks; TABLES],
        }
    }

    #[inline(always)]
    fn pointers(&self) -> &shootdown_hooks {
        // SAFETY: called only where there is a table.
        unsafe { self.tables.first().unwrap_unchecked() }
    }

    #[cfg(shootdown_cpu_instruction)]
    #[inline(always)]
    pub fn cpu(&self) -> usize {
        let cpu: usize;
        // SAFETY: the kernel gave the instruction, and it has the hook's contract. Not `pure`: the thread may have
        // migrated since the last one.
        unsafe {
            core::arch::asm!(
                env!("SHOOTDOWN_CPU_INSTRUCTION"),
                cpu = out(reg) cpu,
                options(nostack, preserves_flags, readonly)
            );
        }
        cpu
    }

    #[cfg(not(shootdown_cpu_instruction))]
    #[inline(always)]
    pub fn cpu(&self) -> usize {
        // SAFETY: `check` has seen the pointer.
        let cpu: u32 = call!(self.cpu, shootdown_hook_cpu(), unsafe {
            core::hint::unreachable_unchecked()
        });
        cpu as usize
    }

    #[inline(always)]
    pub fn send_ipi(&self, targets: *const u64) {
        // SAFETY: `check` has seen the pointer.
        call!(self.send_ipi, shootdown_hook_send_ipi(targets), unsafe {
            core::hint::unreachable_unchecked()
        });
    }

    /// Whether there is a hook for a single target.
    #[inline(always)]
    pub fn sends_to_one(&self) -> bool {
        has!(self.send_ipi_to)
    }

    #[inline(always)]
    pub fn send_ipi_to(&self, target: u32) {
        call!(self.send_ipi_to, shootdown_hook_send_ipi_to(target), {});
    }

    #[inline(always)]
    pub fn pin(&self) {
        call!(self.pin, shootdown_hook_pin(), {});
    }

    #[inline(always)]
    pub fn unpin(&self) {
        call!(self.unpin, shootdown_hook_unpin(), {});
    }

    #[inline(always)]
    pub fn now_ns(&self) -> u64 {
        call!(self.now_ns, shootdown_hook_now_ns(), 0)
    }

    #[inline(always)]
    pub fn flush_at_entry(&self, cpu: u32) -> bool {
        call!(self.flush_at_entry, shootdown_hook_flush_at_entry(cpu), false)
    }

    /// Whether secondary TLBs are flushed.
    #[inline(always)]
    pub fn has_secondary(&self) -> bool {
        has!(self.secondary)
    }

    #[inline(always)]
    pub fn secondary(&self, root: u64, range: *const shootdown_range) -> u64 {
        call!(self.secondary, shootdown_hook_secondary(root, range), 0)
    }

    #[inline(always)]
    pub fn secondary_sync(&self, ticket: u64) {
        call!(self.secondary_sync, shootdown_hook_secondary_sync(ticket), {});
    }

    #[inline(always)]
    pub fn unloaded(&self, root: u64) {
        call!(self.unloaded, shootdown_hook_unloaded(root), {});
    }

    /// Whether events are received.
    #[inline(always)]
    pub fn takes_events(&self) -> bool {
        has!(self.event)
    }

    #[inline(always)]
    pub fn event(&self, event: &shootdown_event) {
        call!(self.event, shootdown_hook_event(event), {});
    }

    #[inline(always)]
    pub fn stuck(&self, report: &shootdown_stuck) {
        call!(self.stuck, shootdown_hook_stuck(report), {});
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listed_hooks_are_whole_words_that_are_known() {
        let list = "cpu send_ipi  now_ns";
        assert!(["cpu", "send_ipi", "now_ns"].iter().all(|name| contains(list, name)));
        assert!(
            ["send", "ns", "pin", "send_ipi_to"]
                .iter()
                .all(|name| !contains(list, name))
        );
        assert!(are_known(list) && are_known(&NAMES.join(" ")));
        assert!(!are_known("cpu send_ipi nows"));
    }
}
