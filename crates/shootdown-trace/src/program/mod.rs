//! The steps of a recorded program: which CPU ran which thread of which space, which CPUs were idle, and which flushes
//! were requested.
//!
//! Owns the inferences from the recording: switches that were not recorded ([`window`](self)), spaces (`spaces.rs`),
//! and whether a flush frees page-table pages (`request.rs`). The kernel's *handling* of the requests (requests queued
//! to other CPUs, flushes carried out there and at switches) makes no step: it is withheld and counted in [`Recorded`],
//! for comparison with predictions. Memory: the live spaces and threads, and the events of [`WINDOW_NS`].

mod recorded;
mod request;
mod seen;
mod spaces;
mod window;

pub use recorded::{Recorded, Times};
pub use window::{WINDOW_EVENTS, WINDOW_NS};

use crate::cause::Callers;
use crate::{Cause, Event, Reason};
pub(crate) use request::Caller;
use seen::Seen;
use spaces::Spaces;
use window::{Item, Kept, Window};

/// One step of one CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// Time of the recording's clock, ns; never earlier than that of the previous step.
    pub time_ns: u64,
    /// CPU of the recording.
    pub cpu: u32,
    /// The activity.
    pub action: Action,
}

/// The activity of a CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Runs a thread of a space from here on.
    Run {
        /// The space, by a number that is never used again.
        space: u32,
        /// The thread.
        task: u32,
        /// Whether the recording has the switch, with the kernel's log entries for it; else it was inferred.
        recorded: bool,
    },
    /// Runs kernel code only from here on: idle, or a kernel thread.
    Lazy {
        /// No activity.
        idle: bool,
    },
    /// The running thread requests a flush of its space.
    Flush {
        /// The space.
        space: u32,
        /// Pages; `None` for all.
        pages: Option<u32>,
        /// Whether page-table pages are freed.
        tables: bool,
        /// First byte, if the recording has the system call.
        address: Option<u64>,
        /// The cause of the request.
        cause: Cause,
    },
    /// A kernel thread (reclaim, khugepaged, KSM) requests a flush of a space that it does not run in.
    KernelFlush {
        /// The space: the one that a target CPU of the request had loaded.
        space: u32,
        /// Pages; `None` for all.
        pages: Option<u32>,
    },
    /// The last thread of a space has ended, on this CPU.
    End {
        /// The space.
        space: u32,
    },
}

/// Turns events into steps.
#[derive(Debug, Default)]
pub struct Program {
    window: Window,
    spaces: Spaces,
    cpus: Vec<Cpu>,
    callers: Callers,
    recorded: Recorded,
    seen: Seen,
    /// Whether the recording has system calls at all.
    calls: bool,
}

/// The known state of one CPU of the recording.
#[derive(Debug, Clone, Default)]
struct Cpu {
    /// The thread it runs; `None` before anything is known.
    task: Option<u32>,
    /// Its last known activity.
    doing: Option<Action>,
    /// The space that it has loaded, also while it runs kernel code.
    loaded: Option<u32>,
    caller: Caller,
    /// A kernel thread's request that it sends.
    kernel_request: Option<KernelRequest>,
}

/// A kernel thread's request. The recording does not name its spaces: they are those of its target CPUs.
#[derive(Debug, Clone)]
struct KernelRequest {
    pages: i64,
    spaces: Vec<u32>,
}

impl Program {
    /// Takes the next event; passes the steps that are certain to `sink`.
    pub fn add(&mut self, event: &Event<'_>, sink: &mut impl FnMut(Step)) {
        self.recorded.add(event);
        self.seen.add(event);
        self.window.add(event);
        while let Some(kept) = self.window.next(false) {
            self.take(kept, sink);
        }
    }

    /// The recording is over: returns the remaining steps, and the withheld counts.
    pub fn finish(mut self, sink: &mut impl FnMut(Step)) -> Recorded {
        while let Some(kept) = self.window.next(true) {
            self.take(kept, sink);
        }
        self.recorded.unseen = self.seen.unseen;
        self.recorded.requests = self.spaces.requests;
        self.recorded.foreign = self.spaces.foreign;
        self.recorded.spaces = self.spaces.made();
        self.recorded.inferred_switches = self.window.inferred();
        self.recorded
    }

    fn cpu(&mut self, cpu: u32) -> &mut Cpu {
        let index = cpu as usize;
        if self.cpus.len() <= index {
            self.cpus.resize_with(index + 1, Cpu::default);
        }
        &mut self.cpus[index]
    }

    fn take(&mut self, kept: Kept, sink: &mut impl FnMut(Step)) {
        let Kept {
            time_ns,
            cpu,
            task,
            item,
        } = kept;
        if task == Event::UNKNOWN_TASK {
            // Its CPU does not switch within the window.
            self.spaces.foreign += u64::from(matches!(item, Item::Flush { .. }));
            return;
        }
        let mut emit = |cpu, action| {
            sink(Step { time_ns, cpu, action });
        };
        if !matches!(item, Item::Switch { .. } | Item::Inferred { .. }) && self.cpu(cpu).task != Some(task) {
            self.runs(cpu, task, false, &mut emit);
        }
        match item {
            Item::Line => {}
            Item::Switch { from, state, to } => {
                if self.cpu(cpu).task.is_some_and(|known| known != from) {
                    self.runs(cpu, from, false, &mut emit);
                }
                self.spaces.leaves(from, state);
                if matches!(state, b'X' | b'Z' | b'x') {
                    self.ends(cpu, from, &mut emit);
                }
                self.runs(cpu, to, true, &mut emit);
            }
            Item::Inferred { to } => self.runs(cpu, to, false, &mut emit),
            Item::Flush { pages, reason } => self.requests_flush(&kept, pages, reason, &mut emit),
            Item::Call {
                call,
                address,
                length,
                argument,
            } => {
                self.calls = true;
                self.callers.enters(task, time_ns, call, length, argument);
                self.cpu(cpu).caller.calls(task, call, address, length);
            }
            Item::Reaches { target } => self.reaches(cpu, target, &mut emit),
            Item::Exec => {
                if let Some(ended) = self.spaces.executes(task) {
                    emit(cpu, Action::Lazy { idle: false });
                    emit(cpu, Action::End { space: ended });
                    for cpu in &mut self.cpus {
                        cpu.loaded = cpu.loaded.filter(|&loaded| loaded != ended);
                    }
                }
                self.loads(cpu, task, &mut emit);
            }
        }
    }

