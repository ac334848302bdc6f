//! The runs of a comparison: the arguments, checked against each other, and their runs.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use shootdown_sim::model::Topology;
use shootdown_sim::run::{Parameters, RunSpec, validate};

use crate::args::{CompareArgs, Metric, RunArgs};
use crate::catalog::{self, Entry};
use crate::failure::Failure;
use crate::print::number;
use crate::runs::recording::workload::{self, Recorded};
use crate::runs::target::{Target, quoted, with_vm};

/// Most runs per design and thread count, so that a typing error does not fill the memory with results.
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
    /// Virtual milliseconds measured; `None` = the simulator's default. Checked with the runs.
    pub virtual_ms: Option<f64>,
}

impl Settings {
    /// Checks the arguments.
    ///
    /// # Errors
    /// One line naming the option and its range.
    pub fn new(args: &RunArgs, runs: u64) -> Result<Self, Failure> {
        if !(1..=MOST_RUNS).contains(&runs) {
            return Err(Failure::Input(format!("--runs {runs}: expected 1 to {MOST_RUNS} runs")));
        }
        Ok(Self {
            seed: args.seed,
            runs,
            jobs: host_threads(args.jobs)?,
            virtual_ms: args.virtual_ms,
        })
    }
}

/// Number of host threads of `--jobs`; default: the number of cores.
///
/// # Errors
/// One line naming the option and its range.
pub fn host_threads(jobs: Option<u64>) -> Result<usize, Failure> {
    match jobs {
        None => Ok(std::thread::available_parallelism().map_or(1, usize::from)),
        Some(jobs) if (1..=MOST_JOBS).contains(&jobs) => Ok(jobs as usize),
        Some(jobs) => Err(Failure::Input(format!(
            "--jobs {jobs}: expected 1 to {MOST_JOBS} host threads"
        ))),
    }
}

/// The workload of a comparison.
#[derive(Debug, Clone)]
pub struct Workload {
    /// Its name on the command line: one of the simulator's, or `trace:FILE`.
    pub name: String,
    /// One-line description.
    pub description: String,
    /// The recording, if it is one.
    pub recording: Option<Arc<Recorded>>,
}

impl Workload {
    /// The noun of one operation, as in "loops per second".
    pub fn operation(&self) -> &'static str {
        catalog::operation(&self.name)
    }
}

impl From<Entry> for Workload {
    fn from(entry: Entry) -> Self {
        Workload {
            name: entry.name.to_string(),
            description: entry.description.to_string(),
            recording: None,
        }
    }
}

/// A comparison, ready to run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The workload.
    pub workload: Workload,
    /// The machine; the largest, if it follows the threads.
    pub target: Target,
    /// The machine of each thread count, if it follows the threads; else empty.
    pub followers: Vec<(usize, Target)>,
    /// The designs, each once, in the order given.
    pub designs: Vec<Entry>,
    /// The thread counts, each once, in the order given.
    pub threads: Vec<usize>,
    /// Seed, runs, host threads.
    pub settings: Settings,
    /// Whether each madvise drains the LRU batch.
    pub lru_drain: bool,
    /// Whether the control's history is printed although it was caught.
    pub verbose: bool,
    /// The metric of the comparison; both by default.
    pub metric: Option<Metric>,
}

impl Plan {
    /// Checks the arguments against each other and with the simulator, whose error messages are used.
    ///
    /// # Errors
    /// One line with the error and a correct form; Ctrl-C while a recording is read.
    pub fn new(args: &CompareArgs, stop: &AtomicBool) -> Result<Self, Failure> {
        let settings = Settings::new(&args.run, args.runs)?;
        let target = Target::new(&args.on, args.cpus, &with_vm(args.vm, &args.set))?;
        let recording = match workload::file(&args.workload) {
            Some(file) => Some(Arc::new(Recorded::open(file, args, stop)?)),
            None => None,
        };
        let most = if args.cpus_follow_threads {
            Topology::MAX_CPUS
        } else {
            target.machine.topology.cpus()
        };
        let counts = match &args.threads {
            None => default_threads(recording.as_ref().map_or(1, |recording| recording.cpus()), most),
            Some(counts) => counts
                .iter()
                .map(|&count| usize::try_from(count).unwrap_or(usize::MAX))
                .collect(),
        };
        let mut followers = Vec::new();
        if args.cpus_follow_threads {
            for &count in &counts {
                // No threads is reported as such below.
                let target = Target::new(&args.on, Some(count.max(1) as u64), &args.set)?;
                followers.push((count, target));
            }
        }
        let largest = followers.iter().max_by_key(|(count, _)| *count);
        let target = largest.map_or(target, |(_, target)| target.clone());
        let mut spec = RunSpec {
            workload: args.workload.trim().to_string(),
            machine: Arc::clone(&target.machine),
            design: String::new(),
            threads: 1,
            seed: settings.seed,
            virtual_ms: settings.virtual_ms,
            lru_drain: args.lru_drain,
            parameters: target.parameters.clone(),
        };
        let (mut designs, mut threads) = (Vec::new(), Vec::new());
        for name in &args.designs {
            spec.design = name.trim().to_string();
            for &count in &counts {
                spec.threads = count;
                spec.machine = Arc::clone(&followed(&followers, count).unwrap_or(&target).machine);
                match &recording {
                    Some(recording) => recording.validate(&spec).map_err(Failure::Input)?,
                    None => validate(&spec).map_err(Failure::Input)?,
                }
                if !threads.contains(&count) {
                    threads.push(count);
                }
            }
            let design = catalog::design(&spec.design).expect("the simulator knows the design");
            if !designs.contains(&design) {
                designs.push(design);
            }
        }
        Ok(Self {
            workload: match recording {
                Some(recording) => Workload {
                    name: spec.workload,
                    description: recording.description(),
                    recording: Some(recording),
                },
                None => catalog::workload(&spec.workload)
                    .expect("the simulator knows the workload")
                    .into(),
            },
            target,
            followers,
            designs,
            threads,
            settings,
            lru_drain: args.lru_drain,
            metric: args.metric,
            verbose: args.verbose,
        })
    }

