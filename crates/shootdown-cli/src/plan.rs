//! What a comparison will run: the arguments, checked against each other, and the runs they stand for.

use std::sync::Arc;

use shootdown_sim::model::Model;
use shootdown_sim::run::RunSpec;

use crate::args::{CompareArgs, RunArgs};
use crate::catalog::{self, Entry};
use crate::failure::Failure;

/// Most runs per design and thread count, so that a slip of the finger does not fill the memory with results.
pub const MOST_RUNS: u64 = 1000;
/// Most host threads.
pub const MOST_JOBS: u64 = 1024;
/// Threads of the control run: enough for a remote CPU to hold a stale translation.
const CONTROL_THREADS: usize = 4;

/// How to run, checked.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Seed of the first run.
    pub seed: u64,
    /// Runs per design and thread count.
    pub runs: u64,
    /// Host threads.
    pub jobs: usize,
    /// Virtual milliseconds measured; `None` = the workload's default.
    pub virtual_ms: Option<f64>,
}

impl Settings {
    /// Checks the arguments.
    ///
    /// # Errors
    /// One line naming the option and its range.
    pub fn new(args: &RunArgs) -> Result<Self, Failure> {
        if !(1..=MOST_RUNS).contains(&args.runs) {
            return Err(Failure::Input(format!(
                "--runs {}: expected 1 to {MOST_RUNS} runs",
                args.runs
            )));
        }
        let jobs = match args.jobs {
            None => std::thread::available_parallelism().map_or(1, usize::from),
            Some(jobs) if (1..=MOST_JOBS).contains(&jobs) => jobs as usize,
            Some(jobs) => {
                return Err(Failure::Input(format!(
                    "--jobs {jobs}: expected 1 to {MOST_JOBS} host threads"
                )));
            }
        };
        if let Some(ms) = args.virtual_ms
            && !(ms.is_finite() && ms > 0.0)
        {
            return Err(Failure::Input(format!(
                "--virtual-ms {ms}: expected milliseconds > 0, for example 5"
            )));
        }
        Ok(Self {
            seed: args.seed,
            runs: args.runs,
            jobs,
            virtual_ms: args.virtual_ms,
        })
    }
}

/// A comparison, ready to run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The workload.
    pub workload: &'static Entry,
    /// The machine as it was named on the command line.
    pub on: String,
    /// The machine.
    pub machine: Arc<Model>,
    /// The designs, each once, in the order given.
    pub designs: Vec<&'static Entry>,
    /// The thread counts, each once, in the order given.
    pub threads: Vec<usize>,
    /// Seed, runs, host threads.
    pub settings: Settings,
    /// Whether each madvise drains the LRU batch.
    pub lru_drain: bool,
}

impl Plan {
    /// Checks the arguments against each other, the catalog and the machine.
    ///
    /// # Errors
    /// One line naming the option, what is wrong and what would be right.
    pub fn new(args: &CompareArgs) -> Result<Self, Failure> {
        let workload = catalog::find_workload(&args.workload)?;
        let settings = Settings::new(&args.run)?;
        let mut designs = Vec::new();
        for name in &args.designs {
            let design = catalog::find_design(name)?;
            if !designs.contains(&design) {
                designs.push(design);
            }
        }
        let machine = catalog::find_machine(&args.on)?;
        let threads = match &args.threads {
            None => default_threads(machine.topology.cpus()),
            Some(counts) => check_threads(counts, &machine)?,
        };
        let plan = Self {
            workload,
            on: args.on.clone(),
            machine: Arc::new(machine),
            designs,
            threads,
            settings,
            lru_drain: args.lru_drain,
        };
        for spec in plan.specs().iter().filter(|spec| spec.seed == plan.settings.seed) {
            shootdown_sim::run::validate(spec).map_err(Failure::Input)?;
        }
        Ok(plan)
    }

    /// Every run: by thread count, then design, then run.
    pub fn specs(&self) -> Vec<RunSpec> {
        let mut specs = Vec::new();
        for &threads in &self.threads {
            for design in &self.designs {
                for run in 0..self.settings.runs {
                    specs.push(RunSpec {
                        workload: self.workload.name.to_string(),
                        machine: Arc::clone(&self.machine),
                        design: design.name.to_string(),
                        threads,
                        seed: self.settings.seed.wrapping_add(run),
                        virtual_ms: self.settings.virtual_ms,
                        lru_drain: self.lru_drain,
                    });
                }
            }
        }
        specs
    }

    /// The control: a run without invalidation, which the oracle must catch.
    pub fn control(&self) -> RunSpec {
        RunSpec {
            workload: catalog::CONTROL_WORKLOAD.to_string(),
            machine: Arc::clone(&self.machine),
            design: catalog::CONTROL_DESIGN.to_string(),
            threads: self.machine.topology.cpus().min(CONTROL_THREADS),
            seed: self.settings.seed,
            virtual_ms: self.settings.virtual_ms,
            lru_drain: false,
        }
    }

    /// The command that repeats this comparison, with every default written out.
    pub fn command(&self) -> String {
        let designs = self
            .designs
            .iter()
            .map(|design| design.name)
            .collect::<Vec<_>>()
            .join(",");
        let threads = self.threads.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
        let mut command = format!(
            "shootdown compare {} --on {} --designs {designs} --threads {threads} --seed {}",
            self.workload.name,
            quoted(&self.on),
            self.settings.seed
        );
        if self.settings.runs > 1 {
            command.push_str(&format!(" --runs {}", self.settings.runs));
        }
        if let Some(ms) = self.settings.virtual_ms {
            command.push_str(&format!(" --virtual-ms {ms}"));
        }
        if self.lru_drain {
            command.push_str(" --lru-drain");
        }
        command
    }
}

/// 1, 2, 4, .. and all CPUs.
fn default_threads(cpus: usize) -> Vec<usize> {
    let mut counts: Vec<usize> = std::iter::successors(Some(1), |count| Some(count * 2))
        .take_while(|&count| count < cpus)
        .collect();
    counts.push(cpus.max(1));
    counts
}

fn check_threads(counts: &[u64], machine: &Model) -> Result<Vec<usize>, Failure> {
    let cpus = machine.topology.cpus();
    let mut threads = Vec::new();
    for &count in counts {
        if count == 0 || count > cpus as u64 {
            return Err(Failure::Input(format!(
                "--threads {count}: {} has {cpus} CPUs and runs one thread on each; expected 1 to {cpus}",
                machine.name
            )));
        }
        if !threads.contains(&(count as usize)) {
            threads.push(count as usize);
        }
    }
    Ok(threads)
}

/// A word as a shell reads it back.
fn quoted(word: &str) -> String {
    if word.chars().all(|c| c.is_ascii_alphanumeric() || "-_./+".contains(c)) && !word.is_empty() {
        word.to_string()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_threads_double_up_to_all_cpus() {
        assert_eq!(default_threads(72), [1, 2, 4, 8, 16, 32, 64, 72]);
        assert_eq!(default_threads(64), [1, 2, 4, 8, 16, 32, 64]);
        assert_eq!(default_threads(1), [1]);
    }

    #[test]
    fn words_survive_the_shell() {
        assert_eq!(quoted("milan-72"), "milan-72");
        assert_eq!(quoted("my box's.toml"), r"'my box'\''s.toml'");
    }
}
