//! Evidence about which tasks share an address space, when the recording has no process numbers.
//!
//! On x86 the kernel logs a `tlb_flush` at each switch that loads another space, with the previous task still in the
//! line (`switch_mm_irqs_off` in `arch/x86/mm/tlb.c`). A switch from one user task to another without it stays in the
//! space. A flush on another CPU's request is logged as `remote` only where the target has the requester's space
//! loaded. `task_newtask` has the flags of clone.

use super::lives::{Incarnation, Lives};
use crate::{Event, Function, Reason, What};
use std::collections::{HashMap, HashSet, VecDeque};

/// A thread of its parent's process (`CLONE_THREAD` in `include/uapi/linux/sched.h`).
const CLONE_THREAD: u64 = 0x0001_0000;

/// Shares its parent's space (`CLONE_VM`, same file).
const CLONE_VM: u64 = 0x0000_0100;

/// How often two tasks were observed to share a space, and not to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) same: u64,
    pub(super) other: u64,
}

/// Two incarnations, the smaller first.
pub(super) type Pair = (Incarnation, Incarnation);

/// State of one CPU, as far as events tell.
#[derive(Debug, Clone, Copy, Default)]
struct Cpu {
    running: Option<u32>,
    /// The user task whose space is loaded.
    loaded: Option<Incarnation>,
    /// A switch whose `tlb_flush` has not been seen: the previous task, the next one, and whether the CPU was lazy.
    pending: Option<(u32, u32, bool)>,
    /// Whether the running task has changed its space, an odd number of times, without a switch.
    changed: bool,
    /// The observation made when the running task was switched in: that it shares the space of the one before.
    shares: Option<(Pair, Incarnation)>,
    /// The request that the CPU waits for.
    sent: Option<Incarnation>,
}

/// The observations.
#[derive(Debug, Clone, Default)]
pub(super) struct Evidence {
    cpus: HashMap<u32, Cpu>,
    lives: Lives,
    /// Number of programs that each task has run before.
    programs: HashMap<u32, u32>,
    met: HashSet<Incarnation>,
    pub(super) kernel_threads: HashSet<u32>,
    /// Tasks that have released their space, and still run.
    exited: HashSet<u32>,
    /// Tasks that are known to run user code.
    pub(super) users: HashSet<u32>,
    /// By task switches.
    pub(super) switches: HashMap<Pair, Seen>,
    /// By answered requests.
    pub(super) requests: HashMap<Pair, Seen>,
    /// By flags of clone: certain.
    pub(super) created: HashMap<Pair, Seen>,
    /// Process numbers that the recording has.
    pub(super) known: HashMap<Incarnation, u32>,
    waiting: HashMap<u32, VecDeque<(u32, Incarnation)>>,
    /// Switches consistent with the known state of their CPU, and those that are not.
    pub(super) continued: u64,
    pub(super) broken: u64,
    /// Logged loads of a space at a switch.
    pub(super) loads: u64,
    /// Requests of kernel threads.
    pub(super) kernel_requests: u64,
}

/// Names of kernel threads that their state at a switch does not identify (`I` does).
const KERNEL_THREADS: [&str; 23] = [
    "kworker/",
    "ksoftirqd/",
    "migration/",
    "rcu_",
    "rcuo",
    "rcub/",
    "rcuc/",
    "kswapd",
    "kcompactd",
    "kdamond",
    "khugepaged",
    "ksmd",
    "cpuhp/",
    "kthreadd",
    "idle_inject/",
    "irq/",
    "kauditd",
    "khungtaskd",
    "oom_reaper",
    "jbd2/",
    "xfsaild/",
    "scsi_eh_",
    "swapper/",
];

/// Whether a task of that name is a kernel thread.
pub(crate) fn is_kernel_thread(name: &str) -> bool {
    KERNEL_THREADS.iter().any(|known| name.starts_with(known))
}

pub(super) fn pair(a: Incarnation, b: Incarnation) -> Pair {
    if a <= b { (a, b) } else { (b, a) }
}

