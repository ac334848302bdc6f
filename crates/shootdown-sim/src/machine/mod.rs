//! The core of the simulated machine: CPUs as coroutines in virtual time, cache lines, store buffers and interrupts.
//!
//! A [`Machine`] runs on one host thread and is a pure function of its [`Config`] and its tasks. It is independent of
//! translation: TLBs, page tables and kernels are built on the functions of this module, which act on the machine that
//! runs on the calling thread.
//!
//! `record` puts the state together: CPUs (`cpu`), lines (`lines`), store buffers, parked tasks, the order of turns
//! (`tree`). The other files are operations on it, and none of those files names them.
//!
//! Virtual time is kept in ticks of 1/16 cycle; the interface speaks of cycles.

mod account;
pub(crate) mod activity;
mod arena;
mod callbacks;
mod config;
mod contention;
mod cpu;
mod current;
mod exits;
mod hypervisor;
mod interrupt;
mod line_access;
mod lines;
mod memory;
mod parked;
mod prefetch;
mod record;
mod report;
mod sched;
mod store_buffer;
mod tasks;
mod tree;
mod wait;
mod word;

pub use account::{CpuStatistics, Statistics};
pub use arena::{LINE, Shared};
pub use config::{Config, CoreCosts, Distance, MAX_CPUS, StoreBuffer, TICKS_PER_CYCLE, Topology};
pub use cpu::CATEGORIES;
pub use current::*;
pub use hypervisor::Hypervisor;
pub use lines::LineId;
pub use word::{SimWord, SimWorld, add_by_hardware};

use arena::Region;
use config::NEVER;
use cpu::{SLOW_HOST, State, Task};
use current::Installed;
use lines::Lines;
use record::Core;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Every task that is not a daemon returned.
    Finished,
    /// The progress callback asked for it.
    Abandoned,
    /// Tasks are left and no event will wake them; the report names each.
    Deadlock(String),
    /// The bound on charged operations was reached, or a thread loops without spending time; the report names each CPU.
    Runaway(String),
}

/// Arguments of the progress callback.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Charged operations so far.
    pub events: u64,
    /// Virtual time, cycles.
    pub cycles: u64,
}

/// A barrier with a name (see the engine's facade).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Barrier {
    /// Table writes before it are visible to walkers before later invalidations.
    PublishTables,
    /// Earlier stores are ordered before a root load.
    BeforeRootLoad,
}

/// A simulated machine.
pub struct Machine {
    core: Box<Core>,
    region: Rc<Region>,
    stack_bytes: usize,
}

impl Machine {
    /// A machine whose CPUs have no tasks yet.
    ///
    /// # Panics
    /// When the topology has no CPU, more than [`MAX_CPUS`] or vectors of the wrong length, or memory is refused.
    pub fn new(config: Config) -> Self {
        let topology = &config.topology;
        let cpus = topology.cpus;
        assert!(
            (1..=MAX_CPUS).contains(&cpus),
            "a machine has 1 to {MAX_CPUS} CPUs, not {cpus}"
        );
        assert!(
            config.kernels > 0 && cpus.is_multiple_of(config.kernels),
            "each of {} kernels has as many of the {cpus} CPUs",
            config.kernels
        );
        for numbers in [&topology.core_of, &topology.cluster_of, &topology.socket_of] {
            assert!(numbers.len() == cpus, "the topology must place each of the {cpus} CPUs");
        }
        let stacks = cpus + config.extra_tasks;
        let region = Rc::new(Region::new(config.arena_bytes, stacks, config.stack_bytes));
        let stacks = region.lines() - stacks * Region::stack_lines(config.stack_bytes);
        let lines = Lines::new(
            region.base(),
            region.lines(),
            stacks,
            Region::stack_lines(config.stack_bytes),
        );
        let core = Box::new(Core::new(&config, lines));
        Machine {
            core,
            region,
            stack_bytes: config.stack_bytes,
        }
    }

    /// Gives `cpu` its task, which starts at the beginning of the run. One task for each CPU.
    ///
    /// # Panics
    /// When there is no such CPU or it has a task.
    pub fn spawn(&self, cpu: usize, task: impl FnOnce() + 'static) {
        self.start(cpu, false, task);
    }

    /// As [`spawn`](Self::spawn), but the run does not wait for the task to return: an idle loop.
    pub fn spawn_daemon(&self, cpu: usize, task: impl FnOnce() + 'static) {
        self.start(cpu, true, task);
    }

    fn start(&self, id: usize, daemon: bool, task: impl FnOnce() + 'static) {
        let core = &*self.core;
        assert!(id + 1 < core.cpus.len(), "there is no CPU {id}");
        let cpu = &core.cpus[id];
        assert!(
            matches!(cpu.state.get(), State::Absent | State::Finished),
            "CPU {id} has a task"
        );
        let record: *const cpu::Cpu = cpu;
        let stack = self.region.stack(self.stack_bytes, id);
        core.lines.stacks_from(self.region.stacks_from());
        let coroutine = Task::with_stack(stack, move |yielder, ()| {
            // SAFETY: the record lives in the machine, whose drop ends this coroutine first.
            unsafe { (*record).yielder.set(yielder) };
            task();
        });
        // SAFETY: the CPU has no task, so nothing else refers to the slot.
        unsafe { *cpu.task.get() = Some(coroutine) };
        cpu.daemon.set(daemon);
        if !daemon {
            core.unfinished.set(core.unfinished.get() + 1);
        }
        core.set_state(cpu, State::Running);
        cpu.key.set(cpu.clock.get());
        core.tree.set(id, cpu.clock.get());
    }

