//! CPUs that come online and go offline (C5).

#[cfg(test)]
mod tests;

use crate::cpu::state::State;
use crate::design::MAX_SLOTS;
use crate::engine::Engine;
use crate::facade::{Facade, Word};
use crate::hooks::Kernel;
use core::sync::atomic::Ordering;

impl<K: Kernel<W>, const W: usize> Engine<'_, K, W> {
    /// Brings this CPU online. Call it on that CPU, with the kernel's root loaded, before it loads a space or accesses
    /// dynamic kernel mappings. Interrupts are off but can be turned on soon after (it masks them itself).
    ///
    /// Ordering: later fills of this CPU see the entry writes of every earlier flush that did not wait for it.
    ///
    /// # Panics
    /// In debug builds, if this CPU is online already; a release build then flushes everything on this CPU and changes
    /// nothing else. If the CPU's number is not below the number of CPUs given to [`Engine::new`].
    pub fn cpu_online(&self) {
        self.masked(|| self.come_online());
    }

    fn come_online(&self) {
        let me = self.kernel.cpu();
        let cpu = &self.cpus[me];
        if !cpu.state().is_off() {
            debug_assert!(false, "CPU {me} is on already");
            // It may have a space loaded. Publishing that it has none would hide it from requesters.
            return self.flush_everything_here();
        }
        // Before the join, a full barrier, and so before the invalidation (rule 6): later fills are at least as new. A
        // requester that increments further meanwhile finds this CPU in the set, or costs it an extra flush at its next
        // interrupt.
        cpu.own
            .kernel_seen
            .store(self.kernel_log.generation.load(Ordering::Relaxed), Ordering::Relaxed);
        cpu.running.flushes.store(me as u64, Ordering::Relaxed);
        for slot in &cpu.own.slots[..MAX_SLOTS] {
            slot.space.store(0, Ordering::Relaxed);
        }
        // Before any walk: while it was offline, the spaces for which it is registered may have changed to published
        // walks.
        cpu.walking.forget_all();
        self.deferrals_wait_for(me);
        // Online, then in the set (a full barrier: it was not a member), then flush. A requester that saw this CPU
        // offline or absent wrote its entries before, so this flush and every later fill sees them. Pairs with
        // `request`, `wait` and `flush_kernel`.
        cpu.publish(State::KERNEL);
        self.online.join(me);
        // The join before the invalidation: on Arm the full barrier of the former does not order the latter.
        K::Facade::publish_tables();
        self.flush_everything_here();
        self.serve(cpu);
    }

    /// Takes this CPU offline. Call it on that CPU, in a context where it will not be interrupted for work again. It
    /// leaves its space, leaves the online set, and answers its pending requests. Afterwards it is not waited for.
    /// Until [`cpu_online`](Self::cpu_online) it may access neither user nor dynamic kernel addresses, and walk no
    /// tables, not even in NMI context. Not while a walk guard is held. Masks interrupts itself; waits for no CPU.
    /// Harmless on an offline CPU.
    ///
    /// # Panics
    /// While a walk guard is held on this CPU.
    pub fn cpu_offline(&self) {
        self.masked(|| {
            let me = self.kernel.cpu();
            let cpu = &self.cpus[me];
            // C3: freeing CPUs skip this CPU from here on, and the drain below answers.
            assert!(!cpu.walking.inside(), "a CPU goes off while it holds a walk guard");
            self.unload(cpu);
            self.online.leave(me);
            cpu.publish(State::OFF);
            // A full barrier. Pairs with those of `put` and `post`, after which requesters read the state: either they
            // see this CPU offline, or this drain sees their request.
            cpu.forget_running();
            self.drain(cpu);
        });
    }
}
