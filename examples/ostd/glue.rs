//! The engine inside OSTD: `cargo xtask ostd` puts this file into a copy of the package as `src/smp/shootdown.rs`.
//!
//! OSTD uses neither PCIDs nor INVLPGB: one space at a time, and a load of CR3 drops its entries.

use alloc::vec::Vec;
use shootdown_cpu::{BareMetal, Processor, shootdown::*};
use spin::Once;

use super::{IPI_SENDER, Id, irq};
use crate::cpu;
use crate::mm::Paddr;
use crate::mm::frame::{Frame, meta::AnyFrameMeta};
use crate::sync::RcuDrop;

const POLICY: Policy = Policy::IPI;
static ENGINE: Once<Engine<'static, Hooks, 1>> = Once::new();

pub(crate) struct Hooks {
    processor: Processor,
}

// SAFETY: CPU numbers are fixed, callers stay on their CPU, and every root maps the kernel alike.
unsafe impl Kernel<1> for Hooks {
    shootdown_cpu::hooks!(processor);
    const PREEMPTIBLE: bool = false; // whoever calls the engine has disabled preemption
    const POLICY: Option<Policy> = Some(POLICY);
    fn cpu(&self) -> CpuId {
        cpu::CpuId::current_racy().as_usize()
    }
    fn send_ipi(&self, targets: &CpuMask<1>) {
        let sender = IPI_SENDER.get().expect("IPIs are set up before the engine");
        let guard = irq::disable_local();
        // A write to the x2APIC's command register is not a store, and the sender does not wait for earlier ones.
        // SAFETY: barriers.
        unsafe { core::arch::asm!("mfence; lfence") };
        for target in targets.iter() {
            crate::arch::irq::send_ipi(sender.hw_cpu_ids[target], &guard).expect("an IPI was refused");
        }
    }
}

fn engine() -> &'static Engine<'static, Hooks, 1> {
    ENGINE.get().expect("made before the other CPUs start")
}

/// Makes the engine. Once, on the first CPU, before the others start.
pub(crate) fn init() {
    // The kernel's table, because no `VmSpace` has been activated.
    let root = Root(crate::arch::mm::current_page_table_paddr() as u64);
    let processor = Processor::discover(root);
    let cpus: Vec<_> = (0..cpu::num_cpus()).map(|_| PerCpu::new()).collect();
    let storage = Storage {
        cpus: Vec::leak(cpus),
        tags: &mut [],
    };
    ENGINE.call_once(|| Engine::new(Hooks { processor }, POLICY.on(Machine::NO_TAGS), root, storage));
    online();
}

/// Brings this CPU online.
pub(crate) fn online() {
    let _irq = irq::disable_local();
    engine().cpu_online();
}

pub(super) fn on_ipi() {
    if let Some(engine) = ENGINE.get() {
        // SAFETY: interrupts are off in handlers.
        unsafe { engine.on_ipi() };
    }
}

/// What a `VmSpace` holds. Its first field, so that it ends before the page table does.
pub(crate) struct Tlb(Space<BareMetal, 1>);

impl Tlb {
    pub(crate) fn new(root: Paddr) -> Self {
        Self(engine().space(Root(root as u64)))
    }

    /// Loads the space on this CPU, in place of the one that is loaded.
    pub(crate) fn activate(&self) {
        // SAFETY: `drop` retires it.
        unsafe { engine().switch_to(&self.0) };
    }
}

impl Drop for Tlb {
    fn drop(&mut self) {
        let _pinned = crate::task::disable_preempt();
        let _ = engine().retire(&self.0);
    }
}

impl core::fmt::Debug for Tlb {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Tlb")
    }
}

type Frames = Vec<Frame<dyn AnyFrameMeta>>;

/// What a `TlbFlusher` holds: the flush that is under way, and the frames that wait for it.
pub(crate) struct Pending<'a> {
    tlb: Option<&'a Tlb>,
    token: Option<Token<'static, 'static, Hooks, 1>>,
    frames: Frames,
}

impl<'a> Pending<'a> {
    pub(crate) fn new(tlb: Option<&'a Tlb>) -> Self {
        Self {
            tlb,
            token: None,
            frames: Vec::new(),
        }
    }

    /// Begins a flush of user pages whose entries were cleared, of all if `None`; page-table pages may be among the
    /// frames. False: a flush of kernel pages, which is not the engine's here.
    pub(crate) fn dispatch(&mut self, pages: Option<(usize, usize)>, frames: &mut Frames) -> bool {
        let Some(tlb) = self.tlb else { return false };
        self.wait();
        let range = match pages {
            Some((start, end)) => Range::pages(start as u64, end as u64, Stride::Size4K),
            None => Range::pages(0, 0, Stride::Size4K),
        };
        self.token = Some(engine().dispatch(&tlb.0, range.with_tables()));
        self.frames.append(frames);
        true
    }

    /// Waits, and releases the frames with the proof. False: nothing was dispatched to the engine.
    pub(crate) fn wait(&mut self) -> bool {
        let Some(token) = self.token.take() else {
            return self.tlb.is_some();
        };
        let _proof = token.wait();
        let _ = RcuDrop::new(core::mem::take(&mut self.frames));
        true
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        self.wait();
    }
}
