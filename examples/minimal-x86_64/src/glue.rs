//! All the code that this kernel needs for the engine.

use shootdown::*;
use shootdown_cpu::{BareMetal, Controller, Processor};
use spin::Once;

/// The vector of the shootdown IPI.
const IPI: u8 = 0xF0;
/// The local APIC of each CPU, at its standard address.
pub const CONTROLLER: Controller = Controller::XApic(0xFEE0_0000 as *mut u32);

/// Per-CPU tags for recently run spaces; flushes of other CPUs by IPI.
const POLICY: Policy = Policy::IPI;

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
        // Two APIC ids: 0 and 1.
        CONTROLLER.this_cpu() as CpuId
    }
    fn send_ipi(&self, targets: &CpuMask<1>) {
        CONTROLLER.send(targets.iter().map(|cpu| cpu as u32), IPI);
    }
}

/// The engine, and the one address space.
static SHOOTDOWN: Once<(Engine<Hooks, 1>, Space<BareMetal, 1>)> = Once::new();

/// Memory of the engine.
static mut CPUS: [PerCpu<BareMetal>; 2] = [PerCpu::OFFLINE; 2];

/// Makes the engine. Once, on the first CPU.
pub fn start(kernel_root: u64, root: u64) {
    let kernel_root = Root(kernel_root);
    let processor = Processor::discover(kernel_root);
    let cpus = &raw mut CPUS;
    // SAFETY: the only reference to it, and this runs once.
    let cpus = unsafe { &mut *cpus };
    let (design, storage) = (POLICY.on(processor.machine()), Storage { cpus, tags: &mut [] });
    let engine = Engine::new(Hooks { processor }, design, kernel_root, storage);
    let space = engine.space(Root(root));
    SHOOTDOWN.call_once(|| (engine, space));
}

/// Brings this CPU online, and loads the space.
pub fn join() {
    let (engine, space) = SHOOTDOWN.get().expect("started");
    // SAFETY: the CPUs are alike, and the kernel's root is loaded, under PCID 0.
    unsafe { engine.kernel().processor.enable() };
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
