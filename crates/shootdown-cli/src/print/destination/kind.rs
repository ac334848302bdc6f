//! The content of an existing file: one of this program's may be replaced, any other only with `--force`.

use std::fmt;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// `--force`. One flag for the process, because its command line is one.
static FORCE: AtomicBool = AtomicBool::new(false);

/// Lets every file be overwritten from here on: `--force` was given.
pub fn allow_overwriting() {
    FORCE.store(true, Ordering::Relaxed);
}

/// Whether `--force` was given.
pub fn may_overwrite() -> bool {
    FORCE.load(Ordering::Relaxed)
}

/// The kind of output. An existing file is replaced only if it is of the same kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// An HTML page.
    Page,
    /// A plot by itself, as SVG.
    Picture,
    /// The runs of a sweep, as CSV or Parquet.
    Sweep,
    /// A recording, as Parquet.
    Recording,
    /// A machine model that was measured.
    #[cfg_attr(
        not(target_os = "linux"),
        expect(dead_code, reason = "machines are measured on Linux only")
    )]
    Model,
    /// The steps of a race.
    Counterexample,
    /// The kernel as an image.
    Image,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Page => "report",
            Self::Picture => "plot",
            Self::Sweep => "table of a sweep",
            Self::Recording => "recording",
            Self::Model => "calibrated model",
            Self::Counterexample => "counterexample",
            Self::Image => "image",
        })
    }
}

/// Bytes that are examined, at each end of a file. An image names its files within its first MiB.
const LOOKED_AT: u64 = 1 << 20;

impl Kind {
    /// Whether replacing `path` loses nothing: it does not exist, is empty, or is of this kind; or `--force` was given.
    /// A file that cannot be read is not of this program.
    pub(super) fn may_replace(self, path: &Path) -> bool {
        if may_overwrite() || !path.exists() {
            return true;
        }
        ends(path).is_ok_and(|(first, last)| first.is_empty() || self.is_in(&first, &last))
    }

    fn is_in(self, first: &[u8], last: &[u8]) -> bool {
        let parquet = first.starts_with(b"PAR1");
        match self {
            Self::Page => first.starts_with(b"<!DOCTYPE html>") && contains(first, "Shootdown</title>".as_bytes()),
            Self::Picture => first.starts_with(b"<svg") && contains(first, b"(simulated), "),
            Self::Sweep if parquet => contains(last, b"sweep") && contains(last, b"point"),
            Self::Sweep => first.starts_with(b"sweep,point,"),
            Self::Recording => parquet && contains(last, shootdown_trace::columns::METADATA_KEY.as_bytes()),
            Self::Model => contains(first, b"Written by `shootdown calibrate`"),
            Self::Counterexample => first.starts_with(b"shootdown check "),
            Self::Image => contains(first, b"shootdown-kernel"),
        }
    }
}

/// The first and the last bytes of a file.
fn ends(path: &Path) -> std::io::Result<(Vec<u8>, Vec<u8>)> {
    let mut file = File::open(path)?;
    let (mut first, mut last) = (Vec::new(), Vec::new());
    Read::by_ref(&mut file).take(LOOKED_AT).read_to_end(&mut first)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(LOOKED_AT)))?;
    file.take(LOOKED_AT).read_to_end(&mut last)?;
    Ok((first, last))
}

fn contains(bytes: &[u8], needle: &[u8]) -> bool {
    bytes.windows(needle.len()).any(|window| window == needle)
}
