//! What a process has open: its output, files in memory, pipes that carry pinned pages, and nothing.

use super::errno::{EBADF, Errno};
use crate::backing::Memory;
use crate::lock::Mutex;
use crate::memory::Frame;
use crate::space::AddressSpace;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// Something that is open.
#[derive(Clone)]
pub enum File {
    /// Where output goes.
    Output,
    /// A file in memory.
    Memory(Arc<Memory>),
    /// What takes everything (/dev/null).
    Null,
    /// The end of a pipe that is read.
    PipeOut(Arc<Pipe>),
    /// The end that is written.
    PipeIn(Arc<Pipe>),
}

/// Pages that were given to a pipe, each with a reference.
pub struct Pipe(Mutex<VecDeque<Frame>>);

impl Pipe {
    /// Pages that fit, as in Linux.
    pub const PAGES: usize = 16;

    /// An empty one.
    pub fn new() -> Arc<Pipe> {
        Arc::new(Pipe(Mutex::new(VecDeque::new())))
    }

    /// Hangs a page in; false when it is full.
    pub fn push(&self, page: Frame) -> bool {
        let mut pages = self.0.lock();
        let fits = pages.len() < Pipe::PAGES;
        if fits {
            pages.push_back(page);
        }
        fits
    }

    /// Takes the page that has been in longest.
    pub fn pop(&self) -> Option<Frame> {
        self.0.lock().pop_front()
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        self.0.get_mut().drain(..).for_each(AddressSpace::release_one);
    }
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
