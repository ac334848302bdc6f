//! Makes `evidence/intervals.toml`: how far simulated figures move when the numbers of a model move within their stated
//! ranges.
//!
//! ```text
//! cargo run --release -p shootdown-sim --example intervals > evidence/intervals.toml
//! ```
//!
//! Each sample sets every number of a model that has a range, by one dimension of a scrambled Sobol sequence. Half of
//! the samples lie below the number of the file and half above, evenly in the logarithm if the range spans more than a
//! factor of 3.
//!
//! On a fitted machine, the fitted numbers are then fitted again, each to the model's own rate for its row. So a sample
//! deviates from a fitted row only as far as its range forces it to, and that deviation reduces its weight. All cells
//! of a machine run with the same samples, so common effects cancel in a ratio of two cells.

use shootdown_sim::model::{Model, Parameter, Provenance};
use shootdown_sim::run::{Parameters, RunSpec, run};
use sobol_burley::sample;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Number of samples of each machine.
const SAMPLES: usize = 16;

/// Virtual milliseconds of each run.
const WINDOW_MS: f64 = 3.0;

/// Deviation of a sample from a fitted row, as a logarithm, above which its weight falls: the spread between medians of
/// published runs.
const TOLERANCE: f64 = 0.03;

/// Steps of the search for a fitted number.
const STEPS: usize = 5;

/// A run: workload, design, threads, LRU drain.
type Cell = (&'static str, &'static str, usize, bool);

struct Machine {
    name: &'static str,
    cells: &'static [Cell],
    /// Fitted numbers, each with its cell. Rates fall as any of them rises.
    fitted: &'static [(&'static str, Cell)],
}

const MACHINES: [Machine; 2] = [
    Machine {
        name: "milan-72",
        cells: &[
            ("tlb_flush2", "ipi", 1, false),
            ("tlb_flush2", "ipi", 16, false),
            ("tlb_flush2", "ipi", 72, false),
            ("tlb_flush2", "broadcast", 1, false),
            ("tlb_flush2", "broadcast", 16, false),
            ("tlb_flush2", "broadcast", 72, false),
            ("tlb_flush2", "adaptive", 1, false),
            ("tlb_flush2", "adaptive", 16, false),
            ("tlb_flush2", "adaptive", 72, false),
            ("tlb_flush2", "ideal", 16, false),
            ("tlb_flush2", "ipi", 36, true),
            ("tlb_flush2", "broadcast", 36, true),
        ],
        fitted: &[
            ("kernel.slowdown", ("tlb_flush2", "ipi", 1, false)),
            ("lines.contended", ("tlb_flush2", "broadcast", 16, false)),
            ("kernel.lru_hold", ("tlb_flush2", "ipi", 36, true)),
        ],
    },
    Machine {
        name: "skylake-104",
        cells: &[
            ("tlb_flush2", "ipi", 1, false),
            ("tlb_flush2", "ipi", 16, false),
            ("tlb_flush2", "ipi", 104, false),
            ("tlb_flush2", "ipi", 104, true),
            ("tlb_flush2", "ipi-trim", 104, true),
            ("tlb_flush2", "adaptive", 1, false),
            ("tlb_flush2", "adaptive", 16, false),
            ("tlb_flush2", "adaptive", 104, false),
            ("tlb_flush2", "ideal", 16, false),
            ("tlb_flush1", "ipi", 10, true),
            ("tlb_flush1", "ipi", 40, true),
            ("madvise_spin", "ipi", 4, false),
            ("madvise_spin", "adaptive", 4, false),
        ],
        fitted: &[],
    },
];

/// The number at position `u` (0 to 1) of a parameter's range; 0.5 is the file's own.
fn placed(parameter: &Parameter, u: f64) -> Option<f64> {
    let range = parameter.provenance.range()?;
    let value = parameter.value;
    if !range.contains(value) || range.low == range.high {
        return None;
    }
    let (from, to, share) = match u < 0.5 {
        true => (range.low, value, u * 2.0),
        false => (value, range.high, u * 2.0 - 1.0),
    };
    let log = range.low > 0.0 && range.high > 3.0 * range.low;
    Some(match log {
        true => from * (to / from).powf(share),
        false => from + (to - from) * share,
    })
}

/// Whether samples vary it: an assumed number, not a property that defines the machine.
fn moves(parameter: &Parameter) -> bool {
    let table = parameter.path.split('.').next().unwrap_or_default();
    let fixed = matches!(parameter.provenance, Provenance::Overridden { .. });
    ["costs", "kernel", "smt", "lines", "linux"].contains(&table) && !fixed
}

/// Numbers that are integers.
const WHOLE: [&str; 3] = ["costs.prefetches", "lines.batches", "linux.trim_lines"];

