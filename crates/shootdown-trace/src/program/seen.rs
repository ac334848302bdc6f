//! The CPUs on which the recording shows each process, to count the requests that no replay can predict.
//!
//! The kernel keeps a CPU in a space's set after the space has left it. A recording does not say which CPUs were in the
//! sets when it began: the first requests go to CPUs on which it has never shown the process. Memory: an entry for each
//! process and task.

use crate::{Event, Function, What};
use std::collections::{HashMap, HashSet};

#[derive(Debug, Default)]
pub(super) struct Seen {
    /// Process and CPU.
    on: HashSet<(u32, u32)>,
    processes: HashMap<u32, u32>,
    /// Requests queued to CPUs on which the requesting process had not been seen.
    pub unseen: u64,
}

impl Seen {
    pub fn add(&mut self, event: &Event<'_>) {
        let Some(process) = event.process.filter(|_| event.task != 0) else {
            return self.notice_switch(event);
        };
        self.processes.insert(event.task, process);
        self.on.insert((process, event.cpu));
        match event.what {
            What::Queued {
                target,
                function: Function::Shootdown,
            } => {
                // Once for each CPU: the kernel drops it from the set when the request finds the space gone.
                self.unseen += u64::from(self.on.insert((process, target)));
            }
            _ => self.notice_switch(event),
        }
    }

    fn notice_switch(&mut self, event: &Event<'_>) {
        if let What::Switch { to, .. } = event.what
            && let Some(&process) = self.processes.get(&to)
        {
            self.on.insert((process, event.cpu));
        }
    }
}
