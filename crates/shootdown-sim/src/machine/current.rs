//! The functions that code on a simulated CPU calls: they act on the machine that runs on this host thread.
//!
//! Unless said otherwise each panics when no machine is installed on the thread. Those that charge are points at which
//! a due, unmasked interrupt is taken.

use super::account::Statistics;
use super::config::{NEVER, TICKS_PER_CYCLE};
use super::cpu::Cpu;
use super::lines::LineId;
use super::record::Core;
use super::store_buffer::Target;
use rand_xoshiro::rand_core::Rng;
use std::cell::Cell;

thread_local! {
    static INSTALLED: Cell<*const Core> = const { Cell::new(std::ptr::null()) };
}

/// The machine installed on this host thread.
#[inline]
pub(crate) fn try_core<'a>() -> Option<&'a Core> {
    // SAFETY: `Installed` keeps the pointer valid while it is set; callers use the reference only within one
    // call, during which the machine cannot be dropped since it is borrowed by `run` or by its own drop.
    unsafe { INSTALLED.get().as_ref() }
}

#[inline]
pub(crate) fn core<'a>() -> &'a Core {
    match try_core() {
        Some(core) => core,
        None => panic!("no simulated machine runs on this thread"),
    }
}

/// Installs a machine for the lifetime of the value.
pub(crate) struct Installed(*const Core);

impl Installed {
    pub(crate) fn new(core: &Core) -> Self {
        Installed(INSTALLED.replace(core))
    }
}

impl Drop for Installed {
    fn drop(&mut self) {
        INSTALLED.set(self.0);
    }
}

/// The running CPU, after all events due at its time; `None` on the host.
fn synced(core: &Core) -> Option<&Cpu> {
    let cpu = core.cpu();
    if !core.on_cpu() {
        return None;
    }
    cpu.count();
    core.sync(cpu);
    core.on_cpu().then_some(cpu)
}

/// Whether the caller is on a simulated CPU. Never panics.
pub fn on_cpu() -> bool {
    try_core().is_some_and(Core::on_cpu)
}

/// The next read-modify-write of this CPU is its answer to a cross-CPU call. It costs what a store to a line costs that
/// the CPU holds.
pub fn answers_in_own_line() {
    core().cpu().answers.set(true);
}

/// Number of the CPU that the caller runs on; the number of CPUs when it runs on the host (a timer).
#[inline]
pub fn cpu() -> usize {
    core().cpu().id()
}

/// Number of the socket of the CPU that the caller runs on; 0 on the host.
pub fn socket() -> usize {
    let core = core();
    (core.place(core.cpu().name) >> 32) as usize
}

/// Virtual time of this CPU (on the host: of the machine), cycles.
#[inline]
pub fn now() -> u64 {
    now_ticks() / TICKS_PER_CYCLE
}

/// As [`now`], in ticks of 1/16 cycle.
#[inline]
pub fn now_ticks() -> u64 {
    let core = core();
    if core.on_cpu() {
        core.cpu().clock.get()
    } else {
        core.time.get()
    }
}

/// Lets `cycles` pass on this CPU, more while an SMT sibling is active. An interrupt that arrives meanwhile is served
/// at its arrival.
#[inline]
pub fn charge(cycles: u64) {
    core().charge(cycles * TICKS_PER_CYCLE);
}

/// As [`charge`], in ticks of 1/16 cycle.
#[inline]
pub fn charge_ticks(ticks: u64) {
    core().charge(ticks);
}

/// Lets time pass on this CPU until `at` (cycles). It waits for an event with its own time, independent of its
/// siblings. An interrupt that arrives meanwhile is served at its arrival, within that time.
#[inline]
pub fn pass_until(at: u64) {
    core().pass_until(at * TICKS_PER_CYCLE);
}

/// Returns when `condition` holds, blocking on the words that it read. Time passes as spinning. Interrupts are taken
/// if unmasked; if masked, an arrival evaluates the condition again, which may serve requests itself.
pub fn wait_until(condition: impl FnMut() -> bool) {
    core().wait_until(condition);
}

/// As [`wait_until`], but at most until `until`, cycles: whether the condition holds. Until then it is evaluated again
/// only after a change of a word that it read, an interrupt or an exit.
pub fn wait_until_or(until: u64, condition: impl FnMut() -> bool) -> bool {
    core().wait(until.saturating_mul(TICKS_PER_CYCLE), condition)
}

