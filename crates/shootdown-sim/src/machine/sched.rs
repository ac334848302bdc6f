//! The scheduler: which CPU runs next, how far a CPU may run ahead, and how a switch works.
//!
//! The invariant that makes results exact: a CPU touches shared state at time T only when no other CPU, buffered store
//! or timer is due before T (minus the slack).

use super::config::NEVER;
use super::cpu::{Cpu, SLOW_HOST, SLOW_RECORDING, State};
use super::record::{Core, Timer};
use super::{Outcome, Progress};
use corosensei::CoroutineResult;

/// How far a CPU runs without competition before the scheduler checks limits, ticks.
const WINDOW: u64 = 1 << 22;

/// Calls of `stop_requested` without spending time after which the run ends: far more than any loop of a workload
/// needs.
const ROUNDS: u32 = 1 << 20;

impl Core {
    /// Recomputes how far the running CPU may go.
    #[inline]
    pub(crate) fn refresh(&self) {
        let cpu = self.cpu();
        if cpu.slow.get() & SLOW_HOST != 0 {
            return;
        }
        let irq = if cpu.masked.get() { NEVER } else { cpu.irq_at.get() };
        let irq = irq.min(cpu.exit_due_at());
        let window = self.window.get();
        let calls = irq.min(self.timer_at.get()).saturating_sub(1).min(window);
        let cap = calls.min(self.drains.next.get().saturating_sub(1));
        let others = self.others.get();
        self.shared_limit.set(others.saturating_add(self.slack).min(cap));
        self.private_limit
            .set(others.saturating_add(self.private_slack).min(cap));
        let drained = self.drains.next.get().saturating_add(self.horizon);
        self.charge_limit
            .set(others.saturating_add(self.horizon).min(calls).min(drained));
    }

    /// Makes a suspended CPU run at `at` if that is earlier than its wake-up.
    #[inline]
    pub(crate) fn wake_no_later(&self, cpu: &Cpu, at: u64) {
        if at < cpu.key.get() {
            cpu.key.set(at);
            self.tree.set(cpu.id(), at);
            if at < self.others.get() {
                self.others.set(at);
                self.refresh();
            }
        }
    }

    /// Gives up the turn until `key`, ticks.
    #[inline(always)]
    pub(crate) fn suspend(&self, cpu: &Cpu, key: u64) {
        cpu.key.set(key);
        // SAFETY: set when the task started, and valid for the lifetime of the task's stack, on which this runs.
        unsafe { (*cpu.yielder.get()).suspend(()) };
    }

    /// Brings the running CPU to a point where it may touch shared state at its clock: others have caught up, stores
    /// due by then are visible, interrupts due are taken.
    ///
    /// The usual switch is inlined into each operation. The host mispredicts every return from a frame that was entered
    /// before a switch, so there should be few.
    #[inline(always)]
    pub(crate) fn sync(&self, cpu: &Cpu) {
        let clock = cpu.clock.get();
        if clock <= self.shared_limit.get() {
            return;
        }
        if clock > self.others.get().saturating_add(self.slack) && self.on_cpu() {
            self.suspend(cpu, clock);
            // The turn has recomputed the limits, to 0 when the machine is being dropped.
            if cpu.clock.get() <= self.shared_limit.get() {
                return;
            }
        }
        self.catch_up(cpu);
    }

    #[inline(never)]
    pub(crate) fn catch_up(&self, cpu: &Cpu) {
        if !self.on_cpu() {
            return;
        }
        loop {
            let clock = cpu.clock.get();
            if clock > self.others.get().saturating_add(self.slack)
                || clock > self.window.get()
                || clock >= self.timer_at.get()
            {
                self.suspend(cpu, clock);
                if self.dying.get() {
                    return;
                }
            } else if self.drains.next.get() <= clock {
                self.drain_until(clock);
            } else if cpu.exit_due() {
                self.take_exit(cpu);
            } else if cpu.interrupt_due() {
                self.take_interrupts(cpu);
            } else {
                // Each of the above has recomputed the limits.
                break;
            }
        }
    }

    /// Lets virtual time pass without touching anything shared; interrupts split it.
    #[inline]
    pub(crate) fn charge(&self, ticks: u64) {
        let cpu = self.cpu();
        cpu.count();
        let rest = cpu.scaled(ticks);
        let end = cpu.clock.get() + rest;
        if end <= self.charge_limit.get() {
            cpu.clock.set(end);
        } else {
            self.long_charge(cpu, rest, None);
            self.preemption_point();
        }
    }

