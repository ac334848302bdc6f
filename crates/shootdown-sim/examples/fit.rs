//! Fits the fitted parameters of `milan-72`, each on one published figure, under each hypothesis about the limit
//! of `broadcast`. Prints the parameters, the errors on every published row, and the peaks of the curves.
//! `docs/src/machines/priors.md` says which hypothesis was chosen, and why.
//!
//! ```text
//! cargo run --release -p shootdown-sim --example fit            # all hypotheses
//! cargo run --release -p shootdown-sim --example fit -- fabric  # one
//! ```
//!
//! Starts from the priors below, which were recorded before any fitting (docs/src/machines/priors.md). Moves one
//! parameter at a time, never out of its stated range, until its row is met. Repeats this a few times, because every
//! row depends slightly on every parameter. Paste the output for the chosen hypothesis into `machines/milan-72.toml`.

use shootdown_sim::model::Model;
use shootdown_sim::run::{Parameters, RunSpec, run};
use std::sync::Arc;

/// A hypothesis: the held and the fitted parameters, and the row of each.
struct Hypothesis {
    name: &'static str,
    about: &'static str,
    /// Parameters held at a value other than the model file's.
    held: &'static [(&'static str, f64)],
    /// Parameters that are a multiple of another one.
    tied: &'static [(&'static str, f64, &'static str)],
    fitted: &'static [Fitted],
}

/// A parameter, its prior and range, and the row that fixes it: design, threads, LRU drain.
struct Fitted {
    parameter: &'static str,
    prior: f64,
    range: (f64, f64),
    row: (&'static str, usize, bool),
    /// The sufficient share of the published rate. Below 1 the parameter is a limit, and comes out as large as the row
    /// allows.
    enough: f64,
}

const fn fitted(parameter: &'static str, prior: f64, range: (f64, f64), row: (&'static str, usize, bool)) -> Fitted {
    Fitted {
        parameter,
        prior,
        range,
        row,
        enough: 1.0,
    }
}

const SLOWDOWN: Fitted = fitted("kernel.slowdown", 1.5, (1.0, 4.0), ("ipi", 1, false));
const LRU_HOLD: Fitted = fitted("kernel.lru_hold", 250.0, (50.0, 1000.0), ("ipi", 36, true));

/// The time of a queued transfer, relative to one between two CPUs.
const CONTENDED: Fitted = fitted("lines.contended", 1.0, (0.7, 2.5), ("broadcast", 16, false));

