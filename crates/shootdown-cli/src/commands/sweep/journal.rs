//! The journal: finished runs of a sweep, appended one line each, so that an interrupted sweep can resume.
//!
//! The first line identifies the sweep. A torn last line (the process or the machine died in the middle of it) is
//! dropped; any other line that is not a finished run is refused. On Unix the file is locked while a sweep uses it.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::results::{self, Value};

/// Longest time for which finished runs may sit in the page cache only.
const SYNC_EVERY: Duration = Duration::from_secs(1);

/// The named cells of finished runs, by point.
pub type Finished = BTreeMap<usize, Vec<(String, Value)>>;

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Header {
    /// Version of this format.
    journal: u32,
    sweep: String,
    points: usize,
    shard: String,
    command: String,
}

#[derive(Serialize)]
struct Line<'a> {
    point: usize,
    cells: &'a [(String, Value)],
}

#[derive(Deserialize)]
struct ReadLine {
    point: usize,
    cells: Vec<(String, serde_json::Value)>,
}

/// An open journal.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
    synced: Instant,
}

/// The sweep, and the shard of it, that a journal belongs to.
#[derive(Debug, Clone)]
pub struct Identity {
    /// The sweep's hash, as written in results.
    pub sweep: String,
    /// Points of the whole sweep.
    pub points: usize,
    /// The shard, as in `1/4`.
    pub shard: String,
    /// The command, for people.
    pub command: String,
}

impl Journal {
    /// The path of an output file's journal.
    pub fn beside(output: &Path) -> PathBuf {
        let mut name = output.as_os_str().to_owned();
        name.push(".journal");
        PathBuf::from(name)
    }

    /// Opens the journal at `path`, or starts one, and returns the runs that it holds.
    ///
    /// # Errors
    /// One line with the file, the line in it, and the remedy: another sweep's journal, one that is damaged before its
    /// end, one in use, a file that cannot be written.
    pub fn open(path: &Path, identity: &Identity) -> Result<(Self, Finished), String> {
        let fail = |reason: String| format!("{}: {reason}", path.display());
        let io = |error: io::Error| fail(error.to_string());
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(io)?;
        lock(&file).map_err(|_| {
            fail(
                "another sweep is writing to it; wait for it to end, or give each shard an output of its own"
                    .to_string(),
            )
        })?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(io)?;
        // The text after the last line break was torn.
        let whole = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |last| last + 1);
        let header = Header {
            journal: 1,
            sweep: identity.sweep.clone(),
            points: identity.points,
            shard: identity.shard.clone(),
            command: identity.command.clone(),
        };
        let (finished, end) = if whole == 0 {
            (Finished::new(), 0)
        } else {
            read(&bytes[..whole], &header).map_err(fail)?
        };
        file.set_len(end as u64).map_err(io)?;
        file.seek(SeekFrom::End(0)).map_err(io)?;
        if end == 0 {
            let text = serde_json::to_string(&header).expect("plain data serializes");
            let full = |error: io::Error| fail(format!("{error}; free some space, or choose another output with -o"));
            file.write_all(format!("{text}\n").as_bytes()).map_err(full)?;
            file.sync_data().map_err(full)?;
        }
        let journal = Self {
            path: path.to_path_buf(),
            file,
            synced: Instant::now(),
        };
        Ok((journal, finished))
    }

    /// Appends a finished run.
    ///
    /// # Errors
    /// One line naming the file and why it cannot be written.
    pub fn append(&mut self, point: usize, cells: &[(String, Value)]) -> Result<(), String> {
        let fail = |error: io::Error| format!("{}: {error}", self.path.display());
        let mut text = serde_json::to_string(&Line { point, cells }).expect("plain data serializes");
        text.push('\n');
        // One call, so that only the end of the file can be torn.
        self.file.write_all(text.as_bytes()).map_err(fail)?;
        if self.synced.elapsed() >= SYNC_EVERY {
            self.file.sync_data().map_err(fail)?;
            self.synced = Instant::now();
        }
        Ok(())
    }

    /// Removes the file; the results are in the output.
    pub fn remove(self) {
        // The next sweep refuses a leftover journal or finds it complete, so this may fail.
        let _ = std::fs::remove_file(&self.path);
    }
}

#[cfg(unix)]
fn lock(file: &File) -> io::Result<()> {
    match rustix::fs::flock(file, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
        Err(rustix::io::Errno::WOULDBLOCK) => Err(io::ErrorKind::WouldBlock.into()),
        // Some network file systems have no locks.
        _ => Ok(()),
    }
}

#[cfg(not(unix))]
fn lock(_file: &File) -> io::Result<()> {
    Ok(())
}

