//! This kernel's hooks for the engine. `shootdown-cpu` executes the instructions; the kernel adds its CPU numbers, pins
//! and clock, and counts. A kernel without counts writes `shootdown_cpu::hooks!` in place of most of this: see
//! `examples/minimal-x86_64`.

use crate::arch::{self, controller, interrupts, traps};
use crate::cpu::{self, Cpu, MOST_CPUS, add, cpu};
use crate::facade::Bare;
use crate::{invalidate, measure, serial, time};
use core::sync::atomic::{AtomicBool, Ordering};
use shootdown::{Broadcast, BroadcastLimits, CpuId, CpuMask, Event, Kernel, Local, Policy, Root, Stuck, Tag};
use shootdown_cpu::{FlushByIpi, Processor};

/// Words of a CPU set: 64 CPUs.
pub const WORDS: usize = 1;

/// The firmware has rejected a broadcast: handlers must look at `by_ipi`. Not in `Hooks`: a handler reads it before it
/// has loaded the engine.
static REJECTS: AtomicBool = AtomicBool::new(false);

/// The hooks.
pub struct Hooks {
    /// The processor, with the limits of its broadcasts or of their emulation.
    pub processor: Processor,
    /// Broadcasts are emulated by interrupts.
    pub emulated: bool,
    /// For broadcasts that the firmware rejects.
    pub by_ipi: FlushByIpi<Bare, MOST_CPUS>,
    /// A CPU that does not answer is a violation (C5): if instructions are counted, the host cannot have delayed it.
    pub silence_is_violation: bool,
}

impl Hooks {
    /// A broadcast was rejected, so nothing was flushed. Every CPU that is up flushes everything.
    #[cold]
    pub fn flush_everywhere(&self) {
        let me = cpu().id;
        let is_up = |other: &&Cpu| other.id != me && other.up.load(Ordering::Acquire);
        let others = cpu::all().iter().filter(is_up).map(|other| other.id);
        // Visible to a handler that sees the interrupt's reason, which `send` publishes.
        REJECTS.store(true, Ordering::Relaxed);
        let send = || controller::send(others.clone(), traps::SHOOTDOWN);
        self.by_ipi.everywhere(me, others.clone(), send, Self::flush_here);
    }

    /// Flushes everything here if a rejected broadcast requires it. In the handler, before the engine's.
    #[cfg(target_arch = "riscv64")]
    #[inline]
    pub fn serve_refused() {
        if REJECTS.load(Ordering::Relaxed) {
            crate::engine().kernel().serve_rejected();
        }
    }

    // Not inlined: the registers that it needs would be saved by every interrupt.
    #[cold]
    #[inline(never)]
    #[cfg(target_arch = "riscv64")]
    fn serve_rejected(&self) {
        self.by_ipi.serve(cpu().id, Self::flush_here);
    }

    fn flush_here() {
        invalidate::here(cpu(), Local::All);
        invalidate::sync();
    }
}

// SAFETY: CPU numbers are fixed at start, interrupts are masked, a pinned section does not migrate, and each
// instruction is the requested one.
unsafe impl Kernel<WORDS> for Hooks {
    const PREEMPTIBLE: bool = true;
    const POLICY: Option<Policy> = if cfg!(feature = "ipi-only") {
        Some(Policy::IPI)
    } else if cfg!(feature = "adaptive-only") {
        Some(Policy::ADAPTIVE)
    } else if cfg!(feature = "arm-broadcast-only") {
        Some(Policy::ARM_BROADCAST)
    } else if cfg!(feature = "arm-local-first-only") {
        Some(Policy::ARM_LOCAL_FIRST)
    } else {
        None
    };

    type Facade = Bare;

    #[inline]
    fn cpu(&self) -> CpuId {
        cpu().id
    }

    #[inline]
    fn interrupts_off(&self) -> u64 {
        let were_on = interrupts::are_enabled();
        interrupts::disable();
        if were_on && measure::tracking() {
            measure::interrupts_off(cpu());
        }
        u64::from(were_on)
    }

    #[inline]
    fn interrupts_restore(&self, were_on: u64) {
        if were_on != 0 {
            if measure::tracking() {
                measure::interrupts_on(cpu());
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
        controller::send(targets.iter().inspect(|_| sent += 1), traps::SHOOTDOWN);
        add(&cpu().counts.sent, sent);
    }

    #[inline]
    fn send_ipi_to(&self, target: CpuId) {
        controller::send(core::iter::once(target), traps::SHOOTDOWN);
        add(&cpu().counts.sent, 1);
    }

    // Always: see `invalidate::here`.
    #[inline(always)]
    fn invalidate(&self, what: Local) {
        invalidate::here(cpu(), what);
    }

    #[inline(always)]
    fn local_sync(&self) {
        invalidate::sync();
    }

    fn load_root(&self, root: Root, tag: Tag, keep: bool) {
        // SAFETY: every root maps the upper half as the kernel's own does; spaces are retired before their root is
        // freed, and the engine has masked interrupts.
        unsafe { invalidate::load_root(cpu(), root, tag, keep) };
    }

    fn broadcast_limits(&self) -> Option<BroadcastLimits> {
        self.processor.broadcast_limits()
    }

    fn broadcast_interrupts(&self) -> bool {
        self.emulated || self.processor.broadcast_interrupts()
    }

    // Always: as `Processor::broadcast`.
    #[inline(always)]
    fn broadcast(&self, what: Broadcast) {
        if arch::invalidate::broadcast(&self.processor, what).is_err() {
            self.flush_everywhere();
        }
    }

    fn broadcast_sync(&self) {
        self.processor.broadcast_sync();
    }

    #[inline]
    fn pin(&self) {
        let cpu = cpu();
        if measure::tracking() && cpu.pins.get() == 0 {
            measure::preemption_off(cpu);
        }
        cpu.pins.set(cpu.pins.get() + 1);
    }

    #[inline]
    fn unpin(&self) {
        let cpu = cpu();
        if measure::tracking() && cpu.pins.get() == 1 {
            measure::preemption_on(cpu);
        }
        cpu.pins.set(cpu.pins.get() - 1);
    }

    #[inline]
    fn now_ns(&self) -> u64 {
        time::now_ns()
    }

    fn stuck(&self, report: Stuck) {
        // As every hook, without a lock.
        serial::print_at_once(format_args!("{report}"));
        if self.silence_is_violation {
            crate::torture::violation("C5 (progress)", format_args!("CPU {} does not answer", report.target));
        }
    }

    #[inline]
    fn event(&self, event: Event) {
        // Here, not where a broadcast is issued: by now it is complete, so counting delays nobody.
        if let Event::Broadcast { instructions } = event {
            add(&cpu().counts.broadcasts, u64::from(instructions));
        }
        measure::event(event);
    }
}
