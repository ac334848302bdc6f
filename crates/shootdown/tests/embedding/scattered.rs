//! The state of each CPU in a static of its own.

use shootdown::*;
use std::cell::{Cell, RefCell};
use std::ptr::addr_of_mut;

/// A kernel of two CPUs in one thread: an interrupt is handled when it is sent.
struct Nodes<const SCATTERED: bool = true> {
    cpu: Cell<CpuId>,
    invalidated: RefCell<Vec<(CpuId, Local)>>,
    handler: Cell<Option<&'static Engine<'static, Self, 1>>>,
}

// SAFETY: one thread.
unsafe impl<const SCATTERED: bool> Sync for Nodes<SCATTERED> {}

// SAFETY: for a test; there is no processor.
unsafe impl<const SCATTERED: bool> Kernel<1> for Nodes<SCATTERED> {
    const PREEMPTIBLE: bool = false;
    const SCATTERED: bool = SCATTERED;
    type Facade = Native;
    fn cpu(&self) -> CpuId {
        self.cpu.get()
    }
    fn interrupts_off(&self) -> u64 {
        0
    }
    fn interrupts_restore(&self, _saved: u64) {}
    fn send_ipi(&self, targets: &CpuMask<1>) {
        let engine = self.handler.get().expect("set before");
        for target in targets.iter() {
            let me = self.cpu.replace(target);
            // SAFETY: nothing interrupts it.
            unsafe { engine.on_ipi() };
            self.cpu.set(me);
        }
    }
    fn invalidate(&self, what: Local) {
        self.invalidated.borrow_mut().push((self.cpu.get(), what));
    }
    fn load_root(&self, _root: Root, _tag: Tag, _keep: bool) {}
}

fn nodes<const SCATTERED: bool>() -> Nodes<SCATTERED> {
    Nodes {
        cpu: Cell::new(0),
        invalidated: RefCell::default(),
        handler: Cell::new(None),
    }
}

#[test]
fn flush_reaches_cpus_with_scattered_state() {
    static mut FIRST: PerCpu<Native> = PerCpu::OFFLINE;
    static mut SECOND: PerCpu<Native> = PerCpu::OFFLINE;
    // SAFETY: the only references to them, made once.
    let cpus = Vec::leak(unsafe { vec![&mut *addr_of_mut!(FIRST), &mut *addr_of_mut!(SECOND)] });
    let design = Policy::IPI.on(Machine::PCID);
    let engine: Engine<'static, Nodes, 1> = Engine::scattered(nodes(), design, Root(0), cpus, &mut []);
    let engine: &'static Engine<'static, Nodes, 1> = Box::leak(Box::new(engine));
    let kernel = engine.kernel();
    kernel.handler.set(Some(engine));
    let space = &*Box::leak(Box::new(engine.space(Root(1))));
    for cpu in [1, 0] {
        kernel.cpu.set(cpu);
        engine.cpu_online();
        // SAFETY: the space is leaked.
        unsafe { engine.switch_to(space) };
    }
    kernel.invalidated.borrow_mut().clear();
    let _ = engine.flush(space, Range::page(0x7000));
    let invalidated = kernel.invalidated.borrow();
    assert!(invalidated.iter().any(|(cpu, _)| *cpu == 1), "{invalidated:?}");
    assert!(invalidated.iter().any(|(cpu, _)| *cpu == 0), "{invalidated:?}");
}

#[test]
#[should_panic(expected = "the kernel is SCATTERED: call Engine::scattered")]
fn array_storage_is_refused_for_scattered_state() {
    let mut cpus = [PerCpu::OFFLINE];
    let storage = Storage {
        cpus: &mut cpus,
        tags: &mut [],
    };
    let _: Engine<'_, Nodes, 1> = Engine::new(nodes(), Policy::IPI.on(Machine::PCID), Root(0), storage);
}

#[test]
#[should_panic(expected = "the kernel is not SCATTERED: call Engine::new")]
fn scattered_storage_is_refused_for_array_state() {
    let mut cpu = PerCpu::OFFLINE;
    let mut cpus = [&mut cpu];
    let design = Policy::IPI.on(Machine::PCID);
    let _: Engine<'_, Nodes<false>, 1> = Engine::scattered(nodes(), design, Root(0), &mut cpus, &mut []);
}
