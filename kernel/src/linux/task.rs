//! Threads of programs, and the CPU of each.
//!
//! Each CPU has a loop, [`serve`], on its own stack. It takes a task from the queue and switches to the task's kernel
//! stack. It continues when the task waits, ends, or has used its time. Tasks are preempted in user code only; in the
//! kernel they run until they yield. A CPU without a task keeps the last space loaded, in lazy TLB mode.

use super::process::Process;
use super::{futex, inside};
use crate::arch::traps::Frame;
use crate::arch::user::{self, Fpu};
use crate::arch::{controller, interrupts, timer, traps};
use crate::cpu::{self, Cpu, MOST_CPUS};
use crate::lock::Mutex;
use crate::space::AddressSpace;
use crate::{engine, frames, stacks, time};
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cell::{Cell, UnsafeCell};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

/// Bus cycles (nanoseconds, under QEMU) that a task runs before another may: 250 Hz, as Debian's kernels have it.
const TICK: u32 = 4_000_000;

/// Most tasks at a time: their memory must fit in the kernel's heap.
const MOST_TASKS: usize = 1024;

/// A thread.
pub struct Task {
    /// Its process.
    pub process: Arc<Process>,
    /// Number.
    pub id: u32,
    /// User address of a word that is cleared and woken when it ends; 0 for none.
    pub clear_at_end: Cell<u64>,
    /// It has requested its end.
    pub ends: Cell<bool>,
    /// Its wait ended by its time limit. Written by the waker.
    pub timed_out: AtomicBool,
    stack: u64,
    /// Where it continues, while no CPU runs it.
    pointer: Cell<u64>,
    thread_pointer: Cell<u64>,
    fpu: UnsafeCell<Fpu>,
    /// A CPU runs on its stack.
    on_cpu: AtomicBool,
}

// SAFETY: only the CPU that runs the task uses the cells; `on_cpu` hands them over (release when a CPU has left the
// stack, acquire before another enters it).
unsafe impl Sync for Task {}
// SAFETY: as for `Sync`.
unsafe impl Send for Task {}

/// The request of a task that yields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum After {
    /// To continue, at the end of the queue.
    Again,
    /// To continue when it is woken.
    Wait,
    /// To end.
    End,
}

/// The task state of a CPU.
struct Here {
    task: UnsafeCell<Option<Arc<Task>>>,
    /// The stack of its loop.
    pointer: Cell<u64>,
    after: Cell<After>,
    /// The task has used its time.
    ticked: Cell<bool>,
    /// It sleeps, or is about to.
    idle: AtomicBool,
}

// SAFETY: all but `idle` is used only by its own CPU.
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
/// Number of tasks that have not ended.
static LIVE: AtomicUsize = AtomicUsize::new(0);
static NEXT_ID: AtomicU32 = AtomicU32::new(1);
/// Kernel stacks of tasks that have ended.
static STACKS: Mutex<Vec<u64>> = Mutex::new(Vec::new());

fn here() -> &'static Here {
    &HERE[cpu::cpu().id]
}

/// The running task. Its process is reached through it.
pub fn current() -> Arc<Task> {
    // SAFETY: only this CPU changes it, and not while the task runs.
    let task = unsafe { &*here().task.get() };
    task.clone().expect("called on behalf of a task")
}

/// The running task, if it can be switched: not in a CPU's own work, nor with interrupts masked.
pub fn that_may_sleep() -> Option<Arc<Task>> {
    // SAFETY: as in `current`.
    let task = unsafe { &*here().task.get() };
    task.clone().filter(|_| interrupts::are_enabled())
}

/// The running task, without a reference: for kernel entry and exit, which hold nothing across a switch.
pub fn with_current<T>(body: impl FnOnce(&Task) -> T) -> Option<T> {
    // SAFETY: as in `current`; the task does not end within `body`, which does not yield.
    let task = unsafe { &*here().task.get() };
    task.as_deref().map(body)
}

impl Task {
    /// A new task, which enters user code with `frame`. Not yet queued. `None` when there are too many, or memory is
    /// exhausted.
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
            pointer: Cell::new(stacks::first(stack, frame)),
            thread_pointer: Cell::new(thread_pointer),
            fpu: UnsafeCell::new(fpu),
            on_cpu: AtomicBool::new(false),
        }))
    }

    /// By the task itself: sets its thread pointer.
    pub fn set_thread_pointer(&self, base: u64) {
        self.thread_pointer.set(base);
        user::set_thread_pointer(base);
    }

    /// By the task itself: its thread pointer.
    pub fn thread_pointer(&self) -> u64 {
        user::thread_pointer(self.thread_pointer.get())
    }

    /// By the task itself: saves the state of the floating-point unit.
    pub fn fpu_now(&self) -> Fpu {
        let mut fpu = Fpu::new();
        fpu.save();
        fpu
    }
}

