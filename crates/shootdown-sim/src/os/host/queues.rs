//! The scheduler of the host: a queue for each of its CPUs, ordered by how much each task has run, as in Linux's CFS.
//!
//! Owns which task runs on which CPU and which wait. Work-conserving: an idle CPU takes a task that waits elsewhere,
//! and a task that wakes goes to an idle CPU if there is one. Not modelled: load averages, cache and NUMA affinity, the
//! tick.

use std::collections::VecDeque;

/// A time that never comes.
const NEVER: u64 = u64::MAX;

/// A virtual CPU, by number: those of simulated machines come first.
pub(super) type TaskId = usize;

/// Parameters of the scheduler, cycles.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rules {
    /// Shortest slice.
    pub slice: u64,
    /// Period in which each task of a CPU runs once, if the slices do not become too short; 0: slices are all shortest.
    pub latency: u64,
    /// How much more than another task the running one must have run to be preempted by it, when that one wakes up or
    /// is yielded to.
    pub wakeup: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Off,
    Halted,
    /// It is runnable, and waits.
    Queued,
    Running,
}

#[derive(Debug, Clone)]
struct Task {
    place: Place,
    /// CPU of the host that it runs on, waits at or was last at.
    cpu: usize,
    /// Its run time, cycles, by its CPU's count.
    ran: u64,
    /// It has woken up and has not run since.
    fresh: bool,
    /// CPU that it ran on last.
    home: Option<usize>,
    moved: bool,
}

#[derive(Debug, Clone)]
struct HostCpu {
    current: Option<TaskId>,
    /// When `current` began.
    began: u64,
    /// Time up to which `current` is accounted, and the end of its slice.
    counted: u64,
    until: u64,
    queue: Vec<TaskId>,
    /// Runs next, if that is not too unfair.
    buddy: Option<TaskId>,
    /// Lower bound of the run time of a task that arrives here.
    least: u64,
}

/// An action that the scheduler requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Decision {
    /// A task that waited runs.
    Runs(TaskId),
    /// A running task must leave at this time, and check then whether it still must.
    Leaves(TaskId, u64),
}

/// The queues.
#[derive(Debug)]
pub(super) struct Queues {
    rules: Rules,
    tasks: Vec<Task>,
    cpus: Vec<HostCpu>,
    /// Requested actions, in order.
    pub decisions: VecDeque<Decision>,
}

impl Queues {
    pub(super) fn new(rules: Rules, cpus: usize, tasks: usize) -> Self {
        let task = Task {
            place: Place::Off,
            cpu: 0,
            ran: 0,
            fresh: false,
            home: None,
            moved: false,
        };
        let cpu = HostCpu {
            current: None,
            began: 0,
            counted: 0,
            until: NEVER,
            queue: Vec::new(),
            buddy: None,
            least: 0,
        };
        Queues {
            rules,
            tasks: vec![task; tasks],
            cpus: vec![cpu; cpus],
            decisions: VecDeque::new(),
        }
    }

    pub(super) fn place(&self, task: TaskId) -> Place {
        self.tasks[task].place
    }

    /// Whether it waits because it has woken up, and not because it was preempted.
    pub(super) fn is_fresh(&self, task: TaskId) -> bool {
        self.tasks[task].fresh
    }

    /// Whether it runs on another CPU than before; read once.
    pub(super) fn take_moved(&mut self, task: TaskId) -> bool {
        std::mem::take(&mut self.tasks[task].moved)
    }

    /// Tasks that a CPU has, the running one included.
    fn load(&self, cpu: usize) -> usize {
        self.cpus[cpu].queue.len() + usize::from(self.cpus[cpu].current.is_some())
    }

    /// How long a task of `cpu` runs, with those in its queue, before the next has its turn.
    fn slice(&self, cpu: usize) -> u64 {
        let tasks = self.cpus[cpu].queue.len() + 1;
        self.rules.slice.max(self.rules.latency / tasks as u64)
    }

    /// Accounts the run time of the running task of `cpu`.
    fn count(&mut self, cpu: usize, now: u64) {
        let here = &mut self.cpus[cpu];
        let Some(current) = here.current else { return };
        self.tasks[current].ran += now.saturating_sub(here.counted);
        here.counted = here.counted.max(now);
        let waiting = here.queue.iter().map(|&task| self.tasks[task].ran).min();
        let least = waiting.unwrap_or(NEVER).min(self.tasks[current].ran);
        here.least = here.least.max(least);
    }

