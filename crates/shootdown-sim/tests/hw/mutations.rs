//! Tests of the tests: every wrong machine, and every wrong oracle, must make named tests of this suite fail.
//!
//! The suite runs itself, with the mutation in an environment variable that the test bed reads. Each mutation names the
//! tests that are to notice it, so that a run costs milliseconds, and that a test which goes blind is told by name.

use shootdown_sim::hw::Wrong;
use std::process::Command;
use std::sync::OnceLock;

const VARIABLE: &str = "SHOOTDOWN_HW_WRONG";

/// The mutation this process was started for.
pub fn asked_for() -> Option<Wrong> {
    static ASKED: OnceLock<Option<Wrong>> = OnceLock::new();
    *ASKED.get_or_init(|| {
        let name = std::env::var(VARIABLE).ok()?;
        let found = Wrong::ALL.iter().find(|wrong| format!("{wrong:?}") == name);
        Some(*found.unwrap_or_else(|| panic!("{VARIABLE}={name}: no such mutation")))
    })
}

/// The tests that notice a mutation.
fn noticed_by(wrong: Wrong) -> &'static [&'static str] {
    const SPECULATION: &str = "x86::speculation_fills_without_an_access_and_never_faults";
    const LINKS: &str = "x86::page_invalidation_drops_all_links_without_tce_and_the_path_with_it";
    const GLOBAL: &str = "x86::global_entries_survive_tag_flushes_and_loads_but_not_their_page_nor_all";
    const NO_SYNC: &str = "conformance::broadcast_without_sync_is_sometimes_stale_and_sometimes_not";
    const WITHDRAWN: &str =
        "under_way::what_is_filled_through_withdrawn_links_before_the_operation_arrives_is_gone_at_the_sync";
    const MODEL: &str = "model::the_oracle_agrees_with_the_obvious_one";
    match wrong {
        Wrong::InvlpgReachesAllTags => &["x86::invlpg_reaches_only_its_page_its_cpu_and_its_tag", MODEL],
        Wrong::InvlpgReachesAllCpus => &["conformance::invlpg_on_one_cpu_does_not_affect_another", MODEL],
        Wrong::InvlpgSparesGlobal => &[GLOBAL, MODEL],
        Wrong::InvlpgSparesLinks => &[LINKS],
        Wrong::TceIgnored => &[LINKS],
        Wrong::TagFlushTakesGlobal => &[GLOBAL, MODEL],
        Wrong::LoadFlushes => &["x86::tags_keep_entries_apart_and_alive_across_switches", MODEL],
        Wrong::BroadcastAtIssue => &[NO_SYNC, "conformance::sync_on_another_cpu_proves_nothing"],
        Wrong::BroadcastOnlyAtSync => &[NO_SYNC],
        Wrong::SyncOfAnybody => &["conformance::sync_on_another_cpu_proves_nothing"],
        Wrong::SyncForgetsAway => &["conformance::sync_also_reaches_a_cpu_that_has_left_the_tag"],
        Wrong::SyncByIssueOnly | Wrong::AwayStaysStale | Wrong::ClockDecides => &[WITHDRAWN],
        Wrong::NoSpeculationWhenLazy => &[SPECULATION],
        Wrong::OracleIgnoresLinks => &[
            "freed::c3_a_table_freed_while_a_cpu_caches_a_link_lazy_or_not",
            "freed::c3_a_leaf_only_broadcast_does_not_make_a_table_free",
        ],
        Wrong::OracleIgnoresUse => &[
            "oracle::c1_a_lazy_cpu_that_uses_what_it_kept_is_caught",
            "conformance::switching_tables_under_one_tag_without_invalidation_is_stale",
            MODEL,
        ],
        Wrong::OracleForgetsTolerated => &[
            "oracle::c1_a_lazy_cpu_may_keep_what_it_cannot_use_until_it_leaves",
            "oracle::c1_a_tag_not_loaded_may_stay_behind_until_it_is_loaded_without_catching_up",
            MODEL,
        ],
        Wrong::OracleBindsAtOnce => &[
            "oracle::c1_before_the_request_completes_a_stale_hit_is_allowed",
            "oracle::c1_a_withdrawal_after_the_request_began_is_not_its_business",
            MODEL,
        ],
        Wrong::OracleIgnoresFrees => &["freed::c2_a_frame_freed_while_a_cpu_can_use_it"],
    }
}

/// The results of some tests of this suite, by name: whether each passed.
fn results(wrong: Option<Wrong>, tests: &[&str]) -> Vec<(String, bool)> {
    let this = std::env::current_exe().expect("a test knows its own path");
    let mut command = Command::new(this);
    command.args(tests).args(["--exact", "--test-threads=1"]);
    // The same cases each time: whether a wrong machine is noticed must not be a matter of luck.
    command.env_remove(VARIABLE).env("PROPTEST_RNG_SEED", "1");
    if let Some(wrong) = wrong {
        command.env(VARIABLE, format!("{wrong:?}"));
    }
    let output = command.output().expect("the suite can run itself");
    let text = String::from_utf8_lossy(&output.stdout);
    let told = |line: &str| {
        let (name, result) = line.strip_prefix("test ")?.split_once(" ... ")?;
        Some((name.to_string(), result.trim() == "ok"))
    };
    text.lines().filter_map(told).collect()
}

#[test]
fn every_wrong_machine_is_noticed() {
    let mut survivors = Vec::new();
    for &wrong in Wrong::ALL {
        let tests = noticed_by(wrong);
        assert!(!tests.is_empty(), "{wrong:?}: nobody is named");
        let seen = results(Some(wrong), tests);
        assert_eq!(
            seen.len(),
            tests.len(),
            "{wrong:?}: a test named does not exist: {tests:?}"
        );
        for (test, passed) in seen {
            println!(
                "{:24} {test}: {}",
                format!("{wrong:?}"),
                if passed { "passed" } else { "caught" }
            );
            if passed {
                survivors.push(format!("{wrong:?} under {test}"));
            }
        }
    }
    assert!(survivors.is_empty(), "not noticed:\n{}", survivors.join("\n"));
}

#[test]
fn the_right_machine_passes_the_tests_that_notice_wrong_ones() {
    let mut tests: Vec<_> = Wrong::ALL
        .iter()
        .flat_map(|&wrong| noticed_by(wrong))
        .copied()
        .collect();
    tests.sort_unstable();
    tests.dedup();
    let seen = results(None, &tests);
    assert_eq!(seen.len(), tests.len());
    for (test, passed) in seen {
        assert!(passed, "{test} fails on the machine as it is");
    }
}