const fn call_target(row: (&'static str, usize, bool)) -> Fitted {
    fitted("kernel.call_target", 100.0, (0.0, 400.0), row)
}

const fn transfer_socket(row: (&'static str, usize, bool)) -> Fitted {
    fitted("costs.transfer_socket", 99.5, (84.0, 115.0), row)
}

const fn broadcast_interval(row: (&'static str, usize, bool)) -> Fitted {
    fitted("costs.broadcast_interval", 200.0, (0.0, 730.0), row)
}

/// Movements of the line of a call descriptor for each target: to the requester, which writes it; to the target, which
/// reads it; invalidation of its other copy, when the target releases it; to the requester, which sees the release.
const MOVEMENTS: f64 = 4.0;

/// The same, and two lines of a queue that the published kernel moves for a target. This engine does not: the pointer
/// that goes into a slot of its queue also claims the slot.
const MOVEMENTS_AND_QUEUE: f64 = 6.0;

/// Fitted parameters when line transfers decide the cost of `ipi`, and the fabric is as slow as `broadcast` allows.
const BY_MOVEMENTS: [Fitted; 4] = [
    SLOWDOWN,
    transfer_socket(("ipi", 16, false)),
    Fitted {
        enough: 0.97,
        ..broadcast_interval(("broadcast", 16, false))
    },
    LRU_HOLD,
];

const HYPOTHESES: &[Hypothesis] = &[
    Hypothesis {
        name: "contended",
        about: "contended lines set the ceiling of broadcast; \
            transfers between two CPUs and the fabric stay at their priors",
        held: &[
            ("costs.transfer_socket", 99.5),
            ("kernel.call_target", 398.0),
            ("costs.broadcast_interval", 600.0),
        ],
        tied: &[],
        fitted: &[SLOWDOWN, CONTENDED, LRU_HOLD],
    },
    Hypothesis {
        name: "lines",
        about: "line transfers set the ceiling of broadcast; the fabric's limit stays at its prior",
        held: &[("costs.broadcast_interval", 200.0)],
        tied: &[],
        fitted: &[
            SLOWDOWN,
            transfer_socket(("broadcast", 16, false)),
            call_target(("ipi", 16, false)),
            LRU_HOLD,
        ],
    },
    Hypothesis {
        name: "fabric",
        about: "the broadcast fabric sets the ceiling; line transfers stay in the middle of their published range",
        held: &[("costs.transfer_socket", 99.5)],
        tied: &[],
        fitted: &[
            SLOWDOWN,
            broadcast_interval(("broadcast", 16, false)),
            call_target(("ipi", 16, false)),
            LRU_HOLD,
        ],
    },
    Hypothesis {
        name: "descriptors",
        about: "a call costs the movements of its descriptor's line, so ipi fixes line transfers; \
            the fabric is as slow as broadcast allows",
        held: &[],
        tied: &[("kernel.call_target", MOVEMENTS, "costs.transfer_socket")],
        fitted: &BY_MOVEMENTS,
    },
    Hypothesis {
        name: "queue",
        about: "as descriptors, plus two movements of a queue's lines for each call, which this engine does not need",
        held: &[],
        tied: &[("kernel.call_target", MOVEMENTS_AND_QUEUE, "costs.transfer_socket")],
        fitted: &BY_MOVEMENTS,
    },
];

const SEEDS: u64 = 3;
const ROUNDS: usize = 3;
const THREADS: [usize; 12] = [1, 2, 4, 8, 12, 16, 20, 24, 32, 48, 64, 72];
const PUBLISHED: &str = include_str!("../../../evidence/published.toml");

/// Median operations per second over the seeds.
fn simulate(model: &Model, (design, threads, lru_drain): (&str, usize, bool)) -> f64 {
    let one = |seed| {
        let spec = RunSpec {
            workload: "tlb_flush2".into(),
            machine: Arc::new(model.clone()),
            design: design.into(),
            threads,
            seed,
            virtual_ms: None,
            lru_drain,
            parameters: Parameters::default(),
        };
        run(&spec, &mut |_| true).expect("the machine runs").ops_per_s
    };
    let mut rates: Vec<f64> = std::thread::scope(|scope| {
        let runs: Vec<_> = (1..=SEEDS).map(|seed| scope.spawn(move || one(seed))).collect();
        runs.into_iter().map(|run| run.join().expect("a run")).collect()
    });
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}

/// The published rows of E1 and E2: table, row, operations per second, whether it is fitted on.
fn rows() -> Vec<(String, (String, usize, bool), f64)> {
    let file: toml::Table = PUBLISHED.parse().expect("evidence/published.toml");
    let row = |row: &toml::Value| {
        let text = |key: &str| row[key].as_str().expect("text").to_string();
        let threads = row["threads"].as_integer().expect("threads") as usize;
        let drain = row["lru_drain"].as_bool().expect("a flag");
        let rate = row["kloops_per_s"].as_integer().expect("a rate") as f64 * 1e3;
        (text("table"), (text("design"), threads, drain), rate)
    };
    let all = file["row"].as_array().expect("rows").iter();
    let is_rate =
        |row: &&toml::Value| row.get("kloops_per_s").is_some() && row["workload"].as_str() == Some("tlb_flush2");
    all.filter(|row| row["machine"].as_str() == Some("milan-72"))
        .filter(is_rate)
        .map(row)
        .collect()
}

fn with(model: &Model, parameter: &str, value: f64) -> Model {
    model.with(parameter, value).expect("a parameter of the model")
}

/// The model with a parameter of a hypothesis replaced, and the parameters tied to it.
fn set(model: &Model, hypothesis: &Hypothesis, parameter: &str, value: f64) -> Model {
    let tied = hypothesis.tied.iter().filter(|(_, _, to)| *to == parameter);
    tied.fold(with(model, parameter, value), |model, (tied, times, _)| {
        with(&model, tied, times * value)
    })
}

/// The value of a parameter within `low..high` that meets `published`: rates fall as any of these costs rises.
fn meet(model: &Model, hypothesis: &Hypothesis, fit: &Fitted, published: f64, (mut low, mut high): (f64, f64)) -> f64 {
    let near_enough = (high - low) / 250.0;
    while high - low > near_enough {
        let middle = (low + high) / 2.0;
        if simulate(&set(model, hypothesis, fit.parameter, middle), fit.row) > published {
            low = middle;
        } else {
            high = middle;
        }
    }
    (low + high) / 2.0
}

fn try_out(hypothesis: &Hypothesis) {
    println!("{}: {}", hypothesis.name, hypothesis.about);
    let rows = rows();
    let file = Model::find("milan-72").expect("a built-in model");
    let held = hypothesis.held.iter().copied();
    let priors = hypothesis.fitted.iter().map(|fit| (fit.parameter, fit.prior));
    let mut model = held.chain(priors).fold(file, |model, (parameter, value)| {
        set(&model, hypothesis, parameter, value)
    });
    for round in 0..ROUNDS {
        for fit in hypothesis.fitted {
            let is = |row: &&(String, (String, usize, bool), f64)| (row.1.0.as_str(), row.1.1, row.1.2) == fit.row;
            let published = fit.enough * rows.iter().find(is).expect("a published row").2;
            let value = model.parameter(fit.parameter).expect("known").value;
            let near = (fit.range.1 - fit.range.0) * 0.08;
            let bounds = if round == 0 {
                fit.range
            } else {
                ((value - near).max(fit.range.0), (value + near).min(fit.range.1))
            };
            let value = meet(&model, hypothesis, fit, published, bounds);
            model = set(&model, hypothesis, fit.parameter, value);
        }
    }
    for fit in hypothesis.fitted {
        let value = model.parameter(fit.parameter).expect("known").value;
        println!(
            "  {:<26} {value:>8.3}  within {}..{}, fitted on {} at {} threads{}",
            fit.parameter,
            fit.range.0,
            fit.range.1,
            fit.row.0,
            fit.row.1,
            if fit.row.2 { ", LRU drain" } else { "" }
        );
    }
    for (tied, times, to) in hypothesis.tied {
        let value = model.parameter(tied).expect("known").value;
        println!("  {tied:<26} {value:>8.3}  {times} times {to}");
    }
    let mut errors = Vec::new();
    for (table, (design, threads, drain), published) in &rows {
        let simulated = simulate(&model, (design, *threads, *drain));
        let error = simulated / published - 1.0;
        let is_fitted = hypothesis
            .fitted
            .iter()
            .any(|fit| fit.row == (design.as_str(), *threads, *drain));
        if !is_fitted {
            errors.push(error.abs());
        }
        println!(
            "  {table} {design:<10} {threads:>3} {} {:>6.0} k/s, simulated {:>6.0} {:>+6.1} %{}",
            if *drain { "drain" } else { "     " },
            published / 1e3,
            simulated / 1e3,
            error * 100.0,
            if is_fitted { " fitted" } else { "" }
        );
    }
    errors.sort_by(f64::total_cmp);
    let median = (errors[(errors.len() - 1) / 2] + errors[errors.len() / 2]) / 2.0;
    println!(
        "  not fitted: worst {:.1} %, median {:.1} %",
        errors[errors.len() - 1] * 100.0,
        median * 100.0
    );
    for design in ["ipi", "broadcast"] {
        let curve: Vec<f64> = THREADS
            .map(|threads| simulate(&model, (design, threads, false)) / 1e3)
            .to_vec();
        let peak = (0..THREADS.len())
            .max_by(|&a, &b| curve[a].total_cmp(&curve[b]))
            .unwrap_or(0);
        let points: Vec<_> = THREADS
            .iter()
            .zip(&curve)
            .map(|(t, rate)| format!("{t}:{rate:.0}"))
            .collect();
        println!("  {design} peaks at {}: {}", THREADS[peak], points.join(" "));
    }
}

fn main() {
    let selected: Vec<String> = std::env::args().skip(1).collect();
    let known = |name: &String| HYPOTHESES.iter().any(|hypothesis| hypothesis.name == name);
    if let Some(name) = selected.iter().find(|name| !known(name)) {
        let names: Vec<_> = HYPOTHESES.iter().map(|hypothesis| hypothesis.name).collect();
        eprintln!("{name} is no hypothesis; use one of: {}", names.join(", "));
        std::process::exit(2);
    }
    let chosen = |hypothesis: &&Hypothesis| selected.is_empty() || selected.iter().any(|name| name == hypothesis.name);
    HYPOTHESES.iter().filter(chosen).for_each(try_out);
}