/// `cpu` leaves the guest at `at` (cycles), at its first instruction from then on, and calls the hypervisor.
pub fn request_exit(cpu: usize, at: u64) {
    core().request_exit(cpu, at.saturating_mul(TICKS_PER_CYCLE));
}

/// Whether `cpu` has an interrupt pending, as the hypervisor sees it.
pub fn interrupt_pending(cpu: usize) -> bool {
    core().cpus[cpu].irq_at.get() <= now_ticks()
}

/// Idles until [`wake`] (one before the sleep counts), or once until the deadline passes. Interrupts are served.
pub fn sleep() {
    core().sleep();
}

/// How long `cpu` has slept, cycles, if its SMT siblings do nothing either; else 0.
pub fn core_sleep(cpu: usize) -> u64 {
    let core = core();
    core.core_sleep(&core.cpus[cpu], now_ticks()) / TICKS_PER_CYCLE
}

/// How long the core had slept when this interrupt ended its sleep, cycles: see [`core_sleep`]. 0 for a further
/// interrupt, and where an interrupt ended no sleep.
pub fn ended_core_sleep() -> u64 {
    core().cpu().core_slept.replace(0) / TICKS_PER_CYCLE
}

/// Wakes `cpu` `after` cycles from now, not before this CPU's earlier stores are visible.
pub fn wake(cpu: usize, after: u64) {
    core().wake(cpu, after * TICKS_PER_CYCLE);
}

/// Moves the running task to CPU `to`, where it continues, not before this CPU's time and with nothing left in this
/// CPU's store buffer; this CPU is left without a task. Not with interrupts off, nor from a condition of
/// [`wait_until`].
///
/// # Panics
/// When `to` has a task that did not return.
pub fn migrate(to: usize) {
    core().migrate(to);
}

/// Parks the running task and continues with task `next` in its place, an added one or the one that this CPU started
/// with; nothing of the task is left in this CPU's store buffer. Returns when the task runs again, perhaps on another
/// CPU. Not with interrupts off, nor from a condition of [`wait_until`].
///
/// # Panics
/// When another CPU runs `next`.
pub fn switch_task(next: usize) {
    core().switch_task(next);
}

/// The running task, which was added, is done: the run no longer waits for it. It must not be switched to again.
pub fn end_task() {
    let unfinished = &core().unfinished;
    unfinished.set(unfinished.get() - 1);
}

/// A point where the running task may be switched: calls the hook given to
/// [`Machine::set_preemption_hook`](super::Machine), if any, unless interrupts are off.
#[inline]
pub fn preemption_point() {
    core().preemption_point();
}

/// Masks interrupts on this CPU; returns what [`interrupts_restore`] needs.
#[inline]
pub fn interrupts_off() -> u64 {
    u64::from(core().set_masked(true))
}

/// Restores the mask that [`interrupts_off`] returned; a pending interrupt is then taken.
#[inline]
pub fn interrupts_restore(saved: u64) {
    core().set_masked(saved != 0);
}

/// Whether interrupts are unmasked on this CPU.
#[inline]
pub fn interrupts_enabled() -> bool {
    !core().cpu().masked.get()
}

/// Raises an interrupt on each of `targets`. This CPU pays for the sending. Does not drain its store buffer.
pub fn send_ipi(targets: impl IntoIterator<Item = usize>) {
    core().send_ipi(targets.into_iter());
}

/// Sends a message through the interrupt controller to each of `targets` without interrupting them. `arrives` is called
/// with each target and the arrival time, cycles. This CPU pays for the sending. Does not drain its store buffer.
pub fn send_message(targets: impl IntoIterator<Item = usize>, mut arrives: impl FnMut(usize, u64)) {
    core().send(targets.into_iter(), |target, _, at| {
        arrives(target, at.div_ceil(TICKS_PER_CYCLE))
    });
}

/// Raises an interrupt that arrives at `cpu` at `at` (cycles), without a sender's cost: a timer or a device.
pub fn raise(cpu: usize, at: u64) {
    core().raise(cpu, at * TICKS_PER_CYCLE, NEVER);
}

/// In a handler: when its sender began to send the first of the interrupts that it was called for, cycles; none where a
/// timer or a device raised them all.
pub fn interrupt_sent() -> Option<u64> {
    let sent = core().cpu().irq_sent.get();
    (sent != NEVER).then_some(sent / TICKS_PER_CYCLE)
}

