use super::runs::measured;
use super::*;
use crate::args::RunArgs;
use crate::comparison::interval::{self, Figure};
use crate::published;
use crate::runs::fake::{self, Fake};
use crate::runs::queue::Outcome;
use shootdown_sim::run::RunResult;

fn outcome(rate: f64) -> Outcome {
    let specs = fake::plan(&["ipi"], &[1]).specs();
    Ok(RunResult {
        ops_per_s: rate,
        ..fake::result(&specs[0])
    })
}

/// The rates of milan-72.
fn of_milan() -> Vec<Published> {
    let rows = published::rows().into_iter();
    rows.filter(|row| row.machine == "milan-72" && row.metric == Metric::OpsPerS)
        .collect()
}

/// Lines of a simulator that is `factor` off on every row.
fn off_by(factor: f64) -> Vec<Line> {
    let rows = of_milan();
    let outcomes: Vec<Outcome> = rows.iter().map(|row| outcome(row.value * factor)).collect();
    lines(&rows, &plan(&rows, 1), &outcomes)
}

fn settings(runs: u64) -> Settings {
    Settings {
        seed: 5,
        runs,
        jobs: 1,
        virtual_ms: None,
    }
}

fn plan(rows: &[Published], runs: u64) -> Runs {
    Runs::new(rows.iter(), &settings(runs)).unwrap()
}

#[test]
fn errors_use_held_out_rows_only() {
    let mut lines = off_by(1.1);
    lines
        .iter_mut()
        .filter(|line| line.published.fitted)
        .for_each(|line| line.simulated = line.simulated.map(|rate| rate * 50.0));
    let text = text(&lines, &[], &[], &[], 1);
    assert!(
        text.contains("milan-72: used for fitting: 3 rows; on 9 others, absolute error:"),
        "{text}"
    );
    assert!(
        text.contains("  model          worst   10.0%, median   10.0%\n"),
        "{text}"
    );
}

#[test]
fn rows_outside_their_intervals_are_marked_and_counted() {
    let near = text(&off_by(1.1), &[], &[], &[], 1);
    assert!(
        near.contains("90 % intervals: of 9 rows not fitted, 9 within (100.0%)"),
        "{near}"
    );
    assert!(near.contains("own table: 9 (100.0%)"), "{near}");
    let far = off_by(3.0);
    let text = text(&far, &[], &[], &[], 1);
    assert!(
        text.contains("90 % intervals: of 9 rows not fitted, 0 within"),
        "{text}"
    );
    let ends = far[0].ends().unwrap();
    assert!(
        ends[0] < far[0].simulated.unwrap() && ends[1] > far[0].simulated.unwrap(),
        "{ends:?}"
    );
}

#[test]
fn left_out_table_is_judged_by_errors_of_the_others() {
    let mut lines = off_by(1.02);
    for line in lines.iter_mut().filter(|line| line.published.table == "E2") {
        line.simulated = Some(line.published.value * 1.2);
    }
    let found = coverage::Coverage::of(&lines).unwrap();
    assert_eq!((found.rows, found.within), (9, 9), "{found:?}");
    assert!(found.within_left_out < 9, "{found:?}");
}

#[test]
fn interpolation_is_shown_with_its_own_errors() {
    let text = text(&off_by(1.0), &[], &[], &[], 1);
    // broadcast at 1 thread: constant 1368 against 304.
    assert!(text.contains("interpolation  worst  350.0%"), "{text}");
    assert!(
        text.contains("E1. tlb_flush2 on milan-72") && text.contains("E2. tlb_flush2 on milan-72"),
        "{text}"
    );
    let of_a_design = |line: &&str| line.starts_with("ipi ") || line.starts_with("broadcast ");
    let rows = text.lines().map(str::trim_start).filter(of_a_design);
    assert_eq!(rows.filter(|line| line.contains(" fitted")).count(), 3, "{text}");
}

#[test]
fn several_seeds_give_their_median() {
    let rows = &published::rows()[..1];
    let lines = lines(rows, &plan(rows, 3), &[1.0, 9.0, 2.0].map(outcome));
    assert_eq!(lines[0].simulated, Some(2.0));
}

#[test]
fn failed_row_is_shown_and_excluded_from_errors() {
    let rows = &published::rows()[..2];
    let lines = lines(rows, &plan(rows, 1), &[Err("hangs".to_string()), outcome(1.0)]);
    assert_eq!((lines[0].simulated, lines[1].simulated), (None, Some(1.0)));
    assert!(
        text(&lines, &[], &[], &[], 1).contains(" failed "),
        "{}",
        text(&lines, &[], &[], &[], 1)
    );
}

