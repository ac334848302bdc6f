//! The space of a sweep: every point, in an order that depends on nothing but what was asked, and which shard runs it.
//!
//! A point is one run. Machines are built again when a point's turn comes, since a large sweep has more of them than
//! fit in memory.

use std::sync::Arc;

use shootdown_sim::model::{Model, Topology};
use shootdown_sim::run::{self, DESIGN_PREFIX, Parameters, RunSpec, validate};

use super::combine::{FNV, fnv};
use super::machine::{Machine, assignment, base_value, machine};
use super::results::Value;
use super::shard::Shard;
use super::values::{self, Item};
use crate::args::SweepArgs;
use crate::failure::Failure;
use crate::runs::catalog;
use crate::runs::plan::{Settings, default_threads};
use crate::runs::target::with_vm;

/// Most points, so that a slip of the finger does not fill the memory.
pub(super) const MOST_RUNS: usize = 2_000_000;

/// One run of the sweep.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    /// Index of the machine in [`Space::machines`].
    machine: usize,
    /// Index of the values in [`Machine::combinations`].
    combination: usize,
    /// CPUs that were asked for.
    asked_cpus: Option<usize>,
    /// CPUs of the machine that results.
    pub cpus: usize,
    /// The workload.
    pub workload: &'static str,
    /// Threads.
    pub threads: usize,
    /// The design.
    pub design: &'static str,
    /// Seed.
    pub seed: u64,
}

/// What a sweep runs, checked.
#[derive(Debug)]
pub struct Space {
    machines: Vec<Machine>,
    /// Every swept parameter of any machine, in the order given: a column each.
    pub parameters: Vec<String>,
    /// Every point, in order, those of other shards included.
    pub points: Vec<Point>,
    /// Points left out since their machine has fewer CPUs than they have threads.
    pub left_out: usize,
    /// Seed, host threads, length of a run.
    pub settings: Settings,
    lru_drain: bool,
    /// Changes when anything does that results depend on: values, designs, every number of each machine, the program's
    /// version.
    pub hash: u64,
}

/// What `--threads` asks for.
enum Threads {
    Default,
    Listed(Vec<Option<usize>>),
}

impl Space {
    /// Checks the arguments and lists the points.
    ///
    /// # Errors
    /// One line naming the option, what is wrong with it and what would be right.
    pub fn new(args: &SweepArgs) -> Result<Self, Failure> {
        let settings = Settings::new(&args.run, args.runs)?;
        let points = usize::try_from(args.points).unwrap_or(usize::MAX);
        let sets = with_vm(args.vm, &args.set);
        let sets = sets.iter().map(|text| assignment(text, points));
        let sets = sets.collect::<Result<Vec<_>, _>>()?;
        let machines = args.on.iter().map(|on| machine(on.trim(), &sets, args));
        let machines = machines.collect::<Result<Vec<Machine>, _>>()?;
        for (index, machine) in machines.iter().enumerate() {
            let name = &machine.model.name;
            if machines[..index].iter().any(|other| other.model.name == *name) {
                return Err(Failure::Input(format!(
                    "--on: two machines are named `{name}`; change machine.name in one of the files"
                )));
            }
        }
        let mut parameters: Vec<String> = Vec::new();
        for path in machines.iter().flat_map(|machine| &machine.paths) {
            if !parameters.contains(path) {
                parameters.push(path.clone());
            }
        }
        let threads = match &args.threads {
            None => Threads::Default,
            Some(text) => Threads::Listed(counts("--threads", text, points, true)?),
        };
        let cpus = match &args.cpus {
            None => vec![None],
            Some(text) => counts("--cpus", text, points, false)?,
        };
        let mut space = Self {
            machines,
            parameters,
            points: Vec::new(),
            left_out: 0,
            settings,
            lru_drain: args.lru_drain,
            hash: 0,
        };
        let workloads: Vec<&str> = args
            .workload
            .iter()
            .flat_map(|text| text.split(','))
            .map(str::trim)
            .collect();
        let designs: Vec<&str> = args.designs.iter().map(|name| name.trim()).collect();
        space.list(&workloads, &cpus, &threads, &designs)?;
        space.hash = space.digest();
        Ok(space)
    }

