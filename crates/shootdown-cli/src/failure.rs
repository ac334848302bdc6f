//! Errors of a command, and their exit statuses.

use std::{fmt, io};

/// Exit status on success.
pub const SUCCESS: u8 = 0;
/// Exit status when a design other than `none` had a stale translation, a run failed, or results could not be written.
pub const BAD_RUN: u8 = 1;
/// Exit status on bad usage or bad input.
pub const BAD_INPUT: u8 = 2;
/// Exit status after Ctrl-C (128 + SIGINT, as shells have it).
pub const INTERRUPTED: u8 = 130;

/// The reason why a command ended early.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// Bad usage or bad input: one line with the thing, the place and the remedy.
    Input(String),
    /// The input is valid, but has nothing that the command could work on: one line saying what is missing.
    Unusable(String),
    /// Results could not be printed or written: one line with the place, the reason and the remedy.
    Output(String),
    /// Ctrl-C: runs were abandoned and nothing was written.
    Interrupted,
    /// Ctrl-C in a command that has printed what was complete, or can resume: one line saying so.
    Suspended(String),
}

impl Failure {
    /// The exit status that reports this.
    pub fn status(&self) -> u8 {
        match self {
            Self::Input(_) => BAD_INPUT,
            Self::Unusable(_) | Self::Output(_) => BAD_RUN,
            Self::Interrupted | Self::Suspended(_) => INTERRUPTED,
        }
    }

    /// The message, without the word before it.
    pub fn line(self) -> String {
        match self {
            Self::Input(line) | Self::Unusable(line) | Self::Output(line) | Self::Suspended(line) => line,
            Self::Interrupted => self.to_string(),
        }
    }
}

/// The reason in the system's words, without the name of a temporary file.
pub fn reason(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(code) => io::Error::from_raw_os_error(code).to_string(),
        None => error.to_string(),
    }
}

/// Why a file cannot be read, and the remedy.
pub fn unread(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "there is no such file; check the path".to_string(),
        io::ErrorKind::UnexpectedEof => "ends too early; was it copied whole?".to_string(),
        io::ErrorKind::InvalidData => format!("is not what was expected ({error}); is it the right file?"),
        _ => error.to_string(),
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Input(line) | Self::Unusable(line) | Self::Output(line) => write!(f, "error: {line}"),
            Self::Interrupted => f.write_str("interrupted: runs abandoned, no report written"),
            Self::Suspended(line) => write!(f, "interrupted: {line}"),
        }
    }
}