    /// Lets virtual time pass until `at`, ticks. The end is not delayed by siblings, nor by an interrupt that is served
    /// meanwhile.
    pub(crate) fn pass_until(&self, at: u64) {
        let cpu = self.cpu();
        cpu.count();
        let rest = at.saturating_sub(cpu.clock.get());
        if cpu.clock.get() + rest <= self.charge_limit.get() {
            cpu.clock.set(cpu.clock.get() + rest);
        } else {
            self.long_charge(cpu, rest, Some(at));
            self.preemption_point();
        }
    }

    /// Lets `rest` pass, which interrupts split; at most up to `until`.
    #[inline(never)]
    fn long_charge(&self, cpu: &Cpu, mut rest: u64, until: Option<u64>) {
        if !self.on_cpu() {
            return;
        }
        loop {
            let clock = cpu.clock.get();
            let irq = cpu.irq_at.get();
            if cpu.exit_due_at() <= clock + rest {
                let at = cpu.exit_due_at().max(clock);
                rest -= at - clock;
                cpu.clock.set(at);
                self.take_exit(cpu);
                rest = until.map_or(rest, |at| at.saturating_sub(cpu.clock.get()));
            } else if cpu.masked.get() {
                cpu.clock.set(clock + rest);
                break;
            } else if irq <= clock + rest {
                rest -= irq.saturating_sub(clock);
                cpu.clock.set(irq.max(clock));
                self.take_interrupts(cpu);
                rest = until.map_or(rest, |at| at.saturating_sub(cpu.clock.get()));
            } else if self.drains.next.get().saturating_add(self.horizon) < clock + rest {
                // A store becomes visible meanwhile. If all other CPUs wait, only this notifies them in time.
                let at = self.drains.next.get().max(clock);
                rest -= at - clock;
                cpu.clock.set(at);
                if at > self.others.get().saturating_add(self.slack) {
                    self.set_state(cpu, State::Charging);
                    self.suspend(cpu, at);
                    if self.dying.get() {
                        return;
                    }
                    self.set_state(cpu, State::Running);
                } else {
                    self.drain_until(at);
                }
            } else if clock + rest <= self.others.get().saturating_add(self.horizon).min(self.window.get())
                && clock + rest < self.timer_at.get()
            {
                cpu.clock.set(clock + rest);
                break;
            } else if rest == 0 {
                break;
            } else {
                let end = clock + rest;
                self.set_state(cpu, State::Charging);
                self.suspend(cpu, end);
                if self.dying.get() {
                    return;
                }
                self.set_state(cpu, State::Running);
                rest = end.saturating_sub(cpu.clock.get());
            }
        }
    }

    /// Records that the running CPU has called `stop_requested`. A CPU that called it [`ROUNDS`] times without spending
    /// time would never give up its turn: the run ends here, with a report.
    #[inline]
    pub(crate) fn count_stop_check(&self) {
        let cpu = self.cpu();
        let (name, clock, rounds) = self.last_stop_check.get();
        let same = name == cpu.name && clock == cpu.clock.get();
        self.last_stop_check
            .set((cpu.name, cpu.clock.get(), if same { rounds + 1 } else { 0 }));
        if same && rounds >= ROUNDS && self.on_cpu() {
            self.stuck.set(true);
            self.report_at.set(0);
            self.suspend(cpu, cpu.clock.get());
        }
    }

    /// Runs `call` on the host at `at`, before any CPU acts at that time.
    pub(crate) fn at(&self, at: u64, call: Timer) {
        let number = self.timer_count.get();
        self.timer_count.set(number + 1);
        self.timers.borrow_mut().insert((at, number), call);
        self.timer_at.set(self.timer_at.get().min(at));
        self.refresh();
    }

    fn run_timer(&self, at: u64) {
        self.time.set(self.time.get().max(at));
        let call = self.timers.borrow_mut().pop_first();
        let next = self.timers.borrow().first_key_value().map_or(NEVER, |(&(at, _), _)| at);
        self.timer_at.set(next);
        if let Some((_, call)) = call {
            call();
        }
    }

