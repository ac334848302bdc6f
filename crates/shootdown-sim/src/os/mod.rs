//! The simulated kernel between a workload and the engine.
//!
//! Shaped after Linux's memory management as far as translation coherence is concerned. It owns its own costs (from the
//! machine model), the locks whose contention matters, and the calls into the engine. It may not access internals of
//! the engine or the oracle.

mod advice;
pub mod category;
mod counts;
mod decision_log;
mod entries;
mod exit;
mod fault;
mod flush;
mod fork;
mod hook_costs;
mod hooks;
mod host;
mod hypervisor;
mod idle;
mod interrupted;
mod isa;
mod kernel_entry;
mod kernel_pages;
mod latency;
mod lock;
mod lru;
mod mapping;
mod migrate;
mod nmi;
mod preemption;
mod process;
mod protect;
mod quarantine;
mod reclaim;
mod recorded_flush;
mod region_access;
mod region_lock;
mod regions;
mod remote;
mod rwsem;
mod scheduler;
mod share;
mod speculation;
mod split;
mod stacks;
mod ticks;
mod walk;

pub use counts::{Answers, EngineCounts, Roots};
pub use decision_log::{DecisionLog, Note, Requests};
pub use hook_costs::{HookCosts, RemoteCosts};
pub use hooks::SimKernel;
pub use host::{HostConfig, Spinning};
pub use idle::IdleStates;
pub use interrupted::{Hit, Interrupted};
pub use kernel_pages::{KERNEL_BASE, KernelPages};
pub use latency::{BYSTANDERS, DISTURBANCE, Distribution, Latencies, Recorder};
pub use lock::{Access as LockAccess, SpinLock};
pub use mapping::Mapping;
pub use preemption::Preemption;
pub use process::{PAGE, Process, USER_BASE, run_thread};
pub use rwsem::ThreadId;
pub use rwsem::{SleepCosts, SleepLock};
pub use scheduler::{Priority, Scheduler};
pub use share::File;
pub use walk::PageReferences;

use crate::hw::{Entry, Hw, Stamp};
use crate::machine::activity::{What, engine_state, note};
use crate::machine::{self, LineId, Machine, Shared, SimWord, SimWorld};
use category::Category;
use shootdown::{Ack, Design, Engine, PerCpu, Reach, Root, Space, Storage, Word, tag_words};
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::VecDeque;
use std::ops::Range;
use std::rc::Rc;

/// Costs of the kernel model, cycles; see `[kernel]` of the machine files.
#[derive(Debug, Clone, Default)]
#[allow(missing_docs)]
pub struct OsCosts {
    /// Including `isolation`, as `fault` does.
    pub syscall: u64,
    pub fault: u64,
    /// Page-table isolation: both root loads of an interrupt from user mode.
    pub isolation: u64,
    pub page_alloc: u64,
    pub page_zero: u64,
    pub page_free: u64,
    pub map_entry: u64,
    pub unmap_entry: u64,
    pub madvise: u64,
    pub mmap: u64,
    pub munmap: u64,
    pub lru_add: u64,
    pub lru_hold: u64,
    pub lru_page: u64,
    pub around_page: u64,
    pub idle: IdleStates,
    pub user_access: u64,
    pub sleep: u64,
    pub wake: u64,
    pub wake_latency: u64,
    pub switch: u64,
    /// A length of time, for limits that the kernel sets in microseconds; not a cost.
    pub microsecond: u64,
}

/// Settings of the kernel that are not costs.
#[derive(Debug, Clone, Copy, Default)]
pub struct OsSettings {
    /// Every `madvise` drains the CPU's LRU batch.
    pub lru_drain: bool,
    /// Invalidation is perfect and free: the design `ideal`.
    pub ideal: bool,
    /// Faults take the lock of their region instead of the address-space lock.
    pub region_faults: bool,
    /// `madvise` does too.
    pub region_drops: bool,
    /// An unmap that ends while another one of its process is in progress flushes the whole space.
    pub nested_flushes: bool,
    /// LRU locks: one for each socket, or one for all; 0 is one.
    pub lru_locks: usize,
    /// New pages that a CPU collects before it puts them on the LRU list; 0 is one.
    pub lru_batch: usize,
}

/// A page-table store in some store buffer.
#[derive(Debug, Clone, Copy)]
struct PendingStore {
    value: Entry,
    issued: Stamp,
}

/// Stores in progress, by number.
#[derive(Debug, Default)]
struct PendingStores {
    stores: Vec<PendingStore>,
    free: Vec<u32>,
}

