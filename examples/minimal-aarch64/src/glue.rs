//! All the code that this kernel needs for the engine.

use core::sync::atomic::AtomicU64;
use shootdown::*;
use shootdown_cpu::{BareMetal, Controller, Processor};
use spin::Once;

/// The software-generated interrupt of shootdowns.
const IPI: u8 = 1;

/// Limit of the used tags: every processor has 256 ASIDs.
const TAGS: u32 = 256;

/// One ASID for a space on all CPUs; flushes of other CPUs by IPI or by broadcast.
const POLICY: Policy = Policy {
    ceiling: 33,
    ..if cfg!(feature = "broadcast") {
        Policy::ARM_BROADCAST
    } else {
        Policy::ARM_IPI
    }
};

/// The hooks.
struct Hooks {
    processor: Processor,
}

// SAFETY: CPU numbers are fixed, nothing migrates, and both roots map the kernel alike and are never freed.
unsafe impl Kernel<1> for Hooks {
    shootdown_cpu::hooks!(processor);
    const PREEMPTIBLE: bool = false;
    const POLICY: Option<Policy> = Some(POLICY);
    fn cpu(&self) -> CpuId {
        // The board numbers its first CPUs in Aff0.
        Controller.this_cpu() as CpuId
    }
    fn send_ipi(&self, targets: &CpuMask<1>) {
        Controller.send(targets.iter().map(|cpu| cpu as u64), IPI);
    }
}

/// The engine, and the one address space.
static SHOOTDOWN: Once<(Engine<Hooks, 1>, Space<BareMetal, 1>)> = Once::new();

/// Memory of the engine.
static mut CPUS: [PerCpu<BareMetal>; 2] = [PerCpu::OFFLINE; 2];
static mut TAG_WORDS: [AtomicU64; tag_words(TAGS)] = [const { AtomicU64::new(0) }; tag_words(TAGS)];

/// Makes the engine. Once, on the first CPU.
pub fn start(kernel_root: u64, root: u64) {
    let kernel_root = Root(kernel_root);
    let processor = Processor::discover(kernel_root);
    let (cpus, tags) = (&raw mut CPUS, &raw mut TAG_WORDS);
    // SAFETY: the only reference to them, and this runs once.
    let (cpus, tags) = unsafe { (&mut *cpus, &mut *tags) };
    let design = POLICY.on(processor.machine().limited_to(TAGS));
    let engine = Engine::new(Hooks { processor }, design, kernel_root, Storage { cpus, tags });
    let space = engine.space(Root(root));
    SHOOTDOWN.call_once(|| (engine, space));
}

/// Brings this CPU online, and loads the space.
pub fn join() {
    let (engine, space) = SHOOTDOWN.get().expect("started");
    engine.cpu_online();
    // SAFETY: the space is never dropped.
    unsafe { engine.switch_to(space) };
}

/// Flushes `page`, whose entry was cleared. On return no CPU uses the old translation.
pub fn flush(page: u64) {
    let (engine, space) = SHOOTDOWN.get().expect("started");
    let _the_frame_is_free = engine.flush(space, Range::page(page));
}

/// Handles the shootdown interrupt, after the acknowledgement.
pub fn on_ipi() {
    let (engine, _) = SHOOTDOWN.get().expect("started");
    // SAFETY: interrupts are off in handlers.
    unsafe { engine.on_ipi() };
}
