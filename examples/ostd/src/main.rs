//! A kernel on OSTD: two CPUs share a `VmSpace`; one remaps its page while the other reads it.
//!
//! A frame that has been unmapped, and flushed, is free: the first CPU writes `FREED` into it. A reader that still
//! finds that has read a freed frame by a stale translation.
#![no_std]
#![no_main]
#![deny(unsafe_code)]

extern crate alloc;

use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use ostd::mm::{CachePolicy, FrameAllocOptions, PAGE_SIZE, PageFlags, PageProperty, UFrame, VmIo, VmSpace};
use ostd::{early_println, power, smp, task};

const ROUNDS: u64 = 300;
const PAGE: usize = 0x1000_0000;
const LIVE: u64 = 1;
const FREED: u64 = 0xDEAD;

static SPACE: spin::Once<Arc<VmSpace>> = spin::Once::new();
static READS: AtomicU64 = AtomicU64::new(0);
static STALE: AtomicU64 = AtomicU64::new(0);
static END: AtomicBool = AtomicBool::new(false);

#[ostd::global_frame_allocator]
static FRAMES: osdk_frame_allocator::FrameAllocator = osdk_frame_allocator::FrameAllocator;
#[ostd::global_heap_allocator]
static HEAP: osdk_heap_allocator::HeapAllocator = osdk_heap_allocator::HeapAllocator;
#[ostd::global_heap_allocator_slot_map]
const fn slot(layout: core::alloc::Layout) -> Option<ostd::mm::heap::SlotInfo> {
    osdk_heap_allocator::type_from_layout(layout)
}

/// The second CPU: reads the page until the end.
fn read() {
    let space = SPACE.wait();
    space.activate();
    while !END.load(Relaxed) {
        // Fails while the page is between two frames.
        let value = space
            .reader(PAGE, 8)
            .ok()
            .and_then(|mut page| page.read_val::<u64>().ok());
        READS.fetch_add(u64::from(value.is_some()), Relaxed);
        STALE.fetch_add(u64::from(value == Some(FREED)), Relaxed);
    }
}

fn frame() -> UFrame {
    let frame: UFrame = FrameAllocOptions::new().alloc_frame().expect("memory").into();
    frame.write_val(0, &LIVE).expect("in the frame");
    frame
}

/// Replaces the page's frame.
fn remap(space: &VmSpace, frame: UFrame) {
    let guard = task::disable_preempt();
    let mut page = space
        .cursor_mut(&guard, &(PAGE..PAGE + PAGE_SIZE))
        .expect("a user page");
    page.unmap(PAGE_SIZE);
    page.flusher().sync_tlb_flush();
    page.jump(PAGE).expect("in the range");
    page.map(frame, PageProperty::new_user(PageFlags::RW, CachePolicy::Writeback));
}

#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    early_println!("{}", info);
    ostd::panic::abort()
}

#[ostd::main]
fn main() {
    // A read fails then.
    ostd::mm::fault::inject_user_page_fault_handler(|_| Err(()));
    let space = SPACE.call_once(|| Arc::new(VmSpace::new()));
    space.activate();
    let mut old = frame();
    remap(space, old.clone());
    ostd::boot::smp::register_ap_entry(read);
    while READS.load(Relaxed) < 100 {
        core::hint::spin_loop();
    }
    let before = smp::ARRIVED.load(Relaxed);
    smp::window(true);
    for _ in 0..ROUNDS {
        let new = frame();
        remap(space, new.clone());
        old.write_val(0, &FREED).expect("in the frame");
        let reads = READS.load(Relaxed);
        while READS.load(Relaxed) < reads + 10 {
            core::hint::spin_loop();
        }
        old = new;
    }
    smp::window(false);
    let interrupts = smp::ARRIVED.load(Relaxed) - before;
    END.store(true, Relaxed);
    early_println!(
        "remaps {} interrupts {} reads {} stale {}",
        ROUNDS,
        interrupts,
        READS.load(Relaxed),
        STALE.load(Relaxed)
    );
    power::poweroff(power::ExitCode::Success);
}
