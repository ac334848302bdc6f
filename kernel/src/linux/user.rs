//! User memory in system calls: every access may fail, and then the call fails.

use super::errno::{EFAULT, Errno};
use super::inside;
use crate::memory::USER_END;
use crate::probe;
use alloc::vec::Vec;

/// Whether they are user addresses; from here on this CPU touches user memory.
fn check(address: u64, length: usize) -> Result<(), Errno> {
    match address.checked_add(length as u64) {
        Some(end) if end <= USER_END => {
            inside::end();
            Ok(())
        }
        _ => Err(EFAULT),
    }
}

/// Copies out of user memory.
///
/// # Errors
/// EFAULT when part of it cannot be read.
pub fn read(address: u64, to: &mut [u8]) -> Result<(), Errno> {
    check(address, to.len())?;
    // SAFETY: user memory is read, our own slice written.
    let done = unsafe { probe::copy(to.as_mut_ptr() as u64, address, to.len()) };
    if done { Ok(()) } else { Err(EFAULT) }
}

/// Copies into user memory.
///
/// # Errors
/// EFAULT when part of it cannot be written.
pub fn write(address: u64, from: &[u8]) -> Result<(), Errno> {
    check(address, from.len())?;
    // SAFETY: our own slice is read, user memory written, which contains no Rust object.
    let done = unsafe { probe::copy(address, from.as_ptr() as u64, from.len()) };
    if done { Ok(()) } else { Err(EFAULT) }
}

/// That many bytes of user memory.
///
/// # Errors
/// EFAULT when part of them cannot be read.
pub fn bytes(address: u64, length: usize) -> Result<Vec<u8>, Errno> {
    check(address, length)?;
    let mut bytes = alloc::vec![0; length];
    read(address, &mut bytes)?;
    Ok(bytes)
}

/// A string that ends with 0, of at most 255 bytes.
///
/// # Errors
/// EFAULT when it cannot be read, or is longer.
pub fn string(address: u64) -> Result<Vec<u8>, Errno> {
    let mut string = Vec::new();
    for index in 0..255 {
        let mut byte = [0];
        read(address + index, &mut byte)?;
        if byte[0] == 0 {
            return Ok(string);
        }
        string.push(byte[0]);
    }
    Err(EFAULT)
}

/// A word of 8 bytes.
///
/// # Errors
/// EFAULT when it cannot be read.
pub fn word(address: u64) -> Result<u64, Errno> {
    let mut word = [0; 8];
    read(address, &mut word)?;
    Ok(u64::from_le_bytes(word))
}

/// A word of 4 bytes, read in one access.
///
/// # Errors
/// EFAULT when it cannot be read.
pub fn half(address: u64) -> Result<u32, Errno> {
    check(address, 4)?;
    probe::read_half(address).ok_or(EFAULT)
}

/// The same, if the page is present: for callers that hold a spin lock.
pub fn half_if_there(address: u64) -> Option<u32> {
    check(address, 4).ok()?;
    probe::read_half_if_there(address)
}