#[test]
fn failed_run_fails_the_command() {
    // A rate that ideal reaches in the fake runs: a floor would be a separate failure.
    let row = "[[row]]\n\
               table = \"lab\"\n\
               workload = \"tlb_flush2\"\n\
               machine = \"milan-72\"\n\
               design = \"ipi\"\n\
               threads = 16\n\
               ns_per_op = 90000000\n\
               source = \"a loop\"\n";
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rows.toml");
    std::fs::write(&file, row).unwrap();
    let args = EvidenceArgs {
        rows: Some(file),
        runs: 1,
        json: false,
        html: None,
        run: RunArgs {
            seed: 1,
            jobs: Some(1),
            virtual_ms: None,
        },
    };
    let status = |fail_at| {
        let runner = Fake {
            fail_at,
            ..Fake::default()
        };
        command(&args, &runner, &AtomicBool::new(false))
    };
    assert_eq!((status(None), status(Some(16))), (Ok(SUCCESS), Ok(BAD_RUN)));
}

/// The rows beside runs of the simulator, one each.
fn simulated(rows: &[Published]) -> Vec<Line> {
    let settings = Settings {
        seed: 1,
        runs: 1,
        jobs: std::thread::available_parallelism().map_or(1, usize::from),
        virtual_ms: None,
    };
    let plan = Runs::new(rows.iter(), &settings).unwrap();
    let ran = queue::run_all(&queue::Simulator, &plan.specs, settings.jobs, &AtomicBool::new(false)).unwrap();
    lines(rows, &plan, &ran.filled())
}

/// Runs every held-out row, and those of `evidence/blind.toml`, as the command does. A build with debug assertions
/// makes other runs: errors of rates differ by up to 0.014 (E14), those of shares of time by up to 0.05 (E8's idle
/// time). A row that is as near to the limit as that is not judged.
#[test]
fn rows_off_by_more_than_a_quarter_and_no_others_say_why() {
    let blind = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../evidence/blind.toml");
    let blind = published::Tables::read(&blind).unwrap().rows;
    assert!(
        blind.len() >= 23 && blind.iter().all(|row| !row.fitted),
        "all of them, none fitted"
    );
    let held_out = published::rows().into_iter().filter(|row| !row.fitted);
    let held_out: Vec<_> = held_out.chain(blind).collect();
    let mut lines = simulated(&held_out);
    intervals_use_the_printed_deviations(&lines);
    lines.retain(|line| {
        let row = &line.published;
        let simulated = line.simulated.unwrap_or_else(|| panic!("a run failed: {row:?}"));
        let near = if row.metric.is_share() { 0.05 } else { 0.02 };
        (relative_error(simulated, row.value).abs() - misses::LIMIT).abs() >= near
    });
    for line in &lines {
        let row = &line.published;
        assert_eq!(
            line.miss().is_some(),
            row.explanation.is_some(),
            "{} {} at {}, {}: simulated {:?}; a row that is off by more than {} says why, others do not",
            row.table,
            row.design,
            number::threads(row.threads),
            shown(row.metric, row.value),
            line.simulated,
            misses::LIMIT
        );
    }
    assert!(
        lines.iter().any(|line| line.why().is_some()),
        "the model is not perfect"
    );
}

/// A build with debug assertions may differ by one in the second decimal. Those of rates in use may be larger: see
/// [`interval::OFF`].
fn intervals_use_the_printed_deviations(lines: &[Line]) {
    let all: Vec<&Line> = lines.iter().collect();
    for (kind, off) in interval::OFF {
        let (found, _) = coverage::off(&all, kind).unwrap();
        let of_rates = matches!(kind, Figure::FittedRate | Figure::OtherRate);
        assert!(
            found - off < 0.015 && (of_rates || off - found < 0.015),
            "{kind:?}: {found:.3} is printed, {off} is in use"
        );
    }
}

fn with_explanation(of: &Line) -> Line {
    let mut line = of.clone();
    line.published.explanation = Some(published::Explanation {
        cause: "The lock is held for too long.".to_string(),
        settled_by: "A clock.".to_string(),
    });
    line
}

#[test]
fn rows_far_off_are_listed_with_cause_and_measurement() {
    let without = text(&off_by(1.3), &[], &[], &[], 1);
    assert!(
        without.contains("ipi on milan-72 at 4 threads, 644k published (+30.0%)"),
        "{without}"
    );
    assert!(without.contains("No cause is given."), "{without}");
    assert!(
        without.contains("above 25 %: 9, no cause is given for 9 of them"),
        "{without}"
    );
    let lines: Vec<Line> = off_by(1.3).iter().map(with_explanation).collect();
    let with = text(&lines, &[], &[], &[], 1);
    assert!(
        with.contains("Cause: The lock is held for too long. To settle it: A clock."),
        "{with}"
    );
    assert_eq!(
        with.matches("off by more than 25 %: ").count(),
        2,
        "one for each table: {with}"
    );
    assert!(
        with.contains("above 25 %: 9, each with its cause below its table"),
        "{with}"
    );
    // Neither a row within the limit nor a fitted one is listed.
    let near: Vec<Line> = off_by(1.2).iter().map(with_explanation).collect();
    let near = text(&near, &[], &[], &[], 1);
    assert!(
        !near.contains("off by more than") && near.contains("above 25 %: 0\n"),
        "{near}"
    );
    assert!(!with.contains("315k published"), "{with}");
}