    fn start(&mut self, cpu: usize, task: TaskId, now: u64, length: u64) {
        let here = &mut self.cpus[cpu];
        (here.current, here.began, here.counted) = (Some(task), now, now);
        let waits = !here.queue.is_empty();
        here.until = if waits { now + length } else { NEVER };
        let it = &mut self.tasks[task];
        (it.place, it.cpu, it.fresh) = (Place::Running, cpu, false);
        it.moved |= it.home.is_some_and(|home| home != cpu);
        it.home = Some(cpu);
        if waits {
            self.decisions.push_back(Decision::Leaves(task, now + length));
        }
    }

    /// Puts a task into the queue of `cpu`, with the run time of those there, or a little less.
    fn enqueue(&mut self, cpu: usize, task: TaskId, now: u64, length: impl Fn(u64) -> u64) {
        self.cpus[cpu].queue.push(task);
        let length = length(self.slice(cpu));
        (self.tasks[task].place, self.tasks[task].cpu) = (Place::Queued, cpu);
        // A task that had the CPU to itself has a slice from its start.
        let here = &mut self.cpus[cpu];
        if let Some(current) = here.current
            && here.until == NEVER
        {
            here.until = now.max(here.began + length);
            self.decisions.push_back(Decision::Leaves(current, here.until));
        }
    }

    /// The CPU that a task goes to: its last one if that is idle, another that is idle, or else its last one; a new
    /// task goes to the CPU with the fewest tasks.
    fn select(&self, task: TaskId) -> usize {
        let home = self.tasks[task].home;
        let idle = |cpu: &usize| self.load(*cpu) == 0;
        let all = 0..self.cpus.len();
        let fewest = || all.clone().min_by_key(|&cpu| self.load(cpu)).expect("a host has a CPU");
        home.filter(idle)
            .or_else(|| all.clone().find(idle))
            .or(home)
            .unwrap_or_else(fewest)
    }

    /// A task becomes runnable: whether it runs or waits. `length` varies a slice.
    pub(super) fn join(&mut self, task: TaskId, now: u64, length: impl Fn(u64) -> u64) -> bool {
        let cpu = self.select(task);
        self.count(cpu, now);
        // A long sleep gives no unlimited advantage; the gain is half a latency.
        let from = self.tasks[task].cpu;
        let lag = self.tasks[task].ran as i128 - self.cpus[from].least as i128;
        let gain = (self.rules.latency.max(self.rules.slice) / 2) as i128;
        let ran = self.cpus[cpu].least as i128 + lag.max(-gain);
        self.tasks[task].ran = ran.max(0) as u64;
        self.tasks[task].fresh = true;
        if self.load(cpu) == 0 {
            self.start(cpu, task, now, 0);
            return true;
        }
        let current = self.cpus[cpu].current;
        self.enqueue(cpu, task, now, length);
        if let Some(current) = current
            && self.tasks[task].ran + self.rules.wakeup < self.tasks[current].ran
        {
            self.leave_now(cpu, now);
        }
        false
    }

    /// The running task of `cpu` leaves now.
    fn leave_now(&mut self, cpu: usize, now: u64) {
        if let Some(current) = self.cpus[cpu].current {
            self.cpus[cpu].until = self.cpus[cpu].until.min(now);
            self.decisions.push_back(Decision::Leaves(current, now));
        }
    }

    /// A running or waiting task is not runnable any longer.
    pub(super) fn leave(&mut self, task: TaskId, place: Place, now: u64, length: impl Fn(u64) -> u64) {
        let cpu = self.tasks[task].cpu;
        self.tasks[task].place = place;
        if self.cpus[cpu].current != Some(task) {
            return self.cpus[cpu].queue.retain(|&other| other != task);
        }
        self.count(cpu, now);
        self.cpus[cpu].current = None;
        self.next(cpu, None, now, length);
    }

    /// The next of the tasks that wait at `cpu`.
    fn choose(&mut self, cpu: usize, skip: Option<TaskId>) -> Option<TaskId> {
        let here = &self.cpus[cpu];
        let ran = |task: TaskId| self.tasks[task].ran;
        let first = here.queue.iter().copied().min_by_key(|&task| (ran(task), task))?;
        let fair = |task: &TaskId| ran(*task) <= ran(first) + self.rules.wakeup;
        let others = here.queue.iter().copied().filter(|&task| Some(task) != skip);
        let second = others.min_by_key(|&task| (ran(task), task)).filter(fair);
        let buddy = here.buddy.filter(|buddy| here.queue.contains(buddy)).filter(fair);
        let chosen = buddy.or(second).unwrap_or(first);
        self.cpus[cpu].buddy = None;
        Some(chosen)
    }