    fn list(
        &mut self,
        workloads: &[&str],
        cpus: &[Option<usize>],
        threads: &Threads,
        designs: &[&str],
    ) -> Result<(), Failure> {
        let mut too_many = None;
        for index in 0..self.machines.len() {
            for &asked_cpus in cpus {
                for combination in 0..self.machines[index].combinations.len() {
                    let (model, parameters) = self.machines[index]
                        .build(combination, asked_cpus)
                        .map_err(Failure::Input)?;
                    let model = Arc::new(model);
                    let cpus = model.topology.cpus();
                    let counts = match threads {
                        Threads::Default => default_threads(1, cpus),
                        Threads::Listed(counts) => counts.iter().map(|count| count.unwrap_or(cpus)).collect(),
                    };
                    let mut spec = self.spec_on(&model, parameters);
                    let mut here: Vec<(&str, usize, &str)> = Vec::new();
                    for &workload in workloads {
                        for &threads in &counts {
                            for &design in designs {
                                if here.contains(&(workload, threads, design)) {
                                    continue;
                                }
                                here.push((workload, threads, design));
                                spec.workload = workload.to_string();
                                spec.design = design.to_string();
                                spec.threads = threads.min(cpus);
                                validate(&spec).map_err(Failure::Input)?;
                                if threads > cpus {
                                    self.left_out += self.settings.runs as usize;
                                    spec.threads = threads;
                                    too_many = validate(&spec).err();
                                    continue;
                                }
                                let point = Point {
                                    machine: index,
                                    combination,
                                    asked_cpus,
                                    cpus,
                                    workload: catalog::workload(workload).expect("validated").name,
                                    threads,
                                    design: catalog::design(design).expect("validated").name,
                                    seed: 0,
                                };
                                self.points.extend((0..self.settings.runs).map(|run| Point {
                                    seed: self.settings.seed.wrapping_add(run),
                                    ..point
                                }));
                                self.bounded(self.points.len())?;
                            }
                        }
                    }
                }
            }
        }
        // A count that fits some machines only is left out where it does not fit; one that fits none is a mistake.
        match too_many {
            Some(line) if self.points.is_empty() => Err(Failure::Input(line)),
            _ => Ok(()),
        }
    }

    fn bounded(&self, runs: usize) -> Result<(), Failure> {
        if runs <= MOST_RUNS {
            return Ok(());
        }
        Err(Failure::Input(format!(
            "sweep: more than {MOST_RUNS} runs; take fewer points per range (--points), or draw some of them (--sample N)"
        )))
    }

    fn spec_on(&self, machine: &Arc<Model>, parameters: Parameters) -> RunSpec {
        RunSpec {
            workload: String::new(),
            machine: Arc::clone(machine),
            design: String::new(),
            threads: 1,
            seed: self.settings.seed,
            virtual_ms: self.settings.virtual_ms,
            lru_drain: self.lru_drain,
            parameters,
        }
    }

    /// The run that a point stands for.
    ///
    /// # Errors
    /// None for points of this space: its machines were built once already.
    pub fn spec(&self, point: &Point) -> Result<RunSpec, String> {
        let (model, parameters) = self.machines[point.machine].build(point.combination, point.asked_cpus)?;
        Ok(RunSpec {
            workload: point.workload.to_string(),
            design: point.design.to_string(),
            threads: point.threads,
            seed: point.seed,
            ..self.spec_on(&Arc::new(model), parameters)
        })
    }

    /// Name of a point's machine.
    pub fn machine(&self, point: &Point) -> &str {
        &self.machines[point.machine].model.name
    }

    /// The value of a swept parameter at a point, as a cell of the results; null where it is as the design has it, or
    /// where it does not apply.
    pub fn cell(&self, point: &Point, parameter: &str) -> Value {
        let machine = &self.machines[point.machine];
        let applies = run::designs().any(|entry| entry.name == point.design && entry.takes_settings());
        match machine.paths.iter().position(|path| path == parameter) {
            _ if parameter.starts_with(DESIGN_PREFIX) && !applies => Value::Null,
            Some(index) => machine.cell(index, point.combination),
            None => base_value(&machine.model, parameter).map_or(Value::Null, Value::Number),
        }
    }

    /// Which settings change nothing under which designs, a sentence each.
    pub fn without_effect(&self) -> Vec<String> {
        let mut sentences: Vec<String> = Vec::new();
        let mut last = None;
        for point in &self.points {
            let place = (point.machine, point.combination, point.design);
            if last.replace(place) == Some(place) {
                continue;
            }
            let entry = run::designs().find(|entry| entry.name == point.design);
            let built = self.machines[point.machine].build(point.combination, point.asked_cpus);
            if let (Some(entry), Ok((model, parameters))) = (entry, built) {
                for sentence in entry.without_effect(&model, parameters.design()) {
                    if !sentences.contains(&sentence) {
                        sentences.push(sentence);
                    }
                }
            }
        }
        sentences
    }

    /// The value of a swept parameter at a point, in the unit of the machine's file.
    #[cfg(test)]
    pub fn value(&self, point: &Point, parameter: &str) -> Option<f64> {
        let machine = &self.machines[point.machine];
        match machine.paths.iter().position(|path| path == parameter) {
            Some(index) => Some(machine.combinations[point.combination][index]),
            None => base_value(&machine.model, parameter),
        }
    }

