//! What a process has open: its output, files in memory, and nothing else yet.

use super::errno::{EBADF, Errno};
use crate::backing::Memory;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// Something that is open.
#[derive(Clone)]
pub enum File {
    /// Where output goes.
    Output,
    /// A file in memory.
    Memory(Arc<Memory>),
}

/// By number.
#[derive(Clone)]
pub struct Files {
    open: Vec<Option<File>>,
}

impl Files {
    /// Input, of which there is none, and output twice.
    pub fn new() -> Files {
        Files {
            open: alloc::vec![None, Some(File::Output), Some(File::Output)],
        }
    }

    /// What is open under that number.
    ///
    /// # Errors
    /// EBADF when nothing is.
    pub fn get(&self, fd: u64) -> Result<&File, Errno> {
        let place = usize::try_from(fd).ok().and_then(|fd| self.open.get(fd));
        place.and_then(Option::as_ref).ok_or(EBADF)
    }

    /// The memory of a file; `None` when it has none that can be mapped.
    pub fn memory(&self, fd: u64) -> Option<Arc<Memory>> {
        match self.get(fd) {
            Ok(File::Memory(memory)) => Some(memory.clone()),
            _ => None,
        }
    }

    /// Opens it under the lowest free number.
    pub fn add(&mut self, file: File) -> u64 {
        let free = self.open.iter().skip(3).position(Option::is_none);
        let fd = free.map_or(self.open.len(), |index| index + 3);
        if fd == self.open.len() {
            self.open.push(None);
        }
        self.open[fd] = Some(file);
        fd as u64
    }

    /// Closes it.
    ///
    /// # Errors
    /// EBADF when nothing is open under that number.
    pub fn close(&mut self, fd: u64) -> Result<(), Errno> {
        self.get(fd)?;
        self.open[fd as usize] = None;
        Ok(())
    }

    /// Closes everything.
    pub fn close_all(&mut self) {
        self.open.clear();
    }
}
