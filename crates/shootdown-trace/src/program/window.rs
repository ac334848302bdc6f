//! The events of the last moments, held back until later events have been seen.
//!
//! Three facts are known only later: the process of a thread that is switched in before its first own line, whether a
//! task is a kernel thread, and switches that were not recorded. A later line of the same CPU reveals such a switch,
//! because it names another task. If the CPU was idle and was interrupted for a function call in between, the switch is
//! put after that interrupt, by the mean delay of recorded ones. Otherwise the switch is put directly before the line
//! that reveals it.
//!
//! A CPU's task before its first line is known from that line too: the task that it names, or that leaves by it. It is
//! assumed to have run there since the recording began, or since the oldest event that is still held back.

use crate::coverage::is_kernel_thread;
use crate::{Call, Event, Function, Reason, What};
use std::collections::{HashMap, HashSet, VecDeque};

/// Length of recording held back, ns.
pub const WINDOW_NS: u64 = 50_000_000;

/// Most events held back, however short a time they take.
pub const WINDOW_EVENTS: usize = 1 << 16;

/// An event, reduced to what the program needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Kept {
    pub time_ns: u64,
    pub cpu: u32,
    /// Task that the line names.
    pub task: u32,
    pub item: Item,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Item {
    /// Only that the task runs there.
    Line,
    Switch {
        from: u32,
        state: u8,
        to: u32,
    },
    /// A switch that was not recorded.
    Inferred {
        to: u32,
    },
    /// Requested by the task: reasons local, local part, sent.
    Flush {
        pages: i64,
        reason: Reason,
    },
    /// A kernel thread's request is sent to that CPU.
    Reaches {
        target: u32,
    },
    Call {
        call: Call,
        address: u64,
        length: u64,
        argument: u64,
    },
    Exec,
}

/// The latest information about one CPU.
#[derive(Debug, Clone, Copy, Default)]
struct Newest {
    task: Option<u32>,
    /// When it was interrupted for a function call while idle.
    woken_ns: Option<u64>,
}

#[derive(Debug, Default)]
pub(super) struct Window {
    events: VecDeque<Kept>,
    cpus: Vec<Newest>,
    processes: HashMap<u32, u32>,
    kernel_threads: HashSet<u32>,
    /// Recorded switches from idle after an interrupt: their number, and the sum of their delays, ns.
    delays: (u64, u64),
    inferred: u64,
}

impl Window {
    /// Processes an event.
    pub fn add(&mut self, event: &Event<'_>) {
        if let Some(process) = event
            .process
            .filter(|_| ![0, Event::UNKNOWN_TASK].contains(&event.task))
        {
            self.processes.insert(event.task, process);
        }
        if is_kernel_thread(event.name) {
            self.kernel_threads.insert(event.task);
        }
        let index = event.cpu as usize;
        if self.cpus.len() <= index {
            self.cpus.resize_with(index + 1, Newest::default);
        }
        let task = match event.task {
            // Before the CPU's first switch that is not known yet.
            Event::UNKNOWN_TASK => self.cpus[index].task.unwrap_or(Event::UNKNOWN_TASK),
            task => task,
        };
        let Some(item) = self.item(event, index, task) else {
            return;
        };
        let kept = Kept {
            time_ns: event.time_ns,
            cpu: event.cpu,
            task,
            item,
        };
        if task != Event::UNKNOWN_TASK {
            self.notice(index, &kept);
        }
        self.events.push_back(kept);
    }