    /// Sets a callback for each interrupt that a CPU sends: called on that CPU with the target. Free of cost. Once.
    ///
    /// # Panics
    /// When set before.
    pub fn set_send_hook(&self, hook: impl Fn(usize) + 'static) {
        assert!(self.core.send_hook.set(Box::new(hook)).is_ok(), "the send hook is set");
    }

    /// Puts a hypervisor under the machine. Once.
    ///
    /// # Panics
    /// When there is one.
    pub fn set_hypervisor(&self, hypervisor: impl Hypervisor + 'static) {
        assert!(
            self.core.hypervisor.set(Box::new(hypervisor)).is_ok(),
            "there is a hypervisor"
        );
    }

    /// Time to enter and leave an interrupt handler, together, cycles.
    pub fn interrupt_entry_exit(&self) -> u64 {
        (self.core.costs.interrupt_entry + self.core.costs.interrupt_exit) / TICKS_PER_CYCLE
    }

    /// Raises an interrupt that arrives at `cpu` at `at`, cycles.
    pub fn raise(&self, cpu: usize, at: u64) {
        self.core.raise(cpu, at * TICKS_PER_CYCLE, NEVER);
    }

    /// Runs `call` on the host at `at` (cycles), before any CPU acts at that time.
    pub fn at(&self, at: u64, call: impl FnOnce() + 'static) {
        self.core.at(at * TICKS_PER_CYCLE, Box::new(call));
    }

    /// Moves `value` into simulated memory, on cache lines of its own.
    ///
    /// # Panics
    /// When the arena is full.
    pub fn alloc<T>(&self, value: T) -> Shared<T> {
        Shared::new(&self.region, value)
    }

    /// As [`alloc`](Self::alloc), but never dropped.
    ///
    /// # Safety
    /// The reference must not be used after the machine is dropped, whose drop runs the destructors of the values on
    /// the CPUs' stacks.
    pub unsafe fn alloc_static<T>(&self, value: T) -> &'static T {
        // SAFETY: initialised by `place`; valid as long as the caller promises to use it.
        unsafe { self.region.place(value).as_ref() }
    }

    /// As [`alloc_static`](Self::alloc_static), for an array made by `make`.
    ///
    /// # Safety
    /// As [`alloc_static`](Self::alloc_static).
    pub unsafe fn alloc_static_slice<T>(&self, count: usize, mut make: impl FnMut() -> T) -> &'static mut [T] {
        // SAFETY: all initialised by `place_slice`, because a range is never shorter than it says; valid while the
        // caller keeps its promise.
        unsafe { self.region.place_slice((0..count).map(|_| make())).as_mut() }
    }

    /// Reserves `count` cache lines that hold no words, for [`read_line`] and its like.
    ///
    /// # Panics
    /// When the arena is full.
    pub fn alloc_lines(&self, count: usize) -> LineId {
        LineId(
            self.core
                .lines
                .of(self.region.reserve(count * LINE, LINE).as_ptr() as usize),
        )
    }

    /// Runs until every task returned, `progress` returns false, or no task can continue. `deadline`, cycles, is when
    /// [`stop_requested`] turns true. Afterwards every buffered store is visible.
    ///
    /// # Panics
    /// When a task panics: with its message and the CPU's number.
    pub fn run(&mut self, deadline: u64, mut progress: impl FnMut(Progress) -> bool) -> Outcome {
        let core = &*self.core;
        core.deadline.set(deadline.saturating_mul(TICKS_PER_CYCLE));
        core.cpus.iter().for_each(|cpu| cpu.deadline_seen.set(false));
        let _installed = Installed::new(core);
        let outcome = catch_unwind(AssertUnwindSafe(|| core.run(&mut progress)));
        let id = core.cpu().id();
        let on_cpu = core.on_cpu();
        let clock = core.cpu().clock.get() / TICKS_PER_CYCLE;
        core.leave();
        match outcome {
            Ok(outcome) => {
                core.drain_until(NEVER - 1);
                outcome
            }
            Err(panic) if on_cpu => {
                let text = panic.downcast_ref::<String>().map(String::as_str);
                let text = text
                    .or(panic.downcast_ref::<&str>().copied())
                    .unwrap_or("a panic without a message");
                panic!("CPU {id} panicked at cycle {clock}: {text}");
            }
            Err(panic) => resume_unwind(panic),
        }
    }

    /// Counts and times since the last reset.
    pub fn statistics(&self) -> Statistics {
        self.core.statistics()
    }

    /// Charged operations since the machine was made.
    pub fn events(&self) -> u64 {
        self.core.events.get()
    }

    /// Virtual time of the last turn, cycles.
    pub fn time(&self) -> u64 {
        self.core.time.get() / TICKS_PER_CYCLE
    }
}

impl std::fmt::Debug for Machine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Machine")
            .field("cpus", &(self.core.cpus.len() - 1))
            .field("time", &self.time())
            .finish()
    }
}

impl Drop for Machine {
    /// Ends tasks that did not return by unwinding their stacks. Destructors run; operations on words still work, but
    /// cost no time and never wait.
    fn drop(&mut self) {
        let core = &*self.core;
        let _installed = Installed::new(core);
        core.leave();
        core.drain_until(NEVER - 1);
        core.dying.set(true);
        for cpu in &core.cpus {
            cpu.set_slow(SLOW_HOST, true);
        }
        for cpu in &core.cpus {
            // SAFETY: no task runs, and a task that unwinds does not touch its own slot.
            let task = unsafe { &mut *cpu.task.get() };
            if let Some(task) = task.as_mut().filter(|task| !task.done()) {
                core.current.set(cpu);
                task.force_unwind();
                core.leave();
            }
            *task = None;
        }
        core.drop_parked();
    }
}
