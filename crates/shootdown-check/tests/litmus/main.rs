//! Conformance of the exploring machine: on each instruction set forbidden outcomes never occur, and allowed ones do.
//! The verdicts are those of the Armv8 and RVWMO models, and of x86-TSO; those of walkers and invalidations are the
//! specification's. `cargo test -p shootdown-check --test litmus -- --nocapture` prints the table.

mod memory;
mod translation;

use shootdown_check::Architecture;
use shootdown_check::litmus::{Do, Outcome, Program, outcomes};

/// The first data word, and the others.
const X: usize = 0;
const Y: usize = 1;
const Z: usize = 2;

/// Whether an outcome is the one that the shape tests for.
type About = fn(&Outcome) -> bool;

/// Whether it may occur on x86, Arm, RISC-V.
type May = [bool; 3];

/// Name, program, the outcome tested for, and where it may occur.
type Shape = (&'static str, Program, About, May);

const NEVER: May = [false; 3];
const WEAK: May = [false, true, true];
const ALWAYS: May = [true; 3];
const ARM: May = [false, true, false];

const fn of(cpus: &'static [&'static [Do]]) -> Program {
    Program { cpus, handlers: &[] }
}

fn conform(shapes: &[Shape]) {
    let mut wrong = Vec::new();
    for &(name, program, about, may) in shapes {
        let mut line = format!("{name:<66}");
        for (architecture, may) in Architecture::ALL.into_iter().zip(may) {
            let outcomes = outcomes(program, architecture);
            let seen = outcomes.iter().filter(|&outcome| about(outcome)).count();
            line.push_str(&format!(" {architecture}: {seen:>2} of {:>2}", outcomes.len()));
            if (seen > 0) != may {
                wrong.push(format!("{name} on {architecture}: allowed {may}, seen {}", seen > 0));
            }
        }
        println!("{line}");
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn load_store_litmus_outcomes_are_exactly_those_allowed() {
    conform(memory::SHAPES);
}

#[test]
fn translation_litmus_outcomes_are_exactly_those_allowed() {
    conform(translation::SHAPES);
}
