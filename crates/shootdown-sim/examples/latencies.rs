//! Latency distributions of designs that wait in different ways:
//! `cargo run --release -p shootdown-sim --example latencies -- WORKLOAD MACHINE THREADS VIRTUAL_MS DESIGN...`

use shootdown_sim::model::Model;
use shootdown_sim::run::{RunSpec, run};
use std::sync::Arc;

fn main() -> Result<(), String> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [workload, machine, threads, ms, designs @ ..] = arguments.as_slice() else {
        return Err("give WORKLOAD MACHINE THREADS VIRTUAL_MS DESIGN..., as in `latency milan-72 16 1000 ipi`".into());
    };
    let number = |text: &String, what: &str| {
        text.parse::<f64>()
            .map_err(|_| format!("{what} `{text}`: not a number"))
    };
    let machine = Arc::new(Model::find(machine).map_err(|error| error.to_string())?);
    for design in designs {
        let spec = RunSpec {
            workload: workload.clone(),
            machine: machine.clone(),
            design: design.clone(),
            threads: number(threads, "threads")? as usize,
            seed: 1,
            virtual_ms: Some(number(ms, "milliseconds")?),
            lru_drain: false,
            parameters: Default::default(),
        };
        let result = run(&spec, &mut |_| true)?;
        println!(
            "{design}: {:.1} thousand operations/s, {:.2} interrupts per operation, {} stale, {:.1} host seconds",
            result.ops_per_s / 1e3,
            result.interrupts_per_op,
            result.stale,
            result.host_seconds
        );
        for latency in result.latencies {
            println!(
                "  {:32} {:>9} samples, ns: p50 {:>9.0}, p99 {:>10.0}, max {:>10.0}",
                latency.name, latency.count, latency.p50_ns, latency.p99_ns, latency.max_ns
            );
        }
        for (category, share) in result.time_shares {
            print!("  {category} {:.1} %", share * 100.0);
        }
        println!();
    }
    Ok(())
}
