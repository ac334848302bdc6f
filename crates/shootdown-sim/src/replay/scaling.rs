//! The mapping of recorded CPUs to simulated CPUs: the rules of `--scale`.

use shootdown_trace::program::{Action, Step};
use std::fmt;
use std::str::FromStr;

/// How a recorded program is scaled to a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// That many copies, each with its own spaces and as many CPUs as the recording had. Copy `k` of `n` begins `k / n`
    /// of [`STAGGER_NS`] later, so that they do not run in step.
    Copies(u32),
    /// Each thread that many times, in the same space: the program with a multiple of its threads. CPUs and delays as
    /// for copies.
    Threads(u32),
    /// Each thread has a CPU to itself, and that CPU is idle while the thread is not running. A new thread takes the
    /// CPU that has been idle for longest. Kernel threads are left out.
    Spread,
}

/// Period over which the starts of copies are spread, ns.
pub const STAGGER_NS: u64 = 10_000_000;

impl Scale {
    /// CPUs that a recording of `recorded` CPUs needs, at least.
    pub fn cpus(self, recorded: usize) -> usize {
        match self {
            Scale::Copies(n) | Scale::Threads(n) => recorded * n as usize,
            Scale::Spread => recorded,
        }
    }

    /// Number of times that each step is done.
    pub fn times(self) -> u64 {
        match self {
            Scale::Copies(n) | Scale::Threads(n) => u64::from(n),
            Scale::Spread => 1,
        }
    }
}

impl fmt::Display for Scale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scale::Copies(n) => write!(f, "{n}"),
            Scale::Threads(n) => write!(f, "threads:{n}"),
            Scale::Spread => write!(f, "spread"),
        }
    }
}

impl FromStr for Scale {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if text == "spread" {
            return Ok(Scale::Spread);
        }
        let (threads, number) = match text.strip_prefix("threads:") {
            Some(number) => (true, number),
            None => (false, text),
        };
        match number.parse() {
            Ok(n) if (1..=4096).contains(&n) => Ok(if threads { Scale::Threads(n) } else { Scale::Copies(n) }),
            _ => Err("expected a number of copies, `threads:N` or `spread`, for example 4".into()),
        }
    }
}

/// The steps of one simulated CPU, `after_ns` after the recorded moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Placed {
    pub cpu: usize,
    pub copy: u32,
    pub after_ns: u64,
    pub action: Action,
}

/// Assigns steps to CPUs.
#[derive(Debug)]
pub(super) struct Placer {
    scale: Scale,
    recorded: usize,
    cpus: Vec<Own>,
    /// Spread: the CPU of the thread that a recorded CPU runs.
    homes: Vec<Option<usize>>,
    steps: u64,
}

/// A simulated CPU of a spread program.
#[derive(Debug, Clone, Copy, Default)]
struct Own {
    thread: Option<u32>,
    running: bool,
    since: u64,
}

impl Placer {
    pub fn new(scale: Scale, recorded: usize, cpus: usize) -> Self {
        Placer {
            scale,
            recorded,
            cpus: vec![Own::default(); if scale == Scale::Spread { cpus } else { 0 }],
            homes: vec![None; recorded],
            steps: 0,
        }
    }

    /// Delay of `cpu` behind the recording, ns.
    pub fn delay(&self, cpu: usize) -> u64 {
        match self.scale {
            Scale::Copies(n) | Scale::Threads(n) => (cpu / self.recorded) as u64 * STAGGER_NS / u64::from(n),
            Scale::Spread => 0,
        }
    }

    /// Distributes the work of `step` to simulated CPUs.
    pub fn place(&mut self, step: Step, mut sink: impl FnMut(Placed)) {
        let recorded = step.cpu as usize;
        if recorded >= self.recorded {
            return; // a CPU that the recording's own header excludes
        }
        if self.scale == Scale::Spread {
            return self.spread(recorded, step.action, &mut sink);
        }
        for copy in 0..self.scale.times() as u32 {
            let cpu = copy as usize * self.recorded + recorded;
            sink(Placed {
                cpu,
                copy,
                after_ns: self.delay(cpu),
                action: step.action,
            });
        }
    }

