//! CPUs that come and go (C5).

#[cfg(test)]
mod tests;

use crate::cpu::state::State;
use crate::design::MAX_SLOTS;
use crate::engine::Engine;
use crate::facade::{Facade, Word};
use crate::hooks::Kernel;
use core::sync::atomic::Ordering;

impl<K: Kernel<W>, const W: usize> Engine<'_, K, W> {
    /// Brings this CPU in. Called on it, interrupts off but ready to be turned on soon after (it masks them itself),
    /// before it loads a space or touches dynamic kernel mappings, with the kernel's root loaded.
    ///
    /// Ordering: entry writes that precede a flush which did not wait for this CPU are seen by everything it fills
    /// later.
    ///
    /// # Panics
    /// In debug builds when this CPU is on already; a release build then flushes everything here and changes nothing
    /// else. When the CPU's number is not below the number of CPUs given to [`Engine::new`].
    pub fn cpu_online(&self) {
        self.masked(|| self.come_online());
    }

    fn come_online(&self) {
        let me = self.kernel.cpu();
        let cpu = &self.cpus[me];
        if !cpu.state().is_off() {
            debug_assert!(false, "CPU {me} is on already");
            // It may have a space loaded: to say that it has none would hide it from requesters.
            return self.flush_everything_here();
        }
        // Before the join, a full barrier, and so before the invalidation (rule 6): what that leaves to be filled is at
        // least as new. Who counts further meanwhile finds this CPU in the set, or costs it a flush too many at its
        // next interrupt.
        cpu.own
            .kernel_seen
            .store(self.kernel_log.generation.load(Ordering::Relaxed), Ordering::Relaxed);
        for slot in &cpu.own.slots[..MAX_SLOTS] {
            slot.space.store(0, Ordering::Relaxed);
        }
        // Before any walk: while it was off, the spaces it is registered for may have changed to published walks.
        cpu.walking.forget_all();
        self.deferrals_wait_for(me);
        // On, then in the set (a full barrier: it was not in), then flush: a requester that saw this CPU off or absent
        // wrote its entries before, so this flush and every later fill sees them. Pairs with `request`, `wait` and
        // `flush_kernel`.
        cpu.publish(State::KERNEL);
        self.online.join(me);
        // The join before the invalidation: on Arm the full barrier of the former does not order the latter.
        K::Facade::publish_tables();
        self.flush_everything_here();
        self.serve(cpu);
    }

    /// Takes this CPU out. Called on it, in a context where it will not be interrupted for work again. It leaves its
    /// space, leaves the online set, and answers what was already asked of it. Afterwards nobody waits for it, and it
    /// may touch neither user nor dynamic kernel addresses before [`cpu_online`](Self::cpu_online), and walk no tables,
    /// in NMI context neither. Not while a walk guard is held. Masks interrupts itself; waits for nobody. Harmless on a
    /// CPU that is off already.
    ///
    /// # Panics
    /// While a walk guard is held on this CPU.
    pub fn cpu_offline(&self) {
        self.masked(|| {
            let me = self.kernel.cpu();
            let cpu = &self.cpus[me];
            // C3: freeing sides skip this CPU from here on, and the drain below answers.
            assert!(!cpu.walking.inside(), "CPU {me} goes off while it holds a walk guard");
            self.unload(cpu);
            self.online.leave(me);
            cpu.publish(State::OFF);
            // A full barrier. Pairs with those of `put` and `post`, after which requesters read the state: either they
            // see this CPU off, or this drain sees their request.
            cpu.forget_running();
            self.drain(cpu);
        });
    }
}
