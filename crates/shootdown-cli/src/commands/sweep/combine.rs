//! Sets of values from the lists and ranges of several parameters: every combination, one at a time, or drawn.

use super::values::{self, Item};

/// Most points, so that a typing error does not exhaust memory.
pub(super) const MOST_RUNS: usize = 2_000_000;

pub(super) const FNV: u64 = 0xcbf2_9ce4_8422_2325;

/// FNV-1a, the same on every machine and under every compiler.
pub(super) fn fnv(hash: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(hash, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

pub(super) fn once(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut list = Vec::new();
    for value in values {
        if !list.contains(&value) {
            list.push(value);
        }
    }
    list
}

/// Every combination, the last list varying fastest; `None` when there are too many.
pub(super) fn product(lists: &[Vec<f64>]) -> Option<Vec<Vec<f64>>> {
    let all = lists
        .iter()
        .try_fold(1_usize, |all, list| all.checked_mul(list.len()))
        .filter(|&all| all <= MOST_RUNS)?;
    let mut combinations = Vec::with_capacity(all);
    combinations.push(Vec::new());
    for list in lists {
        combinations = combinations
            .iter()
            .flat_map(|values| list.iter().map(|&value| [values.as_slice(), &[value]].concat()))
            .collect();
    }
    Some(combinations)
}

/// The base values, then each list's values with all others as in the base.
pub(super) fn one_at_a_time(base: &[f64], lists: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let mut combinations = vec![base.to_vec()];
    for (axis, list) in lists.iter().enumerate() {
        for &value in list.iter().filter(|&&value| value != base[axis]) {
            let mut values = base.to_vec();
            values[axis] = value;
            combinations.push(values);
        }
    }
    combinations
}

/// A Latin hypercube: each axis is cut into as many strata as there are samples, and each stratum is hit once.
pub(super) fn hypercube(axes: &[(String, Vec<Item>)], samples: usize, seed: u64) -> Vec<Vec<f64>> {
    let mut combinations = vec![Vec::with_capacity(axes.len()); samples];
    for (path, items) in axes {
        let mut state = fnv(fnv(FNV, path.as_bytes()), &seed.to_le_bytes());
        // SplitMix64: three lines, the same on every machine; the stream is part of the meaning of a seed.
        let mut random = move || {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            mixed ^ (mixed >> 31)
        };
        let mut strata: Vec<usize> = (0..samples).collect();
        for last in (1..samples).rev() {
            strata.swap(last, (random() % (last as u64 + 1)) as usize);
        }
        for (values, stratum) in combinations.iter_mut().zip(strata) {
            let within = (random() >> 11) as f64 / (1_u64 << 53) as f64;
            values.push(values::sampled(items, (stratum as f64 + within) / samples as f64));
        }
    }
    combinations
}