    /// Gives turns until the run ends. Between two turns the CPU of the first stays the current one, but is not used:
    /// before any operation other than a turn comes `leave`.
    pub(crate) fn run(&self, progress: &mut dyn FnMut(Progress) -> bool) -> Outcome {
        let report_after = |events: u64| events.saturating_add(self.progress_events).min(self.max_events);
        self.report_at.set(report_after(self.events.get()));
        loop {
            if self.unfinished.get() == 0 {
                return Outcome::Finished;
            }
            let first = self.tree.first();
            let due = first.map_or(NEVER, |(_, time)| time);
            let (drain, timer) = (self.drains.next.get(), self.timer_at.get());
            let earliest = drain.min(timer);
            if earliest <= due && earliest != NEVER {
                self.leave();
                if timer <= drain {
                    self.run_timer(timer);
                } else {
                    self.drain_until(drain);
                }
                continue;
            }
            let Some((id, time)) = first else {
                self.leave();
                return Outcome::Deadlock(self.report("nothing can wake any of these CPUs"));
            };
            self.turn(id, time);
            let events = self.events.get();
            if events >= self.report_at.get() {
                self.report_at.set(report_after(events));
                self.leave();
                if self.stuck.get() {
                    let what = format!("CPU {id} goes round without spending time");
                    return Outcome::Runaway(self.report(&what));
                }
                if events >= self.max_events {
                    return Outcome::Runaway(self.report("the bound on charged operations was reached"));
                }
                if !progress(Progress {
                    events,
                    cycles: time / super::config::TICKS_PER_CYCLE,
                }) {
                    return Outcome::Abandoned;
                }
            }
        }
    }

    /// Lets CPU `id` run from `time` until it suspends or ends; it stays the current one.
    #[inline]
    fn turn(&self, id: usize, time: u64) {
        let cpu = &self.cpus[id];
        cpu.clock.set(cpu.clock.get().max(time));
        self.time.set(self.time.get().max(time));
        let before = cpu.events.get();
        self.others.set(self.tree.first_other(id));
        self.window.set(cpu.clock.get() + WINDOW);
        self.current.set(cpu);
        cpu.key.set(0);
        self.refresh();
        // SAFETY: only the scheduler touches `task`, and a task is never resumed from within a task.
        let task = unsafe { &mut *cpu.task.get() };
        let result = task.as_mut().expect("a CPU without a task has no key").resume(());
        // At least one: a turn without a charged operation must still count towards the livelock limit.
        self.events.set(self.events.get() + (cpu.events.get() - before).max(1));
        let key = match result {
            CoroutineResult::Yield(()) => match self.moving.take() {
                Some(to) if to == id => {
                    self.exchange(cpu);
                    cpu.clock.get()
                }
                Some(to) => {
                    self.move_task(cpu, &self.cpus[to]);
                    NEVER
                }
                None => cpu.key.get(),
            },
            CoroutineResult::Return(()) => {
                self.finish(cpu);
                NEVER
            }
        };
        self.tree.set(id, key);
    }

    /// Continues the running task on CPU `to`, not before this CPU's time.
    pub(crate) fn migrate(&self, to: usize) {
        let from = self.cpu();
        if !self.on_cpu() || from.id() == to {
            return;
        }
        assert!(
            !from.masked.get() && from.slow.get() & SLOW_RECORDING == 0,
            "a task can migrate neither with interrupts off nor from within a condition"
        );
        from.count();
        self.drain_own(from);
        self.set_category(from.category.get()); // books the time up to here
        let idle = |cpu: &&Cpu| matches!(cpu.state.get(), State::Absent | State::Finished);
        assert!(
            to + 1 < self.cpus.len() && self.cpus.get(to).filter(idle).is_some(),
            "CPU {to} is not idle"
        );
        self.moving.set(Some(to));
        self.suspend(from, from.clock.get());
        // From here on the running CPU is `to`; do not use `from` after this.
        if !self.dying.get() {
            self.sync(self.cpu());
        }
    }

    fn move_task(&self, from: &Cpu, to: &Cpu) {
        // SAFETY: only the scheduler touches `task`, and neither CPU's task runs.
        unsafe { *to.task.get() = (*from.task.get()).take() };
        to.yielder.set(from.yielder.get());
        to.daemon.set(from.daemon.get());
        to.masked.set(false);
        to.category.set(from.category.get());
        to.clock.set(to.clock.get().max(from.clock.get()));
        to.since.set(to.clock.get());
        to.key.set(to.clock.get());
        from.key.set(NEVER);
        self.set_state(from, State::Finished);
        self.set_state(to, State::Running);
        self.tree.set(to.id(), to.clock.get());
    }

    /// Returns to the host: no limits, no fast paths.
    pub(crate) fn leave(&self) {
        self.current.set(self.host());
        self.shared_limit.set(0);
        self.private_limit.set(0);
        self.charge_limit.set(0);
        self.others.set(0);
    }

    fn finish(&self, cpu: &Cpu) {
        // SAFETY: as in `turn`; the task has returned, so no code runs on its stack.
        unsafe { *cpu.task.get() = None };
        cpu.key.set(NEVER);
        self.set_state(cpu, State::Finished);
        if !cpu.daemon.get() {
            self.unfinished.set(self.unfinished.get() - 1);
        }
    }
}
