//! The used user addresses, and the calls that change mappings.

use super::errno::{EBADF, EINVAL, ENOMEM, Errno};
use super::process::Process;
use crate::backing::{Backing, Memory};
use crate::memory::{PAGE, USER_END};
use crate::region::{Access, Region};
use alloc::collections::BTreeMap;

/// Start of the area for mappings without a fixed address: far above programs, far below the stack.
const FIRST: u64 = 0x0010_0000_0000;
/// One past its end.
const LAST: u64 = 0x7000_0000_0000;

const PROT_READ: u64 = 1;
const PROT_WRITE: u64 = 2;
const PROT_EXEC: u64 = 4;
const MAP_SHARED: u64 = 1;
const MAP_PRIVATE: u64 = 2;
const MAP_FIXED: u64 = 0x10;
const MAP_ANONYMOUS: u64 = 0x20;

const MADV_DONTNEED: u64 = 4;
/// Advice about large pages, which this kernel does not have.
const MADV_HUGEPAGE: u64 = 14;
const MADV_NOHUGEPAGE: u64 = 15;

/// Used address ranges, and the end of the heap.
#[derive(Clone)]
pub struct Addresses {
    /// End of each, by its start. They share no page, but may be adjacent.
    taken: BTreeMap<u64, u64>,
    heap: u64,
    heap_end: u64,
}

impl Addresses {
    /// Empty; the heap will begin at `heap`.
    pub fn new(heap: u64) -> Addresses {
        Addresses {
            taken: BTreeMap::new(),
            heap,
            heap_end: heap,
        }
    }

    /// Takes `start..end`, which is free.
    pub fn take(&mut self, start: u64, end: u64) {
        self.taken.insert(start, end);
    }

    /// Frees the used parts of `start..end`.
    fn give(&mut self, start: u64, end: u64) {
        let touched = self
            .taken
            .range(..end)
            .rev()
            .take_while(|&(_, &its_end)| its_end > start);
        for (its_start, its_end) in touched.map(|(&s, &e)| (s, e)).collect::<alloc::vec::Vec<_>>() {
            self.taken.remove(&its_start);
            if its_start < start {
                self.taken.insert(its_start, start);
            }
            if its_end > end {
                self.taken.insert(end, its_end);
            }
        }
    }

    /// The lowest free stretch of that length.
    fn find(&self, length: u64) -> Option<u64> {
        let mut start = FIRST;
        for (&taken, &end) in self.taken.range(FIRST..LAST) {
            if taken - start >= length {
                break;
            }
            start = end;
        }
        (start + length <= LAST).then_some(start)
    }
}

/// `address..address + length`, in whole pages.
fn pages(address: u64, length: u64) -> Result<(u64, u64), Errno> {
    let end = address
        .checked_add(length)
        .and_then(|end| end.checked_next_multiple_of(PAGE));
    match end {
        Some(end) if address.is_multiple_of(PAGE) && end <= USER_END => Ok((address, end)),
        _ => Err(EINVAL),
    }
}

fn access(protection: u64) -> Result<Option<Access>, Errno> {
    match protection {
        0 => Ok(None),
        _ if protection & !(PROT_READ | PROT_WRITE | PROT_EXEC) != 0 => Err(EINVAL),
        _ => Ok(Some(Access {
            write: protection & PROT_WRITE != 0,
            execute: protection & PROT_EXEC != 0,
        })),
    }
}

/// mmap: its address.
///
/// # Errors
/// EINVAL, EBADF, ENOMEM.
pub fn map(process: &Process, [address, length, protection, flags, fd, offset]: [u64; 6]) -> Result<u64, Errno> {
    let access = access(protection)?;
    if length == 0 || !offset.is_multiple_of(PAGE) {
        return Err(EINVAL);
    }
    let shared = match flags & (MAP_SHARED | MAP_PRIVATE) {
        MAP_SHARED => true,
        MAP_PRIVATE => false,
        _ => return Err(EINVAL),
    };
    let memory = match (flags & MAP_ANONYMOUS != 0, shared) {
        (true, false) => None,
        (true, true) => {
            // Memory shared with children is a file without a name.
            let memory = Memory::new();
            memory.grow(length);
            Some(memory)
        }
        (false, _) => Some(process.files.lock().memory(fd).ok_or(EBADF)?),
    };
    let mut addresses = process.addresses.write();
    let (start, end) = if flags & MAP_FIXED != 0 {
        let (start, end) = pages(address, length)?;
        process.space().unmap(start, end);
        addresses.give(start, end);
        (start, end)
    } else {
        let (_, length) = pages(0, length)?;
        let start = addresses.find(length).ok_or(ENOMEM)?;
        (start, start + length)
    };
    addresses.take(start, end);
    if let Some(access) = access {
        let region = Region {
            start,
            end,
            access,
            backing: memory.map(|memory| Backing::new(memory, start, offset, shared)),
        };
        process.space().map_region(region);
    }
    Ok(start)
}

/// munmap.
///
/// # Errors
/// EINVAL.
pub fn unmap(process: &Process, address: u64, length: u64) -> Result<u64, Errno> {
    let (start, end) = pages(address, length)?;
    if start == end {
        return Err(EINVAL);
    }
    let mut addresses = process.addresses.write();
    process.space().unmap(start, end);
    addresses.give(start, end);
    Ok(0)
}

/// mprotect.
///
/// # Errors
/// EINVAL; also for removing every right from present pages, which this kernel cannot do.
pub fn protect(process: &Process, address: u64, length: u64, protection: u64) -> Result<u64, Errno> {
    let (start, end) = pages(address, length)?;
    let _addresses = process.addresses.write();
    match access(protection)? {
        Some(access) => process.space().set_access(start, end, access),
        None if process.space().is_untouched(start, end) => process.space().unmap(start, end),
        None => return Err(EINVAL),
    }
    Ok(0)
}

/// madvise.
///
/// # Errors
/// EINVAL for advice that is not known.
pub fn advise(process: &Process, address: u64, length: u64, advice: u64) -> Result<u64, Errno> {
    let (start, end) = pages(address, length)?;
    match advice {
        MADV_DONTNEED => process.space().drop_pages(start, end),
        MADV_HUGEPAGE | MADV_NOHUGEPAGE => {}
        _ => return Err(EINVAL),
    }
    Ok(0)
}

/// brk: returns the end of the heap.
pub fn set_heap_end(process: &Process, requested: u64) -> u64 {
    let mut addresses = process.addresses.write();
    let (old, new) = (
        addresses.heap_end.next_multiple_of(PAGE),
        requested.checked_next_multiple_of(PAGE).unwrap_or(u64::MAX),
    );
    if requested < addresses.heap || new > FIRST {
        return addresses.heap_end;
    }
    if new > old {
        let access = Access {
            write: true,
            execute: false,
        };
        process.space().map_region(Region {
            start: old,
            end: new,
            access,
            backing: None,
        });
    } else if new < old {
        process.space().unmap(new, old);
    }
    addresses.heap_end = requested;
    requested
}
