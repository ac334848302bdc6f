//! The content of a recording in a few numbers. Memory: an entry per process.

use crate::{Event, Function, Reason, Resolver, What};
use std::collections::HashMap;

/// One process (or one task, where the recording does not know processes).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Process {
    /// Its number.
    pub process: u32,
    /// Name of the task that was seen first.
    pub name: String,
    /// Requests that it actually queued to another CPU.
    pub shootdowns: u64,
    /// Invalidations on CPUs that ran it, [`Reason::Sent`] not counted.
    pub flushes: u64,
}

/// The numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Summary {
    /// Events.
    pub events: u64,
    /// Time of the first event, ns.
    pub first_ns: u64,
    /// Time of the last, ns.
    pub last_ns: u64,
    /// One more than the highest CPU seen.
    pub cpus: u32,
    /// Task switches.
    pub switches: u64,
    /// Invalidations by reason, by number; `Sent` is a message, not an invalidation.
    pub flushes: [u64; Reason::ALL.len()],
    /// Shootdown requests actually queued to a CPU.
    pub shootdowns: u64,
    /// Interrupts for function calls.
    pub call_interrupts: u64,
    /// Memory system calls.
    pub calls: u64,
    processes: HashMap<u32, Process>,
    /// Calls whose function has no name, by process and address.
    unnamed: HashMap<(u32, u64), u64>,
}

impl Summary {
    /// Processes an event.
    pub fn add(&mut self, event: &Event<'_>) {
        if self.events == 0 {
            self.first_ns = event.time_ns;
        }
        self.events += 1;
        self.last_ns = event.time_ns;
        self.cpus = self.cpus.max(event.cpu + 1);
        match event.what {
            What::Switch { .. } => self.switches += 1,
            What::Flush { reason, .. } => {
                self.flushes[reason as usize] += 1;
                if reason != Reason::Sent {
                    self.process(event).flushes += 1;
                }
            }
            What::Queued {
                function: Function::Shootdown,
                ..
            } => {
                self.shootdowns += 1;
                self.process(event).shootdowns += 1;
            }
            What::Queued {
                function: Function::Unnamed(address),
                ..
            } => {
                let process = self.process(event).process;
                *self.unnamed.entry((process, address)).or_default() += 1;
            }
            What::Interrupt { call, .. } | What::Interrupts { call, .. } => self.call_interrupts += u64::from(call),
            What::Call { .. } => self.calls += 1,
            _ => {}
        }
    }

    /// Counts calls without a name by their identity, if the whole recording reveals it.
    pub fn identify(&mut self, resolver: &Resolver) {
        for (&(process, address), &count) in &self.unnamed {
            if resolver.function(address) == Some(Function::Shootdown) {
                self.shootdowns += count;
                if let Some(process) = self.processes.get_mut(&process) {
                    process.shootdowns += count;
                }
            }
        }
        self.unnamed.clear();
    }

    fn process(&mut self, event: &Event<'_>) -> &mut Process {
        let process = event.process.unwrap_or(event.task);
        self.processes.entry(process).or_insert_with(|| Process {
            process,
            name: event.name.to_owned(),
            ..Process::default()
        })
    }

    /// Length in seconds.
    pub fn seconds(&self) -> f64 {
        self.last_ns.saturating_sub(self.first_ns) as f64 * 1e-9
    }

    /// Processes, those with the most shootdowns first, then those with the most invalidations, then by number.
    pub fn processes(&self) -> Vec<&Process> {
        let mut all: Vec<_> = self.processes.values().collect();
        all.sort_by_key(|process| {
            (
                std::cmp::Reverse(process.shootdowns),
                std::cmp::Reverse(process.flushes),
                process.process,
            )
        });
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shootdowns_count_for_the_initiating_process() {
        let event = |time_ns, process, what| Event {
            time_ns,
            cpu: 1,
            task: 9,
            process,
            name: "a",
            what,
        };
        let flush = |reason| What::Flush { pages: 1, reason };
        let queued = |function| What::Queued { target: 0, function };
        let mut summary = Summary::default();
        for event in [
            event(1_000, Some(5), flush(Reason::LocalSpace)),
            event(2_000, Some(5), flush(Reason::Sent)),
            event(3_000, None, queued(Function::Shootdown)),
            event(4_000, Some(5), queued(Function::Other)),
        ] {
            summary.add(&event);
        }
        assert_eq!((summary.events, summary.shootdowns, summary.cpus), (4, 1, 2));
        let processes: Vec<_> = summary.processes().into_iter().cloned().collect();
        let of = |process, shootdowns, flushes| Process {
            process,
            name: "a".into(),
            shootdowns,
            flushes,
        };
        assert_eq!(processes, [of(9, 1, 0), of(5, 0, 1)]);
        assert!((summary.seconds() - 3e-6).abs() < 1e-12);
    }
}