    /// The kind of an event for the program; `None` when it is withheld.
    fn item(&mut self, event: &Event<'_>, index: usize, task: u32) -> Option<Item> {
        Some(match event.what {
            What::Switch { from, state, to } => {
                if state.starts_with('I') {
                    self.kernel_threads.insert(from);
                }
                Item::Switch {
                    from,
                    state: state.bytes().next().unwrap_or(b'R'),
                    to,
                }
            }
            What::Flush { pages, reason } => match reason {
                Reason::Local | Reason::LocalSpace | Reason::Sent => Item::Flush { pages, reason },
                // Withheld, except for the CPU's task up to then.
                Reason::Remote | Reason::WrongCpu if self.cpus[index].task.is_none() => Item::Line,
                // Withheld; after a switch the line still names the previous task.
                Reason::TaskSwitch | Reason::Remote | Reason::WrongCpu => return None,
            },
            What::Queued {
                target,
                function: Function::Shootdown,
            } => {
                if !self.is_kernel_thread(event.task) {
                    return None; // withheld
                }
                Item::Reaches { target }
            }
            What::HandlerEntry => {
                if task != 0 && self.cpus[index].task.is_some() {
                    return None; // it may have been switched in for a flush, which is withheld
                }
                if task == 0 {
                    self.cpus[index].woken_ns = Some(event.time_ns);
                }
                Item::Line
            }
            What::Call {
                call,
                address,
                length,
                argument,
            } => Item::Call {
                call,
                address,
                length,
                argument,
            },
            What::Exec => Item::Exec,
            _ => Item::Line,
        })
    }

    /// Infers the switch before `kept` if there must have been one, and applies the one that it is.
    fn notice(&mut self, index: usize, kept: &Kept) {
        let newest = self.cpus[index];
        let runs = match kept.item {
            Item::Switch { from, .. } => from,
            _ => kept.task,
        };
        if newest.task.is_none() {
            self.begins_with(runs, kept);
        } else if newest.task != Some(runs) {
            let (count, sum) = self.delays;
            let woken = newest.woken_ns.filter(|_| newest.task == Some(0) && count > 0);
            let at = woken.map_or(kept.time_ns, |woken| (woken + sum / count.max(1)).min(kept.time_ns));
            let place = self.events.partition_point(|event| event.time_ns <= at);
            let inferred = Kept {
                time_ns: at.max(self.events.front().map_or(at, |event| event.time_ns)),
                item: Item::Inferred { to: runs },
                ..*kept
            };
            self.events.insert(place, inferred);
            self.inferred += 1;
            self.cpus[index].woken_ns = None;
        }
        let newest = &mut self.cpus[index];
        newest.task = Some(runs);
        if let Item::Switch { from, to, .. } = kept.item {
            if let Some(woken) = newest.woken_ns.take().filter(|_| from == 0) {
                self.delays.0 += 1;
                self.delays.1 += kept.time_ns - woken;
            }
            newest.task = Some(to);
        }
    }

    /// Records that the CPU of `first`, its first event, has run `task` up to then.
    fn begins_with(&mut self, task: u32, first: &Kept) {
        for event in self.events.iter_mut().filter(|event| event.cpu == first.cpu) {
            event.task = task;
        }
        self.events.push_front(Kept {
            time_ns: self.events.front().map_or(first.time_ns, |event| event.time_ns),
            item: Item::Inferred { to: task },
            ..*first
        });
    }

    /// The oldest event, once the window is full, or any remaining one when `all` are wanted.
    pub fn next(&mut self, all: bool) -> Option<Kept> {
        let (oldest, newest) = (self.events.front()?.time_ns, self.events.back()?.time_ns);
        let full = newest - oldest > WINDOW_NS || self.events.len() > WINDOW_EVENTS;
        if all || full { self.events.pop_front() } else { None }
    }

    /// The process of a task, itself where the recording does not say.
    pub fn process_of(&self, task: u32) -> u32 {
        self.processes.get(&task).copied().unwrap_or(task)
    }

    pub fn is_kernel_thread(&self, task: u32) -> bool {
        self.kernel_threads.contains(&task)
    }

    /// A task has ended: its number may be reused.
    pub fn forget(&mut self, task: u32) {
        self.processes.remove(&task);
        self.kernel_threads.remove(&task);
    }

    /// Events held back.
    #[cfg(test)]
    pub fn waiting(&self) -> usize {
        self.events.len()
    }

    /// Switches that were inferred so far.
    pub fn inferred(&self) -> u64 {
        self.inferred
    }
}
