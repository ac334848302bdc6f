use super::*;
use crate::runs::fake::Fake;
use clap::Parser;

fn args(line: &str) -> ScoreboardArgs {
    let words = ["shootdown", "scoreboard"].into_iter().chain(line.split_whitespace());
    match crate::args::Cli::try_parse_from(words).unwrap().command {
        Some(crate::args::Command::Scoreboard(args)) => args,
        other => panic!("no scoreboard: {other:?}"),
    }
}

fn of(line: &str) -> (Vec<Plan>, Vec<LeftOut>) {
    let args = args(line);
    combinations(&args, &Settings::new(&args.run, args.runs).unwrap()).unwrap()
}

#[test]
fn all_thread_counts_are_run_with_and_without_broadcast() {
    let (plans, left_out) = of("--long --on milan-72 --workloads tlb_flush2");
    let threads: Vec<usize> = plans.iter().map(|plan| plan.place.threads).collect();
    let once = [1, 2, 4, 8, 16, 32, 64, 72];
    assert_eq!(threads, [once, once].concat());
    let with = plans.iter().filter(|plan| plan.place.broadcast).count();
    assert_eq!((with, left_out.len()), (8, 0), "{left_out:?}");
}

#[test]
fn cells_are_unique() {
    let places = |line: &str| of(line).0.into_iter().map(|plan| plan.place).collect::<Vec<_>>();
    let once = places("--on milan-72,gup-64");
    assert_eq!(
        once,
        places(
            "--on milan-72,gup-64,milan-72 \
             --workloads tlb_flush2,tlb_shared,tlb_flush2,madvise_spin,context_switch"
        )
    );
    // Nor do the models load by themselves.
    let all = places("");
    for (index, place) in all.iter().enumerate() {
        assert!(!all[..index].contains(place), "{place}");
    }
    println!("{} cells", all.len());
}

#[test]
fn evidence_cells_are_unique_with_their_settings() {
    let args = args("--evidence");
    let (plans, left_out) = of_tables(&Settings::new(&args.run, args.runs).unwrap()).unwrap();
    for (index, plan) in plans.iter().enumerate() {
        assert!(
            plans[..index].iter().all(|other| other.place != plan.place),
            "{}",
            plan.place
        );
        assert!(plan.specs.iter().any(|spec| spec.design == JUDGED_DESIGN));
    }
    let places: Vec<String> = plans.iter().map(|plan| plan.place.to_string()).collect();
    for place in [
        "tlb_flush2 on milan-72 at 72 threads",
        "tlb_flush2 with LRU drain on milan-72 at 36 threads",
        "madvise_spin kernel.slowdown=0.5 on icelake-128 without broadcast at 4 threads",
        "mprotect_all on ampere-32 at 32 threads",
    ] {
        assert!(places.iter().any(|other| other == place), "{place}: {places:?}");
    }
    // The denominator of a ratio is a cell too: that of E4's stress program has 8 threads.
    let hardly = |threads: usize| {
        let of = |left: &&cell::LeftOut| left.place.workload == "madvise_stress" && left.place.threads == threads;
        left_out.iter().filter(of).count()
    };
    assert_eq!([8, 32, 2048].map(hardly), [1, 1, 1]);
    let slow = plans.iter().find(|plan| !plan.place.set.is_empty()).unwrap();
    let model = Model::find(&slow.place.machine).unwrap();
    assert_ne!(*slow.specs[0].machine, model);
}

#[test]
fn unrunnable_cell_is_listed_with_the_reason() {
    let few_tags = Model::find("milan-72").unwrap().with("tags.bits", 6.0).unwrap();
    let (plans, _) = of("--on milan-72 --workloads tlb_flush2");
    let spec = RunSpec {
        machine: Arc::new(few_tags),
        ..plans[0].specs[0].clone()
    };
    let (some, left_out) = plan(Place::of(&spec), &spec, 1).unwrap();
    let specs = some.unwrap().specs;
    assert!(specs.iter().all(|spec| !spec.design.starts_with("arm-")) && !specs.is_empty());
    let designs: Vec<_> = left_out.iter().map(|left| left.design.as_deref()).collect();
    assert_eq!(
        designs,
        [Some("arm-broadcast"), Some("arm-ipi"), Some("arm-local-first")]
    );
    assert!(left_out[0].reason.contains("must outnumber the CPUs"), "{left_out:?}");
    // Where `adaptive` cannot be run there is no cell.
    let spec = RunSpec { threads: 0, ..spec };
    let (none, left_out) = plan(Place::of(&spec), &spec, 1).unwrap();
    assert!(none.is_none());
    let last = left_out.last().unwrap();
    assert_eq!(
        (last.design.as_deref(), last.reason.starts_with("--threads 0")),
        (None, true)
    );
}

#[test]
fn cell_with_a_preset_ahead_is_measured_again_with_new_seeds() {
    let (plans, _) = of("--on milan-72 --workloads tlb_flush2 --virtual-ms 3");
    let fake = |spec: &RunSpec| {
        let ahead = spec.design == "broadcast" && spec.threads == 8;
        let rate = match &*spec.design {
            "adaptive" | "ideal" => 100.0,
            _ if ahead => 101.0,
            _ => 50.0,
        };
        Ok(shootdown_sim::run::RunResult {
            ops_per_s: rate,
            ..crate::runs::fake::result(spec)
        })
    };
    let outcomes: Vec<Outcome> = plans.iter().flat_map(|plan| &plan.specs).map(fake).collect();
    let (cells, _) = cell::cells(&plans, &outcomes);
    let doubtful: Vec<&Cell> = cells.iter().filter(|cell| requirements::is_doubtful(cell)).collect();
    let again = once_more(&plans, &outcomes, &doubtful, 1..1 + SECOND_ROUND_SEEDS);
    let again: Vec<&RunSpec> = again.iter().flat_map(|plan| &plan.specs).collect();
    assert!(
        again
            .iter()
            .all(|spec| spec.threads == 8 && spec.seed > 1 && spec.virtual_ms == Some(12.0))
    );
    let mut designs: Vec<&str> = again.iter().map(|spec| &*spec.design).collect();
    designs.dedup();
    // Twice: with and without broadcast.
    let once = ["ideal", "ipi", "broadcast", "adaptive"];
    designs[..4].sort_unstable();
    assert_eq!(
        (designs.len(), again.len()),
        (8, 8 * SECOND_ROUND_SEEDS as usize),
        "{designs:?} {once:?}"
    );
}

#[test]
fn rounds_use_distinct_seeds() {
    for runs in [1, 3] {
        let [(second, _), (third, _)] = rounds(runs);
        let all: Vec<u64> = (0..runs).chain(second).chain(third).collect();
        assert_eq!(
            all,
            (0..runs + SECOND_ROUND_SEEDS + THIRD_ROUND_SEEDS).collect::<Vec<_>>()
        );
    }
}

#[test]
fn failed_runs_set_the_exit_status() {
    let line = args("--on milan-72 --workloads tlb_flush2");
    let run = |fake: Fake| command(&line, &fake, &AtomicBool::new(false));
    assert_eq!(run(Fake::default()), Ok(SUCCESS));
    let failing = Fake {
        fail_at: Some(8),
        ..Fake::default()
    };
    assert_eq!(run(failing), Ok(BAD_RUN));
}
