//! Real page tables of the crate `x86_64` in memory of this host, with threads of this host as CPUs.

use super::*;
use shootdown::{Machine, PerCpu, Policy, Root, Storage};
use shootdown_host::{Cpu, Threads, Tlb};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use x86_64::structures::paging::{
    FrameAllocator, Mapper, OffsetPageTable, PageTable, PageTableFlags, PhysFrame, Size1GiB, Size2MiB, Size4KiB,
};
use x86_64::{PhysAddr, VirtAddr};

/// Page-table pages in the host's own memory; physical addresses are host addresses.
struct Tables;

// SAFETY: each table is newly allocated.
unsafe impl FrameAllocator<Size4KiB> for Tables {
    fn allocate_frame(&mut self) -> Option<PhysFrame> {
        let table = Box::leak(Box::new(PageTable::new()));
        Some(PhysFrame::containing_address(PhysAddr::new(
            core::ptr::from_mut(table) as u64
        )))
    }
}

fn mapper() -> OffsetPageTable<'static> {
    let root = Box::leak(Box::new(PageTable::new()));
    // SAFETY: an empty table; physical addresses are host addresses.
    unsafe { OffsetPageTable::new(root, VirtAddr::new(0)) }
}

fn map<S: PageSize + core::fmt::Debug>(mapper: &mut impl Mapper<S>, address: u64, frame: u64) -> Page<S> {
    let page = Page::containing_address(VirtAddr::new(address));
    let frame = PhysFrame::containing_address(PhysAddr::new(frame));
    let flags = PageTableFlags::PRESENT | PageTableFlags::WRITABLE;
    // SAFETY: no processor walks these tables.
    let flush = unsafe { mapper.map_to(page, frame, flags, &mut Tables) };
    flush.unwrap().ignore();
    page
}

/// Runs `change` on CPU 0 while CPU 1 holds the translations of `pages` of `space`. Returns what CPU 1 still holds when
/// `change` has returned.
fn after(
    pages: &[u64],
    change: impl FnOnce(&Engine<'_, Threads<Tlb<u64, u64>>, 1>, &Space<shootdown_host::Host, 1>),
) -> Vec<u64> {
    let mut cpus: Vec<_> = (0..2).map(|_| PerCpu::new()).collect();
    let threads = Threads::new(2, |_cpu| Tlb::<u64, u64>::new());
    let storage = Storage {
        cpus: &mut cpus,
        tags: &mut [],
    };
    let engine = Engine::new(threads, Policy::IPI.on(Machine::PCID), Root(0), storage);
    let space = engine.space(Root(1));
    let (filled, done) = (Barrier::new(2), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            let cpu = Cpu::attach(&engine, 1);
            // SAFETY: the space outlives the threads.
            unsafe { engine.switch_to(&space) };
            for &page in pages {
                cpu.mmu().fill(page, page, false);
            }
            filled.wait();
            while !done.load(Ordering::Acquire) {
                cpu.safe_point();
                std::thread::yield_now();
            }
            let held = pages.iter().filter(|page| cpu.mmu().lookup(**page).is_some());
            held.copied().collect::<Vec<u64>>()
        });
        let _cpu = Cpu::attach(&engine, 0);
        // SAFETY: as above.
        unsafe { engine.switch_to(&space) };
        filled.wait();
        change(&engine, &space);
        done.store(true, Ordering::Release);
        other.join().unwrap()
    })
}

#[test]
fn shootdown_drops_only_the_unmapped_page_on_other_cpus() {
    let mut mapper = mapper();
    let page = map::<Size4KiB>(&mut mapper, 0x5000, 0x10_0000);
    let held = after(&[0x5000, 0x6000], |engine, space| {
        let (_frame, flush) = mapper.unmap(page).unwrap();
        let _flushed = flush.shootdown(engine, space);
    });
    assert_eq!(held, [0x6000]);
}

#[test]
fn ignored_mapper_flush_leaves_the_entry() {
    let mut mapper = mapper();
    let page = map::<Size4KiB>(&mut mapper, 0x5000, 0x10_0000);
    let held = after(&[0x5000], |_, _| mapper.unmap(page).unwrap().1.ignore());
    assert_eq!(held, [0x5000]);
}

#[test]
fn upper_level_change_flushes_the_whole_space() {
    let mut mapper = mapper();
    let page = map::<Size4KiB>(&mut mapper, 0x5000, 0x10_0000);
    let held = after(&[0x5000, 0x7F00_0000_0000], |engine, space| {
        // SAFETY: no processor walks these tables.
        let flush = unsafe { mapper.set_flags_p4_entry(page, PageTableFlags::PRESENT) };
        let _flushed = flush.unwrap().shootdown(engine, space);
    });
    assert_eq!(held, []);
}

#[test]
fn upper_half_pages_are_flushed_under_every_tag() {
    let high = 0xFFFF_FFFF_FFFF_F000;
    let mut mapper = mapper();
    let page = map::<Size4KiB>(&mut mapper, high, 0x10_0000);
    let held = after(&[high, 0xFFFF_8000_0000_0000], |engine, _| {
        let (_frame, flush) = mapper.unmap(page).unwrap();
        let _flushed = flush.shootdown_kernel(engine);
    });
    assert_eq!(held, [0xFFFF_8000_0000_0000]);
}

#[test]
fn gather_frees_its_pages_after_one_flush() {
    let mut mapper = mapper();
    let small = map::<Size4KiB>(&mut mapper, 0x5000, 0x10_0000);
    let large = map::<Size2MiB>(&mut mapper, 0x4000_0000, 0x20_0000);
    let mut freed = Vec::new();
    let held = after(&[0x5000, 0x6000, 0x4000_0000], |engine, space| {
        let mut buffer = [0; 8];
        let mut gather = engine.gather(space, &mut buffer, |all: Freed<'_, u64>| freed.push(all.pages.to_vec()));
        let (frame, flush) = mapper.unmap(small).unwrap();
        assert_eq!(flush.gather(&mut gather, frame.start_address().as_u64()), Room::Left);
        let (frame, flush) = mapper.unmap(large).unwrap();
        assert_eq!(flush.gather(&mut gather, frame.start_address().as_u64()), Room::Left);
        gather.finish();
    });
    assert_eq!(held, [0x6000]);
    assert_eq!(freed, [vec![0x10_0000, 0x20_0000]]);
}

#[test]
fn range_has_the_size_of_its_page() {
    fn of<S: PageSize>(address: u64) -> (u64, u64, Stride) {
        let range = range(Page::<S>::containing_address(VirtAddr::new(address)));
        (range.start(), range.strides(), range.stride())
    }
    assert_eq!(of::<Size4KiB>(0x5123), (0x5000, 1, Stride::Size4K));
    assert_eq!(of::<Size2MiB>(0x4012_3000), (0x4000_0000, 1, Stride::Size2M));
    assert_eq!(of::<Size1GiB>(0x4000_0000), (0x4000_0000, 1, Stride::Size1G));
    let top = 0xFFFF_FFFF_FFFF_F000;
    assert_eq!(of::<Size4KiB>(top), (top, 1, Stride::Size4K));
}