/// A small share has a large relative error: the error in points of the time stands beside it.
#[test]
fn errors_of_shares_are_also_in_points() {
    let mut lines = off_by(1.3);
    assert!(!text(&lines, &[], &[], &[], 1).contains("points"));
    let line = lines.iter_mut().find(|line| !line.published.fitted).unwrap();
    line.published.metric = Metric::IdleShare;
    (line.published.value, line.simulated) = (0.02, Some(0.0));
    let text = text(&lines, &[], &[], &[], 1);
    assert!(text.contains("(-100.0%, -2.0 points)"), "{text}");
    let summary = "  without shares of time: 8 rows, worst 30.0%, median 30.0%\n  \
                   shares of time, in points of the time: 1 row, worst 2.0, median 2.0\n";
    assert!(text.contains(summary), "{text}");
}

#[test]
fn json_has_the_cause_of_rows_far_off_only() {
    let rows = |factor: f64| {
        let lines: Vec<Line> = off_by(factor).iter().map(with_explanation).collect();
        let json = json::render(json::Findings {
            command: "shootdown evidence",
            lines: &lines,
            left: &[],
            statements: None,
            floor: &[],
            stale: 0,
            accesses_checked: 7,
            failures: &[],
            missing: 0,
        });
        let value: serde_json::Value = serde_json::from_str(&json).unwrap();
        let rows = value["rows"].as_array().unwrap().clone();
        rows.into_iter()
            .filter(|row| row["fitted"] == false)
            .collect::<Vec<_>>()
    };
    let (far, near) = (rows(1.3), rows(1.2));
    assert!(
        far.iter()
            .all(|row| row["cause"] == "The lock is held for too long." && row["settled_by"] == "A clock.")
    );
    assert!(
        near.iter()
            .all(|row| row["cause"].is_null() && row["settled_by"].is_null())
    );
}

#[test]
fn every_known_row_can_be_run() {
    let rows: Vec<_> = published::rows()
        .into_iter()
        .filter(|row| row.not_run().is_none())
        .collect();
    let plan = plan(&rows, 2);
    for spec in &plan.specs {
        shootdown_sim::run::validate(spec).unwrap();
    }
    assert_eq!((plan.specs[0].seed, plan.specs[1].seed), (5, 6));
}

#[test]
fn rows_of_one_run_share_it_and_a_ratio_adds_its_reference() {
    let rate = of_milan()[0].clone();
    let idle = Published {
        metric: Metric::IdleShare,
        ..rate.clone()
    };
    let ratio = Published {
        metric: Metric::RateRatio,
        over: Some(published::Reference {
            design: rate.design.clone(),
            threads: 2,
            set: None,
            virtual_ms: None,
        }),
        ..rate.clone()
    };
    let rows = [rate, idle, ratio];
    let plan = plan(&rows, 1);
    let threads: Vec<usize> = plan.specs.iter().map(|spec| spec.threads).collect();
    assert_eq!(threads, [1, 2]);
    let lines = lines(&rows, &plan, &[outcome(30.0), outcome(20.0)]);
    let simulated: Vec<_> = lines.iter().map(|line| line.simulated).collect();
    assert_eq!(simulated, [Some(30.0), Some(0.1), Some(1.5)]);
}

/// A run of a curve that is a row's as well is made once.
#[test]
fn curves_share_the_runs_of_rows() {
    let rows = of_milan();
    let mut plan = plan(&rows, 1);
    let of_rows = plan.specs.len();
    let specs = shape::specs(&settings(1)).unwrap();
    let places = plan.places(specs.clone());
    for (&place, spec) in places.iter().zip(&specs) {
        assert_eq!(&plan.specs[place], spec);
    }
    // E1 has rows of four thread counts of each design, E2 has the two unmodified variants.
    assert_eq!(places.iter().filter(|&&place| place < of_rows).count(), 10);
    assert_eq!(plan.specs.len() - of_rows, 12);
}

#[test]
fn unrunnable_rows_are_listed_with_the_reason() {
    let unknown = Published {
        table: "E99".to_string(),
        workload: "nothing".to_string(),
        ..of_milan()[0].clone()
    };
    let text = text(&off_by(1.0), &[], &[unknown.clone(), unknown], &[], 1);
    assert!(
        text.contains("E99: 2 rows not run: there is no workload `nothing`\n"),
        "{text}"
    );
    assert_eq!(text.matches("E99").count(), 1, "{text}");
}