    fn spread(&mut self, recorded: usize, action: Action, sink: &mut impl FnMut(Placed)) {
        self.steps += 1;
        let mut at = |cpu, action| {
            sink(Placed {
                cpu,
                copy: 0,
                after_ns: 0,
                action,
            });
        };
        let before = self.homes[recorded];
        match action {
            Action::Run { task, .. } => {
                let home = self.home(task);
                if let Some(before) = before.filter(|&before| before != home) {
                    self.rests(before, &mut at);
                }
                self.homes[recorded] = Some(home);
                // A thread that is late to leave another CPU of the recording is already on its own CPU.
                for other in self.homes.iter_mut().enumerate() {
                    if other.0 != recorded && *other.1 == Some(home) {
                        *other.1 = None;
                    }
                }
                self.cpus[home].running = true;
                at(home, action);
            }
            Action::Lazy { .. } => {
                if let Some(before) = before {
                    self.rests(before, &mut at);
                }
            }
            Action::Flush { .. } | Action::KernelFlush { .. } | Action::End { .. } => {
                let Some(home) = before else { return };
                at(home, action);
            }
        }
    }

    fn rests(&mut self, cpu: usize, at: &mut impl FnMut(usize, Action)) {
        let own = &mut self.cpus[cpu];
        if std::mem::take(&mut own.running) {
            own.since = self.steps;
            at(cpu, Action::Lazy { idle: true });
        }
    }

    /// The CPU of a thread.
    fn home(&mut self, task: u32) -> usize {
        if let Some(known) = self.cpus.iter().position(|own| own.thread == Some(task)) {
            return known;
        }
        let free = self.cpus.iter().enumerate().filter(|(_, own)| !own.running);
        let home = free.min_by_key(|(_, own)| own.since).map_or(0, |(cpu, _)| cpu);
        self.cpus[home].thread = Some(task);
        home
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(task: u32, cpu: u32) -> Step {
        Step {
            time_ns: 0,
            cpu,
            action: Action::Run {
                space: 1,
                task,
                recorded: true,
            },
        }
    }

    fn placed(placer: &mut Placer, step: Step) -> Vec<(usize, u32, Action)> {
        let mut all = Vec::new();
        placer.place(step, |placed| all.push((placed.cpu, placed.copy, placed.action)));
        all
    }

    #[test]
    fn copies_have_their_own_cpus_and_staggered_starts() {
        let mut placer = Placer::new(Scale::Copies(3), 2, 8);
        let step = run(7, 1);
        assert_eq!(
            placed(&mut placer, step),
            [(1, 0, step.action), (3, 1, step.action), (5, 2, step.action)]
        );
        assert_eq!(
            [0, 1, 2, 4].map(|cpu| placer.delay(cpu)),
            [0, 0, STAGGER_NS / 3, 2 * STAGGER_NS / 3]
        );
    }

    #[test]
    fn spread_thread_keeps_one_cpu() {
        let mut placer = Placer::new(Scale::Spread, 2, 4);
        let rest = Action::Lazy { idle: true };
        assert_eq!(placed(&mut placer, run(7, 0)), [(0, 0, run(7, 0).action)]);
        assert_eq!(placed(&mut placer, run(8, 0)), [(0, 0, rest), (1, 0, run(8, 0).action)]);
        assert_eq!(placed(&mut placer, run(7, 1)), [(0, 0, run(7, 1).action)]);
        let idle = Step {
            action: rest,
            ..run(0, 1)
        };
        assert_eq!(placed(&mut placer, idle), [(0, 0, rest)]);
        // The CPU that has been idle for longest, not the one that has just become so.
        assert_eq!(placed(&mut placer, run(9, 1))[0].0, 2);
    }

    #[test]
    fn scale_rules_round_trip() {
        for text in ["1", "4", "threads:8", "spread"] {
            assert_eq!(text.parse::<Scale>().unwrap().to_string(), text);
        }
        for wrong in ["0", "threads:", "wide", "-1"] {
            assert!(wrong.parse::<Scale>().unwrap_err().contains("for example 4"));
        }
    }
}
