//! The word of a reader lock that many CPUs take at once: simulated rates beside published ones.
//! `cargo run --release -p shootdown-sim --example lock_word [-- PATH=VALUE...]`, as in `lines.hold=0.2`.
//!
//! `lines.contended` of `machines/defaults.toml` was chosen by these rates, where no interrupt and no kernel is
//! involved. What is left to check is their shape, over threads and sockets. The work between taking and releasing the
//! lock is that of the published rate of one thread.

use shootdown::Word;
use shootdown_sim::machine::{self, Config, Machine, SimWord, Topology};
use shootdown_sim::model::Model;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::Ordering;

/// How a reader takes the lock. Each also releases it by adding to the word.
#[derive(Clone, Copy)]
enum Take {
    /// By adding to the word (`down_read`).
    Add,
    /// By exchanges, from the guess that the lock is free (`down_read_trylock` of Linux 5.2 to 5.16).
    Exchange,
}

/// A published table: millions of acquisitions per second of all threads together.
struct Table {
    source: &'static str,
    take: Take,
    rates: &'static [(usize, f64)],
}

const TABLES: [Table; 2] = [
    Table {
        source: "down_read, four sockets, 56 cores, 112 threads, x86-64 (Long, \"locking/rwsem: Remove arch specific\n\
                 rwsem files\", 1550095217-12047-2-git-send-email-longman@redhat.com, after the patch)",
        take: Take::Add,
        rates: &[
            (1, 30.172),
            (2, 15.025),
            (4, 14.286),
            (8, 13.652),
            (16, 15.938),
            (32, 15.487),
            (64, 15.572),
        ],
    },
    Table {
        source: "down_read_trylock, an x86-64 machine that is not named (Long, \"locking/rwsem: Optimize\n\
                 down_read_trylock()\", 2019, Linux commit ddb20d1d3aed, after the patch)",
        take: Take::Exchange,
        rates: &[(1, 14.716), (2, 8.453), (4, 6.983), (8, 7.190)],
    },
];

/// Virtual nanoseconds of each run.
const WINDOW_NS: f64 = 2e5;

/// The core machine of a model, without a kernel. Every thread has a core of its own where there are enough.
fn config(model: &Model) -> Config {
    let (topology, costs) = (&model.topology, &model.costs);
    let order: Vec<usize> = topology.placement().collect();
    let numbers = |of: &dyn Fn(usize) -> usize| order.iter().map(|&cpu| of(cpu) as u16).collect();
    let mut config = Config::new(Topology {
        cpus: topology.cpus(),
        core_of: numbers(&|cpu| topology.core_of(cpu)),
        cluster_of: numbers(&|cpu| topology.cluster_of(cpu)),
        socket_of: numbers(&|cpu| topology.socket_of(cpu)),
    });
    config.costs.l1 = costs.l1_hit;
    config.costs.rmw = costs.rmw;
    config.costs.transfer = [
        costs.transfer_core,
        costs.transfer_cluster,
        costs.transfer_socket,
        costs.transfer_remote,
    ];
    config.costs.line_hold = model.lines.hold * costs.transfer_cluster;
    config.costs.line_batches = model.lines.batches;
    config.costs.line_contended = model.lines.contended;
    config.slack_cycles = 0;
    config.max_events = u64::MAX;
    config
}

/// Millions of acquisitions per second by that many threads, which work for `work` cycles between two accesses.
fn rate(model: &Model, take: Take, threads: usize, work: u64) -> f64 {
    let mut machine = Machine::new(config(model));
    let word = machine.alloc(SimWord::new(0));
    let (taken, end) = (Rc::new(Cell::new(0u64)), (WINDOW_NS * model.ghz) as u64);
    for cpu in 0..threads {
        let (word, taken) = (word.clone(), taken.clone());
        machine.spawn(cpu, move || {
            machine::charge(machine::random_below(1000));
            while machine::now() < end {
                match take {
                    Take::Add => {
                        word.fetch_add_full(1);
                    }
                    Take::Exchange => {
                        let mut readers = 0;
                        while let Err(found) = word.compare_exchange_full(readers, readers + 1) {
                            readers = found;
                        }
                    }
                }
                machine::charge(work);
                word.fetch_add_full(u64::MAX);
                machine::charge(work);
                taken.set(taken.get() + 1);
            }
        });
    }
    machine.run(u64::MAX, |_| true);
    assert_eq!(word.load(Ordering::Relaxed), 0, "every reader has released the lock");
    taken.get() as f64 / WINDOW_NS * 1e3
}

fn main() -> Result<(), String> {
    let mut model = Model::find("skylake-104").map_err(|error| error.to_string())?;
    let given: Vec<String> = std::env::args().skip(1).collect();
    let four_sockets = ["topology.sockets=4", "topology.cores_per_cluster=14"].map(String::from);
    for setting in four_sockets.iter().chain(&given) {
        let parsed = setting
            .split_once('=')
            .and_then(|(path, value)| Some((path, value.parse().ok()?)));
        let (path, value) = parsed.ok_or_else(|| format!("`{setting}`: give PATH=VALUE, as in lines.hold=0.2"))?;
        model = model.with(path, value).map_err(|error| error.to_string())?;
    }
    println!("millions of acquisitions per second, skylake-104 with four sockets of 14 cores");
    for table in TABLES {
        println!("\n{}\n", table.source);
        println!("threads  published  simulated  error   lines.contended=0.7     1.6");
        for &(threads, published) in table.rates {
            let alone = 1e3 / table.rates[0].1 * model.ghz;
            let work = ((alone - 2.0 * model.costs.rmw) / 2.0).max(0.0) as u64;
            let with = |contended: f64| -> Result<f64, String> {
                let model = model
                    .with("lines.contended", contended)
                    .map_err(|error| error.to_string())?;
                Ok(rate(&model, table.take, threads, work))
            };
            let simulated = rate(&model, table.take, threads, work);
            println!(
                "{threads:>7}  {published:>9.1}  {simulated:>9.1}  {:>+4.0} %  {:>19.1}  {:>6.1}",
                (simulated / published - 1.0) * 100.0,
                with(0.7)?,
                with(1.6)?
            );
        }
    }
    Ok(())
}
