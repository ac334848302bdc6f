//! The open files of a process: its output, files in memory, pipes that carry pinned pages, and /dev/null.

use super::errno::{EBADF, Errno};
use crate::backing::Memory;
use crate::lock::Mutex;
use crate::memory::Frame;
use crate::space::AddressSpace;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// An open file.
#[derive(Clone)]
pub enum File {
    /// The output.
    Output,
    /// A file in memory.
    Memory(Arc<Memory>),
    /// /dev/null.
    Null,
    /// The read end of a pipe.
    PipeOut(Arc<Pipe>),
    /// The write end.
    PipeIn(Arc<Pipe>),
}

/// Pages passed to a pipe, each with a reference.
pub struct Pipe(Mutex<VecDeque<Frame>>);

impl Pipe {
    /// Capacity in pages, as in Linux.
    pub const PAGES: usize = 16;

    /// An empty one.
    pub fn new() -> Arc<Pipe> {
        Arc::new(Pipe(Mutex::new(VecDeque::new())))
    }

    /// Adds a page; false when it is full.
    pub fn push(&self, page: Frame) -> bool {
        let mut pages = self.0.lock();
        let fits = pages.len() < Pipe::PAGES;
        if fits {
            pages.push_back(page);
        }
        fits
    }

    /// Takes the oldest page.
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
    /// Input, which is empty, and output twice.
    pub fn new() -> Files {
        Files {
            open: alloc::vec![None, Some(File::Output), Some(File::Output)],
        }
    }

    /// The file with that number.
    ///
    /// # Errors
    /// EBADF when nothing is.
    pub fn get(&self, fd: u64) -> Result<&File, Errno> {
        let place = usize::try_from(fd).ok().and_then(|fd| self.open.get(fd));
        place.and_then(Option::as_ref).ok_or(EBADF)
    }

    /// The memory of a file; `None` if it cannot be mapped.
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
