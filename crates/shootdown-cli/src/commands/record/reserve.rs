//! Disk space, allocated ahead, so that a started file can always be finished, even on a full disk.

use std::fs::File;
use std::io::{self, Seek};

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;

/// An upper bound on one group of rows and the end of the file: a group of 65,536 rows is about 1 MiB.
const MARGIN: u64 = 8 << 20;

/// The space allocated for one file.
pub(super) struct Reserve {
    file: File,
    taken: u64,
}

impl Reserve {
    /// For `file`, with nothing allocated yet.
    pub(super) fn new(file: &File) -> io::Result<Reserve> {
        Ok(Reserve {
            file: file.try_clone()?,
            taken: 0,
        })
    }

    /// Ensures that there is space for a group, and then for another group and the end of the file. When that fails,
    /// one group and the end still fit, because the previous call allocated space for them.
    ///
    /// File systems that cannot allocate ahead (some network ones) are used without it.
    pub(super) fn take(&mut self) -> io::Result<()> {
        // The position is shared with the handle that is written through.
        let needed = self.file.stream_position()? + 2 * MARGIN;
        if needed <= self.taken {
            return Ok(());
        }
        match fallocate(&self.file, FallocateFlags::empty(), 0, needed) {
            Ok(()) => self.taken = needed,
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Frees unused space: the file ends at the position.
    pub(super) fn give_back(mut self) -> io::Result<()> {
        let end = self.file.stream_position()?;
        self.file.set_len(end)
    }
}
