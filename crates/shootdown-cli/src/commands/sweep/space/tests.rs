use super::*;
use crate::commands::sweep::args;

fn space(line: &str) -> Space {
    Space::new(&args(line)).unwrap()
}

fn refused(line: &str) -> String {
    let message = Space::new(&args(line)).unwrap_err().to_string();
    assert_eq!(message.lines().count(), 1, "{message}");
    message
}

#[test]
fn points_vary_seeds_fastest_and_machines_slowest() {
    let space = space(
        "tlb_flush2 --on milan-72 --designs ipi,broadcast --threads 2,all --set costs.invlpg=100..300:3 --runs 2",
    );
    assert_eq!(space.points.len(), 3 * 2 * 2 * 2);
    let brief = |point: &Point| {
        (
            space.value(point, "costs.invlpg"),
            point.threads,
            point.design,
            point.seed,
        )
    };
    assert_eq!(brief(&space.points[0]), (Some(100.0), 2, "ipi", 1));
    assert_eq!(brief(&space.points[1]), (Some(100.0), 2, "ipi", 2));
    assert_eq!(brief(&space.points[2]), (Some(100.0), 2, "broadcast", 1));
    assert_eq!(brief(&space.points[4]), (Some(100.0), 72, "ipi", 1));
    assert_eq!(brief(&space.points[8]), (Some(200.0), 2, "ipi", 1));
    assert_eq!(space.spec(&space.points[8]).unwrap().machine.costs.invlpg, 200.0);
}

#[test]
fn shards_partition_the_points_and_mix_designs() {
    let space = space("tlb_flush2 --designs ipi,broadcast --threads 2,16 --set costs.invlpg=100..300:9 --runs 3");
    for of in [1, 2, 3, 7, 200] {
        let shares: Vec<Vec<usize>> = (1..=of).map(|index| space.share(Shard { index, of })).collect();
        let mut all = shares.concat();
        all.sort_unstable();
        assert_eq!(all, (0..space.points.len()).collect::<Vec<_>>(), "{of} shards");
        let sizes: Vec<usize> = shares.iter().map(Vec::len).collect();
        assert!(sizes.iter().max().unwrap() - sizes.iter().min().unwrap() <= 1);
    }
    let half = space.share(Shard { index: 1, of: 2 });
    let ipi = half
        .iter()
        .filter(|&&index| space.points[index].design == "ipi")
        .count();
    assert!(
        ipi > half.len() / 5 && ipi < half.len() * 4 / 5,
        "{ipi} of {}",
        half.len()
    );
}

#[test]
fn one_at_a_time_keeps_other_parameters_at_their_defaults() {
    let space = space("tlb_flush2 --designs ipi --threads 2 --set assumed=range:2 --one-at-a-time");
    let model = Model::find("milan-72").unwrap();
    for point in &space.points {
        let changed = space
            .parameters
            .iter()
            .filter(|path| space.value(point, path) != model.parameter(path).map(|parameter| parameter.value));
        assert!(changed.count() <= 1);
    }
    let assumed = model.parameters().filter(|p| p.provenance.kind() == "assumed").count();
    assert_eq!(space.parameters.len(), assumed);
    // A value in the file that is an end of its range is already present.
    assert!(space.points.len() <= 1 + 2 * assumed && space.points.len() > assumed);
}

#[test]
fn one_value_holds_at_every_point_of_one_at_a_time() {
    let space =
        space("tlb_flush2 --designs ipi --threads 2 --set assumed=range:2 --one-at-a-time --set broadcast.available=0");
    assert!(space.points.len() > 20);
    for point in &space.points {
        assert_eq!(space.value(point, "broadcast.available"), Some(0.0));
    }
}

#[test]
fn latin_hypercube_sample_hits_every_stratum_once() {
    let line = "tlb_flush2 --designs ipi --threads 2 --set costs.invlpg=100..200 --set costs.rmw=10..20 --sample 10";
    let drawn = space(line);
    assert_eq!(drawn.points.len(), 10);
    for (path, low, width) in [("costs.invlpg", 100.0, 10.0), ("costs.rmw", 10.0, 1.0)] {
        let mut strata: Vec<usize> = drawn
            .points
            .iter()
            .map(|point| ((drawn.value(point, path).unwrap() - low) / width) as usize)
            .collect();
        strata.sort_unstable();
        assert_eq!(strata, (0..10).collect::<Vec<_>>());
    }
    assert_eq!(drawn.hash, space(line).hash);
    assert_ne!(drawn.hash, space(&format!("{line} --seed 2")).hash);
}

#[test]
fn integer_axes_are_rounded_without_duplicates() {
    let space = space("tlb_flush2 --designs ipi --threads 1..8:log:4 --set tags.slots=1..3:5");
    let mut slots: Vec<f64> = space
        .points
        .iter()
        .filter_map(|p| space.value(p, "tags.slots"))
        .collect();
    slots.dedup();
    assert_eq!(slots, [1.0, 2.0, 3.0]);
    let mut threads: Vec<usize> = space.points.iter().map(|point| point.threads).collect();
    threads.truncate(4);
    assert_eq!(threads, [1, 2, 4, 8]);
}