    /// Whether designs are compared by `metric`. The rate of a recording is the same under every design.
    pub fn shows(&self, metric: Metric) -> bool {
        match self.workload.recording {
            Some(_) => metric == Metric::Time,
            None => self.metric.is_none_or(|chosen| chosen == metric),
        }
    }

    /// The machine that runs `threads` threads.
    pub fn target_of(&self, threads: usize) -> &Target {
        followed(&self.followers, threads).unwrap_or(&self.target)
    }

    /// Whether each thread count has a machine of its size.
    pub fn follows(&self) -> bool {
        !self.followers.is_empty()
    }

    /// The machine, or machines, in words.
    pub fn place(&self) -> String {
        if self.follows() {
            format!("{} with as many CPUs as threads", self.target.without_cpus())
        } else {
            self.target.to_string()
        }
    }

    /// Every run: by thread count, then design, then run.
    pub fn specs(&self) -> Vec<RunSpec> {
        let mut specs = Vec::new();
        for &threads in &self.threads {
            for design in &self.designs {
                for run in 0..self.settings.runs {
                    specs.push(RunSpec {
                        workload: self.workload.name.clone(),
                        machine: Arc::clone(&self.target_of(threads).machine),
                        design: design.name.to_string(),
                        threads,
                        seed: self.settings.seed.wrapping_add(run),
                        virtual_ms: self.settings.virtual_ms,
                        lru_drain: self.lru_drain,
                        parameters: self.target.parameters.clone(),
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
            machine: Arc::clone(&self.target.machine),
            design: catalog::CONTROL_DESIGN.to_string(),
            threads: self.target.machine.topology.cpus().min(CONTROL_THREADS),
            seed: self.settings.seed,
            virtual_ms: self.settings.virtual_ms,
            lru_drain: false,
            parameters: Parameters::default(),
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
            quoted(&self.workload.name),
            if self.follows() {
                self.target.options_without_cpus() + " --cpus-follow-threads"
            } else {
                self.target.options()
            },
            self.settings.seed
        );
        if self.settings.runs > 1 {
            command.push_str(&format!(" --runs {}", self.settings.runs));
        }
        if let Some(ms) = self.settings.virtual_ms {
            command.push_str(&format!(" --virtual-ms {}", number::written(ms)));
        }
        if self.lru_drain {
            command.push_str(" --lru-drain");
        }
        if let Some(metric) = self.metric {
            command.push_str(&format!(" --metric {metric}"));
        }
        command
    }
}

/// The machine that follows `threads` threads.
fn followed(followers: &[(usize, Target)], threads: usize) -> Option<&Target> {
    let mut of_threads = followers.iter().filter(|(count, _)| *count == threads);
    of_threads.next().map(|(_, target)| target)
}

/// Default thread counts: `least`, twice, four times that, .. and as many as `cpus` CPUs have room for.
pub fn default_threads(least: usize, cpus: usize) -> Vec<usize> {
    let most = (cpus / least).max(1) * least;
    let mut counts: Vec<usize> = std::iter::successors(Some(least), |count| Some(count * 2))
        .take_while(|&count| count < most)
        .collect();
    counts.push(most);
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_follow_threads_gives_a_cpu_per_thread() {
        use clap::Parser;
        let words = [
            "shootdown",
            "compare",
            "tlb_flush2",
            "--cpus-follow-threads",
            "--set",
            "costs.invlpg=200",
        ];
        let Some(crate::args::Command::Compare(args)) = crate::args::Cli::try_parse_from(words).unwrap().command else {
            panic!("not compare")
        };
        let plan = Plan::new(&args, &AtomicBool::new(false)).unwrap();
        assert_eq!(plan.threads.first().zip(plan.threads.last()), Some((&1, &8192)));
        for spec in plan.specs() {
            assert!(spec.machine.topology.cpus() >= spec.threads, "{}", spec.threads);
            assert_eq!(spec.machine.costs.invlpg, 200.0);
        }
        assert_eq!(
            plan.specs()[0].machine.topology.cpus(),
            72,
            "never smaller than in its file"
        );
        let command = plan.command();
        assert!(
            command.contains("--on milan-72 --set costs.invlpg=200 --cpus-follow-threads --designs")
                && !command.contains("--cpus "),
            "{command}"
        );
        assert_eq!(
            plan.place(),
            "milan-72 --set costs.invlpg=200 with as many CPUs as threads"
        );
    }

    #[test]
    fn default_threads_double_up_to_all_cpus() {
        assert_eq!(default_threads(1, 72), [1, 2, 4, 8, 16, 32, 64, 72]);
        assert_eq!(default_threads(1, 64), [1, 2, 4, 8, 16, 32, 64]);
        assert_eq!(default_threads(1, 1), [1]);
        assert_eq!(default_threads(3, 16), [3, 6, 12, 15]);
        assert_eq!(default_threads(4, 2), [4], "too many: reported as such");
    }
}
