//! Room on the disk, taken ahead: what is in the file can then always be finished, though the disk be full.

use std::fs::File;
use std::io::{self, Seek};

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;

/// More than one group of rows and the end of the file take: a group of 65,536 rows is about 1 MiB.
const MARGIN: u64 = 8 << 20;

/// The room of one file.
pub(super) struct Room {
    file: File,
    taken: u64,
}

impl Room {
    /// For `file`, none taken yet.
    pub(super) fn new(file: &File) -> io::Result<Room> {
        Ok(Room {
            file: file.try_clone()?,
            taken: 0,
        })
    }

    /// Makes sure that there is room for a group, and after it for another group and the end of the file. When that
    /// fails, one group and the end still fit, because the call before took room for them.
    ///
    /// File systems that cannot take room ahead (some network ones) let us go on without.
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

    /// Gives back what was not used: the file ends at the position.
    pub(super) fn give_back(mut self) -> io::Result<()> {
        let end = self.file.stream_position()?;
        self.file.set_len(end)
    }
}