/// Reads whole lines; returns the runs and where the last good line ends.
fn read(bytes: &[u8], expected: &Header) -> Result<(Finished, usize), String> {
    let mut finished = Finished::new();
    let mut end = 0;
    let lines: Vec<&[u8]> = bytes.split_inclusive(|&byte| byte == b'\n').collect();
    for (index, line) in lines.iter().enumerate() {
        let number = index + 1;
        if index == 0 {
            let header: Header = serde_json::from_slice(line)
                .map_err(|_| format!("{number}: is not the journal of a sweep; choose another output with -o"))?;
            if (&header.sweep, header.points, &header.shard) != (&expected.sweep, expected.points, &expected.shard) {
                return Err(format!(
                    "belongs to another sweep (`{}`, or its machine file has changed since); \
                     repeat that one, choose another output with -o, or delete the journal to start over",
                    header.command
                ));
            }
        } else {
            match parse(line, expected.points) {
                Some((point, cells)) => {
                    finished.insert(point, cells);
                }
                // A block of the last line that never reached the disk.
                None if number == lines.len() => break,
                None => {
                    return Err(format!(
                        "{number}: is not a finished run; \
                         delete that line to run it again, or the journal to start over"
                    ));
                }
            }
        }
        end += line.len();
    }
    Ok((finished, end))
}

fn parse(line: &[u8], points: usize) -> Option<(usize, Vec<(String, Value)>)> {
    let line: ReadLine = serde_json::from_slice(line).ok()?;
    let cells = line.cells.into_iter().map(|(name, value)| {
        let value = Value::from_json(&value, results::kind(&name))?;
        Some((name, value))
    });
    (line.point < points).then_some((line.point, cells.collect::<Option<_>>()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity() -> Identity {
        Identity {
            sweep: "00ff".to_string(),
            points: 5,
            shard: "1/1".to_string(),
            command: "shootdown sweep w".to_string(),
        }
    }

    fn cells(ops: u64) -> Vec<(String, Value)> {
        vec![
            ("ops".to_string(), Value::Count(ops)),
            ("ops_per_s".to_string(), Value::Number(0.1 + 0.2)),
            ("diagnosis".to_string(), Value::Text("a\n\"b\"".to_string())),
            ("caught_after".to_string(), Value::Null),
        ]
    }

    #[test]
    fn torn_journal_keeps_every_complete_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("j");
        let (mut journal, finished) = Journal::open(&path, &identity()).unwrap();
        assert!(finished.is_empty());
        journal.append(3, &cells(7)).unwrap();
        let first = std::fs::metadata(&path).unwrap().len() as usize;
        journal.append(0, &cells(8)).unwrap();
        drop(journal);
        let bytes = std::fs::read(&path).unwrap();
        let header = bytes.iter().position(|&byte| byte == b'\n').unwrap() + 1;
        for cut in 0..=bytes.len() {
            std::fs::write(&path, &bytes[..cut]).unwrap();
            let (mut journal, finished) = Journal::open(&path, &identity()).unwrap();
            let mut expected = Finished::new();
            if cut >= first {
                expected.insert(3, cells(7));
            }
            if cut == bytes.len() {
                expected.insert(0, cells(8));
            }
            assert_eq!(finished, expected, "cut at {cut} of {}, header {header}", bytes.len());
            journal.append(4, &cells(9)).unwrap();
            drop(journal);
            expected.insert(4, cells(9));
            assert_eq!(Journal::open(&path, &identity()).unwrap().1, expected, "cut at {cut}");
        }
    }

    #[test]
    fn only_trailing_zeros_count_as_a_torn_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("j");
        let (mut journal, _) = Journal::open(&path, &identity()).unwrap();
        journal.append(1, &cells(1)).unwrap();
        drop(journal);
        let good = std::fs::read(&path).unwrap();
        std::fs::write(&path, [&good[..], &[0; 30], b"\n"].concat()).unwrap();
        assert_eq!(Journal::open(&path, &identity()).unwrap().1.len(), 1);
        std::fs::write(&path, [&good[..], b"{}\n", b"{}\n"].concat()).unwrap();
        let message = Journal::open(&path, &identity()).unwrap_err();
        assert!(
            message.contains("j: 3: is not a finished run; delete that line"),
            "{message}"
        );
    }

    #[test]
    fn a_journal_of_another_sweep_is_refused_with_the_remedy() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("j");
        drop(Journal::open(&path, &identity()).unwrap());
        for other in [
            Identity {
                sweep: "1".to_string(),
                ..identity()
            },
            Identity {
                shard: "1/2".to_string(),
                ..identity()
            },
        ] {
            let message = Journal::open(&path, &other).unwrap_err();
            assert!(
                message.contains("belongs to another sweep (`shootdown sweep w`")
                    && message.contains("delete the journal"),
                "{message}"
            );
        }
        std::fs::write(&path, "my diary\n").unwrap();
        assert!(
            Journal::open(&path, &identity())
                .unwrap_err()
                .contains("is not the journal of a sweep")
        );
    }

    #[test]
    #[cfg(unix)]
    fn two_sweeps_cannot_share_a_journal() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("j");
        let open = Journal::open(&path, &identity()).unwrap();
        assert!(
            Journal::open(&path, &identity())
                .unwrap_err()
                .contains("another sweep is writing")
        );
        drop(open);
        Journal::open(&path, &identity()).unwrap();
    }
}
