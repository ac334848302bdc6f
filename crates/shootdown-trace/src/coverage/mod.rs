//! What a recording can tell, and what it cannot.

mod evidence;
mod functions;
mod lives;
mod processes;

use crate::{Call, Event, Function, Loss, Metadata, What};
use evidence::Evidence;
pub(crate) use evidence::is_kernel_thread;
use functions::Functions;
use processes::Assignment;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// What a recording can tell: a summary for its readers.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Coverage {
    /// Whether tasks can be grouped by process.
    pub processes: Processes,
    /// Events that were lost, by CPU. Empty when nothing was lost.
    pub losses: Vec<Loss>,
    /// How often each event that is used occurs: all of [`EVENTS`], in that order; 0 is absent.
    pub events: Vec<EventCount>,
    /// Calls queued to another CPU whose function has no name in the recording and is not identified otherwise.
    pub unknown_requests: u64,
    /// Calls without a name that are shootdowns by the events that follow on the target CPU. The counts of shootdowns
    /// include them.
    pub identified_requests: u64,
    /// Flush requests of kernel threads (reclaim, khugepaged, KSM).
    pub kernel_thread_requests: u64,
}

/// How often an event occurs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct EventCount {
    /// Name of the kernel's event.
    pub event: String,
    /// How many the recording has.
    pub count: u64,
}

/// The source of the processes of a recording's tasks. A process stands for an address space.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "source", rename_all = "snake_case")]
pub enum Processes {
    /// The recording has the process number (Linux: tgid) of its tasks.
    Recorded,
    /// Inferred: tasks share an address space if the kernel treats them so.
    Rebuilt(Rebuilt),
    /// The recording has neither process numbers nor events to infer them from.
    #[default]
    Absent,
}

/// Confidence of inferred processes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Rebuilt {
    /// Tasks that are not kernel threads.
    pub tasks: u64,
    /// Processes that they were grouped into.
    pub processes: u64,
    /// Observations (task switches, answered requests) that these processes explain.
    pub explained: u64,
    /// Observations that they contradict.
    pub contradicted: u64,
}

impl Rebuilt {
    /// Share of the observations that the processes explain, 0 to 1.
    pub fn confidence(&self) -> f64 {
        self.explained as f64 / (self.explained + self.contradicted).max(1) as f64
    }
}

/// The kernel events that are used; system calls are those of [`Call`].
pub const EVENTS: [&str; 15] = [
    "sched_switch",
    "tlb_flush",
    "csd_queue_cpu",
    "ipi_send_cpu",
    "ipi_send_cpumask",
    "call_function_entry",
    "sched_process_fork",
    "task_newtask",
    "sched_process_exec",
    "sched_process_exit",
    "page_fault_user",
    "sys_enter_madvise",
    "sys_enter_munmap",
    "sys_enter_mprotect",
    "sys_enter_mremap",
];

fn index_of(what: &What<'_>) -> usize {
    match what {
        What::Switch { .. } => 0,
        What::Flush { .. } => 1,
        What::Queued { .. } => 2,
        What::Interrupt { .. } => 3,
        What::Interrupts { .. } => 4,
        What::HandlerEntry => 5,
        What::Fork { .. } => 6,
        What::NewTask { .. } => 7,
        What::Exec => 8,
        What::Exit => 9,
        What::Fault { .. } => 10,
        What::Call { call, .. } => 11 + Call::ALL.iter().position(|(_, known)| known == call).unwrap_or(0),
    }
}

impl Coverage {
    /// How many events of that name the recording has.
    pub fn count(&self, event: &str) -> u64 {
        let found = self.events.iter().find(|entry| entry.event == event);
        found.map_or(0, |entry| entry.count)
    }

    /// Events that are used and do not occur.
    pub fn absent(&self) -> Vec<&str> {
        let absent = self.events.iter().filter(|entry| entry.count == 0);
        absent.map(|entry| entry.event.as_str()).collect()
    }

    /// Events that were lost, as far as the recording says how many.
    pub fn lost_events(&self) -> u64 {
        self.losses.iter().filter_map(|loss| loss.events).sum()
    }

