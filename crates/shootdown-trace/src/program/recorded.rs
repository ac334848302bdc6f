//! The recorded kernel's handling of the requests: withheld from the steps, for comparison with a replay.

use crate::{Event, Function, Reason, What};
use hdrhistogram::Histogram;
use std::collections::VecDeque;

/// The counts.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Recorded {
    /// Events.
    pub events: u64,
    /// Time of the first event, ns.
    pub first_ns: u64,
    /// Time of the last, ns.
    pub last_ns: u64,
    /// One more than the highest CPU seen.
    pub cpus: u32,
    /// Flushes that were requested.
    pub requests: u64,
    /// Requests logged as sent, with or without targets.
    pub sent: u64,
    /// Shootdowns actually queued, one per target CPU.
    pub queued: u64,
    /// Flushes on another CPU's request.
    pub remote: u64,
    /// Requests at CPUs that had left the space.
    pub elsewhere: u64,
    /// Root loads at switches that kept the tag's translations.
    pub kept: u64,
    /// Root loads and returns from idleness that flushed.
    pub flushed: u64,
    /// Switches that the recording lacks.
    pub inferred_switches: u64,
    /// Requests of kernel threads whose spaces are known from their target CPUs. Replayed.
    pub kernel_requests: u64,
    /// Requests whose space the recording does not name: those of kernel threads without a target CPU whose space is
    /// known, and those for several spaces.
    pub foreign: u64,
    /// Of the shootdowns queued, those to CPUs on which the recording had not shown the process: it had been there
    /// before the recording began, or between lines. No replay can predict them.
    pub unseen: u64,
    /// Spaces.
    pub spaces: u64,
    /// From the queuing of a request to its flush on the other CPU.
    pub queued_to_flushed: Times,
    /// At each CPU, the sender and the time of requests that it has not answered; at most one of each sender.
    waiting: Vec<VecDeque<(u32, u64)>>,
}

/// Times, summed up with two significant digits.
#[derive(Debug, Clone, PartialEq)]
pub struct Times(Histogram<u64>);

impl Default for Times {
    fn default() -> Self {
        Times(Histogram::new(2).expect("two significant digits are allowed"))
    }
}

impl Times {
    fn add(&mut self, ns: u64) {
        self.0 += ns;
    }

    /// Their number.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// The time that a share (0 to 1) of them did not exceed, ns; `None` without any.
    pub fn quantile(&self, share: f64) -> Option<u64> {
        (!self.0.is_empty()).then(|| self.0.value_at_quantile(share).min(self.0.max()))
    }
}

impl Recorded {
    pub(super) fn add(&mut self, event: &Event<'_>) {
        if self.events == 0 {
            self.first_ns = event.time_ns;
        }
        self.events += 1;
        self.last_ns = event.time_ns;
        self.cpus = self.cpus.max(event.cpu + 1);
        match event.what {
            What::Flush { reason, pages } => match reason {
                Reason::TaskSwitch if pages == 0 => self.kept += 1,
                Reason::TaskSwitch => self.flushed += 1,
                Reason::Remote => {
                    self.remote += 1;
                    self.answered(event);
                }
                Reason::WrongCpu => {
                    self.elsewhere += 1;
                    self.answered(event);
                }
                Reason::Sent => self.sent += 1,
                Reason::Local | Reason::LocalSpace => {}
            },
            What::Queued {
                target,
                function: Function::Shootdown,
            } => {
                self.queued += 1;
                let waiting = self.waiting(target);
                // An initiator has waited for its previous request: that one was answered without a log entry.
                waiting.retain(|&(sender, _)| sender != event.cpu);
                waiting.push_back((event.cpu, event.time_ns));
            }
            // A CPU that waits for an answer does not switch: this CPU's request was answered without a log entry.
            What::Switch { .. } => {
                for waiting in &mut self.waiting {
                    waiting.retain(|&(sender, _)| sender != event.cpu);
                }
            }
            _ => {}
        }
    }

    fn waiting(&mut self, cpu: u32) -> &mut VecDeque<(u32, u64)> {
        let index = cpu as usize;
        if self.waiting.len() <= index {
            self.waiting.resize_with(index + 1, VecDeque::new);
        }
        &mut self.waiting[index]
    }

    fn answered(&mut self, event: &Event<'_>) {
        if let Some((_, queued)) = self.waiting(event.cpu).pop_front() {
            self.queued_to_flushed.add(event.time_ns - queued);
        }
    }

    /// Length in seconds.
    pub fn seconds(&self) -> f64 {
        self.last_ns.saturating_sub(self.first_ns) as f64 * 1e-9
    }
}
