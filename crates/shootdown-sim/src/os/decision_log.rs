//! A log of the engine's decisions and their durations, which `shootdown explain` prints.
//!
//! The simulation never reads it back: keeping a log changes no result.

use shootdown::{Event, Way};

/// Most notes kept of each kind (measurements, threshold moves, tag decisions), so that no kind crowds out another.
const MOST_NOTES: usize = 2000;

/// Most times kept for each method, for the quantiles.
const MOST_TIMES: usize = 1 << 18;

/// An event and its time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Note {
    /// Virtual time since the machine started, ns.
    pub at_ns: u64,
    /// The event.
    pub event: Event,
}

/// The requests that used one method.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Requests {
    /// How many.
    pub count: u64,
    /// Time their requesters spent on them, waiting included, ns.
    pub total_ns: f64,
    /// The time of each, ns, up to a bound.
    pub times_ns: Vec<f32>,
}

/// The log of one run.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DecisionLog {
    /// Requests by method: local, interrupts, broadcast.
    pub requests: [Requests; 3],
    /// Promotions, demotions, measurements, threshold moves, in order; of each kind the first 2000.
    pub notes: Vec<Note>,
    /// Number of decisions, that is notes other than measurements, beyond those kept.
    pub decisions_dropped: u64,
    /// Notes kept of each kind.
    kept: [usize; 3],
    /// The method of the flush in progress on each CPU.
    going: Vec<Way>,
}

impl DecisionLog {
    /// The methods, in the order of [`requests`](Self::requests), with their names.
    pub const WAYS: [(Way, &'static str); 3] = [
        (Way::Local, "local"),
        (Way::Interrupts, "interrupts"),
        (Way::Broadcast, "broadcast"),
    ];

    /// An empty log, for a machine of `cpus` CPUs.
    pub(crate) fn new(cpus: usize) -> Self {
        DecisionLog {
            going: vec![Way::Local; cpus],
            ..DecisionLog::default()
        }
    }

    /// Restarts the counts of requests: earlier requests are forgotten, notes stay.
    pub(crate) fn begin_counting(&mut self) {
        self.requests = Default::default();
    }

    /// A flush that broadcasts and interrupts counts as one that interrupts, because it waits for the interrupts.
    pub(super) fn goes(&mut self, cpu: usize, way: Way) {
        let going = &mut self.going[cpu];
        if *going != Way::Interrupts && way != Way::Local {
            *going = way;
        }
    }

    pub(super) fn note(&mut self, at_ns: u64, event: Event) {
        let kind = match event {
            Event::Measured { .. } => 0,
            Event::ThresholdMoved { .. } => 1,
            _ => 2,
        };
        if self.kept[kind] < MOST_NOTES {
            self.kept[kind] += 1;
            self.notes.push(Note { at_ns, event });
        } else if kind != 0 {
            self.decisions_dropped += 1;
        }
    }

    pub(super) fn took(&mut self, cpu: usize, ns: f64) {
        let way = std::mem::replace(&mut self.going[cpu], Way::Local);
        let index = Self::WAYS.iter().position(|(known, _)| *known == way).unwrap_or(0);
        let requests = &mut self.requests[index];
        requests.count += 1;
        requests.total_ns += ns;
        if requests.times_ns.len() < MOST_TIMES {
            requests.times_ns.push(ns as f32);
        }
    }
}

impl Requests {
    /// Mean time, ns; 0 without requests.
    pub fn mean_ns(&self) -> f64 {
        if self.count == 0 {
            0.0
        } else {
            self.total_ns / self.count as f64
        }
    }

    /// The time that a share `quantile` (0 to 1) of them did not exceed, ns; 0 without requests.
    pub fn quantile_ns(&self, quantile: f64) -> f64 {
        let mut times = self.times_ns.clone();
        times.sort_unstable_by(f32::total_cmp);
        let index = (times.len().saturating_sub(1)) as f64 * quantile.clamp(0.0, 1.0);
        times.get(index.round() as usize).copied().map_or(0.0, f64::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measurements_do_not_displace_decisions_in_the_log() {
        let mut decision_log = DecisionLog::new(1);
        let measured = Event::Measured {
            way: Way::Broadcast,
            targets: 1,
            expected_ns: 1,
            took_ns: 1,
        };
        (0..2 * MOST_NOTES as u64).for_each(|at_ns| decision_log.note(at_ns, measured));
        decision_log.note(9, Event::Promoted);
        assert_eq!(
            (decision_log.notes.len(), decision_log.decisions_dropped),
            (MOST_NOTES + 1, 0)
        );
        assert_eq!(decision_log.notes.last().map(|note| note.event), Some(Event::Promoted));
        let moved = Event::ThresholdMoved {
            from: 1,
            to: 2,
            targets: 1,
            interrupts_ns: 500,
            broadcast_ns: 700,
        };
        (0..2 + MOST_NOTES as u64).for_each(|at_ns| decision_log.note(at_ns, moved));
        assert_eq!(
            (decision_log.notes.len(), decision_log.decisions_dropped),
            (2 * MOST_NOTES + 1, 2)
        );
    }

    #[test]
    fn flush_with_broadcast_and_ipi_counts_as_ipi() {
        let mut decision_log = DecisionLog::new(2);
        decision_log.goes(1, Way::Broadcast);
        decision_log.goes(1, Way::Interrupts);
        decision_log.goes(1, Way::Broadcast);
        decision_log.took(1, 100.0);
        decision_log.took(1, 300.0);
        assert_eq!(decision_log.requests.each_ref().map(|r| r.count), [1, 1, 0]);
        assert_eq!(decision_log.requests[1].mean_ns(), 100.0);
        assert_eq!(decision_log.requests[0].quantile_ns(0.5), 300.0);
        assert_eq!(decision_log.requests[2].quantile_ns(0.5), 0.0);
    }
}
