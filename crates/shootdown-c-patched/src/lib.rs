//! The library for C around `shootdown-patched`: every known bug is in it, and C selects one. Built from
//! `crates/shootdown-c/src`.
#![cfg_attr(not(feature = "std"), no_std)]
#![allow(warnings, clippy::all)]

include!(concat!(env!("OUT_DIR"), "/src/lib.rs"));

/// Selects the bug whose name is these bytes, for all CPUs. False if none has that name. Any context.
///
/// # Safety
/// `name` points to `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_select_bug(name: *const u8, length: usize) -> bool {
    // SAFETY: the caller's.
    let name = unsafe { core::slice::from_raw_parts(name, length) };
    let bug = core::str::from_utf8(name).ok().and_then(shootdown_known_bugs::named);
    shootdown_known_bugs::select_everywhere(bug);
    bug.is_some()
}