/// An unused number for a task or process.
pub fn next_id() -> u32 {
    NEXT_ID.fetch_add(1, Ordering::Relaxed)
}

/// Makes a task runnable.
pub fn wake(task: Arc<Task>) {
    QUEUE.lock().push_back(task);
    // Pairs with `sleep_if_idle`: it sets idle, then reads the queue; here the queue is filled, then idle is read. Both
    // are locked or SeqCst, so one sees the other.
    core::sync::atomic::fence(Ordering::SeqCst);
    let sleeper = cpu::all()
        .iter()
        .find(|other| HERE[other.id].idle.swap(false, Ordering::SeqCst));
    if let Some(sleeper) = sleeper {
        controller::send([sleeper.id], traps::JOB);
    }
}

/// Interrupts every other CPU, so that each checks the state of its task.
pub fn nudge_all() {
    let me = cpu::cpu().id;
    for other in cpu::all().iter().filter(|other| other.id != me) {
        controller::send([other.id], traps::JOB);
    }
}

/// Blocks the current task until it is woken, possibly at once.
pub fn wait() {
    step_aside(After::Wait);
}

/// Yields to the other tasks.
pub fn give_way() {
    step_aside(After::Again);
}

/// Ends the current task. Its heap objects must be dropped before.
pub fn end() -> ! {
    step_aside(After::End);
    unreachable!("a task that has ended does not go on")
}

fn step_aside(after: After) {
    let were_on = interrupts::are_enabled();
    interrupts::disable();
    let here = here();
    here.after.set(after);
    // SAFETY: `here` holds the task until its loop continues, and the task's stack is left before that.
    let old = unsafe { (*here.task.get()).as_ref() }
        .expect("called on behalf of a task")
        .pointer
        .as_ptr();
    // SAFETY: the loop's stack, left when it switched to the task. Interrupts are off.
    unsafe { stacks::switch(old, here.pointer.get()) };
    // Possibly on another CPU.
    if were_on {
        interrupts::enable();
    }
}

/// The timer interrupt of this CPU. Returns whether it was rearmed, for the running task.
pub fn tick(cpu: &Cpu) -> bool {
    let here = &HERE[cpu.id];
    // SAFETY: only this CPU changes it, and not in a handler.
    let runs = unsafe { (*here.task.get()).is_some() };
    if runs {
        here.ticked.set(true);
        timer::arm(timer::tick(TICK));
    }
    runs
}

/// Before user code continues: ends the task if its process ends, yields if it has used its time. Interrupts are off.
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
    // Acquire. Pairs with the release below; the waker may have been faster than the CPU on which it waits.
    while task.on_cpu.load(Ordering::Acquire) {
        time::relax();
    }
    task.on_cpu.store(true, Ordering::Relaxed);
    task.process.space().enter();
    user::set_thread_pointer(task.thread_pointer.get());
    // SAFETY: no other CPU runs the task.
    unsafe { (*task.fpu.get()).load() };
    cpu.local.set_kernel_stack(task.stack);
    let pointer = task.pointer.get();
    // SAFETY: this CPU's own, and no task is running.
    unsafe { *here.task.get() = Some(task) };
    here.ticked.set(false);
    timer::arm(timer::tick(TICK));
    // SAFETY: the task's stack was left or prepared, and `on_cpu` has excluded other CPUs. Interrupts are off.
    unsafe { stacks::switch(here.pointer.as_ptr(), pointer) };
    // The process may end with the task; its root stays loaded here, in lazy TLB mode, until the engine unloads it.
    cpu.space.set(None);
    // SAFETY: the task has left its stack.
    let task = unsafe { (*here.task.get()).take() }.expect("a task was here");
    // SAFETY: as above.
    unsafe { (*task.fpu.get()).save() };
    task.thread_pointer.set(task.thread_pointer());
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

/// Bus cycles (nanoseconds, under QEMU) until a wait times out, at most a second; 0 without a limit. If a cycle is
/// shorter the CPU wakes too early, and checks again; if it is longer a wait lasts longer, which is allowed.
fn until_limit() -> u32 {
    match futex::next_limit() {
        futex::NEVER => 0,
        limit => limit.saturating_sub(time::now_ns()).clamp(1, 1_000_000_000) as u32,
    }
}

fn sleep_if_idle(here: &Here) {
    engine().enter_lazy();
    here.idle.store(true, Ordering::SeqCst);
    // Pairs with `wake` and with the end of the last task: sets idle, then checks. An interrupt that arrives after the
    // check ends the sleep, because the sleep itself unmasks interrupts.
    if QUEUE.lock().is_empty() && LIVE.load(Ordering::SeqCst) > 0 {
        timer::arm(until_limit());
        time::sleep();
    }
    here.idle.store(false, Ordering::SeqCst);
}
