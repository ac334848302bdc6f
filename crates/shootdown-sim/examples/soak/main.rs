//! Random schedules, workloads, designs and machines under the oracle, for any duration:
//! `cargo xtask soak --minutes N`.
//!
//! Case *n* of a seed is always the same run. A failure is printed with the command that reproduces it; the exit status
//! is then 1.

mod case;
#[allow(dead_code, reason = "the contract's tests use more of it")]
#[path = "../../tests/contract/threads.rs"]
mod threads;
#[allow(dead_code, reason = "the contract's tests use more of it")]
#[path = "../../tests/contract/traffic.rs"]
mod traffic;

use case::{Case, KINDS};
use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

const USAGE: &str = "usage: soak [--minutes N] [--accesses N] [--seed S] [--jobs N] [--case N]
  --minutes N   how long, default 10
  --accesses N  stop when so many accesses were checked, in place of a time
  --seed S      which cases, default 1
  --jobs N      host threads, default as many as there are
  --case N      only case N of the seed, with its diagnosis";

/// The options.
struct Order {
    end: Duration,
    accesses: u64,
    seed: u64,
    jobs: usize,
    only: Option<u64>,
}

impl Order {
    fn of(words: &[String]) -> Result<Order, String> {
        let jobs = std::thread::available_parallelism().map_or(1, usize::from);
        let mut order = Order {
            end: Duration::from_secs(600),
            accesses: u64::MAX,
            seed: 1,
            jobs,
            only: None,
        };
        let mut words = words.iter();
        while let Some(option) = words.next() {
            let value = words.next().ok_or_else(|| format!("{option} needs a number"))?;
            let whole = || {
                value
                    .parse::<u64>()
                    .map_err(|_| format!("{option} {value}: not a whole number"))
            };
            match option.as_str() {
                "--minutes" => match value.parse::<f64>() {
                    Ok(minutes) if minutes > 0.0 && minutes < 1e6 => {
                        order.end = Duration::from_secs_f64(60.0 * minutes)
                    }
                    _ => return Err(format!("--minutes {value}: not a number of minutes")),
                },
                "--accesses" => (order.accesses, order.end) = (whole()?, Duration::MAX),
                "--seed" => order.seed = whole()?,
                "--jobs" => order.jobs = whole()?.clamp(1, 256) as usize,
                "--case" => order.only = Some(whole()?),
                _ => return Err(format!("unknown option {option}")),
            }
        }
        Ok(order)
    }
}

/// The results so far, by kind of case.
#[derive(Default)]
struct Sum {
    cases: [AtomicU64; KINDS.len()],
    checked: [AtomicU64; KINDS.len()],
    found: Mutex<Vec<String>>,
    next: AtomicU64,
    over: AtomicBool,
}

impl Sum {
    fn checked(&self) -> u64 {
        self.checked.iter().map(|number| number.load(Relaxed)).sum()
    }

    /// Runs cases until the time is up, enough accesses were checked, or ten failures were found.
    fn work(&self, order: &Order, begun: Instant) {
        while !self.over.load(Relaxed) {
            let case = Case::of(order.seed, self.next.fetch_add(1, Relaxed));
            let outcome = case.run();
            self.cases[case.kind].fetch_add(1, Relaxed);
            self.checked[case.kind].fetch_add(outcome.checked, Relaxed);
            let mut enough = begun.elapsed() >= order.end || self.checked() >= order.accesses;
            if let Some(what) = outcome.found {
                let again = format!("cargo xtask soak --seed {} --case {}", order.seed, case.number);
                let mut found = self.found.lock().expect("no thread panics while it holds the lock");
                found.push(format!("{}\n{what}\nagain: {again}", case.description()));
                eprintln!("\nfound: {}", found[found.len() - 1]);
                enough |= found.len() >= 10;
            }
            if enough {
                self.over.store(true, Relaxed);
            }
        }
    }
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let order = match Order::of(&words) {
        Ok(order) => order,
        Err(message) => {
            eprintln!("soak: {message}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    if let Some(number) = order.only {
        let case = Case::of(order.seed, number);
        println!("case {number} of seed {}: {}", order.seed, case.description());
        let outcome = case.run();
        println!("{} accesses checked", outcome.checked);
        return match outcome.found {
            None => ExitCode::SUCCESS,
            Some(what) => {
                println!("{what}");
                ExitCode::FAILURE
            }
        };
    }
    let (sum, begun) = (Sum::default(), Instant::now());
    std::thread::scope(|scope| {
        for _ in 0..order.jobs {
            scope.spawn(|| sum.work(&order, begun));
        }
        scope.spawn(|| report(&sum, begun));
    });
    let found = sum.found.lock().expect("no thread panics while it holds the lock");
    println!("{:<44} {:>9} {:>16}", "random", "runs", "accesses checked");
    for (kind, about) in KINDS.iter().enumerate() {
        let [cases, checked] = [&sum.cases, &sum.checked].map(|of| of[kind].load(Relaxed));
        println!("{about:<44} {cases:>9} {checked:>16}");
    }
    println!(
        "seed {}: {} accesses checked in {} runs, {:.0} s on {} host threads; found: {}",
        order.seed,
        sum.checked(),
        sum.cases.iter().map(|number| number.load(Relaxed)).sum::<u64>(),
        begun.elapsed().as_secs_f64(),
        order.jobs,
        found.len()
    );
    if found.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Prints the progress occasionally.
fn report(sum: &Sum, begun: Instant) {
    let often = if std::io::stderr().is_terminal() { 2 } else { 60 };
    let mut next = Duration::from_secs(often);
    while !sum.over.load(Relaxed) {
        std::thread::sleep(Duration::from_millis(100));
        if begun.elapsed() >= next {
            next += Duration::from_secs(often);
            let seconds = begun.elapsed().as_secs_f64();
            let line = format!(
                "{:.0} s: {} million accesses checked",
                seconds,
                sum.checked() / 1_000_000
            );
            if often == 2 {
                eprint!("\r{line}");
            } else {
                eprintln!("{line}");
            }
        }
    }
    if often == 2 {
        eprintln!();
    }
}