#[test]
fn sweep_hash_covers_everything_that_affects_results() {
    let base = "tlb_flush2 --designs ipi --threads 2 --set costs.invlpg=100,200";
    let hash = space(base).hash;
    assert_eq!(
        hash,
        space(&format!("{base} --jobs 3")).hash,
        "host threads do not matter"
    );
    for more in [
        "--virtual-ms 5",
        "--lru-drain",
        "--runs 2",
        "--set costs.rmw=21",
        "--cpus 100",
        "--seed 9",
    ] {
        assert_ne!(hash, space(&format!("{base} {more}")).hash, "{more}");
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("m.toml");
    let text = include_str!("../../../../../../machines/milan-72.toml");
    std::fs::write(&file, text.replace("rmw = { cycles = 20,", "rmw = { cycles = 22,")).unwrap();
    assert_ne!(
        hash,
        space(&format!("{base} --on {}", file.display())).hash,
        "the machine file"
    );
}

#[test]
fn axes_of_designs_are_swept_and_recorded() {
    let space = space(
        "tlb_flush2 --designs ideal,ipi --threads 2 \
         --set design.ceiling=1..256:log:3 --set design.wait=spin,preemptible",
    );
    assert_eq!(space.points.len(), 3 * 2 * 2);
    let cells = |point: &Point| ["design.ceiling", "design.wait"].map(|path| space.cell(point, path));
    let (ideal, ipi) = (&space.points[0], &space.points[3]);
    assert_eq!((ideal.design, cells(ideal)), ("ideal", [Value::Null, Value::Null]));
    assert_eq!(
        (ipi.design, cells(ipi)),
        ("ipi", [Value::Number(1.0), Value::Text("preemptible".to_string())])
    );
    let settings = space.spec(ipi).unwrap().parameters.design().clone();
    let given: Vec<String> = settings
        .iter()
        .map(|(axis, value)| format!("{}={value}", axis.path))
        .collect();
    assert_eq!(given, ["design.ceiling=1", "design.wait=preemptible"]);
    assert_eq!(
        space.without_effect(),
        ["`ideal` stays as it is: design settings do not apply to it"]
    );
}

#[test]
fn one_at_a_time_keeps_other_design_axes_at_their_preset() {
    let space = space(
        "tlb_flush2 --designs ipi --threads 2 \
         --one-at-a-time --set design.ceiling=1,64 --set design.wait=spin,preemptible",
    );
    assert_eq!(space.points.len(), 5);
    assert_eq!(space.cell(&space.points[0], "design.ceiling"), Value::Null);
    assert!(space.spec(&space.points[0]).unwrap().parameters.design().is_empty());
}

#[test]
fn release_of_linux_sets_its_numbers() {
    let values = |line: &str| {
        let space = space(line);
        let value = |path: &str| space.value(&space.points[0], path);
        (value("linux.region_faults"), value("linux.node_lru"))
    };
    let of_6_1 = "tlb_flush2 --on milan-72 --designs ipi --threads 2 --set linux.release=6.1";
    assert_eq!(values(of_6_1), (Some(0.0), Some(1.0)));
    let faults = format!("{of_6_1} --set linux.region_faults=1");
    assert_eq!(values(&faults).0, Some(1.0), "an explicit number");
}

#[test]
fn mistakes_name_the_place_and_the_remedy() {
    for (line, expected) in [
        ("--set costs.invlpg", "--set costs.invlpg: expected PATH=VALUES"),
        (
            "--set costs.invlpg=9..3",
            "--set costs.invlpg: 9..3: expected a range that rises",
        ),
        (
            "--set costs.invlpg=-5,3",
            "--set costs.invlpg=-5: machines/milan-72.toml:",
        ),
        ("--set costs.rmv=3", "unknown parameter; expected one of"),
        ("--set costs.rmw=1 --set costs.rmw=2", "given twice"),
        ("--set assumed=1,2", "assumed=range:2"),
        (
            "--set linux.release=6.1,6.4",
            "--set linux.release=6.1,6.4: expected a release of Linux",
        ),
        ("--set costs.root_load_flush=range", "states no range"),
        ("--threads 1,73", ""),
        ("--threads 73", "has 72 CPUs"),
        ("--threads 0..4", "expected whole numbers from 1"),
        ("--threads 1.5", "expected whole numbers from 1"),
        ("--cpus 9000", "--cpus 9000: expected whole numbers from 1 to 8192"),
        ("--sample 3", "nothing to draw from"),
        ("--points 1 --set costs.rmw=1..2", "expected 2 to 10000 points"),
        ("--set assumed=range:9", "more than 2000000 combinations"),
        ("--designs smoke", "`smoke` is not known"),
        (
            "--set design.wait=sleep",
            "--set design.wait: expected spin, spin-serving, preemptible or preemptible-serving, found `sleep`",
        ),
        (
            "--set design.slots=0,4",
            "--set design.slots=0: expected a whole number from 1 to 16",
        ),
        (
            "--set design.waits=1",
            "is no axis of a design; use one of: design.tags",
        ),
        ("--set design.first_tag=4095", "do not fit below 4096"),
    ] {
        if expected.is_empty() {
            assert_eq!(space(&format!("tlb_flush2 --designs ipi {line}")).left_out, 1);
            continue;
        }
        let message = refused(&format!("tlb_flush2 {line}"));
        assert!(message.contains(expected), "{line}: {message}");
    }
}
