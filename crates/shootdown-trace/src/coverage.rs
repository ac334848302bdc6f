//! What a recording can tell, and what it cannot.

use crate::{Call, Event, Loss, Metadata, What};
use serde::{Deserialize, Serialize};

/// What a recording can tell: a summary for whoever draws conclusions from it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Coverage {
    /// Whether tasks can be told apart by process.
    pub processes: Processes,
    /// Events that were lost, by CPU. Empty when nothing was lost.
    pub losses: Vec<Loss>,
    /// How often each event that is used occurs: all of [`EVENTS`], in that order; 0 is absent.
    pub events: Vec<EventCount>,
    /// Calls queued to another CPU whose function has no name in the recording, and that nothing else identifies.
    pub unknown_requests: u64,
    /// Calls without a name that are shootdowns by what follows on the target CPU. The counts of shootdowns have them.
    pub identified_requests: u64,
    /// Flush requests of kernel threads (reclaim, khugepaged, KSM).
    pub kernel_thread_requests: u64,
}

/// How often an event occurs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventCount {
    /// Name of the kernel's event.
    pub event: String,
    /// How many the recording has.
    pub count: u64,
}

/// Where the processes of a recording's tasks come from. A process stands for an address space.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "source", rename_all = "snake_case")]
pub enum Processes {
    /// The recording has the process number (Linux: tgid) of its tasks.
    Recorded,
    /// Inferred: tasks share an address space if the kernel treats them so.
    Rebuilt(Rebuilt),
    /// The recording neither has process numbers nor what they could be inferred from.
    #[default]
    Absent,
}

/// How sure processes are that were inferred.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Rebuilt {
    /// Tasks that are not kernel threads.
    pub tasks: u64,
    /// Processes that they were put into.
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

    /// Why no replay can be made of this recording, with the remedy; `None` when one can.
    pub fn refusal(&self) -> Option<String> {
        matches!(self.processes, Processes::Absent).then(|| NO_PROCESSES.to_owned())
    }
}

/// Why a replay without processes is refused.
const NO_PROCESSES: &str = "the recording has no process numbers, and nothing to infer them from: a replay would take each thread for a process; \
     record with `trace-cmd record` after `echo 1 > /sys/kernel/tracing/options/record-tgid`, or print them with `perf script -F comm,pid,tid,cpu,time,event,trace`";

/// Collects what a recording can tell, event by event.
#[derive(Debug, Clone, Default)]
pub struct Survey {
    counts: [u64; EVENTS.len()],
    with_process: u64,
    without_process: u64,
}

impl Survey {
    /// Takes an event into account.
    pub fn add(&mut self, event: &Event<'_>) {
        self.counts[index_of(&event.what)] += 1;
        if event.task != 0 {
            match event.process {
                Some(_) => self.with_process += 1,
                None => self.without_process += 1,
            }
        }
    }

    /// The recording is over: what it can tell.
    pub fn finish(self, metadata: &Metadata) -> Coverage {
        let counted = |(event, &count): (&&str, &u64)| EventCount {
            event: (*event).to_owned(),
            count,
        };
        Coverage {
            processes: if self.with_process > 0 || self.without_process == 0 {
                Processes::Recorded
            } else {
                Processes::Absent
            },
            losses: metadata.losses.clone(),
            events: EVENTS.iter().zip(&self.counts).map(counted).collect(),
            ..Coverage::default()
        }
    }
}