#[test]
fn each_metric_reads_its_own_result_field() {
    let spec = &fake::plan(&["ipi"], &[1]).specs()[0];
    let result = RunResult {
        ops_per_s: 2e6,
        interrupts_per_op: 3.0,
        flush_share: 0.25,
        time_shares: vec![("user", 0.5), ("address-space lock", 0.25), ("idle", 0.125)],
        ..fake::result(spec)
    };
    let half = RunResult {
        ops_per_s: 1e6,
        ..result.clone()
    };
    let row = Published {
        operations: Some(1e6),
        distribution: Some("flush".to_string()),
        ..of_milan()[0].clone()
    };
    let number = |metric| measured(&Published { metric, ..row.clone() }, &result, Some(&half));
    let numbers = Metric::ALL.map(|metric| number(metric).unwrap());
    assert_eq!(numbers, [2e6, 500.0, 3.0, 0.125, 0.25, 0.5, 0.5, 2.0, 1500.0, 3000.0]);
}

#[test]
fn missing_metric_is_none() {
    let spec = &fake::plan(&["ipi"], &[1]).specs()[0];
    let row = Published {
        metric: Metric::P99Ns,
        distribution: Some("nothing".to_string()),
        ..of_milan()[0].clone()
    };
    assert_eq!(measured(&row, &fake::result(spec), None), None);
}

#[test]
fn json_has_every_row_the_errors_and_null_for_failed_rows() {
    let mut lines = off_by(1.1);
    let failed = lines.iter().position(|line| !line.published.fitted).unwrap();
    lines[failed].simulated = None;
    let unknown = Published {
        workload: "nothing".to_string(),
        ..of_milan()[0].clone()
    };
    let json = json::render(json::Findings {
        command: "shootdown evidence --runs 3 --seed 5",
        lines: &lines,
        left: &[unknown],
        statements: None,
        floor: &[],
        stale: 0,
        accesses_checked: 7,
        failures: &["it hangs".to_string()],
        missing: 0,
    });
    let value: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(value["command"], "shootdown evidence --runs 3 --seed 5");
    let rows = value["rows"].as_array().unwrap();
    assert_eq!(rows.len(), lines.len() + 1);
    assert!(rows[failed]["simulated"].is_null() && rows[failed]["relative_error"].is_null());
    assert!(rows[failed]["not_run"].is_null());
    assert_eq!(rows[lines.len()]["not_run"], "there is no workload `nothing`");
    let first = rows
        .iter()
        .find(|row| row["fitted"] == false && !row["simulated"].is_null());
    assert!((first.unwrap()["relative_error"].as_f64().unwrap() - 0.1).abs() < 1e-9);
    assert_eq!(rows[0]["metric"], "ops_per_s");
    let milan = &value["machines"][0];
    assert_eq!((&milan["fitted_rows"], &milan["held_out_rows"]), (&3.into(), &9.into()));
    assert_eq!(milan["model"]["rows"], 8);
    assert!((milan["model"]["worst"].as_f64().unwrap() - 0.1).abs() < 1e-9);
    assert!((milan["interpolation"]["worst"].as_f64().unwrap() - 3.5).abs() < 1e-9);
    assert!(value["shape"].is_null() && value["failures"][0] == "it hangs");
    crate::print::json::assert_explained(&json);
}

#[test]
fn tables_fit_the_terminal_with_settings_below() {
    let rows: Vec<_> = published::rows()
        .into_iter()
        .filter(|row| row.not_run().is_none())
        .collect();
    let outcomes: Vec<Outcome> = plan(&rows, 1).specs.iter().map(|_| outcome(1e6)).collect();
    let notes = Tables::embedded().notes;
    let text = text(&lines(&rows, &plan(&rows, 1), &outcomes), &[], &[], &notes, 3);
    let is_of_table = |line: &&str| line.starts_with('─');
    let widest = text.lines().filter(is_of_table).map(|line| line.chars().count()).max();
    assert!(widest <= Some(80), "{text}");
    assert!(
        text.contains("  [1]: topology.sockets=32 topology.cores_per_cluster=2\n"),
        "{text}"
    );
    assert!(
        text.contains(" preemptible over ") && text.contains(" ipi-per-cpu [3]\n"),
        "{text}"
    );
    let of_e5 = text
        .split("\nE5. ")
        .nth(1)
        .and_then(|rest| rest.lines().nth(1))
        .unwrap_or_default();
    assert!(!of_e5.contains("machine") && !of_e5.contains("interpolated"), "{of_e5}");
}