impl Evidence {
    /// Takes an event into account.
    pub(super) fn add(&mut self, event: &Event<'_>) {
        if let Some(new) = self.lives.add(event) {
            self.programs.remove(&new);
            self.kernel_threads.remove(&new);
            self.users.remove(&new);
            self.exited.remove(&new);
        }
        let mut cpu = self.cpus.remove(&event.cpu).unwrap_or_default();
        self.name(event);
        let is_note = self.pending(event, &mut cpu);
        if !matches!(
            event.what,
            What::Queued { .. } | What::Interrupt { .. } | What::Interrupts { .. } | What::Flush { .. }
        ) {
            cpu.sent = None;
        }
        match event.what {
            What::Switch { from, state, to } => self.switches(from, state, to, &mut cpu),
            What::Flush { reason, .. } if !is_note => self.flush(event, reason, &mut cpu),
            What::Queued { target, function } if function != Function::Other => {
                let (sender, is_user) = (self.incarnation(event.task), self.is_user(event.task));
                let waiting = self.waiting.entry(target).or_default();
                // A CPU waits for its request: an earlier one was answered without a log entry.
                waiting.retain(|&(cpu, _)| cpu != event.cpu);
                if is_user {
                    waiting.push_back((event.cpu, sender));
                }
            }
            What::NewTask { child, flags } => self.created(event, child, flags),
            What::Exec => {
                self.becomes_another(event.task);
                cpu.loaded = Some(self.incarnation(event.task));
                cpu.changed = false;
                self.users.insert(event.task);
            }
            What::Exit => {
                self.exited.insert(event.task);
            }
            What::Call { .. } | What::Fault { .. } => {
                self.users.insert(event.task);
            }
            _ => {}
        }
        self.cpus.insert(event.cpu, cpu);
    }

    /// Evidence from name and number of the line's task.
    fn name(&mut self, event: &Event<'_>) {
        if event.task == 0 || event.task == Event::UNKNOWN_TASK {
            return;
        }
        if is_kernel_thread(event.name) {
            self.kernel_threads.insert(event.task);
        } else if let Some(process) = event.process {
            let task = self.incarnation(event.task);
            self.known.insert(task, process);
        } else {
            self.incarnation(event.task);
        }
    }

    /// Records whether the switch before `event` on its CPU loaded another space; returns whether `event` logs that.
    fn pending(&mut self, event: &Event<'_>, cpu: &mut Cpu) -> bool {
        let Some((from, to, lazy)) = cpu.pending.take() else {
            return false;
        };
        let note = match event.what {
            What::Flush {
                pages,
                reason: Reason::TaskSwitch,
            } if event.task == from || event.process.is_none() && event.name.is_empty() => Some(pages),
            _ => None,
        };
        if !self.is_user(to) {
            return note.is_some();
        }
        let new = self.incarnation(to);
        let before = cpu.loaded.replace(new).filter(|&before| before != new);
        self.loads += u64::from(note.is_some());
        if note.is_some() {
            self.users.insert(to);
        }
        let Some(before) = before else {
            return note.is_some();
        };
        let seen = self.switches.entry(pair(before, new)).or_default();
        match note {
            None => {
                seen.same += 1;
                cpu.shares = Some((pair(before, new), before));
            }
            // After idleness the same space is flushed too, if it was changed meanwhile.
            Some(pages) if lazy && pages != 0 => {}
            Some(_) => seen.other += 1,
        }
        note.is_some()
    }

