//! Explores every model exhaustively, with each of its mutants.

use protocol::Protocol;
use protocol::generations::Generations;
use protocol::promotion::Promotion;
use protocol::report::{Line, run};
use protocol::rollover::RollOver;
use protocol::walks::Walks;
use shootdown_known_bugs::mistakes;

fn holds_and_its_mutants_do_not<P: Protocol>() {
    // The manifest of all deliberate mistakes must list the same.
    let listed = mistakes("model").filter(|mistake| mistake.place == Some(P::NAME));
    let listed: Vec<_> = listed
        .map(|it| (it.name.to_owned(), it.breaks.map(str::to_owned)))
        .collect();
    let mutants = P::MUTANTS.iter();
    let mutants: Vec<_> = mutants
        .map(|(name, _, claim)| (format!("{name:?}"), Some(format!("{claim:?}"))))
        .collect();
    assert_eq!(mutants, listed, "bugs.toml and the model");
    let mut wrong = Vec::new();
    run::<P>(|line: Line| {
        println!("{line}");
        if !line.is_right() {
            wrong.push(format!("{line}\n{}", line.story));
        }
    });
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn generations_hold_and_every_mutant_fails() {
    holds_and_its_mutants_do_not::<Generations>();
}

#[test]
fn roll_over_holds_and_every_mutant_fails() {
    holds_and_its_mutants_do_not::<RollOver>();
}

#[test]
fn promotion_holds_and_every_mutant_fails() {
    holds_and_its_mutants_do_not::<Promotion>();
}

#[test]
fn walks_hold_and_every_mutant_fails() {
    holds_and_its_mutants_do_not::<Walks>();
}
