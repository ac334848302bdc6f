//! Threads of programs, and which CPU runs which.
//!
//! Each CPU has a loop, [`serve`], on a stack of its own: it takes a task from the queue, switches to the task's kernel
//! stack, and comes back when the task waits, ends, or has had its time. Tasks are interrupted in user code only; in
//! the kernel they go on until they step aside themselves. A CPU without a task keeps the last space loaded, lazily.

use super::process::Process;
use super::{futex, inside};
use crate::arch::traps::Frame;
use crate::arch::user::{self, Fpu};
use crate::arch::{controller, interrupts, timer, traps};
use crate::cpu::{self, Cpu, MOST_CPUS};
use crate::lock::Mutex;
use crate::space::AddressSpace;
use crate::{engine, frames, time};
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cell::{Cell, UnsafeCell};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

/// Bus cycles (nanoseconds, under QEMU) that a task runs before another may: 250 Hz, as Debian's kernels have it.
const TICK: u32 = 4_000_000;

/// Most of them at a time: what comes with each must fit in the kernel's heap.
const MOST_TASKS: usize = 1024;

/// A thread.
pub struct Task {
    /// What it belongs to.
    pub process: Arc<Process>,
    /// Number.
    pub id: u32,
    /// User address of a word that is cleared and woken when it ends; 0 for none.
    pub clear_at_end: Cell<u64>,
    /// It has asked to end.
    pub ends: Cell<bool>,
    /// Its wait ended because its time was over. Written by whoever wakes it.
    pub timed_out: AtomicBool,
    stack: u64,
    /// Where it goes on, while no CPU runs it.
    pointer: Cell<u64>,
    thread_pointer: Cell<u64>,
    fpu: UnsafeCell<Fpu>,
    /// A CPU is on its stack.
    on_cpu: AtomicBool,
}

// SAFETY: cells are used by the CPU that runs the task only; `on_cpu` hands it over (release when a CPU has left the
// stack, acquire before another enters it).
unsafe impl Sync for Task {}
// SAFETY: as for `Sync`.
unsafe impl Send for Task {}

/// What a task that steps aside wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum After {
    /// To go on, behind the others.
    Again,
    /// To go on when it is woken.
    Wait,
    /// Nothing more.
    End,
}

/// What a CPU runs.
struct Here {
    task: UnsafeCell<Option<Arc<Task>>>,
    /// The stack of its loop.
    pointer: Cell<u64>,
    after: Cell<After>,
    /// The task has had its time.
    ticked: Cell<bool>,
    /// It sleeps, or is about to.
    idle: AtomicBool,
}

// SAFETY: everything but `idle` is its own CPU's.
unsafe impl Sync for Here {}

static HERE: [Here; MOST_CPUS] = [const {
    Here {
        task: UnsafeCell::new(None),
        pointer: Cell::new(0),
        after: Cell::new(After::Wait),
        ticked: Cell::new(false),
        idle: AtomicBool::new(false),
    }
}; MOST_CPUS];

static QUEUE: Mutex<VecDeque<Arc<Task>>> = Mutex::new(VecDeque::new());
/// Tasks that have not ended.
static LIVE: AtomicUsize = AtomicUsize::new(0);
static NEXT_ID: AtomicU32 = AtomicU32::new(1);
/// Kernel stacks of tasks that have ended.
static STACKS: Mutex<Vec<u64>> = Mutex::new(Vec::new());

fn here() -> &'static Here {
    &HERE[cpu::cpu().id]
}

/// The task that runs here. Its process is reached through it.
pub fn current() -> Arc<Task> {
    // SAFETY: only this CPU changes it, and not while the task runs.
    let task = unsafe { &*here().task.get() };
    task.clone().expect("called on behalf of a task")
}

/// The task that runs here, if it may be put aside: not where a CPU does something of its own, or masks interrupts.
pub fn that_may_sleep() -> Option<Arc<Task>> {
    // SAFETY: as in `current`.
    let task = unsafe { &*here().task.get() };
    task.clone().filter(|_| interrupts::are_enabled())
}

