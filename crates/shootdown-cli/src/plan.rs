//! What a comparison will run: the arguments, checked against each other, and the runs they stand for.

use std::sync::Arc;

use shootdown_sim::model::Topology;
use shootdown_sim::run::{Parameters, RunSpec, validate};

use crate::args::{CompareArgs, RunArgs};
use crate::catalog::{self, Entry};
use crate::failure::Failure;
use crate::target::Target;

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
        let jobs = match args.jobs {
            None => std::thread::available_parallelism().map_or(1, usize::from),
            Some(jobs) if (1..=MOST_JOBS).contains(&jobs) => jobs as usize,
            Some(jobs) => {
                return Err(Failure::Input(format!(
                    "--jobs {jobs}: expected 1 to {MOST_JOBS} host threads"
                )));
            }
        };
        Ok(Self {
            seed: args.seed,
            runs,
            jobs,
            virtual_ms: args.virtual_ms,
        })
    }
}

/// A comparison, ready to run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The workload.
    pub workload: Entry,
    /// The machine; the largest, where it follows the threads.
    pub target: Target,
    /// The machine of each thread count, where it follows the threads; else empty.
    pub followers: Vec<(usize, Target)>,
    /// The designs, each once, in the order given.
    pub designs: Vec<Entry>,
    /// The thread counts, each once, in the order given.
    pub threads: Vec<usize>,
    /// Seed, runs, host threads.
    pub settings: Settings,
    /// Whether each madvise drains the LRU batch.
    pub lru_drain: bool,
}

impl Plan {
    /// Checks the arguments against each other and with the simulator, whose words a mistake is told in.
    ///
    /// # Errors
    /// One line naming what is wrong and what would be right.
    pub fn new(args: &CompareArgs) -> Result<Self, Failure> {
        let settings = Settings::new(&args.run, args.runs)?;
        let target = Target::new(&args.on, args.cpus, &args.set)?;
        let counts = match &args.threads {
            None if args.cpus_follow_threads => default_threads(Topology::MAX_CPUS),
            None => default_threads(target.machine.topology.cpus()),
            Some(counts) => counts
                .iter()
                .map(|&count| usize::try_from(count).unwrap_or(usize::MAX))
                .collect(),
        };
        let mut followers = Vec::new();
        if args.cpus_follow_threads {
            for &count in &counts {
                // No threads is told as such below.
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
                validate(&spec).map_err(Failure::Input)?;
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
            workload: catalog::workload(&spec.workload).expect("the simulator knows the workload"),
            target,
            followers,
            designs,
            threads,
            settings,
            lru_drain: args.lru_drain,
        })
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
                        workload: self.workload.name.to_string(),
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
            self.workload.name,
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
            command.push_str(&format!(" --virtual-ms {ms}"));
        }
        if self.lru_drain {
            command.push_str(" --lru-drain");
        }
        command
    }
}

/// The machine that follows `threads` threads.
fn followed(followers: &[(usize, Target)], threads: usize) -> Option<&Target> {
    let mut of_threads = followers.iter().filter(|(count, _)| *count == threads);
    of_threads.next().map(|(_, target)| target)
}

/// Thread counts when none are given: 1, 2, 4, .. and all CPUs.
pub fn default_threads(cpus: usize) -> Vec<usize> {
    let mut counts: Vec<usize> = std::iter::successors(Some(1), |count| Some(count * 2))
        .take_while(|&count| count < cpus)
        .collect();
    counts.push(cpus.max(1));
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_that_follow_have_a_cpu_for_each_thread_and_the_command_says_so() {
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
        let plan = Plan::new(&args).unwrap();
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
        assert_eq!(default_threads(72), [1, 2, 4, 8, 16, 32, 64, 72]);
        assert_eq!(default_threads(64), [1, 2, 4, 8, 16, 32, 64]);
        assert_eq!(default_threads(1), [1]);
    }
}
