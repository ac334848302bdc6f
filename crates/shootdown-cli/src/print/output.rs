//! Output on stdout and stderr, and the order in which results are printed and written.

use std::io::{self, ErrorKind, Write};
use std::sync::atomic::AtomicBool;

use super::terminal;
use crate::failure::{Failure, reason};

pub use super::destination::{Destination, Kind, allow_overwriting, may_overwrite};

/// Prints text for people: as [`print`], with lines that are longer than the terminal broken between words.
///
/// # Errors
/// As [`print`].
pub fn show(text: &str) -> Result<(), Failure> {
    print(&terminal::fit(text, terminal::get()))
}

/// Prints a document for programs as it is, text for people as [`show`] does.
///
/// # Errors
/// As [`print`].
pub fn print_as(document: bool, text: &str) -> Result<(), Failure> {
    if document { print(text) } else { show(text) }
}

/// Prints to stdout as it is, for programs; a reader that has gone away is not an error.
///
/// # Errors
/// One line when stdout cannot take it for another reason, such as a full disk.
pub fn print(text: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(Failure::Output(format!(
            "standard output: {}; the results are not printed whole",
            reason(&error)
        ))),
        _ => Ok(()),
    }
}

/// Prints the results that were complete at Ctrl-C and, for people, how many of the `parts` are missing; the returned
/// failure ends the command.
pub fn partial(document: bool, text: &str, missing: usize, of: usize, parts: &str) -> Failure {
    let missing = format!("{missing} of {of} {parts} did not end and are missing above");
    let printed = match document {
        true => print(text),
        false => show(&format!("{text}INTERRUPTED: {missing}\n")),
    };
    match printed {
        Ok(()) => Failure::Suspended(format!("{missing}; no file is written")),
        Err(failure) => failure,
    }
}

/// Prints a message that is not a result on stderr; a closed stderr is ignored.
pub fn note(line: &str) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}

/// Prints `text`, then writes `content` to the file, if there is one, and names the file in a last line `LABEL: PATH`;
/// without a label the text is a document for programs.
///
/// The file comes last, so that a full disk loses the file and not the results. It is written even if stdout fails.
///
/// # Errors
/// As [`print`] and [`Destination::write`].
pub fn results<C: AsRef<[u8]>>(
    text: &str,
    destination: Option<&Destination>,
    label: Option<&str>,
    content: impl FnOnce() -> C,
    stop: &AtomicBool,
) -> Result<(), Failure> {
    let printed = print_as(label.is_none(), text);
    let Some(destination) = destination else {
        return printed;
    };
    let written = destination.write(content(), stop);
    printed.and(written)?;
    match label {
        Some(label) => show(&format!("{label}: {}\n", destination.shown())),
        None => Ok(()),
    }
}
