//! Opening a recording, which may be standard input.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Whether a path stands for standard input.
pub fn is_stdin(path: &Path) -> bool {
    path == Path::new("-")
}

/// The unchanged bytes, and their number where it is known.
///
/// # Errors
/// When there is no such file, or it is a folder.
pub fn open(path: &Path) -> io::Result<(Box<dyn Read>, Option<u64>)> {
    if is_stdin(path) {
        return Ok((Box::new(io::stdin()), None));
    }
    let file = File::open(path)?;
    let data = file.metadata()?;
    if data.is_dir() {
        return Err(io::Error::other("is a folder; name the recording in it"));
    }
    let length = data.is_file().then_some(data.len());
    Ok((Box::new(file), length))
}