    /// `cpu` runs the next task: one that waits there, or else one from the longest queue.
    fn next(&mut self, cpu: usize, skip: Option<TaskId>, now: u64, length: impl Fn(u64) -> u64) {
        let task = self.choose(cpu, skip).or_else(|| self.pull(cpu));
        let Some(task) = task else {
            self.cpus[cpu].until = NEVER;
            return;
        };
        self.cpus[cpu].queue.retain(|&other| other != task);
        let slice = length(self.slice(cpu));
        self.start(cpu, task, now, slice);
        self.decisions.push_back(Decision::Runs(task));
    }

    /// Moves a task to `cpu` from the longest queue.
    fn pull(&mut self, cpu: usize) -> Option<TaskId> {
        let from = (0..self.cpus.len()).max_by_key(|&other| self.cpus[other].queue.len())?;
        let task = self.choose(from, None)?;
        self.cpus[from].queue.retain(|&other| other != task);
        self.send(task, from, cpu);
        Some(task)
    }

    /// The run time of a task, as another CPU counts it.
    fn send(&mut self, task: TaskId, from: usize, to: usize) {
        let lag = self.tasks[task].ran as i128 - self.cpus[from].least as i128;
        self.tasks[task].ran = (self.cpus[to].least as i128 + lag).max(0) as u64;
    }

    /// `task`, which runs, has left voluntarily or at the scheduler's request: whether it continues. A skipped task is
    /// replaced by another if that is not too unfair.
    pub(super) fn reschedule(&mut self, task: TaskId, skip: bool, now: u64, length: impl Fn(u64) -> u64) -> bool {
        let cpu = self.tasks[task].cpu;
        self.count(cpu, now);
        if self.cpus[cpu].queue.is_empty() {
            self.cpus[cpu].until = NEVER;
            return true;
        }
        self.cpus[cpu].current = None;
        self.cpus[cpu].queue.push(task);
        self.tasks[task].place = Place::Queued;
        let next = self.choose(cpu, skip.then_some(task));
        let goes_on = next == Some(task);
        self.cpus[cpu].queue.retain(|&other| Some(other) != next);
        let next = next.expect("one waits");
        let slice = length(self.slice(cpu));
        self.start(cpu, next, now, slice);
        if !goes_on {
            self.decisions.push_back(Decision::Runs(next));
            self.balance(cpu, task, now, length);
        }
        goes_on
    }

    /// A preempted task moves to a shorter queue.
    fn balance(&mut self, cpu: usize, task: TaskId, now: u64, length: impl Fn(u64) -> u64) {
        let fewest = (0..self.cpus.len()).min_by_key(|&other| self.load(other));
        let Some(to) = fewest.filter(|&to| self.load(to) + 1 < self.load(cpu)) else {
            return;
        };
        self.cpus[cpu].queue.retain(|&other| other != task);
        self.count(to, now);
        self.send(task, cpu, to);
        if self.load(to) == 0 {
            self.start(to, task, now, 0);
            self.decisions.push_back(Decision::Runs(task));
        } else {
            self.enqueue(to, task, now, length);
        }
    }

    /// Whether the slice of a running task is over.
    pub(super) fn is_over(&self, task: TaskId, now: u64) -> bool {
        self.tasks[task].place == Place::Running && self.cpus[self.tasks[task].cpu].until <= now
    }

    /// The end of its slice, if another waits.
    pub(super) fn until(&self, task: TaskId) -> Option<u64> {
        Some(self.cpus[self.tasks[task].cpu].until).filter(|&until| until != NEVER)
    }

    /// A slice that began before the run ends after `rest`.
    pub(super) fn shorten(&mut self, task: TaskId, now: u64, rest: u64) {
        let here = &mut self.cpus[self.tasks[task].cpu];
        if here.until != NEVER {
            here.until = now + rest;
            self.decisions.push_back(Decision::Leaves(task, now + rest));
        }
    }

    /// `task`, which runs, gives the rest of its slice to `target`, which waits: `target` runs next where it waits, and
    /// the CPU there reschedules at once. The caller then reschedules `task`, skipped.
    pub(super) fn yield_to(&mut self, task: TaskId, target: TaskId, now: u64) -> bool {
        if self.tasks[target].place != Place::Queued || self.tasks[task].place != Place::Running {
            return false;
        }
        let to = self.tasks[target].cpu;
        self.cpus[to].buddy = Some(target);
        if to != self.tasks[task].cpu {
            self.count(to, now);
            self.leave_now(to, now);
        }
        true
    }
}

#[cfg(test)]
mod tests;
