//! Accesses that may fault: the result says whether they did. `arch/*/probe.rs` has the instructions.

use crate::arch::probe::accesses;
use crate::arch::traps::Frame;

#[repr(C)]
struct Outcome {
    value: u64,
    failed: u64,
}

unsafe extern "C" {
    fn probe_read(address: u64) -> Outcome;
    fn probe_write(address: u64, value: u64) -> Outcome;
    fn probe_read_half(address: u64) -> Outcome;
    fn probe_copy(to: u64, from: u64, count: u64) -> Outcome;
    static probe_failed: u8;
}

/// Reads a word at a user address; `None` when that faults.
#[inline]
pub fn read(address: u64) -> Option<u64> {
    debug_assert!(address < crate::memory::USER_END);
    // SAFETY: a read of user memory, which contains no Rust object; `recover` catches a fault.
    let outcome = unsafe { probe_read(address) };
    (outcome.failed == 0).then_some(outcome.value)
}

/// Reads a word of the dynamic kernel mappings; `None` when that faults.
#[inline]
pub fn read_dynamic(address: u64) -> Option<u64> {
    debug_assert!((crate::memory::DYNAMIC..crate::memory::KERNEL_BASE).contains(&address));
    // SAFETY: no Rust object is there; `recover` catches a fault.
    let outcome = unsafe { probe_read(address) };
    (outcome.failed == 0).then_some(outcome.value)
}

/// Writes a word at a user address; false when that faults.
///
/// # Safety
/// The memory behind the address may be written by any code.
#[inline]
pub unsafe fn write(address: u64, value: u64) -> bool {
    debug_assert!(address < crate::memory::USER_END);
    // SAFETY: the caller's promise; `recover` catches a fault.
    unsafe { probe_write(address, value) }.failed == 0
}

/// Reads four bytes at a user address, in one access; `None` when that faults.
#[inline]
pub fn read_half(address: u64) -> Option<u32> {
    debug_assert!(address < crate::memory::USER_END);
    // SAFETY: as in `read`.
    let outcome = unsafe { probe_read_half(address) };
    (outcome.failed == 0).then_some(outcome.value as u32)
}

/// The same without handling a page fault, for callers that must not sleep: `None` also when the page is absent.
#[inline]
pub fn read_half_if_there(address: u64) -> Option<u32> {
    let faults_fail = &crate::cpu::cpu().faults_fail;
    faults_fail.set(true);
    let value = read_half(address);
    faults_fail.set(false);
    value
}

/// Copies bytes from or to user memory; false when that faults, possibly after a part was copied.
///
/// # Safety
/// Memory that is not user memory is valid, for reading or for writing; user memory may be accessed by any code.
pub unsafe fn copy(to: u64, from: u64, count: usize) -> bool {
    // SAFETY: the caller's promise; `recover` catches a fault.
    unsafe { probe_copy(to, from, count as u64) }.failed == 0
}

/// Continues after a failed access; false when the fault was not in one.
pub fn recover(frame: &mut Frame) -> bool {
    if !accesses().contains(frame.pc_mut()) {
        return false;
    }
    *frame.pc_mut() = &raw const probe_failed as u64;
    true
}
