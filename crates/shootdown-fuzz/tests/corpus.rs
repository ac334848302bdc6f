//! Every seed, and a bounded number of changes to them, the same at every run.

use shootdown_fuzz::mutate::Mutations;
use shootdown_fuzz::{TARGETS, Target};
use std::panic::catch_unwind;

/// Says which bytes it was when something does not hold.
fn hold(target: Target, bytes: &[u8], what: &str) {
    if catch_unwind(|| (target.check)(bytes)).is_err() {
        panic!("{}: {what}: {:?}", target.name, String::from_utf8_lossy(bytes));
    }
}

fn target(name: &str) -> Target {
    *TARGETS.iter().find(|target| target.name == name).expect("a target")
}

fn holds_for_seeds_and_changes(name: &str, changes: usize) {
    let target = target(name);
    let seeds = target.seeds().expect("a corpus");
    for (file, bytes) in &seeds {
        hold(target, bytes, file);
    }
    let seeds: Vec<_> = seeds.into_iter().map(|(_, bytes)| bytes).collect();
    for (number, bytes) in Mutations::new(&seeds, 1, target.longest).take(changes).enumerate() {
        hold(target, &bytes, &format!("change {number}"));
    }
}

#[test]
fn machine_reader_survives_any_file_and_round_trips() {
    holds_for_seeds_and_changes("machine", 4_000);
}

#[test]
fn trace_reader_survives_any_text() {
    holds_for_seeds_and_changes("trace", 20_000);
}

#[test]
fn parquet_reader_survives_any_file() {
    holds_for_seeds_and_changes("columns", 3_000);
}

#[test]
fn ranges_cover_every_byte() {
    holds_for_seeds_and_changes("ranges", 20_000);
}

#[test]
fn encoders_round_trip_any_operand() {
    holds_for_seeds_and_changes("encoders", 100_000);
}

#[test]
fn every_target_has_seeds() {
    for target in TARGETS {
        assert!(target.seeds().is_ok_and(|seeds| seeds.len() >= 3), "{}", target.name);
    }
}
