//! The list of CPUs: the ACPI table (MADT) in which the firmware lists interrupt controllers.

use crate::cpu::MOST_CPUS;
use crate::memory::{DIRECT_BYTES, direct};
use alloc::vec::Vec;

/// Interrupt-controller numbers of all usable CPUs, the running one first. Only that one when there is no table.
pub fn cpus(root_pointer: u64, running: u32) -> Vec<u32> {
    let mut found = alloc::vec![running];
    if let Some(table) = find_madt(root_pointer) {
        let mut rest = &table[44..];
        while let [kind, length, ..] = *rest
            && usize::from(length) <= rest.len()
            && length >= 2
        {
            let entry = &rest[..usize::from(length)];
            // Enabled. A CPU that is only "online capable" may be plugged in later.
            let usable = |flags: u32| flags & 1 != 0;
            let id = match kind {
                0 if entry.len() >= 8 && usable(word(entry, 4)) => Some(u32::from(entry[3])),
                9 if entry.len() >= 16 && usable(word(entry, 8)) => Some(word(entry, 4)),
                _ => None,
            };
            found.extend(id.filter(|&id| id != running));
            rest = &rest[usize::from(length)..];
        }
    }
    found.truncate(MOST_CPUS);
    found
}

fn word(bytes: &[u8], offset: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[offset..offset + 4]);
    u32::from_le_bytes(word)
}

fn find_madt(root_pointer: u64) -> Option<&'static [u8]> {
    let pointer = bytes(root_pointer, 36)?;
    if !pointer.starts_with(b"RSD PTR ") {
        return None;
    }
    let extended = pointer[15] >= 2;
    let wide = u64::from(word(pointer, 24)) | u64::from(word(pointer, 28)) << 32;
    let (list, size) = if extended && wide != 0 {
        (wide, 8)
    } else {
        (u64::from(word(pointer, 16)), 4)
    };
    let list = table(list)?;
    list.get(36..)?.chunks_exact(size).find_map(|entry| {
        let low = u64::from(word(entry, 0));
        let address = if size == 8 {
            low | u64::from(word(entry, 4)) << 32
        } else {
            low
        };
        table(address).filter(|table| table.starts_with(b"APIC") && table.len() >= 44)
    })
}

/// A table, with the length from its header.
fn table(address: u64) -> Option<&'static [u8]> {
    let length = word(bytes(address, 36)?, 4);
    bytes(address, u64::from(length)).filter(|table| table.len() >= 36)
}

fn bytes(address: u64, length: u64) -> Option<&'static [u8]> {
    if address == 0 || address.checked_add(length)? > DIRECT_BYTES {
        return None;
    }
    // SAFETY: within the direct map, in memory of the firmware, which is never written.
    Some(unsafe { core::slice::from_raw_parts(direct(address), length as usize) })
}
