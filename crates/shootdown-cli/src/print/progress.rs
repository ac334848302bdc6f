//! The progress bar: cells done and time left, on stderr, and hidden when that is not a terminal.

use std::sync::Mutex;

use indicatif::{ProgressBar, ProgressStyle};

/// Steps of the bar per simulated thread of a cell: cells with more threads take longer.
const STEPS: f64 = 1000.0;

/// A bar, how many are done and the time left, in at most 60 columns. `{msg}` has at most 20.
pub const BAR: &str = "{bar:10.cyan/dim} {msg}, {elapsed_precise} elapsed, {eta_precise} left";

/// Progress over all cells, fed from any host thread.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
    weights: Vec<f64>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    fractions: Vec<f64>,
    /// Sum of weight times fraction.
    position: f64,
    done: usize,
}

impl Progress {
    /// A bar at zero, over cells with these many simulated threads.
    pub fn new(threads: &[usize]) -> Self {
        let weights: Vec<f64> = threads.iter().map(|&threads| threads as f64 * STEPS).collect();
        let bar = ProgressBar::new(weights.iter().sum::<f64>() as u64);
        if let Ok(style) = ProgressStyle::with_template(BAR) {
            bar.set_style(style);
        }
        let progress = Self {
            bar,
            weights,
            state: Mutex::new(State {
                fractions: vec![0.0; threads.len()],
                position: 0.0,
                done: 0,
            }),
        };
        progress.bar.set_message(progress.message(0));
        progress
    }

    /// Cell `index` is done to `fraction` (0 to 1).
    pub fn update(&self, index: usize, fraction: f64) {
        if self.bar.is_hidden() {
            return;
        }
        let Ok(mut state) = self.state.lock() else {
            return;
        };
        let fraction = if fraction.is_finite() {
            fraction.clamp(0.0, 1.0)
        } else {
            0.0
        };
        self.set(&mut state, index, fraction);
    }

    /// Cell `index` is complete.
    pub fn finish(&self, index: usize) {
        let Ok(mut state) = self.state.lock() else {
            return;
        };
        state.done += 1;
        self.bar.set_message(self.message(state.done));
        self.set(&mut state, index, 1.0);
    }

    /// Removes the bar from the terminal.
    pub fn clear(&self) {
        self.bar.finish_and_clear();
    }

    fn set(&self, state: &mut State, index: usize, fraction: f64) {
        state.position += self.weights[index] * (fraction - state.fractions[index]);
        state.fractions[index] = fraction;
        self.bar.set_position(state.position as u64);
    }

    fn message(&self, done: usize) -> String {
        format!("{done}/{} runs", self.weights.len())
    }
}
