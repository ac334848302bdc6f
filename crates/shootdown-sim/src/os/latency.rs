//! Latency distributions of a run: what is measured, in virtual time, and the summaries.
//!
//! Owns the histograms; the callers take the times. Recording takes no virtual time.

use hdrhistogram::Histogram;
use std::cell::RefCell;

/// Summary of a distribution.
#[derive(Debug, Clone, PartialEq)]
pub struct Distribution {
    /// Samples.
    pub count: u64,
    /// The value, in cycles, that half of the samples do not exceed.
    pub p50: f64,
    /// The value, in cycles, that 99 of 100 samples do not exceed.
    pub p99: f64,
    /// The largest sample, cycles.
    pub max: f64,
    /// Upper edges in cycles, each the square root of two times the one before, with the number of samples between the
    /// previous edge and this one. From the first to the last bucket with samples.
    pub buckets: Vec<(f64, u64)>,
}

/// Collects the samples of one distribution, in cycles, with three significant digits.
#[derive(Debug)]
pub struct Recorder(RefCell<Histogram<u64>>);

impl Default for Recorder {
    fn default() -> Self {
        let mut histogram = Histogram::new(3).expect("three significant digits are allowed");
        histogram.auto(true);
        Recorder(RefCell::new(histogram))
    }
}

impl Recorder {
    /// Adds one sample.
    #[inline]
    pub fn record(&self, cycles: u64) {
        let taken = self.0.borrow_mut().record(cycles);
        taken.expect("a histogram that may grow takes every value");
    }

    /// Resets the samples.
    pub fn reset(&self) {
        self.0.borrow_mut().reset();
    }

    /// Sums up; `None` without samples.
    pub fn distribution(&self) -> Option<Distribution> {
        let histogram = self.0.borrow();
        if histogram.is_empty() {
            return None;
        }
        let edge = |index: i32| 2_f64.powf(f64::from(index) / 2.0);
        let mut buckets: Vec<(f64, u64)> = Vec::new();
        let mut index = 0;
        for recorded in histogram.iter_recorded() {
            let value = recorded.value_iterated_to() as f64;
            while edge(index) < value {
                index += 1;
                if !buckets.is_empty() {
                    buckets.push((edge(index), 0));
                }
            }
            if buckets.is_empty() {
                buckets.push((edge(index), 0));
            }
            if let Some((_, count)) = buckets.last_mut() {
                *count += recorded.count_at_value();
            }
        }
        let max = histogram.max() as f64;
        Some(Distribution {
            count: histogram.len(),
            p50: (histogram.value_at_quantile(0.5) as f64).min(max),
            p99: (histogram.value_at_quantile(0.99) as f64).min(max),
            max,
            buckets,
        })
    }
}

/// The distributions that every run measures.
#[derive(Debug, Default)]
pub struct Latencies {
    /// From the call of a flush to its proof, on the requester.
    pub flush: Recorder,
    /// The same of flushes that reached other CPUs, by interrupts or by broadcast.
    pub shootdown: Recorder,
    /// Each section in which a CPU cannot be preempted, outermost ones: pins of the engine and spinlocks. Handlers, and
    /// sections with only interrupts off, are not included.
    pub preemption_off: Recorder,
    /// The longest such section that ended on any CPU, in each `WINDOW_NS`, as a tracer of the longest one would find.
    pub longest_preemption_off: Recorder,
    /// Duration of one interrupt for the interrupted code, entry and exit included.
    pub disturbance: Recorder,
    /// The same for bystanders only: CPUs that ran another space, or kernel code.
    pub bystanders: Recorder,
    /// From the send of an interrupt for a request until its handler has carried it out. Only handlers that found a
    /// request count, and of several interrupts that were taken as one the first.
    pub answer: Recorder,
    /// From the beginning to the end of a system call, in workloads that measure one.
    pub call: Recorder,
    /// From the planned wake-up of a sleeper with real-time priority until it runs.
    pub wake_up: Recorder,
}

/// Length of the windows in which the longest section is searched, ns. Assumed: the published tail does not state the
/// period of its longest sections.
pub const WINDOW_NS: f64 = 1e7;

/// Name of [`Latencies::disturbance`].
pub const DISTURBANCE: &str = "interrupt disturbance";
/// Name of [`Latencies::bystanders`].
pub const BYSTANDERS: &str = "disturbance of bystanders";

impl Latencies {
    /// Each, by name.
    pub fn all(&self) -> [(&'static str, &Recorder); 9] {
        [
            ("flush", &self.flush),
            ("shootdown", &self.shootdown),
            ("preemption off", &self.preemption_off),
            ("longest preemption off in 10 ms", &self.longest_preemption_off),
            (DISTURBANCE, &self.disturbance),
            (BYSTANDERS, &self.bystanders),
            ("interrupt to answer", &self.answer),
            ("call", &self.call),
            ("real-time wake-up", &self.wake_up),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distribution_matches_the_recorded_samples() {
        let recorder = Recorder::default();
        assert_eq!(recorder.distribution(), None);
        (1..=1000).for_each(|value| recorder.record(value));
        recorder.record(50_000_000);
        let found = recorder.distribution().expect("it has samples");
        assert_eq!(found.count, 1001);
        assert!((495.0..=505.0).contains(&found.p50), "{}", found.p50);
        assert!((985.0..=995.0).contains(&found.p99), "{}", found.p99);
        assert!((found.max / 50_000_000.0 - 1.0).abs() < 1e-3, "{}", found.max);
        let total: u64 = found.buckets.iter().map(|&(_, count)| count).sum();
        assert_eq!(total, 1001);
        assert!(found.buckets.is_sorted_by(|a, b| a.0 < b.0));
        assert_eq!(found.buckets[0], (1.0, 1));
        assert_eq!(found.buckets.last().map(|last| last.1), Some(1));
        recorder.reset();
        assert_eq!(recorder.distribution(), None);
    }
}