impl PendingStores {
    fn put(&mut self, store: PendingStore) -> u32 {
        match self.free.pop() {
            Some(number) => {
                self.stores[number as usize] = store;
                number
            }
            None => {
                self.stores.push(store);
                self.stores.len() as u32 - 1
            }
        }
    }

    fn take(&mut self, number: u32) -> PendingStore {
        self.free.push(number);
        self.stores[number as usize]
    }
}

impl std::ops::Index<usize> for PendingStores {
    type Output = PendingStore;
    fn index(&self, number: usize) -> &PendingStore {
        &self.stores[number]
    }
}

/// First step of every interrupt.
type OnInterrupt = Rc<RefCell<Vec<Box<dyn Fn()>>>>;

/// One simulated kernel on one machine: the engine, the hardware under it, and the kernel's own state.
pub struct System<const W: usize> {
    /// The engine; lives in simulated memory.
    pub engine: &'static Engine<'static, SimKernel, W>,
    /// The translation hardware and the oracle.
    pub hw: Rc<RefCell<Hw>>,
    /// Costs.
    pub costs: OsCosts,
    /// Settings.
    pub settings: OsSettings,
    stores: Rc<RefCell<PendingStores>>,
    on_interrupt: OnInterrupt,
    after_interrupt: OnInterrupt,
    /// The CPUs of the machine that this kernel runs on.
    own_cpus: OnceCell<Range<usize>>,
    host: OnceCell<Rc<host::Host>>,
    sharing: RefCell<share::Sharing>,
    /// The highest process number so far.
    numbers: Cell<u32>,
    /// Memory of processes that ended, for reuse.
    spare: RefCell<Vec<process::Memory>>,
    /// The engine's spaces of processes that ended, where their number is not bounded.
    spare_spaces: RefCell<Vec<Shared<Space<SimWorld, W>>>>,
    /// Sections without preemption, and the latencies of the run.
    pub preemption: Rc<Preemption>,
    /// The scheduler of threads, if there are more than one on each CPU.
    scheduler: OnceCell<Rc<Scheduler<W>>>,
    /// One for each socket, or one for the machine.
    lru: Vec<lru::Lru>,
    lru_batches: Vec<RefCell<lru::Batch>>,
    spin_nodes: Rc<[Shared<SimWord>]>,
    /// Table pages that are unlinked and flushed, and wait for the end of walks; in the order of their grace periods.
    waiting_tables: RefCell<VecDeque<walk::WaitingTable>>,
    tables_freed: Cell<u64>,
    faults: Cell<u64>,
    /// Quarantined ranges and frames of deferred unmaps, oldest first.
    quarantine: RefCell<VecDeque<quarantine::Quarantined>>,
    /// Processes and ranges that are off that list and not yet freed.
    leaving_quarantine: RefCell<Vec<(u32, std::ops::Range<u64>)>>,
    ticks: OnceCell<ticks::Ticks>,
    machine: *const Machine,
}

impl<const W: usize> Drop for System<W> {
    fn drop(&mut self) {
        // SAFETY: made in `new`, moved into simulated memory, and dropped only here. No code calls the engine any
        // longer: the tasks, which hold this system, are gone, and without them no interrupt is taken.
        unsafe { std::ptr::drop_in_place(std::ptr::from_ref(self.engine).cast_mut()) };
    }
}