/// The task that runs here, without keeping it: for the ways in and out, which hold nothing across a switch.
pub fn with_current<T>(body: impl FnOnce(&Task) -> T) -> Option<T> {
    // SAFETY: as in `current`; the task does not end within `body`, which does not step aside.
    let task = unsafe { &*here().task.get() };
    task.as_deref().map(body)
}

impl Task {
    /// A new one, which enters user code with `frame`. Not yet in the queue. `None` when there are too many, or memory
    /// is out.
    pub fn new(process: Arc<Process>, id: u32, frame: Frame, thread_pointer: u64, fpu: Fpu) -> Option<Arc<Task>> {
        if LIVE.load(Ordering::Relaxed) >= MOST_TASKS {
            return None;
        }
        let left = STACKS.lock().pop();
        let stack = left.or_else(frames::new_stack)?;
        LIVE.fetch_add(1, Ordering::AcqRel);
        process.threads.fetch_add(1, Ordering::AcqRel);
        Some(Arc::new(Task {
            process,
            id,
            clear_at_end: Cell::new(0),
            ends: Cell::new(false),
            timed_out: AtomicBool::new(false),
            stack,
            pointer: Cell::new(user::first_stack(stack, frame)),
            thread_pointer: Cell::new(thread_pointer),
            fpu: UnsafeCell::new(fpu),
            on_cpu: AtomicBool::new(false),
        }))
    }

    /// By the task itself: where its thread is found from now on.
    pub fn set_thread_pointer(&self, base: u64) {
        self.thread_pointer.set(base);
        user::set_thread_pointer(base);
    }

    /// Where its thread is found.
    pub fn thread_pointer(&self) -> u64 {
        self.thread_pointer.get()
    }

    /// By the task itself: what it has in the floating-point unit now.
    pub fn fpu_now(&self) -> Fpu {
        let mut fpu = Fpu::new();
        fpu.save();
        fpu
    }
}

/// A number that no task and no process has.
pub fn next_id() -> u32 {
    NEXT_ID.fetch_add(1, Ordering::Relaxed)
}

/// Lets a task run.
pub fn wake(task: Arc<Task>) {
    QUEUE.lock().push_back(task);
    // Pairs with `sleep_if_idle`: it says idle, then looks at the queue; here the queue is filled, then idle is read.
    // Both locked or SeqCst, so one sees the other.
    core::sync::atomic::fence(Ordering::SeqCst);
    let sleeper = cpu::all()
        .iter()
        .find(|other| HERE[other.id].idle.swap(false, Ordering::SeqCst));
    if let Some(sleeper) = sleeper {
        controller::send([sleeper.id], traps::JOB);
    }
}

/// Interrupts every other CPU, so that each looks at what its task should do.
pub fn nudge_all() {
    let me = cpu::cpu().id;
    for other in cpu::all().iter().filter(|other| other.id != me) {
        controller::send([other.id], traps::JOB);
    }
}

/// Puts the current task aside until it is woken. Whoever wakes it may do so at once.
pub fn wait() {
    step_aside(After::Wait);
}

/// Lets the other tasks run.
pub fn give_way() {
    step_aside(After::Again);
}

/// Ends the current task. What it holds on the heap must be dropped before.
pub fn end() -> ! {
    step_aside(After::End);
    unreachable!("a task that has ended does not go on")
}

fn step_aside(after: After) {
    let were_on = interrupts::are_enabled();
    interrupts::disable();
    let here = here();
    here.after.set(after);
    // SAFETY: `here` holds the task until its loop goes on, and the task's stack is left before that.
    let old = unsafe { (*here.task.get()).as_ref() }
        .expect("called on behalf of a task")
        .pointer
        .as_ptr();
    // SAFETY: the loop's stack, left when it switched to the task. Interrupts are off.
    unsafe { user::switch(old, here.pointer.get()) };
    // Perhaps on another CPU.
    if were_on {
        interrupts::enable();
    }
}

