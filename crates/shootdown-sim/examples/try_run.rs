//! Scratch: WORKLOAD DESIGN THREADS VIRTUAL_MS [cpus=N] [PATH=VALUE...]
use shootdown_sim::{
    model::Model,
    run::{RunSpec, run},
};
use std::sync::Arc;
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let mut model = Model::find("milan-72").unwrap();
    for set in &a[5..] {
        let (k, v) = set.split_once('=').unwrap();
        model = match k {
            "cpus" => model.scaled_to(v.parse().unwrap()).unwrap(),
            _ => model.with(k, v.parse().unwrap()).unwrap(),
        };
    }
    let spec = RunSpec {
        workload: a[1].clone(),
        machine: Arc::new(model),
        design: a[2].trim_end_matches("+drain").into(),
        threads: a[3].parse().unwrap(),
        seed: 1,
        virtual_ms: Some(a[4].parse().unwrap()),
        lru_drain: a[2].ends_with("+drain"),
    };
    match run(&spec, &mut |_| true) {
        Ok(r) => {
            println!(
                "{:.1}k/s ipis {:.2} ints {:.2} flush {:.3} stale {} checked {} events {} host {:.2}s {:.1} Mev/s {:.0} loops/s",
                r.ops_per_s / 1e3,
                r.ipis_per_op,
                r.interrupts_per_op,
                r.flush_share,
                r.stale,
                r.accesses_checked,
                r.events,
                r.host_seconds,
                r.events as f64 / r.host_seconds / 1e6,
                r.ops as f64 / r.host_seconds
            );
            for (n, s) in r.time_shares {
                print!("{n} {:.1}%  ", s * 100.0);
            }
            println!();
            if let Some(s) = r.story {
                println!("caught after {:?}\n{s}", r.caught_after);
            }
        }
        Err(e) => println!("ERR {e}"),
    }
}