/// Runs `call` on the host at `at` (cycles), before any CPU acts at that time. It may use the functions of this module
/// that concern the machine, not those that concern a CPU.
pub fn at(at: u64, call: impl FnOnce() + 'static) {
    core().at(at * TICKS_PER_CYCLE, Box::new(call));
}

/// The next 64 random bits of the machine.
#[inline]
pub fn random() -> u64 {
    core().rng.borrow_mut().next_u64()
}

/// A random number below `bound`, which is at least 1.
#[inline]
pub fn random_below(bound: u64) -> u64 {
    core().below(bound)
}

/// True with probability `p`.
#[inline]
pub fn chance(p: f64) -> bool {
    p > 0.0 && ((random() >> 11) as f64) < p * (1u64 << 53) as f64
}

/// Calls `with` with the machine's generator. `with` must not call other functions of this module.
pub fn rng<T>(with: impl FnOnce(&mut rand_xoshiro::Xoshiro256PlusPlus) -> T) -> T {
    with(&mut core().rng.borrow_mut())
}

/// Whether this CPU's time has passed the deadline of the run: workloads check it between operations. A thread that
/// calls it a million times without spending time ends the run (see [`Outcome::Runaway`](super::Outcome::Runaway)).
#[inline]
pub fn stop_requested() -> bool {
    let core = core();
    core.count_stop_check();
    now_ticks() >= core.deadline.get()
}

/// Removes the deadline: the run continues until the progress callback ends it.
pub fn never_stop() {
    core().deadline.set(NEVER);
}

/// Sets the category (below 16) of this CPU's time from here on; returns the old one.
#[inline]
pub fn set_category(category: u8) -> u8 {
    core().set_category(category)
}

/// The category that this CPU's time counts to.
#[inline]
pub fn category() -> u8 {
    core().cpu().category.get()
}

/// Counts and times since the last reset.
pub fn statistics() -> Statistics {
    core().statistics()
}

/// Resets all counts and times: the end of the warm-up.
pub fn reset_statistics() {
    core().reset_statistics();
}

/// The line of an address in simulated memory; all other addresses share one line.
#[inline]
pub fn line_of<T>(place: *const T) -> LineId {
    LineId(core().lines.of(place as usize))
}

/// Charges a read of a line; a `wait_until` condition that calls it waits on the line.
pub fn read_line(line: LineId) {
    let core = core();
    let cpu = core.cpu();
    if !core.on_cpu() {
        return;
    }
    cpu.count();
    if !core.near(cpu, line.0) {
        core.sync(cpu);
    }
    core.read_line(cpu, line.0);
}

/// Charges a plain, unbuffered write of a line without a value, and wakes its waiters.
pub fn write_line(line: LineId) {
    let core = core();
    if let Some(cpu) = synced(core) {
        core.gain_line(cpu, line.0, 0);
        core.changed(cpu, line.0, cpu.clock.get());
    }
}

/// Charges a read-modify-write of a line, a full barrier, and wakes its waiters.
pub fn modify_line(line: LineId) {
    let core = core();
    let cpu = core.cpu();
    if core.on_cpu() {
        core.prepare_modify(cpu, line.0);
        core.changed(cpu, line.0, cpu.clock.get());
    }
}

/// Puts a store of `b` to `a`, in the caller's meaning, on `line`, into this CPU's store buffer, in order with its
/// other stores. When it becomes visible the kernel's store hook is called with `(a, b)`. On the host, where the last
/// kernel's is called: at once.
pub fn store_other(line: LineId, a: u64, b: u64) {
    let core = core();
    if core.on_cpu() {
        core.store_to(core.cpu(), line.0, Target::Other(a), b);
    } else {
        core.store_becomes_visible(core.cpu(), a, b);
    }
}

/// What this CPU last stored to `a` by [`store_other`], if that is not visible yet. Free of charge.
#[inline]
pub fn pending_other(a: u64) -> Option<u64> {
    let core = core();
    core.forwarded(core.cpu(), Target::Other(a))
}

/// Waits until this CPU's stores are visible, as a serialising instruction (a root load) does.
#[inline]
pub fn drain_stores() {
    let core = core();
    core.drain_own(core.cpu());
}

/// Synchronises this CPU with all others before it touches shared state that is not a word, free of charge. Afterwards
/// stores due by now are visible and interrupts due are taken.
#[inline]
pub fn synchronise() {
    let core = core();
    core.sync(core.cpu());
}
