//! Machine limits, and which policies fit them.

use super::*;
use std::panic::catch_unwind;

const SPLIT: Machine = Machine {
    split: true,
    ..Machine::PCID
};

#[test]
fn tag_bits_determine_the_tag_limit() {
    assert_eq!(Machine::with_tag_bits(12), Machine::PCID);
    assert_eq!(Machine::with_tag_bits(0), Machine::NO_TAGS);
    assert_eq!(Machine::with_tag_bits(16).tag_limit, 65_536);
    assert!(catch_unwind(|| Machine::with_tag_bits(17)).is_err());
    let has_tags = [0, 1, 12].map(|bits| Machine::with_tag_bits(bits).has_tags());
    assert_eq!(has_tags, [false, true, true]);
}

#[test]
fn tag_limit_can_only_be_lowered() {
    let limits = [100, 4096, 5000].map(|tags| Machine::PCID.limited_to(tags).tag_limit);
    assert_eq!(limits, [100, 4096, 4096]);
}

#[test]
fn split_tags_end_at_the_user_half() {
    let ends = [SPLIT, SPLIT.limited_to(100), Machine::PCID].map(|machine| machine.end_of_tags());
    assert_eq!(ends, [u32::from(USER_HALF), 100, 4096]);
}

#[test]
fn system_wide_tags_need_a_machine_with_tags() {
    for (policy, on_pcid) in [
        (Policy::IPI, Tags::PerCpu),
        (Policy::BROADCAST, Policy::BROADCAST.tags),
        (Policy::ARM_BROADCAST, Tags::System),
    ] {
        assert_eq!(policy.on(Machine::PCID).tags(), on_pcid);
        assert_eq!(policy.on(Machine::NO_TAGS).tags(), Tags::PerCpu);
    }
    let kinds = [Policy::IPI, Policy::BROADCAST, Policy::ARM_BROADCAST].map(|policy| policy.tags.has_system_tags());
    assert_eq!(kinds, [false, true, true]);
}

#[test]
fn unfit_settings_are_refused_and_unused_ones_ignored() {
    let is_refused = |design: Design| design.fits(4).is_err();
    let too_many = Machine {
        tag_limit: (1 << 16) + 1,
        ..Machine::PCID
    };
    assert!(is_refused(Policy::IPI.on(too_many)));
    assert!(!is_refused(Policy::IPI.on(Machine::with_tag_bits(16))));
    let no_window = |policy: Policy| Policy {
        consider_window_ns: 0,
        ..policy
    };
    assert!(is_refused(no_window(Policy::BROADCAST).on(Machine::PCID)));
    assert!(
        !is_refused(no_window(Policy::IPI).on(Machine::PCID)),
        "no space is promoted"
    );
    assert!(
        !is_refused(no_window(Policy::BROADCAST).on(Machine::NO_TAGS)),
        "nor here"
    );
    let from_zero = |machine: Machine| {
        Policy::IPI.on(Machine {
            first_tag: 0,
            ..machine
        })
    };
    assert!(is_refused(from_zero(Machine::PCID)));
    assert!(!is_refused(from_zero(Machine::NO_TAGS)), "no tag is given out");
}

#[test]
fn design_bounds_are_exact() {
    let slots = |slots: u8| Policy { slots, ..Policy::IPI }.on(Machine::PCID).fits(4);
    assert!(slots(0).is_err() && slots(1).is_ok() && slots(16).is_ok() && slots(17).is_err());
    // Tags from 1: one for each slot.
    let tags = |limit: u32| {
        Policy {
            slots: 6,
            ..Policy::IPI
        }
        .on(Machine::PCID.limited_to(limit))
        .fits(4)
    };
    assert_eq!(
        (tags(6), tags(7)),
        (Err("the slots' tags must lie below the end of tags"), Ok(()))
    );
    // One tag more than there are CPUs.
    let system = |limit: u32| Policy::ARM_BROADCAST.on(Machine::PCID.limited_to(limit)).fits(4);
    assert_eq!(
        (system(5), system(6)),
        (Err("system-wide tags must outnumber the CPUs"), Ok(()))
    );
}

#[test]
fn cpus_share_tlb_entries_only_without_per_cpu_tags() {
    let alike = |policy: Policy| policy.tags.are_alike_on_all_cpus();
    assert!(alike(Policy::ARM_BROADCAST) && alike(Policy::ARM_IPI));
    assert!(!alike(Policy::IPI) && !alike(Policy::ADAPTIVE) && !alike(Policy::BROADCAST));
}
