//! The progress bar: cells done and time left, on stderr, and hidden when that is not a terminal.

use std::sync::Mutex;

use indicatif::{ProgressBar, ProgressStyle};
use shootdown_sim::run::RunSpec;

/// Steps of the bar per simulated thread of a cell: cells with more threads take longer.
const STEPS: f64 = 1000.0;

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
    done: usize,
}

impl Progress {
    /// A bar at zero.
    pub fn new(specs: &[RunSpec]) -> Self {
        let weights: Vec<f64> = specs.iter().map(|spec| spec.threads as f64 * STEPS).collect();
        let bar = ProgressBar::new(weights.iter().sum::<f64>() as u64);
        if let Ok(style) = ProgressStyle::with_template("{bar:40.cyan/dim} {msg}  {elapsed} elapsed, {eta} left") {
            bar.set_style(style);
        }
        let progress = Self {
            bar,
            weights,
            state: Mutex::new(State {
                fractions: vec![0.0; specs.len()],
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
        state.fractions[index] = if fraction.is_finite() {
            fraction.clamp(0.0, 1.0)
        } else {
            0.0
        };
        self.draw(&state);
    }

    /// Cell `index` is complete.
    pub fn finish(&self, index: usize) {
        let Ok(mut state) = self.state.lock() else {
            return;
        };
        state.fractions[index] = 1.0;
        state.done += 1;
        self.bar.set_message(self.message(state.done));
        self.draw(&state);
    }

    /// Removes the bar from the terminal.
    pub fn clear(&self) {
        self.bar.finish_and_clear();
    }

    fn draw(&self, state: &State) {
        let position: f64 = self
            .weights
            .iter()
            .zip(&state.fractions)
            .map(|(weight, fraction)| weight * fraction)
            .sum();
        self.bar.set_position(position as u64);
    }

    fn message(&self, done: usize) -> String {
        format!("{done}/{} runs", self.weights.len())
    }
}
