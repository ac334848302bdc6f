//! Precision of a measured rate: a confidence interval from batch means.
//!
//! A run is one long series of dependent operations, so their number says little: thousands that all wait for one lock
//! are one observation. The window is therefore cut into batches of equal virtual time. Their rates are nearly
//! independent if batches are long compared with periodic behaviour of the run (Law and Kelton, Simulation Modeling and
//! Analysis, "batch means"). The required length is unknown, so three lengths are tried and the widest interval counts.
//! A trend, as of an unfinished warm-up, widens it too.
//!
//! Owns the samples of one window. Independent of machines.

/// Batches, and the 97.5 % point of Student's t with one degree of freedom less.
const BATCHES: [(usize, f64); 3] = [(8, 2.365), (16, 2.131), (32, 2.040)];

/// Samples kept; beyond that every other one is dropped.
const MOST: usize = 4096;

/// Samples per batch from which its rate exceeds the noise between two samples.
const PER_BATCH: usize = 2;

/// Operations below which no interval is given: a batch would have fewer than one in two.
const FEWEST: u64 = 16;

/// Moments of a window, and the operations done by then.
#[derive(Debug, Default)]
pub(crate) struct Series {
    samples: Vec<(u64, u64)>,
    /// Samples offered since the last kept one, and the number of which one is kept.
    offered: usize,
    every: usize,
}

impl Series {
    /// Adds a sample: `ops` operations done by `cycles`, neither less than before.
    pub(crate) fn add(&mut self, cycles: u64, ops: u64) {
        self.offered += 1;
        if self.offered < self.every {
            return;
        }
        self.offered = 0;
        self.samples.push((cycles, ops));
        if self.samples.len() > MOST {
            let mut odd = false;
            self.samples.retain(|_| {
                odd = !odd;
                odd
            });
            self.every = self.every.max(1) * 2;
        }
    }

    /// Number of samples.
    pub(crate) fn len(&self) -> usize {
        self.samples.len()
    }

    /// Half the width of the 95 % confidence interval of the rate between `from` and `to`, each (cycles, operations),
    /// as a share of the rate; `None` with too few samples.
    pub(crate) fn half_width(&self, from: (u64, u64), to: (u64, u64)) -> Option<f64> {
        if to.1.saturating_sub(from.1) < FEWEST {
            return None;
        }
        let within = self.samples.iter().filter(|at| at.0 > from.0 && at.0 < to.0);
        let points: Vec<(u64, u64)> = [from].into_iter().chain(within.copied()).chain([to]).collect();
        let widths = BATCHES
            .iter()
            .filter(|(count, _)| points.len() > PER_BATCH * count)
            .map(|&(count, t)| relative_half_width(&batches(&points, count), t));
        widths.reduce(f64::max)
    }
}

/// Operations in each of `count` equal parts of the time that `points` cover; between two points they are spread
/// evenly.
fn batches(points: &[(u64, u64)], count: usize) -> Vec<f64> {
    let (first, last) = (points[0], points[points.len() - 1]);
    let mut next = 1;
    let mut done_at = |time: f64| {
        while next + 1 < points.len() && (points[next].0 as f64) < time {
            next += 1;
        }
        let (before, after) = (points[next - 1], points[next]);
        let part = (time - before.0 as f64) / (after.0 - before.0).max(1) as f64;
        before.1 as f64 + part * (after.1 - before.1) as f64
    };
    let mut done = first.1 as f64;
    (1..=count)
        .map(|batch| {
            let time = first.0 as f64 + (last.0 - first.0) as f64 * batch as f64 / count as f64;
            let before = std::mem::replace(&mut done, done_at(time));
            done - before
        })
        .collect()
}

fn relative_half_width(batches: &[f64], t: f64) -> f64 {
    let count = batches.len() as f64;
    let mean = batches.iter().sum::<f64>() / count;
    let variance = batches.iter().map(|batch| (batch - mean).powi(2)).sum::<f64>() / (count - 1.0);
    t * (variance / count).sqrt() / mean
}

/// Half-widths of a confidence interval, as a share of the rate, above which a rate is too uncertain to be compared.
pub const UNCERTAIN: f64 = 0.5;

#[cfg(test)]
mod tests {
    use super::*;
    use rand_xoshiro::Xoshiro256PlusPlus;
    use rand_xoshiro::rand_core::{Rng, SeedableRng};

    /// Series of a process whose operations come `gap` after one another on average, `burst` at a time.
    fn series(seed: u64, ops: u64, gap: f64, burst: u64) -> (Series, (u64, u64)) {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let (mut series, mut time, mut done) = (Series::default(), 0.0, 0);
        while done < ops {
            let uniform = ((random.next_u64() >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
            time -= uniform.ln() * gap * burst as f64;
            done += burst;
            series.add(time as u64, done);
        }
        (series, (time as u64, done))
    }

    #[test]
    fn interval_covers_the_true_rate_at_its_stated_level() {
        let held = (0..400)
            .filter(|&seed| {
                let (series, end) = series(seed, 2000, 1000.0, 1);
                let half = series.half_width((0, 0), end).unwrap();
                let rate = end.1 as f64 / end.0 as f64;
                (rate * 1000.0 - 1.0).abs() <= half * rate * 1000.0
            })
            .count();
        // 95 of 100 with one length of batches; the widest of three contains it more often.
        assert!((380..=400).contains(&held), "{held} of 400");
    }

    #[test]
    fn bursts_and_trends_widen_the_interval() {
        let half = |burst| {
            let (series, end) = series(7, 64_000, 100.0, burst);
            series.half_width((0, 0), end).unwrap()
        };
        assert!(half(1000) > 5.0 * half(1), "{} against {}", half(1000), half(1));
        // Twice as fast at the end as at the beginning: not a rate.
        let mut trend = Series::default();
        (0..1000).for_each(|time| trend.add(time * 1000, time + time * time / 1000));
        let half = trend.half_width((0, 0), (1_000_000, 2000)).unwrap();
        assert!(half > 0.1, "{half}");
    }

    #[test]
    fn too_few_samples_give_no_interval() {
        let (few, end) = series(1, FEWEST - 1, 100.0, 1);
        assert_eq!(few.half_width((0, 0), end), None);
        let mut seldom = Series::default();
        (0..10).for_each(|time| seldom.add(time * 1000, time * 50));
        assert_eq!(seldom.half_width((0, 0), (10_000, 500)), None);
        assert_eq!(Series::default().half_width((5, 5), (5, 5)), None);
    }

    #[test]
    fn thinned_series_gives_the_same_interval() {
        let mut series = Series::default();
        for step in 0..100_000_u64 {
            series.add(step * 10, step + step / 10_000 * 1000);
        }
        assert!(series.len() <= MOST);
        let half = series.half_width((0, 0), (1_000_000, 109_000)).unwrap();
        assert!((0.005..0.2).contains(&half), "{half}");
    }
}
