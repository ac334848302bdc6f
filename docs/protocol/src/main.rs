//! Prints the size of each model and the mutants that it kills: `cargo run --release -p protocol`.
//!
//! With names of models, runs only those. `--stories` adds how each mutant breaks its claim, step by step. Exit status
//! 1 if a sound protocol breaks a claim or a mutant survives, 2 on bad usage.

use protocol::generations::Generations;
use protocol::promotion::Promotion;
use protocol::report::{Line, run};
use protocol::rollover::RollOver;
use protocol::walks::Walks;
use protocol::{MODELS, Protocol};
use std::process::ExitCode;

/// Results so far.
#[derive(Default)]
struct Totals {
    states: usize,
    sound: usize,
    killed: usize,
    wrong: usize,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (options, names): (Vec<&String>, Vec<&String>) = arguments.iter().partition(|word| word.starts_with('-'));
    let known = |name: &&&String| !MODELS.contains(&name.as_str());
    if let Some(unknown) = names
        .iter()
        .find(known)
        .or(options.iter().find(|option| **option != "--stories"))
    {
        eprintln!(
            "protocol: unknown {unknown:?}; usage: protocol [--stories] [{}]...",
            MODELS.join("|")
        );
        return ExitCode::from(2);
    }
    let mut totals = Totals::default();
    let stories = !options.is_empty();
    let selected = |name: &str| names.is_empty() || names.iter().any(|selected| *selected == name);
    println!("{:<12} {:<46} {:>8}  verdict", "model", "bounds, or mutant", "states");
    print::<Generations>(&selected, stories, &mut totals);
    print::<RollOver>(&selected, stories, &mut totals);
    print::<Promotion>(&selected, stories, &mut totals);
    print::<Walks>(&selected, stories, &mut totals);
    println!(
        "{} bounds sound, {} mutants killed, {} not as expected; {} states",
        totals.sound, totals.killed, totals.wrong, totals.states
    );
    if totals.wrong == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn print<P: Protocol>(selected: &impl Fn(&str) -> bool, stories: bool, totals: &mut Totals) {
    if !selected(P::NAME) {
        return;
    }
    run::<P>(|line: Line| {
        println!("{line}");
        if stories || !line.is_right() {
            print!("{}", line.story);
        }
        totals.states += line.explored.states;
        *match (line.is_right(), line.expected) {
            (false, _) => &mut totals.wrong,
            (true, None) => &mut totals.sound,
            (true, Some(_)) => &mut totals.killed,
        } += 1;
    });
}
