//! Kernel stacks: switching between them, and the first content of one. `arch/*/user.rs` has the instructions.

use crate::arch::traps::Frame;
use crate::arch::user::{RETURN, SAVED};

unsafe extern "C" {
    fn linux_switch(old: *mut u64, new: u64);
    fn trap_return();
}

/// Switches to the stack `new`, and stores the present one in `old`.
///
/// # Safety
/// `new` was left by this function or made by [`first`] or [`begin`], and no other CPU continues on it. Interrupts are
/// off.
pub unsafe fn switch(old: *mut u64, new: u64) {
    // SAFETY: the caller's promise.
    unsafe { linux_switch(old, new) };
}

/// Prepares the kernel stack that ends at `top` so that a switch to it enters user code with `frame`.
pub fn first(top: u64, frame: Frame) -> u64 {
    let place = top - size_of::<Frame>() as u64;
    // SAFETY: an unused stack, larger than this by far, and aligned.
    unsafe { (place as *mut Frame).write(frame) };
    returning_to(place, trap_return as *const () as u64)
}

/// Prepares the kernel stack that ends at `top` so that a switch to it calls `function`.
pub fn begin(top: u64, function: extern "C" fn() -> !) -> u64 {
    returning_to(top, function as *const () as u64)
}

fn returning_to(top: u64, address: u64) -> u64 {
    let words = top - size_of::<[u64; SAVED]>() as u64;
    let mut saved = [0_u64; SAVED];
    saved[RETURN] = address;
    // SAFETY: an unused stack, larger than this by far, and aligned.
    unsafe { (words as *mut [u64; SAVED]).write(saved) };
    words
}