/// The timer has rung on this CPU.
pub fn tick(cpu: &Cpu) {
    let here = &HERE[cpu.id];
    // SAFETY: only this CPU changes it, and not in a handler.
    if unsafe { (*here.task.get()).is_some() } {
        here.ticked.set(true);
        timer::arm(TICK);
    }
}

/// Before user code goes on: ends the task if its process ends, lets others run if it has had its time. Interrupts are
/// off.
pub fn before_user() {
    loop {
        let dying = with_current(|task| task.ends.get() || task.process.is_dying()).unwrap_or(false);
        if dying {
            super::process::end_thread();
        }
        let here = here();
        let ticked = here.ticked.replace(false);
        if ticked {
            futex::expire();
        }
        if !ticked || QUEUE.lock().is_empty() {
            return inside::end();
        }
        give_way();
    }
}

/// Runs tasks on this CPU until none is left. A job for [`smp::on_all`](crate::smp::on_all).
pub fn serve(cpu: &'static Cpu) {
    user::set_up();
    let here = &HERE[cpu.id];
    interrupts::disable();
    while LIVE.load(Ordering::Acquire) > 0 {
        futex::expire();
        let next = QUEUE.lock().pop_front();
        match next {
            Some(task) => run(cpu, here, task),
            None => sleep_if_idle(here),
        }
    }
    timer::arm(0);
    interrupts::enable();
    AddressSpace::leave();
}

fn run(cpu: &'static Cpu, here: &Here, task: Arc<Task>) {
    // Acquire: pairs with the release below; whoever woke it may have been faster than the CPU that it waits on.
    while task.on_cpu.load(Ordering::Acquire) {
        time::relax();
    }
    task.on_cpu.store(true, Ordering::Relaxed);
    task.process.space().enter();
    user::set_thread_pointer(task.thread_pointer.get());
    // SAFETY: nobody else runs the task.
    unsafe { (*task.fpu.get()).load() };
    cpu.local.set_kernel_stack(task.stack);
    let pointer = task.pointer.get();
    // SAFETY: this CPU's own, and no task is here.
    unsafe { *here.task.get() = Some(task) };
    here.ticked.set(false);
    timer::arm(TICK);
    // SAFETY: the task's stack was left or prepared, and `on_cpu` has kept everybody else off. Interrupts are off.
    unsafe { user::switch(here.pointer.as_ptr(), pointer) };
    // The process may end with the task; its root stays loaded here, lazily, for as long as the engine lets it.
    cpu.space.set(None);
    // SAFETY: the task has left its stack.
    let task = unsafe { (*here.task.get()).take() }.expect("a task was here");
    // SAFETY: as above.
    unsafe { (*task.fpu.get()).save() };
    match here.after.get() {
        After::Again => {
            task.on_cpu.store(false, Ordering::Release);
            QUEUE.lock().push_back(task);
        }
        After::Wait => task.on_cpu.store(false, Ordering::Release),
        After::End => {
            STACKS.lock().push(task.stack);
            drop(task);
            if LIVE.fetch_sub(1, Ordering::AcqRel) == 1 {
                nudge_all();
            }
        }
    }
}

/// Bus cycles (nanoseconds, under QEMU) until somebody's wait is over, at most a second; 0 when nobody's will be. Where
/// a cycle is shorter the CPU wakes too early, and asks again; where it is longer a wait lasts longer, as waits may.
fn until_limit() -> u32 {
    match futex::next_limit() {
        futex::NEVER => 0,
        limit => limit.saturating_sub(time::now_ns()).clamp(1, 1_000_000_000) as u32,
    }
}

fn sleep_if_idle(here: &Here) {
    engine().enter_lazy();
    here.idle.store(true, Ordering::SeqCst);
    // Pairs with `wake` and with the end of the last task: said to be idle, then looked. An interrupt that comes after
    // the look ends the sleep, because interrupts come on only with it.
    if QUEUE.lock().is_empty() && LIVE.load(Ordering::SeqCst) > 0 {
        timer::arm(until_limit());
        time::sleep();
    }
    here.idle.store(false, Ordering::SeqCst);
}
