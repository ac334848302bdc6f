//! Progress of a command, on stderr: a bar on a terminal; elsewhere a line after two seconds, and further ones at
//! intervals that double up to ten.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use super::output;

/// Steps of the bar.
const STEPS: f64 = 10_000.0;

/// A bar and the text of [`State::line`], in at most 60 columns.
const BAR: &str = "{bar:10.cyan/dim} {wide_msg}";

/// Time of the first line without a bar, and of the second after that. Each later interval is twice the last.
const FIRST: Duration = Duration::from_secs(2);
/// Longest interval of lines.
const LONGEST: Duration = Duration::from_secs(10);
/// Interval between changes of the text beside the bar.
const REDRAW: Duration = Duration::from_millis(250);

/// Progress over parts of a command, fed from any host thread. It leaves the terminal when it is dropped.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
    state: Arc<Mutex<State>>,
    /// Dropped to end the thread that shows the progress.
    end: Option<Sender<()>>,
    shows: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct State {
    /// The noun of the parts, in the plural.
    parts: &'static str,
    weights: Vec<f64>,
    fractions: Vec<f64>,
    done: usize,
    begun: Instant,
}

impl Progress {
    /// No progress yet on these parts, each with a weight in proportion to its expected time. `parts` is their noun, as
    /// in "runs".
    pub fn new(parts: &'static str, weights: Vec<f64>) -> Self {
        let bar = ProgressBar::new(STEPS as u64);
        if let Ok(style) = ProgressStyle::with_template(BAR) {
            bar.set_style(style);
        }
        let state = Arc::new(Mutex::new(State {
            parts,
            fractions: vec![0.0; weights.len()],
            weights,
            done: 0,
            begun: Instant::now(),
        }));
        let (end, ended) = channel::<()>();
        let (shown, on) = (Arc::clone(&state), bar.clone());
        let shows = thread::spawn(move || {
            let mut pause = if on.is_hidden() { FIRST } else { Duration::ZERO };
            let mut next = FIRST;
            while ended.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                let state = locked(&shown);
                let line = state.line(state.begun.elapsed());
                if on.is_hidden() {
                    output::note(&line);
                    pause = next;
                    next = (2 * next).min(LONGEST);
                } else {
                    on.set_message(line);
                    on.set_position((state.fraction() * STEPS) as u64);
                    pause = REDRAW;
                }
            }
        });
        Self {
            bar,
            state,
            end: Some(end),
            shows: Some(shows),
        }
    }

    /// Part `index` is done to `fraction` (0 to 1).
    pub fn update(&self, index: usize, fraction: f64) {
        if fraction.is_finite() {
            locked(&self.state).fractions[index] = fraction.clamp(0.0, 1.0);
        }
    }

    /// Part `index` is complete.
    pub fn finish(&self, index: usize) {
        let mut state = locked(&self.state);
        state.done += 1;
        state.fractions[index] = 1.0;
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(shows) = self.shows.take() {
            let _ = shows.join();
        }
        self.bar.finish_and_clear();
    }
}

/// A number for people is still useful after a panic elsewhere.
fn locked(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl State {
    /// The fraction done, 0 to 1.
    fn fraction(&self) -> f64 {
        let done: f64 = self
            .weights
            .iter()
            .zip(&self.fractions)
            .map(|(weight, done)| weight * done)
            .sum();
        let all: f64 = self.weights.iter().sum();
        if all > 0.0 { done / all } else { 0.0 }
    }

    /// The progress after `elapsed`, and the remaining time at the same rate.
    fn line(&self, elapsed: Duration) -> String {
        let fraction = self.fraction();
        let left = match fraction > 0.0 {
            true => format!("about {} left", clock(elapsed.as_secs_f64() * (1.0 / fraction - 1.0))),
            false => "time left not known yet".to_string(),
        };
        format!(
            "{} of {} {}, {}, {left}",
            self.done,
            self.weights.len(),
            self.parts,
            clock(elapsed.as_secs_f64())
        )
    }
}

/// Seconds as minutes and seconds, with hours where there are any.
fn clock(seconds: f64) -> String {
    let seconds = seconds.round() as u64;
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    match hours {
        0 => format!("{minutes}:{seconds:02}"),
        _ => format!("{hours}:{minutes:02}:{seconds:02}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::print::terminal::width;

    fn state(weights: &[f64], fractions: &[f64]) -> State {
        State {
            parts: "explorations",
            weights: weights.to_vec(),
            fractions: fractions.to_vec(),
            done: fractions.iter().filter(|&&fraction| fraction == 1.0).count(),
            begun: Instant::now(),
        }
    }

    #[test]
    fn remaining_time_follows_from_progress() {
        let line = |state: &State, seconds| state.line(Duration::from_secs(seconds));
        let half = state(&[1.0, 3.0], &[1.0, 1.0 / 3.0]);
        assert_eq!(line(&half, 90), "1 of 2 explorations, 1:30, about 1:30 left");
        let begun = state(&[1.0, 9.0], &[0.0, 0.001]);
        assert_eq!(line(&begun, 4), "0 of 2 explorations, 0:04, about 1:14:00 left");
        assert_eq!(
            line(&state(&[1.0], &[0.0]), 4),
            "0 of 1 explorations, 0:04, time left not known yet"
        );
        assert_eq!(
            line(&state(&[], &[]), 0),
            "0 of 0 explorations, 0:00, time left not known yet"
        );
    }

    #[test]
    fn progress_line_fits_60_columns() {
        let many = state(&vec![1.0; 100_000], &vec![1e-4; 100_000]);
        let line = many.line(Duration::from_secs(360));
        assert!(line.ends_with("about 999:54:00 left"), "{line}");
        assert!(10 + 1 + width(&line.replace("explorations", "runs")) <= 60, "{line}");
    }
}