impl<const W: usize> System<W> {
    /// A kernel on `machine`, with all CPUs off. Sets the machine's interrupt handler and store hook.
    ///
    /// # Panics
    /// When the design does not fit the machine (see [`Engine::new`]).
    pub fn new(
        machine: &Machine,
        hw: Hw,
        hooks: HookCosts,
        design: Design,
        costs: OsCosts,
        settings: OsSettings,
    ) -> Rc<Self> {
        let cpus = hw.config().cpus;
        let kernel_root = Root(u64::from(hw.root(0)));
        let hw = Rc::new(RefCell::new(hw));
        let preemption = Rc::new(Preemption::new(cpus, hooks.ghz));
        // SAFETY: the engine and its storage are used by tasks of this machine and through this `System` only, whose
        // users keep the machine alive longer (`run` and the tests drop the machine last).
        let engine: &'static Engine<'static, SimKernel, W> = unsafe {
            let per_cpu = machine.alloc_static_slice(cpus, PerCpu::<SimWorld>::new);
            engine_state(per_cpu.as_ptr() as usize, size_of::<PerCpu<SimWorld>>(), cpus);
            let tags = machine.alloc_static_slice(tag_words(design.machine.tag_limit), || SimWord::new(0));
            let kernel = SimKernel::new(hw.clone(), hooks, cpus, preemption.clone());
            kernel.has_remote_actions::<W>(machine, cpus);
            machine.alloc_static(Engine::new(
                kernel,
                design,
                kernel_root,
                Storage { cpus: per_cpu, tags },
            ))
        };
        let stores: Rc<RefCell<PendingStores>> = Rc::default();
        let spin_nodes: Rc<[Shared<SimWord>]> = (0..cpus).map(|_| machine.alloc(SimWord::new(0))).collect();
        let on_interrupt = OnInterrupt::default();
        let after_interrupt = OnInterrupt::default();
        let system = Rc::new(System {
            engine,
            hw: hw.clone(),
            costs,
            settings,
            stores: stores.clone(),
            on_interrupt: on_interrupt.clone(),
            after_interrupt: after_interrupt.clone(),
            own_cpus: OnceCell::new(),
            host: OnceCell::new(),
            sharing: RefCell::default(),
            numbers: Cell::new(0),
            spare: RefCell::default(),
            spare_spaces: RefCell::default(),
            scheduler: OnceCell::new(),
            lru: (0..settings.lru_locks.max(1))
                .map(|_| lru::Lru::new(SpinLock::new(machine, spin_nodes.clone(), preemption.clone())))
                .collect(),
            preemption: preemption.clone(),
            lru_batches: (0..cpus).map(|_| RefCell::default()).collect(),
            spin_nodes,
            waiting_tables: RefCell::default(),
            tables_freed: Cell::new(0),
            faults: Cell::new(0),
            quarantine: RefCell::default(),
            leaving_quarantine: RefCell::default(),
            ticks: OnceCell::new(),
            machine,
        });
        let handled = hw.clone();
        if let Some(barrier) = isa::barrier(&hw) {
            machine.set_barrier_hook(barrier);
        }
        let idle = system.costs.idle;
        let isolation = system.costs.isolation;
        let interrupt_entry_exit = machine.interrupt_entry_exit();
        let stacks = stacks::Stacks::new(cpus);
        let handle = move || {
            on_interrupt.borrow().iter().for_each(|first| first());
            let begun = machine::now();
            let outer = category::enter(Category::FlushTarget);
            if outer == Category::Idle as u8 {
                machine::charge(idle.exit_after(machine::ended_core_sleep()));
            }
            let isolated = isolation > 0 && outer == Category::User as u8;
            if isolated {
                machine::charge(isolation / 2);
            }
            {
                let mut hw = handled.borrow_mut();
                hw.exception_taken(machine::cpu(), machine::now());
                if engine.policy().ack == Ack::Early {
                    hw.answers(machine::cpu());
                }
            }
            engine.kernel().may_speculate();
            let sent = machine::interrupt_sent();
            let before = engine.kernel().own_answers();
            let _frame = stacks.push(machine::cpu());
            // SAFETY: the machine masks interrupts before it calls a handler, and a CPU's coroutine is that CPU.
            unsafe { engine.on_ipi() };
            let answers = engine.kernel().own_answers();
            // The handler may have loaded another tag.
            handled.borrow_mut().caught_up(machine::cpu(), machine::now());
            if let Some(sent) = sent.filter(|_| answers != before) {
                preemption.latencies.answer.record(machine::now() - sent);
            }
            if isolated {
                machine::charge(isolation - isolation / 2);
            }
            category::leave(outer);
            let took = machine::now() - begun + interrupt_entry_exit;
            preemption.latencies.disturbance.record(took);
            if sent.is_none() {
                // From a timer or a device: not a shootdown.
                return;
            }
            let concerned = (answers.flushed, answers.current) != (before.flushed, before.current);
            let hit = Hit::of(outer, concerned);
            preemption.interrupted.add(hit, took);
            if hit == Hit::Bystander {
                preemption.latencies.bystanders.record(took);
            }
        };
        let own_cpus = machine.set_interrupt_handler(move || {
            handle();
            after_interrupt.borrow().iter().for_each(|last| last());
        });
        assert!(system.own_cpus.set(own_cpus).is_ok(), "set once");
        machine.set_store_hook(move |key, number| {
            let PendingStore { value, issued } = stores.borrow_mut().take(number as u32);
            hw.borrow_mut()
                .set_entry((key >> 9) as u32, (key & 511) as u32, value, issued, machine::now());
        });
        system
    }

    /// Sets a callback that every interrupt runs before the shootdown handler, with interrupts masked, like a
    /// scheduler's timer or a device. It runs after earlier callbacks; set it before the run.
    pub fn on_interrupt(&self, hook: impl Fn() + 'static) {
        self.on_interrupt.borrow_mut().push(Box::new(hook));
    }

    fn machine(&self) -> &Machine {
        // SAFETY: set in `new` from a reference to a machine that outlives this value (see there).
        unsafe { &*self.machine }
    }

