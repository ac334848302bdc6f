//! [`Cpu`]: a thread that is a virtual CPU.

use crate::threads::{INTERRUPT, Mmu, Slot, Threads};
use shootdown::{CpuId, Engine};
use std::cell::RefMut;
use std::marker::PhantomData;
use std::sync::{Mutex, MutexGuard, TryLockError};

/// This thread as a virtual CPU. Online from [`attach`](Self::attach) until it is dropped.
///
/// It is neither `Send` nor `Sync`: it *is* the thread.
pub struct Cpu<'e, 'k, M: Mmu, const W: usize> {
    engine: &'e Engine<'k, Threads<M>, W>,
    slot: &'e Slot<M>,
    id: CpuId,
    not_send: PhantomData<*mut ()>,
}

impl<'e, 'k, M: Mmu, const W: usize> Cpu<'e, 'k, M, W> {
    /// Makes this thread CPU `id` and brings that online.
    ///
    /// # Panics
    /// If another thread is that CPU, if this thread is a CPU already, or if there is no such CPU.
    pub fn attach(engine: &'e Engine<'k, Threads<M>, W>, id: CpuId) -> Self {
        let machine = &engine.kernel().machine;
        machine.enter(id);
        engine.cpu_online();
        Cpu {
            engine,
            slot: &machine.slots[id],
            id,
            not_send: PhantomData,
        }
    }

    /// The number of this CPU.
    pub fn id(&self) -> CpuId {
        self.id
    }

    /// The engine.
    pub fn engine(&self) -> &'e Engine<'k, Threads<M>, W> {
        self.engine
    }

    /// The translation state of this CPU. Release it before the next engine call or safe point, which use it.
    ///
    /// # Panics
    /// While it is already borrowed.
    #[inline]
    pub fn mmu(&self) -> RefMut<'_, M> {
        self.slot.own.mmu.borrow_mut()
    }

    /// Serves requests of other CPUs. Call it between two blocks of guest code. Returns whether there were any; one
    /// load if not. A translation that was looked up before must not be used after it.
    ///
    /// While a walk guard is held, interrupts are masked and only broadcasts are carried out.
    #[inline]
    pub fn safe_point(&self) -> bool {
        // Relaxed: `take` has the acquire. A missed interrupt is seen at the next safe point.
        self.slot.pokes.load(std::sync::atomic::Ordering::Relaxed) != 0 && self.serve()
    }

    #[cold]
    fn serve(&self) -> bool {
        let own = &self.slot.own;
        self.engine.kernel().machine.take_mail(self.id);
        if !own.masked.get() && self.slot.take(INTERRUPT) {
            own.masked.set(true);
            // SAFETY: masked, and this thread is the virtual CPU.
            unsafe { self.engine.on_ipi() };
            own.masked.set(false);
        }
        true
    }

    /// Waits for `condition`, passing safe points. Use it to wait for another CPU, which may be waiting for this one.
    pub fn wait_until(&self, mut condition: impl FnMut() -> bool) {
        use shootdown::Facade;
        crate::facade::Host::wait_until(|| {
            let met = condition();
            if !met {
                self.safe_point();
            }
            met
        });
    }

    /// Locks a mutex whose holder may flush, passing safe points meanwhile. Poisoning is ignored.
    pub fn lock<'m, T>(&self, mutex: &'m Mutex<T>) -> MutexGuard<'m, T> {
        let mut guard = None;
        self.wait_until(|| {
            guard = match mutex.try_lock() {
                Ok(guard) => Some(guard),
                Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
                Err(TryLockError::WouldBlock) => None,
            };
            guard.is_some()
        });
        guard.expect("waited for")
    }

    /// Sleeps until it is interrupted or [woken](Threads::wake), and then serves the interrupt. May return early. Call
    /// [`Engine::enter_lazy`] before, so that other CPUs flush without interrupting this one.
    ///
    /// # Panics
    /// In debug builds while a walk guard is held.
    pub fn halt(&self) {
        debug_assert!(!self.slot.own.masked.get(), "a CPU halts with interrupts masked");
        if !self.safe_point() {
            self.slot.own.parker.park();
            self.safe_point();
        }
    }
}

impl<M: Mmu, const W: usize> Drop for Cpu<'_, '_, M, W> {
    fn drop(&mut self) {
        self.engine.cpu_offline();
        self.engine.kernel().machine.leave(self.id);
    }
}
