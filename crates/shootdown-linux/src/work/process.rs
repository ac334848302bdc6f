//! Workers that are separate processes.

use std::io;

use crate::cpus;
use crate::work::shared::Shared;
use rustix::io::Result;

/// Forked workers, ended and waited for when dropped.
pub(super) struct Processes<'s> {
    shared: &'s Shared,
    processes: Vec<libc::pid_t>,
}

impl<'s> Processes<'s> {
    /// None at all.
    pub(super) fn none(shared: &'s Shared) -> Self {
        Processes {
            shared,
            processes: Vec::new(),
        }
    }

    /// One on each of `cpus`. `work` may only make system calls and touch memory that it was given or has mapped: no
    /// allocation, no lock, no panic, because it runs after the fork of a process with threads.
    pub(super) fn start(
        shared: &'s Shared,
        cpus: &[usize],
        work: fn(&Shared, usize) -> Result<()>,
    ) -> io::Result<Self> {
        let mut all = Processes::none(shared);
        for (index, &cpu) in cpus.iter().enumerate() {
            // SAFETY: the child does only what `work` may do, and leaves by `_exit`.
            match unsafe { libc::fork() } {
                -1 => return Err(io::Error::last_os_error()),
                0 => {
                    // SAFETY: as above. If the parent is killed, the child is too.
                    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
                    shared.report(index, cpus::pin(cpu).and_then(|()| work(shared, index)));
                    // SAFETY: nothing is flushed or dropped twice.
                    unsafe { libc::_exit(0) }
                }
                process => all.processes.push(process),
            }
        }
        Ok(all)
    }
}

impl Drop for Processes<'_> {
    fn drop(&mut self) {
        self.shared.stop();
        for &process in &self.processes {
            // SAFETY: a child of ours that no other thread waits for; it may be waiting for its turn, so it is killed.
            unsafe {
                libc::kill(process, libc::SIGKILL);
                libc::waitpid(process, std::ptr::null_mut(), 0);
            }
        }
    }
}