    pub(crate) fn allocate<T>(&self, value: T) -> Shared<T> {
        self.machine().alloc(value)
    }

    fn allocate_lines(&self, count: usize) -> LineId {
        self.machine().alloc_lines(count)
    }

    /// A new process; before the run or from a task.
    pub fn process(&self, number: u32, bytes: u64) -> Rc<Process<W>> {
        Rc::new(Process::new(self, number, bytes))
    }

    /// The number of the next process: an unused one, or that of a process that ended long ago. Each call needs its
    /// process.
    pub fn next_number(&self) -> u32 {
        let spare = self.hw.borrow_mut().spare_space();
        spare.unwrap_or(self.numbers.get() + 1)
    }

    /// The memory of an ended process, if it had that many lowest-level tables.
    fn spare_memory(&self, tables: usize) -> Option<process::Memory> {
        let mut spare = self.spare.borrow_mut();
        let fits = spare.iter().position(|memory| memory.table_locks.len() == tables)?;
        Some(spare.swap_remove(fits))
    }

    /// Moves a space into simulated memory, reusing that of a released space without holders.
    fn place_space(&self, space: Space<SimWorld, W>) -> Shared<Space<SimWorld, W>> {
        let spare = self.spare_spaces.borrow_mut().pop();
        let Some(spare) = spare else {
            return self.allocate(space);
        };
        spare.renew(space).unwrap_or_else(|space| self.allocate(space))
    }

    /// Releases the memory of the engine's space of an ended process; the caller is its last holder.
    pub fn reuse_space(&self, process: Rc<Process<W>>) {
        if let Ok(process) = Rc::try_unwrap(process) {
            self.spare_spaces.borrow_mut().push(process.space);
        }
    }

    /// Turns this CPU on.
    pub fn online(&self) {
        let saved = machine::interrupts_off();
        self.host_comes();
        self.hw.borrow_mut().set_online(machine::cpu(), true);
        self.engine.kernel().remote_online::<W>();
        self.engine.cpu_online();
        self.hw.borrow_mut().came_online(machine::cpu(), machine::now());
        self.ticks_come_online();
        machine::interrupts_restore(saved);
    }

    /// Lets the engine measure the cost of reaching other CPUs, once `cpus` are online. Without effect if the design
    /// does not use it.
    pub fn calibrate(&self, cpus: usize) {
        if self.engine.policy().reach != Reach::Adaptive {
            return;
        }
        machine::wait_until(|| self.engine.online().len() >= cpus);
        let _costs = self.engine.calibrate();
    }

    /// Turns this CPU off.
    pub fn offline(&self) {
        let saved = machine::interrupts_off();
        // From here on it touches neither user nor dynamic kernel addresses: no flush has to wait for it (C5).
        self.hw.borrow_mut().set_online(machine::cpu(), false);
        self.ticks_go_offline();
        self.engine.cpu_offline();
        self.engine.kernel().remote_offline::<W>();
        self.host_goes();
        machine::interrupts_restore(saved);
    }

    /// Loads a process's space on this CPU.
    pub fn load(&self, process: &Process<W>) {
        let outer = category::enter(Category::Switch);
        // SAFETY: processes live as long as the machine runs, or are retired first.
        unsafe { self.engine.switch_to(&process.space) };
        self.now_in_user();
        self.set_idle_for_ticks(false);
        category::leave(outer);
    }

    /// Loads the kernel's own root.
    pub fn unload(&self) {
        let outer = category::enter(Category::Switch);
        self.engine.switch_to_kernel();
        category::leave(outer);
    }

    /// This CPU runs kernel code only from here on.
    pub fn go_lazy(&self) {
        // The promise first: an interrupt may come between the two.
        self.hw.borrow_mut().set_lazy(machine::cpu(), true);
        note(|| What::LazyEnters);
        self.engine.enter_lazy();
        self.set_idle_for_ticks(true);
    }

    /// Back to user code of `process` after [`go_lazy`](Self::go_lazy).
    pub fn resume(&self, process: &Process<W>) {
        let outer = category::enter(Category::Switch);
        // SAFETY: as in `load`.
        unsafe { self.engine.leave_lazy(&process.space) };
        self.now_in_user();
        self.set_idle_for_ticks(false);
        note(|| What::LazyLeaves);
        category::leave(outer);
    }

    /// From here on this CPU may touch user addresses: the oracle checks that it has caught up.
    pub(super) fn now_in_user(&self) {
        machine::synchronise();
        let mut hw = self.hw.borrow_mut();
        hw.set_lazy(machine::cpu(), false);
        hw.caught_up(machine::cpu(), machine::now());
    }
}
