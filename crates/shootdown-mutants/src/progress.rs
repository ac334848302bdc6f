//! Progress of a long run, on stderr: a bar on a terminal, occasional lines elsewhere.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// Interval between two lines.
const EVERY: Duration = Duration::from_secs(10);

/// Progress over similar items. It leaves the terminal when it is dropped.
pub struct Progress {
    bar: ProgressBar,
    what: &'static str,
    /// When the last line was printed, and the note beside the count.
    printed: Mutex<(Instant, String)>,
}

impl Progress {
    /// For that many items; `what` is done to them.
    pub fn new(length: usize, what: &'static str) -> Self {
        let bar = ProgressBar::new(length as u64);
        let template = format!("{{bar:40}} {{pos}} of {{len}} {what}, {{elapsed}} elapsed, {{eta}} left  {{msg}}");
        if let Ok(style) = ProgressStyle::with_template(&template) {
            bar.set_style(style);
        }
        let progress = Progress {
            bar,
            what,
            printed: Mutex::new((Instant::now(), String::new())),
        };
        if progress.bar.is_hidden() {
            eprintln!("{}", progress.line(""));
        }
        progress
    }

    /// Prints `line` above the bar.
    pub fn say(&self, line: &str) {
        self.bar.suspend(|| eprintln!("{line}"));
    }

    /// Shows `note` beside the count from here on.
    pub fn note(&self, note: String) {
        self.printed
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .1
            .clone_from(&note);
        self.bar.set_message(note);
    }

    /// One more is done.
    pub fn advance(&self) {
        self.bar.inc(1);
        let mut printed = self.printed.lock().unwrap_or_else(PoisonError::into_inner);
        let is_last = self.bar.length() == Some(self.bar.position());
        if self.bar.is_hidden() && (is_last || printed.0.elapsed() >= EVERY) {
            printed.0 = Instant::now();
            eprintln!("{}", self.line(&printed.1));
        }
    }

    fn line(&self, note: &str) -> String {
        let separator = if note.is_empty() { "" } else { ", " };
        let (done, all) = (self.bar.position(), self.bar.length().unwrap_or_default());
        format!("{done} of {all} {}{separator}{note}", self.what)
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_line_has_count_and_note() {
        let progress = Progress::new(3, "mutations tried");
        assert_eq!(progress.line(""), "0 of 3 mutations tried");
        progress.advance();
        progress.note("survivors: 1".to_string());
        progress.advance();
        assert_eq!(progress.line("survivors: 1"), "2 of 3 mutations tried, survivors: 1");
    }
}
