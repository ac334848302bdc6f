//! The loader's information: QEMU's, through PVH, or a boot loader's, through multiboot2.

use super::screen::{Kind, Screen};
use crate::memory::{self, DIRECT_MAP};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::alloc::Layout;
use multiboot2::{BootInformation, FramebufferType, MemoryAreaType};
use pvh::start_info::MemmapType;
use pvh::start_info::reader::{MemMap, StartInfoReader};

/// The parts that are used. None of them is in memory that is allocated.
pub struct BootInfo {
    /// The command line.
    pub line: &'static str,
    /// End of the memory into which the kernel was loaded; the kernel's own data are all above its image there.
    pub memory_end: u64,
    /// Address of the firmware's tables (ACPI's RSDP), or 0. Read it before memory is allocated.
    pub root_pointer: u64,
    /// The framebuffer, if any.
    pub screen: Option<Screen>,
}

/// End of the stretch of memory above the kernel's image; firmware may split it into many pieces.
fn end_of_memory(pieces: impl Iterator<Item = (u64, u64)>) -> u64 {
    let mut pieces: Vec<(u64, u64)> = pieces.collect();
    pieces.sort_unstable();
    let image = memory::image_end();
    let mut end = image;
    for (from, to) in pieces {
        if from <= end && end < to {
            end = to;
        }
    }
    assert!(end > image, "the memory map covers the kernel");
    end.min(memory::DIRECT_BYTES)
}

/// The information of a multiboot2 loader at that physical address.
pub fn multiboot(address: u32) -> BootInfo {
    // SAFETY: the loader passes the address of a valid structure, which is never written.
    let boot_info =
        unsafe { BootInformation::load(memory::direct(u64::from(address))) }.expect("the loader says where it is");
    let line = boot_info
        .command_line_tag()
        .and_then(|tag| tag.cmdline().ok())
        .unwrap_or("");
    let areas = boot_info
        .memory_map_tag()
        .expect("the loader says what memory there is")
        .memory_areas();
    let ram = areas.iter().filter(|area| area.typ() == MemoryAreaType::Available);
    // The tag holds a copy of the table after its own 8 bytes.
    let copy = |tag: *const u8| tag as u64 + 8 - DIRECT_MAP;
    let new = boot_info.rsdp_v2_tag().map(|tag| copy(core::ptr::from_ref(tag).cast()));
    let old = boot_info.rsdp_v1_tag().map(|tag| copy(core::ptr::from_ref(tag).cast()));
    let screen = boot_info.framebuffer_tag().and_then(Result::ok).and_then(|tag| {
        let kind = match tag.buffer_type().ok()? {
            FramebufferType::Text => Kind::Characters,
            FramebufferType::RGB { .. } if tag.bpp() == 32 => Kind::Pixels,
            _ => return None,
        };
        let end = tag.address() + u64::from(tag.pitch()) * u64::from(tag.height());
        (end <= memory::DIRECT_BYTES).then(|| Screen {
            kind,
            address: tag.address(),
            pitch: tag.pitch() as usize,
            width: tag.width() as usize,
            height: tag.height() as usize,
        })
    });
    BootInfo {
        line: Box::leak(String::from(line).into_boxed_str()),
        memory_end: end_of_memory(ram.map(|area| (area.start_address(), area.end_address()))),
        root_pointer: new.or(old).unwrap_or(0),
        screen,
    }
}

struct DirectMap;

impl MemMap for DirectMap {
    fn ptr(&self, address: usize, layout: Layout) -> *const u8 {
        if address as u64 + layout.size() as u64 > memory::DIRECT_BYTES {
            return core::ptr::null();
        }
        memory::direct(address as u64)
    }
}

/// The information of a PVH loader at that physical address.
pub fn pvh(address: u32) -> BootInfo {
    // SAFETY: the loader passes the address of a valid structure, which is never written.
    let reader = unsafe { StartInfoReader::from_paddr(address, DirectMap) }.expect("the loader says where it is");
    if let Some(module) = reader.modlist().next() {
        // A copy: its memory will be allocated.
        crate::linux::archive::keep(module.as_slice().to_vec().leak());
    }
    let line = reader.cmdline().map_or("", |line| line.to_str().unwrap_or(""));
    let areas = reader.memmap().iter();
    let ram = areas.filter(|entry| entry.ty == u32::from(MemmapType::Ram));
    BootInfo {
        line: Box::leak(String::from(line).into_boxed_str()),
        memory_end: end_of_memory(ram.map(|entry| (entry.addr, entry.addr + entry.size))),
        root_pointer: reader.raw().rsdp_paddr,
        screen: None,
    }
}
