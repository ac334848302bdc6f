//! Several tasks on one CPU: task switches, and the points at which a switch may happen.
//!
//! Owns how a parked task takes the place of a running one. A scheduler, built on these functions, decides when to
//! switch. A machine without added tasks pays one test at each point. A switch happens only where the task's stack
//! holds no frame of the machine that remembers its CPU: at the end of a split charge, between two evaluations of a
//! condition, and where interrupts are unmasked. So a task may continue on any CPU.

use super::cpu::{Cpu, SLOW_HOST, SLOW_RECORDING, State, Task};
use super::parked::Parked;
use super::record::Core;
use super::{Machine, current};

impl Machine {
    /// Adds a task that no CPU runs yet; the run waits for it to say [`end_task`](current::end_task). Returns its
    /// number, from the number of CPUs on. Its stack must have been asked for as one of `extra_tasks`.
    ///
    /// # Panics
    /// When memory is refused.
    pub fn add_task(&self, task: impl FnOnce() + 'static) -> usize {
        let core = &*self.core;
        let cpus = core.cpus.len() - 1;
        let mut parked = core.tasks.parked.borrow_mut();
        if parked.is_empty() {
            parked.extend((0..cpus).map(|_| Parked::NOTHING));
            core.tasks.running.borrow_mut().extend(0..cpus);
        }
        let number = parked.len();
        let stack = self.region.stack(self.stack_bytes, number);
        core.lines.stacks_from(self.region.stacks_from());
        let coroutine = Task::with_stack(stack, move |yielder, ()| {
            current::core().cpu().yielder.set(yielder);
            task();
        });
        parked.push(Parked {
            task: Some(coroutine),
            ..Parked::NOTHING
        });
        core.unfinished.set(core.unfinished.get() + 1);
        number
    }
}

impl Core {
    /// A point where the running task may be switched.
    #[inline]
    pub(crate) fn preemption_point(&self) {
        if let Some(hook) = self.preemption_hook() {
            let cpu = self.cpu();
            if !cpu.masked.get() && cpu.slow.get() & (SLOW_RECORDING | SLOW_HOST) == 0 {
                hook();
            }
        }
    }

    /// Parks the running task and continues with task `next` in its place. Returns when the task runs again, perhaps on
    /// another CPU.
    pub(crate) fn switch_task(&self, next: usize) {
        let cpu = self.cpu();
        if !self.on_cpu() || self.tasks.running.borrow()[cpu.id()] == next {
            return;
        }
        assert!(
            !cpu.masked.get() && cpu.slow.get() & SLOW_RECORDING == 0,
            "tasks are exchanged neither with interrupts off nor from within a condition"
        );
        cpu.count();
        // The task will look for its own stores on the CPU on which it continues.
        self.drain_own(cpu);
        self.set_category(cpu.category.get()); // books the time up to here
        self.tasks.next.set(next);
        self.moving.set(Some(cpu.id()));
        self.suspend(cpu, cpu.clock.get());
        // From here on the running CPU may be another; do not use `cpu` after this.
        if !self.dying.get() {
            self.sync(self.cpu());
        }
    }

    /// Carries the switch out, between two turns.
    pub(crate) fn exchange(&self, cpu: &Cpu) {
        let (tasks, next) = (&self.tasks, self.tasks.next.get());
        let mut parked = tasks.parked.borrow_mut();
        let old = std::mem::replace(&mut tasks.running.borrow_mut()[cpu.id()], next);
        // SAFETY: only the scheduler touches `task`, and the CPU's task does not run.
        let slot = unsafe { &mut *cpu.task.get() };
        parked[old] = Parked {
            task: slot.take(),
            yielder: cpu.yielder.get(),
            category: cpu.category.get(),
            daemon: cpu.daemon.get(),
            at: cpu.clock.get(),
        };
        let Parked {
            task,
            yielder,
            category,
            daemon,
            at,
        } = std::mem::replace(&mut parked[next], Parked::NOTHING);
        assert!(task.is_some(), "task {next} runs elsewhere");
        *slot = task;
        cpu.yielder.set(yielder);
        cpu.category.set(category);
        cpu.daemon.set(daemon);
        cpu.clock.set(cpu.clock.get().max(at));
        self.set_state(cpu, State::Running);
    }

    /// Unwinds the stacks of parked tasks; the machine is being dropped, and no CPU's task is left.
    pub(crate) fn drop_parked(&self) {
        let count = self.tasks.parked.borrow().len();
        for number in 0..count {
            let task = self.tasks.parked.borrow_mut()[number].task.take();
            if let Some(mut task) = task.filter(|task| !task.done()) {
                self.current.set(&self.cpus[0]);
                task.force_unwind();
                self.leave();
            }
        }
    }
}