    /// Indices of the points of a shard, rising. Costly points are dealt out first, and points of one cost in an order
    /// that does not follow the sweep's, so that no shard gets all of one design.
    pub fn share(&self, shard: Shard) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.points.len()).collect();
        order.sort_by_key(|&index| {
            let mixed = fnv(fnv(FNV, &index.to_le_bytes()), b"shard");
            (std::cmp::Reverse(self.points[index].threads), mixed, index)
        });
        let mut share: Vec<usize> = order.into_iter().skip(shard.index - 1).step_by(shard.of).collect();
        share.sort_unstable();
        share
    }

    fn digest(&self) -> u64 {
        let mut hash = fnv(FNV, env!("CARGO_PKG_VERSION").as_bytes());
        let mut add = |text: String| hash = fnv(hash, text.as_bytes());
        for machine in &self.machines {
            let model = &machine.model;
            add(format!("{} {:?} {:?}\n", model.name, model.arch, model.topology));
            for parameter in model.parameters() {
                add(format!("{}={}\n", parameter.path, parameter.value));
            }
            for values in &machine.combinations {
                add(format!("{:?}{values:?}\n", machine.paths));
            }
            for words in machine.words.iter().filter(|words| !words.is_empty()) {
                add(format!("{words:?}\n"));
            }
        }
        for entry in run::designs() {
            if self.points.iter().any(|point| point.design == entry.name) {
                add(format!("{} {:?} {}\n", entry.name, entry.design, entry.ideal));
            }
        }
        add(format!("{:?} {}\n", self.settings.virtual_ms, self.lru_drain));
        for point in &self.points {
            add(format!("{point:?}\n"));
        }
        hash
    }
}

/// Reads counts of threads or CPUs; `None` stands for the word `all`.
fn counts(option: &str, text: &str, points: usize, all: bool) -> Result<Vec<Option<usize>>, Failure> {
    let mut counts = Vec::new();
    for part in text.split(',').map(str::trim) {
        if all && part == "all" {
            counts.push(None);
            continue;
        }
        let fail = |error: String| Failure::Input(format!("{option} {}: {error}", part.escape_debug()));
        let items = values::parse(part, points).map_err(fail)?;
        if let [Item::Stated { .. }] = items[..] {
            return Err(fail(
                "expected whole numbers, for example 1,2,4 or 1..64:log:7".to_string(),
            ));
        }
        let is_range = matches!(items[..], [Item::Span(_)]);
        for value in values::listed(&items) {
            let count = if is_range { value.round() } else { value };
            let most = Topology::MAX_CPUS;
            if count.fract() != 0.0 || !(1.0..=most as f64).contains(&count) {
                return Err(fail(format!("expected whole numbers from 1 to {most}, found {count}")));
            }
            counts.push(Some(count as usize));
        }
    }
    let mut once = Vec::new();
    for count in counts {
        if !once.contains(&count) {
            once.push(count);
        }
    }
    Ok(once)
}

#[cfg(test)]
mod tests {
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
    fn the_product_runs_from_machines_to_seeds() {
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
    fn one_at_a_time_keeps_the_others_as_in_the_file() {
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
        // A value in the file that is an end of its range is there already.
        assert!(space.points.len() <= 1 + 2 * assumed && space.points.len() > assumed);
    }

    #[test]
    fn one_value_holds_at_every_point_of_one_at_a_time() {
        let space = space(
            "tlb_flush2 --designs ipi --threads 2 --set assumed=range:2 --one-at-a-time --set broadcast.available=0",
        );
        assert!(space.points.len() > 20);
        for point in &space.points {
            assert_eq!(space.value(point, "broadcast.available"), Some(0.0));
        }
    }

    #[test]
    fn a_sample_hits_every_stratum_of_every_axis_once() {
        let line =
            "tlb_flush2 --designs ipi --threads 2 --set costs.invlpg=100..200 --set costs.rmw=10..20 --sample 10";
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
    fn whole_numbers_are_rounded_and_kept_once() {
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
    fn the_hash_follows_everything_that_results_depend_on() {
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
        let text = include_str!("../../../../../machines/milan-72.toml");
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
            "tlb_flush2 --designs ideal,ipi --threads 2 --set design.ceiling=1..256:log:3 --set design.wait=spin,preemptible",
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
    fn an_axis_that_another_is_varied_beside_is_as_the_design_has_it() {
        let space = space(
            "tlb_flush2 --designs ipi --threads 2 --one-at-a-time --set design.ceiling=1,64 --set design.wait=spin,preemptible",
        );
        assert_eq!(space.points.len(), 5);
        assert_eq!(space.cell(&space.points[0], "design.ceiling"), Value::Null);
        assert!(space.spec(&space.points[0]).unwrap().parameters.design().is_empty());
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
}
