//! What lockless walks pay, and what freeing table pages costs them: table E5, and the break-even of the walkers axis.
//!
//! ```text
//! cargo run --release -p shootdown-sim --example walkers [machine] [--shared]
//! ```
//!
//! First E5: 60 pinning threads and nobody who frees. Then 60 pinning and 4 freeing threads, from no frees to as many as four
//! threads manage: of tables of a process of their own, which nobody walks (what an unrelated process does to pinning ones),
//! or with `--shared` of the process that is walked. `workload gup` says what is simulated; without a machine it is `gup-64`,
//! and where that is not among the models, `milan-72` as 64 cores without hardware threads.

use shootdown_sim::model::Model;
use shootdown_sim::run::{Parameters, RunResult, RunSpec, run};
use std::process::ExitCode;
use std::sync::Arc;

const DESIGNS: [&str; 5] = [
    "walk-interrupt-all",
    "walk-precise",
    "walk-sticky",
    "walk-grace",
    "adaptive",
];
const RATES: [f64; 9] = [0.0, 1e2, 1e3, 3e3, 1e4, 3e4, 1e5, 3e5, 1e6];
const PINNING: usize = 60;
const FREEING: usize = 4;

/// Seconds of E5: without tracking, and with precise tracking; each thread makes so many pins.
const PUBLISHED: [f64; 2] = [1.489, 1.533];
const PINS: f64 = 500_000.0;

fn machine(name: Option<&str>) -> Result<Model, String> {
    if let Some(name) = name {
        return Model::find(name).map_err(|error| error.to_string());
    }
    if let Ok(model) = Model::find("gup-64") {
        return Ok(model);
    }
    let mut model = Model::find("milan-72").map_err(|error| error.to_string())?;
    for (path, value) in [
        ("topology.threads_per_core", 1.0),
        ("topology.clusters_per_socket", 8.0),
        ("topology.cores_per_cluster", 8.0),
    ] {
        model = model.with(path, value).map_err(|error| error.to_string())?;
    }
    Ok(model)
}

fn simulate(machine: &Arc<Model>, design: &str, frees_per_s: f64, shared: bool, ms: f64) -> Result<RunResult, String> {
    let freeing = if frees_per_s > 0.0 { FREEING } else { 0 };
    let parameters = Parameters::default()
        .with("workload.gup.frees_per_s", frees_per_s)?
        .with("workload.gup.freeing_threads", FREEING as f64)?
        .with("workload.gup.own_space", if shared { 0.0 } else { 1.0 })?;
    let spec = RunSpec {
        workload: "gup".into(),
        machine: machine.clone(),
        design: design.into(),
        threads: PINNING + freeing,
        seed: 1,
        virtual_ms: Some(ms),
        lru_drain: false,
        parameters,
    };
    let result = run(&spec, &mut |_| true)?;
    match result.story {
        Some(story) => Err(format!("{design} broke a rule:\n{story}")),
        None => Ok(result),
    }
}

/// Pins per second of each design, by rate of frees.
type Curve = Vec<f64>;

/// What is within noise of each other, of pins per second.
const NOISE: f64 = 0.001;

/// Between which rates asked for `one` first falls behind `other`; `None` if never.
fn falls_behind(one: &Curve, other: &Curve) -> Option<(f64, f64)> {
    let at = (0..RATES.len()).find(|&at| one[at] < other[at] * (1.0 - NOISE))?;
    Some((RATES[at.saturating_sub(1)], RATES[at]))
}

fn report(machine: Arc<Model>, shared: bool) -> Result<(), String> {
    println!(
        "E5 on {} ({} CPUs), 60 threads: seconds for 500,000 pins of 8 pages each",
        machine.name,
        machine.topology.cpus()
    );
    println!("  design                published  simulated  over no tracking");
    let mut untracked = None;
    for design in DESIGNS {
        let result = simulate(&machine, design, 0.0, shared, 10.0)?;
        let seconds = PINS * PINNING as f64 / result.ops_per_s;
        let base = *untracked.get_or_insert(seconds);
        let published = match design {
            "walk-interrupt-all" => format!("{:.3}", PUBLISHED[0]),
            "walk-precise" => format!("{:.3}", PUBLISHED[1]),
            _ => "-".into(),
        };
        println!(
            "  {design:20} {published:>10} {seconds:10.3} {:+16.2} %",
            (seconds / base - 1.0) * 100.0
        );
    }
    println!(
        "  published: precise over none {:+.2} %",
        (PUBLISHED[1] / PUBLISHED[0] - 1.0) * 100.0
    );

    println!(
        "\n{PINNING} pinning and {FREEING} freeing threads, tables of {}",
        if shared {
            "the process that is walked"
        } else {
            "a process that nobody walks"
        }
    );
    println!("  frees/s asked  design                 pins/s   of the best    frees/s   interrupts/s");
    let mut curves: Vec<Curve> = vec![Vec::new(); DESIGNS.len()];
    for rate in RATES {
        let results =
            DESIGNS.map(|design| simulate(&machine, design, rate, shared, if rate < 1e4 { 10.0 } else { 4.0 }));
        let results: Vec<_> = results.into_iter().collect::<Result<_, _>>()?;
        let best = results.iter().map(|result| result.ops_per_s).fold(0.0, f64::max);
        for ((design, result), curve) in DESIGNS.iter().zip(&results).zip(&mut curves) {
            curve.push(result.ops_per_s);
            println!(
                "  {rate:13.0}  {design:20} {:7.0} k {:11.2} % {:10.0} {:14.0}",
                result.ops_per_s / 1e3,
                result.ops_per_s / best * 100.0,
                result.tables_freed_per_s,
                result.interrupts_per_op * result.ops_per_s
            );
        }
    }
    println!("\nfrees per second asked for, from which the first loses pins to the second (by more than 0.1 %)");
    for one in 0..DESIGNS.len() {
        for two in (0..DESIGNS.len()).filter(|&two| two != one) {
            let at = match falls_behind(&curves[one], &curves[two]) {
                None => "nowhere".to_string(),
                Some((0.0, 0.0)) => "without any".to_string(),
                Some((from, to)) => format!("between {from:.0} and {to:.0}"),
            };
            println!("  {:20} {:20} {at}", DESIGNS[one], DESIGNS[two]);
        }
    }
    Ok(())
}

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let shared = arguments.iter().any(|argument| argument == "--shared");
    let name = arguments.iter().find(|argument| !argument.starts_with("--"));
    match machine(name.map(String::as_str)).and_then(|machine| report(Arc::new(machine), shared)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