    /// Why this recording cannot be replayed, with the remedy; `None` if it can.
    pub fn refusal(&self) -> Option<String> {
        if self.count("tlb_flush") == 0 {
            return Some(format!(
                "the recording has no tlb_flush event, so no flush to replay; {RECORD}"
            ));
        }
        matches!(self.processes, Processes::Absent).then(|| NO_PROCESSES.to_owned())
    }
}

/// How to record the data that a replay needs.
const RECORD: &str = "record with `sudo shootdown record -o trace.parquet -- COMMAND`, \
    or `trace-cmd record -e sched:sched_switch -e tlb:tlb_flush -e csd:csd_queue_cpu`";

/// Why a replay without processes is refused.
const NO_PROCESSES: &str = "the recording has no process numbers, and too little to infer them from: \
    a replay would take each thread for a process; \
    print them with `perf script -F comm,pid,tid,cpu,time,event,trace`, or record them: \
    `echo 1 > /sys/kernel/tracing/options/record-tgid` before tracing, then `cat /sys/kernel/tracing/trace`";

/// Share of lines with a process number from which a recording counts as having them. Assumed: the kernel omits some
/// numbers, never one in ten.
const RECORDED_SHARE: f64 = 0.9;

/// Collects what a recording can tell, event by event. Memory: an entry for each task, and for each pair of tasks that
/// were observed together.
#[derive(Debug, Clone, Default)]
pub struct Survey {
    counts: [u64; EVENTS.len()],
    with_process: u64,
    without_process: u64,
    evidence: Evidence,
    functions: Functions,
}

/// Completes events by facts from the whole recording: inferred processes, functions without a name. It takes each
/// event of the recording once, in order.
#[derive(Debug, Clone, Default)]
pub struct Resolver {
    assignment: Assignment,
    functions: HashMap<u64, Function>,
}

impl Resolver {
    /// Whether every event stays as it is.
    pub fn is_idle(&self) -> bool {
        self.assignment.is_empty() && self.functions.is_empty()
    }

    /// The event, completed.
    pub fn resolve<'t>(&mut self, event: &Event<'t>) -> Event<'t> {
        let mut event = self.assignment.resolve(*event);
        if let What::Queued {
            target,
            function: Function::Unnamed(address),
        } = event.what
            && let Some(&function) = self.functions.get(&address)
        {
            event.what = What::Queued { target, function };
        }
        event
    }

    /// The identity of a function without a name, if known.
    pub fn function(&self, address: u64) -> Option<Function> {
        self.functions.get(&address).copied()
    }
}

impl Survey {
    /// Processes an event.
    pub fn add(&mut self, event: &Event<'_>) {
        self.counts[index_of(&event.what)] += 1;
        if event.task != 0 && !is_kernel_thread(event.name) {
            match event.process {
                Some(_) => self.with_process += 1,
                None => self.without_process += 1,
            }
        }
        self.evidence.add(event);
        self.functions.add(event);
    }

    /// The recording is over: returns what it can tell, and the resolver that completes its events.
    pub fn finish(self, metadata: &Metadata) -> (Coverage, Resolver) {
        let counted = |(event, &count): (&&str, &u64)| EventCount {
            event: (*event).to_owned(),
            count,
        };
        let lines = self.with_process + self.without_process;
        let recorded = self.with_process as f64 >= RECORDED_SHARE * lines as f64;
        let (assignment, processes) = match recorded {
            true => (Assignment::default(), Processes::Recorded),
            false => processes::rebuild(&self.evidence),
        };
        let (functions, identified, unknown) = self.functions.finish();
        let coverage = Coverage {
            processes,
            losses: metadata.losses.clone(),
            events: EVENTS.iter().zip(&self.counts).map(counted).collect(),
            unknown_requests: unknown,
            identified_requests: identified,
            kernel_thread_requests: self.evidence.kernel_requests,
        };
        let resolver = Resolver { assignment, functions };
        (coverage, resolver)
    }
}
