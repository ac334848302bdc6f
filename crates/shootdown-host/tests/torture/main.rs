//! Random maps, unmaps, table frees, lockless walks, switches, lazy periods, CPUs going offline and processes ending.
//! They run on real threads under every sound preset, with an oracle that checks every use of a frame (`guest.rs`).
//! With known bugs: `shootdown-host-patched`.
//!
//! `cargo xtask tsan` runs the same under ThreadSanitizer.

mod guest;
mod run;
mod traffic;

use run::{run, steps};
use shootdown::{Design, Policy};

#[test]
fn presets_free_no_frame_or_table_in_use() {
    for &(name, design, _) in Design::PRESETS {
        if name == "none" {
            continue;
        }
        for broadcast in [false, true] {
            let outcome = run(design, broadcast, false, 1);
            println!("{name:<20} broadcast {broadcast:<5} {} uses", outcome.checked);
            assert_eq!(outcome.violation, None, "{name}, broadcast {broadcast}");
            assert!(outcome.checked > steps(), "{name}: too few accesses were checked");
        }
    }
}

#[test]
fn missing_invalidation_is_caught() {
    let outcome = run(Policy::NONE, false, false, 1);
    let diagnosis = outcome.violation.expect("the control");
    assert!(diagnosis.contains("the entry was made for"), "{diagnosis}");
}
