//! The stream of events of an instance, as a reader that ends on request.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// Interval between two reads of an empty pipe: long, because the recorder shares the CPUs with the recorded program.
const PAUSE: Duration = Duration::from_millis(250);

/// Reads events as they arrive. It ends when it is empty after [`ended`](Pipe::ended) was set.
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

    /// Set it when recording has been switched off, and unpark the reader: the rest is read, then the reader ends.
    pub fn ended(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.ended)
    }
}

impl Read for Pipe {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            // Before the read, which then sees everything recorded before `ended` was set.
            // Acquire. Pairs with the release of the thread that switched recording off.
            let ended = self.ended.load(Ordering::Acquire);
            match self.file.read(buffer) {
                Ok(0) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                // The kernel returns this while a CPU's buffer is resized or read by another.
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
