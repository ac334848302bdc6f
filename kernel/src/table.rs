//! Several designs on one boot, as a table: what a real machine prints, on its serial port and its screen.

use crate::arch::features;
use crate::options::Options;
use crate::serial::{self, Status};
use crate::workloads::{self, Workload};
use crate::{cpu, println, replace_engine};
use alloc::vec::Vec;

/// Measures every design with every number of threads, and ends.
pub fn run(workload: Workload, options: &Options) -> ! {
    let all = cpu::all().len();
    println!(
        "shootdown {}: {} on {all} CPUs, seed {}",
        env!("CARGO_PKG_VERSION"),
        options.workload,
        options.seed
    );
    println!(
        "{:>8}  {:<16} {:>10} {:>8} {:>9} {:>12} {:>6}",
        "threads", "design", "ops/s", "IPIs/op", "taken/op", "INVLPGBs/op", "stale"
    );
    let mut stale = 0;
    for threads in counts(options, all) {
        for (name, design) in options.designs() {
            replace_engine(options, design);
            let measured = workloads::measure(workload, threads, options);
            stale += measured.stale();
            println!("{threads:>8}  {name:<16} {measured}");
        }
    }
    println!(
        "tags: {}; broadcast: {}; stale translations: {stale}; done",
        features::tags_in_words(),
        features::in_words(workloads::broadcast_in_words()),
    );
    serial::exit(if stale == 0 { Status::Success } else { Status::Violation })
}

/// The requested ones for which the machine has CPUs; else powers of two, and all.
fn counts(options: &Options, all: usize) -> Vec<usize> {
    let requested: Vec<usize> = options
        .thread_counts()
        .filter(|&count| count > 0 && count <= all)
        .collect();
    if !requested.is_empty() {
        return requested;
    }
    let mut counts: Vec<usize> = (0..).map(|power| 1 << power).take_while(|&count| count < all).collect();
    counts.push(all);
    counts
}
