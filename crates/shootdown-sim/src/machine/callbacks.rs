//! What the machine calls in the kernel that runs on a CPU.
//!
//! Several kernels may run on one machine, as virtual machines on a host do. Its CPUs are then divided among them in
//! equal parts ([`Config::kernels`](super::Config)). A callback that is set is that of the first kernel without one.

use super::cpu::Cpu;
use super::record::{Callbacks, Core};
use super::{Barrier, Machine};
use std::cell::OnceCell;
use std::ops::Range;

impl Machine {
    /// Sets the interrupt handler of a kernel's CPUs: it runs on the CPU's own stack, interrupts masked. Once for each
    /// kernel. Returns the kernel's CPUs.
    ///
    /// # Panics
    /// When each kernel has one.
    pub fn set_interrupt_handler(&self, handler: impl Fn() + 'static) -> Range<usize> {
        let kernel = self.set::<Box<dyn Fn()>>(|kernel| &kernel.interrupt, Box::new(handler));
        let cpus = (self.core.cpus.len() - 1) / self.core.kernels.len();
        kernel * cpus..(kernel + 1) * cpus
    }

    /// Sets what the named barriers of the facade do in addition to x86's: for a machine whose invalidation
    /// instructions are not ordered by memory barriers. Once for each kernel.
    ///
    /// # Panics
    /// When each kernel has one.
    pub fn set_barrier_hook(&self, hook: impl Fn(Barrier) + 'static) {
        self.set::<Box<dyn Fn(Barrier)>>(|kernel| &kernel.barrier, Box::new(hook));
    }

    /// Sets the callback that makes a store by [`store_other`](super::store_other) visible. It is called at the store's
    /// time, in any context, and must neither charge nor wait. Once for each kernel.
    ///
    /// # Panics
    /// When each kernel has one.
    pub fn set_store_hook(&self, hook: impl Fn(u64, u64) + 'static) {
        self.set::<Box<dyn Fn(u64, u64)>>(|kernel| &kernel.store, Box::new(hook));
    }

    /// Sets the callback at each point where the running task may be switched. Interrupts are on, and a caller of
    /// [`switch_task`](super::switch_task) there may continue on another CPU of its kernel. Once for each kernel.
    ///
    /// # Panics
    /// When each kernel has one.
    pub fn set_preemption_hook(&self, hook: impl Fn() + 'static) {
        self.set::<Box<dyn Fn()>>(|kernel| &kernel.preemption, Box::new(hook));
    }

    /// Sets the callback of the first kernel without one, and returns that kernel's number.
    fn set<T>(&self, which: fn(&Callbacks) -> &OnceCell<T>, callback: T) -> usize {
        let mut callbacks = self.core.kernels.iter().map(which);
        let unset = callbacks.position(|callback| callback.get().is_none());
        let kernel = unset.expect("each kernel has one");
        assert!(which(&self.core.kernels[kernel]).set(callback).is_ok(), "it is unset");
        kernel
    }
}

impl Core {
    #[inline]
    fn kernel_of(&self, cpu: &Cpu) -> &Callbacks {
        &self.kernels[usize::from(cpu.kernel)]
    }

    /// `cpu`, which runs, has taken an interrupt.
    pub(crate) fn handle_interrupt(&self, cpu: &Cpu) {
        if let Some(handler) = self.kernel_of(cpu).interrupt.get() {
            handler();
        }
    }

    /// A store of `b` to `a` by `cpu` becomes visible.
    pub(crate) fn store_becomes_visible(&self, cpu: &Cpu, a: u64, b: u64) {
        let hook = self.kernel_of(cpu).store.get();
        hook.expect("store_other needs a store hook")(a, b);
    }

    /// The running CPU passes a barrier.
    #[inline]
    pub(crate) fn pass_barrier(&self, barrier: Barrier) {
        if let Some(hook) = self.kernel_of(self.cpu()).barrier.get() {
            hook(barrier);
        }
    }

    /// The callback of the running CPU at a point where its task may be switched.
    #[inline]
    pub(crate) fn preemption_hook(&self) -> Option<&dyn Fn()> {
        self.kernel_of(self.cpu()).preemption.get().map(|hook| &**hook)
    }
}
