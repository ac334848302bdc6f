// A kernel for the examples of the documentation: one CPU, without a TLB.
pub use shootdown::*;

pub struct MyKernel;

// SAFETY: there is no processor, and each example runs on one thread.
unsafe impl Kernel<1> for MyKernel {
    const PREEMPTIBLE: bool = false;
    type Facade = Native;
    fn cpu(&self) -> CpuId {
        0
    }
    fn interrupts_off(&self) -> u64 {
        0
    }
    fn interrupts_restore(&self, _saved: u64) {}
    fn send_ipi(&self, _targets: &CpuMask<1>) {}
    fn invalidate(&self, _what: Local) {}
    fn load_root(&self, _root: Root, _tag: Tag, _keep: bool) {}
}

/// An engine with its only CPU online.
#[allow(dead_code)]
pub fn start() -> &'static Engine<'static, MyKernel, 1> {
    let cpus = Box::leak(Box::new([PerCpu::OFFLINE]));
    let storage = Storage { cpus, tags: &mut [] };
    let engine = Engine::new(MyKernel, Policy::IPI.on(Machine::PCID), Root(0x1000), storage);
    let engine = Box::leak(Box::new(engine));
    engine.cpu_online();
    engine
}
