//! The space of a sweep: every point, in an order that depends only on the arguments, and which shard runs it.
//!
//! A point is one run. Machines are built again for each point, since a large sweep has more of them than fit in
//! memory.

use std::sync::Arc;

use shootdown_sim::model::{Model, Topology};
use shootdown_sim::run::{self, DESIGN_PREFIX, Parameters, RunSpec, validate};

use super::combine::{FNV, MOST_RUNS, fnv};
use super::machine::{Machine, assignment, base_value, machine};
use super::results::Value;
use super::values::{self, Item};
use crate::args::{Shard, SweepArgs};
use crate::catalog;
use crate::failure::Failure;
use crate::runs::plan::{Settings, default_threads};
use crate::runs::target::{RELEASE, with_vm};

/// One run of the sweep.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    /// Index of the machine in [`Space::machines`].
    machine: usize,
    /// Index of the values in [`Machine::combinations`].
    combination: usize,
    /// Requested CPUs.
    asked_cpus: Option<usize>,
    /// CPUs of the resulting machine.
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

/// The checked space of a sweep.
#[derive(Debug)]
pub struct Space {
    machines: Vec<Machine>,
    /// Every swept parameter of any machine, in the order given: a column each.
    pub parameters: Vec<String>,
    /// Every point, in order, those of other shards included.
    pub points: Vec<Point>,
    /// Points left out because their machine has fewer CPUs than they have threads.
    pub left_out: usize,
    /// Seed, host threads, length of a run.
    pub settings: Settings,
    lru_drain: bool,
    /// Hash over everything that results depend on: values, designs, every number of each machine, the program's
    /// version.
    pub hash: u64,
}

/// The values of `--set`, with a release of Linux replaced by the numbers that it implies. Explicit ones take
/// precedence.
fn with_release(sets: Vec<String>) -> Result<Vec<String>, Failure> {
    let path = |text: &str| text.split_once('=').map_or("", |(path, _)| path).trim().to_string();
    let (releases, mut all): (Vec<String>, Vec<String>) = sets.into_iter().partition(|text| path(text) == RELEASE);
    let given: Vec<String> = all.iter().map(|text| path(text)).collect();
    for text in releases {
        let (_, release) = text.split_once('=').unwrap_or_default();
        let numbers = shootdown_sim::model::release(release.trim())
            .map_err(|error| Failure::Input(format!("--set {}: {error}", text.escape_debug())))?;
        let implied = numbers
            .into_iter()
            .filter(|(path, _)| !given.iter().any(|given| given == path));
        all.extend(implied.map(|(path, value)| format!("{path}={value}")));
    }
    Ok(all)
}

/// The value of `--threads`.
enum Threads {
    Default,
    Listed(Vec<Option<usize>>),
}

impl Space {
    /// Checks the arguments and lists the points.
    ///
    /// # Errors
    /// One line with the option, the error and a correct form.
    pub fn new(args: &SweepArgs) -> Result<Self, Failure> {
        let settings = Settings::new(&args.run, args.runs)?;
        let points = usize::try_from(args.points).unwrap_or(usize::MAX);
        let sets = with_release(with_vm(args.vm, &args.set))?;
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
        // A count that fits only some machines is left out where it does not fit; one that fits none is an error.
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
            "sweep: more than {MOST_RUNS} runs; \
             take fewer points per range (--points), or draw some of them (--sample N)"
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

    /// The value of a swept parameter at a point, as a cell of the results; null if it is the design's own, or does not
    /// apply.
    pub fn cell(&self, point: &Point, parameter: &str) -> Value {
        let machine = &self.machines[point.machine];
        let applies = run::designs().any(|entry| entry.name == point.design && entry.takes_settings());
        match machine.paths.iter().position(|path| path == parameter) {
            _ if parameter.starts_with(DESIGN_PREFIX) && !applies => Value::Null,
            Some(index) => machine.cell(index, point.combination),
            None => base_value(&machine.model, parameter).map_or(Value::Null, Value::Number),
        }
    }

    /// Settings without effect under a design, a sentence each.
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

    /// Indices of the points of a shard, rising. Costly points are dealt out first, and points of equal cost in a
    /// shuffled order, so that no shard gets all of one design.
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
mod tests;
