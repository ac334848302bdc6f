//! Charged operations per host second of the core machine: 72 CPUs (and 1024) doing private operations, contended
//! read-modify-writes and interrupts. Prints the rate; criterion times one run of the mix.

use criterion::Criterion;
use shootdown::facade::Word;
use shootdown_sim::machine::{self, Config, Machine, SimWord, Topology};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::Instant;

/// The operations of each CPU in one round.
#[derive(Clone, Copy)]
struct Mix {
    name: &'static str,
    private: u32,
    contended: bool,
    ipis: bool,
}

const MIXES: [Mix; 4] = [
    Mix {
        name: "private only",
        private: 16,
        contended: false,
        ipis: false,
    },
    Mix {
        name: "typical",
        private: 10,
        contended: true,
        ipis: true,
    },
    Mix {
        name: "contended only",
        private: 0,
        contended: true,
        ipis: false,
    },
    Mix {
        name: "all words shared",
        private: 0,
        contended: false,
        ipis: true,
    },
];

/// Runs `mix`; returns charged operations and host seconds, set-up excluded.
fn run(cpus: usize, mix: Mix, cycles: u64) -> (u64, f64) {
    let mut machine = Machine::new(Config::new(Topology::regular(cpus, 2, 16, 36)));
    let hot = machine.alloc([SimWord::new(0)]);
    let board = machine.alloc((0..cpus).map(|_| machine.alloc(SimWord::new(0))).collect::<Vec<_>>());
    let own = (0..cpus)
        .map(|_| machine.alloc([0; 4].map(SimWord::new)))
        .collect::<Vec<_>>();
    {
        let board = board.clone();
        machine.set_interrupt_handler(move || {
            let word = &board[machine::cpu()];
            word.store(word.load(Acquire) + 1, Release);
        });
    }
    for (cpu, own) in own.into_iter().enumerate() {
        let (hot, board) = (hot.clone(), board.clone());
        machine.spawn(cpu, move || {
            let mut round = 0;
            while !machine::stop_requested() {
                round += 1;
                for index in 0..mix.private {
                    let word = &own[index as usize % 4];
                    match index % 5 {
                        0 => word.store(1, Release),
                        1 => drop(word.fetch_add_full(1)),
                        2 => machine::charge(20),
                        _ => drop(word.load(Relaxed)),
                    }
                }
                if mix.contended {
                    hot[0].fetch_add_full(1);
                }
                board[(cpu + round) % cpus].load(Acquire);
                if mix.ipis && round % 64 == 0 {
                    machine::send_ipi([(cpu + 1) % cpus]);
                }
            }
        });
    }
    let start = Instant::now();
    machine.run(cycles, |_| true);
    (machine.events(), start.elapsed().as_secs_f64())
}

fn main() {
    for (cpus, cycles) in [(72, 4_000_000), (1024, 200_000), (8192, 30_000)] {
        for mix in MIXES {
            let cycles = if mix.contended { cycles * 10 } else { cycles };
            let (events, seconds) = run(cpus, mix, cycles);
            println!(
                "{cpus:5} CPUs, {:17} {:7.1} M events/s ({events} events)",
                mix.name,
                events as f64 / seconds / 1e6
            );
        }
    }
    let mut criterion = Criterion::default().configure_from_args().sample_size(10);
    criterion.bench_function("72 CPUs, typical mix, 100k cycles", |bencher| {
        bencher.iter(|| run(72, MIXES[1], 100_000));
    });
    criterion.final_summary();
}
