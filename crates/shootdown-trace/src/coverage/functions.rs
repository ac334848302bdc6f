//! Identifies functions without a name as the kernel's remote TLB flush: those that follow a `tlb_flush` with the
//! reason "remote IPI send", or that are followed by one with the reason "remote shootdown" on the target CPU.

use crate::{Event, Function, Reason, What};
use std::collections::{HashMap, HashSet, VecDeque};

/// Share of a function's calls that must look like a flush for it to be identified as one. Assumed: a flush is logged
/// every time by its sender, another function only by chance.
const SHARE: f64 = 0.5;

/// The same if addresses are hidden, and all functions have the same one. Assumed.
const SHARE_HIDDEN: f64 = 0.95;

/// Calls of one function.
#[derive(Debug, Clone, Copy, Default)]
struct Calls {
    queued: u64,
    /// After a log entry that a request is sent.
    after_note: u64,
    /// Followed by a flush on the target.
    followed: u64,
}

/// The state of functions without a name, by address.
#[derive(Debug, Clone, Default)]
pub(super) struct Functions {
    calls: HashMap<u64, Calls>,
    /// CPUs that have logged a send, and no event since.
    sending: HashSet<u32>,
    /// Calls at each CPU: sender and address.
    waiting: HashMap<u32, VecDeque<(u32, u64)>>,
    flushes: u64,
}

impl Functions {
    pub(super) fn add(&mut self, event: &Event<'_>) {
        match event.what {
            What::Queued { target, function } => {
                let waiting = self.waiting.entry(target).or_default();
                waiting.retain(|&(sender, _)| sender != event.cpu);
                if let Function::Unnamed(address) = function {
                    let calls = self.calls.entry(address).or_default();
                    calls.queued += 1;
                    calls.after_note += u64::from(self.sending.contains(&event.cpu));
                    waiting.push_back((event.cpu, address));
                }
            }
            What::Interrupt { .. } | What::Interrupts { .. } => {}
            What::Flush { reason, .. } => {
                self.flushes += 1;
                if reason == Reason::Sent {
                    self.sending.insert(event.cpu);
                } else {
                    self.sending.remove(&event.cpu);
                }
                if matches!(reason, Reason::Remote | Reason::WrongCpu)
                    && let Some((_, address)) = self.waiting.get_mut(&event.cpu).and_then(VecDeque::pop_front)
                {
                    self.calls.entry(address).or_default().followed += 1;
                }
            }
            _ => {
                self.sending.remove(&event.cpu);
            }
        }
    }

    /// The identity of each function, if known, and how many calls are shootdowns, and unknown.
    pub(super) fn finish(self) -> (HashMap<u64, Function>, u64, u64) {
        let (mut known, mut identified, mut unknown) = (HashMap::new(), 0, 0);
        for (&address, calls) in &self.calls {
            let seen = calls.after_note.max(calls.followed) as f64 / calls.queued.max(1) as f64;
            let share = if address == 0 { SHARE_HIDDEN } else { SHARE };
            if seen >= share {
                known.insert(address, Function::Shootdown);
                identified += calls.queued;
            } else if self.flushes > 0 && seen == 0.0 {
                known.insert(address, Function::Other);
            } else {
                unknown += calls.queued;
            }
        }
        (known, identified, unknown)
    }
}