    fn switches(&mut self, from: u32, state: &str, to: u32, cpu: &mut Cpu) {
        let continues = cpu.running == Some(from);
        if cpu.running.is_some() {
            *(if continues {
                &mut self.continued
            } else {
                &mut self.broken
            }) += 1;
        }
        if state.starts_with('I') {
            self.kernel_threads.insert(from);
        }
        let shares = cpu.shares.take();
        let dies = state.starts_with(['X', 'Z', 'x']);
        let left = self.is_user(from);
        if left && std::mem::take(&mut cpu.changed) {
            self.becomes_another(from);
        }
        if let Some((pair, before)) = shares.filter(|_| dies) {
            // It was switched in without a space, to end.
            if let Some(seen) = self.switches.get_mut(&pair) {
                seen.same -= 1;
            }
            cpu.loaded = Some(before);
        } else if left {
            cpu.loaded = Some(self.incarnation(from));
        } else if !continues {
            cpu.loaded = None;
        }
        cpu.changed = false;
        cpu.running = Some(to);
        // A task that sleeps in state D while a new one is switched in may have lent it its space, by vfork.
        let lends = state.starts_with('D') && !self.met.contains(&self.present(to));
        if lends {
            cpu.loaded = self.is_user(to).then(|| self.incarnation(to));
        } else if self.is_user(to) {
            cpu.pending = Some((from, to, !left));
        }
    }

    fn flush(&mut self, event: &Event<'_>, reason: Reason, cpu: &mut Cpu) {
        match reason {
            Reason::TaskSwitch if self.is_user(event.task) => cpu.changed = !cpu.changed,
            // An idle CPU has unloaded the space.
            Reason::TaskSwitch => cpu.loaded = None,
            Reason::Sent => {
                self.kernel_requests += u64::from(self.kernel_threads.contains(&event.task));
                cpu.sent = self.is_user(event.task).then(|| self.incarnation(event.task));
            }
            Reason::LocalSpace => {}
            Reason::Local | Reason::WrongCpu => {
                if let Some(waiting) = self.waiting.get_mut(&event.cpu).filter(|_| reason == Reason::WrongCpu) {
                    waiting.pop_front();
                }
            }
            Reason::Remote => self.answered(event),
        }
    }

    /// A request was carried out on this CPU: its space is that of the requester.
    fn answered(&mut self, event: &Event<'_>) {
        let queued = self.waiting.get_mut(&event.cpu).and_then(VecDeque::pop_front);
        let sender = queued.map(|(_, sender)| sender).or_else(|| {
            // Kernels before 6.3 do not log requests: the only CPU that waits for one has sent it.
            let mut waiting = self.cpus.values().filter_map(|cpu| cpu.sent);
            waiting.next().filter(|_| waiting.next().is_none())
        });
        let Some(sender) = sender.filter(|_| self.is_user(event.task)) else {
            return;
        };
        let target = self.incarnation(event.task);
        if target != sender {
            self.requests.entry(pair(sender, target)).or_default().same += 1;
        }
    }

    fn created(&mut self, event: &Event<'_>, child: u32, flags: u64) {
        if event.name == "kthreadd" {
            self.kernel_threads.insert(child);
            return;
        }
        let (parent, child) = (self.incarnation(event.task), self.incarnation(child));
        let seen = self.created.entry(pair(parent, child)).or_default();
        if flags & CLONE_THREAD != 0 {
            seen.same += 1;
        } else if flags & CLONE_VM == 0 {
            seen.other += 1;
        }
    }

    fn is_user(&self, task: u32) -> bool {
        ![0, Event::UNKNOWN_TASK].contains(&task)
            && !self.kernel_threads.contains(&task)
            && !self.exited.contains(&task)
    }

    fn present(&self, task: u32) -> Incarnation {
        Incarnation {
            task,
            life: self.lives.of(task),
            program: self.programs.get(&task).copied().unwrap_or(0),
        }
    }

    fn incarnation(&mut self, task: u32) -> Incarnation {
        let present = self.present(task);
        self.met.insert(present);
        present
    }

    /// A new program: earlier observations of the task no longer apply.
    fn becomes_another(&mut self, task: u32) {
        *self.programs.entry(task).or_default() += 1;
    }

    /// The known incarnations.
    pub(super) fn all(&self) -> &HashSet<Incarnation> {
        &self.met
    }
}
