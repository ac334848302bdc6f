//! Loading a program: its segments, its stack, and its initial arguments.

use super::memory::Addresses;
use super::user;
use crate::arch::user::ELF_MACHINE;
use crate::memory::{PAGE, USER_BITS, USER_END};
use crate::region::{Access, Region};
use crate::space::AddressSpace;
use alloc::string::String;
use alloc::vec::Vec;
use elf::ElfBytes;
use elf::abi::{ET_DYN, ET_EXEC, PF_W, PF_X, PT_INTERP, PT_LOAD};
use elf::endian::LittleEndian;

/// Load address of a position-independent program.
const ANYWHERE: u64 = ((1 << USER_BITS) / 3 * 2 - PAGE) & !(PAGE - 1);
/// Bytes of the first thread's stack.
const STACK: u64 = 8 << 20;
/// One past its last byte.
const STACK_END: u64 = (1 << USER_BITS) - 0x1_0000;

/// The data in front of the program's arguments (System V ABI, "auxiliary vector").
const AT_PHDR: u64 = 3;
const AT_PHENT: u64 = 4;
const AT_PHNUM: u64 = 5;
const AT_PAGESZ: u64 = 6;
const AT_ENTRY: u64 = 9;
const AT_SECURE: u64 = 23;
const AT_RANDOM: u64 = 25;

/// A loaded program.
pub struct Loaded {
    /// Its entry point.
    pub entry: u64,
    /// Its initial stack pointer.
    pub stack: u64,
    /// Its used addresses.
    pub addresses: Addresses,
}

/// Loads a program into `space`, which is empty and loaded on this CPU.
///
/// # Errors
/// The missing feature of this kernel, or the error in the file.
pub fn load(space: &AddressSpace, program: &[u8], arguments: &[&str]) -> Result<Loaded, String> {
    let bad = |why: &str| String::from(why);
    let elf = ElfBytes::<LittleEndian>::minimal_parse(program).map_err(|_| bad("not an ELF file"))?;
    let header = elf.ehdr;
    if header.class != elf::file::Class::ELF64 || header.e_machine != ELF_MACHINE {
        return Err(bad("not a program for this processor"));
    }
    let base: u64 = match header.e_type {
        ET_EXEC => 0,
        ET_DYN => ANYWHERE,
        _ => return Err(bad("an ELF file, but not a program")),
    };
    // IRET to a non-canonical address would fault in the kernel.
    let entry = base.checked_add(header.e_entry).filter(|&entry| entry < USER_END);
    let entry = entry.ok_or_else(|| bad("begins outside user addresses"))?;
    let segments = elf.segments().ok_or_else(|| bad("no segments"))?;
    if segments.iter().any(|segment| segment.p_type == PT_INTERP) {
        return Err(bad("needs dynamic linking (PT_INTERP): link it with -static"));
    }
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    let mut table = 0;
    for segment in segments.iter().filter(|segment| segment.p_type == PT_LOAD) {
        let content = elf
            .segment_data(&segment)
            .map_err(|_| bad("a segment lies outside the file"))?;
        let first = base.checked_add(segment.p_vaddr);
        let last = first
            .and_then(|first| first.checked_add(segment.p_memsz))
            .filter(|&last| last <= STACK_END - STACK);
        let (Some(first), Some(last)) = (first, last) else {
            return Err(bad("a segment lies outside user addresses"));
        };
        if (content.len() as u64) > segment.p_memsz {
            return Err(bad("a segment is smaller in memory than in the file"));
        }
        let (start, end) = (first & !(PAGE - 1), last.next_multiple_of(PAGE));
        if ranges.iter().any(|&(s, e)| s < end && start < e) {
            return Err(bad("two segments share a page"));
        }
        ranges.push((start, end));
        // Writable until it is written.
        space.map(start, end, true);
        user::write(first, content).map_err(|_| bad("no memory"))?;
        let access = Access {
            write: segment.p_flags & PF_W != 0,
            execute: segment.p_flags & PF_X != 0,
        };
        space.set_access(start, end, access);
        if (segment.p_offset..segment.p_offset + segment.p_filesz).contains(&header.e_phoff) {
            table = first + (header.e_phoff - segment.p_offset);
        }
    }
    let heap = ranges
        .iter()
        .map(|&(_, end)| end)
        .max()
        .ok_or_else(|| bad("no segments to load"))?;
    let mut addresses = Addresses::new(heap);
    for (start, end) in ranges {
        addresses.take(start, end);
    }
    space.map_region(Region {
        start: STACK_END - STACK,
        end: STACK_END,
        access: Access::data(true),
        backing: None,
    });
    let auxiliary = [
        (AT_PHDR, table),
        (AT_PHENT, u64::from(header.e_phentsize)),
        (AT_PHNUM, u64::from(header.e_phnum)),
        (AT_PAGESZ, PAGE),
        (AT_ENTRY, entry),
        (AT_SECURE, 0),
    ];
    let stack = fill_stack(arguments, &auxiliary).map_err(|_| bad("no memory for the stack"))?;
    Ok(Loaded {
        entry,
        stack,
        addresses,
    })
}

/// Writes arguments, an empty environment and the auxiliary vector; the stack pointer.
fn fill_stack(arguments: &[&str], auxiliary: &[(u64, u64)]) -> Result<u64, super::errno::Errno> {
    let mut top = STACK_END - 16;
    // Not random, so that runs are repeatable.
    user::write(top, b"sixteen bytes...")?;
    let random = top;
    let mut words: Vec<u64> = alloc::vec![arguments.len() as u64];
    for argument in arguments {
        top -= argument.len() as u64 + 1;
        user::write(top, argument.as_bytes())?;
        user::write(top + argument.len() as u64, &[0])?;
        words.push(top);
    }
    words.extend([0, 0]);
    words.extend(auxiliary.iter().flat_map(|&(kind, value)| [kind, value]));
    words.extend([AT_RANDOM, random, 0, 0]);
    let stack = (top - words.len() as u64 * 8) & !15;
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    user::write(stack, &bytes)?;
    Ok(stack)
}

const _: () = assert!(STACK_END <= USER_END);