    /// `task` runs on `cpu` from here on.
    fn runs(&mut self, cpu: u32, task: u32, recorded: bool, emit: &mut impl FnMut(u32, Action)) {
        if let Some(borrower) = self.spaces.comes(task) {
            self.executed(borrower, emit);
        }
        self.cpu(cpu).task = Some(task);
        let process = self.window.process_of(task);
        let action = if task == 0 || self.window.is_kernel_thread(task) {
            Action::Lazy { idle: task == 0 }
        } else {
            Action::Run {
                space: self.spaces.of(task, process),
                task,
                recorded,
            }
        };
        if let Action::Run { space, .. } = action {
            self.cpu(cpu).loaded = Some(space);
        }
        if self.cpu(cpu).doing != Some(action) {
            self.cpu(cpu).doing = Some(action);
            emit(cpu, action);
        }
    }

    /// A process that borrowed its space has one of its own: the CPU on which it runs loads it.
    fn executed(&mut self, process: u32, emit: &mut impl FnMut(u32, Action)) {
        for cpu in 0..self.cpus.len() as u32 {
            let runs = self
                .cpu(cpu)
                .task
                .filter(|&task| task != 0 && self.window.process_of(task) == process);
            if let Some(task) = runs {
                self.loads(cpu, task, emit);
            }
        }
    }

    /// The space of the thread that `cpu` runs, which may have changed since the switch.
    fn loads(&mut self, cpu: u32, task: u32, emit: &mut impl FnMut(u32, Action)) -> u32 {
        let process = self.window.process_of(task);
        let space = self.spaces.of(task, process);
        let loaded = matches!(self.cpu(cpu).doing, Some(Action::Run { space: loaded, .. }) if loaded == space);
        if !loaded {
            let action = Action::Run {
                space,
                task,
                recorded: true,
            };
            self.cpu(cpu).doing = Some(action);
            self.cpu(cpu).loaded = Some(space);
            emit(cpu, action);
        }
        space
    }

    /// The last switch of `task`.
    fn ends(&mut self, cpu: u32, task: u32, emit: &mut impl FnMut(u32, Action)) {
        if let Some(space) = self.spaces.ends(task) {
            emit(cpu, Action::Lazy { idle: false });
            emit(cpu, Action::End { space });
            for cpu in &mut self.cpus {
                cpu.loaded = cpu.loaded.filter(|&loaded| loaded != space);
            }
        }
        self.window.forget(task);
        self.callers.ends(task);
        self.cpu(cpu).doing = None;
    }

    /// A kernel thread's request is sent from `cpu` to `target`.
    fn reaches(&mut self, cpu: u32, target: u32, emit: &mut impl FnMut(u32, Action)) {
        let Some(space) = self.cpu(target).loaded else { return };
        let Some(request) = &mut self.cpu(cpu).kernel_request else {
            return;
        };
        if request.spaces.contains(&space) {
            return;
        }
        let is_first = request.spaces.is_empty();
        request.spaces.push(space);
        let pages = u32::try_from(request.pages).ok().map(|pages| pages.max(1));
        self.spaces.foreign -= u64::from(is_first);
        self.spaces.requests += 1;
        self.recorded.kernel_requests += u64::from(is_first);
        emit(cpu, Action::KernelFlush { space, pages });
    }

    /// A flush whose reason says that it was requested.
    fn requests_flush(&mut self, at: &Kept, pages: i64, reason: Reason, emit: &mut impl FnMut(u32, Action)) {
        let Kept { time_ns, cpu, task, .. } = *at;
        let is_own_part = self.cpu(cpu).caller.is_own_part(task, pages, reason);
        if is_own_part {
            return;
        }
        if task == 0 || self.window.is_kernel_thread(task) || reason == Reason::Local {
            // A kernel thread's own request concerns a space that the recording does not name, unless it is sent to a
            // CPU that has one loaded.
            self.spaces.foreign += 1;
            self.cpu(cpu).kernel_request = (reason == Reason::Sent).then_some(KernelRequest {
                pages,
                spaces: Vec::new(),
            });
            return;
        }
        self.spaces.settles(task);
        let space = self.loads(cpu, task, emit);
        let calls = self.calls;
        let (tables, address) = self.cpu(cpu).caller.frees_tables(task, pages, calls);
        self.spaces.requests += 1;
        emit(
            cpu,
            Action::Flush {
                space,
                pages: u32::try_from(pages).ok().map(|pages| pages.max(1)),
                tables,
                address,
                cause: self.callers.cause(task, time_ns, pages),
            },
        );
    }
}

#[cfg(test)]
mod tests;
