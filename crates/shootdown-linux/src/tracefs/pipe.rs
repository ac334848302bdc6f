//! The stream of events of an instance, as a reader that ends when it is told to.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// Between two looks at an empty pipe: seldom, because the recorder shares the CPUs with what it records.
const PAUSE: Duration = Duration::from_millis(250);

/// Reads events as they come. It is at its end when it is empty after [`ended`](Pipe::ended) was set.
#[derive(Debug)]
pub struct Pipe {
    file: File,
    ended: Arc<AtomicBool>,
}

impl Pipe {
    pub(super) fn open(path: &Path) -> io::Result<Pipe> {
        let flags = libc::O_NONBLOCK;
        Ok(Pipe {
            file: OpenOptions::new().read(true).custom_flags(flags).open(path)?,
            ended: Arc::default(),
        })
    }

    /// Set it when recording has been switched off, and unpark the reader: what is left is read, then the reader is at
    /// its end.
    pub fn ended(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.ended)
    }
}

impl Read for Pipe {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            // Before the read: what was recorded before `ended` was set is then seen by it.
            // Acquire pairs with the release of whoever switched recording off.
            let ended = self.ended.load(Ordering::Acquire);
            match self.file.read(buffer) {
                Ok(0) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                // The kernel says so while a CPU's buffer is resized or being read by another.
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                other => return other,
            }
            if ended {
                return Ok(0);
            }
            thread::park_timeout(PAUSE);
        }
    }
}