fn sampled(model: &Model, index: u32) -> Model {
    let dimensions = model.parameters().filter(|parameter| moves(parameter)).zip(0_u32..);
    let moved: Vec<(&'static str, f64)> = dimensions
        .filter_map(|(parameter, dimension)| {
            let value = placed(parameter, f64::from(sample(index, dimension, 26)))?;
            let whole = WHOLE.contains(&parameter.path);
            Some((parameter.path, if whole { value.round() } else { value }))
        })
        .collect();
    moved.into_iter().fold(model.clone(), |model, (path, value)| {
        model.with(path, value).expect("a number within its stated range")
    })
}

/// Operations per second, and CPU time in invalidation per operation.
fn figures(model: &Model, (workload, design, threads, lru_drain): Cell) -> (f64, f64) {
    let spec = RunSpec {
        workload: workload.into(),
        machine: Arc::new(model.clone()),
        design: design.into(),
        threads,
        seed: 1,
        virtual_ms: Some(WINDOW_MS),
        lru_drain,
        parameters: Parameters::default(),
    };
    let result = run(&spec, &mut |_| true).expect("the machine runs");
    (result.ops_per_s, threads as f64 * result.flush_share / result.ops_per_s)
}

/// `sample` with its fitted numbers fitted again.
fn fitted_again(sample: Model, machine: &Machine, as_it_is: &[(f64, f64)]) -> Model {
    machine.fitted.iter().fold(sample, |model, &(path, cell)| {
        let at = machine.cells.iter().position(|other| *other == cell);
        let rate = as_it_is[at.expect("a fitted cell is a cell")].0;
        let range = model.parameter(path).expect("a parameter").provenance.range();
        // `with` removes the range of the number that it sets.
        let range = range.or_else(|| {
            let original = Model::find(machine.name).expect("built in");
            original.parameter(path).expect("a parameter").provenance.range()
        });
        let (mut low, mut high) = range.map(|range| (range.low, range.high)).expect("a range");
        let with = |value| model.with(path, value).expect("within its range");
        for _ in 0..STEPS {
            let middle = (low + high) / 2.0;
            match figures(&with(middle), cell).0 > rate {
                true => low = middle,
                false => high = middle,
            }
        }
        with((low + high) / 2.0)
    })
}

/// The results of `of` for 0 to `count`, computed by `jobs` host threads.
fn parallel<T: Send>(count: usize, jobs: usize, of: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut own = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= count {
                return own;
            }
            own.push((index, of(index)));
        }
    };
    let mut all: Vec<(usize, T)> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..jobs).map(|_| scope.spawn(work)).collect();
        threads
            .into_iter()
            .flat_map(|thread| thread.join().expect("runs"))
            .collect()
    });
    all.sort_by_key(|(index, _)| *index);
    all.into_iter().map(|(_, result)| result).collect()
}

/// The weight of each sample, by its distance to the fitted rows; equal weights without any.
fn weights(distances: &[Vec<f64>]) -> Vec<f64> {
    let one = |sample: usize| {
        let squares = distances
            .iter()
            .map(|row| (row[sample] / TOLERANCE).powi(2))
            .sum::<f64>();
        (1.0 + squares).recip()
    };
    let raw: Vec<f64> = (0..SAMPLES).map(one).collect();
    let sum: f64 = raw.iter().sum();
    raw.into_iter().map(|weight| weight / sum).collect()
}

fn listed(numbers: &[f64]) -> String {
    let numbers: Vec<String> = numbers.iter().map(|number| format!("{number:.3}")).collect();
    format!("[{}]", numbers.join(", "))
}

fn print(machine: &Machine, jobs: usize) {
    let cells = machine.cells;
    let original = Model::find(machine.name).expect("a built-in model");
    let as_it_is = parallel(cells.len(), jobs, |cell| figures(&original, cells[cell]));
    let models = parallel(SAMPLES, jobs, |index| {
        fitted_again(sampled(&original, index as u32), machine, &as_it_is)
    });
    let all = parallel(cells.len() * SAMPLES, jobs, |index| {
        figures(&models[index % SAMPLES], cells[index / SAMPLES])
    });
    let logs = |of: fn(&(f64, f64)) -> f64| -> Vec<Vec<f64>> {
        let by_cell = all.chunks(SAMPLES).zip(&as_it_is);
        let log = |sample: f64, own: f64| {
            if sample > 0.0 && own > 0.0 {
                (sample / own).ln()
            } else {
                0.0
            }
        };
        by_cell
            .map(|(samples, own)| samples.iter().map(|sample| log(of(sample), of(own))).collect())
            .collect()
    };
    let (rates, flushes) = (logs(|figures| figures.0), logs(|figures| figures.1));
    let distances: Vec<Vec<f64>> = (machine.fitted.iter())
        .filter_map(|(_, cell)| cells.iter().position(|other| other == cell))
        .map(|cell| rates[cell].clone())
        .collect();
    println!(
        "\n[[machine]]\nname = \"{}\"\nweights = {}",
        machine.name,
        listed(&weights(&distances))
    );
    for ((cell, rates), flushes) in cells.iter().zip(&rates).zip(&flushes) {
        let (workload, design, threads, lru_drain) = cell;
        println!("\n[[machine.cell]]\nworkload = \"{workload}\"\ndesign = \"{design}\"\nthreads = {threads}");
        println!(
            "lru_drain = {lru_drain}\nlog_rates = {}\nlog_flushes = {}",
            listed(rates),
            listed(flushes)
        );
    }
}

fn main() {
    let jobs = std::env::args().nth(1).and_then(|jobs| jobs.parse().ok()).unwrap_or(2);
    println!("# How far simulated figures move when the numbers of a model move within their stated ranges. Made by");
    println!(
        "# `cargo run --release -p shootdown-sim --example intervals`: \
         {SAMPLES} samples of {WINDOW_MS} ms. `log_rates` are natural"
    );
    println!(
        "# logarithms of the rate of each sample over that of the model as it is, `log_flushes` those of CPU time in"
    );
    println!(
        "# invalidation per operation. Which cell stands for which run: \
         crates/shootdown-cli/src/comparison/interval.rs."
    );
    for machine in &MACHINES {
        print(machine, jobs);
    }
}
