//! Sets of CPUs: masks against a model, shared sets under real threads.

use proptest::prelude::*;
use shootdown::{CpuMask, CpuSet, Native};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

#[derive(Debug, Clone)]
enum Step {
    Join(usize),
    Leave(usize),
}

fn steps(cpus: usize) -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![(0..cpus).prop_map(Step::Join), (0..cpus).prop_map(Step::Leave)];
    proptest::collection::vec(step, 0..200)
}

/// The shared set and the mask agree with the model after the same steps.
fn agree<const W: usize>(steps: &[Step]) -> Result<(), TestCaseError> {
    let (set, mut mask, mut model) = (CpuSet::<Native, W>::new(), CpuMask::<W>::EMPTY, BTreeSet::new());
    for step in steps {
        match *step {
            Step::Join(cpu) => {
                set.join(cpu);
                mask.insert(cpu);
                model.insert(cpu);
            }
            Step::Leave(cpu) => {
                set.leave(cpu);
                mask.remove(cpu);
                model.remove(&cpu);
            }
        }
        let mut seen = Vec::new();
        set.for_each(|cpu| seen.push(cpu));
        prop_assert_eq!(&seen, &model.iter().copied().collect::<Vec<_>>());
        prop_assert_eq!(mask.iter().collect::<Vec<_>>(), seen);
        prop_assert_eq!(mask.len(), model.len());
        prop_assert_eq!(mask.is_empty(), model.is_empty());
        prop_assert_eq!(set.is_empty(), model.is_empty());
        for cpu in [0, 63.min(CpuMask::<W>::CAPACITY - 1), CpuMask::<W>::CAPACITY - 1] {
            let others = model.iter().any(|&other| other != cpu);
            // Every member is below this number of CPUs, and words beyond are not read.
            let cpus = model.last().map_or(1, |last| last + 1);
            prop_assert_eq!(set.has_others(cpu, cpus), others);
            prop_assert_eq!(set.has_others(cpu, CpuMask::<W>::CAPACITY), others);
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn sets_agree_with_a_model_at_64_cpus(steps in steps(64)) {
        agree::<1>(&steps)?;
    }

    #[test]
    fn sets_agree_with_a_model_at_512_cpus(steps in steps(512)) {
        agree::<8>(&steps)?;
    }

    #[test]
    fn sets_agree_with_a_model_at_8192_cpus(steps in steps(8192)) {
        agree::<128>(&steps)?;
    }
}

#[test]
fn union_covers_every_word() {
    let of = |cpus: &[usize]| {
        let mut mask = CpuMask::<3>::EMPTY;
        cpus.iter().for_each(|&cpu| mask.insert(cpu));
        mask
    };
    let mut union = of(&[1, 70]);
    union.union_with(&of(&[2, 70, 191]));
    assert_eq!(union, of(&[1, 2, 70, 191]));
}

/// The counts of the summary have eight bits: counting twice, or not subtracting, overflows into the neighbours.
#[test]
fn summary_counts_each_member_once() {
    let set = CpuSet::<Native, 128>::new();
    let members = || {
        let mut members = Vec::new();
        set.for_each(|cpu| members.push(cpu));
        members
    };
    for round in 0..600 {
        let (cpu, last) = (448 + round % 64, CpuMask::<128>::CAPACITY - 1);
        for twice in [cpu, last, cpu] {
            set.join(twice);
        }
        assert_eq!(members(), [cpu, last], "round {round}");
        for twice in [cpu, last, cpu] {
            set.leave(twice);
        }
        assert_eq!(members(), [0; 0], "round {round}");
    }
    set.join(5000);
    assert!(set.has_others(0, 8192) && !set.has_others(5000, 8192));
}

/// The summary of a large set must not lose a word while one CPU of the word leaves and another stays. The reader
/// checks continuously for the one that stays.
#[test]
fn member_is_seen_while_neighbours_join_and_leave() {
    let set = CpuSet::<Native, 128>::new();
    let stop = AtomicBool::new(false);
    set.join(4000);
    let missed = std::thread::scope(|scope| {
        for neighbour in [4001, 4002, 4003] {
            let (set, stop) = (&set, &stop);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    set.join(neighbour);
                    set.leave(neighbour);
                }
            });
        }
        let mut missed = 0;
        for _ in 0..200_000 {
            let mut found = false;
            set.for_each(|cpu| found |= cpu == 4000);
            missed += u32::from(!found);
        }
        stop.store(true, Ordering::Relaxed);
        missed
    });
    assert_eq!(missed, 0);
    let mut left = Vec::new();
    set.for_each(|cpu| left.push(cpu));
    assert_eq!(left, [4000], "nothing is left behind");
}
