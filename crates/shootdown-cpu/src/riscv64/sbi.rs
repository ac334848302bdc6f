//! Calls of the firmware.

/// Error number of the SBI specification, below 0, for a call that the firmware did not carry out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Error(pub i64);

/// Calls function `function` of `extension` with these arguments; returns the value.
///
/// # Errors
/// The firmware's error. Then nothing has been done.
///
/// # Safety
/// As for the function called: harts start at code intended for them, and the firmware may use the memory that is
/// named.
#[inline]
pub unsafe fn call(extension: u64, function: u64, arguments: [u64; 5]) -> Result<u64, Error> {
    let (error, value) = ecall(extension, function, arguments);
    if error == 0 {
        Ok(value)
    } else {
        Err(Error(error as i64))
    }
}

/// Whether the firmware has an extension (base extension, function 3).
pub(super) fn has(extension: u64) -> bool {
    // SAFETY: a query without side effects.
    unsafe { call(0x10, 3, [extension, 0, 0, 0, 0]) }.is_ok_and(|answer| answer != 0)
}

#[inline]
#[cfg(all(target_arch = "riscv64", target_os = "none"))]
fn ecall(extension: u64, function: u64, [a0, a1, a2, a3, a4]: [u64; 5]) -> (u64, u64) {
    let (error, value);
    // SAFETY: the caller's promise. All registers but these two are preserved (SBI specification, "Binary Encoding").
    unsafe {
        core::arch::asm!(
            "ecall",
            inlateout("a0") a0 => error,
            inlateout("a1") a1 => value,
            in("a2") a2,
            in("a3") a3,
            in("a4") a4,
            in("a6") function,
            in("a7") extension,
            options(nostack)
        );
    }
    (error, value)
}

#[cfg(all(not(all(target_arch = "riscv64", target_os = "none")), not(test)))]
fn ecall(_extension: u64, _function: u64, _arguments: [u64; 5]) -> (u64, u64) {
    crate::instructions::on_host::run("ecall");
    (0, 0)
}

/// In tests: recorded, and the answer comes from registers named "error" and "value".
#[cfg(all(not(all(target_arch = "riscv64", target_os = "none")), test))]
fn ecall(extension: u64, function: u64, arguments: [u64; 5]) -> (u64, u64) {
    use crate::instructions::on_host::{read, run};
    run(&format!("ecall {extension:#x} {function} {arguments:x?}"));
    (read("error"), read("value"))
}
