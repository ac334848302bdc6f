//! The engine with one function for each of its calls, and nothing else. Its hooks are external functions, its barriers
//! one instruction each. `cargo xtask size` measures the object; nothing here is ever run.
#![no_std]
// The hooks have no implementation.
#![expect(improper_ctypes)]

mod facade;
#[cfg(feature = "stack")]
mod stack;

use core::mem::MaybeUninit;
use facade::Bare;
use shootdown::*;

#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    loop {}
}

unsafe extern "C" {
    fn kernel_cpu() -> usize;
    fn kernel_interrupts_off() -> u64;
    fn kernel_interrupts_restore(saved: u64);
    fn kernel_interrupts_are_off() -> bool;
    fn kernel_send_ipi(targets: *const CpuMask<WORDS>);
    fn kernel_invalidate_page(address: u64, tag: u16, leaf_only: bool);
    fn kernel_invalidate_tag(tag: u16);
    fn kernel_invalidate_kernel(address: u64);
    fn kernel_invalidate_all();
    fn kernel_load_root(root: u64, tag: u16, keep: bool);
    fn kernel_broadcast(what: *const Broadcast);
    fn kernel_broadcast_sync();
    fn kernel_pages() -> u32;
    fn kernel_pin();
    fn kernel_unpin();
    fn kernel_now() -> u64;
    fn kernel_stuck(report: *const Stuck);
}

/// 64-bit words of a CPU set: the environment variable `SHOOTDOWN_CPU_WORDS` when this is built, 1 without it.
const WORDS: usize = match option_env!("SHOOTDOWN_CPU_WORDS") {
    None => 1,
    Some(words) => match usize::from_str_radix(words, 10) {
        Ok(words) => words,
        Err(_) => panic!("SHOOTDOWN_CPU_WORDS is a number"),
    },
};

/// The hooks of a kernel that is compiled for the policy of that index in [`POLICIES`].
struct Hooks<const P: usize>;

#[cfg(feature = "stack")]
use stack::POLICIES;
#[cfg(not(feature = "stack"))]
const POLICIES: [Option<Policy>; 1] = [
    #[cfg(feature = "adaptive")]
    Some(Policy::ADAPTIVE),
    #[cfg(not(feature = "adaptive"))]
    Some(Policy::IPI),
];

// SAFETY: never run.
unsafe impl<const P: usize> Kernel<WORDS> for Hooks<P> {
    const PREEMPTIBLE: bool = true;
    const POLICY: Option<Policy> = POLICIES[P];

    type Facade = Bare;

    fn cpu(&self) -> CpuId {
        unsafe { kernel_cpu() }
    }
    fn interrupts_off(&self) -> u64 {
        unsafe { kernel_interrupts_off() }
    }
    fn interrupts_restore(&self, saved: u64) {
        unsafe { kernel_interrupts_restore(saved) }
    }
    fn interrupts_are_off(&self) -> bool {
        unsafe { kernel_interrupts_are_off() }
    }
    fn send_ipi(&self, targets: &CpuMask<WORDS>) {
        unsafe { kernel_send_ipi(targets) }
    }
    #[inline(always)]
    fn invalidate(&self, what: Local) {
        match what {
            Local::Page {
                address,
                tag,
                leaf_only,
                ..
            } => unsafe { kernel_invalidate_page(address, tag.0, leaf_only) },
            Local::Tag(tag) => unsafe { kernel_invalidate_tag(tag.0) },
            Local::Kernel { address, .. } => unsafe { kernel_invalidate_kernel(address) },
            Local::All => unsafe { kernel_invalidate_all() },
        }
    }
    fn load_root(&self, root: Root, tag: Tag, keep: bool) {
        unsafe { kernel_load_root(root.0, tag.0, keep) }
    }
    fn broadcast_limits(&self) -> Option<BroadcastLimits> {
        let max_pages = unsafe { kernel_pages() };
        (max_pages != 0).then_some(BroadcastLimits {
            max_pages,
            max_large_pages: max_pages,
        })
    }
    fn broadcast(&self, what: Broadcast) {
        unsafe { kernel_broadcast(&what) }
    }
    fn broadcast_sync(&self) {
        unsafe { kernel_broadcast_sync() }
    }
    fn pin(&self) {
        unsafe { kernel_pin() }
    }
    fn unpin(&self) {
        unsafe { kernel_unpin() }
    }
    fn now_ns(&self) -> u64 {
        unsafe { kernel_now() }
    }
    fn stuck(&self, report: Stuck) {
        unsafe { kernel_stuck(&report) }
    }
}

type Mm = Space<Bare, WORDS>;

#[cfg(not(feature = "stack"))]
mod calls;
