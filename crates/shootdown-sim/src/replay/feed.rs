//! Steps on their way to the CPUs: read when the first CPU needs them, kept until the last has done them.
//!
//! Bounds memory: no CPU reads further ahead than [`AHEAD_NS`]. A CPU that falls behind the recording by more than
//! [`SLACK_NS`], because invalidation takes longer than in the recording, delays the whole program by the excess: all
//! later steps move by that much. So queues stay short, and CPUs stay together.

use super::scaling::{Placer, Scale};
use shootdown_trace::program::{Action, Step};
use std::collections::VecDeque;

/// How far ahead of the reading CPU steps are read, ns.
const AHEAD_NS: u64 = 1_000_000;

/// How late a CPU may be before the program is delayed, ns.
pub const SLACK_NS: u64 = 1_000_000;

/// The next action of a CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// This step, at that time, ns.
    Do { at_ns: u64, copy: u32, action: Action },
    /// Nothing before that time.
    Nothing { until_ns: u64 },
    /// The end.
    End,
}

pub(super) struct Feed {
    steps: Box<dyn Iterator<Item = Step>>,
    placer: Placer,
    queues: Vec<VecDeque<(u64, u32, Action)>>,
    /// Moment of the first step in the recording.
    first_ns: Option<u64>,
    /// Moment, from the first, up to which steps have been read.
    read_ns: u64,
    ended: bool,
    /// Delay of the program so far, ns.
    put_off_ns: u64,
    /// Most steps waiting at the same time.
    most_waiting: usize,
    waiting: usize,
}

impl Feed {
    pub fn new(steps: Box<dyn Iterator<Item = Step>>, scale: Scale, recorded: usize, cpus: usize) -> Self {
        Feed {
            steps,
            placer: Placer::new(scale, recorded, cpus),
            queues: vec![VecDeque::new(); cpus],
            first_ns: None,
            read_ns: 0,
            ended: false,
            put_off_ns: 0,
            most_waiting: 0,
            waiting: 0,
        }
    }

    /// The next action of `cpu`, whose time is `now_ns`.
    pub fn next(&mut self, cpu: usize, now_ns: u64) -> Next {
        let delay = self.placer.delay(cpu);
        loop {
            if let Some(&(at_ns, copy, action)) = self.queues[cpu].front() {
                let at_ns = at_ns + self.put_off_ns;
                self.queues[cpu].pop_front();
                self.waiting -= 1;
                self.put_off_ns += now_ns.saturating_sub(at_ns + SLACK_NS);
                return Next::Do { at_ns, copy, action };
            }
            let until_ns = self.read_ns + delay + self.put_off_ns;
            if self.ended {
                // Until the end of the recording it continues its activity: other CPUs may still send requests to it.
                return if now_ns + 1 < until_ns {
                    Next::Nothing { until_ns }
                } else {
                    Next::End
                };
            }
            if until_ns > now_ns + AHEAD_NS {
                return Next::Nothing { until_ns };
            }
            self.read();
        }
    }

    fn read(&mut self) {
        let Some(step) = self.steps.next() else {
            self.ended = true;
            return;
        };
        let first = *self.first_ns.get_or_insert(step.time_ns);
        self.read_ns = self.read_ns.max(step.time_ns.saturating_sub(first));
        let (queues, waiting, read_ns) = (&mut self.queues, &mut self.waiting, self.read_ns);
        self.placer.place(step, |placed| {
            queues[placed.cpu].push_back((read_ns + placed.after_ns, placed.copy, placed.action));
            *waiting += 1;
        });
        self.most_waiting = self.most_waiting.max(self.waiting);
    }

    /// How much longer the program takes than its recording, ns.
    pub fn put_off_ns(&self) -> u64 {
        self.put_off_ns
    }

    /// Most steps that waited at the same time.
    pub fn most_waiting(&self) -> usize {
        self.most_waiting
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn feed(steps: Vec<(u64, u32)>) -> Feed {
        let step = |(time_ns, cpu)| Step {
            time_ns: 5_000 + time_ns,
            cpu,
            action: Action::Lazy { idle: true },
        };
        Feed::new(Box::new(steps.into_iter().map(step)), Scale::Copies(1), 2, 2)
    }

    #[test]
    fn feed_reads_ahead_a_bounded_time() {
        let mut feed = feed((0..1000).map(|k| (k * 100_000, 0)).collect());
        let Next::Nothing { until_ns } = feed.next(1, 0) else {
            panic!("CPU 1 has nothing to do")
        };
        assert!((AHEAD_NS..AHEAD_NS + 200_000).contains(&until_ns), "{until_ns}");
        assert!(feed.most_waiting() < 20, "{}", feed.most_waiting());
    }

    /// Another CPU may still request a flush from it.
    #[test]
    fn cpu_without_steps_stays_until_the_recording_ends() {
        let mut feed = feed(vec![(0, 0), (900_000, 1)]);
        assert!(matches!(feed.next(0, 0), Next::Do { at_ns: 0, .. }));
        assert_eq!(feed.next(0, 10), Next::Nothing { until_ns: 900_000 });
        assert_eq!(feed.next(0, 900_000), Next::End);
    }

    #[test]
    fn late_cpu_delays_the_replay_beyond_the_slack() {
        let mut feed = feed(vec![(0, 0), (100, 0), (10_000_000, 1)]);
        feed.next(0, 0);
        assert!(matches!(feed.next(0, SLACK_NS + 100), Next::Do { at_ns: 100, .. }));
        assert_eq!(feed.put_off_ns(), 0);
        let Next::Do { at_ns, .. } = feed.next(1, 30_000_000) else {
            panic!("CPU 1 has a step")
        };
        assert_eq!(at_ns, 10_000_000);
        assert_eq!(feed.put_off_ns(), 20_000_000 - SLACK_NS);
        assert_eq!(feed.next(1, 30_000_000), Next::End);
    }
}
