//! Fits the four fitted parameters of `milan-72`, each on one published figure, and prints them.
//!
//! ```text
//! cargo run --release -p shootdown-sim --example fit
//! ```
//!
//! Starts from the priors below (docs/priors.md), which were written down before anything was fitted, and turns one
//! parameter at a time until its row is met; a few rounds, since every row depends on every parameter a little.
//! Paste what it prints into `machines/milan-72.toml`.

use shootdown_sim::model::Model;
use shootdown_sim::run::{Parameters, RunSpec, run};
use std::sync::Arc;

struct Row {
    parameter: &'static str,
    prior: f64,
    design: &'static str,
    threads: usize,
    lru_drain: bool,
    published: f64,
}

const ROWS: [Row; 4] = [
    Row {
        parameter: "kernel.slowdown",
        prior: 1.5,
        design: "ipi",
        threads: 1,
        lru_drain: false,
        published: 315e3,
    },
    Row {
        parameter: "costs.transfer_socket",
        prior: 99.5,
        design: "broadcast",
        threads: 16,
        lru_drain: false,
        published: 1368e3,
    },
    Row {
        parameter: "kernel.call_target",
        prior: 100.0,
        design: "ipi",
        threads: 16,
        lru_drain: false,
        published: 737e3,
    },
    Row {
        parameter: "kernel.lru_hold",
        prior: 250.0,
        design: "ipi",
        threads: 36,
        lru_drain: true,
        published: 527e3,
    },
];

const SEEDS: u64 = 3;
const ROUNDS: usize = 2;

fn simulate(model: &Model, row: &Row) -> f64 {
    let one = |seed| {
        let spec = RunSpec {
            workload: "tlb_flush2".into(),
            machine: Arc::new(model.clone()),
            design: row.design.into(),
            threads: row.threads,
            seed,
            virtual_ms: None,
            lru_drain: row.lru_drain,
            parameters: Parameters::default(),
        };
        run(&spec, &mut |_| true).expect("the machine runs").ops_per_s
    };
    (1..=SEEDS).map(one).sum::<f64>() / SEEDS as f64
}

fn with(model: &Model, row: &Row, value: f64) -> Model {
    model.with(row.parameter, value).expect("a parameter of the model")
}

fn main() {
    let file = Model::find("milan-72").expect("a built-in model");
    let mut model = ROWS.iter().fold(file, |model, row| with(&model, row, row.prior));
    let mut values: Vec<f64> = ROWS.iter().map(|row| row.prior).collect();
    for round in 1..=ROUNDS {
        for (row, value) in ROWS.iter().zip(&mut values) {
            // Secant steps in log-log.
            for _ in 0..2 {
                let now = simulate(&model, row).ln();
                let nudged = simulate(&with(&model, row, *value * 1.1), row).ln();
                let slope = ((nudged - now) / 1.1_f64.ln()).min(-0.02);
                let step = ((row.published.ln() - now) / slope).clamp(-0.7, 0.7);
                *value *= step.exp();
                model = with(&model, row, *value);
            }
            let simulated = simulate(&model, row);
            println!(
                "round {round}: {:<22} = {value:<9.4} {} at {} threads: {:.0} k/s, published {:.0}",
                row.parameter,
                row.design,
                row.threads,
                simulated / 1e3,
                row.published / 1e3
            );
        }
    }
}
