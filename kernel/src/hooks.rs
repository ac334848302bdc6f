//! What this kernel implements for the engine: the whole of it. Copy this file to begin an integration of your own.
//!
//! Required are the first six functions. Everything else is optional: broadcast where the processor has it (or its
//! emulation stands in), a clock, pins, counting, and the switches of known bugs.

use crate::arch::{self, apic, invalidate, traps};
use crate::facade::Bare;
use crate::{measure, serial};
use shootdown::{Broadcast, BroadcastLimits, CpuId, CpuMask, Event, Kernel, Local, Policy, Root, Stride, Stuck, Tag};
use shootdown_arch::x86_64::invlpgb::{self, Invlpgb, InvlpgbLimits};
use shootdown_arch::x86_64::{AddressWidth, Pcid};
use x86_64::instructions::interrupts;

/// Words of a CPU set: 64 CPUs.
pub const WORDS: usize = 1;

/// The hooks.
pub struct Hooks {
    /// Pages that one broadcast may name; `None` where nothing broadcasts.
    pub broadcast: Option<InvlpgbLimits>,
    /// Broadcasts are emulated by interrupts.
    pub emulated: bool,
    /// A CPU that does not answer is a violation (C5): where instructions are counted, no host can have kept it from
    /// running.
    pub silence_is_violation: bool,
}

// SAFETY: CPU numbers are fixed at start, interrupts are masked by `cli`, a pinned section is not left, and each
// instruction is the one that is asked for.
unsafe impl Kernel<WORDS> for Hooks {
    const POLICY: Option<Policy> = if cfg!(feature = "ipi-only") {
        Some(Policy::IPI)
    } else if cfg!(feature = "adaptive-only") {
        Some(Policy::ADAPTIVE)
    } else {
        None
    };

    type Facade = Bare;

    #[inline]
    fn cpu(&self) -> CpuId {
        arch::cpu().id
    }

    #[inline]
    fn interrupts_off(&self) -> u64 {
        let were_on = interrupts::are_enabled();
        interrupts::disable();
        if were_on && measure::tracking() {
            measure::interrupts_off(arch::cpu());
        }
        u64::from(were_on)
    }

    #[inline]
    fn interrupts_restore(&self, were_on: u64) {
        if were_on != 0 {
            if measure::tracking() {
                measure::interrupts_on(arch::cpu());
            }
            interrupts::enable();
        }
    }

    #[inline]
    fn interrupts_are_off(&self) -> bool {
        !interrupts::are_enabled()
    }

    #[inline]
    fn send_ipi(&self, targets: &CpuMask<WORDS>) {
        let mut sent = 0;
        for target in targets.iter() {
            // A CPU's number is not its number in the interrupt controller (regression 19).
            apic::send(arch::cpu::apic_id(target), traps::SHOOTDOWN);
            sent += 1;
        }
        arch::cpu::add(&arch::cpu().counts.sent, sent);
    }

    // Always: what is asked is known where it is asked, and then this is an instruction or two.
    #[inline(always)]
    fn invalidate(&self, what: Local) {
        let cpu = arch::cpu();
        match what {
            // INVLPG and INVPCID drop the links on the way too, whatever is asked.
            Local::Page { address, tag, .. } => invalidate::page(cpu, address, tag.0),
            Local::Tag(tag) => invalidate::tag(cpu, tag.0),
            Local::Kernel { address, .. } => invalidate::page_here(address),
            Local::All => invalidate::everything(),
        }
    }

    fn load_root(&self, root: Root, tag: Tag, keep: bool) {
        // SAFETY: every root maps the upper half as the kernel's own does; the engine is told before one is freed.
        unsafe { invalidate::load_root(arch::cpu(), root.0, tag.0, keep) };
    }

    fn broadcast_limits(&self) -> Option<BroadcastLimits> {
        let most = self.broadcast?.max_pages().get();
        Some(BroadcastLimits {
            max_pages: most,
            max_large_pages: most,
        })
    }

    fn broadcast_interrupts(&self) -> bool {
        self.emulated
    }

    fn broadcast(&self, what: Broadcast) {
        let limits = self.broadcast.expect("asked for only where there are limits");
        let pages = |address, stride, count| {
            let stride = match stride {
                Stride::Size4K => invlpgb::Stride::Size4K,
                Stride::Size2M | Stride::Size1G => invlpgb::Stride::Size2M,
            };
            limits.pages(address, count, stride, AddressWidth::Bits48)
        };
        let pcid = |tag: Tag| Pcid::new(tag.0).expect("the design's limit is 4096");
        let operation = match what {
            Broadcast::Pages {
                address,
                stride,
                count,
                tag,
                leaf_only,
            } => pages(address, stride, count).map(|pages| {
                let operation = Invlpgb::pages(pages, pcid(tag));
                if leaf_only {
                    operation.leaf_only().build()
                } else {
                    operation.build()
                }
            }),
            Broadcast::Kernel { address, stride, count } => {
                pages(address, stride, count).map(|pages| Invlpgb::kernel_pages(pages).build())
            }
            Broadcast::Tag(tag) => Ok(Invlpgb::whole_tag(pcid(tag))),
            Broadcast::NonGlobal => Ok(Invlpgb::all_non_global()),
            Broadcast::All => Ok(Invlpgb::all()),
        };
        arch::cpu::add(&arch::cpu().counts.broadcasts, 1);
        // A range that cannot be named is flushed with everything else (C6).
        invalidate::invlpgb(operation.unwrap_or(Invlpgb::all()));
    }

    fn broadcast_sync(&self) {
        invalidate::tlbsync();
    }

    #[inline]
    fn pin(&self) {
        let cpu = arch::cpu();
        if measure::tracking() && cpu.pins.get() == 0 {
            measure::preemption_off(cpu);
        }
        cpu.pins.set(cpu.pins.get() + 1);
    }

    #[inline]
    fn unpin(&self) {
        let cpu = arch::cpu();
        if measure::tracking() && cpu.pins.get() == 1 {
            measure::preemption_on(cpu);
        }
        cpu.pins.set(cpu.pins.get() - 1);
    }

    #[inline]
    fn now_ns(&self) -> u64 {
        arch::time::now_ns()
    }

    fn stuck(&self, report: Stuck) {
        // As every hook, without a lock.
        serial::print_at_once(format_args!(
            "CPU {} has not answered CPU {}: space {}, generation {}",
            report.target, report.waiter, report.space, report.generation
        ));
        if self.silence_is_violation {
            serial::print_last(format_args!(
                "violation: C5 (progress): CPU {} does not answer",
                report.target
            ));
            serial::exit(serial::Status::Violation);
        }
    }

    #[inline]
    fn event(&self, event: Event) {
        measure::event(event);
    }
}
